//! The fast path alone: parse, hash, look up, refresh, count, rewrite; 64-byte UDP of random sessions, up and down.
//!
//!     cargo bench -p nat_core [-- SESSIONS …]
//!
//! Prints the median of rounds, and the fastest. A round takes each of 16,384 buffers of 2 KiB once, in bursts of 32; frames are
//! written before the clock starts. Of the sessions, which begin before that, one of every subscriber and then the next, and are over
//! together after it, it prints the median of the bursts in which they were made, and what their end took each.

use nat_core::config::{Config, PoolAddress, SECOND};
use nat_core::{BURST, Frame, Nat, Side, Verdict};
use packet::Flow;
use packet::checksum;
use packet::frame::Program;
use packet::signature::Signature;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

/// Fewer show what the instructions cost when the frames are in the cache.
const RING: usize = 16_384;
const BUFFER: usize = 2_048;
const ROUNDS: usize = 41;
/// 64 B on the wire with the FCS.
const SIZE: usize = 60;
const PER_SUBSCRIBER: u32 = 64;
const REMOTE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(198, 51, 100, 9)), 53);

/// A frame from which the others are made: from 10.0.0.1:1 to the remote endpoint.
fn template() -> Vec<u8> {
    let source = SocketAddr::from(([10, 0, 0, 1], 1));
    let flow = Flow { source_mac: [2; 6], destination_mac: [4; 6], source, destination: REMOTE };
    let mut frame = vec![0; SIZE];
    let mark = Signature { stream: 1, sequence: 2, sent_ns: 3 };
    let mut program = Program::udp(&flow, SIZE).unwrap_or_else(|error| panic!("{error}"));
    let _written = program.write(&mut frame, 0, &mark);
    frame
}

/// The template with other endpoints, its checksums following.
fn write(frame: &mut [u8], template: &[u8], source: SocketAddr, destination: SocketAddr) {
    frame.copy_from_slice(template);
    let octets = |address: SocketAddr| match address {
        SocketAddr::V4(v4) => v4.ip().octets(),
        SocketAddr::V6(_) => [0; 4],
    };
    let addresses = [octets(source), octets(destination)].concat();
    let ports = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
    let sum = |at: usize| u16::from_be_bytes([template[at], template[at + 1]]);
    let header = checksum::update_bytes(sum(24), &template[26..34], &addresses);
    let datagram = checksum::update_bytes(sum(40), &template[26..34], &addresses);
    let datagram = checksum::update_bytes(datagram, &template[34..38], &ports);
    frame[24..26].copy_from_slice(&header.to_be_bytes());
    frame[26..34].copy_from_slice(&addresses);
    frame[34..38].copy_from_slice(&ports);
    frame[40..42].copy_from_slice(&datagram.to_be_bytes());
}

/// The address of a subscriber and a port of it.
fn inside(session: u32) -> SocketAddr {
    let address = Ipv4Addr::from_bits(0x0a00_0000 + session / PER_SUBSCRIBER);
    (address, 10_000 + (session % PER_SUBSCRIBER) as u16).into()
}

