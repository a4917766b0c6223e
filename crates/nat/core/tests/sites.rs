//! Public addresses that come and go: whatever happens, nobody uses an address that is not its site's.

#![allow(
    clippy::unwrap_used,
    dead_code,
    missing_docs,
    reason = "a test; it does not use all of the packets' text"
)]

use crate::conformance::packet::Packet;
use nat_core::config::{Addresses, Config, SECOND};
use nat_core::{
    Endpoint, EventKind, Frame, MappingError, MappingRequest, Nat, Reason, Side, Site, SiteBy, SiteConfig,
    Verdict, sites,
};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;

const REMOTE: Endpoint = Endpoint::new(0xc633_6409, 53);
const BY: SiteBy = SiteBy::Prefix(30);

fn nat() -> Nat {
    let sites = Some(SiteConfig { most: 3, by: BY });
    let addresses = Addresses { inside: Some(Ipv4Addr::new(10, 0, 0, 254)), outside: None };
    let config =
        Config { sites, addresses, sessions: 256, subscribers: 64, ports_per_block: 64, ..Config::default() };
    Nat::new(config).unwrap()
}

fn public(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, last)
}

fn inside(last: u8, port: u16) -> Endpoint {
    Endpoint::new(0x0a00_0000 | u32::from(last), port)
}

fn site(last: u8) -> Site {
    BY.site(0x0a00_0000 | u32::from(last), 0)
}

/// What becomes of a UDP packet, and its addresses then.
fn send(nat: &mut Nat, side: Side, from: Endpoint, to: Endpoint, now: u64) -> (Verdict, Endpoint, Endpoint) {
    let mut frame = Packet::parse(&format!("udp {from} > {to}")).unwrap().frame();
    let verdict = {
        let mut frames = [Frame::new(&mut frame)];
        nat.process(side, &mut frames, now);
        frames[0].verdict
    };
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let address = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
    (verdict, Endpoint::new(address(26), word(34)), Endpoint::new(address(30), word(36)))
}

#[test]
fn a_site_shares_an_address_and_one_without_is_refused() {
    let (mut nat, now) = (nat(), SECOND);
    let refused = send(&mut nat, Side::Inside, inside(1, 7), REMOTE, now).0;
    assert_eq!(refused, Verdict::Drop(Reason::NoPublicAddress));
    // host unreachable: its TCP does not give up for that
    let (_, told) = nat.pop_output().unwrap();
    assert_eq!(told[20..22], [3, 1]);
    assert_eq!((nat.pool().addresses(), nat.pool().blocks()), (0, (0, 0)));
    assert!(nat.assign_public(site(1), 2, public(9)));
    assert!(nat.assign_public(site(1), 2, public(9)), "once more is no fault");
    assert_eq!(nat.pool().blocks(), (1008, 1008));
    for last in [1, 2, 3] {
        let (verdict, from, _) = send(&mut nat, Side::Inside, inside(last, 7), REMOTE, now);
        let Verdict::Forward(forward) = verdict else { panic!("{verdict:?}") };
        assert_eq!((from.address, forward.hop), (public(9).to_bits(), sites::hop(2)));
        let back = send(&mut nat, Side::Outside, REMOTE, from, now);
        assert!(matches!(back.0, Verdict::Forward(_)) && back.2 == inside(last, 7));
    }
    assert_eq!(
        send(&mut nat, Side::Inside, inside(4, 7), REMOTE, now).0,
        Verdict::Drop(Reason::NoPublicAddress)
    );
    // nobody else gets the slot, the address, or a second slot
    assert!(!nat.assign_public(site(4), 2, public(8)) && !nat.assign_public(site(4), 1, public(9)));
    assert!(!nat.assign_public(site(1), 0, public(8)) && !nat.assign_public(site(4), 3, public(8)));
}

