use super::*;
use crate::config::{Config, Filtering, PoolAddress, Prefix, SECOND, StaticForward};
use crate::explicit::{ExplicitMapping, MappingRequest, RemoteFilter};
use crate::nat::Nat;
use crate::reason::Reason;
use crate::session::tick;
use crate::verdict::{Frame, Side, Verdict};
use packet::frame::{Flow, Program};
use packet::signature::Signature;
use proptest::prelude::*;
use std::net::{Ipv4Addr, SocketAddr};

pub(super) const HOST: u32 = 0x0a00_0001;
const SERVER: Endpoint = Endpoint::new(0xc633_6409, 53);
pub(super) const MAC: Mac = [2, 0, 0, 0, 0, 7];
pub(super) const HOPS: (u16, u16) = (1, 9);
const NONCE: [u8; 12] = *b"twelve bytes";

pub(super) fn config() -> Config {
    let pool = |last| PoolAddress { address: Ipv4Addr::new(203, 0, 113, last), ports: 1024..=1407 };
    Config {
        sessions: 64,
        subscribers: 8,
        pool: vec![pool(1), pool(2)],
        ports_per_block: 64,
        blocks_per_subscriber: 2,
        seed: [3; 32],
        ..Config::default()
    }
}

pub(super) fn forward(outside: u16, inside: u8) -> StaticForward {
    StaticForward {
        protocol: 17,
        outside: (Ipv4Addr::new(203, 0, 113, 1), outside),
        inside: (Ipv4Addr::new(10, 0, 0, inside), 53),
        realm: 0,
    }
}

/// What becomes of a datagram, and its endpoints then.
fn send(nat: &mut Nat, side: Side, from: Endpoint, to: Endpoint, now: u64) -> (Verdict, Endpoint, Endpoint) {
    let address = |end: Endpoint| SocketAddr::from((Ipv4Addr::from_bits(end.address), end.port));
    let flow =
        Flow { source_mac: [2; 6], destination_mac: [4; 6], source: address(from), destination: address(to) };
    let mut bytes = vec![0; 80];
    let mark = Signature { stream: 1, sequence: 2, sent_ns: 3 };
    let _written = Program::udp(&flow, 80).unwrap().write(&mut bytes, 0, &mark);
    let verdict = {
        let mut frames = [Frame::new(&mut bytes)];
        nat.process(side, &mut frames, now);
        frames[0].verdict
    };
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let half = |at: usize| u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap());
    (verdict, Endpoint::new(word(26), half(34)), Endpoint::new(word(30), half(36)))
}

pub(super) fn up(nat: &mut Nat, host: u32, port: u16, now: u64) -> Option<Endpoint> {
    let (verdict, from, _) = send(nat, Side::Inside, Endpoint::new(HOST + host, port), SERVER, now);
    matches!(verdict, Verdict::Forward(_)).then_some(from)
}

/// Ask for a mapping of a day, at this port if that can be had.
pub(super) fn map(nat: &mut Nat, inside: Endpoint, port: Option<u16>, now: u64) -> Option<Endpoint> {
    let wanted =
        MappingRequest { port, nonce: NONCE, ..MappingRequest::new(inside, 17, 0, now + 86_400 * SECOND) };
    nat.map(&wanted, now).ok()
}

/// Through bytes and back.
fn records(nat: &Nat, now: u64) -> Vec<Record> {
    let mut bytes = Vec::new();
    nat.export(now, |hop| (hop == HOPS.1).then_some(MAC)).for_each(|record| record.encode(&mut bytes));
    let (mut rest, mut found) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let (record, len) = Record::decode(rest).unwrap();
        found.push(record);
        rest = &rest[len..];
    }
    found
}

/// A NAT of these records, and what it left out.
fn restored(config: Config, records: &[Record], past: ImportClock) -> (Nat, Vec<SkipReason>) {
    let mut nat = Nat::new(config).unwrap();
    let mut lost = Vec::new();
    for record in records {
        lost.extend(nat.import(record, past, HOPS).err());
    }
    nat.audit().unwrap();
    lost.sort_unstable();
    (nat, lost)
}

fn pass(nat: &mut Nat, from: u64, to: u64) {
    for second in from..to {
        while nat.advance(second * SECOND, 1_000) {}
    }
}

