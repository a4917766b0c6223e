//! Sites that several workers divide: whatever a subscriber sends and whatever comes back for it meets at one worker, which is known
//! from the packet and the addresses that sites have alone.

#![allow(
    clippy::unwrap_used,
    dead_code,
    missing_docs,
    reason = "a test; it does not use all of the packets' text"
)]

use crate::conformance::packet::Packet;
use nat_core::config::{Config, SECOND};
use nat_core::{Endpoint, Frame, Headers, Nat, Ownership, Side, Site, SiteBy, SiteConfig, Verdict};
use proptest::prelude::*;
use std::collections::HashMap;
use std::net::Ipv4Addr;

const MOST: usize = 6;
const REMOTE: &str = "198.51.100.9";
const ROUTER: &str = "192.0.2.1";

fn public(last: u8) -> u32 {
    Ipv4Addr::new(203, 0, 113, last).to_bits()
}

/// Tags of the inside, as a packet's text has them and as a number.
const TAGS: [(&str, u32); 3] = [("", 0), (" vlan 7", 7 << 12), (" vlan 7.9", 7 << 12 | 9)];

struct Workers {
    by: SiteBy,
    ownership: Ownership,
    nats: Vec<Nat>,
    /// Who has which slot, and which address.
    has: HashMap<u32, (Site, u32)>,
    now: u64,
}

impl Workers {
    fn new(by: SiteBy, count: usize) -> Self {
        let sites = SiteConfig { most: MOST, by };
        let nat = |number: u8| {
            let config = Config {
                sites: Some(sites),
                sessions: 256,
                subscribers: 64,
                seed: [number; 32],
                ..Config::default()
            };
            Nat::new(config).unwrap()
        };
        let nats = (0..count as u8).map(nat).collect();
        Self {
            by,
            ownership: Ownership::of_sites(sites, count, [9; 32]),
            nats,
            has: HashMap::new(),
            now: SECOND,
        }
    }

    /// Take away what a slot has, and give it an address that no other has, for a site that has none.
    fn assign(&mut self, slot: u32, site: Site, address: u32) {
        let owners = self.ownership.address_owners().unwrap();
        if let Some((before, address)) = self.has.remove(&slot) {
            owners.remove(address);
            let nat = &mut self.nats[self.ownership.site(before)];
            nat.vacate_public(slot);
            while nat.advance(self.now, 8) {}
            assert_eq!(nat.pop_vacated_public(), Some(slot));
        }
        if !self.has.values().any(|(its, has)| *its == site || *has == address) {
            let worker = self.ownership.site(site);
            assert!(self.nats[worker].assign_public(site, slot, Ipv4Addr::from_bits(address)));
            assert!(owners.set(address, worker));
            self.has.insert(slot, (site, address));
        }
    }

    /// Where a packet goes, what becomes of it there, and what it is then.
    fn send(&mut self, side: Side, text: &str) -> (Option<usize>, Verdict, Vec<u8>) {
        let mut frame = Packet::parse(text).unwrap().frame();
        let headers = Headers::of(&frame).unwrap();
        let worker = self.ownership.worker(side, &frame, &headers);
        let mut frames = [Frame::new(&mut frame)];
        self.nats[worker.unwrap_or(0)].process(side, &mut frames, self.now);
        let verdict = frames[0].verdict;
        (worker, verdict, frame[headers.l3.into()..].to_vec())
    }

