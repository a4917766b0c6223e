//! The element in a graph between two cables: `a` ═ in … impair … out ═ `b`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use dpdk::{BURST, Batch, Eal, EalOptions, Mempool, Port, PortConfig, RxQueue, TxQueue};
use engine::port::{PortRx, PortTx};
use engine::{Clock, Engine, Graph, Options, Placement};
use impair::spec::LinkSpec;
use impair::{Direction, DirectionControl, Impair, Stats};
use serde_json::{Value, from_value, json};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

const FRAME: usize = 100;

struct Rig {
    engine: Option<Engine>,
    live: DirectionControl,
    pool: Mempool,
    tx: TxQueue,
    rx: RxQueue,
    clock: Clock,
    /// When each frame was sent, by number.
    sent: Vec<u64>,
    /// Number, time and flipped bits of what came. The number is in the address, where no bit is flipped.
    came: Vec<(usize, u64, u8)>,
}

fn spec(impairment: Value) -> LinkSpec {
    let spec: LinkSpec = from_value(json!({"seed": 3, "a_to_b": impairment})).unwrap();
    spec.check().unwrap();
    spec
}

impl Rig {
    fn new(name: &str, impairment: Value, capacity: usize) -> Self {
        let eal = Eal::start(&EalOptions::default()).unwrap();
        let pool = Mempool::new(eal, 16_383, 256).unwrap();
        let mut ends = ["in", "out"].map(|side| {
            let cable = format!("pair:{name}_{side}");
            [(); 2].map(|()| {
                let port = Port::open(eal, &cable).unwrap();
                let (mut rx, mut tx) = port.start(&PortConfig::default(), &pool).unwrap();
                Some((rx.remove(0), tx.remove(0)))
            })
        });
        let mut end = |cable: usize, side: usize| ends[cable][side].take().unwrap();
        let ((_, tx), (inner_rx, _)) = (end(0, 0), end(0, 1));
        let ((_, inner_tx), (rx, _)) = (end(1, 0), end(1, 1));
        let live = DirectionControl::new(&spec(impairment), Direction::AToB);
        let mut graph = Graph::new();
        let source = graph.add("in", PortRx(inner_rx));
        let impair = graph.add("impair", Impair::new(live.clone(), pool.clone(), capacity));
        let sink = graph.add("out", PortTx(inner_tx));
        graph.connect(source, impair);
        graph.connect(impair, sink);
        let engine = Engine::start(eal, graph, &Placement::single(None), &Options::default()).unwrap();
        let clock = Clock::get();
        Self { engine: Some(engine), live, pool, tx, rx, clock, sent: Vec::new(), came: Vec::new() }
    }

    fn send(&mut self, n: usize) {
        let mut batch = Batch::new();
        assert!(self.pool.fill(&mut batch, n.min(BURST)), "packets to send");
        let now = self.clock.now();
        for mbuf in batch.frames_mut() {
            let bytes = mbuf.set_len(FRAME).unwrap();
            bytes.fill(0x5a);
            bytes[..4].copy_from_slice(&(self.sent.len() as u32).to_be_bytes());
            self.sent.push(now);
        }
        assert_eq!(self.tx.send(&mut batch), n);
    }

    fn receive(&mut self) {
        let mut batch = Batch::new();
        self.rx.receive(&mut batch);
        let now = self.clock.now();
        for mbuf in batch.frames() {
            let bytes = mbuf.data();
            assert_eq!(bytes.len(), FRAME);
            let number = u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
            let flipped: u32 = bytes[4..].iter().map(|byte| (byte ^ 0x5a).count_ones()).sum();
            self.came.push((number, now, flipped as u8));
        }
    }

    /// Send `count` in bursts of 8, and take what comes until nothing is on its way.
    fn run(&mut self, count: usize) -> Stats {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.sent.len() < count {
            // No more on its way than packets there are.
            if self.live.stats().held < 4000 && self.sent.len() - self.live.stats().packets_in as usize <= 512
            {
                self.send(8.min(count - self.sent.len()));
            }
            self.receive();
            assert!(Instant::now() < deadline);
        }
        loop {
            self.receive();
            let stats = self.live.stats();
            let done = stats.packets_in == count as u64 && stats.held == 0;
            if done && self.came.len() as u64 == stats.packets_out {
                return stats;
            }
            assert!(Instant::now() < deadline, "{stats:?}, {} came", self.came.len());
        }
    }

    fn numbers(&self) -> Vec<usize> {
        self.came.iter().map(|(number, ..)| *number).collect()
    }

    fn drops(&mut self) -> HashMap<String, u64> {
        let elements = self.engine.take().unwrap().stop();
        elements.into_iter().find(|element| element.name == "impair").unwrap().drops.into_iter().collect()
    }
}

