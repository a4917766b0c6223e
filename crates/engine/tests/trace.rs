//! Single packets are followed through the graph, wherever its elements run, and nothing else changes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::{Recorder, Sort, eal, number, numbers};
use dpdk::{BURST, Batch, Mempool};
use engine::trace::{BYTES, Filter, PACKETS, PacketTrace, Step, Verdict};
use engine::{Cx, Element, ElementInfo, ElementStats, Engine, Graph, Options, Placement};
use std::time::{Duration, Instant};

/// So many that they do not run out before a trace begins.
const MANY: u32 = 20_000_000;

fn graph() -> Graph {
    let mut graph = Graph::new();
    let source = graph.add("numbers", numbers(MANY));
    let sort = graph.add("sort", Sort);
    let threes = graph.add("threes", Recorder::default().check(BURST));
    let rest = graph.add("rest", Recorder::default().check(BURST));
    graph.connect(source, sort);
    graph.connect(sort, rest);
    graph.connect_output(sort, 1, threes);
    graph
}

fn start(graph: Graph, placement: &Placement) -> Engine {
    Engine::start(eal(), graph, placement, &Options::default()).unwrap()
}

/// Whether a packet's way has come to its end.
fn is_done(traced: &PacketTrace) -> bool {
    matches!(traced.steps.last(), Some(Step { verdict: Verdict::Consumed | Verdict::Dropped(_), .. }))
}

/// Trace `packets` packets to their ends.
fn follow(engine: &Engine, packets: usize, filter: impl Fn() -> Filter) -> Vec<PacketTrace> {
    let view = engine.view();
    view.trace(packets, filter);
    let began = Instant::now();
    loop {
        if view.is_traced() {
            let traced = view.traced();
            assert!(traced.len() == packets && traced.iter().all(is_done), "{traced:?}");
            return traced;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}, {:?}", view.traced(), engine.elements());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn passed(output: &str) -> Verdict {
    Verdict::Passed(output.into())
}

/// Elements and verdicts.
fn way(traced: &PacketTrace) -> Vec<(&str, Verdict)> {
    traced.steps.iter().map(|step| (step.element.as_str(), step.verdict.clone())).collect()
}

/// Its way is the one that a packet of its number has.
fn is_right(traced: &PacketTrace) {
    let number = number(&traced.data);
    let way = way(traced);
    let mut expected = vec![("numbers", passed("out"))];
    // The ring to the next worker was full.
    expected.extend(way.get(1).filter(|step| **step == ("numbers", Verdict::Held)).cloned());
    expected.extend(match (number % 5, number % 3) {
        (0, _) => vec![("sort", Verdict::Dropped("fifth".into()))],
        (_, 0) => vec![("sort", passed("threes")), ("threes", Verdict::Consumed)],
        _ => vec![("sort", passed("rest")), ("rest", Verdict::Consumed)],
    });
    // So was the one behind the sorter, which holds nothing.
    if way.last() == Some(&("sort", Verdict::Dropped("refused".into()))) && !number.is_multiple_of(5) {
        *expected.last_mut().unwrap() = ("sort", Verdict::Dropped("refused".into()));
    }
    assert_eq!(way, expected, "{number}");
    assert_eq!((traced.len, traced.data.len()), (60, 60));
    assert!(traced.steps.windows(2).all(|pair| pair[0].at <= pair[1].at), "{:?}", traced.steps);
}

/// What an element takes it hands on, drops by reason or, as a sink, keeps.
fn nothing_is_lost(stats: &[ElementStats]) {
    let [numbers, sort, threes, rest] = stats else { panic!("four elements") };
    assert_eq!(sort.packets_in, sort.packets_out + sort.dropped());
    assert!(
        sort.packets_in <= numbers.packets_out && threes.packets_in + rest.packets_in <= sort.packets_out
    );
}

#[test]
fn each_step_is_told_on_one_worker_and_over_rings() {
    let four: [&[&str]; 4] = [&["numbers"], &["sort"], &["threes"], &["rest"]];
    for placement in [Placement::single(None), Placement::split(four)] {
        let engine = start(graph(), &placement);
        // Once more: a trace that ended leaves nothing that the next one could stumble over.
        for _ in 0..3 {
            follow(&engine, 40, || Box::new(|_| true)).iter().for_each(is_right);
        }
        nothing_is_lost(&engine.stop());
    }
}

#[test]
fn only_what_the_filter_wants_is_traced() {
    let engine = start(graph(), &Placement::single(None));
    let traced = follow(&engine, 10, || Box::new(|frame| number(frame) % 1000 == 7));
    let numbers: Vec<u32> = traced.iter().map(|traced| number(&traced.data)).collect();
    assert!(
        numbers.windows(2).all(|pair| pair[0] + 1000 == pair[1]) && numbers[0] % 1000 == 7,
        "{numbers:?}"
    );
    traced.iter().for_each(is_right);

    let view = engine.view();
    view.trace(10, || Box::new(|frame| frame.is_empty()));
    let before = engine.elements()[3].packets_in;
    while engine.elements()[3].packets_in < before + 10_000 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(view.traced(), [], "what was before is forgotten, and nothing is found");

    assert!(!view.is_traced(), "it waits");
    view.end_trace();
    let began = Instant::now();
    while !view.is_traced() {
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(1));
    }
    let last = engine.stop();
    assert_eq!(view.elements(), last, "a view outlives the engine");
}

