//! A graph's file at work: ports opened, elements built and placed, and all of it watched until it ends.

use crate::graph::assemble::{Parts, Queues, assemble, placement};
use crate::graph::check::CheckedGraph;
use crate::graph::packets;
use crate::impaired::{self, Impaired, ImpairedElements};
use crate::link_up;
use crate::link_watch::Watch;
use crate::observe::Observer;
use crate::ports::{self, OpenPort, PortNeeds, has_memory, pci, setup_error};
use crate::queue_pairs::NamedQueues;
use crate::workers;
use capture::Capture;
use dpdk::{Eal, EalOptions, NodePools, Port};
use element::capture::Taps;
use element::kind::{Endings, Extensions, GraphPort};
use engine::port::{PortRx, PortTx};
use engine::{Element, Engine, EngineError, Options};
use packet::ethernet;
use profile::Error as SetupError;
use run::Control;
use run::graph::PortFacts;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// The longest frame without tags, without FCS.
const LONGEST: usize = 1_514;

/// A graph at work. Dropping it ends it, and closes its ports.
pub struct GraphRun {
    /// First, so that it ends before its files do.
    engine: Option<Engine>,
    captures: Vec<Capture>,
    watches: Mutex<Watches>,
    ports: Vec<(String, Port)>,
    facts: Vec<PortFacts>,
    cores: Vec<Option<usize>>,
    view: engine::View,
    endings: Endings,
}

/// What a graph left when it was stopped.
pub struct Stopped {
    /// The last counters.
    pub observer: Observer,
    /// The files that packets were written to.
    pub captures: Vec<capture::Status>,
    /// What its elements failed to do at their end.
    pub faults: Vec<SetupError>,
    /// What is to be known of their end.
    pub notes: Vec<String>,
}

/// The ports, and why the graph ended.
struct Watches {
    ports: Vec<(String, Watch)>,
    ended: Option<String>,
    /// Those that it goes on without, until they are lost.
    optional: Vec<(String, Watch)>,
    lost: Vec<String>,
}

impl Watches {
    /// Look whether the ports are there.
    fn check_ports(&mut self) {
        let told = |(name, watch): &mut (String, Watch)| {
            Some(format!("port {name} was lost: {}", watch.loss_reason(false)?))
        };
        if self.ended.is_none() {
            self.ended = self.ports.iter_mut().find_map(told);
        }
        let lost = &mut self.lost;
        self.optional.retain_mut(|port| {
            let gone = told(port);
            let there = gone.is_none();
            lost.extend(gone);
            there
        });
    }
}

impl fmt::Debug for GraphRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GraphRun({} ports)", self.facts.len())
    }
}

impl GraphRun {
    /// Open the ports and start the graph.
    pub fn start(graph: &CheckedGraph) -> Result<Self, SetupError> {
        Self::start_with(graph, Extensions::default())
    }

