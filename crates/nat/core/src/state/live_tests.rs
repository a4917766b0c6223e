use super::super::tests::{HOPS, HOST, MAC, config, forward, map, up};
use super::*;
use crate::config::{Config, SECOND};
use crate::key::Endpoint;
use proptest::prelude::*;
use std::collections::BTreeSet;

const NOW: u64 = 1_000 * SECOND;

fn nat(changes: usize) -> Nat {
    // Two NATs draw their ports from different secrets.
    let seed = [if changes > 0 { 3 } else { 4 }; 32];
    let mut nat = Nat::new(Config { seed, ..config() }).unwrap();
    nat.reserve_changes(changes);
    nat.note_changes(changes > 0);
    nat
}

/// Through bytes, as a standby hears of it.
fn told(standby: &mut Nat, updates: &[Update], now: u64) -> usize {
    let mut bytes = Vec::new();
    updates.iter().for_each(|update| update.encode(&mut bytes));
    let (mut rest, mut refused) = (&bytes[..], 0);
    while !rest.is_empty() {
        let (update, len) = Update::decode(rest).unwrap();
        rest = &rest[len..];
        refused += usize::from(standby.apply(&update, now, HOPS).is_err());
    }
    refused
}

fn changes(active: &mut Nat, now: u64) -> Vec<Update> {
    let mut found = Vec::new();
    while active.next_change(now, |_| Some(MAC), |update| found.push(*update)) {}
    found
}

fn sweep(active: &Nat, now: u64) -> Vec<Update> {
    let (mut found, mut at) = (Vec::new(), Some(Sweep::START));
    while let Some(from) = at {
        at = active.sweep(from, (3, true), now, |_| Some(MAC), |update| found.push(*update));
    }
    found
}

fn age(standby: &mut Nat, now: u64) {
    let mut at = Some(AgingCursor::START);
    while let Some(from) = at {
        at = standby.age(from, 5, now);
    }
}

/// Who has what.
fn view(nat: &Nat) -> BTreeSet<String> {
    let sessions = nat.sessions().map(|(_, one)| format!("{:?} {:?}", one.record(), one.state()));
    let blocks = |line: &Subscriber| nat.blocks_of(line).collect::<BTreeSet<_>>();
    let subscribers = nat
        .subscribers()
        .map(|(_, line)| format!("{} {:?} {}", line.inside(), blocks(line), line.sessions()));
    sessions.chain(subscribers).collect()
}

#[test]
fn a_standby_is_told_of_what_begins_and_ends() {
    let (mut active, mut standby) = (nat(1_000), nat(0));
    let outside = up(&mut active, 0, 5000, NOW).unwrap();
    up(&mut active, 1, 5000, NOW).unwrap();
    map(&mut active, Endpoint::new(HOST + 1, 80), Some(1100), NOW).unwrap();
    let updates = changes(&mut active, NOW);
    assert_eq!(told(&mut standby, &updates, NOW), 0);
    assert_eq!(view(&standby), view(&active));
    standby.audit().unwrap();
    // Told again, nothing is new; and it goes on as the other would.
    assert_eq!(told(&mut standby, &updates, NOW), 0);
    assert_eq!(up(&mut standby, 0, 5000, NOW + SECOND), Some(outside));
    assert_eq!(view(&standby), view(&active));
    let later = NOW + 301 * SECOND;
    while active.advance(later, 64) {}
    assert_eq!(told(&mut standby, &changes(&mut active, later), later), 0);
    assert_eq!((active.sessions().count(), view(&standby)), (1, view(&active)));
    assert!(standby.pool().usage_from(0, (8, 1 << 20), later).0.iter().any(|one| one.resting[1] > 0));
    standby.audit().unwrap();
}

