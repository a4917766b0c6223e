//! What a router says of a path's MTU (RFC 1191, RFC 8201): of whom it is believed, who uses it, and for how long.

use crate::datagrams::error;
use crate::limits::{established, sent, stack, tcp};
use crate::wire::{Frames, MS, ip, mac};
use packet::Layers;
use packet::ethernet::{Ethernet, LEN as ETHERNET, kind};
use packet::ipv6::{self, Ipv6};
use packet::layers::protocol;
use stack::{Config, DropReason, SocketHandle, SocketKind, Stack};
use std::net::SocketAddr;

const BEGIN: u64 = 10_000 * MS;
/// Ten minutes.
const AGE: u64 = 600_000 * MS;

/// A stack whose SYN offers no timestamps, so that segments are as long as the path lets them be.
fn plain() -> Stack {
    stack(|config| config.tcp.timestamps = false)
}

/// A router's word on an IPv4 packet of ours: it was too big, and `mtu` bytes would not be.
fn too_big(frame: &[u8], mtu: u16) -> Vec<u8> {
    let mut message = error(3, 4, &frame[ETHERNET..frame.len().min(ETHERNET + 40)]);
    let icmp = ETHERNET + 20;
    message[icmp + 6..icmp + 8].copy_from_slice(&mtu.to_be_bytes());
    message[icmp + 2..icmp + 4].fill(0);
    let sum = packet::checksum::of(&message[icmp..]).to_be_bytes();
    message[icmp + 2..icmp + 4].copy_from_slice(&sum);
    message
}

/// The same of IPv6 (RFC 4443 section 3.2).
fn too_big_v6(frame: &[u8], mtu: u32) -> Vec<u8> {
    let quoted = &frame[ETHERNET..frame.len().min(ETHERNET + 100)];
    let mut message = vec![2, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend_from_slice(quoted);
    let mut out = vec![0; ETHERNET + ipv6::LEN];
    let ethernet = Ethernet { destination: mac(0), source: mac(1), kind: kind::IPV6 };
    ethernet.emit(out.first_chunk_mut().expect("room"));
    let (source, destination) = ("fd00::2".parse().expect("v6"), "fd00::1".parse().expect("v6"));
    let payload = message.len() as u16;
    let header = Ipv6 { source, destination, next: protocol::ICMPV6, hops: 64, dscp: 0, payload };
    header.emit(out[ETHERNET..].first_chunk_mut().expect("room"));
    out.extend(message);
    let right = Layers::find(&out).expect("headers").checksum(&out);
    let at = ETHERNET + ipv6::LEN + 2;
    out[at..at + 2].copy_from_slice(&right.to_be_bytes());
    out
}

/// Lengths of the IP packets that a write of so many bytes makes, and the frames.
fn write(stack: &mut Stack, bytes: usize, now: u64) -> (Vec<usize>, Vec<Vec<u8>>) {
    let (handle, _) = established(stack, now);
    stack.write(handle, &vec![0; bytes], now).expect("up");
    let frames = sent(stack, now);
    stack.abort(handle, now);
    sent(stack, now);
    (frames.iter().map(|frame| frame.len() - ETHERNET).collect(), frames)
}

fn socket(stack: &mut Stack, kind: SocketKind, v6: bool) -> SocketHandle {
    stack.open_socket(kind, ip(0, v6), SocketAddr::new(ip(1, v6), 9), 7, 1 << 20).expect("a port")
}

/// The frames of a datagram of so many bytes.
fn datagram(stack: &mut Stack, socket: SocketHandle, bytes: usize, now: u64) -> Vec<Vec<u8>> {
    let mut out = Frames::default();
    stack.send_datagram(socket, &vec![8; bytes], now, &mut out);
    stack.transmit(now, &mut out);
    out.0
}

fn lengths(frames: &[Vec<u8>]) -> Vec<usize> {
    frames.iter().map(|frame| frame.len() - ETHERNET).collect()
}

/// Flags and offset of an IPv4 header.
fn fragment(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[ETHERNET + 6], frame[ETHERNET + 7]])
}

#[test]
fn what_one_connection_is_told_all_to_that_host_use() {
    let mut stack = plain();
    let udp = socket(&mut stack, SocketKind::Udp, false);
    let echo = socket(&mut stack, SocketKind::Echo, false);
    let whole = datagram(&mut stack, udp, 1472, BEGIN);
    assert_eq!((lengths(&whole), fragment(&whole[0])), (vec![1500], 0x4000), "with DF");
    let (handle, _) = established(&mut stack, BEGIN);
    stack.write(handle, &[0; 1460], BEGIN).expect("up");
    let frames = sent(&mut stack, BEGIN);
    stack.receive(&too_big(&frames[0], 1280), BEGIN);
    assert_eq!(lengths(&sent(&mut stack, BEGIN)), [1280, 260], "what was too long comes again");
    // a new connection, datagrams and echoes
    assert_eq!(write(&mut stack, 1460, BEGIN).0, [1280, 260]);
    for socket in [udp, echo] {
        let of = |bytes| if socket == udp { bytes } else { bytes + 8 };
        let frames = datagram(&mut stack, socket, of(1472), BEGIN);
        assert_eq!(lengths(&frames), [1276, 244]);
        assert_eq!([fragment(&frames[0]), fragment(&frames[1])], [0x2000, 157], "without DF");
        let whole = datagram(&mut stack, socket, of(1252), BEGIN);
        assert_eq!((lengths(&whole), fragment(&whole[0])), (vec![1280], 0x4000));
    }
    // other hosts' paths are others
    let other = SocketAddr::new("10.0.0.9".parse().expect("an address"), 9);
    let far = stack.open_socket(SocketKind::Udp, ip(0, false), other, 7, 1 << 20).expect("a port");
    assert_eq!(lengths(&datagram(&mut stack, far, 1472, BEGIN)), [1500]);
}

