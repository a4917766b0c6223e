//! Graphs from files at work, and the ends of cables to their ports.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(dead_code, reason = "not every test uses all of it")]

use dataplane::graph::{CheckedGraph, GraphRun};
use dataplane::impaired::ImpairedElements;
use dpdk::{Batch, Eal, EalOptions, Mempool, Port, PortConfig, RxQueue, TxQueue};
use element::interface_addr::InterfaceAddrs;
use element::kind::{Build, Extensions, GraphPort};
use element::registry::Registry;
use packet::ethernet::Tags;
use run::graph::GraphView;
use serde_json::{Map, Value};
use std::time::{Duration, Instant};

pub fn eal() -> &'static Eal {
    Eal::start(&EalOptions::default()).expect("DPDK starts without huge pages")
}

/// Says which frames are not looked at.
pub type Ignores = Box<dyn Fn(&[u8]) -> bool>;

/// The test's end of a cable, whose other end is a port of the graph.
pub struct End {
    pub port: Port,
    rx: RxQueue,
    tx: TxQueue,
    pool: Mempool,
    /// Frames that are not looked at.
    pub ignores: Ignores,
}

impl End {
    pub fn new(cable: &str) -> Self {
        Self::of(&format!("pair:{cable}"))
    }

    pub fn of(device: &str) -> Self {
        let pool = Mempool::new(eal(), 2047, 2048).unwrap();
        let port = Port::open(eal(), device).unwrap();
        let (mut rx, mut tx) = port.start(&PortConfig::default(), &pool).unwrap();
        Self { port, rx: rx.pop().unwrap(), tx: tx.pop().unwrap(), pool, ignores: Box::new(|_| false) }
    }

    pub fn send(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            let mut batch = Batch::new();
            batch.push(self.pool.packet(frame).unwrap()).unwrap();
            self.tx.send(&mut batch);
            assert!(batch.is_empty());
        }
    }

    /// So many frames, however long they take, in order of their bytes: replicas may overtake each other.
    pub fn take(&mut self, count: usize) -> Vec<Vec<u8>> {
        self.take_within(count, Duration::from_secs(60))
    }

    /// So many frames, if they come soon.
    pub fn take_soon(&mut self, count: usize) -> Vec<Vec<u8>> {
        self.take_within(count, Duration::from_millis(50))
    }

    /// What is there, in its order.
    pub fn drain(&mut self) -> Vec<Vec<u8>> {
        let (mut found, mut batch) = (Vec::new(), Batch::new());
        while {
            self.rx.receive(&mut batch);
            !batch.is_empty()
        } {
            let frames = batch.frames().iter().map(|mbuf| mbuf.data());
            found.extend(frames.filter(|frame| !(self.ignores)(frame)).map(<[u8]>::to_vec));
            batch.clear();
        }
        found
    }

    fn take_within(&mut self, count: usize, patience: Duration) -> Vec<Vec<u8>> {
        let (mut found, mut batch) = (Vec::new(), Batch::new());
        let end = Instant::now() + patience;
        while found.len() < count && Instant::now() < end {
            self.rx.receive(&mut batch);
            let frames = batch.frames().iter().map(|mbuf| mbuf.data());
            found.extend(frames.filter(|frame| !(self.ignores)(frame)).map(<[u8]>::to_vec));
            batch.clear();
            std::thread::yield_now();
        }
        found.sort();
        found
    }
}

pub fn start(graph: &Value, kinds: &Registry) -> GraphRun {
    let checked = CheckedGraph::read(graph, kinds).unwrap_or_else(|why| panic!("{why:?}"));
    GraphRun::start(&checked).unwrap_or_else(|why| panic!("{why}"))
}

/// Every kind builds from its example an element that is what the kind says.
pub fn assert_builds(kinds: &Registry) {
    let pool = Mempool::new(eal(), 1023, 2048).unwrap();
    let addrs = InterfaceAddrs::new([2; 6], Tags::NONE, &[], &[]);
    let port = |name: &str| GraphPort { name: name.into(), addrs: addrs.clone(), mtu: 1500, interface: 0 };
    let ports = ["a", "b"].map(port);
    let folder = tempfile::tempdir().unwrap();
    for kind in kinds.kinds() {
        let mut options: Map<String, Value> = serde_json::from_str(kind.example).unwrap();
        if let Some(file) = options.get_mut("file") {
            *file = folder.path().join("x.pcapng").to_str().unwrap().into();
        }
        let settings = kind.read(&options, "").unwrap_or_else(|why| panic!("{}: {why:?}", kind.name));
        let (mut captures, mut extensions) = (Vec::new(), Extensions::default());
        extensions.insert(ImpairedElements::new(0, 16));
        let extensions = &mut extensions;
        let mut build = Build {
            name: "x",
            replica: 0,
            replicas: 1,
            pool: &pool,
            ports: &ports,
            captures: &mut captures,
            extensions,
        };
        let about = settings.build(&mut build).unwrap_or_else(|why| panic!("{}: {why}", kind.name)).about();
        assert_eq!((about.kind, about.takes), (kind.name, true));
        assert_eq!(about.outputs, settings.outputs(), "{}", kind.name);
        assert_eq!(about.drops, kind.drops, "{}", kind.name);
    }
}

/// What an element took, handed on, and dropped.
pub fn counts(view: &dyn GraphView, name: &str) -> (u64, u64, u64) {
    let all = view.elements();
    let one = all.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("{name}: {all:?}"));
    (one.packets_in, one.packets_out, one.drops.values().sum())
}
