//! Frames that others build are understood, ours are understood by others, and broken ones are named.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use etherparse::{IpHeaders, NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use packet::frame::Written;
use packet::signature::{self, Signature};
use packet::udp::Datagram;
use packet::{Fault, Flow, Layers, Program, checksum, ethernet, ipv4, ipv6, udp};
use proptest::prelude::*;

const SIGNATURE: Signature = Signature { stream: 3, sequence: 77, sent_ns: 123_456_789_012 };

fn flow(v6: bool) -> Flow {
    let (source, destination) =
        if v6 { ("[fd00::1]:1000", "[fd00::2]:2000") } else { ("10.0.0.1:1000", "10.0.0.2:2000") };
    Flow {
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: [2, 0, 0, 0, 0, 2],
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
    }
}

fn ours(v6: bool, len: usize) -> Vec<u8> {
    let mut program = Program::udp(&flow(v6), len).unwrap();
    let mut frame = vec![0xee; len];
    assert_eq!(program.write(&mut frame, 0, &SIGNATURE), Written::Signed);
    frame
}

fn parse(frame: &[u8]) -> Result<Datagram<'_>, Fault> {
    Datagram::parse(frame, &Layers::find(frame)?)
}

#[test]
fn the_smallest_frame_carries_a_signature() {
    // 64 bytes on the wire, 60 without FCS: nothing to spare.
    let frame = ours(false, 60);
    let datagram = parse(&frame).unwrap();
    assert_eq!((datagram.source, datagram.destination), (1000, 2000));
    assert_eq!(datagram.payload.len(), signature::LEN);
    assert_eq!(Signature::parse(datagram.payload), Some(SIGNATURE));
    assert!(Program::udp(&flow(false), 59).is_err());
    assert_eq!(parse(&ours(true, 80)).unwrap().payload.len(), signature::LEN);
    assert!(Program::udp(&flow(true), 79).is_err());
    assert!(Program::udp(&flow(false), 70_000).is_err());
}

#[test]
fn our_frames_equal_what_others_build() {
    for (v6, len) in [(false, 60), (false, 61), (false, 1514), (true, 80), (true, 1514)] {
        let frame = ours(v6, len);
        let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let headers = if v6 { 62 } else { 42 };
        let mut payload = vec![0; len - headers];
        let at = signature::place(len).unwrap() - headers;
        SIGNATURE.emit(payload[at..].first_chunk_mut().unwrap());
        let mut judged = Vec::new();
        if v6 {
            let both = (
                "fd00::1".parse::<std::net::Ipv6Addr>().unwrap(),
                "fd00::2".parse::<std::net::Ipv6Addr>().unwrap(),
            );
            let builder = builder.ipv6(both.0.octets(), both.1.octets(), 64).udp(1000, 2000);
            builder.write(&mut judged, &payload).unwrap();
        } else {
            let mut ip =
                etherparse::Ipv4Header::new(0, 64, etherparse::IpNumber::UDP, [10, 0, 0, 1], [10, 0, 0, 2])
                    .unwrap();
            ip.dont_fragment = true;
            let builder = builder.ip(IpHeaders::Ipv4(ip, Default::default())).udp(1000, 2000);
            builder.write(&mut judged, &payload).unwrap();
        }
        assert_eq!(frame, judged, "v6 {v6}, {len} bytes");
    }
}

#[test]
fn tags_and_extension_headers_are_passed_over() {
    let plain = ours(false, 60);
    let mut tagged = plain[..12].to_vec();
    tagged.extend([0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]);
    tagged.extend(&plain[12..]);
    assert_eq!(parse(&tagged).unwrap().payload, parse(&plain).unwrap().payload);

    let plain = ours(true, 80);
    let mut extended = plain[..54].to_vec();
    extended[19] += 8; // payload length
    extended[20] = 60; // destination options
    extended.extend([17, 0, 1, 4, 0, 0, 0, 0]);
    extended.extend(&plain[54..]);
    assert_eq!(parse(&extended).unwrap().payload, parse(&plain).unwrap().payload);
}

