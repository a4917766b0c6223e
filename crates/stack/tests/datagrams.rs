//! Datagram sockets of two stacks, one at each end of a link.

use crate::link::{Full, Pair, Path};
use crate::wire::{Frames, MS, ip};
use packet::ethernet::{self, Ethernet};
use packet::{checksum, ipv4};
use stack::{Arrival, DatagramError, SendOutcome, Sent, SocketHandle, SocketKind, Stack, TcpConfig};
use std::net::SocketAddr;

const ROOM: usize = 1 << 20;

fn pair() -> Pair {
    Pair::new(Path::CLEAN, TcpConfig::default(), 1)
}

fn open(pair: &mut Pair, side: u8, kind: SocketKind, port: u16, v6: bool) -> SocketHandle {
    let remote = SocketAddr::new(ip(1 - side, v6), port);
    let side = usize::from(side);
    pair.sides[side].open_socket(kind, ip(side as u8, v6), remote, 7, ROOM).expect("a port")
}

/// Send from side 0; what the stack has to send goes with it.
fn send(pair: &mut Pair, socket: SocketHandle, bytes: &[u8]) -> Sent {
    let (now, mut out) = (pair.now, Frames::default());
    let sent = pair.sides[0].send_datagram(socket, bytes, now, &mut out);
    for frame in out.0 {
        pair.sides[1].receive(&frame, now);
    }
    sent
}

fn receive(stack: &mut Stack, socket: SocketHandle) -> (Arrival, Vec<u8>) {
    let mut buffer = [0; 2048];
    let arrival = stack.receive_datagram(socket, &mut buffer);
    let len = if let Arrival::Datagram(len, _) = arrival { len } else { 0 };
    (arrival, buffer[..len].to_vec())
}

#[test]
fn datagrams_wait_for_the_next_hop_and_keep_their_order() {
    for v6 in [false, true] {
        let mut pair = pair();
        let here = open(&mut pair, 0, SocketKind::Udp, 40_000, v6);
        // ports come in turn: the first socket of each side has the first
        let there = open(&mut pair, 1, SocketKind::Udp, 40_000, v6);
        assert_eq!(pair.sides[0].socket_local(here), Some(SocketAddr::new(ip(0, v6), 40_000)));
        for n in 0..3u8 {
            assert_eq!(send(&mut pair, here, &[n; 100]), Sent::Taken);
        }
        assert_eq!(pair.sides[0].counters().datagrams_sent, 0);
        pair.run(100 * MS);
        assert_eq!(pair.sides[0].counters().datagrams_sent, 3);
        for n in 0..3u8 {
            let expected = (Arrival::Datagram(100, n < 2), vec![n; 100]);
            assert_eq!(receive(&mut pair.sides[1], there), expected);
        }
        assert_eq!(receive(&mut pair.sides[1], there).0, Arrival::Dry);
        // now it is known: it goes at once
        assert_eq!(send(&mut pair, here, b"at once"), Sent::Taken);
        assert_eq!(pair.sides[1].event().map(|event| (event.owner, event.readable)), Some((7, true)));
        assert_eq!(receive(&mut pair.sides[1], there), (Arrival::Datagram(7, false), b"at once".to_vec()));
        assert_eq!(pair.sides[1].event(), None);
    }
}

#[test]
fn a_short_datagram_does_not_overtake_the_fragments_of_a_long_one() {
    const SIZES: [usize; 4] = [3_000, 100, 5_000, 50];
    for v6 in [false, true] {
        let mut pair = pair();
        let here = open(&mut pair, 0, SocketKind::Udp, 40_000, v6);
        let there = open(&mut pair, 1, SocketKind::Udp, 40_000, v6);
        let arrived = |pair: &mut Pair| {
            let mut buffer = [0; 8192];
            SIZES.map(|_| match pair.sides[1].receive_datagram(there, &mut buffer) {
                Arrival::Datagram(len, _) => len,
                other => panic!("{other:?}"),
            })
        };
        // first they wait for the next hop, then each goes at once
        for _ in 0..2 {
            for size in SIZES {
                assert_eq!(send(&mut pair, here, &vec![1; size]), Sent::Taken);
            }
            pair.run(100 * MS);
            assert_eq!(arrived(&mut pair), SIZES);
        }
        // what a full port takes no fragments of, it takes no datagram behind
        let (now, stack) = (pair.now, &mut pair.sides[0]);
        assert_eq!(stack.send_datagram(here, &[1; 3_000], now, &mut Full), Sent::Taken);
        assert_eq!(stack.send_datagram(here, &[1; 100], now, &mut Full), Sent::Full);
    }
}

