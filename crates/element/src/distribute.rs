//! Spreads what one queue receives over lanes, where the port does not or must not.
//!
//! A stream's frames take one lane whatever varies in them; those of no stream, that of their flow and its way back. So
//! their order is kept, and who counts a stream sees all of it.

use dpdk::Batch;
use engine::{About, Cx, Element};
use packet::Layers;
use packet::signature::Signature;

/// Most lanes.
pub const LANES: usize = 16;

const OUTPUTS: [&str; LANES] =
    ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"];

/// Element: hands each frame to the lane of its stream. What is of no stream goes by flow, and what is of none takes the first lane.
#[derive(Debug)]
pub struct Distribute {
    lanes: usize,
}

impl Distribute {
    /// Over so many lanes.
    pub fn new(lanes: usize) -> Self {
        Self { lanes: lanes.clamp(1, LANES) }
    }

    #[inline]
    fn lane(&self, frame: &[u8]) -> usize {
        let layers = Layers::find(frame);
        let end = layers.as_ref().map_or(frame.len(), |layers| layers.end);
        let key = match Signature::find(frame, end) {
            Some(signature) => signature.stream,
            None => layers.map_or(0, |layers| flow(frame, &layers)),
        };
        key as usize % self.lanes
    }
}

/// Of the addresses and, where there are any, ports; the same for both directions.
#[inline]
fn flow(frame: &[u8], layers: &Layers) -> u32 {
    /// TCP, UDP and SCTP begin with their ports.
    const WITH_PORTS: [u8; 3] = [6, 17, 132];
    let (at, len) = if layers.is_v6() { (layers.ip + 8, 32) } else { (layers.ip + 12, 8) };
    let Some(addresses) = frame.get(at..at + len) else { return 0 };
    let ports = frame.get(layers.l4..layers.l4 + 4).filter(|_| WITH_PORTS.contains(&layers.protocol));
    let word = |bytes: &[u8]| bytes.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
    // A sum does not mind which side stands first. Ports are scaled: else an address that counts up and a port that
    // counts down would cancel out.
    let add = |sum: u32, bytes: &[u8]| sum.wrapping_add(word(bytes));
    let add_port = |sum: u32, port: &[u8]| sum.wrapping_add(word(port).wrapping_mul(0x85eb_ca6b));
    let sum = ports.unwrap_or_default().chunks(2).fold(addresses.chunks(4).fold(0, add), add_port);
    // The high bits depend on all of the low ones (Knuth's multiplicative hash).
    sum.wrapping_mul(0x9e37_79b1) >> 16
}

impl Element for Distribute {
    fn about(&self) -> About {
        About { kind: "spread", takes: true, outputs: &OUTPUTS[..self.lanes], drops: &[], polled: false }
    }

    #[inline]
    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        batch.filter_map(|mbuf| match self.lane(mbuf.data()) {
            0 => Some(mbuf),
            lane => {
                cx.emit(lane, mbuf);
                None
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::frame::Written;
    use packet::signature::Signature;
    use packet::{Flow, Program, ipv4, ipv6, udp};
    use proptest::prelude::*;

    /// Signed as of a stream, or not at all.
    fn frame(from: &str, to: &str, stream: Option<u32>) -> Vec<u8> {
        let flow = Flow {
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
            source: from.parse().expect("an address"),
            destination: to.parse().expect("an address"),
        };
        let mut frame = vec![0; 100];
        let signature = Signature { stream: stream.unwrap_or_default(), sequence: 2, sent_ns: 3 };
        let written = Program::udp(&flow, 100).expect("it fits").write(&mut frame, 0, &signature);
        assert_eq!(written, Written::Signed);
        if stream.is_none() {
            frame[70..].fill(0);
        }
        frame
    }

    /// How many of these frames take each lane.
    fn spread(frames: impl Iterator<Item = Vec<u8>>) -> Vec<usize> {
        let spread = Distribute::new(4);
        frames.fold(vec![0; 4], |mut lanes, frame| {
            lanes[spread.lane(&frame)] += 1;
            lanes
        })
    }

    #[test]
    fn streams_are_dealt_out_and_a_streams_frames_stay_together() {
        let frames =
            |stream| (0..50).map(move |i| frame(&format!("10.0.0.{i}:{i}"), "10.0.1.1:7", Some(stream)));
        assert_eq!(spread((0..8).flat_map(frames)), [100; 4]);
        assert_eq!(spread(frames(6)), [0, 0, 50, 0]);
        assert_eq!(Distribute::new(4).lane(&[0; 60]), 0);
    }

    #[test]
    fn flows_are_dealt_out_evenly_and_both_directions_take_one_lane() {
        for (host, far) in [("10.0.0.1", "10.0.1.1"), ("[fd00::1]", "[fd01::1]")] {
            let frames =
                (0..400).map(|i| frame(&format!("{host}:{}", 49_152 + i), &format!("{far}:7"), None));
            let lanes = spread(frames.clone());
            assert!(lanes.iter().all(|n| (70..=130).contains(n)), "{lanes:?}");
            for mut there in frames {
                let lane = Distribute::new(LANES).lane(&there);
                let layers = Layers::find(&there).expect("whole");
                if layers.is_v6() {
                    ipv6::swap(&mut there, layers.ip)
                } else {
                    ipv4::swap(&mut there, layers.ip)
                }
                udp::swap(&mut there, layers.l4);
                assert_eq!(Distribute::new(LANES).lane(&there), lane);
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..128),
            changes in proptest::collection::vec((0usize..100, any::<u8>()), 0..6),
            cut in 0usize..=100,
        ) {
            let mut known = frame("10.0.0.1:5", "10.0.0.2:7", Some(9));
            changes.into_iter().for_each(|(at, value)| known[at] = value);
            prop_assert!(Distribute::new(3).lane(&bytes) < 3);
            prop_assert!(Distribute::new(3).lane(&known[..cut]) < 3);
        }
    }
}
