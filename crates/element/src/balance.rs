//! Spreads flows over outputs: a load balancer that keeps no state.

use crate::kind::{Build, ElementKind, static_names};
use dpdk::{Batch, Mbuf, MetaFlags};
use engine::{Cx, Element, ElementInfo};
use packet::frame::MacAddress;
use packet::{FlowKey, Mac, Parsed, ethernet};
use profile::Error as SetupError;
use protocol::problem::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most outputs.
const OUTPUTS: usize = 64;
/// It ends within its Ethernet header.
const TRUNCATED: usize = 0;

/// Spreads flows over outputs `0`, `1`, … by a keyed hash of addresses, protocol and ports, the same for both directions of a
/// flow. With `macs` each output rewrites the destination's Ethernet address: a load balancer without state.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// How many outputs, 1 to 64.
    #[schemars(range(min = 1, max = 64))]
    pub outputs: u16,
    /// By output: the Ethernet address that its packets are sent to. Default: packets stay as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub macs: Vec<String>,
    /// With `macs`: the Ethernet address that they then come from. Default: it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_mac: Option<String>,
}

fn mac(text: &str) -> Option<Mac> {
    text.parse().ok().map(|MacAddress(mac)| mac)
}

impl ElementKind for Options {
    const KIND: &'static str = "distribute";
    const DROPS: &'static [&'static str] = &["truncated"];
    const REPLICABLE: bool = true;
    const EXAMPLE: &'static str = r#"{"outputs": 2, "macs": ["02:00:00:00:00:01", "02:00:00:00:00:02"]}"#;

    fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let outputs = usize::from(self.outputs);
        if !(1..=OUTPUTS).contains(&outputs) {
            problems.push(Problem::new("outputs", format!("there cannot be {outputs}"), "Use 1 to 64"));
        }
        if !self.macs.is_empty() && self.macs.len() != outputs {
            let what = format!("{} addresses for {outputs} outputs", self.macs.len());
            problems.push(Problem::new("macs", what, "Give each output one, or none any"));
        }
        if self.source_mac.is_some() && self.macs.is_empty() {
            let what = "packets whose destination stays keep their source";
            problems.push(Problem::new("source_mac", what, "Give macs too, or leave it out"));
        }
        let all = self.macs.iter().enumerate().map(|(i, text)| (format!("macs[{i}]"), text));
        for (key, text) in all.chain(self.source_mac.iter().map(|text| ("source_mac".into(), text))) {
            if mac(text).is_none() {
                let what = format!("{text:?} is not a MAC address");
                problems.push(Problem::new(key, what, "Write it like \"02:00:00:00:00:01\""));
            }
        }
        problems
    }

    fn outputs(&self) -> Vec<String> {
        (0..self.outputs).map(|i| i.to_string()).collect()
    }

    fn build(&self, _: &mut Build<'_>) -> Result<Box<dyn Element>, SetupError> {
        Ok(Box::new(Balancer {
            count: u64::from(self.outputs.max(1)),
            outputs: static_names(&ElementKind::outputs(self)),
            macs: self.macs.iter().filter_map(|text| mac(text)).collect(),
            source: self.source_mac.as_deref().and_then(mac),
            key: FlowKey::shared(),
        }))
    }
}

/// Element: hands each flow to one of its outputs.
#[derive(Debug)]
pub struct Balancer {
    count: u64,
    outputs: &'static [&'static str],
    macs: Vec<Mac>,
    source: Option<Mac>,
    /// For packets that no parser has seen.
    key: FlowKey,
}

/// The share of `0..count` that a hash falls into, without a division.
#[inline]
fn share(hash: u32, count: u64) -> usize {
    ((u64::from(hash) * count) >> 32) as usize
}

impl Balancer {
    #[inline]
    fn output(&self, mbuf: &Mbuf) -> usize {
        let hash = mbuf.meta().filter(|meta| meta.flags.has(MetaFlags::HASHED)).map(|meta| meta.hash);
        share(hash.unwrap_or_else(|| self.hash(mbuf.data())), self.count)
    }

    #[cold]
    fn hash(&self, frame: &[u8]) -> u32 {
        Parsed::of(frame).map_or(0, |parsed| self.key.hash(frame, &parsed))
    }

    /// Send the frame to the next hop of an output.
    #[inline]
    fn rewrite(&self, frame: &mut [u8], output: usize) -> bool {
        let Some(mac) = self.macs.get(output) else { return true };
        let Some(header) = frame.first_chunk_mut::<{ ethernet::LEN }>() else { return false };
        header[..6].copy_from_slice(mac);
        if let Some(source) = &self.source {
            header[6..12].copy_from_slice(source);
        }
        true
    }
}

impl Element for Balancer {
    fn about(&self) -> ElementInfo {
        ElementInfo {
            kind: Options::KIND,
            takes: true,
            outputs: self.outputs,
            drops: Options::DROPS,
            polled: false,
        }
    }

    #[inline]
    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        batch.filter_map(|mut mbuf| {
            let output = self.output(&mbuf);
            if !self.macs.is_empty() && !self.rewrite(mbuf.data_mut(), output) {
                cx.count(TRUNCATED, 1);
                return None;
            }
            match output {
                0 => Some(mbuf),
                output => {
                    cx.emit(output, mbuf);
                    None
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn options(text: &str) -> Options {
        serde_json::from_str(text).expect("options")
    }

    #[test]
    fn addresses_are_those_of_the_output() {
        let balancer = Balancer {
            count: 2,
            outputs: static_names(&["0".into(), "1".into()]),
            macs: vec![[1; 6], [2; 6]],
            source: Some([9; 6]),
            key: FlowKey::new([1, 2]),
        };
        let mut frame = [0; 60];
        assert!(balancer.rewrite(&mut frame, 1));
        assert_eq!((frame[..6].to_vec(), frame[6..12].to_vec(), frame[12]), (vec![2; 6], vec![9; 6], 0));
        assert!(!balancer.rewrite(&mut [0; 13], 0));
        let plain = Balancer { macs: Vec::new(), ..balancer };
        assert!(plain.rewrite(&mut [0; 3], 0), "nothing is to be written");
    }

    #[test]
    fn wrong_options_are_named() {
        for (text, key) in [
            (r#"{"outputs": 0}"#, "outputs"),
            (r#"{"outputs": 65}"#, "outputs"),
            (r#"{"outputs": 2, "macs": ["02:00:00:00:00:01"]}"#, "macs"),
            (r#"{"outputs": 1, "macs": ["02:00"]}"#, "macs[0]"),
            (r#"{"outputs": 1, "source_mac": "02:00:00:00:00:01"}"#, "source_mac"),
        ] {
            let problems = options(text).check();
            assert_eq!(problems.first().map(|problem| problem.key.as_str()), Some(key), "{text}");
        }
        assert!(options(Options::EXAMPLE).check().is_empty());
    }

    proptest! {
        #[test]
        fn each_hash_has_an_output_and_each_output_its_share(hash in any::<u32>(), count in 1u64..=64) {
            let output = share(hash, count);
            prop_assert!((output as u64) < count);
            // The hashes of one output lie side by side, as many for each but for one.
            let first = (output as u64 * (1 << 32)).div_ceil(count);
            prop_assert!(u64::from(hash) >= first && u64::from(hash) - first <= (1 << 32) / count);
        }
    }
}