#[test]
fn each_fault_is_named() {
    let good = ours(false, 60);
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = good.clone();
        change(&mut frame);
        parse(&frame).unwrap_err()
    };
    /// Change the IP header and make its checksum right again.
    fn ip(frame: &mut [u8], at: usize, value: u8) {
        frame[14 + at] = value;
        frame[24..26].fill(0);
        let sum = checksum::of(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    assert_eq!(with(&|f| f.truncate(13)), Fault::Truncated);
    assert_eq!(with(&|f| f.truncate(33)), Fault::Truncated);
    assert_eq!(with(&|f| f[12..14].copy_from_slice(&[8, 6])), Fault::NotIp);
    assert_eq!(with(&|f| f[14] = 0x65), Fault::BadHeader);
    assert_eq!(with(&|f| f[14] = 0x44), Fault::BadHeader);
    assert_eq!(with(&|f| f.truncate(59)), Fault::BadLength);
    assert_eq!(with(&|f| ip(f, 3, 19)), Fault::BadLength);
    assert_eq!(with(&|f| f[22] -= 1), Fault::BadChecksum);
    assert_eq!(with(&|f| ip(f, 6, 0x20)), Fault::Fragment);
    assert_eq!(with(&|f| ip(f, 7, 1)), Fault::Fragment);
    assert_eq!(with(&|f| ip(f, 9, 6)), Fault::NotUdp);
    assert_eq!(with(&|f| ip(f, 3, 27)), Fault::Truncated);
    assert_eq!(with(&|f| f[39] = 7), Fault::BadLength);
    assert_eq!(with(&|f| f[39] += 1), Fault::BadLength);
    assert_eq!(with(&|f| f[59] ^= 1), Fault::BadChecksum);
    let mut none = ours(true, 80);
    none[60..62].fill(0);
    assert_eq!(parse(&none), Err(Fault::BadChecksum), "over IPv6 there must be one");
    let mut none = good.clone();
    none[40..42].fill(0);
    assert!(parse(&none).is_ok(), "over IPv4 there may be none");
}

#[test]
fn padding_is_not_payload() {
    let mut padded = ours(false, 60);
    padded.extend([0xaa; 10]);
    assert_eq!(parse(&padded).unwrap().payload.len(), signature::LEN);
}

#[test]
fn swapping_all_three_layers_sends_it_back_with_right_checksums() {
    for v6 in [false, true] {
        let mut frame = ours(v6, 100);
        let layers = Layers::find(&frame).unwrap();
        ethernet::swap(&mut frame);
        if v6 {
            ipv6::swap(&mut frame, layers.ip)
        } else {
            ipv4::swap(&mut frame, layers.ip)
        }
        udp::swap(&mut frame, layers.l4);
        let back = parse(&frame).unwrap();
        assert_eq!((back.source, back.destination), (2000, 1000));
        assert_eq!(&frame[..6], &[2, 0, 0, 0, 0, 1]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _any = parse(&bytes);
        let _any = packet::arp::Arp::parse(&bytes);
        let _any = packet::nd::Nd::parse(&bytes);
    }

    /// A good frame with a few bytes changed gets past the first checks; nothing panics, and what is
    /// accepted is accepted by an independent parser too.
    #[test]
    fn no_change_panics_and_what_we_accept_others_accept(
        v6 in any::<bool>(),
        changes in proptest::collection::vec((0usize..120, any::<u8>()), 0..4),
        cut in 0usize..121,
        fix in any::<bool>(),
    ) {
        let mut frame = ours(v6, 120);
        for (at, value) in changes {
            frame[at] = value;
        }
        if fix && !v6 {
            frame[24..26].fill(0);
            let sum = checksum::of(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        frame.truncate(cut.max(1));
        let mut copy = frame.clone();
        if let Ok(layers) = Layers::find(&frame) {
            packet::icmp::answer(&mut copy, &layers, std::net::IpAddr::from([10, 0, 0, 2]));
            udp::swap(&mut copy, layers.l4);
        }
        if let Ok(datagram) = parse(&frame) {
            let judge = SlicedPacket::from_ethernet(&frame).unwrap();
            prop_assert!(matches!(judge.net, Some(NetSlice::Ipv4(_) | NetSlice::Ipv6(_))));
            let Some(TransportSlice::Udp(judge)) = judge.transport else { panic!("not UDP to the judge") };
            prop_assert_eq!(judge.payload(), datagram.payload);
        }
    }
}
