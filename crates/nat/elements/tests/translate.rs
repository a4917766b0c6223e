//! The NAT's elements between ports, placed in every way: packets of subscribers come out with addresses of the pool, answers
//! go back to who asked, and nobody else's packets get in.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "parts/pcp.rs"]
mod pcp;
#[path = "parts/sites.rs"]
mod sites;

use crate::common::{End, counts};
use crate::setting::*;
use crate::start;
use packet::arp::{Arp, Operation};
use packet::signature::Signature;
use packet::{Flow, Mac, Program, ipv4};
use run::graph::GraphView;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

const SUBSCRIBERS: u8 = 40;

fn translates_both_ways(name: &str, pool: &str, more: &Value) {
    let run = start(&graph(name, pool, more));
    let (mut near, mut far) = (End::new(&format!("{name}-in")), End::new(&format!("{name}-out")));
    be_router(&mut far);
    // Until the answer has come to it there is no way out.
    let server = SocketAddr::new(SERVER.into(), 53);
    let probe = datagram(subscriber(250), 999, (server, INSIDE), 0);
    // Other questions of the box, and more of these.
    let payload = probe[42..].to_vec();
    far.ignores = Box::new(|frame| frame[12..14] != [8, 0]);
    let mut tries = 0;
    while {
        near.send(std::slice::from_ref(&probe));
        far.take_soon(1).is_empty()
    } {
        tries += 1;
        assert!(tries < 1_000, "no way out");
    }
    far.ignores = Box::new(move |frame| frame[12..14] != [8, 0] || frame[42..] == payload);
    let sent: BTreeMap<u8, Vec<u8>> =
        (1..=SUBSCRIBERS).map(|i| (i, datagram(subscriber(i), 5_000, (server, INSIDE), i.into()))).collect();
    near.send(&sent.values().cloned().collect::<Vec<_>>());
    let out: Vec<Vec<u8>> = far.take(sent.len());
    assert_eq!(out.len(), sent.len());
    let mut endpoints = BTreeSet::new();
    for frame in &out {
        assert_eq!(frame[..12], [ROUTER.1, OUTSIDE].concat());
        let (source, destination) = ipv4::addresses(frame, 14).unwrap();
        assert_eq!(
            (source.octets()[..3].to_vec(), destination, ports(frame).1),
            (vec![203, 0, 113], SERVER, 53)
        );
        assert!(packet::Parsed::of(frame).unwrap().is_intact(frame), "checksums");
        assert!(endpoints.insert((source, ports(frame).0)), "two subscribers have one endpoint");
    }
    // What was asked comes back as it was sent, but for the hops.
    let answers: Vec<Vec<u8>> = out
        .iter()
        .map(|frame| {
            let mut answer = frame.clone();
            answer[..12].copy_from_slice(&[OUTSIDE, ROUTER.1].concat());
            ipv4::swap(&mut answer, 14);
            packet::udp::swap(&mut answer, 34);
            answer
        })
        .collect();
    far.send(&answers);
    let back = near.take(answers.len());
    assert_eq!(back.len(), answers.len());
    let mut heard = BTreeSet::new();
    for frame in &back {
        let (source, destination) = ipv4::addresses(frame, 14).unwrap();
        let number = destination.octets()[3];
        assert_eq!((source, ports(frame)), (SERVER, (53, 5_000)));
        assert_eq!(frame[..12], [subscriber(number).1, INSIDE].concat(), "to whom it is");
        assert_eq!(frame[42..], sent[&number][42..], "what it carries");
        assert!(packet::Parsed::of(frame).unwrap().is_intact(frame), "checksums");
        assert!(heard.insert(number), "twice");
    }
    // The same in pieces: the port, by which workers are told apart that share an address, is in the first one alone.
    far.send(&answers.iter().zip(1..).flat_map(|(answer, id)| in_two(answer, id)).collect::<Vec<_>>());
    let mut pieces = BTreeMap::new();
    for frame in near.take(2 * answers.len()) {
        *pieces.entry(ipv4::addresses(&frame, 14).unwrap().1.octets()[3]).or_insert(0) += 1;
    }
    assert_eq!(pieces, sent.keys().map(|number| (*number, 2)).collect());
    // Nobody else gets in: not from another address, nor to an endpoint that is nobody's.
    let (address, port) = *endpoints.first().unwrap();
    let stranger = (Ipv4Addr::new(198, 51, 100, 66), ROUTER.1);
    let unasked = [
        datagram(stranger, 53, (SocketAddr::new(address.into(), port), OUTSIDE), 1),
        datagram((SERVER, ROUTER.1), 53, (SocketAddr::new(address.into(), port ^ 0x4000), OUTSIDE), 2),
    ];
    far.send(&unasked);
    // Who pretends to be no subscriber gets no further than the table; who is broken not even there.
    let mut broken = sent[&1].clone();
    broken[70] ^= 1;
    let forged = datagram((Ipv4Addr::new(192, 0, 2, 1), [2, 0, 0, 0, 0, 1]), 1, (server, INSIDE), 3);
    // What a switch floods is another router's, and what all got is nobody's to forward.
    let flooded = |mac| datagram(subscriber(3), 1, (server, mac), 4);
    near.send(&[broken, forged, flooded([2, 0, 0, 0, 9, 9]), flooded([0xff; 6]), sent[&2].clone()]);
    assert_eq!(far.take(1).len(), 1, "the others' packets go on");
    let end = Instant::now() + Duration::from_secs(60);
    let refused = || {
        let all = dropped(&run.observe(), "nat44");
        all.iter().filter(|(reason, _)| *reason != "no_next_hop").map(|(_, count)| count).sum::<u64>()
    };
    while refused() < 2 && Instant::now() < end {
        std::thread::yield_now();
    }
    assert!(near.take_soon(1).is_empty(), "a stranger was let in");
    assert_eq!(run.end_reason(), None);
    let view = run.stop().observer;
    assert_eq!(
        dropped(&view, "validity"),
        BTreeMap::from([("bad_checksum".into(), 1), ("other_mac".into(), 1)])
    );
    assert_eq!(dropped(&view, "subscribers"), BTreeMap::from([("not_inside".into(), 1)]));
    let mut refused = dropped(&view, "nat44");
    refused.remove("no_next_hop");
    assert_eq!(refused, BTreeMap::from([("filtered".into(), 1), ("no_mapping".into(), 1)]));
}

