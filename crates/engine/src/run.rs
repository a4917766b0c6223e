//! A graph at work.

use crate::counters::{BUILT_IN, Counters, ElementStats, WorkerCounters, WorkerStats};
use crate::element::ElementInfo;
use crate::graph::{EdgeView, Graph, GraphError};
use crate::idle::IdlePolicy;
use crate::mailbox::{ControlError, MailSender, Request, mailbox};
use crate::placement::Placement;
use crate::replicas::PlacedGraph;
use crate::trace::{self, Filter, PacketTrace, TraceControl, Tracer};
use crate::worker::{Inlet, PlacedElement, Target, Worker};
use dpdk::{Batch, Eal, Ring};
use std::fmt;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How workers behave.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// What they do when there is nothing to do.
    pub idle: IdlePolicy,
    /// How often [`Element::tick`](crate::Element::tick) is called, ns.
    pub tick_ns: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { idle: IdlePolicy::default(), tick_ns: 5_000_000 }
    }
}

/// Why a graph does not run.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// The graph or its placement is wrong.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// DPDK refused something.
    #[error(transparent)]
    Dpdk(#[from] dpdk::Error),
    /// A worker could not be pinned.
    #[error("worker {worker} cannot run on core {core} ({cause})")]
    Core {
        /// The worker's number.
        worker: usize,
        /// The core asked for.
        core: usize,
        /// The system's word for it.
        cause: String,
    },
    /// The system refused a thread.
    #[error("worker {worker} got no thread ({cause})")]
    Thread {
        /// The worker's number.
        worker: usize,
        /// The system's word for it.
        cause: String,
    },
}

/// A running graph. Dropping it stops it.
pub struct Engine {
    threads: Vec<JoinHandle<Worker>>,
    view: View,
}

/// A view of a running graph for any thread. It outlives the engine, and then shows the last values.
#[derive(Clone)]
pub struct View {
    elements: Arc<[ElementState]>,
    edges: Arc<[EdgeView]>,
    workers: Arc<[(Option<usize>, Arc<WorkerCounters>)]>,
    senders: Arc<[MailSender]>,
    control: Arc<TraceControl>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({} elements)", self.elements.len())
    }
}

/// State of an element while a worker runs it.
struct ElementState {
    name: String,
    about: ElementInfo,
    worker: usize,
    /// Which of its worker's elements it is.
    place: usize,
    counters: Arc<Counters>,
}

