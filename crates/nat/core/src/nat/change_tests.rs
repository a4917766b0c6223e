use super::*;
use crate::config::{Filtering, PoolAddress, Prefix, SECOND, Timeouts};
use crate::nat::testing::send;
use crate::reason::Reason;
use crate::verdict::{Side, Verdict};
use std::net::Ipv4Addr;

const HOST: Endpoint = Endpoint::new(0x0a00_0007, 5_000);
const REMOTE: Endpoint = Endpoint::new(0xc633_6409, 53);

fn config() -> Config {
    let pool = vec![PoolAddress::all_ports(Ipv4Addr::new(203, 0, 113, 1))];
    Config { pool, sessions: 64, subscribers: 8, ..Config::default() }
}

fn forward(outside: u16, inside: u16) -> StaticForward {
    StaticForward {
        protocol: 17,
        outside: (Ipv4Addr::new(203, 0, 113, 1), outside),
        inside: (Ipv4Addr::new(10, 0, 0, 9), inside),
        realm: 0,
    }
}

fn with(forwards: &[StaticForward]) -> Config {
    Config { static_forwards: forwards.to_vec(), ..config() }
}

fn reaches(nat: &mut Nat, port: u16, now: u64) -> bool {
    let to = forward(port, 0).outside_endpoint();
    matches!(send(nat, Side::Outside, REMOTE, to, now), Verdict::Forward(_))
}

#[test]
fn forwards_come_and_go_and_their_sessions_with_them() {
    let mut nat = Nat::new(with(&[forward(2000, 80), forward(2001, 81)])).unwrap();
    assert!(matches!(send(&mut nat, Side::Inside, HOST, REMOTE, SECOND), Verdict::Forward(_)));
    assert!(reaches(&mut nat, 2000, SECOND) && reaches(&mut nat, 2001, SECOND));
    assert!(!reaches(&mut nat, 2002, SECOND));
    // One goes, one stays, one leads elsewhere from now on, and one is new.
    let next = with(&[forward(2001, 81), forward(2002, 82)]);
    assert_eq!(nat.in_use(&next), []);
    nat.change(&next);
    while nat.advance(SECOND, 1) {}
    nat.audit().unwrap();
    assert_eq!(nat.session_count(), 2, "the subscriber's and that of the forward that stays");
    assert!(
        !reaches(&mut nat, 2000, SECOND)
            && reaches(&mut nat, 2001, SECOND)
            && reaches(&mut nat, 2002, SECOND)
    );
    // Its port rests, and is a port as any other then.
    let outside = forward(2000, 0).outside_endpoint();
    assert!(!nat.pool.is_used(outside, 1));
    // What had led to one place leads to another, and the old sessions are over.
    nat.change(&with(&[forward(2001, 99), forward(2002, 82)]));
    while nat.advance(SECOND, 1) {}
    assert!(reaches(&mut nat, 2001, SECOND));
    let inside: Vec<u16> = nat.sessions().map(|(_, one)| one.inside().port).collect();
    assert!(inside.contains(&99) && !inside.contains(&81), "{inside:?}");
    nat.change(&config());
    while nat.advance(SECOND, 1) {}
    nat.audit().unwrap();
    assert_eq!((nat.session_count(), nat.live_forwards().count()), (1, 0));
    // Places are used again.
    for round in 0..2_000u16 {
        nat.change(&with(&[forward(3000 + round, 80)]));
        while nat.advance(SECOND, 100) {}
    }
    assert!(nat.forwards.len() <= 4 && reaches(&mut nat, 4999, SECOND));
    nat.audit().unwrap();
}

/// What the log has of forwards: `+` or `-`, and the outside and inside port.
fn logged(nat: &mut Nat, now: u64) -> Vec<(char, u16, u16, u64)> {
    nat.log_forwards(now, usize::MAX);
    let mut told: Vec<_> = std::iter::from_fn(|| nat.pop_event())
        .filter_map(|event| match event.what {
            EventKind::MappingCreated(it) => Some(('+', it.outside.port, it.inside.port, event.at / SECOND)),
            EventKind::MappingDeleted(it) => Some(('-', it.outside.port, it.inside.port, event.at / SECOND)),
            _ => None,
        })
        .collect();
    told.sort_unstable();
    told
}

