use super::*;
use crate::config::{Config, Filtering, PoolAddress, Prefix, SECOND};
use crate::explicit::{FILTERS, RemoteFilter};
use crate::verdict::{Frame, Side, Verdict};
use packet::frame::{Flow, Program};
use packet::signature::Signature;
use proptest::prelude::*;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

const INSIDE: Endpoint = Endpoint::new(0x0a00_0002, 5060);
const REMOTE: Endpoint = Endpoint::new(0xc633_6409, 7000);

fn send(nat: &mut Nat, side: Side, from: Endpoint, to: Endpoint, now: u64) -> Verdict {
    let address = |end: Endpoint| SocketAddr::from((Ipv4Addr::from_bits(end.address), end.port));
    let flow =
        Flow { source_mac: [2; 6], destination_mac: [4; 6], source: address(from), destination: address(to) };
    let mut bytes = vec![0; 80];
    let _written = Program::udp(&flow, 80).unwrap().write(
        &mut bytes,
        0,
        &Signature { stream: 1, sequence: 2, sent_ns: 3 },
    );
    let mut frames = [Frame::new(&mut bytes)];
    nat.process(side, &mut frames, now);
    frames[0].verdict
}

fn nat() -> Nat {
    let mut config = Config {
        pool: vec![PoolAddress::all_ports(Ipv4Addr::new(203, 0, 113, 1))],
        sessions: 64,
        ..Config::default()
    };
    config.filtering.udp = Filtering::AddressAndPortDependent;
    Nat::new(config).unwrap()
}

fn pass(nat: &mut Nat, from: u64, to: u64) {
    for second in from..to {
        nat.advance(second * SECOND, 1_000);
    }
}

const LONG: u64 = 1_000_000 * SECOND;

fn wanted(inside: Endpoint, until: u64) -> MappingRequest<'static> {
    MappingRequest { nonce: [7; 12], ..MappingRequest::new(inside, 17, 0, until) }
}

fn is_let_in(nat: &mut Nat, from: Endpoint, to: Endpoint, now: u64) -> bool {
    matches!(send(nat, Side::Outside, from, to, now), Verdict::Forward(_))
}

#[test]
fn a_mapping_stays_until_it_is_given_up_and_lets_everybody_in() {
    let mut nat = nat();
    let outside = nat.map(&wanted(INSIDE, LONG), SECOND).unwrap();
    assert_eq!(nat.map(&wanted(INSIDE, LONG), SECOND), Ok(outside));
    pass(&mut nat, 1, 2_000);
    let now = 2_000 * SECOND;
    assert!(is_let_in(&mut nat, REMOTE, outside, now));
    assert_eq!(nat.session_count(), 1);
    assert!(nat.unmap(INSIDE, 17, 0, now) && !nat.unmap(INSIDE, 17, 0, now));
    // What is there goes on, what is new does not come in.
    assert!(is_let_in(&mut nat, REMOTE, outside, now));
    let other = Endpoint::new(REMOTE.address, 7001);
    assert_eq!(send(&mut nat, Side::Outside, other, outside, now), Verdict::Drop(Reason::Filtered));
    pass(&mut nat, 2_000, 3_000);
    assert_eq!((nat.session_count(), nat.subscribers().count(), nat.sessions().count()), (0, 0, 0));
    assert_eq!(nat.pool().blocks(), (126, 126));
}

#[test]
fn mappings_that_are_given_up_leave_their_room() {
    let mut nat = nat();
    let inside = |port| Endpoint::new(INSIDE.address, port);
    let mut now = 1;
    for round in 0..3 {
        for port in 0..64 {
            assert!(nat.map(&wanted(inside(port), LONG), now * SECOND).is_ok(), "{round} {port}");
        }
        let more = nat.map(&wanted(inside(64), LONG), now * SECOND);
        assert_eq!(more, Err(MappingError::Refused(Reason::SessionsFull)));
        pass(&mut nat, now, now + 5);
        now += 5;
        assert!((0..64).all(|port| nat.unmap(inside(port), 17, 0, now * SECOND)));
        pass(&mut nat, now, now + 62);
        now += 62;
    }
}

