//! The graph of a transport as it is shown, and its impaired ports.

use crate::interfaces::Interfaces;
use crate::pauses::Pauses;
use crate::sample::ElementCounts;
use crate::setup_error::SetupError;
use profile::{DirectionTimeline, Impairment};
use protocol::problem::Problem;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// A graph of elements, planned or at work. It outlives the run, and shows then what was last.
pub trait GraphView: Send {
    /// What it is made of.
    fn shape(&self) -> &GraphShape;

    /// What passed through each element since the start; nothing before.
    fn elements(&self) -> Vec<ElementCounts>;

    /// Bytes that passed each queue of a port since the start, by the element's name; nothing before.
    fn bytes(&self) -> BTreeMap<String, u64>;

    /// What its ports counted since they were opened. Nothing of a run, whose series and result have it.
    fn interfaces(&self) -> Interfaces;

    /// What each worker did since the start; nothing before.
    fn workers(&self) -> Vec<WorkerCounts>;

    /// Trace the next packets that `filter` (as in pcap-filter(7); empty: any) matches, until all are through,
    /// `wait` is over, or `go_on` says no. One at a time: the next ends the one before. `None` before the start.
    fn trace(
        &self,
        packets: usize,
        filter: &str,
        wait: Duration,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Trace>, SetupError>;
}

/// What a graph is made of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GraphShape {
    /// The workers, in the order of their numbers.
    pub workers: Vec<WorkerPlace>,
    /// The elements.
    pub elements: Vec<ElementPlace>,
    /// How they are connected.
    pub edges: Vec<Edge>,
    /// The ports, once they are open.
    pub ports: Vec<PortFacts>,
}

/// A port, and which work it does by itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PortFacts {
    /// Its name in the profile.
    pub name: String,
    /// The device string, in full.
    pub device: String,
    /// DPDK's driver for it.
    pub driver: String,
    /// Its Ethernet address.
    pub mac: String,
    /// Queues that receive.
    pub rx_queues: usize,
    /// Queues that send.
    pub tx_queues: usize,
    /// What the port does: the rest is done by elements.
    pub uses: Vec<&'static str>,
    /// What it offers to do, by its own word.
    pub offers: Vec<&'static str>,
    /// Where each kind of work on its packets is done: `port`, `software`, or both.
    pub work: BTreeMap<&'static str, &'static str>,
}

/// Where a worker runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerPlace {
    /// Its number.
    pub worker: usize,
    /// The core it is pinned to.
    pub core: Option<usize>,
}

/// Where an element runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ElementPlace {
    /// `PORT.KIND`.
    pub name: String,
    /// What kind of element it is.
    pub kind: String,
    /// The worker it runs on.
    pub worker: usize,
    /// That worker's core.
    pub core: Option<usize>,
}

/// A connection.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Edge {
    /// The element it starts at.
    pub from: String,
    /// The element it leads to.
    pub to: String,
    /// Whether a ring carries it from one worker to another.
    pub ring: bool,
}

/// What a worker did since the start.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerCounts {
    /// Its number.
    pub worker: usize,
    /// The core it is pinned to.
    pub core: Option<usize>,
    /// Ticks of the time stamp counter spent on packets.
    pub busy_cycles: u64,
    /// Ticks spent in polls that found no packets.
    pub idle_cycles: u64,
    /// Time asleep.
    pub slept_ns: u64,
    /// Time in which it wanted a CPU and had none.
    pub pauses: Pauses,
    /// Turns that took long by themselves.
    pub long_turns: Pauses,
}

/// One packet's trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TracedPacket {
    /// What it was when its trace began, in one line.
    pub summary: String,
    /// Its length then, bytes without FCS.
    pub len: usize,
    /// Where it came, in order: element, time, verdict.
    pub steps: Vec<Value>,
}

/// What a trace found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trace {
    /// The packets, in the order they were found.
    pub packets: Vec<TracedPacket>,
    /// Whether as many packets as requested came, and their traces are complete.
    pub complete: bool,
}

/// A port whose incoming frames are impaired; it can be changed while the run goes on.
pub trait ImpairedPort {
    /// Its name.
    fn port(&self) -> &str;

    /// Impair it so from now on, whatever the profile says of later; times of the timeline begin now. What is delayed
    /// already arrives when it would have. `impairment` must have been [checked](PortImpairment::check).
    fn set(&self, impairment: PortImpairment);
}

/// How one direction is impaired from a time on.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PortImpairment {
    /// What holds at first.
    pub impair: Impairment,
    /// What changes later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub impair_timeline: Option<DirectionTimeline>,
}

impl PortImpairment {
    /// Whether the values make sense, and make sense together.
    pub fn check(&self) -> Result<(), Problem> {
        self.impair.check().map_err(|p| p.under("impair"))?;
        let later = self.impair_timeline.as_ref().map_or(Ok(()), DirectionTimeline::check);
        later.map_err(|p| p.under("impair_timeline"))
    }
}
