//! Port forwards to subscribers that have not sent anything: they are asked for by ARP, in their VLAN, and what waited for that reaches
//! them. Who does not answer is given up after seconds, so time passes only when these tests let it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::End;
use crate::setting::*;
use crate::start;
use engine::View;
use engine::clock::testing::pass;
use packet::arp::{Arp, Operation};
use packet::ethernet::Tags;
use packet::ipv4;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const BOX: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const MS: u64 = 1_000_000;
/// How long a busy machine may take.
const LONG: Duration = Duration::from_secs(60);

/// Until each worker has had so many turns with what is there.
fn settle(view: &View, more: u64) {
    let turns = || view.workers().iter().map(|worker| worker.turns).min().unwrap();
    let (enough, end) = (turns() + more, Instant::now() + LONG);
    while turns() < enough {
        assert!(Instant::now() < end, "a worker stands still");
        // who sleeps gets a processor sooner than who yields it
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// What comes out within 100 ms, which pass little by little. Then time stands still, however long the workers take.
fn take(view: &View, end: &mut End) -> Vec<u8> {
    let (mut passed, patience) = (0, Instant::now() + LONG);
    loop {
        settle(view, 2);
        if let Some(frame) = only(end) {
            return frame;
        }
        if passed < 100 {
            pass(MS);
            passed += 1;
        }
        assert!(Instant::now() < patience, "nothing comes out: {:?}", view.elements());
    }
}

/// The frame that is there, if there is one.
fn only(end: &mut End) -> Option<Vec<u8>> {
    let mut there = end.drain();
    assert!(there.len() < 2, "{there:x?}");
    there.pop()
}

fn is_reached(name: &str, more: &Value) {
    // Time is of the process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    crate::common::eal();
    pass(MS);
    let mut graph = graph(name, "203.0.113.16/30", more);
    graph["elements"]["in-host"]["on_link"] = json!(["10.0.0.0/24"]);
    let forward = |outside: &str, inside: &str, vlan: &[u16]| json!({"protocol": "udp", "outside": outside, "inside": inside, "vlan": vlan});
    graph["elements"]["nat44"]["forwards"] = json!([
        forward("203.0.113.16:8080", "10.0.0.7:80", &[]),
        forward("203.0.113.17:8080", "10.0.0.7:80", &[7, 9]),
    ]);
    let run = start(&graph);
    let view = run.view();
    let (mut near, mut far) = (End::new(&format!("{name}-in")), End::new(&format!("{name}-out")));
    be_router(&mut far);
    let (ip, mac) = subscriber(7);
    for (last, vlans) in [(16, &[][..]), (17, &[7, 9])] {
        let tags = Tags::vlans(vlans).unwrap();
        let l3 = 14 + tags.bytes().len();
        let to = (SocketAddr::from((Ipv4Addr::new(203, 0, 113, last), 8080)), OUTSIDE);
        let sent = |number| datagram((SERVER, ROUTER.1), 7_000, to, number);
        // The latest is what waits.
        far.send(&[sent(1), sent(2)]);
        let asked = take(&view, &mut near);
        let question = Arp::parse(&asked).unwrap();
        assert_eq!((&asked[..6], question.operation), (&[0xff; 6][..], Operation::Request));
        assert_eq!((question.sender, question.sender_mac, question.target), (BOX, INSIDE, ip));
        assert_eq!(Tags::of(&asked), tags);
        let waits = || dropped(&run.observe(), "nat44").get("awaiting_arp").copied().unwrap_or(0);
        let end = Instant::now() + LONG;
        while waits() < u64::from(last - 15) && Instant::now() < end {
            std::thread::yield_now();
        }
        assert_eq!(waits(), u64::from(last - 15), "the later one waits in place of the first");
        // It is asked for again each second until it has answered.
        for _ in 0..2 {
            pass(850 * MS);
            // one to ask, and one for each ring on the way
            settle(&view, 4);
            assert_eq!(only(&mut near), None, "more often than once a second");
            pass(100 * MS);
            assert_eq!(take(&view, &mut near), asked);
        }
        let mut answer = vec![0; 64];
        question.answer(mac).emit_tagged(&mut answer, &tags).unwrap();
        near.send(&[answer]);
        let waited = take(&view, &mut near);
        // From now on nothing waits, and its answers go back.
        far.send(&[sent(3)]);
        for (number, frame) in [(2, waited), (3, take(&view, &mut near))] {
            assert_eq!((&frame[..12], Tags::of(&frame)), (&[mac, INSIDE].concat()[..], tags));
            assert_eq!(ipv4::addresses(&frame, l3).unwrap(), (SERVER, ip));
            assert_eq!(frame[l3 + 28..], sent(number)[42..]);
            assert!(packet::Parsed::of(&frame).unwrap().is_intact(&frame), "checksums");
        }
    }
    assert_eq!(run.end_reason(), None);
    let view = run.stop().observer;
    assert_eq!(dropped(&view, "nat44"), BTreeMap::from([("awaiting_arp".into(), 2)]));
    assert!(dropped(&view, "in-host").is_empty());
}

#[test]
fn who_never_sent_anything_is_reached() {
    is_reached("nat-silent", &json!({}));
}

#[test]
fn each_worker_has_its_own_subscribers_asked_for() {
    let replicas = json!({"count": 2, "affinity": "owner"});
    let more = json!({
        "replicas": {"subscribers": replicas, "nat44": replicas},
        "placement": [
            {"elements": ["inside.rx", "outside.rx", "subscribers#0", "nat44#0"]},
            {"elements": ["subscribers#1", "nat44#1", "in-host"]},
        ],
    });
    is_reached("nat-silents", &more);
}