#[test]
fn what_is_written_is_read_again() {
    let mut nat = Nat::new(config()).unwrap();
    nat.set_hops(Ipv4Addr::from_bits(HOST), 0, HOPS.0, HOPS.1, SECOND).unwrap();
    let outside = up(&mut nat, 0, 7, SECOND).unwrap();
    let records = records(&nat, 11 * SECOND);
    let [Record::Subscriber(subscriber), Record::Session(session)] = records[..] else {
        panic!("{records:?}")
    };
    assert_eq!((subscriber.inside, subscriber.mac, subscriber.outside), (HOST, MAC, outside.address));
    assert_eq!((subscriber.blocks, subscriber.size, subscriber.idle), (1, 64, 0));
    assert_eq!((session.outside, session.remote, session.state), (outside, SERVER, State::Open));
    assert!(session.idle.abs_diff(tick(10 * SECOND)) <= 1 && session.up >> 38 == 1);
    // Each record in its length, and none shorter.
    for record in records {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert_eq!(Record::decode(&bytes), Ok((record, bytes.len())));
        assert!(bytes.len() <= LONGEST && (0..bytes.len()).all(|len| Record::decode(&bytes[..len]).is_err()));
    }
}

#[test]
fn translations_next_hops_and_idle_times_go_on() {
    let mut nat = Nat::new(config()).unwrap();
    let before = [0, 1, 2].map(|host| up(&mut nat, host, 7, 100 * SECOND).unwrap());
    let kept = records(&nat, 200 * SECOND);
    // Another clock, which begins anew, and another secret.
    let past = ImportClock { passed: 50 * SECOND, now: SECOND };
    let (mut nat, lost) = restored(Config { seed: [9; 32], ..config() }, &kept, past);
    assert_eq!((lost, nat.session_count(), nat.subscriber_count()), (vec![], 3, 3));
    let (verdict, _, to) = send(&mut nat, Side::Outside, SERVER, before[1], 2 * SECOND);
    assert!(matches!(verdict, Verdict::Forward(forward) if forward.hop == HOPS.1), "{verdict:?}");
    assert_eq!(to, Endpoint::new(HOST + 1, 7));
    assert_eq!(up(&mut nat, 0, 7, 2 * SECOND), Some(before[0]));
    assert_eq!(nat.session_count(), 3);
    // 150 s of 300 s had passed: the others are over when the rest of it is, and not before.
    pass(&mut nat, 2, 149);
    assert_eq!(nat.session_count(), 3);
    pass(&mut nat, 149, 153);
    assert_eq!((nat.session_count(), up(&mut nat, 0, 7, 153 * SECOND)), (1, Some(before[0])));
    nat.audit().unwrap();
    pass(&mut nat, 153, 1_000);
    assert_eq!((nat.session_count(), nat.subscriber_count(), nat.pool().blocks()), (0, 0, (12, 12)));
}

#[test]
fn ports_go_on_resting_and_no_longer() {
    for (ended, written, passed) in [(400, 410, 5), (359, 361, 100), (400, 479, 60), (481, 500, 0)] {
        let mut nat = Nat::new(config()).unwrap();
        let outside = up(&mut nat, 0, 8, (ended - 301) * SECOND).unwrap();
        pass(&mut nat, ended - 301, ended + 1);
        assert_eq!(nat.session_count(), 0, "it ended");
        pass(&mut nat, ended + 1, written);
        let past = ImportClock { passed: passed * SECOND, now: 3 * SECOND };
        let (mut nat, lost) = restored(config(), &records(&nat, written * SECOND), past);
        assert_eq!(lost, []);
        // Somebody wants just that port, so long after it was free.
        let rested = written + passed - ended;
        for (port, after) in [(20, rested), (21, 119.max(rested))] {
            let now = past.now + (after - rested) * SECOND;
            let given = map(&mut nat, Endpoint::new(HOST, port), Some(outside.port), now);
            assert!(
                given.is_some_and(|given| given != outside),
                "ended at {ended}, written at {written}, {after} s after"
            );
        }
        let given = map(&mut nat, Endpoint::new(HOST, 22), Some(outside.port), 260 * SECOND);
        assert_eq!(given, Some(outside), "ended at {ended}, written at {written}");
    }
}

