//! What workers report at each boundary that [`Control`](crate::Control) names.

use crate::flows::DeviceSummaries;
use crate::interfaces::Interfaces;
use crate::pauses::Pauses;
use crate::setup_error::SetupError;
use crate::stalls::Stalls;
use protocol::cause::Cause;
use protocol::meter::{Phase, Tally};
use protocol::time::Time;
use serde::Serialize;

/// What one worker did between two boundaries.
#[derive(Debug)]
pub struct Sample {
    /// Which worker.
    pub worker: usize,
    /// The interval, as boundaries name it: samples of all workers with the same `until` belong together.
    pub from: Time,
    /// Its end.
    pub until: Time,
    /// The phase it lies in.
    pub phase: Phase,
    /// Tallies per group, in the plan's order, by the phase that the messages were meant for.
    pub groups: Vec<[Tally; 3]>,
    /// Devices with a flow under way, per group.
    pub active: Vec<u32>,
    /// What devices waited for answers, per group; none where the transport does not know.
    pub stalls: Vec<Stalls>,
    /// Time on the CPU, ns.
    pub ran: u64,
    /// Time waiting for a CPU, ns.
    pub waited: u64,
    /// Real length of the interval, ns.
    pub took: u64,
    /// Pauses and long turns in it; none where the worker does not poll.
    pub pauses: Option<(Pauses, Pauses)>,
    /// What failures looked like: the first few of each kind, per group.
    pub examples: Vec<FailureExample>,
    /// What became of connections to addresses of targets, where anything did.
    pub addresses: Vec<AddressTally>,
    /// Ports' counters since the run began; only from the worker that owns them.
    pub ports: Interfaces,
    /// Elements' counters since the run began (dpdk).
    pub elements: Vec<ElementCounts>,
    /// The worker has left; with why, if it had to.
    pub last: Option<Result<(), SetupError>>,
    /// What became of each of the worker's devices, with its last sample.
    pub devices: Option<Box<dyn DeviceSummaries>>,
}

/// What became of connections to one address of a group's target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressTally {
    /// The group.
    pub group: usize,
    /// Which of its addresses.
    pub address: usize,
    /// Connections that came up, or sockets of datagrams that were opened to it.
    pub opened: u64,
    /// Times that it could not be reached, or failed a device that went on with another.
    pub failed: u64,
    /// Messages that it confirmed.
    pub delivered: u64,
    /// Why, the last time.
    pub cause: Option<String>,
}

/// What one element of a graph did.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ElementCounts {
    /// `PORT.ELEMENT`.
    pub name: String,
    /// The worker it runs on.
    pub worker: usize,
    /// Packets taken.
    pub packets_in: u64,
    /// Packets handed on.
    pub packets_out: u64,
    /// Packets dropped, by reason.
    pub drops: std::collections::BTreeMap<String, u64>,
    /// Mean packets per batch: few when the element waits for others.
    pub packets_per_batch: f64,
    /// Mean cost.
    pub cycles_per_packet: f64,
}

/// An example of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureExample {
    /// The group.
    pub group: usize,
    /// The kind, and what it was exactly.
    pub cause: Cause,
    /// What it looked like.
    pub text: String,
}
