//! ICMP echo (RFC 792, for IPv6 RFC 4443): a question becomes its answer in place.

use crate::bytes::take_mut;
use crate::layers::{Layers, protocol};
use crate::{ethernet, ipv4, ipv6};
use std::net::IpAddr;

/// Hops that an answer may make: the question may have used up all of its own.
const HOPS: u8 = 64;

/// Turn an echo request for `address` in `frame` into its reply. False, and nothing changed, when it is none,
/// its checksum is wrong, or it has IPv6 extension headers, which would go back with it.
pub fn answer(frame: &mut [u8], layers: &Layers, address: IpAddr) -> bool {
    let (request, reply, fits) = match layers.is_v6() {
        false => (8, 0, layers.protocol == protocol::ICMP),
        true => (128, 129, layers.protocol == protocol::ICMPV6 && layers.l4 == layers.ip + ipv6::LEN),
    };
    let destination = match layers.is_v6() {
        false => ipv4::addresses(frame, layers.ip).map(|(_, to)| IpAddr::V4(to)),
        true => ipv6::addresses(frame, layers.ip).map(|(_, to)| IpAddr::V6(to)),
    };
    if !fits || destination != Some(address) || !layers.is_intact(frame) {
        return false;
    }
    let end = layers.end;
    match frame.get_mut(layers.l4..end).and_then(|segment| segment.first_chunk_mut::<8>()) {
        Some([kind, 0, sum @ .., _, _, _, _]) if *kind == request => (*kind, *sum) = (reply, [0, 0]),
        _ => return false,
    }
    // Not by following the change: of a message that is all zero but for its type, that makes the wrong zero.
    let right = layers.checksum(frame).to_be_bytes();
    take_mut(frame, layers.l4 + 2).into_iter().for_each(|sum| *sum = right);
    match layers.is_v6() {
        false => {
            ipv4::set_ttl(frame, layers.ip, HOPS);
            ipv4::swap(frame, layers.ip);
        }
        true => {
            ipv6::set_hops(frame, layers.ip, HOPS);
            ipv6::swap(frame, layers.ip);
        }
    }
    ethernet::swap(frame);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum;

    #[test]
    fn a_ping_comes_back() {
        let (from, to) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let echo = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .ipv4(from, to, 64)
            .icmpv4_echo_request(7, 9);
        let mut frame = Vec::new();
        echo.write(&mut frame, b"hello").unwrap();
        let layers = Layers::find(&frame).unwrap();
        assert!(!answer(&mut frame, &layers, IpAddr::from([10, 0, 0, 3])), "another address");
        assert!(answer(&mut frame, &layers, IpAddr::from(to)));
        let reply = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1])
            .ipv4(to, from, 64)
            .icmpv4_echo_reply(7, 9);
        let mut expected = Vec::new();
        reply.write(&mut expected, b"hello").unwrap();
        assert_eq!(frame, expected);
        assert!(!answer(&mut frame, &layers, IpAddr::from(from)), "a reply is not a question");
    }

    #[test]
    fn a_ping_of_zeros_comes_back_with_a_right_checksum() {
        let mut frame = Vec::new();
        let echo = etherparse::PacketBuilder::ethernet2([2; 6], [3; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .icmpv4_echo_request(0, 0);
        echo.write(&mut frame, &[0; 8]).unwrap();
        let layers = Layers::find(&frame).unwrap();
        assert!(answer(&mut frame, &layers, IpAddr::from([10, 0, 0, 2])));
        assert_eq!((&frame[34..38], checksum::of(layers.segment(&frame))), (&[0, 0, 0xff, 0xff][..], 0));
    }

    #[test]
    fn a_ping_over_ipv6_comes_back() {
        let (from, to) = ([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], [0xfd; 16]);
        let (here, there) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let mut frame = Vec::new();
        let echo =
            etherparse::PacketBuilder::ethernet2(here, there).ipv6(from, to, 3).icmpv6_echo_request(7, 9);
        echo.write(&mut frame, b"hello").unwrap();
        let layers = Layers::find(&frame).unwrap();
        assert!(!answer(&mut frame, &layers, IpAddr::from(from)), "another address");
        let mut broken = frame.clone();
        broken[60] ^= 1;
        assert!(!answer(&mut broken, &layers, IpAddr::from(to)), "a wrong checksum");
        assert!(answer(&mut frame, &layers, IpAddr::from(to)));
        let mut expected = Vec::new();
        let reply =
            etherparse::PacketBuilder::ethernet2(there, here).ipv6(to, from, 64).icmpv6_echo_reply(7, 9);
        reply.write(&mut expected, b"hello").unwrap();
        assert_eq!(frame, expected);
        assert!(!answer(&mut frame, &layers, IpAddr::from(from)), "a reply is not a question");
    }

    #[test]
    fn an_answer_has_hops_of_its_own() {
        let mut frame = Vec::new();
        let echo = etherparse::PacketBuilder::ethernet2([2; 6], [3; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 1)
            .icmpv4_echo_request(0, 0);
        echo.write(&mut frame, b"hello").unwrap();
        let layers = Layers::find(&frame).unwrap();
        assert!(answer(&mut frame, &layers, IpAddr::from([10, 0, 0, 2])));
        assert_eq!((frame[22], Layers::find(&frame)), (64, Ok(layers)));
    }
}
