//! The box as a host: what its kernel gets by the exception path, and what it is never told. A cable stands for the tap.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::End;
use crate::start;
use dataplane::graph::GraphRun;
use nat_elements::address_removal::{AddressRemoval, AddressRemovals};
use nat_elements::host::AddressUpdate;
use packet::Mac;
use packet::arp::{self, Arp, Operation};
use run::graph::GraphView;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const OWN: Mac = [2, 0, 0, 0, 9, 2];
const ROUTER: (Ipv4Addr, Mac) = (Ipv4Addr::new(203, 0, 113, 1), [2, 0, 0, 0, 9, 1]);
const PEER: (Ipv4Addr, Mac) = (Ipv4Addr::new(203, 0, 113, 9), [2, 0, 0, 0, 9, 9]);
const BOX: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
const POOL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 17);

/// The outside of a NAT, with what a configuration's `host` adds to it.
fn graph(name: &str, vlan: Option<u16>) -> Value {
    let mut outside =
        json!({"device": format!("pair:{name}"), "ip": "203.0.113.2/24", "mac": "02:00:00:00:09:02"});
    let (mut untag, mut tag) = (json!({"kind": "counter"}), json!({"kind": "counter"}));
    if let Some(id) = vlan {
        outside["vlan"] = json!(id);
        untag = json!({"kind": "vlan", "pop": 1});
        tag = json!({"kind": "vlan", "push": [{"id": id}]});
    }
    json!({
        "ports": {
            "outside": outside,
            "kernel": {"device": format!("pair:{name}-tap"), "optional": true},
        },
        "elements": {
            "validity": {"kind": "validity", "port": "outside"},
            "translated": {"kind": "discard"},
            "host": {
                "kind": "nat-host", "port": "outside", "gateway": "203.0.113.1", "host": true,
                "answers_for": ["203.0.113.16/28"],
            },
            "to-kernel": {"kind": "police", "limit": {"packets": "1/s", "burst_packets": 5}},
            "resolution": {"kind": "police", "limit": {"packets": "1k/s"}},
            "untag": untag, "tag": tag,
        },
        "edges": [
            "outside.rx -> validity", "validity.out -> translated", "validity.local -> host",
            "host.out -> outside.tx", "host.host -> to-kernel -> untag", "host.resolution -> resolution -> untag",
            "untag -> kernel.tx", "kernel.rx -> tag -> outside.tx",
        ],
    })
}

fn tagged(frame: &[u8], id: u8) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0, id], &frame[12..]].concat()
}

fn resolution(arp: &Arp) -> Vec<u8> {
    let mut frame = [0; arp::FRAME];
    arp.emit(&mut frame);
    frame.to_vec()
}

fn asked(target: Ipv4Addr) -> Vec<u8> {
    resolution(&Arp::request(PEER.1, PEER.0, target))
}

/// IPv4 without anything behind its header, to the box.
fn ip(to: Ipv4Addr, mac: Mac) -> Vec<u8> {
    let mut header = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0, 198, 51, 100, 9, 0, 0, 0, 0];
    header[16..].copy_from_slice(&to.octets());
    let [high, low] = packet::checksum::of(&header).to_be_bytes();
    (header[10], header[11]) = (high, low);
    [&mac[..], &ROUTER.1, &[8, 0], &header, &[0; 26]].concat()
}

fn dropped(run: &GraphRun, element: &str, reason: &str) -> u64 {
    let all = run.observe().elements();
    all.iter().find(|one| one.name == element).and_then(|one| one.drops.get(reason)).copied().unwrap_or(0)
}

/// Wait until so many were dropped.
fn until(run: &GraphRun, element: &str, reason: &str, count: u64) {
    let end = Instant::now() + Duration::from_secs(60);
    while dropped(run, element, reason) < count && Instant::now() < end {
        std::thread::yield_now();
    }
    assert_eq!(dropped(run, element, reason), count, "{element} {reason}");
}

/// The far end of the port, and the kernel; the box's own questions for the router are not looked at.
fn ends(name: &str) -> (End, End) {
    let (mut far, kernel) = (End::new(name), End::new(&format!("{name}-tap")));
    far.ignores = Box::new(|frame| {
        Arp::parse(frame).is_some_and(|arp| arp.operation == Operation::Request && arp.sender_mac == OWN)
    });
    (far, kernel)
}

