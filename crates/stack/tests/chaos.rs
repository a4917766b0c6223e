//! Segments that make no sense: no panic, bounded memory, and a connection that a stranger cannot end.

use crate::link::{Pair, Path};
use crate::lockstep;
use crate::wire::{Frames, MS, config, ip, mac, segment};
use packet::Layers;
use packet::checksum;
use packet::tcp::{Header, Options, flag};
use proptest::prelude::*;
use stack::{Stack, State, TcpConfig};
use std::net::SocketAddr;

fn frame(header: &Header, payload: usize) -> Vec<u8> {
    segment(0, false, header, &vec![0xa5; payload])
}

/// A stack with one connection, established; its handle, and a header as the peer would send next.
fn established() -> (Stack, stack::Handle, Header, u64) {
    let tcp = TcpConfig { receive_buffer: 20_000, send_buffer: 20_000, ..TcpConfig::default() };
    let mut stack = Stack::new(stack::Config { peer: Some(mac(1)), ..config(0, tcp) });
    stack.listen(80, 10);
    let now = 5_000 * MS;
    let remote = SocketAddr::new(ip(1, false), 80);
    let handle = stack.connect(ip(0, false), remote, 1, now).expect("a port");
    let mut out = Frames::default();
    stack.transmit(now, &mut out);
    let layers = Layers::find(&out.0[0]).expect("headers");
    let (syn, _) = Header::parse(layers.segment(&out.0[0])).expect("a SYN");
    let options =
        Options { mss: Some(1000), sack_permitted: true, window_scale: Some(2), ..Options::default() };
    let answer = Header {
        source: 80,
        destination: syn.source,
        sequence: 1_000_000,
        acknowledgment: syn.sequence.wrapping_add(1),
        flags: flag::SYN | flag::ACK,
        window: 5_000,
        options,
    };
    stack.receive(&frame(&answer, 0), now);
    let next = Header { sequence: 1_000_001, flags: flag::ACK, options: Options::default(), ..answer };
    (stack, handle, next, now)
}

type Step = (u8, i32, i32, u16, usize, bool, u64, Vec<(i32, i32)>);

fn step() -> impl Strategy<Value = Step> {
    let near = || prop_oneof![-30i32..30, -30_000i32..30_000, any::<i32>()];
    (
        any::<u8>(),
        near(),
        near(),
        any::<u16>(),
        0usize..1400,
        any::<bool>(),
        0u64..2_000 * MS,
        proptest::collection::vec((near(), near()), 0..4),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn no_segments_panic_and_memory_stays_bounded(steps in proptest::collection::vec(step(), 1..120)) {
        let (mut stack, handle, base, mut now) = established();
        let mut buffer = [0; 3000];
        for (flags, sequence, ack, window, len, own, wait, sacks) in steps {
            let mut options = Options { sacks: sacks.len() as u8, ..Options::default() };
            for (place, (left, right)) in options.sack.iter_mut().zip(&sacks) {
                let at = |offset: &i32| base.acknowledgment.wrapping_add_signed(*offset);
                *place = (at(left), at(right));
            }
            let header = Header {
                sequence: base.sequence.wrapping_add_signed(sequence),
                acknowledgment: base.acknowledgment.wrapping_add_signed(ack),
                // mostly such as a connection goes on with
                flags: if own { flag::ACK } else { flags },
                window,
                options,
                ..base
            };
            now += wait;
            stack.receive(&frame(&header, len), now);
            let _maybe_over = stack.write(handle, &buffer[..len], now);
            if own {
                let _maybe_over = stack.read(handle, &mut buffer, now);
            }
            stack.advance(now);
            let mut out = Frames::default();
            prop_assert!(stack.transmit(now, &mut out));
            for sent in &out.0 {
                let layers = Layers::find(sent).expect("right headers");
                prop_assert!(layers.is_intact(sent));
            }
            prop_assert!(stack.connections() <= 11, "those that are half open count");
            let held = stack.status(handle).map_or(0, |status| status.held);
            prop_assert!(held <= 20_000, "{}", held);
        }
    }

    /// The same that the fuzz target `tcp` does.
    #[test]
    fn whatever_the_path_does_a_simple_reference_agrees(input in proptest::collection::vec(any::<u8>(), 0..3_000)) {
        lockstep::play(&input);
    }

    #[test]
    fn no_bytes_panic(changes in proptest::collection::vec((0usize..80, any::<u8>()), 0..8), cut in 0usize..80) {
        let (mut stack, _, base, now) = established();
        let mut bytes = frame(&base, 20);
        for (at, value) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = value;
            }
        }
        bytes.truncate(cut.max(1));
        stack.receive(&bytes, now);
        stack.transmit(now, &mut Frames::default());
    }

    /// Who does not know the sequence numbers neither ends the connection nor puts a byte into it (RFC 5961).
    #[test]
    fn a_stranger_neither_ends_a_connection_nor_adds_to_it(
        guesses in proptest::collection::vec((1u32.., any::<u32>(), 0usize..100, any::<bool>()), 1..100)
    ) {
        let (mut stack, handle, base, now) = established();
        for (off, ack, len, reset) in guesses {
            // data must acknowledge what was sent: a guess of that is right once in four thousand million
            prop_assume!(ack.wrapping_sub(base.acknowledgment) > 0 && ack.wrapping_sub(base.acknowledgment) < u32::MAX - 20_000);
            let flags = if reset { flag::RST } else { flag::ACK | flag::PSH };
            let sequence = base.sequence.wrapping_add(off);
            let header = Header { sequence, acknowledgment: ack, flags, ..base };
            stack.receive(&frame(&header, if reset { 0 } else { len }), now);
            stack.transmit(now, &mut Frames::default());
        }
        prop_assert_eq!(stack.status(handle).map(|status| status.state), Some(State::Established));
        prop_assert_eq!(stack.read(handle, &mut [0; 10], now), Ok(stack::Received::Dry));
    }
}

