//! One packet in so many (RFC 5475 section 5.1, systematic count-based sampling).

use crate::kind::{Build, ElementKind};
use dpdk::Batch;
use engine::{Cx, Element, ElementInfo};
use profile::Error as SetupError;
use protocol::problem::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sends one packet in `every` to `sampled`, the first one first, and all others to `out`. For a copy of one in so many put a
/// `tee` before it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Packets of which one is sampled: 1 samples all. At least 1.
    #[schemars(range(min = 1))]
    pub every: u32,
}

impl ElementKind for Options {
    const KIND: &'static str = "sampler";
    const DROPS: &'static [&'static str] = &[];
    const REPLICABLE: bool = true;
    const EXAMPLE: &'static str = r#"{"every": 1000}"#;

    fn check(&self) -> Vec<Problem> {
        let none =
            Problem::new("every", "0 samples nothing", "Use 1 or more; leave the sampler out for none");
        if self.every == 0 { vec![none] } else { Vec::new() }
    }

    fn outputs(&self) -> Vec<String> {
        vec!["out".into(), "sampled".into()]
    }

    fn build(&self, _: &mut Build<'_>) -> Result<Box<dyn Element>, SetupError> {
        Ok(Box::new(Sampler::new(self.every)))
    }
}

/// Element: counts packets down to the next sample.
#[derive(Debug)]
pub struct Sampler {
    every: u32,
    /// Packets to go before the next sample.
    left: u32,
}

impl Sampler {
    /// One in `every`.
    pub fn new(every: u32) -> Self {
        Self { every: every.max(1), left: 0 }
    }

    /// Whether none of the next `len` packets is a sample; they have passed then.
    #[inline]
    fn all_pass(&mut self, len: u32) -> bool {
        let pass = self.left >= len;
        self.left -= if pass { len } else { 0 };
        pass
    }

    /// Whether the next packet is a sample.
    #[inline]
    fn next_is_sample(&mut self) -> bool {
        let sample = self.left == 0;
        self.left = if sample { self.every - 1 } else { self.left - 1 };
        sample
    }
}

impl Element for Sampler {
    fn about(&self) -> ElementInfo {
        ElementInfo {
            kind: Options::KIND,
            takes: true,
            outputs: &["out", "sampled"],
            drops: Options::DROPS,
            polled: false,
        }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        // Most batches have no sample in them: they pass whole.
        if self.all_pass(batch.len() as u32) {
            return;
        }
        batch.filter_map(|mbuf| {
            if !self.next_is_sample() {
                return Some(mbuf);
            }
            cx.emit(1, mbuf);
            None
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Of any packets, whatever batches they come in, those with a number that `every` divides.
        #[test]
        fn one_in_every_is_sampled(every in 1u32..50, batches in proptest::collection::vec(0u32..128, 0..20)) {
            let (mut sampler, mut number) = (Sampler::new(every), 0u32);
            for len in batches {
                let (samples, passed) = ((number..number + len).any(|n| n % every == 0), sampler.all_pass(len));
                prop_assert_eq!(passed, !samples);
                for n in (number..number + len).filter(|_| !passed) {
                    prop_assert_eq!(sampler.next_is_sample(), n % every == 0);
                }
                number += len;
            }
        }
    }

    #[test]
    fn a_sampler_of_nothing_is_refused() {
        assert_eq!(Options { every: 0 }.check()[0].key, "every");
        assert!(Options { every: 1 }.check().is_empty());
    }
}
