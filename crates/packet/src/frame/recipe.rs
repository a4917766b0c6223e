//! What a frame is composed from.

use super::flow::Flow;
use super::layer::Layer;
use super::vary::Vary;
use std::net::IpAddr;

/// Sizes of frames, without FCS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sizes {
    /// One after the other, and again.
    Cycle(Vec<usize>),
    /// Any from the first to the last, both included.
    Random(usize, usize),
}

impl Sizes {
    /// Each size as often as its weight says, evenly spread: the one that lags most comes next.
    pub fn weighted(mix: &[(usize, u32)]) -> Self {
        let total: i64 = mix.iter().map(|(_, weight)| i64::from(*weight)).sum();
        let mut credit = vec![0i64; mix.len()];
        let mut cycle = Vec::new();
        for _ in 0..total {
            for (credit, (_, weight)) in credit.iter_mut().zip(mix) {
                *credit += i64::from(*weight);
            }
            let Some(at) = (0..mix.len()).rev().max_by_key(|at| credit[*at]) else { break };
            credit[at] -= total;
            cycle.push(mix[at].0);
        }
        Self::Cycle(cycle)
    }

    pub(super) fn distinct(&self) -> Vec<usize> {
        match self {
            Self::Cycle(cycle) => {
                let mut sizes = cycle.clone();
                sizes.sort_unstable();
                sizes.dedup();
                sizes
            }
            Self::Random(from, to) => (*from..=*to).collect(),
        }
    }
}

/// Devices that send in turn: each has its own source port, counted up from the flow's, and its own of some
/// addresses, where layers and variation leave these open.
#[derive(Debug, Clone, Copy, Default)]
pub struct Devices<'a> {
    /// How many; with one or none the flow says it all.
    pub count: u32,
    /// Source ports before the first comes again.
    pub ports: u16,
    /// Source addresses, in turn; none: the flow's.
    pub sources: &'a [IpAddr],
}

/// What a frame is composed from.
#[derive(Debug, Clone, Copy)]
pub struct Recipe<'a> {
    /// From the outside in, an Ethernet header first.
    pub layers: &'a [Layer],
    /// Fields that vary.
    pub vary: &'a [Vary],
    /// Sizes.
    pub sizes: &'a Sizes,
    /// Whether every frame must have room for a signature.
    pub measured: bool,
    /// Addresses and ports that the layers leave open.
    pub flow: &'a Flow,
    /// The devices that send, if there are several.
    pub devices: Devices<'a>,
    /// Seed of everything random.
    pub seed: u64,
}
