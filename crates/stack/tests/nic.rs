//! Port that does by itself what it is told to: checksums, and segmentation of TCP.

use packet::{Layers, checksum};
use stack::{Offload, Transmit, Work};

/// Takes all frames. What the stack leaves to it is done when they are [taken](Self::frames).
#[derive(Default)]
pub struct Nic {
    pub offload: Offload,
    frames: Vec<(Vec<u8>, Option<Work>)>,
}

impl Nic {
    pub fn new(offload: Offload) -> Self {
        Self { offload, ..Self::default() }
    }

    /// What leaves: every checksum right, no frame longer than it may be.
    pub fn frames(self) -> Vec<Vec<u8>> {
        let done = |(mut frame, work): (Vec<u8>, Option<Work>)| {
            if let Some(work) = work {
                complete(&mut frame, &work);
            }
            frame
        };
        self.frames.into_iter().map(done).collect()
    }
}

impl Transmit for Nic {
    fn frame(&mut self, len: usize) -> Option<&mut [u8]> {
        self.frames.push((vec![0; len], None));
        self.frames.last_mut().map(|(frame, _)| frame.as_mut_slice())
    }

    fn offload(&self) -> Offload {
        self.offload
    }

    fn frame_with_work(&mut self, len: usize, work: &Work) -> Option<&mut [u8]> {
        assert!(self.offload.checksums && work.segment.is_none());
        // what was there before is nobody's checksum
        self.frames.push((vec![0xee; len], Some(*work)));
        self.frames.last_mut().map(|(frame, _)| frame.as_mut_slice())
    }

    fn segmented(&mut self, headers: &[u8], payload: &[u8], work: &Work) -> bool {
        let by = self.offload.segmentation.expect("it segments");
        let size = usize::from(work.segment.expect("how"));
        assert!(payload.len() > size && headers.len() + payload.len() <= by.longest);
        assert!(headers.len() == work.l2 + work.l3 + work.l4 && headers.len() + size <= by.longest_segment);
        assert!(by.v6 || !work.v6);
        let last = payload.chunks(size).count() - 1;
        for (number, piece) in payload.chunks(size).enumerate() {
            let mut frame = [headers, piece].concat();
            let len = (frame.len() - work.l2 - if work.v6 { 40 } else { 0 }) as u16;
            let at = work.l2 + if work.v6 { 4 } else { 2 };
            frame[at..at + 2].copy_from_slice(&len.to_be_bytes());
            let tcp = &mut frame[work.l2 + work.l3..];
            let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
            tcp[4..8].copy_from_slice(&sequence.wrapping_add((number * size) as u32).to_be_bytes());
            if number < last {
                tcp[13] &= !0x09;
            }
            self.frames.push((frame, Some(*work)));
        }
        true
    }
}

/// Make the checksums.
fn complete(frame: &mut [u8], work: &Work) {
    let (ip, l4) = (work.l2, work.l2 + work.l3);
    if !work.v6 {
        frame[ip + 10..ip + 12].fill(0);
        let sum = checksum::of(&frame[ip..l4]);
        frame[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    }
    let layers = Layers::find(frame).expect("an IP packet");
    assert_eq!((layers.ip, layers.l4, layers.is_v6()), (ip, l4, work.v6));
    assert_eq!(layers.protocol, if work.tcp { 6 } else { 17 });
    let at = l4 + if work.tcp { 16 } else { 6 };
    frame[at..at + 2].fill(0);
    let sum = layers.checksum(frame);
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}