#[test]
fn what_is_over_meanwhile_rests_from_its_end_and_is_logged() {
    let mut nat = Nat::new(config()).unwrap();
    let outside = up(&mut nat, 0, 8, 100 * SECOND).unwrap();
    let kept = records(&nat, 110 * SECOND);
    // It ended 30 s ago.
    let past = ImportClock { passed: 320 * SECOND, now: SECOND };
    let (mut nat, lost) = restored(config(), &kept, past);
    assert_eq!((lost, nat.session_count(), nat.subscriber_count()), (vec![SkipReason::Expired], 0, 1));
    let events: Vec<_> = std::iter::from_fn(|| nat.pop_event()).map(|event| event.what).collect();
    let [crate::EventKind::SessionEnded(record, volume)] = events[..] else { panic!("{events:?}") };
    assert_eq!((record.outside, volume.packets_up), (outside, 1));
    let ask = |nat: &mut Nat, port, now| {
        map(nat, Endpoint::new(HOST, port), Some(outside.port), now) == Some(outside)
    };
    assert!(!ask(&mut nat, 20, 80 * SECOND));
    assert!(ask(&mut nat, 21, 125 * SECOND));
}

#[test]
fn what_does_not_fit_any_more_is_left_out_with_its_reason() {
    let mut nat = Nat::new(Config { static_forwards: vec![forward(1100, 9)], ..config() }).unwrap();
    for host in 0..4 {
        up(&mut nat, host, 7, SECOND).unwrap();
    }
    let inbound = send(&mut nat, Side::Outside, SERVER, forward(1100, 9).outside_endpoint(), SECOND);
    assert!(matches!(inbound.0, Verdict::Forward(_)), "{inbound:?}");
    let kept = records(&nat, SECOND);
    let (sessions, forwarded): (Vec<_>, Vec<_>) = kept
        .iter()
        .filter_map(|record| if let Record::Session(kept) = record { Some(*kept) } else { None })
        .partition(|kept| !kept.forward);
    assert_eq!((sessions.len(), forwarded.len()), (4, 1));
    let past = ImportClock { passed: 0, now: SECOND };
    let same = Config { static_forwards: vec![forward(1100, 9)], ..config() };
    let try_with = |config: Config| {
        let (nat, lost) = restored(config, &kept, past);
        (nat.session_count(), lost)
    };
    assert_eq!(try_with(same.clone()), (5, vec![]));
    // Fewer sessions, fewer subscribers.
    assert_eq!(try_with(Config { sessions: 2, ..same.clone() }), (2, vec![SkipReason::Full; 3]));
    let (count, lost) = try_with(Config { subscribers: 2, ..same.clone() });
    assert_eq!((count, lost), (2, vec![SkipReason::Full; 6]));
    // Another prefix inside: none of them is a subscriber.
    let inside = vec![Prefix::new(Ipv4Addr::new(192, 168, 0, 0), 16)];
    assert_eq!(try_with(Config { inside, ..config() }), (0, vec![SkipReason::NotInside; 10]));
    // The forward is not there any more.
    assert_eq!(try_with(config()), (4, vec![SkipReason::Forward]));
    // Another forward has a port that is in use.
    let taken = StaticForward {
        outside: (Ipv4Addr::from_bits(sessions[0].outside.address), sessions[0].outside.port),
        ..forward(0, 77)
    };
    let config_of = |forwards| Config { static_forwards: forwards, ..config() };
    assert_eq!(try_with(config_of(vec![forward(1100, 9), taken])), (4, vec![SkipReason::Forward]));
    // Addresses that are gone, and blocks that are cut otherwise.
    let other = vec![PoolAddress::all_ports(Ipv4Addr::new(192, 0, 2, 1))];
    let (count, lost) = try_with(Config { pool: other, ..config() });
    assert_eq!((count, lost), (0, [vec![SkipReason::Pool; 8], vec![SkipReason::Forward]].concat()));
    let (count, lost) = try_with(Config { ports_per_block: 128, ..same.clone() });
    assert_eq!((count, lost), (1, vec![SkipReason::Pool; 8]));
    // Told twice.
    let twice = [kept.clone(), kept.clone()].concat();
    let (nat, lost) = restored(same, &twice, past);
    assert_eq!((nat.session_count(), lost), (5, vec![SkipReason::Conflict; 10]));
}

#[test]
fn the_ports_of_sessions_that_are_left_out_rest() {
    let mut nat = Nat::new(config()).unwrap();
    let outside = up(&mut nat, 0, 7, SECOND).unwrap();
    let kept = records(&nat, SECOND);
    // Its host is no subscriber any more; its block is all that there is, so another has it.
    let first = outside.port - (outside.port - 1024) % 64;
    let pool = PoolAddress { address: Ipv4Addr::from_bits(outside.address), ports: first..=first + 63 };
    let inside = vec![Prefix::new(Ipv4Addr::new(10, 0, 0, 2), 32)];
    let other = Config { inside, pool: vec![pool], ..config() };
    let (mut nat, lost) = restored(other, &kept, ImportClock { passed: 0, now: SECOND });
    assert_eq!(lost, [SkipReason::NotInside; 2]);
    let ask = |nat: &mut Nat, port, now| {
        map(nat, Endpoint::new(HOST + 1, port), Some(outside.port), now).unwrap() == outside
    };
    assert!(!ask(&mut nat, 20, 2 * SECOND));
    assert!(!ask(&mut nat, 21, 119 * SECOND));
    assert!(ask(&mut nat, 22, 260 * SECOND));
}