/// A packet of that id in two pieces.
fn in_two(frame: &[u8], id: u16) -> [Vec<u8>; 2] {
    const PAYLOAD: usize = 34;
    const CUT: usize = PAYLOAD + 24;
    let piece = |payload: &[u8], place: u16| {
        let mut piece = [&frame[..PAYLOAD], payload].concat();
        piece[16..18].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
        piece[18..20].copy_from_slice(&id.to_be_bytes());
        piece[20..22].copy_from_slice(&place.to_be_bytes());
        piece[24..26].fill(0);
        let sum = packet::checksum::of(&piece[14..PAYLOAD]);
        piece[24..26].copy_from_slice(&sum.to_be_bytes());
        piece
    };
    [piece(&frame[PAYLOAD..CUT], 0x2000), piece(&frame[CUT..], 3)]
}

#[test]
fn everything_on_one_worker() {
    translates_both_ways("nat-one", "203.0.113.16/30", &json!({}));
}

#[test]
fn a_stage_on_each_worker() {
    let placement = json!({"placement": [
        {"elements": ["inside.rx", "outside.rx"]},
        {"elements": ["in-validity", "out-validity"]},
        {"elements": ["subscribers"]},
        {"elements": ["nat44"]},
        {"elements": ["inside.tx", "outside.tx", "in-host", "out-host"]},
    ]});
    translates_both_ways("nat-pipe", "203.0.113.16/30", &placement);
}

#[test]
fn several_workers_with_their_own_subscribers() {
    let replicas = json!({"count": 2, "affinity": "owner"});
    // Of one address each worker has half of the ports; of four each has two.
    for (name, pool) in [("nat-one-ip", "203.0.113.16/32"), ("nat-four", "203.0.113.16/30")] {
        let more = json!({
            "replicas": {"subscribers": replicas, "nat44": replicas},
            "placement": [
                {"elements": ["inside.rx", "outside.rx", "subscribers#0", "nat44#0"]},
                {"elements": ["subscribers#1", "nat44#1"]},
            ],
        });
        translates_both_ways(name, pool, &more);
    }
}