impl Engine {
    /// Check `graph`, place it and start its workers. It runs when this returns.
    pub fn start(
        eal: &'static Eal,
        graph: Graph,
        placement: &Placement,
        options: &Options,
    ) -> Result<Self, EngineError> {
        graph.check()?;
        let PlacedGraph { graph, worker_of } = PlacedGraph::new(graph, placement)?;
        graph.check()?;
        let control = Arc::new(TraceControl::new(placement.workers.len()));
        let worker = || {
            let (sender, mailbox) = mailbox();
            (sender, Worker::new(options.idle, options.tick_ns, mailbox, Tracer::new(Arc::clone(&control))))
        };
        let (senders, mut workers): (Vec<MailSender>, Vec<Worker>) =
            placement.workers.iter().map(|_| worker()).unzip();
        // Where each element is within its worker.
        let mut places = Vec::new();
        let mut counts = vec![0; workers.len()];
        for worker in &worker_of {
            places.push(counts[*worker]);
            counts[*worker] += 1;
        }
        let edges = graph.edges().into();
        let mut elements = Vec::new();
        for (i, node) in graph.nodes.into_iter().enumerate() {
            let on = worker_of[i];
            let (mut outputs, mut rings) = (Vec::new(), Vec::new());
            for output in 0..node.about.outputs.len() {
                // `check` found exactly one edge for each output.
                let Some(edge) = graph.edges.iter().find(|edge| (edge.from, edge.output) == (i, output))
                else {
                    continue;
                };
                outputs.push(if worker_of[edge.to] == on {
                    rings.push(None);
                    Target::Element(places[edge.to])
                } else {
                    let (tx, ring) = Ring::channel(eal, placement.ring)?;
                    let held = Batch::new();
                    workers[worker_of[edge.to]].inlets.push(Inlet { ring, to: places[edge.to], held });
                    rings.push(Some(tx.watch()));
                    workers[on].outlets.push(tx);
                    Target::Ring(workers[on].outlets.len() - 1)
                });
            }
            let counters = Arc::new(Counters::new(node.about.drops.len()));
            let side = (1..outputs.len()).map(|_| Some(Box::default())).collect();
            let about = node.about;
            elements.push(ElementState {
                name: node.name,
                about,
                worker: on,
                place: places[i],
                counters: counters.clone(),
            });
            let (polled, takes) = (about.polled, about.takes);
            let weighs = node.element.counts_bytes();
            workers[on].elements.push(PlacedElement {
                number: i,
                element: node.element,
                polled,
                takes,
                weighs,
                outputs,
                rings: rings.into(),
                side,
                counters,
            });
        }
        let cores: Vec<_> = placement.workers.iter().map(|worker| worker.core).collect();
        let watched =
            cores.iter().copied().zip(workers.iter().map(|worker| worker.counters.clone())).collect();
        let view =
            View { elements: elements.into(), edges, workers: watched, senders: senders.into(), control };
        let mut engine = Self { threads: Vec::new(), view };
        let (ready, answers) = channel();
        for (number, (worker, core)) in workers.into_iter().zip(cores).enumerate() {
            let ready = ready.clone();
            let thread = std::thread::Builder::new().name(format!("worker{number}"));
            let thread = thread.spawn(move || run_worker(worker, eal, number, core, &ready));
            let thread =
                thread.map_err(|why| EngineError::Thread { worker: number, cause: why.to_string() })?;
            engine.threads.push(thread);
        }
        drop(ready);
        // Each worker answers once; on the first failure `engine` is dropped, which stops the others.
        for answer in answers.iter().take(engine.threads.len()) {
            answer?;
        }
        Ok(engine)
    }

    /// What is to be seen of it, also by others and later.
    pub fn view(&self) -> View {
        self.view.clone()
    }

    /// The elements' counters now, in the graph's order.
    pub fn elements(&self) -> Vec<ElementStats> {
        self.view.elements()
    }

    /// The workers' counters now.
    pub fn workers(&self) -> Vec<WorkerStats> {
        self.view.workers()
    }

    /// Each worker's longest pause and longest turn since the last call, ns: for the one who asks at the end of each interval.
    pub fn take_longest(&self) -> Vec<(u64, u64)> {
        let workers = self.view.workers.iter();
        workers.map(|(_, counters)| (counters.pauses.take_peak(), counters.long_turns.take_peak())).collect()
    }

    /// Stop the workers, and give back the last counters. Elements get their last tick first; then they,
    /// their queues and what is under way are dropped.
    pub fn stop(mut self) -> Vec<ElementStats> {
        self.halt();
        self.elements()
    }

    fn halt(&mut self) {
        self.view.senders.iter().for_each(MailSender::stop);
        // All workers are joined before the first is dropped: no port closes while others still use it.
        let workers: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        if workers.iter().any(Result::is_err) {
            tracing::error!("a worker panicked");
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.halt();
    }
}

impl View {
    /// The edges as they run: with each replica, and what hands packets on to them.
    pub fn edges(&self) -> &[EdgeView] {
        &self.edges
    }

    /// The elements' counters now, in the graph's order.
    pub fn elements(&self) -> Vec<ElementStats> {
        self.elements.iter().map(ElementState::stats).collect()
    }

