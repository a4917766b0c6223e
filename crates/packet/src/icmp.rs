//! ICMP echo for IPv4 (RFC 792): a question becomes its answer in place.

use crate::layers::{Layers, protocol};
use crate::{checksum, ethernet, ipv4, take_mut};
use std::net::Ipv4Addr;

/// Turn an echo request for `address` in `frame` into its reply. False, and nothing changed, when it is none
/// or its checksum is wrong.
pub fn answer(frame: &mut [u8], layers: &Layers, address: Ipv4Addr) -> bool {
    let asked = ipv4::addresses(frame, layers.ip).is_some_and(|(_, destination)| destination == address);
    if layers.is_v6()
        || layers.protocol != protocol::ICMP
        || !asked
        || checksum::of(layers.segment(frame)) != 0
    {
        return false;
    }
    // Not by following the change: of a message that is all zero but for its type, that makes the wrong zero.
    let Some([kind @ 8, 0, sum @ .., _, _, _, _]) = take_mut::<8>(frame, layers.l4) else { return false };
    (*kind, *sum) = (0, [0, 0]);
    let right = checksum::of(layers.segment(frame)).to_be_bytes();
    take_mut(frame, layers.l4 + 2).into_iter().for_each(|sum| *sum = right);
    ipv4::swap(frame, layers.ip);
    ethernet::swap(frame);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_comes_back() {
        let (from, to) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let echo = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .ipv4(from, to, 64)
            .icmpv4_echo_request(7, 9);
        let mut frame = Vec::new();
        echo.write(&mut frame, b"hello").unwrap();
        let layers = Layers::find(&frame).unwrap();
        assert!(!answer(&mut frame, &layers, Ipv4Addr::new(10, 0, 0, 3)), "another address");
        assert!(answer(&mut frame, &layers, to.into()));
        let reply = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1])
            .ipv4(to, from, 64)
            .icmpv4_echo_reply(7, 9);
        let mut expected = Vec::new();
        reply.write(&mut expected, b"hello").unwrap();
        assert_eq!(frame, expected);
        assert!(!answer(&mut frame, &layers, from.into()), "a reply is not a question");
    }

    #[test]
    fn a_ping_of_zeros_comes_back_with_a_right_checksum() {
        let mut frame = Vec::new();
        let echo = etherparse::PacketBuilder::ethernet2([2; 6], [3; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .icmpv4_echo_request(0, 0);
        echo.write(&mut frame, &[0; 8]).unwrap();
        let layers = Layers::find(&frame).unwrap();
        assert!(answer(&mut frame, &layers, Ipv4Addr::new(10, 0, 0, 2)));
        assert_eq!((&frame[34..38], checksum::of(layers.segment(&frame))), (&[0, 0, 0xff, 0xff][..], 0));
    }
}