#[test]
fn a_mapping_that_was_asked_for_ends_in_time_after_a_restart() {
    let mut nat = Nat::new(config()).unwrap();
    let inside = Endpoint::new(HOST, 7);
    let wanted = MappingRequest { nonce: NONCE, ..MappingRequest::new(inside, 17, 0, 111 * SECOND) };
    nat.map(&wanted, SECOND).unwrap();
    // Ten seconds are left.
    let (mut nat, lost) =
        restored(config(), &records(&nat, 101 * SECOND), ImportClock { passed: 0, now: SECOND });
    assert_eq!(lost, []);
    pass(&mut nat, 1, 10);
    assert!(nat.explicit(inside, 17, 0).is_some());
    pass(&mut nat, 10, 14);
    assert!(nat.explicit(inside, 17, 0).is_none());
}

#[test]
fn a_mapping_that_ended_meanwhile_ends_in_the_log() {
    let logged = Config { log_sessions: true, ..config() };
    let mut nat = Nat::new(logged.clone()).unwrap();
    let outside = map(&mut nat, Endpoint::new(HOST, 7), None, SECOND).unwrap();
    let (mut nat, _) =
        restored(logged, &records(&nat, SECOND), ImportClock { passed: 86_401 * SECOND, now: SECOND });
    let ended = |what| matches!(what, crate::EventKind::SessionEnded(record, _) if record.outside == outside);
    assert_eq!(std::iter::from_fn(|| nat.pop_event()).filter(|event| ended(event.what)).count(), 1);
}

#[test]
fn whom_a_subscriber_talks_to_is_logged_with_sessions_only() {
    let mut nat = Nat::new(config()).unwrap();
    up(&mut nat, 0, 7, SECOND).unwrap();
    let mut kept = records(&nat, SECOND);
    // One packet more, and its counters are half full.
    let Some(Record::Session(session)) = kept.last_mut() else { panic!("{kept:?}") };
    session.up = (1 << 25) << 38 | (1 << 25);
    for log_sessions in [false, true] {
        let (mut nat, lost) =
            restored(Config { log_sessions, ..config() }, &kept, ImportClock { passed: 0, now: SECOND });
        assert_eq!(lost, []);
        up(&mut nat, 0, 7, SECOND).unwrap();
        let interim = |what| matches!(what, crate::EventKind::SessionInterim(..));
        let told = std::iter::from_fn(|| nat.pop_event()).filter(|event| interim(event.what)).count();
        assert_eq!((told, nat.session_count()), (usize::from(log_sessions), 1));
        assert!(nat.sessions().all(|(_, one)| one.volume().packets_up == 0), "they begin anew");
    }
}

#[test]
fn the_port_of_a_mapping_that_ended_meanwhile_rests_from_its_end() {
    let mut nat = Nat::new(config()).unwrap();
    let outside = map(&mut nat, Endpoint::new(HOST, 7), None, SECOND).unwrap();
    let kept = records(&nat, SECOND);
    for (since, rests) in [(60, true), (241, false)] {
        let past = ImportClock { passed: (86_400 + since) * SECOND, now: SECOND };
        let (mut nat, lost) = restored(config(), &kept, past);
        assert_eq!(lost, [SkipReason::Expired; 2]);
        let given = map(&mut nat, Endpoint::new(HOST, 8), Some(outside.port), SECOND).unwrap();
        assert_eq!(given != outside, rests, "{given} {since} s after it ended");
    }
}