#[test]
fn nothing_asked_everything_passes_in_order() {
    let mut rig = Rig::new("plain", json!({}), 8192);
    rig.run(20_000);
    assert_eq!(rig.numbers(), (0..20_000).collect::<Vec<_>>());
    assert!(rig.drops().is_empty());
}

#[test]
fn nothing_comes_before_its_delay_and_the_median_right_after() {
    let mut rig = Rig::new("delay", json!({"delay": {"constant": "20ms"}}), 8192);
    let stats = rig.run(5000);
    assert_eq!(rig.numbers(), (0..5000).collect::<Vec<_>>());
    let mut delays: Vec<u64> = rig.came.iter().map(|(number, at, _)| at - rig.sent[*number]).collect();
    delays.sort_unstable();
    assert!(delays[0] >= 20_000_000, "{} ns", delays[0]);
    // How late depends on the machine; that the element says so itself does not.
    assert!(stats.late_max_ns > 0 && stats.held == 0);
}

#[test]
fn the_listed_are_lost_and_the_engine_says_why() {
    let mut rig = Rig::new("list", json!({"loss": {"list": [1, 2, 1000, 5000]}}), 8192);
    let stats = rig.run(5000);
    let lost: HashSet<usize> = [0, 1, 999, 4999].into();
    assert_eq!(rig.numbers(), (0..5000).filter(|n| !lost.contains(n)).collect::<Vec<_>>());
    assert_eq!(stats.lost, 4);
    assert_eq!(rig.drops(), HashMap::from([("lost".to_owned(), 4)]));
}

#[test]
fn what_is_counted_is_what_is_seen() {
    let impairment = json!({
        "loss": {"independent": "2%"},
        "duplicate": "2%",
        "corrupt": "2%",
        "reorder": {"share": "2%", "by": {"packets": 2}}
    });
    let mut rig = Rig::new("mixed", impairment, 8192);
    let stats = rig.run(20_000);
    let numbers = rig.numbers();
    let seen: HashSet<usize> = numbers.iter().copied().collect();
    assert_eq!(20_000 - seen.len() as u64, stats.lost);
    assert_eq!((numbers.len() - seen.len()) as u64, stats.duplicated);
    // A damaged packet that is also doubled is seen damaged twice.
    let damaged: HashSet<usize> =
        rig.came.iter().filter(|(_, _, flipped)| *flipped > 0).map(|(number, ..)| *number).collect();
    assert_eq!(damaged.len() as u64, stats.corrupted);
    assert!(rig.came.iter().all(|(_, _, flipped)| *flipped <= 1));
    // RFC 4737: a packet is reordered if a greater number came before. Duplicates come right behind.
    let (mut greatest, mut reordered) = (0, HashSet::new());
    for number in numbers {
        if number < greatest {
            reordered.insert(number);
        }
        greatest = greatest.max(number);
    }
    assert_eq!(reordered.len() as u64, stats.reordered);
    for count in [stats.lost, stats.duplicated, stats.corrupted, stats.reordered] {
        assert!((300..500).contains(&count), "2 % of 20,000 are 400: {stats:?}");
    }
}

#[test]
fn parameters_change_while_it_runs() {
    let mut rig = Rig::new("live", json!({}), 8192);
    rig.run(100);
    rig.live.set(&spec(json!({"loss": {"independent": "100%"}})));
    rig.run(200);
    rig.live.set(&spec(json!({"duplicate": "100%"})));
    let stats = rig.run(300);
    assert_eq!((stats.lost, stats.duplicated, stats.packets_out, stats.changes), (100, 100, 300, 3));
}

#[test]
fn more_than_fits_is_counted_as_such() {
    let mut rig = Rig::new("full", json!({"delay": {"constant": "200ms"}}), 64);
    let stats = rig.run(512);
    assert!(stats.queue_full > 0 && stats.packets_out == 512 - stats.queue_full, "{stats:?}");
    assert_eq!(rig.drops()["queue_full"], stats.queue_full);
}

#[test]
fn a_port_that_is_full_gets_the_rest_later() {
    let mut rig = Rig::new("slow", json!({"delay": {"constant": "100ms"}}), 8192);
    // All due at nearly the same time, and more than the cable holds; nobody takes them for a while.
    for _ in 0..500 {
        rig.send(8);
        while rig.live.stats().packets_in < rig.sent.len() as u64 {
            std::hint::spin_loop();
        }
    }
    std::thread::sleep(Duration::from_millis(150));
    let stats = rig.run(4000);
    assert_eq!(rig.numbers(), (0..4000).collect::<Vec<_>>());
    assert_eq!(stats.dropped(), 0, "{stats:?}");
    assert!(rig.drops().is_empty());
}
