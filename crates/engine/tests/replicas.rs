//! Several of one stage: packets of one key go to the same one, in order, wherever the replicas run.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::eal;
use dpdk::{Batch, Mbuf, Mempool};
use engine::{
    Affinity, Cx, Element, ElementInfo, ElementStats, Engine, EngineError, Graph, GraphError, Options,
    Parser, Placement,
};
use packet::signature::Signature;
use packet::{Flow, Program};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const FLOWS: u32 = 60;
const COUNT: u32 = 12_000;
/// Of a flow's number and a sequence number, at the end of each frame.
const MARK: usize = 56;

/// Source of both directions of many flows, in turn.
struct Flows {
    pool: Mempool,
    frames: Vec<Vec<u8>>,
    next: u32,
    held: Batch,
}

fn flows() -> Flows {
    let frame = |i: u32, back: bool| {
        let [.., high, low] = i.to_be_bytes();
        let ends = (([10, 0, high, low], 5000).into(), ([10, 1, 0, 1], 7).into());
        let (source, destination) = if back { (ends.1, ends.0) } else { ends };
        let flow =
            Flow { source_mac: [2, 0, 0, 0, 0, 1], destination_mac: [2, 0, 0, 0, 0, 2], source, destination };
        let mut frame = vec![0; 64];
        Program::udp(&flow, 64).unwrap().write(
            &mut frame,
            0,
            &Signature { stream: 1, sequence: 0, sent_ns: 0 },
        );
        frame
    };
    let frames = (0..FLOWS).flat_map(|i| [frame(i, false), frame(i, true)]).collect();
    Flows { pool: Mempool::new(eal(), 8191, 128).unwrap(), frames, next: 0, held: Batch::new() }
}

impl Element for Flows {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "flows", takes: false, outputs: &["out"], drops: &[], polled: true }
    }

    fn poll(&mut self, batch: &mut Batch, _: &mut Cx<'_>) {
        self.held.move_to(batch);
        let have = batch.len();
        let want = batch.room().min((COUNT - self.next) as usize);
        if !self.pool.fill(batch, have + want) {
            return;
        }
        for mbuf in &mut batch.frames_mut()[have..] {
            let number = self.next as usize % self.frames.len();
            let frame = mbuf.set_len(64).unwrap();
            frame.copy_from_slice(&self.frames[number]);
            frame[MARK..MARK + 4].copy_from_slice(&(number as u32 / 2).to_be_bytes());
            frame[MARK + 4..].copy_from_slice(&self.next.to_be_bytes());
            self.next += 1;
        }
    }

    fn refused(&mut self, _: usize, batch: &mut Batch, _: &mut Cx<'_>) {
        batch.move_to(&mut self.held);
    }
}

/// Flow and sequence number of what came, by replica.
type Log = Arc<Mutex<Vec<Vec<(u32, u32)>>>>;

struct Sink(usize, Log);

impl Element for Sink {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "sink", takes: true, outputs: &[], drops: &[], polled: false }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        let mark = |mbuf: &Mbuf, at| u32::from_be_bytes(*mbuf.data()[at..].first_chunk().unwrap());
        let mut log = self.1.lock().unwrap();
        log[self.0].extend(batch.frames().iter().map(|mbuf| (mark(mbuf, MARK), mark(mbuf, MARK + 4))));
        cx.consume(batch);
    }
}

fn sinks(graph: &mut Graph, log: &Log) -> engine::ElementId {
    let log = log.clone();
    graph.add_replicable("sink", move |i| Some(Sink(i, log.clone()))).unwrap()
}

fn log() -> Log {
    Arc::new(Mutex::new(vec![Vec::new(); 8]))
}