#[test]
fn after_ten_minutes_the_path_is_tried_again() {
    let mut stack = plain();
    let (handle, _) = established(&mut stack, BEGIN);
    stack.write(handle, &[0; 1460], BEGIN).expect("up");
    let frames = sent(&mut stack, BEGIN);
    stack.receive(&too_big(&frames[0], 1000), BEGIN);
    assert_eq!(lengths(&sent(&mut stack, BEGIN)), [1000, 540]);
    let (header, _) = tcp(&frames[0]);
    let acknowledge = packet::tcp::Header {
        source: 80,
        destination: header.source,
        sequence: 1,
        acknowledgment: header.sequence.wrapping_add(1460),
        flags: packet::tcp::flag::ACK,
        window: 60_000,
        options: packet::tcp::Options::default(),
    };
    stack.receive(&crate::wire::segment(0, false, &acknowledge, &[]), BEGIN);
    for (at, expected) in [(BEGIN + AGE - 1, vec![1000, 540]), (BEGIN + AGE, vec![1500])] {
        assert_eq!(write(&mut stack, 1460, at).0, expected);
    }
    // the connection that was told, too
    stack.write(handle, &[0; 1460], BEGIN + AGE).expect("up");
    assert_eq!(lengths(&sent(&mut stack, BEGIN + AGE)), [1500]);
}

#[test]
fn a_datagram_that_was_too_big_says_so_and_the_next_one_fits() {
    for v6 in [false, true] {
        let mut stack = plain();
        let udp = socket(&mut stack, SocketKind::Udp, v6);
        let headers = if v6 { 48 } else { 28 };
        // of IPv6 the first fragment of a longer one is quoted
        let bytes = if v6 { 3000 } else { 1500 - headers };
        let frames = datagram(&mut stack, udp, bytes, BEGIN);
        assert_eq!(lengths(&frames)[0], if v6 { 1496 } else { 1500 });
        let message = if v6 { too_big_v6(&frames[0], 1280) } else { too_big(&frames[0], 1280) };
        stack.receive(&message, BEGIN);
        assert_eq!(stack.counters().dropped(DropReason::ForeignIcmp), 0);
        let frames = datagram(&mut stack, udp, 1500 - headers, BEGIN);
        assert_eq!(lengths(&frames), if v6 { [1280, 276] } else { [1276, 244] });
    }
}

#[test]
fn only_who_quotes_a_flow_of_ours_is_believed() {
    let mut stack = plain();
    let udp = socket(&mut stack, SocketKind::Udp, false);
    let frames = datagram(&mut stack, udp, 1472, BEGIN);
    // another port, and a segment of a connection that is not in flight
    let mut foreign = frames[0].clone();
    foreign[ETHERNET + 21] ^= 64;
    let (_, segments) = write(&mut stack, 1460, BEGIN);
    for quoted in [&foreign, &segments[0]] {
        stack.receive(&too_big(quoted, 600), BEGIN);
    }
    assert_eq!(stack.counters().dropped(DropReason::ForeignIcmp), 2);
    assert_eq!(lengths(&datagram(&mut stack, udp, 1472, BEGIN)), [1500]);
    // less than IPv6 has everywhere
    let udp = socket(&mut stack, SocketKind::Udp, true);
    let frames = datagram(&mut stack, udp, 1452, BEGIN);
    stack.receive(&too_big_v6(&frames[0], 1279), BEGIN);
    assert_eq!(stack.counters().dropped(DropReason::ForeignIcmp), 3);
    assert_eq!(lengths(&datagram(&mut stack, udp, 1452, BEGIN)), [1500]);
    stack.receive(&too_big_v6(&frames[0], 1280), BEGIN);
    assert_eq!(lengths(&datagram(&mut stack, udp, 1452, BEGIN)), [1280, 276]);
}

#[test]
fn a_server_of_datagrams_believes_it_of_whom_it_answered() {
    let mut stack = stack(|config: &mut Config| config.peer = Some(mac(1)));
    stack.listen_datagrams(SocketAddr::new(ip(0, false), 5683), 1 << 20);
    let answer = |stack: &mut Stack, port| {
        let mut out = Frames::default();
        stack.send_datagram_to(SocketAddr::new(ip(1, false), port), &[1; 1472], BEGIN, &mut out);
        stack.transmit(BEGIN, &mut out);
        out.0
    };
    let frames = answer(&mut stack, 1000);
    assert_eq!(lengths(&frames), [1500]);
    let mut never = frames[0].clone();
    never[ETHERNET + 22..ETHERNET + 24].copy_from_slice(&2000u16.to_be_bytes());
    stack.receive(&too_big(&never, 1280), BEGIN);
    assert_eq!(stack.counters().dropped(DropReason::ForeignIcmp), 1);
    assert_eq!(lengths(&answer(&mut stack, 1000)), [1500]);
    stack.receive(&too_big(&frames[0], 1280), BEGIN);
    assert_eq!(stack.counters().dropped(DropReason::ForeignIcmp), 1);
    assert_eq!(lengths(&answer(&mut stack, 1000)), [1276, 244]);
}
