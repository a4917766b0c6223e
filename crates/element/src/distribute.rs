//! Spreads what one queue receives over outputs, where the port does not or must not.
//!
//! A stream's frames take one output whatever varies in them; those of no stream, that of their flow and its way back. So
//! their order is kept, and who counts a stream sees all of it.

use crate::kind::{Build, ElementKind};
use dpdk::Batch;
use engine::{Cx, Element, ElementInfo};
use packet::signature::Signature;
use packet::{FlowKey, Parsed};
use profile::Error as SetupError;
use protocol::problem::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most outputs.
pub const MOST_OUTPUTS: usize = 16;

const OUTPUTS: [&str; MOST_OUTPUTS] =
    ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"];

/// The kind of element.
pub const KIND: &str = "flow-distributor";

/// Deals packets out over its outputs `0`, `1` and so on: those of a stream to one of them whatever varies in them, others by flow,
/// both directions alike.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// How many outputs, 1 to 16.
    #[schemars(range(min = 1, max = 16))]
    pub outputs: usize,
}

impl ElementKind for Options {
    const KIND: &'static str = KIND;
    const DROPS: &'static [&'static str] = &[];
    const REPLICABLE: bool = true;
    const EXAMPLE: &'static str = r#"{"outputs": 2}"#;

    fn check(&self) -> Vec<Problem> {
        let what = || format!("there cannot be {} outputs", self.outputs);
        let wrong = !(1..=MOST_OUTPUTS).contains(&self.outputs);
        wrong
            .then(|| Problem::new("outputs", what(), format!("Use 1 to {MOST_OUTPUTS}")))
            .into_iter()
            .collect()
    }

    fn outputs(&self) -> Vec<String> {
        OUTPUTS[..self.outputs.min(MOST_OUTPUTS)].iter().map(|name| (*name).to_owned()).collect()
    }

    fn build(&self, _: &mut Build<'_>) -> Result<Box<dyn Element>, SetupError> {
        Ok(Box::new(Distribute::new(self.outputs)))
    }
}

/// Element: hands each frame to the output of its stream. What is of no stream goes by flow, and what is of none takes the first output.
#[derive(Debug)]
pub struct Distribute {
    outputs: usize,
    key: FlowKey,
}

impl Distribute {
    /// Over so many outputs.
    pub fn new(outputs: usize) -> Self {
        Self { outputs: outputs.clamp(1, MOST_OUTPUTS), key: FlowKey::shared() }
    }

    #[inline]
    fn output(&self, frame: &[u8]) -> usize {
        let ip = Parsed::of(frame).ok().filter(|parsed| parsed.ip.is_some());
        let end = ip.and_then(|parsed| parsed.ip).map_or(frame.len(), |ip| ip.end.into());
        let key = match Signature::find(frame, end) {
            Some(signature) => signature.stream,
            None => ip.map_or(0, |parsed| self.key.hash(frame, &parsed)),
        };
        key as usize % self.outputs
    }
}

impl Element for Distribute {
    fn about(&self) -> ElementInfo {
        ElementInfo {
            kind: KIND,
            takes: true,
            outputs: &OUTPUTS[..self.outputs],
            drops: Options::DROPS,
            polled: false,
        }
    }

    #[inline]
    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        batch.filter_map(|mbuf| match self.output(mbuf.data()) {
            0 => Some(mbuf),
            output => {
                cx.emit(output, mbuf);
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
    use packet::{Flow, Layers, Program, ipv4, ipv6, udp};
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

    /// One whose hashes are no other ones tomorrow.
    fn fixed(outputs: usize) -> Distribute {
        Distribute {
            key: FlowKey::new([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]),
            ..Distribute::new(outputs)
        }
    }

    /// How many of these frames take each output.
    fn spread(frames: impl Iterator<Item = Vec<u8>>) -> Vec<usize> {
        let spread = fixed(4);
        frames.fold(vec![0; 4], |mut outputs, frame| {
            outputs[spread.output(&frame)] += 1;
            outputs
        })
    }

    #[test]
    fn streams_are_dealt_out_and_a_streams_frames_stay_together() {
        let frames =
            |stream| (0..50).map(move |i| frame(&format!("10.0.0.{i}:{i}"), "10.0.1.1:7", Some(stream)));
        assert_eq!(spread((0..8).flat_map(frames)), [100; 4]);
        assert_eq!(spread(frames(6)), [0, 0, 50, 0]);
        assert_eq!(fixed(4).output(&[0; 60]), 0);
    }

    #[test]
    fn flows_are_dealt_out_evenly_and_both_directions_take_one_lane() {
        for (host, far) in [("10.0.0.1", "10.0.1.1"), ("[fd00::1]", "[fd01::1]")] {
            let frames =
                (0..400).map(|i| frame(&format!("{host}:{}", 49_152 + i), &format!("{far}:7"), None));
            let outputs = spread(frames.clone());
            assert!(outputs.iter().all(|n| (70..=130).contains(n)), "{outputs:?}");
            for mut there in frames {
                let output = fixed(MOST_OUTPUTS).output(&there);
                let layers = Layers::find(&there).expect("whole");
                if layers.is_v6() {
                    ipv6::swap(&mut there, layers.ip)
                } else {
                    ipv4::swap(&mut there, layers.ip)
                }
                udp::swap(&mut there, layers.l4);
                assert_eq!(fixed(MOST_OUTPUTS).output(&there), output);
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
            prop_assert!(Distribute::new(3).output(&bytes) < 3);
            prop_assert!(Distribute::new(3).output(&known[..cut]) < 3);
        }
    }
}