#[test]
fn the_kernel_answers_for_the_box_and_the_nat_for_the_pool() {
    let run = start(&graph("host-plain", None));
    let (mut far, mut kernel) = ends("host-plain");
    far.send(&[asked(POOL)]);
    let answer = Arp::parse(&far.take(1)[0]).unwrap();
    assert_eq!((answer.operation, answer.sender, answer.sender_mac), (Operation::Reply, POOL, OWN));
    // The box's own address is the kernel's; the router's answers reach both of them.
    let told = resolution(&Arp::request(OWN, BOX, ROUTER.0).answer(ROUTER.1));
    let lldp = [&[1, 0x80, 0xc2, 0, 0, 0xe][..], &ROUTER.1, &[0x88, 0xcc], &[0; 46]].concat();
    let for_it = [asked(BOX), told, ip(BOX, OWN), lldp];
    far.send(&for_it);
    let mut expected = for_it.to_vec();
    expected.sort();
    assert_eq!(kernel.take(4), expected);
    // Others' are not: of another host, for an address that is asked of everybody, and what has a tag.
    far.send(&[ip(BOX, [2, 0, 0, 0, 0, 7]), asked(Ipv4Addr::new(203, 0, 113, 99)), tagged(&ip(BOX, OWN), 7)]);
    until(&run, "host", "not_for_us", 3);
    // In VLANs where it is not the kernel's it is answered as without one.
    far.send(&[tagged(&asked(BOX), 7)]);
    let answer = far.take(1).remove(0);
    let heard = Arp::parse(&answer).unwrap();
    assert_eq!(
        (heard.operation, heard.sender, &answer[12..16]),
        (Operation::Reply, BOX, &[0x81, 0, 0, 7][..])
    );
    // What the kernel says goes out as it is.
    let said = ip(ROUTER.0, ROUTER.1);
    kernel.send(std::slice::from_ref(&said));
    assert_eq!(far.take(1), [said]);
    assert!(kernel.take_soon(1).is_empty(), "more than is its own");
    run.stop();
}

#[test]
fn the_kernel_is_in_the_boxs_vlan_and_knows_nothing_of_it() {
    let run = start(&graph("host-vlan", Some(100)));
    let (mut far, mut kernel) = ends("host-vlan");
    far.send(&[tagged(&asked(BOX), 100), tagged(&ip(BOX, OWN), 100)]);
    let mut expected = vec![asked(BOX), ip(BOX, OWN)];
    expected.sort();
    assert_eq!(kernel.take(2), expected);
    far.send(&[asked(BOX), tagged(&asked(BOX), 101), tagged(&ip(BOX, OWN), 101), tagged(&asked(POOL), 101)]);
    until(&run, "host", "not_for_us", 4);
    let said = ip(ROUTER.0, ROUTER.1);
    kernel.send(std::slice::from_ref(&said));
    assert_eq!(far.take(1), [tagged(&said, 100)]);
    assert!(kernel.take_soon(1).is_empty(), "other people's VLANs");
    run.stop();
}

#[test]
fn what_comes_is_announced_and_what_goes_is_answered_for_until_it_is_given_up() {
    let run = start(&graph("host-pool", None));
    let (mut far, _kernel) = ends("host-pool");
    far.ignores = Box::new(|frame| Arp::parse(frame).is_some_and(|arp| arp.target == ROUTER.0));
    let came = Ipv4Addr::new(203, 0, 113, 40);
    let leaving: AddressRemovals = [AddressRemoval::new(POOL, 2)].into();
    let answers_for = vec![came.into()];
    let told = AddressUpdate {
        added: answers_for.clone(),
        answers_for,
        leaving: Arc::clone(&leaving),
        sources: None,
    };
    run.view().request("host", told, Duration::from_secs(60)).unwrap();
    let announced = Arp::parse(&far.take(1)[0]).unwrap();
    assert_eq!((announced.sender, announced.target, announced.sender_mac), (came, came, OWN));
    // It is announced once more, some time later.
    far.ignores = Box::new(|frame| Arp::parse(frame).is_some_and(|arp| arp.operation == Operation::Request));
    for address in [POOL, came] {
        far.send(&[asked(address)]);
        let answer = Arp::parse(&far.take(1)[0]).unwrap();
        assert_eq!((answer.operation, answer.sender), (Operation::Reply, address));
    }
    leaving[0].give_up_part();
    far.send(&[asked(POOL)]);
    assert_eq!(Arp::parse(&far.take(1)[0]).unwrap().sender, POOL, "another worker has a part of it");
    leaving[0].give_up_part();
    let before = dropped(&run, "host", "not_for_us");
    // It was one of many before, which nobody said are to leave.
    far.send(&[asked(POOL), asked(Ipv4Addr::new(203, 0, 113, 18))]);
    until(&run, "host", "not_for_us", before + 2);
    run.stop();
}

#[test]
fn a_flood_does_not_keep_others_from_finding_the_box() {
    let run = start(&graph("host-flood", None));
    let (mut far, mut kernel) = ends("host-flood");
    far.send(&vec![ip(BOX, OWN); 500]);
    let end = Instant::now() + Duration::from_secs(60);
    while dropped(&run, "to-kernel", "policed") < 400 && Instant::now() < end {
        std::thread::yield_now();
    }
    far.send(&[asked(BOX)]);
    kernel.ignores = Box::new(|frame| frame[12..14] == [8, 0]);
    assert_eq!(kernel.take(1), [asked(BOX)]);
    assert_eq!(dropped(&run, "resolution", "policed"), 0);
    run.stop();
}