    /// A subscriber sends, and is answered in every way.
    fn talk(&mut self, (host, port): (u8, u16), tags: usize, kind: usize) -> Result<(), TestCaseError> {
        let (tags, realm) = TAGS[tags];
        let address = Ipv4Addr::new(10, 0, 0, host);
        let name = ["udp", "tcp", "icmp echo"][kind];
        let (syn, syn_ack) = if name == "tcp" { (" SYN", " SYN,ACK") } else { ("", "") };
        let remote = if name == "icmp echo" { format!("{REMOTE}:0") } else { format!("{REMOTE}:80") };
        let inside = format!("{address}:{port}");
        let (worker, verdict, packet) =
            self.send(Side::Inside, &format!("{name} {inside} > {remote}{syn}{tags}"));
        let site = self.by.site(address.to_bits(), realm);
        prop_assert_eq!(worker, Some(self.ownership.site(site)));
        let its = self.has.values().find(|(its, _)| *its == site).map(|(_, address)| *address);
        let Some(its) = its else {
            prop_assert!(matches!(verdict, Verdict::Drop(_)), "{verdict:?}");
            return Ok(());
        };
        prop_assert!(matches!(verdict, Verdict::Forward(_)), "{verdict:?}");
        let word = |packet: &[u8], at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let at = if name == "icmp echo" { 24 } else { 20 };
        prop_assert_eq!(&packet[12..16], &its.to_be_bytes());
        let outside = Endpoint::new(its, word(&packet, at));
        let own = Ipv4Addr::from_bits(its);
        let answer = name.replace("echo", "reply");
        let answers = [
            format!("{answer} {remote} > {outside}{syn_ack}"),
            format!("icmp 3/1 {ROUTER} > {own} [ {name} {outside} > {remote}{syn} ]"),
            format!("icmp 11/0 {REMOTE} > {own} [ {name} {outside} > {remote}{syn} ]"),
            format!("{answer} {remote} > {outside}{syn_ack} frag 7 0 more len 16"),
            format!("piece {} {REMOTE} > {own} frag 7 24", [17, 6, 1][kind]),
        ];
        for answer in answers {
            let (to, verdict, packet) = self.send(Side::Outside, &answer);
            prop_assert_eq!(to, worker, "{}", answer);
            prop_assert!(
                matches!(verdict, Verdict::Forward(to) if to.to == Side::Inside),
                "{}: {:?}",
                answer,
                verdict
            );
            prop_assert_eq!(&packet[16..20], &address.octets(), "{}", answer);
        }
        // A router of the subscriber's could not deliver an answer.
        let error = format!("icmp 3/3 10.0.0.250 > {REMOTE}{tags} [ {answer} {remote} > {inside}{syn_ack} ]");
        prop_assert_eq!(self.send(Side::Inside, &error).0, worker);
        Ok(())
    }
}

#[derive(Debug, Clone)]
enum Step {
    Assign(u32, u8, usize, u8),
    Talk(u8, u16, usize, usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..MOST as u32, 0u8..24, 0usize..3, 1u8..9)
            .prop_map(|(slot, host, tags, last)| Step::Assign(slot, host, tags, last)),
        5 => (0u8..24, 0u16..6, 0usize..3, 0usize..3)
            .prop_map(|(host, port, tags, kind)| Step::Talk(host, 5000 + port, tags, kind)),
        1 => (0u64..400).prop_map(Step::Pass),
    ]
}

fn by() -> impl Strategy<Value = SiteBy> {
    prop_oneof![Just(SiteBy::Tags), Just(SiteBy::Subscriber), Just(SiteBy::Prefix(29))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn both_directions_meet_whatever_addresses_sites_have(
        by in by(),
        count in 1usize..5,
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut workers = Workers::new(by, count);
        for step in steps {
            match step {
                Step::Assign(slot, host, tags, last) => {
                    let site = by.site(Ipv4Addr::new(10, 0, 0, host).to_bits(), TAGS[tags].1);
                    workers.assign(slot, site, public(last));
                }
                Step::Talk(host, port, tags, kind) => workers.talk((host, port), tags, kind)?,
                Step::Pass(seconds) => {
                    workers.now += seconds * SECOND;
                    for nat in &mut workers.nats {
                        nat.advance(workers.now, 64);
                    }
                }
            }
            for last in 1..9 {
                let owner = |nat: &&Nat| nat.pool().has(public(last));
                prop_assert!(workers.nats.iter().filter(owner).count() <= 1);
                let found = workers.ownership.outside(Endpoint::new(public(last), 5000));
                let has = workers.nats.iter().position(|nat| nat.pool().has(public(last)));
                prop_assert_eq!(found, has, "whoever is steered to has the address");
            }
        }
    }
}

#[test]
fn sites_spread_over_workers() {
    let sites = SiteConfig { most: 1000, by: SiteBy::Tags };
    let ownership = Ownership::of_sites(sites, 4, [5; 32]);
    let mut counts = [0; 4];
    (1..=1000).for_each(|vlan| counts[ownership.site(Site { inside: 0, realm: vlan << 12 })] += 1);
    assert!(counts.iter().all(|count| (200..300).contains(count)), "{counts:?}");
    // Its subscribers are all there.
    let first = ownership.subscriber(0x0a00_0001, 7 << 12);
    assert!((2..200).all(|host| ownership.subscriber(0x0a00_0000 + host, 7 << 12) == first));
}
