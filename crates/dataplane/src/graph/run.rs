//! A graph's file at work: ports opened, elements built and placed, and all of it watched until it ends.

use crate::graph::check::{CheckedGraph, Direction, copies, queue};
use crate::link_up;
use crate::link_watch::Watch;
use crate::observe::Observer;
use crate::ports::{self, OpenPort, PortNeeds, has_memory, pci, setup_error};
use crate::workers;
use capture::Capture;
use dpdk::{Eal, EalOptions, Mempool, NodePools, Port, RxQueue, TxQueue};
use element::capture::Taps;
use element::kind::{Build, GraphPort};
use engine::port::{PortRx, PortTx};
use engine::{Element, Engine, EngineError, Graph, Options, Placement, Replicas, WorkerSpec};
use profile::Error as SetupError;
use run::Control;
use run::graph::PortFacts;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Packets in the pool that all ports share.
const PACKETS: u32 = 16_383;
/// And these for each queue of a port that it has besides the first.
const QUEUED: u32 = 2_048;
/// Room for a frame.
const ROOM: u16 = 2_048;
/// The longest frame without tags, without FCS.
const LONGEST: usize = 1_514;

/// A graph at work. Dropping it ends it, and closes its ports.
pub struct GraphRun {
    /// First, so that it ends before its files do.
    engine: Option<Engine>,
    captures: Vec<Capture>,
    watches: Mutex<Watches>,
    facts: Vec<PortFacts>,
    cores: Vec<Option<usize>>,
    view: engine::View,
}

/// The ports, and why the graph ended.
struct Watches {
    ports: Vec<(String, Watch)>,
    ended: Option<String>,
}

impl fmt::Debug for GraphRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GraphRun({} ports)", self.facts.len())
    }
}

/// A port's queues that no element has yet.
struct Queues {
    rx: Vec<Option<RxQueue>>,
    tx: Vec<Option<TxQueue>>,
}

impl GraphRun {
    /// Open the ports and start the graph.
    pub fn start(graph: &CheckedGraph) -> Result<Self, SetupError> {
        let file = &graph.file;
        let cores = workers::cores(&file.placement, "placement")?;
        has_memory("memory", file.memory.0, file.huge_pages)?;
        let eal = Eal::start(&EalOptions {
            huge_pages: file.huge_pages,
            memory_mib: u32::try_from(file.memory.0.div_ceil(1 << 20)).unwrap_or(u32::MAX),
            pci: file.ports.values().filter_map(|port| pci(&port.device)).collect(),
            extra: Vec::new(),
        });
        let eal = eal.map_err(|why| setup_error("ports", &why))?;
        let more: u32 =
            file.ports.values().map(|port| u32::from(port.queues.saturating_sub(1)) * QUEUED).sum();
        // Clones are packets, too: as many again.
        let memory = |why: dpdk::Error| setup_error("memory", &why);
        let pools = NodePools::new(eal, 2 * (PACKETS + more), ROOM).map_err(memory)?;
        let settings: Vec<profile::Port> = file.ports.iter().map(|(name, port)| port.port(name)).collect();
        let taps: Vec<Taps> = settings.iter().map(|port| Taps::new(port.queues.into())).collect();
        let opened = open(eal, &settings, &taps, &pools)?;
        // Clones come from where the first port's packets come from.
        let pool =
            opened.first().map_or_else(|| pools.on(None), |port| pools.of(&port.port)).map_err(memory)?;
        let (mut queues, mut watched, mut facts, mut places) =
            (BTreeMap::new(), Vec::new(), Vec::new(), Vec::new());
        for port in opened {
            let name = port.settings.name.clone();
            facts.push(port.facts());
            places.push(GraphPort { name: name.clone(), addrs: port.addrs });
            watched.push((name.clone(), port.port));
            let (rx, tx) = (port.rx.into_iter().map(Some).collect(), port.tx.into_iter().map(Some).collect());
            queues.insert(name, Queues { rx, tx });
        }
        let mut captures = Vec::new();
        let (built, replicas) = build(graph, &pool, &places, queues, &mut captures)?;
        let placement = placement(graph, &cores, &built, replicas);
        let engine =
            Engine::start(eal, built, &placement, &Options::default()).map_err(|why| refused(&why))?;
        let watch = |(name, port): (String, Port)| (name, Watch::new(&port));
        let watches = Watches { ports: watched.into_iter().map(watch).collect(), ended: None };
        let cores = cores.into_iter().map(Some).collect();
        let view = engine.view();
        Ok(Self { engine: Some(engine), captures, watches: Mutex::new(watches), facts, cores, view })
    }