#[test]
fn what_was_asked_for_stays_as_long_as_it_was_to() {
    let mut strict = config();
    strict.filtering.udp = Filtering::AddressAndPortDependent;
    let mut nat = Nat::new(strict.clone()).unwrap();
    let (inside, other) = (Endpoint::new(HOST, 7), Endpoint::new(HOST, 8));
    up(&mut nat, 0, 7, SECOND).unwrap();
    let friend = RemoteFilter { network: Prefix::new(Ipv4Addr::from_bits(SERVER.address), 32), port: 54 };
    let until = 3_001 * SECOND;
    let wanted =
        MappingRequest { nonce: NONCE, filters: &[friend], ..MappingRequest::new(inside, 17, 0, until) };
    let outside = nat.map(&wanted, SECOND).unwrap();
    // A session that is to live on without packets.
    nat.peer(&MappingRequest::new(other, 17, 0, until), SERVER, SECOND).unwrap();
    let kept = records(&nat, SECOND);
    assert_eq!(kept.iter().filter(|one| matches!(one, Record::Mapping(_))).count(), 1);
    for swapped in [false, true] {
        let mut kept = kept.clone();
        if swapped {
            // The mapping before the session that had it.
            kept.swap(1, 2);
            kept.swap(2, 3);
        }
        let past = ImportClock { passed: 1_000 * SECOND, now: SECOND };
        let (mut nat, lost) = restored(strict.clone(), &kept, past);
        // The session of the first was over by its own time, and the mapping is there.
        assert_eq!((lost, nat.session_count()), (vec![SkipReason::Expired], 1), "{swapped}");
        let from = |port| Endpoint::new(SERVER.address, port);
        let (verdict, ..) = send(&mut nat, Side::Outside, from(55), outside, SECOND);
        assert_eq!(verdict, Verdict::Drop(Reason::Filtered), "its filter");
        assert!(matches!(send(&mut nat, Side::Outside, from(54), outside, SECOND).0, Verdict::Forward(_)));
        let Some(ExplicitMapping::Requested(_, explicit)) = nat.explicit(inside, 17, 0) else {
            panic!("it is there")
        };
        assert!(explicit.nonce == NONCE && explicit.until.abs_diff(2_001 * SECOND) < SECOND);
        pass(&mut nat, 1, 1_999);
        assert!(nat.explicit(inside, 17, 0).is_some() && nat.session_count() == 1);
        pass(&mut nat, 1_999, 2_400);
        assert!(nat.explicit(inside, 17, 0).is_none() && nat.session_count() == 0);
        nat.audit().unwrap();
        // All of it was over meanwhile.
        let (mut nat, _) =
            restored(strict.clone(), &kept, ImportClock { passed: 4_000 * SECOND, now: SECOND });
        pass(&mut nat, 1, 3);
        assert_eq!((nat.explicit(inside, 17, 0), nat.session_count()), (None, 0));
    }
}

