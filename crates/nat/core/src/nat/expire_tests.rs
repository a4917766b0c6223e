use super::*;
use crate::config::{Config, PoolAddress, SECOND};
use crate::key::Endpoint;
use crate::verdict::{Frame, Side, Verdict};
use packet::frame::{Flow, Program};
use packet::signature::Signature;
use std::net::Ipv4Addr;

const TURN: u64 = 500_000;
const BUDGET: usize = 2048;
const SESSIONS: u32 = 20_000;

/// A NAT with so many lines, [`SESSIONS`] of which are sessions that are over at the same moment; and that moment.
fn all_due(lines: usize) -> (Nat, u64) {
    let pool = (1..=4).map(|last| PoolAddress::all_ports(Ipv4Addr::new(203, 0, 113, last))).collect();
    let mut config = Config { pool, sessions: lines, subscribers: 64, ..Config::default() };
    config.ports_per_block = 512;
    let mut nat = Nat::new(config).unwrap();
    for number in 0..SESSIONS {
        let flow = Flow {
            source_mac: [2; 6],
            destination_mac: [4; 6],
            source: (Ipv4Addr::from_bits(0x0a00_0001 + number % 40), 10_000 + (number / 40) as u16).into(),
            destination: (Ipv4Addr::new(198, 51, 100, 9), 53).into(),
        };
        let (mut bytes, mark) = (vec![0; 80], Signature { stream: 1, sequence: 2, sent_ns: 3 });
        let _written = Program::udp(&flow, 80).unwrap().write(&mut bytes, 0, &mark);
        let mut frames = [Frame::new(&mut bytes)];
        nat.process(Side::Inside, &mut frames, SECOND);
        assert!(matches!(frames[0].verdict, Verdict::Forward(_)), "{:?}", frames[0].verdict);
    }
    for minute in 1..=5 {
        while nat.advance(minute * 60 * SECOND, BUDGET) {}
    }
    let now = 302 * SECOND;
    assert_eq!((nat.session_count(), nat.wheel.due_count(tick(now))), (SESSIONS as usize, SESSIONS as usize));
    (nat, now)
}

#[test]
fn sessions_that_end_together_end_little_by_little() {
    let (mut nat, began) = all_due(2 * SESSIONS as usize);
    let (mut now, mut most) = (began, 0);
    while nat.session_count() > 0 {
        let before = nat.session_count();
        now += TURN;
        nat.advance_turn(now, TURN, BUDGET, usize::MAX);
        most = most.max(before - nat.session_count());
        assert!(now - began < 2 * SECOND, "{} are left", nat.session_count());
    }
    assert!((32..48).contains(&most), "{most} in a turn");
    assert_eq!(nat.wheel.due_count(tick(now)), 0);
    nat.audit().unwrap();
}

#[test]
fn they_end_at_once_where_lines_are_short() {
    let (mut nat, now) = all_due(SESSIONS as usize + 100);
    nat.advance_turn(now, TURN, BUDGET, usize::MAX);
    let ended = SESSIONS as usize - nat.session_count();
    assert!((BUDGET / END..BUDGET / END + CHUNK).contains(&ended), "{ended}");
    // Less than a sixteenth is free until then.
    assert!((0..3).all(|_| nat.advance_turn(now, TURN, BUDGET, usize::MAX)));
    let before = nat.session_count();
    nat.advance_turn(now, TURN, BUDGET, usize::MAX);
    assert!((32..48).contains(&(before - nat.session_count())));
}

#[test]
fn after_a_long_time_without_a_turn_all_is_looked_at() {
    let (mut nat, now) = all_due(2 * SESSIONS as usize);
    nat.advance_turn(now, 100 * SECOND, 1_000_000, usize::MAX);
    assert_eq!(nat.session_count(), 0);
    let mapped = nat.mapped_inside(Endpoint::new(0x0a00_0001, 10_000), 17, 0);
    assert!(mapped.is_none());
}
