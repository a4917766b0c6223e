//! What holds for every history: the NAT agrees with a model made of maps, and no bytes break it.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::conformance::packet::Packet;
use ::packet::Parsed;
use nat_core::config::{Config, Filtering, PoolAddress, SECOND};
use nat_core::{Endpoint, Frame, Nat, PoolChange, Session, Side, Verdict};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;

const UDP: u64 = 300 * SECOND;
const REMOTE: u32 = 0xc633_6400;
const BLOCK: u16 = 64;

/// Of the pool, with six blocks.
fn address(last: u8) -> PoolAddress {
    PoolAddress { address: Ipv4Addr::new(203, 0, 113, last), ports: 1024..=1407 }
}

fn config() -> Config {
    Config {
        sessions: 64,
        subscribers: 8,
        pool: vec![address(1), address(2)],
        ports_per_block: BLOCK,
        blocks_per_subscriber: 2,
        sessions_per_subscriber: 40,
        seed: [3; 32],
        ..Config::default()
    }
}

/// A frame, translated.
fn send(nat: &mut Nat, side: Side, frame: &mut [u8], now: u64) -> Verdict {
    {
        let mut frames = [Frame::new(frame)];
        nat.process(side, &mut frames, now);
        frames[0].verdict
    }
}

fn udp(from: Endpoint, to: Endpoint, vlan: u16) -> Vec<u8> {
    let tags = if vlan == 0 { String::new() } else { format!(" vlan {vlan}") };
    Packet::parse(&format!("udp {from} > {to}{tags}")).unwrap().frame()
}

/// Source and destination of an untagged or tagged frame, whose checksums are right.
fn ends(frame: &[u8]) -> (Endpoint, Endpoint) {
    let parsed = Parsed::of(frame).unwrap();
    assert!(parsed.is_intact(frame));
    let addresses = parsed.addresses(frame).unwrap();
    let address = |at: usize| u32::from_be_bytes(addresses[at..at + 4].try_into().unwrap());
    let [from, to] = parsed.ports(frame).unwrap();
    (Endpoint::new(address(0), from), Endpoint::new(address(4), to))
}

#[derive(Debug, Clone)]
enum Step {
    Up {
        subscriber: u32,
        vlan: u16,
        port: u16,
        remote: u16,
    },
    /// To the so-many-eth mapping there ever was.
    Down {
        mapping: usize,
        remote: u16,
    },
    Wait(u64),
    /// An address comes to the pool, or goes.
    Pool {
        last: u8,
        comes: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u32..3, 0u16..3, 0u16..30, 0u16..4)
            .prop_map(|(subscriber, vlan, port, remote)| Step::Up { subscriber, vlan, port, remote }),
        4 => (any::<usize>(), 0u16..6).prop_map(|(mapping, remote)| Step::Down { mapping, remote }),
        1 => (0u64..400).prop_map(Step::Wait),
        1 => (1u8..=4, any::<bool>()).prop_map(|(last, comes)| Step::Pool { last, comes }),
    ]
}

type Inside = (Endpoint, u16);

/// What should be.
#[derive(Debug, Default)]
struct Model {
    /// When a session was last refreshed.
    sessions: HashMap<(Inside, Endpoint), u64>,
    mappings: HashMap<Inside, Endpoint>,
    /// Addresses on which something may begin.
    open: HashSet<u32>,
    /// Mappings whose address was there all the time.
    undisturbed: HashSet<Inside>,
}

