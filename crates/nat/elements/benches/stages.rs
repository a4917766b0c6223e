//! What each stage of the NAT costs by itself: 64-byte UDP of random sessions from the inside, batch by batch on one core.
//!
//!     cargo bench -p nat [-- SESSIONS …]
//!
//! The stages are those of a graph, with packets of DPDK, but without ports: a source makes frames, and the clock is read between one
//! stage and the next. Prints for each size of batches the median, and what one of twenty was faster than, ns for each packet.

use dpdk::{BURST, Batch, Eal, EalOptions, Mempool};
use element::interface_addr::InterfaceAddrs;
use element::kind::{Build, Extensions, GraphPort};
use engine::{Cx, Element, ElementInfo, Engine, Graph, Options, Placement};
use packet::arp::{self, Arp};
use packet::ethernet::Tags;
use packet::frame::{Flow, Program};
use packet::signature::Signature;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// 64 B on the wire with the FCS.
const SIZE: usize = 60;
const BATCHES: usize = 20_000;
/// Packets of each session, about, that are not counted: with them it begins.
const WARM: usize = 20;
const PER_SUBSCRIBER: u32 = 64;
const REMOTE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(198, 51, 100, 9)), 53);
const INSIDE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 0, 2];
const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 3];
const OWN: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// The source's output for the router's answers.
const ARP: usize = 1;
const STAGES: [&str; 3] = ["validity", "subscriber-table", "nat44"];
/// After so long it ends, whatever came through.
const LONGEST: Duration = Duration::from_secs(120);

/// When a batch came to each stage, and when it left the last one.
type Stamps = Arc<Mutex<Vec<[Option<Instant>; STAGES.len() + 1]>>>;

/// Source: the answer of the router, and then frames, batch by batch.
struct Source {
    pool: Mempool,
    /// One of each session.
    frames: Vec<Vec<u8>>,
    rng: SmallRng,
    /// Packets of a batch.
    size: usize,
    /// Batches that are yet to come.
    left: usize,
    stamps: Stamps,
}

impl Element for Source {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "source", takes: false, outputs: &["out", "arp"], drops: &[], polled: true }
    }

    fn poll(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        if self.left > BATCHES {
            let mut answer = [0; arp::FRAME];
            Arp::request(OUTSIDE, OWN, GATEWAY).answer(ROUTER).emit(&mut answer);
            if let Some(mbuf) = self.pool.packet(&answer) {
                cx.emit(ARP, mbuf);
            }
        }
        if self.left == 0 || !self.pool.fill_frames(batch, self.size, SIZE) {
            return;
        }
        self.left -= 1;
        for frame in batch.data_mut() {
            frame.copy_from_slice(&self.frames[self.rng.random_range(0..self.frames.len())]);
        }
        let mut stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        stamps.push([None; STAGES.len() + 1]);
    }
}

/// Notes the time, between two stages.
struct Stamp(usize, Stamps);

impl Element for Stamp {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "stamp", takes: true, outputs: &["out"], drops: &[], polled: false }
    }

    fn push(&mut self, _: &mut Batch, _: &mut Cx<'_>) {
        let mut stamps = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = stamps.last_mut() {
            last[self.0] = Some(Instant::now());
        }
    }
}

struct Sink;

impl Element for Sink {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "sink", takes: true, outputs: &[], drops: &[], polled: false }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        cx.consume(batch);
    }
}

/// A frame of a session.
fn frame(session: u32) -> Vec<u8> {
    let source: SocketAddr = (
        Ipv4Addr::from_bits(0x0a00_0100 + session / PER_SUBSCRIBER),
        10_000 + (session % PER_SUBSCRIBER) as u16,
    )
        .into();
    let flow = Flow { source_mac: [2, 0, 0, 0, 1, 1], destination_mac: INSIDE, source, destination: REMOTE };
    let mut frame = vec![0; SIZE];
    let mut program = Program::udp(&flow, SIZE).unwrap_or_else(|error| panic!("{error}"));
    let _written = program.write(&mut frame, 0, &Signature { stream: 1, sequence: 2, sent_ns: 3 });
    frame
}