    /// The workers' counters now.
    pub fn workers(&self) -> Vec<WorkerStats> {
        let stats = |(core, counters): &(Option<usize>, Arc<WorkerCounters>)| WorkerStats {
            core: *core,
            turns: counters.turns.get(),
            busy_cycles: counters.busy.get(),
            idle_cycles: counters.idle.get(),
            slept_ns: counters.slept_ns.get(),
            pauses: counters.pauses.stats(),
            long_turns: counters.long_turns.stats(),
            thread: counters.thread.get(),
        };
        self.workers.iter().map(stats).collect()
    }

    /// Ask the element called `name` something and wait for the answer, `patience` at most: see
    /// [`Element::control`](crate::Element::control). Its worker answers between two turns; packets do not wait for it.
    pub fn request<R: Request>(
        &self,
        name: &str,
        request: R,
        patience: Duration,
    ) -> Result<R::Reply, ControlError> {
        let Some(element) = self.elements.iter().find(|element| element.name == name) else {
            let known =
                self.elements.iter().map(|element| element.name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(ControlError::NoElement { name: name.into(), known });
        };
        self.senders[element.worker].request(element.place, name, request, patience)
    }

    /// Trace the next packets that come from a source and match the filter, at most [`trace::PACKETS`]. What
    /// was traced before is forgotten. `filter` is called once for each worker.
    pub fn trace(&self, packets: usize, filter: impl Fn() -> Filter) {
        self.control.ask(packets, filter);
    }

    /// End the trace, whatever was found. Workers learn of it with their next tick.
    pub fn end_trace(&self) {
        self.control.end();
    }

    /// Whether the trace has ended: all that there will be has been noted.
    pub fn is_traced(&self) -> bool {
        self.control.is_over()
    }

    /// What was traced so far, in the order it was found. A worker's last steps come with its next tick.
    pub fn traced(&self) -> Vec<PacketTrace> {
        let name = |element: usize| self.elements[element].name.clone();
        let verdict = |element: usize, fate| {
            let about = &self.elements[element].about;
            trace::verdict(fate, about.outputs, about.drops)
        };
        self.control.collect(name, verdict)
    }
}

impl ElementState {
    fn stats(&self) -> ElementStats {
        let c = &self.counters;
        let names = BUILT_IN.iter().chain(self.about.drops);
        let drops = names.zip(c.drops()).filter(|(_, n)| *n > 0);
        ElementStats {
            name: self.name.clone(),
            kind: self.about.kind.into(),
            worker: self.worker,
            packets_in: c.packets_in.get(),
            packets_out: c.packets_out.get(),
            bytes: c.bytes.get(),
            batches: c.batches.get(),
            cycles: c.cycles(),
            drops: drops.map(|(name, n)| ((*name).to_owned(), n)).collect(),
        }
    }
}

/// A worker's thread.
fn run_worker(
    mut worker: Worker,
    eal: &'static Eal,
    number: usize,
    core: Option<usize>,
    ready: &Sender<Result<(), EngineError>>,
) -> Worker {
    let pinned = core.map_or(Ok(()), |core| {
        let cause = |why: String| EngineError::Core { worker: number, core, cause: why };
        // What the set can hold; a number beyond would panic.
        if core >= rustix::thread::CpuSet::MAX_CPU {
            return Err(cause("no such core".into()));
        }
        let mut set = rustix::thread::CpuSet::new();
        set.set(core);
        rustix::thread::sched_setaffinity(None, &set).map_err(|why| cause(why.to_string()))
    });
    worker.counters.thread.add(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs().into());
    // Sleeps end when they should, not up to 50 µs later. Where this is refused they do that.
    let _default = rustix::thread::set_current_timer_slack(NonZero::new(1));
    match pinned.and_then(|()| Ok(eal.register_thread()?)) {
        Ok(_known) => {
            let _gone = ready.send(Ok(()));
            worker.run();
        }
        Err(why) => {
            let _gone = ready.send(Err(why));
        }
    }
    worker
}