fn bench(sessions: u32) {
    let config = Config {
        sessions: sessions as usize,
        subscribers: (sessions / PER_SUBSCRIBER) as usize + 1,
        pool: (0..sessions.div_ceil(60_000) + 1)
            .map(|i| PoolAddress::all_ports(Ipv4Addr::from_bits(0xcb00_7100 + i)))
            .collect(),
        ports_per_block: 64,
        log_sessions: false,
        ..Config::default()
    };
    let mut nat = Nat::new(config).unwrap_or_else(|error| panic!("{error}"));
    while nat.populate(1 << 26) {}
    let template = template();
    let mut room = vec![0; BURST * SIZE];
    let mut all: Vec<u32> = (0..sessions).collect();
    all.sort_by_key(|session| session % PER_SUBSCRIBER);
    let mut makes = Vec::new();
    for some in all.chunks(BURST) {
        let mut heads: [&mut [u8]; BURST] = std::array::from_fn(|_| <&mut [u8]>::default());
        for ((head, bytes), session) in heads.iter_mut().zip(room.chunks_exact_mut(SIZE)).zip(some) {
            write(bytes, &template, inside(*session), REMOTE);
            *head = bytes;
        }
        let mut frames = heads.map(Frame::new);
        let frames = &mut frames[..some.len()];
        let begun = Instant::now();
        nat.process(Side::Inside, frames, 1_000);
        makes.push(begun.elapsed().as_nanos() as f64 / some.len() as f64);
        let refused = frames.iter().find(|frame| !matches!(frame.verdict, Verdict::Forward(_)));
        assert!(refused.is_none(), "{refused:?}");
    }
    makes.sort_by(f64::total_cmp);
    let make = makes[makes.len() / 2];
    let outside: Vec<SocketAddr> = {
        let mut all = vec![REMOTE; sessions as usize];
        for (_, session) in nat.sessions() {
            let number = (session.inside().address - 0x0a00_0000) * PER_SUBSCRIBER
                + u32::from(session.inside().port)
                - 10_000;
            all[number as usize] =
                (Ipv4Addr::from_bits(session.outside().address), session.outside().port).into();
        }
        all
    };
    let mut ring = vec![0; RING * BUFFER];
    let mut rng = SmallRng::seed_from_u64(7);
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..2 * ROUNDS {
        let side = if round % 2 == 0 { Side::Inside } else { Side::Outside };
        for buffer in ring.chunks_exact_mut(BUFFER) {
            let session = rng.random_range(0..sessions);
            match side {
                Side::Inside => write(&mut buffer[..SIZE], &template, inside(session), REMOTE),
                Side::Outside => write(&mut buffer[..SIZE], &template, REMOTE, outside[session as usize]),
            }
        }
        let begun = Instant::now();
        for buffers in ring.chunks_exact_mut(BURST * BUFFER) {
            let mut heads: [&mut [u8]; BURST] = std::array::from_fn(|_| <&mut [u8]>::default());
            for (head, buffer) in heads.iter_mut().zip(buffers.chunks_exact_mut(BUFFER)) {
                *head = &mut buffer[..SIZE];
            }
            let mut frames = heads.map(Frame::new);
            nat.process(side, &mut frames, 2_000 + round as u64);
            black_box(&frames);
        }
        times[round % 2].push(begun.elapsed().as_nanos() as f64 / RING as f64);
    }
    let forwarded = nat.forwarded();
    assert_eq!(
        forwarded.up + forwarded.down - forwarded.slow,
        (2 * ROUNDS * RING) as u64,
        "{:?}",
        nat.drops()
    );
    let [up, down] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        (times[ROUNDS / 2], times[0])
    });
    let memory = nat.memory().total();
    let end = end(&mut nat);
    println!(
        "{sessions:>10} sessions: up {:.1} ns (fastest {:.1}), down {:.1} ns (fastest {:.1}); each made in {make:.0} ns, ended in {end:.0}, {:.1} B",
        up.0,
        up.1,
        down.0,
        down.1,
        memory as f64 / f64::from(sessions),
    );
}

/// Let all sessions end: the time for each, ns.
fn end(nat: &mut Nat) -> f64 {
    for minute in 1..=5 {
        while nat.advance(minute * 60 * SECOND, 1_000) {}
    }
    let (sessions, begun) = (nat.session_count(), Instant::now());
    while nat.advance(302 * SECOND, 64) {}
    assert_eq!(nat.session_count(), 0);
    begun.elapsed().as_nanos() as f64 / sessions as f64
}

fn main() {
    // `cargo test --benches` runs it too, and wants no figures.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let asked: Vec<u32> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let all = if asked.is_empty() { vec![1_000, 64_000, 1_000_000, 10_000_000] } else { asked };
    all.into_iter().for_each(bench);
}
