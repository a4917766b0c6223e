//! Hands every frame on to another port: the simplest device under test, and the measure of what passing a packet
//! through costs.

use crate::kind::{Build, ElementKind};
use dpdk::{Batch, Mbuf};
use engine::{Cx, Element, ElementInfo};
use packet::ethernet;
use profile::{Error as SetupError, Forward};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Hands packets on as they are, or with their Ethernet addresses swapped.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// What is done with them. Default io.
    #[serde(default)]
    pub forward: Forward,
}

impl ElementKind for Options {
    const KIND: &'static str = "l2fwd";
    const DROPS: &'static [&'static str] = &["truncated"];
    const REPLICABLE: bool = true;
    const EXAMPLE: &'static str = r#"{"forward": "macswap"}"#;

    fn build(&self, _: &mut Build<'_>) -> Result<Box<dyn Element>, SetupError> {
        Ok(Box::new(L2fwd(self.forward)))
    }
}

/// Element: leaves frames as they are, or swaps their Ethernet addresses.
#[derive(Debug)]
pub struct L2fwd(pub Forward);

/// It ends within the addresses.
const TRUNCATED: usize = 0;

#[inline]
fn macswap(frame: &mut [u8]) -> Result<(), usize> {
    if frame.len() < ethernet::LEN {
        return Err(TRUNCATED);
    }
    ethernet::swap(frame);
    Ok(())
}

impl Element for L2fwd {
    fn about(&self) -> ElementInfo {
        ElementInfo {
            kind: Options::KIND,
            takes: true,
            outputs: &["out"],
            drops: Options::DROPS,
            polled: false,
        }
    }

    #[inline]
    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        match self.0 {
            Forward::Io => {}
            Forward::Macswap => {
                // The first segment has the addresses, however many there are.
                let swapped = batch.data_mut().fold(true, |all, frame| macswap(frame).is_ok() & all);
                if !swapped {
                    // What still shares its bytes got none of its own.
                    let keep = |mbuf: &mut Mbuf| mbuf.data().len() >= ethernet::LEN && !mbuf.is_shared();
                    cx.drop_rejected(batch, |mbuf| if keep(mbuf) { Ok(()) } else { Err(TRUNCATED) });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_change_places_and_nothing_else_does() {
        let mut frame: Vec<u8> = (0..64).collect();
        assert_eq!(macswap(&mut frame), Ok(()));
        assert_eq!((&frame[..6], &frame[6..12]), (&[6, 7, 8, 9, 10, 11][..], &[0, 1, 2, 3, 4, 5][..]));
        assert_eq!(frame[12..], (12..64).collect::<Vec<u8>>());
        assert_eq!(macswap(&mut frame[..14]), Ok(()));
        assert_eq!(frame, (0..64).collect::<Vec<u8>>());
        assert_eq!(macswap(&mut frame[..13]), Err(TRUNCATED));
    }
}