#[test]
fn a_mapping_that_is_there_is_taken_over() {
    let mut nat = nat();
    assert!(matches!(send(&mut nat, Side::Inside, INSIDE, REMOTE, SECOND), Verdict::Forward(_)));
    let outside = nat.sessions().next().unwrap().1.outside();
    let elsewhere = MappingRequest { port: Some(outside.port ^ 1), exact: true, ..wanted(INSIDE, LONG) };
    assert_eq!(nat.map(&elsewhere, SECOND), Err(MappingError::Taken));
    assert_eq!(nat.map(&wanted(INSIDE, LONG), SECOND), Ok(outside));
    pass(&mut nat, 1, 1_000);
    assert_eq!(nat.session_count(), 0);
    let now = 1_000 * SECOND;
    assert!(is_let_in(&mut nat, REMOTE, outside, now));
    assert_eq!(
        nat.map(&MappingRequest { protocol: 1, ..wanted(INSIDE, LONG) }, now),
        Err(MappingError::Refused(Reason::Protocol))
    );
}

#[test]
fn it_ends_in_time_and_lives_on_when_asked_again() {
    for (lifetime, renewed) in [(120, None), (7_200, None), (120, Some(3_000)), (7_200, Some(200))] {
        let mut nat = nat();
        let outside = nat.map(&wanted(INSIDE, (1 + lifetime) * SECOND), SECOND).unwrap();
        let mut end = 1 + lifetime;
        if let Some(more) = renewed {
            pass(&mut nat, 1, 100);
            end = 100 + more;
            assert_eq!(nat.map(&wanted(INSIDE, end * SECOND), 100 * SECOND), Ok(outside));
        }
        pass(&mut nat, renewed.map_or(1, |_| 100), end);
        assert_eq!(nat.explicit_count(INSIDE.address, 0), 1, "{lifetime} {renewed:?}");
        // A look at it may have been set for a round later, if it was to live longer before.
        let end = if renewed.is_none() { end - 68 } else { end };
        pass(&mut nat, end + 68, end + 70);
        assert_eq!((nat.explicit_count(INSIDE.address, 0), nat.sessions().count()), (0, 0));
        assert!(!is_let_in(&mut nat, REMOTE, outside, (end + 70) * SECOND));
        pass(&mut nat, end + 70, end + 1_000);
        assert_eq!((nat.subscribers().count(), nat.pool().blocks()), (0, (126, 126)));
    }
}

#[test]
fn wishes_are_granted_where_they_can_be() {
    let mut nat = nat();
    let address = 0xcb00_7101;
    let wish = |inside: u16, port, exact| MappingRequest {
        port: Some(port),
        exact,
        ..wanted(Endpoint::new(INSIDE.address, inside), LONG)
    };
    // Without a block yet, one is had that the port is in: at an address that is wished for, or at any.
    let there = wish(80, 6881, true);
    assert_eq!(nat.map(&there, SECOND), Ok(Endpoint::new(address, 6881)));
    let elsewhere = MappingRequest { address: Some(address + 1), ..there };
    assert_eq!(nat.map(&elsewhere, SECOND), Err(MappingError::Taken));
    let new = MappingRequest { inside: Endpoint::new(INSIDE.address + 2, 80), ..there };
    assert_eq!(nat.map(&new, SECOND), Err(MappingError::Taken), "the block has somebody");
    // In its block, and in others as long as it may have more.
    for (inside, port) in [(81, 6882), (82, 20_000), (83, 30_000), (84, 40_000)] {
        assert_eq!(nat.map(&wish(inside, port, true), SECOND), Ok(Endpoint::new(address, port)));
    }
    assert_eq!(nat.map(&wish(85, 50_000, true), SECOND), Err(MappingError::Taken));
    let other = nat.map(&wish(85, 50_000, false), SECOND).unwrap();
    assert!(other.port != 50_000 && other.address == address);
    // Not what is taken, nor what somebody else's block has, nor what is no port of clients.
    for port in [6881, 80] {
        assert_eq!(nat.map(&wish(86, port, true), SECOND), Err(MappingError::Taken), "{port}");
    }
    let neighbour = MappingRequest { inside: Endpoint::new(INSIDE.address + 1, 80), ..there };
    assert_eq!(nat.map(&neighbour, SECOND), Err(MappingError::Taken));
    let elsewhere = MappingRequest { address: Some(address + 1), port: None, ..wish(87, 1, true) };
    assert_eq!(nat.map(&elsewhere, SECOND), Err(MappingError::Taken));
    // All that is logged is what was given.
    let blocks = std::iter::from_fn(|| nat.pop_event())
        .filter(|event| matches!(event.what, crate::EventKind::BlockAllocated(_)))
        .count();
    assert_eq!(blocks, 4);
}

