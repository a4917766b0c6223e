//! Frames of TCP that leave as several packets: segmented by the port, or here.

use dpdk::{Batch, Mempool, TxWork};
use packet::frame::Segmentation;

/// Of one group's streams.
#[derive(Debug)]
pub struct Segmenter {
    segmentation: Segmentation,
    /// How many packets a frame becomes.
    packets: usize,
    /// What to tell the port, if that segments.
    work: Option<TxWork>,
    /// The frame under way.
    frame: Box<[u8]>,
    /// Packets of it that are on their way, in the batch or further.
    made: usize,
}

impl Segmenter {
    /// With nothing under way. `work`: the port segments.
    pub fn new(segmentation: Segmentation, work: Option<TxWork>) -> Self {
        let packets = segmentation.packets();
        Self { segmentation, packets, work, frame: vec![0; segmentation.frame_bytes()].into(), made: packets }
    }

    /// How many packets a frame becomes.
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// Bytes of a frame's packets together.
    pub fn bytes(&self) -> usize {
        self.segmentation.bytes()
    }

    /// Packets of the frame under way that are still to be made.
    pub fn remaining(&self) -> usize {
        self.packets - self.made
    }

    /// Let what is left go.
    pub fn abandon(&mut self) {
        self.made = self.packets;
    }

    /// Begin the next frame: to be written there.
    pub fn begin(&mut self) -> &mut [u8] {
        self.made = 0;
        &mut self.frame
    }

    /// Add what is left, or as much of it as fits, and there are packets for.
    pub fn fill(&mut self, pool: &Mempool, batch: &mut Batch) {
        let (have, n) = (batch.len(), self.remaining().min(batch.room()));
        if n == 0 {
            return;
        }
        if let Some(work) = &self.work {
            if let Some(mut whole) = pool.packet(&self.frame) {
                whole.request_tx_offload(work);
                // There is room.
                let _full = batch.push(whole);
                self.made = self.packets;
            }
            return;
        }
        if !pool.fill(batch, have + n) {
            return;
        }
        for (number, mbuf) in (self.made..).zip(&mut batch.frames_mut()[have..]) {
            // The pool's packets have room for the longest: see where it is made.
            let out = mbuf.set_len(self.segmentation.packet_len(number)).unwrap_or_default();
            self.segmentation.write(&self.frame, number, out);
        }
        self.made += n;
    }
}
