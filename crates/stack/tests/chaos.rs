//! Segments that make no sense: no panic, bounded memory, and a connection that a stranger cannot end.

use crate::link::{Frames, MS, config, ip};
use packet::ethernet::{Ethernet, LEN as ETHERNET, kind};
use packet::ipv4::{self, Ipv4};
use packet::layers::protocol;
use packet::tcp::{Header, Options, flag};
use packet::{Layers, checksum};
use proptest::prelude::*;
use stack::{Stack, State, TcpConfig};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn v4(side: u8) -> Ipv4Addr {
    match ip(side, false) {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}

fn frame(header: &Header, payload: usize) -> Vec<u8> {
    let segment = header.size() + payload;
    let mut frame = vec![0xa5; ETHERNET + ipv4::LEN + segment];
    let ethernet = Ethernet { destination: [2, 0, 0, 0, 0, 1], source: PEER, kind: kind::IPV4 };
    ethernet.emit(frame.first_chunk_mut().expect("room"));
    let (source, destination, protocol) = (v4(1), v4(0), protocol::TCP);
    let ip = Ipv4 { source, destination, protocol, ttl: 64, dscp: 0, payload: segment as u16 };
    ip.emit(frame[ETHERNET..].first_chunk_mut().expect("room"));
    let at = ETHERNET + ipv4::LEN;
    assert!(header.emit(&mut frame[at..]));
    let pseudo = checksum::pseudo_header(&frame[at - 8..at], protocol, segment as u32);
    let sum = pseudo.plus(checksum::Sum::ZERO.bytes(&frame[at..])).checksum();
    frame[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// A stack with one connection, established; its handle, and a header as the peer would send next.
fn established() -> (Stack, stack::Handle, Header, u64) {
    let tcp = TcpConfig { receive_buffer: 20_000, send_buffer: 20_000, ..TcpConfig::default() };
    let mut stack = Stack::new(stack::Config { peer: Some(PEER), ..config(0, tcp) });
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
    assert_eq!(stack.counters().dropped(stack::Drop::ListenerFull), 5_000 - 10);
    assert_eq!(stack.status(handle).map(|status| status.state), Some(State::Established));
}
