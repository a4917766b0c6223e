//! Graphs with elements of the NAT, checked and built.

use crate::common::assert_builds;
use crate::kinds;
use dataplane::graph::CheckedGraph;
use serde_json::{Value, json};

fn faults(value: &Value) -> Vec<String> {
    let read = CheckedGraph::read(value, &kinds());
    read.err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn every_kind_builds_what_it_says() {
    assert_builds(&kinds());
}

#[test]
fn those_that_divide_what_they_keep_get_their_own() {
    let graph = |affinity: &str| {
        json!({
            "ports": {"a": {"device": "null"}, "b": {"device": "null"}},
            "elements": {"conntrack": {"kind": "conntrack", "inside": "a", "outside": "b", "pool": ["203.0.113.1"]}},
            "edges": ["a.rx -> conntrack", "b.rx -> conntrack", "conntrack.outside -> b.tx", "conntrack.inside -> a.tx"],
            "replicas": {"conntrack": {"count": 2, "affinity": affinity}},
        })
    };
    assert_eq!(faults(&graph("owner")), Vec::<String>::new());
    let said = faults(&graph("flow"));
    assert!(said[0].contains("at replicas.conntrack.affinity: several conntrack divide"), "{said:?}");
}

/// What an element cannot divide among so many replicas is told before a port is opened.
#[test]
fn options_are_held_against_the_number_of_replicas() {
    let of = |count: usize| {
        let forward = |outside: &str, port: u16| json!({"protocol": "udp", "outside": outside, "inside": format!("10.0.0.7:{port}")});
        json!({
            "ports": {"inside": {"device": "null", "ip": "10.0.0.1/24"}, "outside": {"device": "null", "ip": "203.0.113.2/24"}},
            "elements": {
                "in-validity": {"kind": "validity", "port": "inside"},
                "out-validity": {"kind": "validity", "port": "outside"},
                "nat": {"kind": "nat"},
                "conntrack": {
                    "kind": "conntrack", "inside": "inside", "outside": "outside", "pool": ["203.0.113.16/31"],
                    "forwards": [forward("203.0.113.16:5060", 5060), forward("203.0.113.17:5061", 5061)]
                },
                "away": {"kind": "discard"}
            },
            "edges": [
                "inside.rx -> in-validity", "in-validity.out -> nat -> conntrack", "in-validity.local -> away",
                "outside.rx -> out-validity", "out-validity.out -> conntrack", "out-validity.local -> away",
                "conntrack.outside -> outside.tx", "conntrack.inside -> inside.tx"
            ],
            "replicas": {"nat": {"count": count, "affinity": "owner"}, "conntrack": {"count": count, "affinity": "owner"}}
        })
    };
    assert_eq!(faults(&of(1)), Vec::<String>::new());
    let said = faults(&of(2));
    let [only] = &said[..] else { panic!("{said:#?}") };
    assert!(
        only.contains(
            "ND-104-04: at elements.conntrack.forwards[1].outside: its subscriber has another forward"
        ),
        "{only}"
    );
}