#[test]
fn there_is_a_limit_of_packets_and_of_bytes() {
    let engine = start(graph(), &Placement::single(None));
    let view = engine.view();
    assert_eq!(view.traced(), []);
    view.trace(10 * PACKETS, || Box::new(|_| true));
    let began = Instant::now();
    while view.traced().len() < PACKETS || !view.traced().iter().all(is_done) {
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(1));
    }
    let traced = view.traced();
    assert!(traced.len() == PACKETS && traced.iter().all(|traced| traced.data.len() <= BYTES));
    let shown = serde_json::to_value(&traced[0].steps[0]).unwrap();
    assert_eq!((&shown["element"], &shown["verdict"]["passed"]), (&"numbers".into(), &"out".into()));
}

/// Sink that takes only every third batch.
#[derive(Default)]
struct Stubborn(u64);

impl Element for Stubborn {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "stubborn", takes: true, outputs: &[], drops: &[], polled: false }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        self.0 += 1;
        if self.0.is_multiple_of(3) {
            cx.consume(batch);
        }
    }
}

/// Hands all on.
struct Pass;

impl Element for Pass {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "pass", takes: true, outputs: &["out"], drops: &[], polled: false }
    }
}

#[test]
fn what_is_refused_is_held_or_dropped() {
    let mut graph = Graph::new();
    let (source, sink) = (graph.add("numbers", numbers(MANY)), graph.add("sink", Stubborn::default()));
    graph.connect(source, sink);
    let engine = start(graph, &Placement::single(None));
    let (out, end) = (("numbers", passed("out")), ("sink", Verdict::Consumed));
    let held = ("numbers", Verdict::Held);
    let refused = ("sink", Verdict::Refused);
    let mut ways = [0; 3];
    for traced in follow(&engine, 20, || Box::new(|_| true)) {
        // However often it is refused.
        let possible = [
            vec![out.clone(), end.clone()],
            vec![out.clone(), refused.clone(), held.clone(), end.clone()],
            // Behind another one that was refused it was not even offered at first.
            vec![out.clone(), held.clone(), end.clone()],
            vec![out.clone(), held.clone(), refused.clone(), end.clone()],
        ];
        let way = way(&traced);
        let which = possible.iter().position(|possible| *possible == way);
        ways[which.unwrap_or_else(|| panic!("{way:?}")).min(2)] += 1;
    }
    assert!(ways[1] > 0 && ways[2] > 0, "{ways:?}");
    drop(engine);

    let mut graph = Graph::new();
    let source = graph.add("numbers", numbers(MANY));
    let (pass, sink) = (graph.add("pass", Pass), graph.add("sink", Stubborn::default()));
    graph.chain(&[source, pass, sink]);
    let engine = start(graph, &Placement::single(None));
    let taken = [("numbers", passed("out")), ("pass", passed("out")), ("sink", Verdict::Consumed)];
    let refused = [
        ("numbers", passed("out")),
        ("pass", passed("out")),
        ("sink", Verdict::Refused),
        ("pass", Verdict::Dropped("refused".into())),
    ];
    let traced = follow(&engine, 30, || Box::new(|_| true));
    let (mut took, mut dropped) = (0, 0);
    for traced in &traced {
        let way = way(traced);
        assert!(way == taken || way == refused, "{way:?}");
        *(if way == taken { &mut took } else { &mut dropped }) += 1;
    }
    assert!(took > 0 && dropped > took, "{took} and {dropped}");
}

