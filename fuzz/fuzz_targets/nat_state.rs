//! Whatever stands in a file of a NAT's state, or is told to a standby: it is read or refused, the tables agree, and all of it ends.
#![no_main]

use nat_core::Nat;
use nat_core::config::{Config, PoolAddress, SECOND, StaticForward};
use nat_core::state::{ImportClock, Record, Update};
use std::net::Ipv4Addr;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((first, mut rest)) = data.split_first() else { return };
    let (standby, passed) = (first & 0x80 != 0, first & 0x7f);
    let address = Ipv4Addr::new(203, 0, 113, 1);
    let forward = StaticForward {
        protocol: 17,
        outside: (address, 1030),
        inside: (Ipv4Addr::new(10, 0, 0, 2), 53),
        realm: 0,
    };
    let config = Config {
        sessions: 16,
        subscribers: 4,
        pool: vec![PoolAddress { address, ports: 1024..=1279 }],
        ports_per_block: 64,
        static_forwards: vec![forward],
        ..Config::default()
    };
    let Ok(mut nat) = Nat::new(config) else { return };
    let past = ImportClock { passed: u64::from(passed) * SECOND, now: SECOND };
    while let Ok((update, len)) = Update::decode(rest) {
        rest = &rest[len..];
        let mut bytes = Vec::new();
        update.encode(&mut bytes);
        assert_eq!(Update::decode(&bytes), Ok((update, len)));
        // What is asked for long would be there for long.
        if matches!(update, Update::There(Record::Session(kept)) if kept.asked > 1 << 20) {
            continue;
        }
        let _left_out = match update {
            Update::There(record) if !standby => nat.import(&record, past, (1, 2)),
            _ => nat.apply(&update, SECOND, (1, 2)),
        };
    }
    assert_eq!(nat.audit(), Ok(()));
    // What it knows now it would write, and read again.
    let again: Vec<Record> = nat.export(SECOND, |_| None).collect();
    assert_eq!(again.iter().filter(|one| matches!(one, Record::Session(_))).count(), nat.sessions().count());
    for second in (2..9_000).step_by(60) {
        while nat.advance(second * SECOND, 64) {}
    }
    assert_eq!((nat.session_count(), nat.audit()), (0, Ok(())));
});
