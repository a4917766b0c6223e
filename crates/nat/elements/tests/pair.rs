//! Two NATs as a pair, each with cables of its own: who takes over tells switches and subscribers, also those in VLANs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::End;
use crate::setting::*;
use crate::start;
use dataplane::graph::GraphRun;
use nat_elements::control::PairStatus;
use packet::arp::Arp;
use packet::ethernet::Tags;
use serde_json::json;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);
const BOX: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);

/// One of the two, and the ends of its cables.
struct One {
    run: GraphRun,
    near: End,
    far: End,
}

impl One {
    fn start(name: &str, folder: &Path) -> Self {
        let mut graph = graph(name, "203.0.113.16/30", &json!({}));
        for host in ["in-host", "out-host"] {
            graph["elements"][host]["pair"] = json!(true);
        }
        graph["elements"]["nat44"]["pair"] = json!({"socket": folder.join("pair"), "silence": "60s"});
        let run = start(&graph);
        let (near, far) = (End::new(&format!("{name}-in")), End::new(&format!("{name}-out")));
        Self { run, near, far }
    }

    /// Whether it translates, and whether the standby knows everything.
    fn stands(&self) -> (String, bool) {
        let pair = self.run.view().request("nat44", PairStatus, LONG).unwrap();
        let pair = serde_json::to_value(pair).unwrap();
        (pair["role"].as_str().unwrap().to_owned(), pair["synced"] == json!(true))
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Addresses that are announced, with their tags.
fn announced(frames: &[Vec<u8>]) -> BTreeSet<(Ipv4Addr, Vec<u8>)> {
    let arps = frames.iter().filter_map(|frame| Some((Arp::parse(frame)?, Tags::of(frame))));
    let told = arps.filter(|(arp, _)| arp.sender == arp.target);
    told.map(|(arp, tags)| (arp.sender, tags.bytes().to_vec())).collect()
}

#[test]
fn who_takes_over_is_announced_in_the_vlans_of_subscribers_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut one = One::start("pair-a", folder.path());
    one.far.ignores = Box::new(|frame| Arp::parse(frame).is_none_or(|arp| arp.sender == arp.target));
    be_router(&mut one.far);
    let server = SocketAddr::new(SERVER.into(), 53);
    let tags = [Tags::vlans(&[7]).unwrap(), Tags::vlans(&[100, 8]).unwrap(), Tags::NONE];
    let frames: Vec<Vec<u8>> = (1..)
        .zip(&tags)
        .map(|(number, tags)| {
            let frame = datagram(subscriber(number), 5_000, (server, INSIDE), 1);
            [&frame[..12], tags.bytes(), &frame[12..]].concat()
        })
        .collect();
    one.far.ignores = Box::new(|frame| Arp::parse(frame).is_some());
    let mut sources = BTreeSet::new();
    until("not all are translated", || {
        one.near.send(&frames);
        sources.extend(one.far.take_soon(3).iter().map(|frame| frame[26..36].to_vec()));
        sources.len() == 3
    });
    let mut other = One::start("pair-b", folder.path());
    until("the standby does not know everything", || other.stands() == ("standby".to_owned(), true));
    assert!(other.near.drain().is_empty() && other.far.drain().is_empty(), "a standby says nothing");
    one.run.stop();
    let mut told = BTreeSet::new();
    until("not all is announced inside", || {
        told.extend(announced(&other.near.drain()));
        told.len() >= 3
    });
    assert_eq!(told, tags.iter().map(|tags| (BOX, tags.bytes().to_vec())).collect());
    let pool = (16..20).map(|last| Ipv4Addr::new(203, 0, 113, last));
    let outside: BTreeSet<_> =
        pool.chain([Ipv4Addr::new(203, 0, 113, 2)]).map(|ip| (ip, Vec::new())).collect();
    let mut told = BTreeSet::new();
    until("not all is announced outside", || {
        told.extend(announced(&other.far.drain()));
        told.len() >= outside.len()
    });
    assert_eq!(told, outside);
    assert_eq!(other.stands().0, "active");
    other.run.stop();
}