#[test]
fn what_waits_at_the_end_of_a_ring_is_told_once() {
    let mut graph = Graph::new();
    let (source, sink) = (graph.add("numbers", numbers(MANY)), graph.add("sink", Stubborn::default()));
    graph.connect(source, sink);
    let engine = start(graph, &Placement::split([&["numbers"], &["sink"]]));
    let mut refused = 0;
    for traced in follow(&engine, 30, || Box::new(|_| true)) {
        let way: Vec<_> =
            way(&traced).into_iter().filter(|step| *step != ("numbers", Verdict::Held)).collect();
        let (out, end) = (("numbers", passed("out")), ("sink", Verdict::Consumed));
        refused += usize::from(way == [out.clone(), ("sink", Verdict::Refused), end.clone()]);
        assert!(way == [out.clone(), end.clone()] || way.len() == 3 && way[2] == end, "{way:?}");
    }
    assert!(refused > 0, "none of them was refused");
}

/// Clones everything into its second output.
struct Tee(Mempool);

impl Element for Tee {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "tee", takes: true, outputs: &["out", "clone"], drops: &[], polled: false }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        let mut clones = Batch::new();
        self.0.clones_of(batch, &mut clones);
        clones.into_iter().for_each(|clone| cx.emit(1, clone));
    }
}

/// Writes into each packet.
struct Write;

impl Element for Write {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "write", takes: true, outputs: &["out"], drops: &[], polled: false }
    }

    fn push(&mut self, batch: &mut Batch, _: &mut Cx<'_>) {
        batch.data_mut().for_each(|data| data[30] = 1);
    }
}

/// What writes into a packet that shares its bytes puts it into another buffer.
#[test]
fn a_packet_is_followed_when_it_gets_bytes_of_its_own() {
    let mut graph = Graph::new();
    let source = graph.add("numbers", numbers(MANY));
    let tee = graph.add("tee", Tee(Mempool::new(eal(), 8191, 128).unwrap()));
    let write = graph.add("write", Write);
    let sinks = ["written", "clones"].map(|name| graph.add(name, Recorder::default().check(BURST)));
    graph.chain(&[source, tee, write, sinks[0]]);
    graph.connect_output(tee, 1, sinks[1]);
    let engine = start(graph, &Placement::single(None));
    for traced in follow(&engine, 4, || Box::new(|_| true)) {
        let expected = [
            ("numbers", passed("out")),
            ("tee", passed("out")),
            ("write", passed("out")),
            ("written", Verdict::Consumed),
        ];
        assert_eq!(way(&traced), expected);
    }
    let stats = engine.stop();
    assert!(stats.iter().all(|element| element.dropped() == 0), "{stats:?}");
}

/// Writes into packets of even numbers, and takes a tag's length off.
struct Rewrite;

impl Element for Rewrite {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "rewrite", takes: true, outputs: &["out"], drops: &[], polled: false }
    }

    fn push(&mut self, batch: &mut Batch, _: &mut Cx<'_>) {
        for mbuf in batch.frames_mut() {
            if number(mbuf.data()).is_multiple_of(2) {
                mbuf.data_mut()[4] = 0xee;
                let _shorter = mbuf.set_len(56);
            }
        }
    }
}

#[test]
fn what_an_element_wrote_is_seen() {
    let mut graph = Graph::new();
    let source = graph.add("numbers", numbers(MANY));
    let rewrite = graph.add("rewrite", Rewrite);
    let sink = graph.add("sink", Recorder::default().check(BURST));
    graph.connect(source, rewrite);
    graph.connect(rewrite, sink);
    let engine = start(graph, &Placement::single(None));
    for traced in follow(&engine, 8, || Box::new(|_| true)) {
        for step in &traced.steps {
            let wrote = step.element == "rewrite" && number(&traced.data).is_multiple_of(2);
            let became = step.became.as_ref().map(|is| (is.len, is.data[4]));
            assert_eq!(became, wrote.then_some((56, 0xee)), "{step:?}");
        }
    }
    engine.stop();
}