#[test]
fn what_a_site_asked_for_is_at_its_address_and_goes_with_it() {
    let (mut nat, now) = (nat(), SECOND);
    let asked = |last, address: Option<u8>, port| MappingRequest {
        address: address.map(|last| public(last).to_bits()),
        port: Some(port),
        exact: true,
        ..MappingRequest::new(inside(last, 7), 17, 0, 1_000_000 * SECOND)
    };
    let refused = nat.map(&asked(1, None, 2000), now);
    assert_eq!(refused, Err(MappingError::Refused(Reason::NoPublicAddress)));
    assert!(nat.assign_public(site(1), 0, public(9)) && nat.assign_public(site(5), 1, public(8)));
    // Not at another site's address, however it asks.
    assert_eq!(nat.map(&asked(1, Some(8), 2000), now), Err(MappingError::Taken));
    let outside = nat.map(&asked(1, Some(9), 2000), now).unwrap();
    assert_eq!(outside, Endpoint::new(public(9).to_bits(), 2000));
    // A port is enough: the address is the site's.
    assert_eq!(nat.map(&asked(5, None, 2000), now), Ok(Endpoint::new(public(8).to_bits(), 2000)));
    assert!(matches!(send(&mut nat, Side::Outside, REMOTE, outside, now).0, Verdict::Forward(_)));
    nat.vacate_public(0);
    let late = nat.map(&asked(1, Some(9), 2000), now);
    assert_eq!(late, Err(MappingError::Refused(Reason::NoPublicAddress)), "nothing lives on that is to end");
    while nat.advance(now, 10) {}
    let count = |last| nat.explicit_count(inside(last, 0).address, 0);
    assert_eq!((count(1), count(5), nat.sessions().count()), (0, 1, 1));
}