    /// What passes through it, element by element.
    pub fn observe(&self) -> Observer {
        Observer::of(self.view.clone(), self.facts.clone(), &self.cores)
    }

    /// The files that packets are written to.
    pub fn captures(&self) -> Vec<capture::Status> {
        self.captures.iter().map(Capture::status).collect()
    }

    /// Why it carries nothing any more, if so. To be asked from time to time: it looks whether the ports are there.
    pub fn ended(&self) -> Option<String> {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let Watches { ports, ended } = &mut *watches;
        if ended.is_none() {
            *ended = ports
                .iter_mut()
                .find_map(|(name, watch)| Some(format!("port {name} was lost: {}", watch.lost(false)?)));
        }
        ended.clone()
    }

    /// End it: the last counters, and the files as they are then.
    pub fn stop(mut self) -> (Observer, Vec<capture::Status>) {
        // The elements first: what they recorded is in the rings then.
        if let Some(engine) = self.engine.take() {
            engine.stop();
        }
        let captures = self.captures.iter_mut().map(Capture::stop).collect();
        (self.observe(), captures)
    }
}

fn open<'a>(
    eal: &'static Eal,
    settings: &'a [profile::Port],
    taps: &'a [Taps],
    pools: &NodePools,
) -> Result<Vec<OpenPort<'a>>, SetupError> {
    let needs = PortNeeds { longest: LONGEST, steady: true, ..PortNeeds::default() };
    let control = Control::new(0, 1, 0, 1);
    let mut order: Vec<usize> = (0..settings.len()).collect();
    // Those that wait for another process come last: that may be this one.
    order.sort_by_key(|index| link_up::connects(&settings[*index]));
    let mut opened = Vec::new();
    for index in order {
        let attempt = || ports::open(eal, (index, &settings[index], &taps[index]), pools, &needs);
        let port = link_up::open(&settings[index], &control, attempt);
        let at = |why: SetupError| {
            let at = why.at.replace(
                &format!("transport.dpdk.ports[{index}]"),
                &format!("ports.{}", settings[index].name),
            );
            SetupError { at, ..why }
        };
        opened.push(port.map_err(at)?);
    }
    opened.sort_by_key(|port| port.index);
    Ok(opened)
}

/// The graph, and how often each of its elements is there.
fn build(
    checked: &CheckedGraph,
    pool: &Mempool,
    ports: &[GraphPort],
    mut queues: BTreeMap<String, Queues>,
    captures: &mut Vec<Capture>,
) -> Result<(Graph, BTreeMap<String, Replicas>), SetupError> {
    let (mut graph, mut replicas) = (Graph::new(), BTreeMap::new());
    let mut names: Vec<&str> =
        checked.edges.iter().flat_map(|edge| [edge.from.as_str(), edge.to.as_str()]).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let Some((port, direction, number)) = queue(name) else { continue };
        let Some(own) = queues.get_mut(port) else { continue };
        let found: Vec<Box<dyn Element>> = match (direction, number) {
            (Direction::Receive, None) => {
                own.rx.iter_mut().filter_map(|rx| Some(Box::new(PortRx(rx.take()?)) as _)).collect()
            }
            (Direction::Receive, Some(n)) => own
                .rx
                .get_mut(usize::from(n))
                .and_then(Option::take)
                .map(|rx| Box::new(PortRx(rx)) as _)
                .into_iter()
                .collect(),
            (Direction::Transmit, None) => {
                let count = own.tx.len().min(most_before(checked, name));
                own.tx
                    .iter_mut()
                    .take(count)
                    .filter_map(|tx| Some(Box::new(PortTx(tx.take()?)) as _))
                    .collect()
            }
            (Direction::Transmit, Some(n)) => own
                .tx
                .get_mut(usize::from(n))
                .and_then(Option::take)
                .map(|tx| Box::new(PortTx(tx)) as _)
                .into_iter()
                .collect(),
        };
        if found.is_empty() {
            let what = format!(
                "the port {port} has no queue {name}: it has {} that receive and {} that send",
                own.rx.len(),
                own.tx.len()
            );
            let fix = format!("Use {port}.{}, which is all that it has", direction.name());
            return Err(SetupError::new("ND-92-12", format!("ports.{port}.queues"), what, fix));
        }
        let affinity = if direction == Direction::Transmit {
            tx_affinity(checked, name, found.len())
        } else {
            "upstream"
        };
        add(&mut graph, &mut replicas, name, found, affinity);
    }
    for (name, settings) in &checked.settings {
        let wanted = checked.file.replicas.get(name);
        let count = wanted.map_or(1, |replicas| replicas.count);
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(settings.build(&mut Build { name, pool, ports, captures })?);
        }
        let affinity = wanted.map_or("flow", |replicas| replicas.affinity.name());
        add(&mut graph, &mut replicas, name, all, affinity);
    }
    for edge in &checked.edges {
        if let (Some(from), Some(to)) = (graph.find(&edge.from), graph.find(&edge.to)) {
            graph.connect_output(from, edge.output, to);
        }
    }
    Ok((graph, replicas))
}

