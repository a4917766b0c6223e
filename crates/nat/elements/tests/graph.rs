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
            "elements": {"nat44": {"kind": "nat44", "inside": "a", "outside": "b", "pool": ["203.0.113.1"]}},
            "edges": ["a.rx -> nat44", "b.rx -> nat44", "nat44.outside -> b.tx", "nat44.inside -> a.tx"],
            "replicas": {"nat44": {"count": 2, "affinity": affinity}},
        })
    };
    assert_eq!(faults(&graph("owner")), Vec::<String>::new());
    let said = faults(&graph("flow"));
    assert!(said[0].contains("at replicas.nat44.affinity: several nat44 divide"), "{said:?}");
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
                "subscribers": {"kind": "subscriber-table"},
                "nat44": {
                    "kind": "nat44", "inside": "inside", "outside": "outside", "pool": ["203.0.113.16/31"],
                    "forwards": [forward("203.0.113.16:5060", 5060), forward("203.0.113.17:5061", 5061)]
                },
                "away": {"kind": "discard"}
            },
            "edges": [
                "inside.rx -> in-validity", "in-validity.out -> subscribers -> nat44", "in-validity.local -> away",
                "outside.rx -> out-validity", "out-validity.out -> nat44", "out-validity.local -> away",
                "nat44.outside -> outside.tx", "nat44.inside -> inside.tx"
            ],
            "replicas": {"subscribers": {"count": count, "affinity": "owner"}, "nat44": {"count": count, "affinity": "owner"}}
        })
    };
    assert_eq!(faults(&of(1)), Vec::<String>::new());
    let said = faults(&of(2));
    let [only] = &said[..] else { panic!("{said:#?}") };
    assert!(
        only.contains("ND-104-04: at elements.nat44.forwards[1].outside: its subscriber has another forward"),
        "{only}"
    );
}