#[test]
fn a_flood_of_syns_takes_no_more_than_the_listener_allows() {
    let (mut stack, handle, base, now) = established();
    for n in 0..5_000u16 {
        let header = Header { source: n.wrapping_add(1_000), destination: 80, flags: flag::SYN, ..base };
        stack.receive(&frame(&header, 0), now);
        stack.transmit(now, &mut Frames::default());
    }
    assert_eq!(stack.connections(), 1 + 10);
    assert_eq!(stack.counters().cookies_sent, 5_000 - 10);
    assert_eq!(stack.status(handle).map(|status| status.state), Some(State::Established));
}

/// While one side waits for the answer to its SYN, a SYN from its peer's address with some sequence number comes, and each
/// side finds the other's SYN+ACK out of its window: that comes to rest.
#[test]
fn a_forged_syn_during_the_handshake_starts_no_endless_exchange() {
    lockstep::play(&[
        18, 121, 222, 167, 79, 105, 147, 245, 228, 108, 173, 103, 4, 42, 29, 71, 211, 216, 225, 189, 26, 231,
        181, 145, 220, 216, 156, 166, 126, 232, 34, 20, 248, 159, 82, 33, 151, 225, 243, 83, 161, 182, 92,
        28, 173, 138, 191, 226, 182, 61, 164, 44, 121, 202, 109, 0, 143, 60, 176, 218, 19, 75, 27, 198, 78,
        54, 154, 98, 240, 85, 184, 139, 7,
    ]);
}

/// A SYN that comes again, at the moment at which its connection has ended: the next begins with the same sequence number.
#[test]
fn an_old_syn_after_the_end_begins_another_connection() {
    lockstep::play(&[
        250, 192, 30, 192, 11, 215, 170, 141, 26, 167, 79, 152, 151, 97, 196, 56, 74, 7, 160, 4, 159, 147,
        234, 76, 197, 12, 58, 132, 0, 156, 212, 129, 234, 205, 221, 130, 133, 217, 158, 26, 188, 89, 87, 134,
        195, 174, 206, 78, 164, 248, 123, 238, 177, 110, 66, 2, 153, 39, 170, 114, 94, 249, 77, 165, 88, 207,
        212, 151, 39, 79, 165, 1, 213, 233, 110, 204, 219, 164, 223, 237, 104, 241, 218, 145, 156, 25, 89,
        163, 242, 27, 208, 203, 123, 180, 139, 20, 170, 250, 87, 115, 13, 174, 160, 203, 81, 214, 2, 24, 92,
        82, 236, 30, 53, 213, 10, 134, 26, 10, 111, 64, 97, 204, 21, 233, 64, 81, 43, 57, 135, 162, 22, 9,
        253, 24, 20, 198, 205, 83, 247, 185, 190, 176, 110, 14, 209, 132, 102, 1, 21, 21, 229, 210, 33, 115,
        178, 242, 222, 110, 164, 255, 211, 101, 177, 76, 87, 103, 122, 111, 25, 107, 132, 138, 5, 24, 81, 88,
        163, 225, 186, 254, 195, 143, 1, 145, 192, 203, 56, 226, 19, 72, 63, 169, 13, 211, 200, 172, 241,
        227, 30, 241, 41, 15, 140, 165, 122, 103, 62, 133, 218, 221, 131, 2, 143, 223, 89, 66, 10, 175, 211,
        145, 67, 209, 184, 18, 184, 15, 226, 151, 162, 104, 108, 29, 138, 110, 147, 220, 76, 68, 189, 233,
        213, 222, 14, 230, 209, 85, 198, 29, 179, 59, 75, 216, 149, 15, 162, 6, 24, 171, 194, 220, 158, 217,
        22, 45, 107, 51, 85, 207, 254, 32, 63, 17, 83, 118, 74, 240, 41, 245, 244, 227, 62, 126, 75, 49, 25,
        153, 106, 193, 242, 99, 98, 29, 244, 241, 139, 24, 57, 193, 158, 110, 12, 87, 137, 216, 152, 102, 68,
        78, 59, 42, 192, 243, 69, 63, 152, 5, 223, 151, 146, 109, 239, 198, 144, 232, 65, 180, 11, 128, 112,
        39, 76, 153, 38, 223, 116, 206, 172, 114, 199, 165, 78, 215, 144, 130, 51, 222, 138, 85, 151,
    ]);
}