#[test]
fn both_workers_have_work() {
    let replicas = json!({"count": 2, "affinity": "owner"});
    let more = json!({
        "replicas": {"subscribers": replicas, "nat44": replicas},
        "placement": [{"elements": ["inside.rx", "subscribers#0", "nat44#0"]}, {"elements": ["subscribers#1", "nat44#1"]}],
    });
    let run = start(&graph("nat-both", "203.0.113.16/32", &more));
    let (mut near, mut far) = (End::new("nat-both-in"), End::new("nat-both-out"));
    be_router(&mut far);
    let server = SocketAddr::new(SERVER.into(), 53);
    let sent: Vec<_> =
        (1..=200).map(|i| datagram(subscriber(i), 5_000, (server, INSIDE), i.into())).collect();
    near.send(&sent);
    let end = Instant::now() + Duration::from_secs(60);
    let seen = |name: &str| counts(&run.observe(), name).0;
    while seen("nat44#0") + seen("nat44#1") < 200 && Instant::now() < end {
        std::thread::yield_now();
    }
    // A subscriber stays with its worker from one stage to the next.
    assert_eq!((seen("subscribers#0"), seen("subscribers#1")), (seen("nat44#0"), seen("nat44#1")));
    assert!(
        seen("subscribers#0") > 50 && seen("subscribers#1") > 50,
        "{} {}",
        seen("subscribers#0"),
        seen("subscribers#1")
    );
    run.stop();
}

/// Only who has a lease gets through, and only from its own Ethernet address.
#[test]
fn subscribers_by_lease() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kea-leases4.csv");
    let header = "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context";
    let line = |lifetime| format!("10.0.0.1,02:00:00:00:00:01,,{lifetime},4000000000,1,0,0,,0,\n");
    std::fs::write(&file, format!("{header}\n{}", line(3600))).unwrap();
    let mut graph = graph("nat-lease", "203.0.113.16/32", &json!({}));
    graph["elements"]["subscribers"]["leases"] = json!({"file": file.to_str().unwrap(), "server": "kea"});
    let run = start(&graph);
    let (mut near, mut far) = (End::new("nat-lease-in"), End::new("nat-lease-out"));
    be_router(&mut far);
    far.ignores = Box::new(|frame| frame[12..14] != [8, 0]);
    let server = SocketAddr::new(SERVER.into(), 53);
    let sends = |near: &mut End, from, number| near.send(&[datagram(from, 5_000, (server, INSIDE), number)]);
    // It gets through once the lease was read and the router has answered.
    let end = Instant::now() + Duration::from_secs(60);
    let until_out = |near: &mut End, far: &mut End| {
        while {
            sends(near, subscriber(1), 1);
            far.take_soon(1).is_empty()
        } {
            assert!(Instant::now() < end, "no way out");
        }
    };
    until_out(&mut near, &mut far);
    let before = dropped(&run.observe(), "subscribers");
    sends(&mut near, subscriber(2), 2);
    sends(&mut near, (subscriber(1).0, subscriber(2).1), 3);
    let count = |reason: &str| dropped(&run.observe(), "subscribers").get(reason).copied().unwrap_or(0);
    let was = |reason: &str| before.get(reason).copied().unwrap_or(0);
    while count("spoofed") == was("spoofed") || count("not_bound") == was("not_bound") {
        assert!(Instant::now() < end, "{:?}", dropped(&run.observe(), "subscribers"));
        std::thread::yield_now();
    }
    // The lease is over, and so is the way out.
    use std::io::Write as _;
    let mut leases = std::fs::OpenOptions::new().append(true).open(&file).unwrap();
    leases.write_all(line(0).as_bytes()).unwrap();
    let refused = count("not_bound");
    while count("not_bound") == refused {
        assert!(Instant::now() < end, "a lease that is over still holds");
        sends(&mut near, subscriber(1), 4);
        std::thread::sleep(Duration::from_millis(1));
    }
    // It comes back.
    leases.write_all(line(3600).as_bytes()).unwrap();
    let come_back = Instant::now() + Duration::from_secs(60);
    far.take_soon(usize::MAX);
    while {
        sends(&mut near, subscriber(1), 5);
        far.take_soon(1).is_empty()
    } {
        assert!(Instant::now() < come_back, "it did not come back");
    }
    run.stop();
}