/// Run until `packets` have come to an end.
fn run(graph: Graph, placement: &Placement, packets: u32) -> Vec<ElementStats> {
    let engine = Engine::start(eal(), graph, placement, &Options::default()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let stats = engine.elements();
        let sinks = stats.iter().filter(|element| element.kind == "sink").map(|sink| sink.packets_in);
        let ended = sinks.sum::<u64>() + stats.iter().map(ElementStats::dropped).sum::<u64>();
        if ended == u64::from(packets) {
            return engine.stop();
        }
        assert!(Instant::now() < deadline, "{stats:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Which replicas each flow came to; panics where one's packets are out of order.
fn owners(log: &Log) -> BTreeMap<u32, BTreeSet<usize>> {
    let mut owners = BTreeMap::<u32, BTreeSet<usize>>::new();
    for (replica, came) in log.lock().unwrap().iter().enumerate() {
        let mut last = BTreeMap::new();
        for (flow, sequence) in came {
            owners.entry(*flow).or_default().insert(replica);
            let before = last.insert(*flow, *sequence);
            assert!(
                before.is_none_or(|before| before < *sequence),
                "flow {flow}: {sequence} after {before:?}"
            );
        }
    }
    owners
}

#[test]
fn both_directions_of_a_flow_come_to_one_replica_in_order() {
    for parsed in [true, false] {
        for placement in [
            Placement::single(None),
            Placement::split([&["flows"], &["sink"]]),
            Placement::split([&["flows"], &["sink#0"], &["sink#1"], &["sink#2"]]),
        ] {
            let (mut graph, log) = (Graph::new(), log());
            let source = graph.add("flows", flows());
            let sink = sinks(&mut graph, &log);
            if parsed {
                let parser = graph.add("parse", Parser::new(0));
                graph.chain(&[source, parser, sink]);
            } else {
                graph.connect(source, sink);
            }
            let stats = run(graph, &placement.replicated("sink", 3, "flow"), COUNT);
            let owners = owners(&log);
            assert_eq!(owners.len(), FLOWS as usize);
            assert!(owners.values().all(|owners| owners.len() == 1), "{owners:?}");
            let used: BTreeSet<_> = owners.values().flatten().collect();
            assert_eq!(used.len(), 3, "60 flows that all miss one of three: one chance in 10^10");
            let names: Vec<_> = stats.iter().map(|element| element.name.as_str()).collect();
            let hand_off = if parsed { "parse.out>sink" } else { "flows.out>sink" };
            assert!(names.ends_with(&[hand_off]) && names.contains(&"sink#2"), "{names:?}");
        }
    }
}

#[test]
fn packets_without_state_go_round() {
    let (mut graph, log) = (Graph::new(), log());
    let source = graph.add("flows", flows());
    let sink = sinks(&mut graph, &log);
    graph.connect(source, sink);
    run(graph, &Placement::single(None).replicated("sink", 5, "round_robin"), COUNT);
    let counts: Vec<_> = log.lock().unwrap().iter().map(Vec::len).collect();
    assert_eq!(counts, [2400, 2400, 2400, 2400, 2400, 0, 0, 0]);
}

/// As behind receive queues over which the port spreads: no hand-off between them.
#[test]
fn replicas_follow_those_before_them() {
    let (mut graph, log) = (Graph::new(), log());
    let source = graph.add_replicable("flows", |i| (i < 2).then(flows)).unwrap();
    let parser = graph.add_replicable("parse", |i| Some(Parser::new(i as u16))).unwrap();
    let sink = sinks(&mut graph, &log);
    graph.chain(&[source, parser, sink]);
    let placement = Placement::split([&["flows#0", "parse#0", "sink#0"], &["flows#1", "parse#1", "sink#1"]]);
    let placement =
        ["flows", "parse", "sink"].into_iter().fold(placement, |p, name| p.replicated(name, 2, "upstream"));
    let stats = run(graph, &placement, 2 * COUNT);
    assert_eq!(stats.len(), 6);
    let counts: Vec<_> = log.lock().unwrap().iter().map(Vec::len).collect();
    assert_eq!(counts[..3], [COUNT as usize, COUNT as usize, 0]);
    assert!(stats.iter().all(|element| element.name.ends_with(&format!("#{}", element.worker))), "{stats:?}");
}

/// As transmit queues, each of which is that of a worker, and of what there is one of besides.
#[test]
fn each_of_as_many_has_a_queue_of_its_own() {
    let (mut graph, log) = (Graph::new(), log());
    let source = graph.add_replicable("flows", |i| (i < 2).then(flows)).unwrap();
    let other = graph.add("other", flows());
    let sink = sinks(&mut graph, &log);
    graph.connect(source, sink);
    graph.connect(other, sink);
    let placement = Placement::single(None).replicated("flows", 2, "upstream").replicated("sink", 2, "queue");
    let stats = run(graph, &placement, 3 * COUNT);
    let names: Vec<_> = stats.iter().map(|element| element.name.as_str()).collect();
    assert_eq!(names, ["flows#0", "flows#1", "other", "sink#0", "sink#1", "other.out>sink"]);
    let spread = stats.last().map(|element| element.packets_in);
    assert_eq!(spread, Some(u64::from(COUNT)), "only what there is one of is spread");
}

#[test]
fn replicas_come_together_again_behind() {
    let (mut graph, log) = (Graph::new(), log());
    let source = graph.add("flows", flows());
    let parser = graph.add_replicable("parse", |_| Some(Parser::new(0))).unwrap();
    let sink = graph.add("sink", Sink(0, log.clone()));
    graph.chain(&[source, parser, sink]);
    let placement =
        Placement::split([&["flows", "sink"], &["parse#0"], &["parse#1"]]).replicated("parse", 2, "flow");
    run(graph, &placement, COUNT);
    assert_eq!(owners(&log).len(), FLOWS as usize);
}

/// By the first byte of the destination address: a rule of the graph's own.
struct FirstByte;

impl Affinity for FirstByte {
    fn replica(&mut self, mbuf: &Mbuf, replicas: usize) -> usize {
        usize::from(mbuf.data()[31]) % replicas
    }
}

#[test]
fn a_graph_brings_rules_of_its_own() {
    let (mut graph, log) = (Graph::new(), log());
    let source = graph.add("flows", flows());
    let sink = sinks(&mut graph, &log);
    graph.connect(source, sink);
    graph.affinity("network", || FirstByte);
    run(graph, &Placement::single(None).replicated("sink", 2, "network"), COUNT);
    assert!(owners(&log).values().all(|owners| owners.len() == 2), "each direction has one");
}

#[test]
fn each_mistake_about_replicas_is_named() {
    let fails = |placement: Placement| {
        let (mut graph, log) = (Graph::new(), log());
        let source = graph.add_replicable("flows", |i| (i < 2).then(flows)).unwrap();
        let parser = graph.add("parse", Parser::new(0));
        let sink = sinks(&mut graph, &log);
        graph.chain(&[source, parser, sink]);
        match Engine::start(eal(), graph, &placement, &Options::default()) {
            Err(EngineError::Graph(why)) => why,
            other => panic!("{other:?}", other = other.map(|_| "it runs")),
        }
    };
    let single = || Placement::single(None);
    let why = fails(single().replicated("snik", 2, "flow"));
    assert!(
        matches!(why, GraphError::UnknownReplicated { .. }) && why.to_string().contains("parse, sink"),
        "{why}"
    );
    for (name, count, most) in [("sink", 0, 32), ("sink", 33, 32), ("parse", 2, 1), ("flows", 3, 2)] {
        let why = fails(single().replicated(name, count, "flow"));
        assert_eq!(why, GraphError::Replicas { name: name.into(), count, most });
    }
    let why = fails(single().replicated("sink", 2, "flwo"));
    assert!(
        why.to_string().contains("'flwo'") && why.to_string().contains("flow, queue, round_robin, upstream"),
        "{why}"
    );
    let why = fails(single().replicated("sink", 2, "upstream"));
    assert!(matches!(why, GraphError::Upstream { count: 2, before: 1, .. }), "{why}");
    let why = fails(Placement::split([&["sink#2"]]).replicated("sink", 2, "flow"));
    assert!(matches!(why, GraphError::Unknown { .. }) && why.to_string().contains("sink#0, sink#1"), "{why}");
}

#[test]
fn replicas_are_data() {
    let text = r#"{"workers": [{}], "replicas": {"nat": {"count": 4}, "acl": {"count": 2, "affinity": "upstream"}}}"#;
    let placement: Placement = serde_json::from_str(text).unwrap();
    assert_eq!((placement.replicas["nat"].count, placement.replicas["nat"].affinity.as_str()), (4, "flow"));
    assert_eq!(placement.replicas["acl"].affinity, "upstream");
    let again: Placement = serde_json::from_value(serde_json::to_value(&placement).unwrap()).unwrap();
    assert_eq!(again, placement);
}
