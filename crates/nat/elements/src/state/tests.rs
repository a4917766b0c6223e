use super::file::{MOST, Totals, Writer};
use super::*;
use crate::log::{Log, LogOptions};
use ::element::kind::Endings;
use nat_core::config::{PoolAddress, SECOND};
use nat_core::event::EventKind;
use nat_core::testing::{NOW, REMOTE, hop_in, inside, send};
use nat_core::{Config, Endpoint, Nat, Ownership};
use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const SEED: [u8; 32] = [5; 32];
const SUBSCRIBERS: u8 = 40;

fn pool() -> Vec<PoolAddress> {
    (1..=5).map(|last| PoolAddress::all_ports(Ipv4Addr::new(203, 0, 113, last))).collect()
}

/// A NAT of several workers, each with whole addresses.
fn workers(count: usize, seed: [u8; 32]) -> (Ownership, Vec<Nat>) {
    let pools: Vec<Vec<_>> =
        (0..count).map(|i| pool().into_iter().skip(i).step_by(count).collect()).collect();
    let nat = |pool: &Vec<PoolAddress>| {
        let config = Config {
            pool: pool.clone(),
            sessions: 1_000,
            subscribers: 64,
            seed: [1; 32],
            ..Config::default()
        };
        Nat::new(config).unwrap()
    };
    (Ownership::new(&pools, seed), pools.iter().map(nat).collect())
}

fn header(workers: usize) -> Header {
    Header { workers: workers as u32, written_ms: 0, seed: SEED, log: Some(7) }
}

/// Each subscriber opens two sessions; its Ethernet address ends like its IP address.
fn full(count: usize) -> (Ownership, Vec<Nat>) {
    let (ownership, mut nats) = workers(count, SEED);
    for last in 1..=SUBSCRIBERS {
        let nat = &mut nats[ownership.subscriber(inside(last, 0).ip().to_bits(), 0)];
        nat.set_hops(*inside(last, 0).ip(), 0, 1, u16::from(last), NOW).unwrap();
        send(nat, inside(last, 5000), REMOTE);
        send(nat, inside(last, 5001), REMOTE);
    }
    (ownership, nats)
}

fn keep(path: &Path, nats: &[Nat]) {
    let keeper = Keeper::new(path, header(nats.len()), Endings::default());
    for nat in nats {
        assert!(keeper.give(nat, NOW, |hop| Some([2, 0, 0, 0, 0, hop as u8])));
    }
}

fn outside_of(nats: &[Nat]) -> Vec<(Endpoint, Endpoint)> {
    let sessions = nats.iter().flat_map(|nat| nat.sessions());
    let mut all: Vec<_> = sessions.map(|(_, one)| (one.inside(), one.outside())).collect();
    all.sort_unstable();
    all
}

#[test]
fn sessions_go_on_with_as_many_workers_or_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cgn.state");
    let (_, before) = full(2);
    keep(&path, &before);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let survey = Survey::of(&path).unwrap();
    let expected = Totals { subscribers: 40, ports: 0, sessions: 80, asked: 0 };
    assert_eq!((survey.totals, survey.header.workers), (expected, 2));
    for count in [1, 2, 3, 5] {
        let (mut ownership, mut nats) = workers(count, survey.header.seed);
        let bound = survey.settle(&mut ownership, count, 64);
        let mut tally = Tally::default();
        for (i, nat) in nats.iter_mut().enumerate() {
            let its = restore(&survey, (i, &ownership), &bound[i], nat, (None, false), 7 * SECOND);
            assert_eq!(its.left_out.len(), 0, "{its:?}");
            (tally.sessions, tally.subscribers) =
                (tally.sessions + its.sessions, tally.subscribers + its.subscribers);
            nat.audit().unwrap();
            // The next hop towards each is that under which it is bound, and packets from the outside find the worker.
            for (_, session) in nat.sessions() {
                assert_eq!(ownership.outside(session.outside()), Some(i));
                assert_eq!(ownership.subscriber(session.inside().address, 0), i);
            }
        }
        assert_eq!((tally.sessions, tally.subscribers), (80, 40), "{count} workers");
        assert_eq!(outside_of(&nats), outside_of(&before), "{count} workers");
        let all: Vec<Bound> = bound.into_iter().flatten().collect();
        assert_eq!(all.len(), 40);
        assert!(all.iter().all(|one| u32::from(one.mac[5]) == one.inside & 0xff && one.hop >= 2));
    }
}

#[test]
fn answers_go_by_the_next_hop_that_is_bound() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cgn.state");
    let (_, before) = full(1);
    keep(&path, &before);
    let survey = Survey::of(&path).unwrap();
    let (mut ownership, mut nats) = workers(1, survey.header.seed);
    assert_eq!(survey.settle(&mut ownership, 1, 3)[0].len(), 3, "no more than there is room for");
    let bound = survey.settle(&mut ownership, 1, 64).remove(0);
    restore(&survey, (0, &ownership), &bound, &mut nats[0], (None, false), NOW);
    for (from, to) in outside_of(&before) {
        let hop = hop_in(&mut nats[0], REMOTE, to);
        let its = bound.iter().find(|one| one.inside == from.address).map(|one| one.hop);
        assert_eq!(hop, its);
    }
}

