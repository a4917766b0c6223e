//! Two ports joined by an impaired path, without a run: `rx` of one → `impair` → `tx` of the other, and back.

use crate::impaired;
use crate::link_watch::Watch;
use crate::observe::{Observer, plain_port};
use crate::ports::{has_memory, pci, setup_error};
use dpdk::{Device, Eal, EalOptions, Mempool, Port, PortConfig};
use engine::port::{PortRx, PortTx};
use engine::{ElementId, Engine, Graph, Options as Behaviour, Placement, WorkerSpec};
use impair::{Direction, Impair, LinkSpec, LiveLink};
use run::SetupError;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Packets that queues and caches hold.
const PACKETS: u32 = 16_383;
/// Room for a frame besides its IP packet: Ethernet, and two tags.
const AROUND: u16 = 22;
/// Room for a frame at least: what most ports' queues want.
const ROOM: u16 = 2_048;

/// How such a path is carried.
#[derive(Debug, Clone)]
pub struct Options {
    /// Use huge pages.
    pub huge_pages: bool,
    /// Memory for packets, bytes: what is on its way lies there.
    pub memory: u64,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// A worker for each direction, instead of one for both.
    pub two_threads: bool,
    /// Cores that the workers are pinned to, one each; none: the kernel chooses.
    pub cores: Vec<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self { huge_pages: false, memory: 256 << 20, mtu: 1500, two_threads: false, cores: Vec::new() }
    }
}

/// The path at work. Dropping it ends it, and closes the ports.
pub struct PortBridge {
    live: Arc<LiveLink>,
    ports: [Port; 2],
    watches: Mutex<([Watch; 2], Option<String>)>,
    placement: Placement,
    engine: Engine,
}

impl fmt::Debug for PortBridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PortBridge({} and {})", self.ports[0].device(), self.ports[1].device())
    }
}

impl PortBridge {
    /// Open both devices and carry frames between them. `spec` must have been checked.
    pub fn start(devices: [&str; 2], spec: &LinkSpec, options: &Options) -> Result<Self, SetupError> {
        for (name, device) in ["a", "b"].into_iter().zip(devices) {
            let wrong = |why: dpdk::Error| {
                SetupError::new("ND-104-04", format!("{name}.device"), why.describe(), why.fix())
            };
            device.parse::<Device>().map_err(wrong)?;
        }
        has_memory("memory", options.memory, options.huge_pages)?;
        let eal = Eal::start(&EalOptions {
            huge_pages: options.huge_pages,
            memory_mib: u32::try_from(options.memory.div_ceil(1 << 20)).unwrap_or(u32::MAX),
            pci: devices.iter().filter_map(|device| pci(device)).collect(),
            extra: Vec::new(),
        });
        let eal = eal.map_err(|why| setup_error("", &why))?;
        let room = options.mtu.saturating_add(AROUND).max(ROOM);
        let (packets, capacity) = impaired::packets(options.memory, 2, room.into(), PACKETS);
        let pool = Mempool::new(eal, packets, room).map_err(|why| setup_error("memory", &why))?;
        let live = Arc::new(LiveLink::new(spec));
        let mut graph = Graph::new();
        let mut ports = Vec::new();
        for (name, device) in ["a", "b"].into_iter().zip(devices) {
            let failed = |why: dpdk::Error| setup_error(&format!("{name}.device"), &why);
            let port = Port::open(eal, device).map_err(failed)?;
            // What a port has as it comes need not be set, and some can set none.
            let mtu = if options.mtu == 1500 { 0 } else { options.mtu };
            let (mut rx, mut tx) =
                port.start(&PortConfig { mtu, ..PortConfig::default() }, &pool).map_err(failed)?;
            if let (Some(rx), Some(tx)) = (rx.pop(), tx.pop()) {
                graph.add(format!("{name}.rx"), PortRx(rx));
                graph.add(format!("{name}.tx"), PortTx(tx));
            }
            ports.push(port);
        }
        for (name, way) in [("a.impair", Direction::AToB), ("b.impair", Direction::BToA)] {
            graph.add(name, Impair::new(live.direction(way).clone(), pool.clone(), capacity));
        }
        let way =
            |names: [&str; 3]| names.iter().map(|name| graph.find(name)).collect::<Option<Vec<ElementId>>>();
        let ways = [["a.rx", "a.impair", "b.tx"], ["b.rx", "b.impair", "a.tx"]].map(way);
        let ways: Option<Vec<_>> = ways.into_iter().collect();
        let (Ok(ports), Some(ways)) = (<[Port; 2]>::try_from(ports), ways) else {
            return Err(SetupError::new("ND-92-12", "", "a port has no queue", "Use others"));
        };
        ways.iter().for_each(|way| graph.chain(way));
        let placement = placement(options);
        let engine = Engine::start(eal, graph, &placement, &Behaviour::default());
        let engine = engine.map_err(|why| crate::engine_error(&why))?;
        let watches = Mutex::new(([Watch::new(&ports[0]), Watch::new(&ports[1])], None));
        Ok(Self { live, ports, watches, placement, engine })
    }

    /// The hand on it: parameters and counters.
    pub fn live(&self) -> &Arc<LiveLink> {
        &self.live
    }

    /// What passes through it, element by element.
    pub fn observe(&self) -> Observer {
        let named = || ["a", "b"].into_iter().zip(&self.ports);
        let facts = named().map(|(name, port)| plain_port(name, port)).collect();
        let ports: Vec<_> = named().map(|(name, port)| (name.to_owned(), port.clone())).collect();
        let cores: Vec<_> = self.placement.workers.iter().map(|worker| worker.core).collect();
        Observer::of(self.engine.view(), facts, &cores).with(&ports)
    }

    /// Frames, a to b and b to a, that the ports dropped as they were not fetched in time: they are in no other
    /// count.
    pub fn missed_frames(&self) -> [u64; 2] {
        [0, 1].map(|end| {
            let stats = self.ports[end].stats();
            stats.rx_missed + stats.rx_no_memory
        })
    }

    /// Why it carries nothing any more, if so. To be asked from time to time: it looks whether the ports are there.
    pub fn end_reason(&self) -> Option<String> {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let (watches, ended) = &mut *watches;
        if ended.is_none() {
            let lost = |(watch, port): (&mut Watch, &Port)| {
                Some(format!("port {} was lost: {}", port.device(), watch.loss_reason(false)?))
            };
            *ended = watches.iter_mut().zip(&self.ports).find_map(lost);
        }
        ended.clone()
    }
}

fn placement(options: &Options) -> Placement {
    let mut placement = Placement::single(options.cores.first().copied());
    if options.two_threads {
        let back = ["b.rx", "b.impair", "a.tx"].map(str::to_owned).to_vec();
        placement.workers.push(WorkerSpec { core: options.cores.get(1).copied(), elements: back });
    }
    placement
}