#[test]
fn a_peer_is_had_at_the_endpoint_that_is_wished_for_or_not_at_all() {
    let mut nat = nat();
    let taken = nat.map(&wanted(INSIDE, LONG), SECOND).unwrap();
    let wish = |host, outside: Endpoint| MappingRequest {
        address: Some(outside.address),
        port: Some(outside.port),
        exact: true,
        ..wanted(Endpoint::new(INSIDE.address + host, INSIDE.port), LONG)
    };
    assert_eq!(nat.peer(&wish(1, taken), REMOTE, SECOND), Err(MappingError::Taken));
    let other = Endpoint::new(taken.address, taken.port ^ 1);
    assert_eq!(
        nat.peer(&wish(0, other), REMOTE, SECOND),
        Err(MappingError::Taken),
        "its mapping is elsewhere"
    );
    assert_eq!((nat.session_count(), nat.pool().blocks().1), (0, 125));
    assert_eq!(nat.peer(&wish(0, taken), REMOTE, SECOND), Ok((taken, LONG)));
    assert_eq!(
        nat.peer(&wish(0, other), REMOTE, SECOND),
        Err(MappingError::Taken),
        "its session is elsewhere"
    );
    assert!(nat.peer(&MappingRequest { exact: false, ..wish(1, taken) }, REMOTE, SECOND).is_ok());
}

#[test]
fn filters_let_in_whom_they_name() {
    let mut nat = nat();
    let network = |bits| Prefix::new(std::net::Ipv4Addr::from_bits(REMOTE.address), bits);
    let only = |bits, port| RemoteFilter { network: network(bits), port };
    let filters = [only(32, 7000), only(31, 8000)];
    let asked = MappingRequest { filters: &filters, ..wanted(INSIDE, LONG) };
    let outside = nat.map(&asked, SECOND).unwrap();
    // Who asks again asks for the same.
    for _ in 0..FILTERS {
        assert_eq!(nat.map(&asked, SECOND), Ok(outside));
    }
    let from = |last: u32, port| Endpoint::new(REMOTE.address - 9 + last, port);
    for (end, passes) in
        [(from(9, 7000), true), (from(9, 7001), false), (from(8, 8000), true), (from(7, 8000), false)]
    {
        assert_eq!(is_let_in(&mut nat, end, outside, SECOND), passes, "{end}");
    }
    // Whom the subscriber speaks to may answer all the same.
    assert!(matches!(send(&mut nat, Side::Inside, INSIDE, from(7, 9), SECOND), Verdict::Forward(_)));
    assert!(is_let_in(&mut nat, from(7, 9), outside, SECOND));
    let many: Vec<RemoteFilter> = (1..=FILTERS as u16 - 1).map(|port| only(32, port)).collect();
    assert_eq!(nat.map(&MappingRequest { filters: &many, ..asked }, SECOND), Err(MappingError::Filters));
    assert_eq!(nat.map(&MappingRequest { filters: &many, clear: true, ..asked }, SECOND), Ok(outside));
    assert!(!is_let_in(&mut nat, from(8, 8001), outside, SECOND));
    assert_eq!(nat.map(&MappingRequest { clear: true, ..wanted(INSIDE, LONG) }, SECOND), Ok(outside));
    assert!(is_let_in(&mut nat, from(8, 8001), outside, SECOND));
}