#[test]
fn an_idle_time_goes_on_where_it_was() {
    let (mut active, mut standby) = (nat(1_000), nat(0));
    up(&mut active, 0, 5000, NOW).unwrap();
    told(&mut standby, &changes(&mut active, NOW), NOW);
    // It is used, of which no change tells; the sweep does.
    let used = NOW + 200 * SECOND;
    up(&mut active, 0, 5000, used).unwrap();
    assert!(changes(&mut active, used).is_empty());
    told(&mut standby, &sweep(&active, used + SECOND), used + SECOND);
    while standby.advance(NOW + 400 * SECOND, 64) {}
    assert_eq!(standby.sessions().count(), 1);
    // The other says when it is over; who takes over says so itself.
    standby.set_standby(true);
    while standby.advance(used + 302 * SECOND, 64) {}
    while standby.advance(used + 1_000 * SECOND, 64) {}
    assert_eq!((standby.sessions().count(), standby.subscriber_count()), (1, 1));
    standby.set_standby(false);
    while standby.advance(used + 1_003 * SECOND, 64) {}
    assert_eq!(standby.sessions().count(), 0);
}

#[test]
fn a_line_waits_once_however_often_its_subscriber_goes() {
    let (mut active, mut standby) = (nat(1_000), nat(0));
    standby.set_standby(true);
    for round in 0..20 {
        let now = NOW + round * 1_000 * SECOND;
        up(&mut active, 0, 5000, now).unwrap();
        told(&mut standby, &changes(&mut active, now), now);
        for later in [400, 800] {
            while active.advance(now + later * SECOND, 64) {}
        }
        told(&mut standby, &changes(&mut active, now), now + 900 * SECOND);
        assert_eq!((active.subscriber_count(), standby.subscriber_count()), (0, 0));
    }
    assert!(standby.idle_subscribers.len() <= 1, "{:?}", standby.idle_subscribers);
    // It is dismissed like any other when its time has come.
    let now = NOW + 30_000 * SECOND;
    up(&mut standby, 1, 5000, now).unwrap();
    standby.set_standby(false);
    for later in [1, 400, 800, 1_200] {
        while standby.advance(now + later * SECOND, 64) {}
    }
    assert_eq!((standby.subscriber_count(), standby.idle_subscribers.len()), (0, 0));
    standby.audit().unwrap();
}

#[test]
fn an_idle_time_told_by_changes_goes_on_too() {
    let (mut active, mut standby) = (nat(1_000), nat(0));
    up(&mut active, 0, 5000, NOW).unwrap();
    let used = NOW + 200 * SECOND;
    up(&mut active, 0, 5000, used).unwrap();
    told(&mut standby, &changes(&mut active, used), used);
    while standby.advance(used + 302 * SECOND, 64) {}
    assert_eq!(standby.sessions().count(), 0);
}

#[test]
fn what_found_no_room_is_counted_and_told_by_the_next_sweep() {
    let (mut active, mut standby) = (nat(2), nat(0));
    for port in 0..20 {
        up(&mut active, 0, 5000 + port, NOW).unwrap();
    }
    let (waiting, lost) = active.changes();
    assert!(waiting == 2 && lost > 0, "{waiting} {lost}");
    told(&mut standby, &changes(&mut active, NOW), NOW);
    assert_ne!(view(&standby), view(&active));
    assert_eq!(told(&mut standby, &sweep(&active, NOW), NOW), 0);
    assert_eq!(view(&standby), view(&active));
    standby.audit().unwrap();
}

#[test]
fn what_three_sweeps_did_not_tell_of_is_no_more() {
    let (mut active, mut standby) = (nat(1_000), nat(0));
    up(&mut standby, 3, 7000, NOW).unwrap();
    up(&mut active, 0, 5000, NOW).unwrap();
    for round in 0..3 {
        assert_eq!(standby.sessions().count(), if round == 0 { 1 } else { 2 });
        told(&mut standby, &sweep(&active, NOW), NOW);
        age(&mut standby, NOW);
    }
    assert_eq!(standby.sessions().count(), 1);
    standby.audit().unwrap();
    // Told of again, it is young again.
    for _ in 0..10 {
        told(&mut standby, &sweep(&active, NOW), NOW);
        age(&mut standby, NOW);
    }
    assert_eq!(standby.sessions().count(), 1);
}

