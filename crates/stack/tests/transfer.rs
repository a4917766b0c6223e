//! Transfers both ways over paths that lose, reorder and repeat frames: every byte arrives, once and in order.

use crate::link::{Full, Pair, Path};
use crate::wire::{Frames, MS};
use packet::tcp::TsoLimits;
use proptest::prelude::*;
use stack::{CongestionControl, DropReason, Offload, State, TcpConfig};
use std::sync::Arc;

/// Bytes that are given at once, of those that are shared and those that are not.
const PIECE: usize = 5_000;

/// A payload that no shift of it equals.
fn payload(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(salt) >> 56) as u8).collect()
}

/// How a side gives its stack what it sends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Source {
    Copied,
    /// A body of so many bytes, repeated, in turn with pieces of copied bytes.
    Shared(usize),
}

/// Transfer `len` bytes each way and close; how many frames it took, and the simulated time.
fn transfer(path: Path, tcp: TcpConfig, len: [usize; 2], v6: bool, seed: u64) -> (Pair, u64) {
    transfer_from(Source::Copied, path, tcp, len, v6, seed)
}

fn transfer_from(
    source: Source,
    path: Path,
    tcp: TcpConfig,
    len: [usize; 2],
    v6: bool,
    seed: u64,
) -> (Pair, u64) {
    let mut pair = Pair::new(path, tcp, seed);
    let begun = pair.now;
    let handles = pair.connected(v6);
    let mut sent = [payload(len[0], 1), payload(len[1], 2)];
    let body: Arc<[u8]> = match source {
        Source::Copied => Arc::from([]),
        Source::Shared(size) => payload(size, 3).into(),
    };
    if source != Source::Copied {
        // every other piece is of the body, at its own offset in it
        for piece in sent.iter_mut().flat_map(|bytes| bytes.chunks_mut(PIECE).skip(1).step_by(2)) {
            piece.iter_mut().zip(body.iter().cycle().skip(7)).for_each(|(byte, of)| *byte = *of);
        }
    }
    let mut given = [0, 0];
    let mut received = [Vec::new(), Vec::new()];
    let mut shut = [false, false];
    let done = pair.until(3_600_000 * MS, |pair| {
        let mut ended = true;
        for side in 0..2 {
            let left = &sent[side][given[side]..];
            if !left.is_empty() {
                let (at, stack) = (given[side] % PIECE, &mut pair.sides[side]);
                let taken = match source {
                    Source::Copied => stack.write(handles[side], left, pair.now),
                    Source::Shared(_) => {
                        let piece = left.len().min(PIECE - at);
                        if given[side] / PIECE % 2 == 1 {
                            stack.write_shared(handles[side], &body, 7 + at, piece, pair.now)
                        } else {
                            stack.write(handles[side], &left[..piece], pair.now)
                        }
                    }
                };
                given[side] += taken.expect("open");
            } else if !shut[side] {
                pair.sides[side].shut_down(handles[side], pair.now);
                shut[side] = true;
            }
            ended &= pair.read(side, handles[side], &mut received[side]);
        }
        ended && shut == [true, true]
    });
    assert!(done, "{} of {}, {} of {}", received[1].len(), len[0], received[0].len(), len[1]);
    assert!(received[1] == sent[0] && received[0] == sent[1], "byte for byte");
    let took = pair.now - begun;
    for (side, handle) in pair.sides.iter_mut().zip(handles) {
        side.close(handle, pair.now);
    }
    pair.run(200_000 * MS);
    for side in &pair.sides {
        assert_eq!((side.connections(), side.buffers()), (0, 0), "nothing is left after 2 MSL");
    }
    (pair, took)
}

#[test]
fn on_a_clean_path_nothing_is_sent_twice() {
    for v6 in [false, true] {
        let (pair, _) = transfer(Path::CLEAN, TcpConfig::default(), [3_000_000, 1_000_000], v6, 1);
        for side in &pair.sides {
            let counters = side.counters();
            assert_eq!(
                (counters.retransmitted, counters.timeouts, counters.probes),
                (0, 0, 0),
                "{counters:?}"
            );
            assert_eq!((counters.duplicates, counters.resets_sent), (0, 0));
        }
        assert_eq!(pair.sides[0].counters().bytes_sent, 3_000_000);
        assert_eq!(pair.sides[0].counters().bytes_received, 1_000_000);
    }
}