#[test]
fn who_answers_a_flooded_listener_is_served_by_a_cookie() {
    for v6 in [false, true] {
        let mut pair = Pair::new(Path::CLEAN, TcpConfig::default(), 1);
        for n in 0..100 {
            let syn = Header {
                source: 1_000 + n,
                destination: 80,
                sequence: 5,
                acknowledgment: 0,
                flags: flag::SYN,
                window: 1_000,
                options: Options::default(),
            };
            let now = pair.now;
            pair.sides[1].receive(&segment(1, v6, &syn, &[]), now);
        }
        let [mine, yours] = pair.connected(v6);
        let counters = pair.sides[1].counters();
        assert_eq!((counters.cookies_sent, counters.cookies_accepted), (1, 1));
        let sent: Vec<u8> = (0..100_000u32).map(|i| (i >> 3) as u8).collect();
        let (mut given, mut got) = (0, Vec::new());
        let all = pair.until(60_000 * MS, |pair| {
            given += pair.sides[0].write(mine, &sent[given..], pair.now).expect("open");
            pair.read(1, yours, &mut got);
            got.len() == sent.len()
        });
        assert!(all && got == sent, "{} of {}", got.len(), sent.len());
    }
}

#[test]
fn a_forged_cookie_begins_nothing() {
    let mut pair = Pair::new(Path::CLEAN, TcpConfig::default(), 1);
    let header = |flags, n: u32| Header {
        source: 1_000 + n as u16,
        destination: 80,
        sequence: n,
        acknowledgment: n.wrapping_mul(0x9e37_79b9),
        flags,
        window: 1_000,
        options: Options::default(),
    };
    let now = pair.now;
    for n in 0..101 {
        pair.sides[1].receive(&segment(1, false, &header(flag::SYN, n), &[]), now);
    }
    let before = pair.sides[1].connections();
    for n in 0..10_000 {
        pair.sides[1].receive(&segment(1, false, &header(flag::ACK, n + 200), &[]), now);
        pair.sides[1].transmit(now, &mut Frames::default());
    }
    assert_eq!((pair.sides[1].connections(), pair.sides[1].counters().cookies_accepted), (before, 0));
}

#[test]
fn two_that_are_out_of_step_do_not_answer_each_other_for_ever() {
    let (mut stack, _, base, now) = established();
    stack.transmit(now, &mut Frames::default());
    let old = Header { sequence: base.sequence.wrapping_sub(1), ..base };
    let mut out = Frames::default();
    for _ in 0..1_000 {
        stack.receive(&frame(&old, 0), now);
        assert!(stack.transmit(now, &mut out));
    }
    assert_eq!(out.0.len(), 10, "in one second");
}

#[test]
fn what_comes_from_no_host_is_not_answered() {
    let mut stack = Stack::new(stack::Config { peer: Some(mac(1)), ..config(0, TcpConfig::default()) });
    stack.listen(80, 10);
    let syn = Header {
        source: 1_000,
        destination: 80,
        sequence: 1,
        acknowledgment: 0,
        flags: flag::SYN,
        window: 1_000,
        options: Options::default(),
    };
    let good = frame(&syn, 0);
    for source in [[127, 0, 0, 1], [224, 0, 0, 1], [255; 4], [0; 4], [10, 0, 0, 1]] {
        let mut bytes = good.clone();
        bytes[26..30].copy_from_slice(&source);
        bytes[24..26].fill(0);
        let sum = checksum::Sum::ZERO.bytes(&bytes[14..34]).checksum();
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        stack.receive(&bytes, MS);
    }
    let mut out = Frames::default();
    stack.transmit(MS, &mut out);
    assert_eq!((stack.connections(), out.0.len()), (0, 0));
    assert_eq!(stack.counters().dropped(stack::DropReason::BadSource), 5);
}