#[test]
fn the_answers_of_a_server_keep_their_order() {
    let mut pair = pair();
    let here = open(&mut pair, 0, SocketKind::Udp, 5683, false);
    pair.sides[1].listen_datagrams(SocketAddr::new(ip(1, false), 5683), ROOM);
    let asks = pair.sides[0].socket_local(here).expect("an address");
    let answer = |pair: &mut Pair, size| {
        let (now, mut out) = (pair.now, Frames::default());
        let outcome = pair.sides[1].send_datagram_to(asks, &vec![1; size], now, &mut out);
        out.0.iter().for_each(|frame| _ = pair.sides[0].receive(frame, now));
        outcome
    };
    // the first asks for the next hop
    assert_eq!(answer(&mut pair, 1), SendOutcome::Later);
    pair.run(100 * MS);
    for size in [3_000, 100] {
        assert_eq!(answer(&mut pair, size), SendOutcome::Sent);
    }
    pair.run(100 * MS);
    let mut buffer = [0; 4096];
    assert_eq!(pair.sides[0].receive_datagram(here, &mut buffer), Arrival::Datagram(3_000, true));
    assert_eq!(pair.sides[0].receive_datagram(here, &mut buffer), Arrival::Datagram(100, false));
}

#[test]
fn a_host_answers_echo_requests_of_each_identifier() {
    for v6 in [false, true] {
        let mut pair = pair();
        let sockets = [(); 2].map(|()| open(&mut pair, 0, SocketKind::Echo, 0, v6));
        // the type is the stack's business, and so are identifier and checksum
        let message = [8, 0, 0, 0, 0, 0, 0, 5, b'a', b'b', b'c'];
        for socket in sockets {
            assert_eq!(send(&mut pair, socket, &message), Sent::Taken);
        }
        pair.run(100 * MS);
        for (socket, identifier) in sockets.into_iter().zip([1, 2]) {
            let (arrival, reply) = receive(&mut pair.sides[0], socket);
            assert_eq!(arrival, Arrival::Datagram(message.len(), false));
            assert_eq!((reply[0], reply[5]), (if v6 { 129 } else { 0 }, identifier));
            assert_eq!(reply[6..], message[6..]);
        }
    }
}

#[test]
fn who_does_not_answer_fails_every_datagram_that_waits() {
    let mut pair = pair();
    let nobody = SocketAddr::new("10.0.0.77".parse().expect("an address"), 9);
    let socket = pair.sides[0].open_socket(SocketKind::Udp, ip(0, false), nobody, 3, ROOM).expect("a port");
    for _ in 0..4 {
        assert_eq!(send(&mut pair, socket, b"anybody?"), Sent::Taken);
    }
    // more than what may wait is lost at once
    (0..700).for_each(|_| assert_eq!(send(&mut pair, socket, &[0; 100]), Sent::Taken));
    pair.run(4_000 * MS);
    let (mut lost, mut arrival) = (0, receive(&mut pair.sides[0], socket).0);
    while let Arrival::Error(why, times) = arrival {
        assert_eq!(why, DatagramError::NoNeighbour);
        lost += times;
        arrival = receive(&mut pair.sides[0], socket).0;
    }
    assert_eq!((lost, arrival), (704, Arrival::Dry));
}

#[test]
fn a_full_queue_says_what_it_dropped_and_a_closed_socket_hears_nothing() {
    let mut pair = pair();
    let here = open(&mut pair, 0, SocketKind::Udp, 40_000, false);
    let from = SocketAddr::new(ip(0, false), 40_000);
    let there = pair.sides[1].open_socket(SocketKind::Udp, ip(1, false), from, 1, 3 * 164).expect("a port");
    for n in 0..5u8 {
        send(&mut pair, here, &[n; 100]);
    }
    pair.run(100 * MS);
    assert_eq!(receive(&mut pair.sides[1], there).0, Arrival::Dropped(2));
    assert_eq!(receive(&mut pair.sides[1], there).1, [0; 100]);
    assert_eq!(pair.sides[1].counters().dropped(stack::DropReason::SocketFull), 2);
    send(&mut pair, here, b"one more");
    assert_eq!(pair.sides[1].close_socket(there), (0, 0));
    send(&mut pair, here, b"nobody there");
    assert_eq!(receive(&mut pair.sides[1], there).0, Arrival::Dry);
    assert_eq!(pair.sides[1].counters().dropped(stack::DropReason::NoConnection), 1);
    assert_eq!(pair.sides[1].event(), None);
}