/// What a port segments is the same segments on the path, and none of them is longer.
#[test]
fn a_port_makes_checksums_and_segments() {
    let by = |v6, longest_segment| TsoLimits { v6, longest: 65_000, longest_segment };
    let checksums = |segmentation| Offload { checksums: true, segmentation };
    // a tap takes shorter ones, and of IPv4 alone
    let tap = checksums(Some(by(false, 1_500)));
    for (offload, v6, large) in [
        (checksums(None), false, false),
        (checksums(None), true, false),
        (checksums(Some(by(true, 1_514))), false, true),
        (checksums(Some(by(true, 1_514))), true, true),
        (tap, false, true),
        (tap, true, false),
    ] {
        let path = Path { offload, ..Path::CLEAN };
        let (pair, _) = transfer(path, TcpConfig::default(), [3_000_000, 1_000_000], v6, 1);
        for side in &pair.sides {
            let counters = side.counters();
            assert_eq!((counters.retransmitted, counters.timeouts, counters.probes), (0, 0, 0));
            assert_eq!(counters.dropped(DropReason::BadChecksum), 0);
            assert_eq!(counters.segmented > 0, large, "{offload:?} {v6} {counters:?}");
            assert!(counters.segments_sent > counters.bytes_sent / 1_460);
            assert_eq!(counters.frames_sent < counters.segments_sent, large);
        }
        let first = pair.sides[0].counters();
        assert_eq!((first.bytes_sent, first.bytes_received), (3_000_000, 1_000_000));
    }
}

/// Of a large frame one segment gets lost: that one alone is sent again.
#[test]
fn of_what_a_port_segments_only_what_is_lost_is_sent_again() {
    let segmentation = Some(TsoLimits { v6: true, longest: 65_000, longest_segment: 1_514 });
    let offload = Offload { checksums: true, segmentation };
    let mut pair = Pair::new(Path { offload, ..Path::CLEAN }, TcpConfig::default(), 1);
    pair.lose = vec![12, 15, 40];
    let [mine, yours] = pair.connected(false);
    let (sent, mut received) = (payload(100_000, 1), Vec::new());
    assert_eq!(pair.sides[0].write(mine, &sent, pair.now), Ok(sent.len()));
    assert!(pair.until(60_000 * MS, |pair| {
        pair.read(1, yours, &mut received);
        received.len() == sent.len()
    }));
    assert_eq!(received, sent);
    let counters = pair.sides[0].counters();
    assert!(pair.lost > 0 && counters.segmented > 0, "{counters:?}");
    assert_eq!((counters.retransmitted, counters.timeouts), (pair.lost, 0), "{counters:?}");
}

#[test]
fn reordering_alone_makes_few_retransmissions() {
    let path = Path { jitter: MS / 2, ..Path::CLEAN };
    let (pair, _) = transfer(path, TcpConfig::default(), [2_000_000, 0], false, 3);
    let counters = pair.sides[0].counters();
    // each round trip of reordering was taken for a loss until it was seen to be none
    assert!(counters.retransmitted < counters.segments_sent / 10, "{counters:?}");
    assert_eq!(counters.timeouts, 0);
}

#[test]
fn a_loss_is_repaired_within_few_round_trips() {
    let clean = transfer(Path::CLEAN, TcpConfig::default(), [100_000, 0], false, 1).1;
    // a frame of the middle, and the last one: a tail loss probe repairs that one
    for lose in [vec![30], vec![30, 31, 32], vec![12, 40]] {
        let mut pair = Pair::new(Path::CLEAN, TcpConfig::default(), 1);
        pair.lose = lose.clone();
        let [mine, yours] = pair.connected(false);
        let (sent, mut received, begun) = (payload(100_000, 1), Vec::new(), pair.now);
        assert_eq!(pair.sides[0].write(mine, &sent, pair.now), Ok(sent.len()));
        assert!(pair.until(60_000 * MS, |pair| {
            pair.read(1, yours, &mut received);
            received.len() == sent.len()
        }));
        assert_eq!(received, sent);
        let counters = pair.sides[0].counters();
        assert_eq!((counters.retransmitted, counters.timeouts), (pair.lost, 0), "{lose:?} {counters:?}");
        assert!(pair.lost > 0, "{lose:?} are frames of this side");
        assert!(pair.now - begun < clean + 40 * MS, "{lose:?}: {} ms", (pair.now - begun) / MS);
    }
}