#[derive(Debug, Clone)]
enum Step {
    Up(u32, u16, u16),
    Down(usize, u16),
    Map(u32, u16),
    Wait(u64),
    Restart(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u32..3, 0u16..30, 0u16..4).prop_map(|(host, port, remote)| Step::Up(host, port, remote)),
        4 => (any::<usize>(), 0u16..6).prop_map(|(mapping, remote)| Step::Down(mapping, remote)),
        1 => (0u32..3, 0u16..30).prop_map(|(host, port)| Step::Map(host, port)),
        1 => (0u64..200).prop_map(Step::Wait),
        1 => (0u64..100).prop_map(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// One NAT lives on, the other is written and read again and again: what is there of the first does the same in both. Ports that
    /// are drawn differ, so both are asked only for what began before; then the second begins anew from the first.
    #[test]
    fn a_nat_that_was_stopped_does_what_one_does_that_was_not(
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut nat = Nat::new(config()).unwrap();
        let mut now = 1_000 * SECOND;
        let mut ever = vec![Endpoint::new(0xcb00_7101, 1024)];
        for step in steps {
            now += SECOND / 10;
            while nat.advance(now, 100) {}
            match step {
                Step::Up(host, port, remote) => {
                    let (from, to) = (Endpoint::new(HOST + host, port), Endpoint::new(SERVER.address, 50 + remote));
                    let (verdict, outside, _) = send(&mut nat, Side::Inside, from, to, now);
                    if matches!(verdict, Verdict::Forward(_)) {
                        ever.push(outside);
                    }
                }
                Step::Down(mapping, remote) => {
                    let from = Endpoint::new(SERVER.address, 50 + remote);
                    send(&mut nat, Side::Outside, from, ever[mapping % ever.len()], now);
                }
                Step::Map(host, port) => {
                    ever.extend(map(&mut nat, Endpoint::new(HOST + host, port), None, now));
                }
                Step::Wait(seconds) => {
                    for _ in 0..seconds {
                        now += SECOND;
                        while nat.advance(now, 100) {}
                    }
                }
                Step::Restart(seconds) => {
                    let kept = records(&nat, now);
                    let past = ImportClock { passed: seconds * SECOND, now: 5 * SECOND };
                    let (mut other, lost) = restored(Config { seed: [8; 32], ..config() }, &kept, past);
                    prop_assert!(lost.iter().all(|lost| *lost == SkipReason::Expired), "{:?}", lost);
                    // The first waits as long as the second was not there.
                    for _ in 0..seconds {
                        now += SECOND;
                        while nat.advance(now, 100) {}
                    }
                    // What is due within the next seconds may be over in one and not in the other.
                    let mut known: Vec<_> = nat.sessions().map(|(_, one)| (*one, one.idle(now))).collect();
                    known.retain(|(one, idle)| one.state() == State::Pinned || *idle < 298 * SECOND);
                    prop_assert!(other.session_count() >= known.iter().filter(|(one, _)| one.state() != State::Pinned).count());
                    for (one, _) in &known {
                        let (inside, outside) = (one.inside(), one.outside());
                        if one.state() == State::Pinned {
                            let Some(ExplicitMapping::Requested(is, explicit)) = other.explicit(inside, 17, 0) else {
                                return Err(TestCaseError::fail("a mapping is gone"));
                            };
                            prop_assert_eq!((is, explicit.nonce), (outside, NONCE));
                            continue;
                        }
                        let (verdict, from, _) = send(&mut other, Side::Inside, inside, one.remote(), past.now);
                        prop_assert!(matches!(verdict, Verdict::Forward(_)));
                        prop_assert_eq!(from, outside);
                        let (_, _, to) = send(&mut other, Side::Outside, one.remote(), outside, past.now);
                        prop_assert_eq!(to, inside);
                    }
                    prop_assert!(other.session_count() <= nat.session_count());
                    other.audit().unwrap();
                    (nat, now) = (other, past.now);
                }
            }
            nat.audit().unwrap();
        }
    }

    /// Whatever stands in records, the tables agree, and all of it ends.
    #[test]
    fn no_records_break_it(
        records in proptest::collection::vec(
            (1u8..5, 0u32..4, 0u16..3, 0u16..400, any::<u64>(), any::<u32>(), any::<u8>()), 0..200),
        passed in 0u64..1_000,
        deterministic: bool,
    ) {
        let mut config = Config { static_forwards: vec![forward(1100, 2)], ..config() };
        config.mapping.tcp = crate::config::Mapping::AddressAndPortDependent;
        if deterministic {
            config.deterministic = Some(Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 29));
        }
        let mut nat = Nat::new(config).unwrap();
        let past = ImportClock { passed: passed * SECOND, now: 2 * SECOND };
        for (kind, host, realm, port, bits, idle, how) in records {
            let (inside, realm) = (Endpoint::new(HOST + host, port), u32::from(realm) << 12);
            let outside = Endpoint::new(0xcb00_7101 + (bits as u32 & 1), 1024 + port);
            let protocol = [1, 6, 17][usize::from(how % 3)];
            let record = match kind {
                1 => Record::Subscriber(KeptSubscriber {
                    inside: inside.address, realm, mac: MAC, outside: outside.address,
                    first: std::array::from_fn(|at| 1024 + 64 * ((bits >> (at * 3)) as u16 % 8)),
                    blocks: how % 9, size: 64, idle,
                }),
                4 => Record::Mapping(KeptMapping {
                    inside, realm, protocol: if how & 1 == 0 { 6 } else { 17 },
                    left: idle % 1_000_000, nonce: NONCE, lets_in: [(host, how % 33, port); 8], filters: how % 9,
                }),
                2 => Record::Ports(KeptPorts { outside, protocol, left: idle, ports: bits }),
                _ => Record::Session(KeptSession {
                    inside, realm, outside, remote: Endpoint::new(SERVER.address, realm as u16), protocol,
                    state: match protocol { 6 => State::ALL[3 + usize::from(how % 7)], 17 if how > 200 => State::Pinned, _ => State::Open },
                    forward: how & 16 != 0, idle: idle % 400_000, asked: if how & 32 == 0 { 0 } else { idle % 1_000_000 }, up: bits, down: bits,
                }),
            };
            let _left_out = nat.import(&record, past, HOPS);
        }
        nat.audit().unwrap();
        for second in 3..9_000 {
            if second % 10 == 0 || second < 600 {
                while nat.advance(second * SECOND, 1_000) {}
            }
        }
        nat.audit().unwrap();
        prop_assert_eq!(nat.session_count(), 0);
    }
}
