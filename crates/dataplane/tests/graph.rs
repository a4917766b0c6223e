//! Graphs from files at work: every kind is what it says, and frames come out as the elements make them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::{End, assert_builds, counts, start};
use dataplane::graph::{CheckedGraph, GraphRun, kinds};
use packet::ethernet::Tags;
use run::graph::GraphView as _;
use serde_json::json;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[test]
fn every_kind_builds_what_it_says() {
    let _alone = alone();
    assert_builds(&kinds());
}

/// Graphs share what memory the process has: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sorted<const N: usize>(mut frames: [Vec<u8>; N]) -> [Vec<u8>; N] {
    frames.sort();
    frames
}

/// A datagram to a port, in VLANs.
fn frame(port: u16, vlans: &[u16]) -> Vec<u8> {
    let flow = packet::Flow {
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: [2, 0, 0, 0, 0, 2],
        source: ([10, 0, 0, 1], 5000).into(),
        destination: ([10, 0, 0, 2], port).into(),
    };
    let mut frame = vec![0; 100];
    let signature = packet::signature::Signature { stream: 1, sequence: 2, sent_ns: 3 };
    packet::Program::udp(&flow, 100).unwrap().write(&mut frame, 0, &signature);
    frame.splice(12..12, Tags::vlans(vlans).unwrap().bytes().iter().copied());
    frame
}

#[test]
fn frames_are_sorted_copied_retagged_and_recorded() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("copies.pcapng");
    let graph = json!({
        "ports": {"in": {"device": "pair:graph-in"}, "out": {"device": "pair:graph-out"}},
        "elements": {
            "parse": {"kind": "parser", "port": "in"},
            "acl": {"kind": "classifier", "rules": [
                {"match": "dst port 22", "to": "deny"},
                {"match": "untagged", "to": "push"},
                {"match": "any", "to": "pop"}
            ]},
            "denied": {"kind": "discard"},
            "push": {"kind": "vlan", "push": [{"id": 200}, {"id": 100}]},
            "pop": {"kind": "vlan", "pop": 1},
            // After the tags have changed, what the parser found must hold still.
            "again": {"kind": "classifier", "rules": [
                {"match": "dst port 7", "to": "seven"},
                {"match": "any", "to": "eight"}
            ]},
            "tee": {"kind": "tee"},
            "file": {"kind": "capture", "file": file},
            "eight": {"kind": "counter"}
        },
        "edges": [
            "in.rx -> parse -> acl", "acl.deny -> denied", "acl.push -> push -> again", "acl.pop -> pop -> again",
            "again.seven -> tee -> out.tx", "tee.copy -> file", "again.eight -> eight -> out.tx", "out.rx -> in.tx"
        ],
        "replicas": {"acl": {"count": 2}},
        "placement": [{"elements": ["in.rx", "parse", "acl#0"]}, {"elements": ["acl#1", "out.tx"]}]
    });
    let run = start(&graph, &kinds());
    let (mut near, mut far) = (End::new("graph-in"), End::new("graph-out"));
    near.send(&[frame(7, &[]), frame(8, &[5]), frame(22, &[]), frame(7, &[6, 5])]);
    assert_eq!(far.take(3), sorted([frame(7, &[200, 100]), frame(8, &[]), frame(7, &[5])]));
    far.send(&[frame(22, &[])]);
    assert_eq!(near.take(1), [frame(22, &[])]);
    assert_eq!(run.end_reason(), None);
    assert!(run.observe().shape().edges.iter().any(|edge| edge.ring), "it is placed on two workers");
    let stopped = run.stop();
    let (view, captures) = (stopped.observer, stopped.captures);
    let passed = |port: &str| view.interfaces().get(port).map(|all| (all.rx_packets, all.tx_packets));
    assert_eq!((passed("in"), passed("out")), (Some((4, 1)), Some((1, 3))));
    assert!(view.interfaces().values().all(|all| all.rx_bytes >= 100 && all.rx_dropped == 0));
    assert_eq!(counts(&view, "parse"), (4, 4, 0));
    assert_eq!(counts(&view, "denied"), (1, 0, 1));
    assert_eq!((counts(&view, "acl#0").0 + counts(&view, "acl#1").0, counts(&view, "eight").0), (4, 1));
    assert_eq!((captures.len(), captures[0].packets, captures[0].state), (1, 2, "stopped"));
    let mut recorded: Vec<_> = capture::read::frames(&file).unwrap().into_iter().map(|one| one.1).collect();
    recorded.sort();
    assert_eq!(recorded, sorted([frame(7, &[200, 100]), frame(7, &[5])]));
}

#[test]
fn bad_paths_of_one_graph_lose_each_its_own_packets() {
    let _alone = alone();
    let way = |seed: Option<u32>| {
        let mut way = json!({"kind": "impair", "impair": {"loss": {"independent": "50%"}}});
        if let Some(seed) = seed {
            way["seed"] = json!(seed);
        }
        way
    };
    let frames: Vec<_> = (1000..1064).map(|port| frame(port, &[])).collect();
    for (seed, alike) in [(None, false), (Some(0), true)] {
        let graph = json!({
            "ports": {"in": {"device": "pair:ways-in"}, "x": {"device": "pair:ways-x"}, "y": {"device": "pair:ways-y"}},
            "elements": {"tee": {"kind": "tee"}, "there": way(seed), "back": way(seed)},
            "edges": ["in.rx -> tee -> there -> x.tx", "tee.copy -> back -> y.tx", "x.rx -> in.tx", "y.rx -> in.tx"]
        });
        let run = start(&graph, &kinds());
        let [mut near, mut x, mut y] = ["in", "x", "y"].map(|end| End::new(&format!("ways-{end}")));
        near.send(&frames);
        let deadline = Instant::now() + Duration::from_secs(20);
        let observer = run.observe();
        let done = |name: &str| {
            let (taken, passed, dropped) = counts(&observer, name);
            taken == 64 && passed + dropped == 64
        };
        while !(done("there") && done("back")) {
            assert!(Instant::now() < deadline, "the frames do not come through");
            std::thread::sleep(Duration::from_millis(5));
        }
        let passed = ["there", "back"].map(|name| counts(&observer, name).1 as usize);
        assert!(passed.iter().all(|passed| (10..54).contains(passed)), "{passed:?}");
        let came = (x.take(passed[0]), y.take(passed[1]));
        assert_eq!(came.0 == came.1, alike, "{seed:?}: {passed:?}");
        run.stop();
    }
}

#[test]
fn a_device_that_is_not_there_is_named_by_its_place() {
    let _alone = alone();
    let graph = json!({"ports": {"a": {"device": "af_packet:nd-no-such-if"}}, "edges": ["a.rx -> a.tx"]});
    let checked = CheckedGraph::read(&graph, &kinds()).unwrap_or_else(|why| panic!("{why:?}"));
    let why = GraphRun::start(&checked).unwrap_err();
    assert_eq!((why.code, why.at.as_str()), ("ND-92-12", "ports.a.device"));
}