/// Add an element, as often as there are instances of it.
fn add(
    graph: &mut Graph,
    replicas: &mut BTreeMap<String, Replicas>,
    name: &str,
    instances: Vec<Box<dyn Element>>,
    affinity: &str,
) {
    let count = instances.len();
    if count > 1 {
        replicas.insert(name.to_owned(), Replicas { count, affinity: affinity.to_owned() });
    }
    let mut instances = instances.into_iter();
    graph.add_replicable(name, move |_| instances.next());
}

/// The most instances of an element that leads to the queues called `name`.
fn most_before(checked: &CheckedGraph, name: &str) -> usize {
    let before = checked.edges.iter().filter(|edge| edge.to == name);
    before.map(|edge| copies(&checked.file, &edge.from)).max().unwrap_or(1)
}

/// Where all before are as many as the queues, each has its own.
fn tx_affinity(checked: &CheckedGraph, name: &str, queues: usize) -> &'static str {
    let mut before = checked.edges.iter().filter(|edge| edge.to == name);
    // How many receive queues there are is known when the port is open, and then it may be fewer.
    let same = |from: &str| queue(from).is_none() && copies(&checked.file, from) == queues;
    if before.all(|edge| same(&edge.from)) { "upstream" } else { "flow" }
}

/// The file's placement, by the engine's names.
fn placement(
    checked: &CheckedGraph,
    cores: &[usize],
    graph: &Graph,
    replicas: BTreeMap<String, Replicas>,
) -> Placement {
    let mut placement = Placement::single(None);
    let specs = cores.iter().enumerate().map(|(i, core)| {
        let elements = checked.file.placement.get(i).map(|worker| &worker.elements[..]).unwrap_or_default();
        let elements = elements.iter().flat_map(|name| placed(name, graph, &replicas)).collect();
        WorkerSpec { core: Some(*core), elements }
    });
    placement.workers = specs.collect();
    placement.replicas = replicas;
    placement
}

/// What a name in the placement means: an element, or queues that are there.
fn placed(name: &str, graph: &Graph, replicas: &BTreeMap<String, Replicas>) -> Vec<String> {
    let there = |name: &str| graph.find(name).is_some();
    if there(name) || name.contains('#') {
        return vec![name.to_owned()];
    }
    match queue(name) {
        // All queues of a direction, each of which the edges name by itself.
        Some((_, _, None)) => graph
            .names()
            .filter(|known| {
                queue(known).is_some_and(|(.., number)| number.is_some())
                    && known.trim_end_matches(|c: char| c.is_ascii_digit()) == name
            })
            .map(str::to_owned)
            .collect(),
        Some((port, direction, Some(number))) => {
            let all = format!("{port}.{}", direction.name());
            let count = replicas.get(&all).map_or(0, |replicas| replicas.count);
            match usize::from(number) {
                number if number < count => vec![format!("{all}#{number}")],
                0 if there(&all) => vec![all],
                _ => Vec::new(),
            }
        }
        None => Vec::new(),
    }
}

/// Why the engine did not start, by what the file says.
fn refused(why: &EngineError) -> SetupError {
    let (at, fix) = match why {
        EngineError::Dpdk(why) => return setup_error("memory", why),
        EngineError::Graph(_) => ("edges", "See docs/howto/graph.md"),
        EngineError::Core { .. } => {
            ("placement", "Name a core that `taskset -p $$` shows, or leave core out to have one chosen")
        }
        EngineError::Thread { .. } => ("placement", "Raise ulimit -u, or use fewer workers"),
    };
    SetupError::new("ND-92-14", at, why.to_string(), fix)
}