impl Model {
    /// Forget what is certainly over, and say whether all the others are certainly alive.
    fn at(&mut self, now: u64) -> bool {
        self.sessions.retain(|_, last| now - *last < UDP + SECOND);
        self.mappings.retain(|inside, _| self.sessions.keys().any(|(its, _)| its == inside));
        self.undisturbed.retain(|inside| self.mappings.contains_key(inside));
        self.sessions.values().all(|last| now - *last < UDP - SECOND)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn it_agrees_with_a_model_of_maps(steps in proptest::collection::vec(step(), 1..200), stricter: bool) {
        let mut config = Config { pool_room: 3, ..config() };
        if stricter {
            config.filtering.udp = Filtering::AddressAndPortDependent;
        }
        let mut nat = Nat::new(config).unwrap();
        let mut model = Model { open: [0xcb00_7101, 0xcb00_7102].into(), ..Model::default() };
        let (mut now, mut changed) = (1_000 * SECOND, false);
        let mut ever = vec![Endpoint::new(0xcb00_7101, 1024)];
        for step in steps {
            // After a change of the pool what comes first finds it as it was left.
            if !changed {
                now += SECOND / 10;
                while nat.advance(now, 10) {}
            }
            // Where a session may be over or not, time passes until it is.
            while !model.at(now) {
                now += SECOND / 2;
                while nat.advance(now, 10) {}
            }
            changed = matches!(step, Step::Pool { .. });
            match step {
                Step::Wait(seconds) => {
                    for _ in 0..seconds {
                        now += SECOND;
                        nat.advance(now, 100);
                    }
                }
                Step::Pool { last, comes } => {
                    let (bits, one) = (address(last).address.to_bits(), vec![address(last)]);
                    let change = if comes {
                        model.open.insert(bits);
                        PoolChange { added: one, removed: Vec::new() }
                    } else {
                        model.open.remove(&bits);
                        let mappings = &model.mappings;
                        model.undisturbed.retain(|inside| mappings.get(inside).is_some_and(|its| its.address != bits));
                        PoolChange { added: Vec::new(), removed: one }
                    };
                    nat.change_pool(&change);
                    prop_assert_eq!(nat.audit(), Ok(()));
                    prop_assert_eq!(nat.pool().addresses(), model.open.len());
                }
                Step::Up { subscriber, vlan, port, remote } => {
                    let inside = (Endpoint::new(0x0a00_0002 + subscriber, 4000 + port), vlan);
                    let remote = Endpoint::new(REMOTE, 50 + remote);
                    let original = udp(inside.0, remote, vlan);
                    let mut frame = original.clone();
                    match send(&mut nat, Side::Inside, &mut frame, now) {
                        Verdict::Forward(forward) => {
                            prop_assert_eq!(forward.to, Side::Outside);
                            let (outside, to) = ends(&frame);
                            prop_assert_eq!(to, remote);
                            match model.mappings.get(&inside) {
                                Some(known) => prop_assert_eq!(outside, *known),
                                None => {
                                    prop_assert!(model.open.contains(&outside.address), "{}", outside);
                                    model.undisturbed.insert(inside);
                                }
                            }
                            // No other endpoint has it, and no other subscriber has its block.
                            for (other, theirs) in &model.mappings {
                                let block = |endpoint: &Endpoint| (endpoint.address, endpoint.port / BLOCK);
                                if *other != inside {
                                    prop_assert_ne!(*theirs, outside);
                                    let same = (other.0.address, other.1) == (inside.0.address, inside.1);
                                    prop_assert!(same || block(theirs) != block(&outside));
                                    let both = [&inside, other].iter().all(|one| model.undisturbed.contains(*one));
                                    let paired = theirs.address == outside.address;
                                    prop_assert!(!same || !both || paired, "paired pooling");
                                }
                            }
                            model.mappings.insert(inside, outside);
                            model.sessions.insert((inside, remote), now);
                            ever.push(outside);
                            // The way back undoes the way there.
                            let mut back = udp(remote, outside, 0);
                            prop_assert!(matches!(send(&mut nat, Side::Outside, &mut back, now), Verdict::Forward(_)));
                            prop_assert_eq!(ends(&back), (remote, inside.0));
                        }
                        Verdict::Drop(_) => prop_assert!(
                            !model.sessions.contains_key(&(inside, remote)),
                            "a session is never refused"
                        ),
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
                Step::Down { mapping, remote } => {
                    let outside = ever[mapping % ever.len()];
                    let remote = Endpoint::new(REMOTE, 50 + remote);
                    let inside = model.mappings.iter().find(|(_, its)| **its == outside).map(|(inside, _)| *inside);
                    let mut frame = udp(remote, outside, 0);
                    match (send(&mut nat, Side::Outside, &mut frame, now), inside) {
                        (Verdict::Forward(forward), Some(inside)) => {
                            let known = model.sessions.contains_key(&(inside, remote));
                            prop_assert_eq!((ends(&frame), forward.to), ((remote, inside.0), Side::Inside));
                            prop_assert_eq!(forward.realm, u32::from(inside.1) << 12);
                            prop_assert!(known || !stricter);
                            if !known {
                                // It is as old as one of those that the inside kept alive.
                                let is_it = |one: &Session| (one.inside(), one.realm() >> 12, one.remote());
                                let it = (inside.0, u32::from(inside.1), remote);
                                let begun = nat.sessions().find(|(_, one)| is_it(one) == it);
                                let idle = begun.map(|(_, one)| one.idle(now) >> 20);
                                let its = model.sessions.iter().filter(|((whose, _), _)| *whose == inside);
                                let last = its.map(|(_, last)| *last).find(|last| Some((now >> 20) - (last >> 20)) == idle);
                                prop_assert!(last.is_some(), "{:?} is none of {:?}", idle, model.sessions);
                                model.sessions.extend(last.map(|last| ((inside, remote), last)));
                            }
                        }
                        (Verdict::Forward(_), None) => prop_assert!(false, "nobody has {}", outside),
                        (Verdict::Drop(_), Some(inside)) => {
                            prop_assert!(!model.sessions.contains_key(&(inside, remote)));
                        }
                        (Verdict::Drop(_), _) => {}
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
            }
            if model.at(now) {
                prop_assert_eq!(nat.session_count(), model.sessions.len());
                prop_assert_eq!(nat.sessions().count(), model.sessions.len());
            }
        }
        // When all is over nothing is left.
        for _ in 0..1_000 {
            now += SECOND;
            nat.advance(now, 100);
        }
        prop_assert_eq!((nat.session_count(), nat.subscribers().count()), (0, 0));
        let (all, free) = nat.pool().blocks();
        prop_assert_eq!(all, free);
        prop_assert_eq!((all, nat.draining().len()), (6 * model.open.len() as u64, 0));
        prop_assert_eq!(nat.audit(), Ok(()));
    }

    /// Frames that are nearly right, in bursts, from both sides: none breaks it, no inside address gets out, and each is forwarded or
    /// dropped for one reason in the end, also SYNs that are answered later and fragments that waited.
    #[test]
    fn no_bytes_break_it(
        frames in proptest::collection::vec(
            (0usize..12, proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), 0usize..20, any::<bool>()),
            1..80,
        ),
        right: bool,
    ) {
        let kinds = [
            "udp 10.0.0.2:4000 > 198.51.100.9:53",
            "udp 198.51.100.9:53 > 203.0.113.1:1100",
            "tcp 10.0.0.2:4000 > 198.51.100.9:80 SYN mss 1460",
            "tcp 198.51.100.9:80 > 203.0.113.1:1100 SYN,ACK",
            "tcp 10.0.0.2:4000 > 198.51.100.9:80 RST",
            "icmp echo 10.0.0.2:7 > 198.51.100.9",
            "icmp 3/3 198.51.100.9 > 203.0.113.1 [ udp 203.0.113.1:1100 > 198.51.100.9:53 ]",
            "icmp 11/0 10.0.0.2 > 198.51.100.9 [ udp 198.51.100.9:53 > 10.0.0.2:4000 ]",
            "udp 10.0.0.2:4000 > 198.51.100.9:53 frag 7 0 more",
            "piece 17 10.0.0.2 > 198.51.100.9 frag 7 16",
            "udp 10.0.0.3:4000 > 203.0.113.1:1100 vlan 10.20",
            "tcp 198.51.100.9:80 > 203.0.113.1:1100 SYN",
        ];
        let mut config = config();
        config.mss = Some(1200);
        config.addresses.inside = Some(Ipv4Addr::new(10, 0, 0, 1));
        config.addresses.outside = Some(Ipv4Addr::new(203, 0, 113, 254));
        let mut nat = Nat::new(config).unwrap();
        let (mut now, count) = (SECOND, frames.len() as u64);
        for (kind, changes, cut, up) in frames {
            let mut bytes = Packet::parse(kinds[kind]).unwrap().frame();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            bytes.truncate(bytes.len() - cut.min(bytes.len()));
            if right && bytes.len() >= 34 {
                // So that what was changed gets past the header's checksum.
                bytes[24..26].fill(0);
                let sum = ::packet::checksum::of(&bytes[14..34]).to_be_bytes();
                bytes[24..26].copy_from_slice(&sum);
            }
            now += SECOND / 3;
            let side = if up { Side::Inside } else { Side::Outside };
            if let Verdict::Forward(forward) = send(&mut nat, side, &mut bytes, now)
                && forward.to == Side::Outside
            {
                let parsed = Parsed::of(&bytes).unwrap();
                prop_assert_eq!(&parsed.addresses(&bytes).unwrap()[..3], &[203, 0, 113][..]);
            }
            nat.advance(now, 50);
            while let Some((_, ip)) = nat.pop_output() {
                let text = crate::conformance::packet::text(ip, 0);
                // What is quoted may be wrong, what is sent is not.
                prop_assert!(!text.ends_with("badsum"), "{}", text);
            }
        }
        while nat.advance(now + 20_000 * SECOND, 1_000) {}
        let dropped: u64 = nat.drops().iter().map(|(_, count)| count).sum();
        prop_assert_eq!(count, nat.forwarded().up + nat.forwarded().down + dropped);
    }
}

/// All that a session needs, its mapping included, where each session has a mapping of its own and a subscriber has 64.
#[test]
fn a_session_takes_at_most_112_bytes() {
    for sessions in [1 << 20, 10_000_000] {
        let pool = (0..200).map(|i| PoolAddress::all_ports(Ipv4Addr::from_bits(0xcb00_7100 + i))).collect();
        let nat =
            Nat::new(Config { sessions, subscribers: sessions / 64, pool, ..Config::default() }).unwrap();
        let each = nat.memory().total() as f64 / sessions as f64;
        assert!(each <= 112.0, "{each} B of {:?}", nat.memory());
    }
}

/// Sessions come, go, and come again; no table grows, none forgets a place.
#[test]
fn places_are_used_again() {
    let pool = (0..4).map(|i| PoolAddress::all_ports(Ipv4Addr::new(203, 0, 113, i))).collect();
    let config =
        Config { sessions: 30_000, subscribers: 1_000, pool, ports_per_block: 64, ..Config::default() };
    let mut nat = Nat::new(config).unwrap();
    let (before, mut now) = (nat.memory(), SECOND);
    for round in 0..4u32 {
        for session in 0..30_000u32 {
            let inside = Endpoint::new(0x0a00_0000 + session / 60, 4_000 + (session % 60) as u16);
            let remote = Endpoint::new(REMOTE + round, 53);
            let verdict = send(&mut nat, Side::Inside, &mut udp(inside, remote, 0), now);
            assert!(matches!(verdict, Verdict::Forward(_)), "round {round}, session {session}: {verdict:?}");
        }
        assert_eq!(nat.session_count(), 30_000);
        for _ in 0..700 {
            now += SECOND;
            while nat.advance(now, 1_000) {}
        }
        assert_eq!((nat.session_count(), nat.subscribers().count()), (0, 0));
        while nat.pop_event().is_some() {}
    }
    assert_eq!(nat.memory(), before);
}

/// A call's work is bounded, whatever is due.
#[test]
fn expiry_is_done_in_portions() {
    let config = Config { sessions: 2_000, pool: config().pool, blocks_per_subscriber: 1, ..config() };
    let mut nat = Nat::new(Config { sessions_per_subscriber: 2_000, ..config }).unwrap();
    for port in 0..1_000 {
        let remote = Endpoint::new(REMOTE, port);
        send(&mut nat, Side::Inside, &mut udp(Endpoint::new(0x0a00_0002, 4_000), remote, 0), SECOND);
    }
    assert_eq!(nat.session_count(), 1_000);
    // They are looked at a first time after a round of the wheel, and found alive.
    let mut now = SECOND;
    for _ in 0..300 {
        now += SECOND;
        while nat.advance(now, 1_000) {}
    }
    now += 5 * SECOND;
    let mut calls = 0;
    while nat.advance(now, 100) {
        calls += 1;
        assert!(
            nat.session_count() >= 1_000_usize.saturating_sub(calls * 114),
            "{} left after {calls}",
            nat.session_count()
        );
    }
    assert_eq!(nat.session_count(), 0);
}

/// Who is gone leaves no session behind, and the others keep theirs.
#[test]
fn the_sessions_of_those_who_are_gone_end() {
    let config = Config { sessions: 10_000, sessions_per_subscriber: 100, ..config() };
    let mut nat = Nat::new(config).unwrap();
    for subscriber in 0..4u32 {
        let inside = 0x0a00_0002 + subscriber;
        nat.set_hops(inside.into(), 0, 1, 10 + subscriber as u16, SECOND).unwrap();
        for port in 0..50 {
            let frame = &mut udp(Endpoint::new(inside, 4_000 + port), Endpoint::new(REMOTE, 53), 0);
            assert!(matches!(send(&mut nat, Side::Inside, frame, SECOND), Verdict::Forward(_)));
        }
    }
    nat.end_hop(11);
    nat.end_hop(13);
    assert!(nat.advance(SECOND, 1), "a few lines at a time");
    assert_eq!(nat.pop_ended_hop(), None);
    while nat.advance(SECOND, 1) {}
    let mut done: Vec<u16> = std::iter::from_fn(|| nat.pop_ended_hop()).collect();
    done.sort_unstable();
    assert_eq!((done, nat.session_count()), (vec![11, 13], 100));
    let left = |nat: &Nat, of: u32| nat.sessions().filter(|(_, one)| one.inside().address == of).count();
    assert_eq!([0, 1, 2, 3].map(|i| left(&nat, 0x0a00_0002 + i)), [50, 0, 50, 0]);
    // what began while it was looked for lies behind, or before
    assert!(!nat.advance(SECOND, 1));
}