#[test]
fn the_last_segment_lost_is_probed_for() {
    let mut pair = Pair::new(Path::CLEAN, TcpConfig::default(), 1);
    let [mine, yours] = pair.connected(false);
    let mut received = Vec::new();
    let sent = payload(5_000, 1);
    pair.run(100 * MS);
    // four segments: the last two
    pair.lose = vec![pair.frames + 3, pair.frames + 4];
    assert_eq!(pair.sides[0].write(mine, &sent, pair.now), Ok(sent.len()));
    let begun = pair.now;
    assert!(pair.until(60_000 * MS, |pair| {
        pair.read(1, yours, &mut received);
        received.len() == sent.len()
    }));
    let counters = pair.sides[0].counters();
    assert_eq!((counters.probes, counters.timeouts, counters.retransmitted), (1, 0, 2), "{counters:?}");
    assert!(pair.now - begun < 100 * MS, "without waiting for the retransmission timeout");
}

/// The port is full when a probe falls due, and the acknowledgment of everything comes first: then nothing is in flight, and no
/// timer runs.
#[test]
fn a_probe_that_is_acknowledged_before_it_leaves_is_not_sent() {
    let mut pair = Pair::new(Path::CLEAN, TcpConfig::default(), 1);
    let [mine, yours] = pair.connected(false);
    pair.run(100 * MS);
    let (now, due) = (pair.now, pair.now + 20 * MS);
    let (sent, mut received) = (payload(5_000, 1), Vec::new());
    let (mut out, mut back, mut after) = (Frames::default(), Frames::default(), Frames::default());
    let [near, far] = &mut pair.sides;
    assert_eq!(near.write(mine, &sent, now), Ok(sent.len()));
    assert!(near.transmit(now, &mut out));
    out.0.iter().for_each(|frame| _ = far.receive(frame, now));
    assert!(far.transmit(now, &mut back));
    near.advance(due);
    assert!(!near.transmit(due, &mut Full));
    assert_eq!(near.counters().probes, 1);
    back.0.iter().for_each(|frame| _ = near.receive(frame, due));
    assert!(near.transmit(due, &mut after));
    assert_eq!(after.0.len(), 0, "all is acknowledged");
    pair.now = due;
    pair.run(1_200_000 * MS);
    assert_eq!(pair.sides[0].status(mine).map(|status| status.state), Some(State::Established));
    assert_eq!(pair.sides[0].counters().timeouts, 0);
    pair.read(1, yours, &mut received);
    assert_eq!(received, sent);
}

/// The next hop answers nobody for a while: what waits for it meanwhile is no retransmission.
#[test]
fn who_has_nothing_in_flight_outlives_a_silent_neighbour() {
    let tcp = TcpConfig { keep_alive: 60_000 * MS, ..TcpConfig::default() };
    for writes in [false, true] {
        let mut pair = Pair::new(Path::CLEAN, tcp, 1);
        let [mine, yours] = pair.connected(false);
        pair.run(50_000 * MS);
        pair.path.loss = 1_000;
        // the first question goes to the address that was known: from then on there is none
        pair.run(20_000 * MS);
        let sent = payload(5_000, 1);
        if writes {
            assert_eq!(pair.sides[0].write(mine, &sent, pair.now), Ok(sent.len()));
            pair.run(5_000 * MS);
        } else {
            pair.run(55_000 * MS);
        }
        pair.path.loss = 0;
        pair.run(1_200_000 * MS);
        for (side, handle) in pair.sides.iter().zip([mine, yours]) {
            assert_eq!(side.status(handle).map(|status| status.state), Some(State::Established), "{writes}");
            assert_eq!(side.counters().timeouts, 0, "{writes}");
        }
        let mut received = Vec::new();
        pair.read(1, yours, &mut received);
        assert!(received == if writes { &sent[..] } else { &[] }, "{writes}");
    }
}