#[test]
fn sockets_of_one_peer_have_a_port_each_until_there_is_none() {
    let mut pair = pair();
    let sockets: Vec<_> = (0..100).map(|_| open(&mut pair, 0, SocketKind::Udp, 9, false)).collect();
    let remote = SocketAddr::new(ip(1, false), 9);
    let more = |stack: &mut Stack| stack.open_socket(SocketKind::Udp, ip(0, false), remote, 0, ROOM);
    assert!(more(&mut pair.sides[0]).is_err());
    pair.sides[0].close_socket(sockets[40]);
    let again = more(&mut pair.sides[0]).expect("the free one");
    assert_eq!(pair.sides[0].socket_local(again).map(|local| local.port()), Some(40_040));
}

/// An ICMP error of this type and code from side 1 about `packet`, an IPv4 packet of side 0.
pub fn error(kind: u8, code: u8, packet: &[u8]) -> Vec<u8> {
    const IP: usize = ethernet::LEN;
    const ICMP: usize = IP + ipv4::LEN;
    let mut frame = vec![0; ICMP];
    frame.extend([kind, code, 0, 0, 0, 0, 0, 0]);
    frame.extend_from_slice(packet);
    let (destination, source) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    Ethernet { destination, source, kind: ethernet::kind::IPV4 }.emit(frame.first_chunk_mut().expect("room"));
    let sum = checksum::of(&frame[ICMP..]).to_be_bytes();
    frame[ICMP + 2..ICMP + 4].copy_from_slice(&sum);
    let payload = (frame.len() - ICMP) as u16;
    let (source, destination) = ([10, 0, 0, 2].into(), [10, 0, 0, 1].into());
    let header = ipv4::Ipv4 { source, destination, protocol: 1, ttl: 64, dscp: 0, payload };
    header.emit(frame[IP..].first_chunk_mut().expect("room"));
    frame
}

#[test]
fn icmp_errors_reach_the_socket_that_they_quote() {
    let mut pair = pair();
    let sockets = [SocketKind::Udp, SocketKind::Echo].map(|kind| open(&mut pair, 0, kind, 9, false));
    send(&mut pair, sockets[0], b"first");
    pair.run(100 * MS);
    // nobody listens there
    let refused = Arrival::Error(DatagramError::Icmp { v6: false, kind: 3, code: 3 }, 1);
    assert_eq!(receive(&mut pair.sides[0], sockets[0]).0, refused);
    for (socket, kind) in sockets.into_iter().zip([SocketKind::Udp, SocketKind::Echo]) {
        let (now, mut out) = (pair.now, Frames::default());
        let message = [8, 0, 0, 0, 0, 0, 0, 5, b'a', b'b', b'c'];
        pair.sides[0].send_datagram(socket, &message, now, &mut out);
        let frame = out.0.pop().expect("sent");
        for (kind, code) in [(3, 3), (3, 1), (5, 0)] {
            pair.sides[0].receive(&error(kind, code, &frame[14..]), now);
        }
        // another port, or identifier: nobody's
        let mut foreign = frame[14..].to_vec();
        foreign[if kind == SocketKind::Udp { 21 } else { 25 }] ^= 64;
        pair.sides[0].receive(&error(3, 3, &foreign), now);
        let stack = &mut pair.sides[0];
        match kind {
            SocketKind::Udp => {
                let told = |code| Arrival::Error(DatagramError::Icmp { v6: false, kind: 3, code }, 1);
                assert_eq!([(); 2].map(|()| receive(stack, socket).0), [told(1), told(3)]);
            }
            SocketKind::Echo => {
                let told = [(); 2].map(|()| receive(stack, socket).1);
                assert_eq!((&told[0][..2], &told[1][..2]), (&[3, 3][..], &[3, 1][..]));
            }
        }
        assert_eq!(receive(stack, socket).0, Arrival::Dry);
    }
    assert_eq!(pair.sides[0].counters().dropped(stack::DropReason::ForeignIcmp), 2);
}

