//! The same graph does the same on one worker and split over several, and loses nothing unseen.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::{Recorder, Sort, eal, numbers};
use dpdk::{BURST, Batch, Mempool, Port, PortConfig};
use engine::port::{PortRx, PortTx};
use engine::{Cx, Element, ElementInfo, ElementStats, Engine, Graph, Options, Placement};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const COUNT: u32 = 100_000;

fn run(placement: &Placement, most: usize) -> Vec<ElementStats> {
    let (threes, rest) = (Recorder::default(), Recorder::default());
    let mut graph = Graph::new();
    let source = graph.add("numbers", numbers(COUNT));
    let sort = graph.add("sort", Sort);
    let threes_sink = graph.add("threes", threes.check(BURST));
    let rest_sink = graph.add("rest", rest.check(most));
    graph.connect(source, sort);
    graph.connect(sort, rest_sink);
    graph.connect_output(sort, 1, threes_sink);
    let engine = Engine::start(eal(), graph, placement, &Options::default()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let stats = engine.elements();
        let [numbers, sort, threes, rest] = &stats[..] else { panic!("four elements") };
        let through = numbers.packets_out == u64::from(COUNT) && sort.packets_in == u64::from(COUNT);
        if through && sort.packets_out == threes.packets_in + rest.packets_in {
            break;
        }
        assert!(Instant::now() < deadline, "{stats:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    let stats = engine.stop();
    let sums = (threes.sum.load(Relaxed), rest.sum.load(Relaxed));
    if stats[1].dropped() == u64::from(COUNT) / 5 {
        let sum = |three| {
            let all = (0..COUNT).filter(|n| !n.is_multiple_of(5));
            all.filter(|n| n.is_multiple_of(3) == three).map(u64::from).sum::<u64>()
        };
        assert_eq!(sums, (sum(true), sum(false)));
    }
    stats
}

fn check_counts(stats: &[ElementStats]) {
    let [numbers, sort, threes, rest] = stats else { panic!("four elements") };
    let count = u64::from(COUNT);
    assert_eq!((numbers.packets_in, numbers.packets_out), (0, count));
    assert_eq!((sort.packets_in, sort.bytes), (count, 0), "only of ports bytes are counted");
    assert_eq!(sort.drops, [("fifth".to_owned(), count / 5)]);
    assert_eq!(sort.packets_in, sort.packets_out + sort.dropped());
    assert_eq!(sort.packets_out, threes.packets_in + rest.packets_in);
    assert!(sort.cycles > 0 && sort.cycles_per_packet() > 0.0);
    assert!((1.0..=dpdk::BURST as f64).contains(&sort.packets_per_batch()), "{sort:?}");
}

#[test]
fn on_one_worker() {
    check_counts(&run(&Placement::single(None), BURST));
}

#[test]
fn split_over_two() {
    check_counts(&run(&Placement::split([&["numbers"], &["sort", "threes", "rest"]]), BURST));
}

#[test]
fn split_over_four_with_a_small_ring() {
    let mut placement = Placement::split([&["numbers"], &["sort"], &["threes"], &["rest"]]);
    placement.ring = 7;
    let stats = run(&placement, BURST);
    // A ring that overflows refuses; the source holds what is refused, the sorter drops it, counted.
    let sort = &stats[1];
    assert_eq!(stats[0].packets_out, u64::from(COUNT));
    assert_eq!(sort.packets_in, sort.packets_out + sort.dropped());
}

#[test]
fn what_a_sink_refuses_is_counted_or_comes_again() {
    // On one worker the sorter drops what its sink refuses.
    let stats = run(&Placement::single(None), 4);
    let (sort, rest) = (&stats[1], &stats[3]);
    assert!(sort.drops.iter().any(|(reason, n)| reason == "refused" && *n > 0), "{sort:?}");
    assert_eq!(sort.packets_in, sort.packets_out + sort.dropped());
    assert_eq!(sort.packets_out, stats[2].packets_in + rest.packets_in);
}

#[test]
fn a_ring_hands_on_what_was_refused_before() {
    let seen = Recorder::default();
    let mut graph = Graph::new();
    let source = graph.add("numbers", numbers(10_000));
    let sink = graph.add("check", seen.check(3));
    graph.connect(source, sink);
    let placement = Placement::split([&["numbers"], &["check"]]);
    let engine = Engine::start(eal(), graph, &placement, &Options::default()).unwrap();
    seen.wait(10_000);
    let stats = engine.stop();
    assert_eq!((stats[0].packets_out, stats[1].packets_in), (10_000, 10_000));
}

#[test]
fn through_a_cable_and_back_into_the_graph() {
    let seen = Recorder::default();
    let pool = Mempool::new(eal(), 8191, 128).unwrap();
    let open = || Port::open(eal(), "pair:engine").unwrap();
    let (left, right) = (open(), open());
    let (_, mut tx) = left.start(&PortConfig::default(), &pool).unwrap();
    let (mut rx, _) = right.start(&PortConfig::default(), &pool).unwrap();
    let mut graph = Graph::new();
    let source = graph.add("numbers", numbers(COUNT));
    let out = graph.add("left.tx", PortTx(tx.remove(0)));
    let back = graph.add("right.rx", PortRx(rx.remove(0)));
    let sink = graph.add("check", seen.check(BURST));
    graph.connect(source, out);
    graph.connect(back, sink);
    let engine = Engine::start(eal(), graph, &Placement::single(None), &Options::default()).unwrap();
    seen.wait(COUNT.into());
    let stats = engine.stop();
    assert!(stats.iter().all(|element| element.dropped() == 0));
    assert_eq!((left.stats().tx_packets, right.stats().rx_packets), (COUNT.into(), COUNT.into()));
}

#[test]
fn an_idle_worker_leaves_the_core_to_others() {
    let seen = Recorder::default();
    let mut graph = Graph::new();
    let source = graph.add("numbers", numbers(0));
    let sink = graph.add("check", seen.check(BURST));
    graph.connect(source, sink);
    let engine =
        Engine::start(eal(), graph, &Placement::single(Some(first_core())), &Options::default()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let worker = &engine.workers()[0];
    assert!(worker.slept_ns > 100_000_000, "{worker:?}");
    drop(engine);
}

fn first_core() -> usize {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..1024).find(|core| set.is_set(*core)).unwrap()
}

#[test]
fn a_core_that_does_not_exist_is_said_so() {
    for core in [1000, 1_000_000] {
        let mut graph = Graph::new();
        let source = graph.add("numbers", numbers(0));
        let sink = graph.add("check", Recorder::default().check(1));
        graph.connect(source, sink);
        let why = Engine::start(eal(), graph, &Placement::single(Some(core)), &Options::default());
        let why = why.err().unwrap().to_string();
        assert!(why.contains(&format!("core {core}")), "{why}");
    }
}

/// Output that is told to take more at once than a batch holds.
struct Flood(Mempool, bool);

impl Element for Flood {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "flood", takes: false, outputs: &["a", "b"], drops: &[], polled: true }
    }

    fn poll(&mut self, _: &mut Batch, cx: &mut Cx<'_>) {
        if std::mem::replace(&mut self.1, true) {
            return;
        }
        for _ in 0..BURST + 8 {
            let mut one = Batch::new();
            assert!(self.0.fill(&mut one, 1));
            one.frames_mut()[0].set_len(60).unwrap();
            one.into_iter().for_each(|mbuf| cx.emit(1, mbuf));
        }
        let at = cx.now() + 1_000_000_000;
        cx.wake_at(at);
    }
}

#[test]
fn a_batch_that_overflows_is_counted() {
    let mut graph = Graph::new();
    let source = graph.add("flood", Flood(Mempool::new(eal(), 255, 128).unwrap(), false));
    let a = graph.add("a", Recorder::default().check(BURST));
    let seen = Recorder::default();
    let b = graph.add("b", Any(seen.clone()));
    graph.connect(source, a);
    graph.connect_output(source, 1, b);
    let engine = Engine::start(eal(), graph, &Placement::single(None), &Options::default()).unwrap();
    seen.wait(BURST as u64);
    let stats = engine.stop();
    assert_eq!(stats[0].drops, [("overflow".to_owned(), 8)]);
    assert_eq!(stats[0].packets_out, BURST as u64);
}

struct Any(Recorder);

impl Element for Any {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "any", takes: true, outputs: &[], drops: &[], polled: false }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        self.0.seen.fetch_add(batch.len() as u64, Relaxed);
        cx.consume(batch);
    }
}
