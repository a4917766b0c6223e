//! A NAT between two cables, its router and its subscribers.

#![allow(dead_code, reason = "not every test uses all of it")]

use crate::common::End;
use packet::arp::{Arp, Operation};
use packet::signature::Signature;
use packet::{Flow, Mac, Program};
use run::graph::GraphView;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

pub const ROUTER: (Ipv4Addr, Mac) = (Ipv4Addr::new(203, 0, 113, 1), [2, 0, 0, 0, 9, 1]);
pub const OUTSIDE: Mac = [2, 0, 0, 0, 9, 2];
pub const INSIDE: Mac = [2, 0, 0, 0, 9, 3];
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 9);

pub fn subscriber(number: u8) -> (Ipv4Addr, Mac) {
    (Ipv4Addr::new(10, 0, 0, number), [2, 0, 0, 0, 0, number])
}

pub fn graph(name: &str, pool: &str, more: &Value) -> Value {
    let mut graph = json!({
        "ports": {
            "inside": {"device": format!("pair:{name}-in"), "ip": "10.0.0.254/24", "mac": "02:00:00:00:09:03"},
            "outside": {"device": format!("pair:{name}-out"), "ip": "203.0.113.2/24", "mac": "02:00:00:00:09:02"},
        },
        "elements": {
            "in-validity": {"kind": "validity", "port": "inside", "own_mac": true},
            "out-validity": {"kind": "validity", "port": "outside", "own_mac": true},
            "subscribers": {"kind": "subscriber-table", "most_subscribers": 1000},
            "nat44": {
                "kind": "nat44", "inside": "inside", "outside": "outside", "pool": [pool],
                "sessions": 4096, "most_subscribers": 1000, "udp_filtering": "address_and_port_dependent",
            },
            "in-host": {"kind": "nat-host", "port": "inside"},
            "out-host": {"kind": "nat-host", "port": "outside", "gateway": "203.0.113.1", "answers_for": [pool]},
        },
        "edges": [
            "inside.rx -> in-validity",
            "in-validity.out -> subscribers -> nat44",
            "outside.rx -> out-validity",
            "out-validity.out -> nat44",
            "nat44.outside -> outside.tx",
            "nat44.inside -> inside.tx",
            "in-validity.local -> in-host -> inside.tx",
            "out-validity.local -> out-host -> outside.tx",
        ],
    });
    for (key, value) in more.as_object().unwrap() {
        graph[key] = value.clone();
    }
    graph
}

pub fn datagram(from: (Ipv4Addr, Mac), port: u16, to: (SocketAddr, Mac), sequence: u64) -> Vec<u8> {
    let flow = Flow {
        source_mac: from.1,
        destination_mac: to.1,
        source: SocketAddr::new(from.0.into(), port),
        destination: to.0,
    };
    let mut frame = vec![0; 80];
    let signature = Signature { stream: 1, sequence: sequence as _, sent_ns: 3 };
    Program::udp(&flow, 80).unwrap().write(&mut frame, 0, &signature);
    frame
}

pub fn ports(frame: &[u8]) -> (u16, u16) {
    (u16::from_be_bytes([frame[34], frame[35]]), u16::from_be_bytes([frame[36], frame[37]]))
}

/// The router tells where it is, when it is asked.
pub fn be_router(far: &mut End) {
    let asked = far.take(1);
    let question = Arp::parse(&asked[0]).unwrap();
    assert_eq!(
        (question.operation, question.target, question.sender_mac),
        (Operation::Request, ROUTER.0, OUTSIDE)
    );
    let mut answer = [0; packet::arp::FRAME];
    question.answer(ROUTER.1).emit(&mut answer);
    far.send(&[answer.to_vec()]);
}

/// What an element dropped, by reason: both ports' together, and all replicas'.
pub fn dropped(view: &dyn GraphView, name: &str) -> BTreeMap<String, u64> {
    let mut drops = BTreeMap::new();
    let is_it = |one: &str| one.split('#').next().is_some_and(|one| one.ends_with(name));
    for element in view.elements().iter().filter(|one| is_it(&one.name)) {
        for (reason, count) in element.drops.iter().filter(|(_, count)| **count > 0) {
            *drops.entry((*reason).to_string()).or_default() += *count;
        }
    }
    drops
}