#[test]
fn a_server_hears_everybody_and_answers_whoever_sent() {
    for v6 in [false, true] {
        let mut pair = pair();
        let at = SocketAddr::new(ip(1, v6), 5683);
        pair.sides[1].listen_datagrams(at, 3 * 164);
        let [first, second] = [(); 2].map(|()| open(&mut pair, 0, SocketKind::Udp, 5683, v6));
        for (n, socket) in [first, second, first, second].into_iter().enumerate() {
            assert_eq!(send(&mut pair, socket, &[n as u8; 50]), Sent::Taken);
        }
        pair.run(100 * MS);
        let mut buffer = [0; 2048];
        // those that waited for the next hop leave socket by socket
        for (n, socket) in [(0, first), (2, first), (1, second)] {
            let from = pair.sides[0].socket_local(socket).expect("an address");
            assert_eq!(pair.sides[1].take_datagram(&mut buffer), Some((50, from)));
            assert_eq!(buffer[0], n);
            // the next hop is asked for, and then known
            let mut later = 0;
            loop {
                let (now, mut out) = (pair.now, Frames::default());
                let sent = pair.sides[1].send_datagram_to(from, &buffer[..50], now, &mut out);
                out.0.iter().for_each(|frame| _ = pair.sides[0].receive(frame, now));
                match sent {
                    SendOutcome::Sent => break,
                    SendOutcome::Later => later += 1,
                    SendOutcome::Lost => panic!("it knows the way"),
                }
                pair.run(10 * MS);
            }
            assert_eq!(later > 0, n == 0);
            assert_eq!(receive(&mut pair.sides[0], socket).1, [n; 50]);
        }
        assert!(!pair.sides[1].has_datagram());
        assert_eq!(pair.sides[1].overflowed_datagrams(), 1, "there was no room for the fourth");
    }
}

/// An echo request of side 0 with so many bytes of data, in as many packets as it takes, and the reply.
#[test]
fn a_large_echo_is_answered_in_fragments() {
    for v6 in [false, true] {
        for bytes in [10, 3000, 65_000] {
            let mut pair = pair();
            let socket = open(&mut pair, 0, SocketKind::Echo, 0, v6);
            let mut message = vec![8, 0, 0, 0, 0, 0, 0, 5];
            message.extend((0..bytes).map(|i| (i * 7) as u8));
            assert_eq!(send(&mut pair, socket, &message), Sent::Taken);
            pair.run(100 * MS);
            let mut buffer = vec![0; 1 << 16];
            let arrival = pair.sides[0].receive_datagram(socket, &mut buffer);
            assert_eq!(arrival, Arrival::Datagram(message.len(), false), "{bytes}");
            assert_eq!(buffer[8..message.len()], message[8..], "{bytes}");
        }
    }
}

#[test]
fn a_closed_port_is_unreachable() {
    for v6 in [false, true] {
        let mut pair = pair();
        let socket = open(&mut pair, 0, SocketKind::Udp, 9, v6);
        for bytes in [5, 3000] {
            send(&mut pair, socket, &vec![1; bytes]);
            pair.run(100 * MS);
            let (kind, code) = if v6 { (1, 4) } else { (3, 3) };
            let told = Arrival::Error(DatagramError::Icmp { v6, kind, code }, 1);
            assert_eq!(receive(&mut pair.sides[0], socket).0, told, "{bytes}");
        }
        let counters = pair.sides[1].counters();
        assert_eq!((counters.icmp_errors_sent, counters.icmp_errors_limited), (2, 0));
        assert_eq!(counters.dropped(stack::DropReason::NoConnection), 2);
    }
}

/// RFC 1122 section 3.2.2, RFC 4443 section 2.4.
#[test]
fn errors_are_sent_to_one_host_alone_and_not_too_many() {
    let mut pair = pair();
    let socket = open(&mut pair, 0, SocketKind::Udp, 9, false);
    send(&mut pair, socket, b"known");
    pair.run(100 * MS);
    let (now, mut out) = (pair.now, Frames::default());
    pair.sides[0].send_datagram(socket, b"anybody?", now, &mut out);
    let frame = out.0.remove(0);
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = frame.clone();
        change(&mut frame);
        // the header's checksum, and none of UDP
        frame[24..26].fill(0);
        let sum = checksum::of(&frame[14..34]).to_be_bytes();
        frame[24..26].copy_from_slice(&sum);
        frame[40..42].fill(0);
        frame
    };
    let before = pair.sides[1].counters().icmp_errors_sent;
    let sent = |pair: &Pair| pair.sides[1].counters().icmp_errors_sent - before;
    // to all hosts of the link, to a group, and from what stands for all hosts of the network
    let nobody = [
        changed(&|frame| frame[..6].fill(0xff)),
        changed(&|frame| frame[30..34].copy_from_slice(&[224, 0, 0, 1])),
        changed(&|frame| frame[29] = 255),
    ];
    for frame in nobody {
        pair.sides[1].receive(&frame, now);
        assert_eq!(sent(&pair), 0);
    }
    for _ in 0..60 {
        pair.sides[1].receive(&frame, now);
    }
    assert_eq!((sent(&pair), pair.sides[1].counters().icmp_errors_limited), (50, 10));
    pair.sides[1].receive(&frame, now + MS);
    assert_eq!(sent(&pair), 51);
}
