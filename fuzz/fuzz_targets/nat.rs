//! Frames of any bytes, from both sides, over time: the NAT must not break, and no inside address may get out.
#![no_main]

use nat_core::config::{Config, PoolAddress, SECOND};
use nat_core::{Frame, Headers, Nat, Side, Verdict};
use std::net::Ipv4Addr;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let pool = vec![PoolAddress { address: Ipv4Addr::new(203, 0, 113, 1), ports: 1024..=1151 }];
    let config = Config {
        sessions: 16,
        subscribers: 4,
        pool,
        ports_per_block: 64,
        mss: Some(1400),
        ..Config::default()
    };
    let Ok(mut nat) = Nat::new(config) else { return };
    let (mut rest, mut now) = (data, SECOND);
    // A byte that says from where and when, one that says how long, and so many bytes.
    while let [how, len, after @ ..] = rest {
        let (bytes, after) = after.split_at(after.len().min(usize::from(*len)));
        rest = after;
        now += u64::from(how >> 1) * SECOND;
        let side = if how & 1 == 0 { Side::Inside } else { Side::Outside };
        let mut bytes = bytes.to_vec();
        let mut frames = [Frame::new(&mut bytes)];
        nat.process(side, &mut frames, now);
        let verdict = frames[0].verdict;
        if let Verdict::Forward(forward) = verdict
            && forward.to == Side::Outside
        {
            let source = Headers::of(&bytes).map(|headers| headers.source().address.to_be_bytes());
            assert!(source.is_ok_and(|octets| octets == [203, 0, 113, 1]), "{source:?}");
        }
        nat.advance(now, 16);
        while nat.pop_output().is_some() {}
    }
});
