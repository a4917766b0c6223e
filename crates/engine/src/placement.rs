//! Which worker runs which element: data, not code.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a graph's elements run. The same graph may be placed in any way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// The workers.
    pub workers: Vec<WorkerSpec>,
    /// Packets that each ring between workers holds at least.
    #[serde(default = "ring")]
    pub ring: u32,
    /// Elements of which there are several, by their names in the graph.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replicas: BTreeMap<String, Replicas>,
}

/// Several of one element. They are called `NAME#0`, `NAME#1` and so on, and may be placed one by one, or all under `NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replicas {
    /// How many.
    pub count: usize,
    /// What decides which of them a packet goes to: `flow` (both directions of a flow to one), `round_robin`, `upstream`, or an
    /// [`Affinity`](crate::affinity::Affinity) that the graph was given under this name.
    ///
    /// `upstream` joins each replica with the one of the same number before it, without a hand-off: for stages behind receive
    /// queues over which the port spreads flows (RSS), which are replicas, too.
    #[serde(default = "flow")]
    pub affinity: String,
}

/// One worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerSpec {
    /// The core it is pinned to; without one the kernel chooses.
    #[serde(default)]
    pub core: Option<usize>,
    /// Names of the elements it runs. Elements named nowhere run on the first worker.
    #[serde(default)]
    pub elements: Vec<String>,
}

fn flow() -> String {
    crate::affinity::FLOW.into()
}

fn ring() -> u32 {
    1023
}

impl Placement {
    /// Everything on one worker.
    pub fn single(core: Option<usize>) -> Self {
        Self {
            workers: vec![WorkerSpec { core, elements: Vec::new() }],
            ring: ring(),
            replicas: BTreeMap::new(),
        }
    }

    /// One worker per list of names, pinned to no core.
    pub fn split<const N: usize>(workers: [&[&str]; N]) -> Self {
        let spec = |names: &[&str]| WorkerSpec {
            core: None,
            elements: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        Self { workers: workers.into_iter().map(spec).collect(), ring: ring(), replicas: BTreeMap::new() }
    }

    /// The same, with `count` of the element called `name`.
    #[must_use]
    pub fn replicated(mut self, name: &str, count: usize, affinity: &str) -> Self {
        self.replicas.insert(name.into(), Replicas { count, affinity: affinity.into() });
        self
    }
}