#[test]
fn a_peer_is_spoken_to_for_as_long_as_was_asked() {
    let mut nat = nat();
    let ask = |until| wanted(INSIDE, until * SECOND);
    assert_eq!(nat.peer(&ask(1), REMOTE, SECOND), Err(MappingError::NotThere), "it would be over by now");
    assert_eq!((nat.session_count(), nat.pool().blocks().1), (0, 126));
    let (outside, until) = nat.peer(&ask(1_000), REMOTE, SECOND).unwrap();
    assert_eq!((until, nat.session_count()), (1_000 * SECOND, 1));
    assert!(is_let_in(&mut nat, REMOTE, outside, SECOND));
    assert!(!is_let_in(&mut nat, Endpoint::new(REMOTE.address, 1), outside, SECOND));
    pass(&mut nat, 1, 999);
    // Nothing makes it shorter.
    assert_eq!(nat.peer(&ask(0), REMOTE, 900 * SECOND), Ok((outside, 900 * SECOND)));
    assert_eq!(nat.session_count(), 1);
    pass(&mut nat, 999, 1_070);
    assert_eq!((nat.session_count(), nat.sessions().count()), (0, 0));
    // A session that is there is the one, and TCP that is closed is over.
    let tcp = MappingRequest { protocol: 6, ..ask(9_000) };
    let now = 1_100 * SECOND;
    let (outside, _) = nat.peer(&tcp, REMOTE, now).unwrap();
    assert_eq!(nat.peer(&tcp, REMOTE, now), Ok((outside, 9_000 * SECOND)));
    let index = nat.sessions().next().unwrap().0;
    nat.sessions.at_mut(index).unwrap().state = State::Reset as u8;
    // It cannot be had back by asking.
    assert!(nat.peer(&tcp, REMOTE, 1_100 * SECOND).unwrap().1 < 1_400 * SECOND);
    pass(&mut nat, 1_100, 1_500);
    assert_eq!(nat.sessions().count(), 0);
}