#[test]
fn with_its_address_a_site_loses_its_sessions_and_ports() {
    let (mut nat, now) = (nat(), SECOND);
    assert!(nat.assign_public(site(1), 0, public(9)) && nat.assign_public(site(5), 1, public(8)));
    let mut ports = HashSet::new();
    for port in 0..40 {
        let (_, from, _) = send(&mut nat, Side::Inside, inside(1, 1000 + port), REMOTE, now);
        ports.insert(from.port);
        send(&mut nat, Side::Inside, inside(5, 1000 + port), REMOTE, now);
    }
    let other = inside(5, 2000);
    let hairpin =
        nat.sessions().find(|(_, session)| session.inside() == inside(1, 1000)).unwrap().1.outside();
    assert!(matches!(send(&mut nat, Side::Inside, other, hairpin, now).0, Verdict::Forward(_)));
    nat.vacate_public(0);
    assert_eq!(nat.public_address(0), None);
    // nothing begins, and nothing is given to others, before all is over
    let late = send(&mut nat, Side::Inside, inside(2, 7), REMOTE, now).0;
    assert_eq!(late, Verdict::Drop(Reason::NoPublicAddress));
    assert!(!nat.assign_public(site(1), 0, public(9)) && !nat.assign_public(site(9), 2, public(9)));
    let mut turns = 0;
    while nat.advance(now, 1) {
        turns += 1;
    }
    assert!(turns > 5, "few lines a turn");
    let left: Vec<_> = nat.sessions().map(|(_, session)| *session).collect();
    assert_eq!(left.len(), 40, "those of the other site");
    assert!(left.iter().all(|one| one.outside().address == public(8).to_bits()));
    let records: Vec<EventKind> = std::iter::from_fn(|| nat.pop_event()).map(|event| event.what).collect();
    let released = records
        .iter()
        .filter(|what| matches!(what, EventKind::BlockReleased(one) if one.outside == public(9)));
    assert_eq!(released.count(), 1, "under the address that it was of");
    assert_eq!(records.iter().filter(|what| matches!(what, EventKind::SessionEnded(..))).count(), 42);
    // it comes back, with the same address: ports rest (RFC 6888 REQ-8)
    assert!(nat.assign_public(site(1), 0, public(9)));
    for port in 0..20 {
        let (verdict, from, _) = send(&mut nat, Side::Inside, inside(1, 1000 + port), REMOTE, now);
        assert!(matches!(verdict, Verdict::Forward(_)) && !ports.contains(&from.port));
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let good = nat().config().clone();
    for most in [0, SiteConfig::MOST + 1] {
        let sites = Some(SiteConfig { most, by: BY });
        assert!(Config { sites, ..good.clone() }.check().unwrap_err().to_string().starts_with("sites.most"));
    }
    let sites = Some(SiteConfig { most: SiteConfig::MOST, by: BY });
    Config { sites, ..good.clone() }.check().unwrap();
    let pool = vec![nat_core::config::PoolAddress::all_ports(public(1))];
    assert!(Config { pool, ..good }.check().is_err());
}

#[derive(Debug, Clone)]
enum Step {
    Assign(u8, u32, u8),
    Vacate(u32),
    Up(u8, u16),
    Down(u8, u16),
    Pass(u64, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0u8..5, 0u32..4, 1u8..4).prop_map(|(site, slot, address)| Step::Assign(4 * site, slot, address)),
        1 => (0u32..4).prop_map(Step::Vacate),
        6 => (0u8..20, 0u16..6).prop_map(|(host, port)| Step::Up(host, 5000 + port)),
        2 => (1u8..4, 1024u16..1200).prop_map(|(address, port)| Step::Down(address, port)),
        3 => (0u64..200, 1usize..4).prop_map(|(seconds, budget)| Step::Pass(seconds, budget)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    /// Slots and addresses are never two sites'; what leaves by a slot has the slot's address; blocks are given back under the
    /// address that they were taken under.
    #[test]
    fn nobody_uses_what_is_not_its_own(steps in proptest::collection::vec(step(), 1..150)) {
        let (mut nat, mut now) = (nat(), 1_000 * SECOND);
        let mut has = HashMap::<u32, (Site, Ipv4Addr)>::new();
        let mut blocks = HashSet::new();
        for step in steps {
            match step {
                Step::Assign(of, slot, address) => {
                    let (site, address) = (site(of), public(address));
                    let same = has.get(&slot) == Some(&(site, address));
                    let free = !has.contains_key(&slot)
                        && !has.values().any(|(other, its)| *other == site || *its == address);
                    if nat.assign_public(site, slot, address) {
                        prop_assert!(same || free);
                        has.insert(slot, (site, address));
                    }
                }
                Step::Vacate(slot) => {
                    nat.vacate_public(slot);
                    has.remove(&slot);
                }
                Step::Up(host, port) => {
                    let (verdict, from, _) = send(&mut nat, Side::Inside, inside(host, port), REMOTE, now);
                    let its = has.iter().find(|(_, (its, _))| *its == site(host));
                    match verdict {
                        Verdict::Forward(forward) => {
                            let slot = sites::slot(forward.hop).unwrap();
                            // By a slot without address nothing is sent.
                            if let Some(address) = nat.public_address(slot) {
                                prop_assert_eq!(from.address, address.to_bits());
                                prop_assert_eq!(its, Some((&slot, &(site(host), address))));
                            }
                        }
                        Verdict::Drop(Reason::NoPublicAddress) => prop_assert!(its.is_none()),
                        Verdict::Drop(_) => {}
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
                Step::Down(address, port) => {
                    let to = Endpoint::new(public(address).to_bits(), port);
                    send(&mut nat, Side::Outside, REMOTE, to, now);
                }
                Step::Pass(seconds, budget) => {
                    now += seconds * SECOND;
                    nat.advance(now, budget);
                }
            }
            for (slot, (_, address)) in &has {
                prop_assert_eq!(nat.public_address(*slot), Some(*address));
            }
            while let Some(event) = nat.pop_event() {
                match event.what {
                    EventKind::BlockAllocated(block) => {
                        let of = (BY.site(block.inside.to_bits(), block.realm), block.outside);
                        prop_assert!(has.values().any(|its| *its == of));
                        prop_assert!(blocks.insert((block.inside, block.outside, block.ports)));
                    }
                    EventKind::BlockReleased(block) => {
                        prop_assert!(blocks.remove(&(block.inside, block.outside, block.ports)));
                    }
                    _ => {}
                }
            }
        }
        for slot in 0..3 {
            nat.vacate_public(slot);
        }
        while nat.advance(now, 4) {}
        prop_assert_eq!((nat.session_count(), nat.pool().addresses(), nat.pool().blocks()), (0, 0, (0, 0)));
    }
}