#[test]
fn a_file_that_is_not_whole_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cgn.state");
    assert!(matches!(Survey::of(&path), Err(StateError::None)));
    let (_, nats) = full(1);
    keep(&path, &nats);
    let whole = fs::read(&path).unwrap();
    assert!(Survey::of(&path).is_ok());
    let with = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        Survey::of(&path)
    };
    for len in (0..whole.len()).step_by(37).chain([whole.len() - 1]) {
        assert!(with(&whole[..len]).is_err(), "cut to {len} of {}", whole.len());
    }
    for at in (0..whole.len()).step_by(41) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        assert!(with(&bytes).is_err(), "byte {at} of {}", whole.len());
    }
    assert!(with(&[&whole[..], b"x"].concat()).is_err(), "something after it");
    assert!(matches!(
        with(b"#!/bin/sh\necho this is not the file that you want, is it\n# and long enough\n"),
        Err(StateError::Foreign)
    ));
    let mut newer = whole.clone();
    newer[8] = 9;
    assert!(matches!(with(&newer), Err(StateError::Version(9))));
    assert!(with(&whole).is_ok());
}

#[test]
fn a_file_of_the_version_before_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cgn.state");
    keep(&path, &full(1).1);
    let now = Survey::of(&path).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    // There it had no word for the log.
    bytes[8] = 1;
    bytes.drain(56..60);
    let sum = crc32fast::hash(&bytes[..bytes.len() - 4]).to_le_bytes();
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&sum);
    fs::write(&path, bytes).unwrap();
    let before = Survey::of(&path).unwrap();
    assert_eq!((before.totals, before.header), (now.totals, Header { log: None, ..now.header }));
    assert_eq!(now.header.log, Some(7));
}

#[test]
fn a_log_that_is_new_is_told_of_what_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cgn.state");
    let (_, before) = full(1);
    keep(&path, &before);
    let survey = Survey::of(&path).unwrap();
    for (new, sessions) in [(false, true), (true, false), (true, true)] {
        let (mut ownership, _) = workers(1, survey.header.seed);
        let config = Config {
            pool: pool(),
            sessions: 1_000,
            subscribers: 64,
            log_sessions: sessions,
            ..Config::default()
        };
        let mut nat = Nat::new(config).unwrap();
        let bound = survey.settle(&mut ownership, 1, 64).remove(0);
        restore(&survey, (0, &ownership), &bound, &mut nat, (None, new), NOW);
        let (mut blocks, mut begun) = (BTreeSet::new(), BTreeSet::new());
        while let Some(event) = nat.pop_event() {
            match event.what {
                EventKind::BlockAllocated(block) => {
                    assert!(blocks.insert((block.inside, block.outside, block.ports)))
                }
                EventKind::SessionCreated(one) => assert!(begun.insert(format!("{one:?}"))),
                other => panic!("{other:?}"),
            }
        }
        let subscribers = nat
            .subscribers()
            .flat_map(|(_, one)| nat.blocks_of(one).map(|(outside, ports)| (one.inside(), outside, ports)));
        let all = if new { subscribers.collect() } else { BTreeSet::new() };
        assert_eq!(blocks, all);
        let its: BTreeSet<String> = nat.sessions().map(|(_, one)| format!("{:?}", one.record())).collect();
        assert_eq!(begun, if new && sessions { its } else { BTreeSet::new() });
    }
}

#[test]
fn a_log_is_another_by_its_collectors_and_what_they_get() {
    let of = |value| Some(serde_json::from_value::<LogOptions>(value).unwrap());
    let knowledge = |log: Option<LogOptions>| LogOptions::knowledge(log.as_ref());
    let one = serde_json::json!({"syslog": "127.0.0.1:9"});
    let same = serde_json::json!({"syslog": "127.0.0.1:9", "queue": 128, "facility": 3});
    assert_eq!(knowledge(of(one.clone())), knowledge(of(same)));
    for other in [
        None,
        of(serde_json::json!({"syslog": "127.0.0.1:10"})),
        of(serde_json::json!({"ipfix": "127.0.0.1:9"})),
        of(serde_json::json!({"syslog": "127.0.0.1:9", "sessions": true})),
    ] {
        assert_ne!(knowledge(of(one.clone())), knowledge(other));
    }
}

