//! Which worker runs which element: data, not code.

use serde::{Deserialize, Serialize};

/// Where a graph's elements run. The same graph may be placed in any way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// The workers.
    pub workers: Vec<Seat>,
    /// Packets that each ring between workers holds at least.
    #[serde(default = "ring")]
    pub ring: u32,
}

/// One worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seat {
    /// The core it is pinned to; without one the kernel chooses.
    #[serde(default)]
    pub core: Option<usize>,
    /// Names of the elements it runs. Elements named nowhere run on the first worker.
    #[serde(default)]
    pub elements: Vec<String>,
}

fn ring() -> u32 {
    1023
}

impl Placement {
    /// Everything on one worker.
    pub fn single(core: Option<usize>) -> Self {
        Self { workers: vec![Seat { core, elements: Vec::new() }], ring: ring() }
    }

    /// One worker per list of names, pinned to no core.
    pub fn split<const N: usize>(workers: [&[&str]; N]) -> Self {
        let seat = |names: &[&str]| Seat {
            core: None,
            elements: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        Self { workers: workers.into_iter().map(seat).collect(), ring: ring() }
    }
}