/// The stages, and the host of the outside port: it learns from the router's answer where everything goes.
fn build(sessions: u32, pool: &Mempool) -> ([Box<dyn Element>; STAGES.len()], Box<dyn Element>) {
    let port = |name: &str, mac, ip: [u8; 4]| GraphPort {
        name: name.into(),
        addrs: InterfaceAddrs::new(mac, Tags::NONE, &[Ipv4Addr::from(ip).into()], &[]),
        mtu: 1500,
        interface: 0,
    };
    let ports = [port("b", INSIDE, [10, 255, 255, 254]), port("c", OUTSIDE, OWN.octets())];
    let (mut captures, mut extensions) = (Vec::new(), Extensions::default());
    let mut built = |kind: &str, options: Value| {
        let entry = nat_elements::KINDS
            .iter()
            .find(|entry| entry.name == kind)
            .unwrap_or_else(|| panic!("no {kind}"));
        let options = options.as_object().cloned().unwrap_or_default();
        let settings = entry.read(&options, kind).unwrap_or_else(|why| panic!("{why:?}"));
        let mut cx = Build {
            name: kind,
            replica: 0,
            replicas: 1,
            pool,
            ports: &ports,
            captures: &mut captures,
            extensions: &mut extensions,
        };
        settings.build(&mut cx).unwrap_or_else(|why| panic!("{why}"))
    };
    let subscribers = sessions.div_ceil(PER_SUBSCRIBER);
    let sessions = json!({"inside": "b", "outside": "c", "pool": ["198.18.0.0/22"], "sessions": sessions.max(1024),
        "most_subscribers": subscribers, "ports_per_block": 64});
    let stages = [
        built("validity", json!({"port": "b"})),
        built("subscriber-table", json!({"most_subscribers": subscribers})),
        built("nat44", sessions),
    ];
    (stages, built("nat-host", json!({"port": "c", "gateway": GATEWAY})))
}

/// Batches of this size through all stages, and when each came where.
fn run(eal: &'static Eal, sessions: u32, size: usize) -> Stamps {
    let stamps = Stamps::default();
    let pool = Mempool::new(eal, 4_095, 2_048).unwrap_or_else(|error| panic!("{error}"));
    let (stages, host) = build(sessions, &pool);
    let batches = BATCHES + WARM * sessions as usize / size;
    let mut graph = Graph::new();
    let source = graph.add(
        "source",
        Source {
            pool,
            frames: (0..sessions).map(frame).collect(),
            rng: SmallRng::seed_from_u64(7),
            size,
            left: batches,
            stamps: Arc::clone(&stamps),
        },
    );
    let (host, sink) = (graph.add("host", host), graph.add("sink", Sink));
    graph.connect_output(source, ARP, host);
    graph.connect(host, sink);
    let mut last = source;
    for (at, (name, stage)) in STAGES.iter().zip(stages).enumerate() {
        let outputs = stage.about().outputs.len();
        let stamp = graph.add(format!("to-{name}"), Stamp(at, Arc::clone(&stamps)));
        let stage = graph.add(*name, stage);
        graph.chain(&[last, stamp, stage]);
        (1..outputs).for_each(|output| graph.connect_output(stage, output, sink));
        last = stage;
    }
    let stamp = graph.add("end", Stamp(STAGES.len(), Arc::clone(&stamps)));
    graph.chain(&[last, stamp, sink]);
    let engine = Engine::start(eal, graph, &Placement::single(None), &Options::default());
    let engine = engine.unwrap_or_else(|error| panic!("{error}"));
    let (view, begun) = (engine.view(), Instant::now());
    let sent =
        || view.elements().iter().find(|one| one.name == "source").map_or(0, |one| one.batches as usize);
    while sent() < batches && begun.elapsed() < LONGEST {
        std::thread::sleep(Duration::from_millis(20));
    }
    engine.stop();
    stamps
}

fn bench(eal: &'static Eal, sessions: u32, size: usize) {
    let stamps = run(eal, sessions, size);
    let stamps = stamps.lock().unwrap_or_else(PoisonError::into_inner);
    // Of the batches that came through, ns for each packet and stage.
    let took = |stamps: &[Option<Instant>; STAGES.len() + 1]| -> Option<Vec<f64>> {
        let stamps: Option<Vec<Instant>> = stamps.iter().copied().collect();
        let each = |pair: &[Instant]| (pair[1] - pair[0]).as_nanos() as f64 / size as f64;
        Some(stamps?.windows(2).map(each).collect())
    };
    let took: Vec<Vec<f64>> = stamps.iter().rev().take(BATCHES).filter_map(took).collect();
    assert!(took.len() == BATCHES, "{} of {BATCHES} batches came through", took.len());
    let figures = STAGES.iter().enumerate().map(|(at, name)| {
        let mut times: Vec<f64> = took.iter().map(|stages| stages[at]).collect();
        times.sort_by(f64::total_cmp);
        format!("{name} {:.1} ({:.1})", times[times.len() / 2], times[times.len() / 20])
    });
    let figures = figures.collect::<Vec<_>>().join(", ");
    println!("{sessions:>8} sessions, batches of {size:>3}: {figures}");
}

fn main() {
    // `cargo test --benches` runs it too, and wants no figures.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let asked: Vec<u32> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let eal = Eal::start(&EalOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    for sessions in if asked.is_empty() { vec![1_000, 64_000] } else { asked } {
        for size in [32, 64, BURST] {
            bench(eal, sessions, size);
        }
    }
}