    /// The same with something for some kinds that no file says.
    pub fn start_with(graph: &CheckedGraph, mut extensions: Extensions) -> Result<Self, SetupError> {
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
        let memory = |why: dpdk::Error| setup_error("memory", &why);
        let ways = graph.of_kind(impaired::KIND).count();
        let room = packets::room(file);
        let (packets, on_the_way) = impaired::packets(file.memory.0, ways, room.into(), packets::least(file));
        let pools = NodePools::new(eal, packets, room).map_err(memory)?;
        let settings: Vec<profile::Port> = file.ports.iter().map(|(name, port)| port.port(name)).collect();
        let taps: Vec<Taps> = settings.iter().map(|port| Taps::new(port.queues.into())).collect();
        let queues: Vec<NamedQueues> = file.ports.keys().map(|name| graph.named_queues(name)).collect();
        let mtus: Vec<Option<u16>> = file.ports.values().map(|port| port.mtu).collect();
        let opened = open(eal, (&settings, &queues, &mtus), &taps, &pools)?;
        // Clones come from where the first port's packets come from.
        let pool =
            opened.first().map_or_else(|| pools.on(None), |port| pools.of(&port.port)).map_err(memory)?;
        let (mut queues, mut opened_ports, mut facts, mut places) =
            (BTreeMap::new(), Vec::new(), Vec::new(), Vec::new());
        let boxed = |rx| Some(Box::new(PortRx(rx)) as Box<dyn Element>);
        for port in opened {
            let name = port.settings.name.clone();
            facts.push(port.facts());
            let (mtu, interface) = (port.link_mtu, port.info.interface);
            places.push(GraphPort { name: name.clone(), addrs: port.addrs, mtu, interface });
            opened_ports.push((name.clone(), port.port));
            let rx = port.rx.into_iter().map(boxed).collect();
            let tx = port.tx.into_iter().map(|tx| Some(Box::new(PortTx(tx)) as Box<dyn Element>)).collect();
            queues.insert(name, Queues { rx, tx });
        }
        let mut captures = Vec::new();
        extensions.insert(ImpairedElements::new(0, on_the_way));
        let endings = Endings::default();
        extensions.insert(endings.clone());
        let parts = Parts {
            queues,
            ports: &places,
            pool: &pool,
            captures: &mut captures,
            extensions: &mut extensions,
        };
        let (built, replicas) = assemble(graph, parts)?;
        let placement = placement(&graph.file.placement, &cores, &built, replicas);
        let engine =
            Engine::start(eal, built, &placement, &Options::default()).map_err(|why| refused(&why))?;
        let watch = |(name, port): &(String, Port)| (name.clone(), Watch::new(port));
        let is_optional =
            |(name, _): &(String, Watch)| file.ports.get(name).is_some_and(|port| port.optional);
        let (optional, ports) = opened_ports.iter().map(watch).partition(is_optional);
        let watches = Watches { ports, ended: None, optional, lost: Vec::new() };
        let cores = cores.into_iter().map(Some).collect();
        let view = engine.view();
        let handles = extensions.take::<ImpairedElements>().map_or_else(Vec::new, |all| all.handles);
        handles.iter().for_each(Impaired::begin);
        Ok(Self {
            engine: Some(engine),
            captures,
            watches: Mutex::new(watches),
            ports: opened_ports,
            facts,
            cores,
            view,
            endings,
        })
    }

    /// What passes through it, element by element.
    pub fn observe(&self) -> Observer {
        Observer::of(self.view.clone(), self.facts.clone(), &self.cores).with(&self.ports)
    }

    /// The engine's view of it: its elements can be asked.
    pub fn view(&self) -> engine::View {
        self.view.clone()
    }

    /// The files that packets are written to.
    pub fn captures(&self) -> Vec<capture::Status> {
        self.captures.iter().map(Capture::status).collect()
    }

    /// Why it carries nothing any more, if so. To be asked from time to time: it looks whether the ports are there.
    pub fn end_reason(&self) -> Option<String> {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.check_ports();
        watches.ended.clone()
    }

    /// Which ports it goes on without, and why, as far as [`GraphRun::end_reason`] was asked.
    pub fn lost_ports(&self) -> Vec<String> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).lost.clone()
    }

    /// End it: the last counters, the files as they are then, and how its elements ended.
    pub fn stop(mut self) -> Stopped {
        // The elements first: what they recorded is in the rings then.
        if let Some(engine) = self.engine.take() {
            engine.stop();
        }
        let captures = self.captures.iter_mut().map(Capture::stop).collect();
        let (faults, notes) = self.endings.all();
        Stopped { observer: self.observe(), captures, faults, notes }
    }
}

fn open<'a>(
    eal: &'static Eal,
    (settings, queues, mtus): (&'a [profile::Port], &[NamedQueues], &[Option<u16>]),
    taps: &'a [Taps],
    pools: &NodePools,
) -> Result<Vec<OpenPort<'a>>, SetupError> {
    let control = Control::new(0, 1, 0, 1);
    let mut order: Vec<usize> = (0..settings.len()).collect();
    // Those that wait for another process come last: that may be this one.
    order.sort_by_key(|index| link_up::connects(&settings[*index]));
    let mut opened = Vec::new();
    for index in order {
        let queues = Some(queues[index]);
        let mtu = mtus[index];
        let longest = mtu.map_or(LONGEST, |mtu| LONGEST.max(usize::from(mtu) + ethernet::LEN));
        let needs = PortNeeds { longest, mtu, steady: true, queues, ..PortNeeds::default() };
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