/// A segment with these flags and nothing else: whether it passes.
fn segment(nat: &mut Nat, side: Side, from: Endpoint, to: Endpoint, (flags, now): (u8, u64)) -> bool {
    let mut header = [0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[12..16].copy_from_slice(&from.address.to_be_bytes());
    header[16..].copy_from_slice(&to.address.to_be_bytes());
    let sum = ::packet::checksum::of(&header).to_be_bytes();
    header[10..12].copy_from_slice(&sum);
    let ports = [from.port.to_be_bytes(), to.port.to_be_bytes()].concat();
    let tcp = [&ports[..], &[0; 8], &[0x50, flags, 0, 0, 0, 0, 0, 0]].concat();
    let mut bytes = [&[4; 6][..], &[2; 6], &[8, 0], &header, &tcp].concat();
    let mut frames = [Frame::new(&mut bytes)];
    nat.process(side, &mut frames, now);
    matches!(frames[0].verdict, Verdict::Forward(_))
}

#[test]
fn a_connection_that_is_had_back_by_asking_lives_and_ends_as_any() {
    use crate::nat::tcp::{ACK, FIN};
    let state = |nat: &Nat| nat.sessions().next().unwrap().1.state();
    for closes in [false, true] {
        let mut nat = nat();
        let (outside, _) = nat
            .peer(&MappingRequest { protocol: 6, ..wanted(INSIDE, 600 * SECOND) }, REMOTE, SECOND)
            .unwrap();
        assert_eq!(state(&nat), State::SynUp);
        assert!(segment(&mut nat, Side::Inside, INSIDE, REMOTE, (ACK, 2 * SECOND)));
        assert_eq!(state(&nat), State::Established);
        if closes {
            assert!(segment(&mut nat, Side::Inside, INSIDE, REMOTE, (FIN | ACK, 2 * SECOND)));
            assert!(segment(&mut nat, Side::Outside, REMOTE, outside, (FIN | ACK, 2 * SECOND)));
        }
        pass(&mut nat, 2, 400);
        assert_eq!(nat.sessions().count(), usize::from(!closes));
        // Nobody asks again: it is an established connection, whose time is hours.
        pass(&mut nat, 400, 2_000);
        assert_eq!(nat.sessions().count(), usize::from(!closes));
    }
}

/// What a history of requests may do.
#[derive(Debug, Clone)]
enum Step {
    Map { subscriber: u32, port: u16, nonce: u8, lifetime: u64, wish: Option<u16> },
    Unmap { subscriber: u32, port: u16 },
    UnmapAll { subscriber: u32, nonce: u8 },
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (subscriber, port) = (0u32..3, 0u16..4);
    prop_oneof![
        4 => (subscriber.clone(), port.clone(), 0u8..2, 1u64..300, proptest::option::of(1024u16..1100))
            .prop_map(|(subscriber, port, nonce, lifetime, wish)| Step::Map { subscriber, port, nonce, lifetime, wish }),
        1 => (subscriber.clone(), port).prop_map(|(subscriber, port)| Step::Unmap { subscriber, port }),
        1 => (subscriber, 0u8..2).prop_map(|(subscriber, nonce)| Step::UnmapAll { subscriber, nonce }),
        2 => (1u64..200).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Each mapping is there from when it was asked for until its end, at an endpoint of its own; nothing is left of it then.
    #[test]
    fn mappings_are_there_for_as_long_as_they_should(steps in proptest::collection::vec(step(), 1..60)) {
        let mut nat = nat();
        let mut now = 1_000;
        // Whose, until when, and where.
        let mut model: HashMap<(u32, u16), (u8, u64, Endpoint)> = HashMap::new();
        for step in steps {
            match step {
                Step::Map { subscriber, port, nonce, lifetime, wish } => {
                    let inside = Endpoint::new(INSIDE.address + subscriber, port);
                    let until = now + lifetime;
                    let asked = MappingRequest { nonce: [nonce; 12], port: wish, ..MappingRequest::new(inside, 17, 0, until * SECOND) };
                    let outside = nat.map(&asked, now * SECOND).unwrap();
                    if let Some((_, _, was)) = model.insert((subscriber, port), (nonce, until, outside)) {
                        prop_assert_eq!(was, outside);
                    }
                }
                Step::Unmap { subscriber, port } => {
                    let inside = Endpoint::new(INSIDE.address + subscriber, port);
                    let was = model.remove(&(subscriber, port)).is_some();
                    prop_assert_eq!(nat.unmap(inside, 17, 0, now * SECOND), was);
                }
                Step::UnmapAll { subscriber, nonce } => {
                    nat.unmap_all(INSIDE.address + subscriber, 0, None, &[nonce; 12], now * SECOND);
                    model.retain(|(its, _), (owner, ..)| *its != subscriber || *owner != nonce);
                }
                Step::Wait(seconds) => {
                    pass(&mut nat, now, now + seconds);
                    now += seconds;
                }
            }
            // Where one may be over or not, time passes until it is.
            while model.values().any(|(_, until, _)| *until <= now && now <= *until + 70) {
                pass(&mut nat, now, now + 10);
                now += 10;
            }
            model.retain(|_, (_, until, _)| *until > now);
            let taken: std::collections::HashSet<_> = model.values().map(|(.., outside)| *outside).collect();
            prop_assert_eq!(taken.len(), model.len());
            prop_assert_eq!(nat.sessions().count(), model.len());
            for ((subscriber, port), (nonce, until, outside)) in &model {
                let stands = nat.explicit(Endpoint::new(INSIDE.address + subscriber, *port), 17, 0);
                let explicit = Explicit { until: until * SECOND, nonce: [*nonce; 12], filters: Vec::new() };
                prop_assert_eq!(stands, Some(ExplicitMapping::Requested(*outside, &explicit)));
            }
            for subscriber in 0..3 {
                let count = model.keys().filter(|(its, _)| *its == subscriber).count();
                prop_assert_eq!(nat.explicit_count(INSIDE.address + subscriber, 0), count);
            }
        }
        pass(&mut nat, now, now + 2_000);
        prop_assert_eq!((nat.sessions().count(), nat.pool().blocks()), (0, (126, 126)));
        prop_assert!(nat.asked.is_empty());
    }
}

/// What no packet would begin nobody has by asking.
#[test]
fn no_session_is_had_with_what_is_non_host_address() {
    let mut nat = nat();
    let own = nat.map(&wanted(INSIDE, LONG), SECOND).unwrap();
    for (remote, why) in [
        (Endpoint::new(0x7f00_0001, 53), Reason::MartianDestination),
        (Endpoint::new(0xa9fe_0001, 53), Reason::MartianDestination),
        (Endpoint::new(0x0a00_0009, 53), Reason::InsideDestination),
        (own, Reason::Land),
    ] {
        let refused = Err(MappingError::Refused(why));
        assert_eq!(nat.peer(&wanted(INSIDE, LONG), remote, SECOND), refused, "{remote}");
    }
    assert_eq!(nat.session_count(), 0);
    assert!(nat.peer(&wanted(INSIDE, LONG), REMOTE, SECOND).is_ok());
}