#[test]
fn forwards_begin_and_end_in_the_log() {
    let mut nat = Nat::new(with(&[forward(2000, 80), forward(2001, 81)])).unwrap();
    assert_eq!(logged(&mut nat, SECOND), [('+', 2000, 80, 1), ('+', 2001, 81, 1)]);
    assert_eq!(logged(&mut nat, 2 * SECOND), []);
    assert!(reaches(&mut nat, 2000, SECOND));
    // One goes with its sessions, one leads elsewhere, one is new.
    nat.change(&with(&[forward(2001, 99), forward(2002, 82)]));
    while nat.advance(3 * SECOND, 1) {}
    let moved = [('+', 2001, 99, 3), ('+', 2002, 82, 3), ('-', 2000, 80, 3), ('-', 2001, 81, 3)];
    assert_eq!(logged(&mut nat, 3 * SECOND), moved);
    // One that goes and comes back before its sessions were looked for was there all the time; one that was never logged has no end.
    nat.change(&with(&[forward(2001, 99), forward(2003, 83)]));
    nat.change(&with(&[forward(2001, 99), forward(2002, 82)]));
    while nat.advance(4 * SECOND, 1) {}
    assert_eq!(logged(&mut nat, 4 * SECOND), []);
    // A standby logs nothing; who takes over says all anew.
    nat.set_standby(true);
    assert_eq!(logged(&mut nat, 5 * SECOND), []);
    nat.set_standby(false);
    let all = [('+', 2001, 99, 6), ('+', 2002, 82, 6)];
    assert_eq!(logged(&mut nat, 6 * SECOND), all);
    // When the NAT stops they end, once.
    assert!(nat.end_forwards(7 * SECOND, 1));
    assert!(!nat.end_forwards(7 * SECOND, 1));
    assert!(!nat.end_forwards(8 * SECOND, 1));
    assert_eq!(logged(&mut nat, 8 * SECOND), [('-', 2001, 99, 7), ('-', 2002, 82, 7)]);
}

#[test]
fn a_forward_takes_nobody_its_port() {
    let mut nat = Nat::new(config()).unwrap();
    send(&mut nat, Side::Inside, HOST, REMOTE, SECOND);
    let outside = nat.sessions().next().unwrap().1.outside();
    let (taken, own) = (
        forward(outside.port, 80),
        StaticForward { inside: (Ipv4Addr::from_bits(HOST.address), HOST.port), ..forward(2000, 0) },
    );
    let wanted = with(&[taken, own, forward(2001, 81)]);
    let found = nat.in_use(&wanted);
    assert_eq!(found, [(0, ForwardConflict::Outside), (1, ForwardConflict::Inside(outside))]);
    nat.change(&wanted);
    assert_eq!(nat.live_forwards().copied().collect::<Vec<_>>(), [forward(2001, 81)]);
    nat.audit().unwrap();
    // When the session is over, and the port has rested, both can be.
    for second in 1..700 {
        while nat.advance(second * SECOND, 100) {}
    }
    assert_eq!(nat.in_use(&wanted), []);
    nat.change(&wanted);
    assert_eq!(nat.live_forwards().count(), 3);
    nat.audit().unwrap();
    // No more than there is room for.
    let many: Vec<_> = (0..2_000).map(|i| forward(10_000 + i, 1 + i)).collect();
    let refused = nat.in_use(&with(&many));
    assert!(refused.len() >= 2_000 - MORE && refused.iter().all(|(_, why)| *why == ForwardConflict::Full));
}

#[test]
fn limits_times_filters_and_exemptions_are_those_that_are_said() {
    let mut nat = Nat::new(config()).unwrap();
    let to = |port| Endpoint::new(REMOTE.address, port);
    for port in 1..=3 {
        assert!(matches!(send(&mut nat, Side::Inside, HOST, to(port), SECOND), Verdict::Forward(_)));
    }
    let outside = nat.sessions().next().unwrap().1.outside();
    let stranger = Endpoint::new(REMOTE.address, 999);
    assert!(matches!(send(&mut nat, Side::Outside, stranger, outside, SECOND), Verdict::Forward(_)));
    let mut next = Config { sessions_per_subscriber: 4, ..config() };
    next.filtering.udp = Filtering::AddressAndPortDependent;
    next.timeouts = Timeouts { udp: 120 * SECOND, ..next.timeouts };
    next.exempt = vec![crate::config::Exemption {
        destination: Prefix::new(Ipv4Addr::new(192, 0, 2, 0), 24),
        ports: None,
    }];
    nat.change(&next);
    // What is there goes on; what is new goes by the new limits.
    assert!(matches!(send(&mut nat, Side::Inside, HOST, to(1), SECOND), Verdict::Forward(_)));
    assert_eq!(send(&mut nat, Side::Inside, HOST, to(4), SECOND), Verdict::Drop(Reason::SubscriberSessions));
    let another = Endpoint::new(REMOTE.address, 998);
    assert_eq!(send(&mut nat, Side::Outside, another, outside, SECOND), Verdict::Drop(Reason::Filtered));
    let untranslated = Endpoint::new(0xc000_0207, 53);
    assert!(matches!(send(&mut nat, Side::Inside, HOST, untranslated, SECOND), Verdict::Forward(_)));
    assert_eq!(nat.session_count(), 4);
    for second in 1..122 {
        while nat.advance(second * SECOND, 100) {}
        assert!(second > 120 || nat.session_count() == 4, "{second}");
    }
    assert!(nat.advance(200 * SECOND, 100) || nat.session_count() == 0);
}