#[test]
fn what_others_could_have_put_there_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cgn.state");
    keep(&path, &full(1).1);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).unwrap();
    assert!(matches!(Survey::of(&path), Err(StateError::Untrusted(_))));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
        assert!(matches!(Survey::of(&path), Err(StateError::Untrusted(_))));
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
    }
    let longer = folder.path().join("longer");
    fs::copy(&path, &longer).unwrap();
    fs::File::options().write(true).open(&longer).unwrap().set_len(MOST + 1).unwrap();
    assert!(matches!(Survey::of(&longer), Err(StateError::Untrusted(_))));
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(Survey::of(&link), Err(StateError::Untrusted(_))));
    assert!(matches!(Survey::of(folder.path()), Err(StateError::Untrusted(_))));
    // Reading a pipe would wait for ever.
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(matches!(Survey::of(&pipe), Err(StateError::Untrusted(_))));
}

#[test]
fn the_file_is_there_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cgn.state");
    let (_, nats) = full(2);
    let keeper = Keeper::new(&path, header(2), Endings::default());
    assert!(!keeper.has_begun());
    keeper.worker_started();
    assert!(keeper.has_begun());
    assert!(keeper.give(&nats[0], NOW, |_| None));
    assert!(!path.exists(), "the other worker's is missing");
    assert!(keeper.give(&nats[1], NOW, |_| None));
    assert!(Survey::of(&path).is_ok());
    // What it began with is of the past once all workers run.
    let next = Keeper::new(&path, header(2), Endings::default());
    let old = folder.path().join("cgn.state.old");
    next.worker_started();
    assert!(Survey::of(&path).is_ok() && !old.exists());
    next.worker_started();
    assert!(!path.exists() && Survey::of(&old).is_ok());
    drop(next);
    // One that was not finished leaves nothing.
    drop(Writer::begin(&path, &header(1)).unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    // A place that cannot be written: nothing is kept, and the NAT goes on to end.
    let nowhere = Keeper::new(&folder.path().join("none/cgn.state"), header(2), Endings::default());
    assert!(!nowhere.give(&nats[0], NOW, |_| None) && !nowhere.give(&nats[1], NOW, |_| None));
}

#[test]
fn what_a_worker_gave_ends_where_the_next_one_cannot_give_its_own() {
    let options: LogOptions = serde_json::from_value(serde_json::json!({"syslog": "127.0.0.1:9"})).unwrap();
    let log = || Log::start(&options, 0, &Endings::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("below");
    let path = below.join("cgn.state");
    for fails in [false, true] {
        fs::create_dir_all(&below).unwrap();
        let (_, mut nats) = full(2);
        let sessions = nats[0].session_count();
        let keeper = Keeper::new(&path, header(2), Endings::default());
        assert!(keeper.give(&nats[0], NOW, |_| None));
        assert!(keeper.hold(nats[0].take().unwrap(), log()).is_none());
        assert_eq!((nats[0].session_count(), keeper.not_kept().len()), (0, 0), "it is held");
        if fails {
            fs::remove_dir_all(&below).unwrap();
        }
        assert_eq!(keeper.give(&nats[1], NOW, |_| None), !fails);
        let not_kept: Vec<usize> = keeper.not_kept().iter().map(|(nat, _)| nat.session_count()).collect();
        assert_eq!(not_kept, if fails { vec![sessions] } else { vec![] });
        // Who was still on its way to be held is told the same.
        let late = keeper.hold(nats[1].take().unwrap(), log());
        assert_eq!((late.is_some(), path.exists()), (fails, !fails));
    }
}

/// `cargo test --release -p nat --lib -- --ignored --nocapture a_million_sessions`
#[test]
#[ignore = "a measurement, to be read by people"]
fn a_million_sessions() {
    const EACH: u32 = 64;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cgn.state");
    let pool: Vec<_> =
        (0..=255).map(|last| PoolAddress::all_ports(Ipv4Addr::new(203, 0, 113, last))).collect();
    let config = Config { pool: pool.clone(), sessions: 1 << 20, subscribers: 1 << 15, ..Config::default() };
    let mut nat = Nat::new(config.clone()).unwrap();
    for number in 0..1u32 << 20 {
        let address = Ipv4Addr::from_bits(0x0a00_0000 + number / EACH);
        send(&mut nat, SocketAddrV4::new(address, 5000 + (number % EACH) as u16), REMOTE);
    }
    let began = std::time::Instant::now();
    assert!(Keeper::new(&path, header(1), Endings::default()).give(&nat, NOW, |_| Some([2; 6])));
    let (written, bytes) = (began.elapsed(), fs::metadata(&path).unwrap().len());
    drop(nat);
    let mut nat = Nat::new(config).unwrap();
    let began = std::time::Instant::now();
    let survey = Survey::of(&path).unwrap();
    let checked = began.elapsed();
    let mut ownership = Ownership::new(&[pool], SEED);
    let bound = survey.settle(&mut ownership, 1, 1 << 15).remove(0);
    let tally = restore(&survey, (0, &ownership), &bound, &mut nat, (None, false), NOW);
    assert_eq!(tally.sessions, 1 << 20);
    println!("{bytes} B; written in {written:?}, checked in {checked:?}, there after {:?}", began.elapsed());
}