#[test]
fn a_later_packet_that_it_saw_itself_counts() {
    let (mut first, mut second) = (nat(0), nat(0));
    up(&mut first, 0, 5000, NOW).unwrap();
    told(&mut second, &sweep(&first, NOW), NOW);
    // Of this packet the other is not told before it takes over.
    let later = NOW + 160 * SECOND;
    up(&mut first, 0, 5000, later).unwrap();
    told(&mut first, &sweep(&second, later + SECOND), later + SECOND);
    assert_eq!(first.sessions().count(), 1);
    assert!(first.sessions().all(|(_, session)| session.idle(later + SECOND) < 2 * SECOND));
}

#[test]
fn forwards_that_only_the_active_has_are_left_out() {
    let mut with = config();
    with.static_forwards = vec![forward(1030, 2)];
    let (mut active, mut standby) = (Nat::new(with).unwrap(), nat(0));
    assert_eq!(up(&mut active, 1, 53, NOW), Some(Endpoint::new(0xcb00_7101, 1030)));
    assert_eq!(told(&mut standby, &sweep(&active, NOW), NOW), 1);
    assert_eq!(standby.sessions().count(), 0);
    standby.audit().unwrap();
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Open(u32, u16),
    Map(u32, u16),
    Pass(u64),
    /// The standby hears of what changed, of some of it, or of everything.
    Tell,
    Lose,
    Sweep,
    /// Each is what the other was.
    Change,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0..10u32, 0..12u16).prop_map(|(host, port)| Act::Open(host, 5000 + port)),
        2 => (0..10u32, 0..4u16).prop_map(|(host, port)| Act::Map(host, 80 + port)),
        2 => (1..200u64).prop_map(Act::Pass),
        3 => Just(Act::Tell),
        1 => Just(Act::Lose),
        1 => Just(Act::Sweep),
        1 => Just(Act::Change),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_was_missed_three_sweeps_mend(acts in prop::collection::vec(act(), 1..120)) {
        let (mut active, mut standby, mut now) = (nat(64), nat(64), NOW);
        standby.note_changes(false);
        standby.set_standby(true);
        for act in acts {
            match act {
                Act::Open(host, port) => drop(up(&mut active, host, port, now)),
                Act::Map(host, port) => drop(map(&mut active, Endpoint::new(HOST + host, port), None, now)),
                Act::Pass(seconds) => {
                    now += seconds * SECOND;
                    while active.advance(now, 64) {}
                    while standby.advance(now, 64) {}
                }
                Act::Tell => drop(told(&mut standby, &changes(&mut active, now), now)),
                Act::Lose => drop(changes(&mut active, now)),
                Act::Sweep => {
                    told(&mut standby, &sweep(&active, now), now);
                    age(&mut standby, now);
                }
                Act::Change => {
                    std::mem::swap(&mut active, &mut standby);
                    active.note_changes(true);
                    standby.note_changes(false);
                    active.set_standby(false);
                    standby.set_standby(true);
                }
            }
            prop_assert_eq!(active.audit(), Ok(()));
            prop_assert_eq!(standby.audit(), Ok(()));
        }
        // Who took over ends what was over by then; between whole seconds nothing is about to be.
        now += 3 * SECOND + SECOND / 2;
        while active.advance(now, 64) {}
        for _ in 0..6 {
            told(&mut standby, &sweep(&active, now), now);
            age(&mut standby, now);
        }
        prop_assert_eq!(standby.audit(), Ok(()));
        prop_assert_eq!(view(&standby), view(&active));
    }

    #[test]
    fn no_bytes_break_a_standby(bytes in prop::collection::vec(any::<u8>(), 0..400), kind in 1..8u8) {
        let (mut standby, mut rest) = (nat(0), &bytes[..]);
        up(&mut standby, 0, 5000, NOW);
        let mut first = bytes.clone();
        if let Some(byte) = first.first_mut() {
            *byte = kind;
            rest = &first;
        }
        while let Ok((update, len)) = Update::decode(rest) {
            rest = &rest[len..];
            let mut again = Vec::new();
            update.encode(&mut again);
            prop_assert_eq!((Update::decode(&again), again.len()), (Ok((update, len)), len));
            let _left_out = standby.apply(&update, NOW, HOPS);
        }
        prop_assert_eq!(standby.audit(), Ok(()));
    }
}
