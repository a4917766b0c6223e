//! The graph for people who watch: what it is made of, what passes through it, and the way of single packets.

use super::capture::compile;
use super::offloads::Shares;
use super::supervisor::counts;
use super::wiring::{self, Wiring};
use crate::transport::{ElementCounts, Unready};
use dpdk::Port;
use engine::trace::{Filter, Step, Traced};
use engine::{Placement, View};
use packet::frame::MacAddress;
use serde::Serialize;
use std::time::{Duration, Instant};

/// How often to look whether a trace is complete.
const LOOK: Duration = Duration::from_millis(5);
/// How long workers may take to end a trace: many of their ticks.
const PATIENCE: Duration = Duration::from_millis(200);

/// What a graph is made of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shape {
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
    /// Who does which work with what it sends and receives.
    pub work: Shares,
}

impl PortFacts {
    /// Of a port with a queue each way, which is asked for no work.
    pub(super) fn plain(name: &str, port: &Port) -> Self {
        let info = port.info().ok();
        Self {
            name: name.into(),
            device: port.device(),
            driver: info.as_ref().map_or_else(String::new, |info| info.driver.clone()),
            mac: MacAddress(port.mac()).to_string(),
            rx_queues: 1,
            tx_queues: 1,
            uses: Vec::new(),
            offers: info.map_or_else(Vec::new, |info| info.offers),
            work: Shares::new(),
        }
    }
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
    /// Ticks spent looking for packets in vain.
    pub idle_cycles: u64,
    /// Time asleep.
    pub slept_ns: u64,
}

/// One packet's way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Seen {
    /// What it was when its trace began, in one line.
    pub summary: String,
    /// Its length then, bytes without FCS.
    pub len: usize,
    /// Where it came, in order.
    pub steps: Vec<Step>,
}

/// What a trace found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trace {
    /// The packets, in the order they were found.
    pub packets: Vec<Seen>,
    /// Whether all that were asked for came, and went their way to its end.
    pub complete: bool,
}

/// A graph, planned or at work.
#[derive(Debug, Clone)]
pub struct Observer {
    shape: Shape,
    view: Option<View>,
}

impl Observer {
    /// Of a graph with this wiring, placed so; with a view of it once it is at work.
    pub(super) fn new(
        wiring: Wiring,
        ports: Vec<PortFacts>,
        placement: &Placement,
        view: Option<View>,
    ) -> Self {
        let seat = |name: &String| {
            placement.workers.iter().position(|worker| worker.elements.contains(name)).unwrap_or(0)
        };
        let core = |worker: usize| placement.workers.get(worker).and_then(|worker| worker.core);
        let edge = |(from, _, to): (String, usize, String)| Edge { ring: seat(&from) != seat(&to), from, to };
        let element = |name: String| ElementPlace {
            kind: wiring::kind(&name).to_owned(),
            worker: seat(&name),
            core: core(seat(&name)),
            name,
        };
        let worker = |worker: usize| WorkerPlace { worker, core: core(worker) };
        let shape = Shape {
            workers: (0..placement.workers.len()).map(worker).collect(),
            elements: wiring.elements.into_iter().map(element).collect(),
            edges: wiring.edges.into_iter().map(edge).collect(),
            ports,
        };
        Self { shape, view }
    }

    /// What it is made of.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// What passed through each element since the start; nothing before.
    pub fn elements(&self) -> Vec<ElementCounts> {
        let none = |element: &ElementPlace| ElementCounts {
            name: element.name.clone(),
            worker: element.worker,
            ..ElementCounts::default()
        };
        match &self.view {
            Some(view) => view.elements().iter().map(counts).collect(),
            None => self.shape.elements.iter().map(none).collect(),
        }
    }

    /// What each worker did since the start; nothing before.
    pub fn workers(&self) -> Vec<WorkerCounts> {
        let stats = self.view.as_ref().map(View::workers).unwrap_or_default();
        let count = |place: &WorkerPlace| {
            let stats = stats.get(place.worker);
            WorkerCounts {
                worker: place.worker,
                core: place.core,
                busy_cycles: stats.map_or(0, |stats| stats.busy_cycles),
                idle_cycles: stats.map_or(0, |stats| stats.idle_cycles),
                slept_ns: stats.map_or(0, |stats| stats.slept_ns),
            }
        };
        self.shape.workers.iter().map(count).collect()
    }

    /// Follow the next packets that `filter` (as in pcap-filter(7); empty: any) wants, until all went their way,
    /// `wait` is over, or `go_on` says no. One at a time: the next ends the one before. `None` before the start.
    pub fn trace(
        &self,
        packets: usize,
        filter: &str,
        wait: Duration,
        go_on: impl Fn() -> bool,
    ) -> Result<Option<Trace>, Unready> {
        const AT: &str = "params.filter";
        let program = || (!filter.is_empty()).then(|| compile(filter, AT)).transpose();
        program()?;
        let Some(view) = &self.view else { return Ok(None) };
        view.trace(packets, || -> Filter {
            match program() {
                Ok(None) => Box::new(|_| true),
                Ok(Some(program)) => Box::new(move |frame| program.filter(frame)),
                Err(_) => Box::new(|_| false), // it was good a moment ago
            }
        });
        let until = |limit: Duration, stop: &dyn Fn() -> bool| {
            let began = Instant::now();
            while !view.is_traced() && began.elapsed() < limit && !stop() {
                std::thread::sleep(LOOK);
            }
        };
        until(wait, &|| !go_on());
        let complete = view.is_traced();
        view.end_trace();
        until(PATIENCE, &|| false);
        let seen = |traced: Traced| Seen {
            summary: packet::summary(&traced.data, traced.len),
            len: traced.len,
            steps: traced.steps,
        };
        Ok(Some(Trace { packets: view.traced().into_iter().map(seen).collect(), complete }))
    }
}
