//! Workers that share an outside address: what comes back in pieces meets its session, whichever of them has it.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

use crate::conformance::packet::Packet;
use nat_core::config::{Config, PoolAddress, SECOND};
use nat_core::{Frame, Headers, Nat, Ownership, PieceOwners, Side, Verdict};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

const SHARED: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 16);
const REMOTE: &str = "198.51.100.9";
const PORTS: [RangeInclusive<u16>; 2] = [1024..=33_279, 33_280..=65_535];

struct Workers {
    ownership: Ownership,
    pieces: PieceOwners,
    nats: Vec<Nat>,
}

impl Workers {
    fn new() -> Self {
        let pools = PORTS.map(|ports| vec![PoolAddress { address: SHARED, ports }]);
        let nat = |pool: &Vec<PoolAddress>| {
            let pool = pool.clone();
            Nat::new(Config { pool, sessions: 256, subscribers: 64, ..Config::default() }).unwrap()
        };
        Self {
            nats: pools.iter().map(nat).collect(),
            ownership: Ownership::new(&pools, [9; 32]),
            pieces: PieceOwners::default(),
        }
    }

    fn send(&mut self, side: Side, text: &str) -> (usize, Verdict, Vec<u8>) {
        let mut frame = Packet::parse(text).unwrap().frame();
        let headers = Headers::of(&frame).unwrap();
        let worker = self.pieces.worker(&self.ownership, side, &frame, &headers).unwrap();
        let mut frames = [Frame::new(&mut frame)];
        self.nats[worker].process(side, &mut frames, SECOND);
        let verdict = frames[0].verdict;
        (worker, verdict, frame[headers.l3.into()..].to_vec())
    }
}

#[test]
fn pieces_from_outside_meet_their_session() {
    let mut workers = Workers::new();
    let mut met = [0; 2];
    for (host, kind) in (1..=16).flat_map(|host| [(host, "udp"), (host, "icmp echo")]) {
        let echo = kind != "udp";
        let (remote, protocol, at) = if echo { (0, 1, 24) } else { (53, 17, 20) };
        let query = format!("{kind} 10.0.0.{host}:5000 > {REMOTE}:{remote}");
        let (worker, verdict, packet) = workers.send(Side::Inside, &query);
        assert!(matches!(verdict, Verdict::Forward(_)), "{query}: {verdict:?}");
        let port = u16::from_be_bytes([packet[at], packet[at + 1]]);
        assert!(PORTS[worker].contains(&port));
        let answer = kind.replace("icmp echo", "icmp reply");
        for text in [
            format!("{answer} {REMOTE}:{remote} > {SHARED}:{port} frag {host} 0 more len 16"),
            format!("piece {protocol} {REMOTE} > {SHARED} frag {host} 24 more"),
            format!("piece {protocol} {REMOTE} > {SHARED} frag {host} 48"),
        ] {
            let (to, verdict, packet) = workers.send(Side::Outside, &text);
            assert_eq!(to, worker, "{text}");
            assert!(matches!(verdict, Verdict::Forward(to) if to.to == Side::Inside), "{text}: {verdict:?}");
            assert_eq!(packet[16..20], [10, 0, 0, host], "{text}");
        }
        met[worker] += 1;
    }
    assert!(met.iter().all(|count| *count > 0), "both workers have some: {met:?}");
}