/// A megabyte that is shared: each connection holds all of it until it is acknowledged, in both directions, under loss, and none
/// copies it.
#[test]
fn a_shared_body_takes_no_memory_of_a_connection() {
    const LEN: usize = 1 << 20;
    let tcp = TcpConfig { send_buffer: 2 * LEN as u32, ..TcpConfig::default() };
    let body: Arc<[u8]> = payload(40_000, 1).into();
    let expected: Vec<u8> = b"head".iter().chain(body.iter().cycle().take(LEN)).copied().collect();
    for shared in [true, false] {
        let mut pair = Pair::new(Path { loss: 20, ..Path::CLEAN }, tcp, 1);
        let connections: Vec<_> = (0..4).map(|_| pair.connected(false)).collect();
        for (side, handle) in connections.iter().flat_map(|both| both.iter().enumerate()) {
            let stack = &mut pair.sides[side];
            assert_eq!(stack.write(*handle, b"head", pair.now), Ok(4));
            let taken = match shared {
                true => stack.write_shared(*handle, &body, 0, LEN, pair.now),
                false => stack.write(*handle, &expected[4..], pair.now),
            };
            assert_eq!(taken, Ok(LEN));
        }
        let mut received = vec![[Vec::new(), Vec::new()]; 4];
        let mut most = 0;
        assert!(pair.until(3_600_000 * MS, |pair| {
            most = most.max(pair.sides[0].send_memory()).max(pair.sides[1].send_memory());
            let mut all = true;
            for (handles, received) in connections.iter().zip(&mut received) {
                for side in 0..2 {
                    pair.read(side, handles[side], &mut received[side]);
                    all &= received[side].len() == expected.len();
                }
            }
            all
        }));
        assert!(received.iter().flatten().all(|bytes| *bytes == expected), "byte for byte");
        assert!(pair.sides.iter().all(|side| side.counters().retransmitted > 0), "some of it was sent again");
        assert_eq!(most < LEN / 64, shared, "{most} bytes");
        pair.run(1_000 * MS);
        assert_eq!(Arc::strong_count(&body), 1, "what is acknowledged is let go");
    }
}

fn settings() -> impl Strategy<Value = TcpConfig> {
    (any::<(bool, bool, bool, bool)>(), 2_000u32..100_000, 2_000u32..100_000).prop_map(
        |((sack, timestamps, window_scale, cubic), receive_buffer, send_buffer)| TcpConfig {
            control: if cubic { CongestionControl::Cubic } else { CongestionControl::NewReno },
            sack,
            timestamps,
            window_scale,
            receive_buffer,
            send_buffer,
            // a path of the test loses too much for the usual patience
            retries: 200,
            syn_retries: 200,
            ..TcpConfig::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn every_byte_arrives_once_and_in_order(
        loss in 0u32..150, twice in 0u32..100, jitter in 0u64..20 * MS, delay in 1u64..50 * MS,
        len in (0usize..120_000, 0usize..120_000), tcp in settings(), v6 in any::<bool>(), large in any::<bool>(),
        shared in proptest::option::of(1usize..9_000), seed in any::<u64>(),
    ) {
        let by = TsoLimits { v6: true, longest: 20_000, longest_segment: 1_500 };
        let offload = Offload { checksums: large, segmentation: large.then_some(by) };
        let source = shared.map_or(Source::Copied, Source::Shared);
        transfer_from(source, Path { delay, jitter, loss, twice, offload }, tcp, [len.0, len.1], v6, seed);
    }
}

#[test]
fn cubic_fills_a_long_path_sooner_than_newreno() {
    // 100 ms there and back, and a loss when the window is large
    let took = [CongestionControl::NewReno, CongestionControl::Cubic].map(|control| {
        let tcp =
            TcpConfig { control, receive_buffer: 4 << 20, send_buffer: 4 << 20, ..TcpConfig::default() };
        transfer(Path { delay: 50 * MS, loss: 1, ..Path::CLEAN }, tcp, [30_000_000, 0], false, 5).1 / MS
    });
    assert!(took[1] < took[0], "{took:?} ms");
}
