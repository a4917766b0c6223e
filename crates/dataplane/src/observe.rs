//! The graph for people who watch: what it is made of, what passes through it, and the way of single packets.

use crate::graph::CheckedGraph;
use crate::interfaces::interfaces;
use crate::offloads::Shares;
use dpdk::Port;
use element::capture::compile;
use engine::pauses::PAUSE_NS;
use engine::trace::{Filter, PacketTrace, Step};
use engine::{ElementStats, PauseStats, View, WorkerStats};
use packet::frame::MacAddress;
use profile::graph::queue;
use run::graph::{
    Edge, ElementPlace, GraphShape, GraphView, PortFacts, Trace, TracedPacket, WorkerCounts, WorkerPlace,
};
use run::interfaces::Interfaces;
use run::pauses::Pauses;
use run::{ElementCounts, SetupError};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often to look whether a trace is complete.
const LOOK: Duration = Duration::from_millis(5);
/// How long workers may take to end a trace: many of their ticks.
const PATIENCE: Duration = Duration::from_millis(200);

/// Of a port with a queue each way, which is asked for no work.
pub(crate) fn plain_port(name: &str, port: &Port) -> PortFacts {
    let info = port.info().ok();
    PortFacts {
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

/// An element's counters as results and views have them.
pub fn counts(stats: &ElementStats) -> ElementCounts {
    ElementCounts {
        name: stats.name.clone(),
        worker: stats.worker,
        packets_in: stats.packets_in,
        packets_out: stats.packets_out,
        drops: stats.drops.iter().cloned().collect(),
        packets_per_batch: stats.packets_per_batch(),
        cycles_per_packet: stats.cycles_per_packet(),
    }
}

/// A worker's pauses and long turns as results and views have them.
pub fn pauses(stats: &WorkerStats) -> (Pauses, Pauses) {
    (shown_pauses(&stats.pauses), shown_pauses(&stats.long_turns))
}

fn shown_pauses(stats: &PauseStats) -> Pauses {
    Pauses { from_ns: PAUSE_NS, count: stats.count, ns: stats.ns, longest_ns: stats.longest_ns }
}

/// A graph, planned or at work.
#[derive(Debug, Clone)]
pub struct Observer {
    shape: GraphShape,
    view: Option<View>,
    interfaces: Interfaces,
}

impl Observer {
    /// Of a graph that is not at work, whose workers have these cores.
    pub fn planned(graph: &CheckedGraph, ports: Vec<PortFacts>, cores: &[usize]) -> Self {
        let workers = &graph.file.placement;
        let worker = |name: &str| {
            workers.iter().position(|worker| worker.elements.iter().any(|own| own == name)).unwrap_or(0)
        };
        let core = |worker: usize| cores.get(worker).copied();
        let kind = |name: &str| match queue(name) {
            Some((_, direction, _)) => direction.name().to_owned(),
            None => graph.file.elements.get(name).map_or_else(String::new, |spec| spec.kind.clone()),
        };
        let element = |name: &str| ElementPlace {
            name: name.to_owned(),
            kind: kind(name),
            worker: worker(name),
            core: core(worker(name)),
        };
        let edge = |edge: &crate::graph::edges::Edge| Edge {
            ring: worker(&edge.from) != worker(&edge.to),
            from: edge.from.clone(),
            to: edge.to.clone(),
        };
        let shape = GraphShape {
            workers: (0..cores.len()).map(|worker| WorkerPlace { worker, core: core(worker) }).collect(),
            elements: graph.names().into_iter().map(element).collect(),
            edges: graph.edges.iter().map(edge).collect(),
            ports,
        };
        Self { shape, view: None, interfaces: Interfaces::new() }
    }

    /// Of a graph at work, as it says itself, whose workers have these cores.
    pub fn of(view: View, ports: Vec<PortFacts>, cores: &[Option<usize>]) -> Self {
        let elements = view.elements();
        let core = |worker: usize| cores.get(worker).copied().flatten();
        let worker_of = |name: &str| elements.iter().find(|one| one.name == name).map(|one| one.worker);
        let edge = |edge: &engine::graph::EdgeView| Edge {
            ring: worker_of(&edge.from) != worker_of(&edge.to),
            from: edge.from.clone(),
            to: edge.to.clone(),
        };
        let element = |one: &ElementStats| ElementPlace {
            name: one.name.clone(),
            kind: one.kind.clone(),
            worker: one.worker,
            core: core(one.worker),
        };
        let shape = GraphShape {
            workers: (0..cores.len()).map(|worker| WorkerPlace { worker, core: core(worker) }).collect(),
            elements: elements.iter().map(element).collect(),
            edges: view.edges().iter().map(edge).collect(),
            ports,
        };
        Self { shape, view: Some(view), interfaces: Interfaces::new() }
    }

    /// The same, with what its ports have counted by now.
    pub fn with(mut self, ports: &[(String, Port)]) -> Self {
        let elements = self.view.as_ref().map(View::elements).unwrap_or_default();
        self.interfaces = interfaces(ports, &elements);
        self
    }
}

/// A step as views have it: with what the packet became, if it was changed.
fn step_view(step: &Step) -> Value {
    let mut shown = json!(step);
    if let Some(became) = &step.became {
        shown["became"] = packet::summary(&became.data, became.len).into();
    }
    shown
}

impl GraphView for Observer {
    fn shape(&self) -> &GraphShape {
        &self.shape
    }

    fn elements(&self) -> Vec<ElementCounts> {
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

    fn bytes(&self) -> BTreeMap<String, u64> {
        let elements = self.view.as_ref().map(View::elements).unwrap_or_default();
        elements
            .into_iter()
            .filter(|one| queue(&one.name).is_some())
            .map(|one| (one.name, one.bytes))
            .collect()
    }

    fn interfaces(&self) -> Interfaces {
        self.interfaces.clone()
    }

    fn workers(&self) -> Vec<WorkerCounts> {
        let stats = self.view.as_ref().map(View::workers).unwrap_or_default();
        let count = |place: &WorkerPlace| {
            let stats = stats.get(place.worker);
            let (pauses, long_turns) = stats.map(pauses).unwrap_or_default();
            WorkerCounts {
                worker: place.worker,
                core: place.core,
                busy_cycles: stats.map_or(0, |stats| stats.busy_cycles),
                idle_cycles: stats.map_or(0, |stats| stats.idle_cycles),
                slept_ns: stats.map_or(0, |stats| stats.slept_ns),
                pauses,
                long_turns,
            }
        };
        self.shape.workers.iter().map(count).collect()
    }

    fn trace(
        &self,
        packets: usize,
        filter: &str,
        wait: Duration,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Trace>, SetupError> {
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
        let seen = |traced: PacketTrace| TracedPacket {
            summary: packet::summary(&traced.data, traced.len),
            len: traced.len,
            steps: traced.steps.iter().map(step_view).collect(),
        };
        Ok(Some(Trace { packets: view.traced().into_iter().map(seen).collect(), complete }))
    }
}
