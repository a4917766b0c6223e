//! ICMP messages that quote a packet (RFC 792, RFC 4443 section 3): what a host or a router says of one of ours.
//!
//! ```text
//!  | type | code | checksum | of no matter here | the packet, from its IP header on, as far as it is quoted |
//!  0      1      2          4                   8
//! ```
//! A quotation looks like what was sent, signature and all: nothing in it is to be taken for an arrival.

use crate::bytes::take;
use crate::layers::{Layers, protocol};
use crate::signature::{self, Signature};
use crate::{ipv4, ipv6};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes before the quotation.
const HEADER: usize = 8;

/// Next header and length of the header of fragments (RFC 8200 section 4.5).
const FRAGMENT: u8 = 44;
const FRAGMENT_HEADER: usize = 8;

/// What happened to the quoted packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketOutcome {
    /// Port unreachable: the packet reached the host.
    Refused,
    /// It did not come there: no route or host, prohibited, too many hops, too big, a header that cannot be.
    Unreachable,
    /// It went on: a redirect or source quench is advice.
    Forwarded,
}

/// An ICMP message that quotes a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcmpError {
    /// What happened to the quoted packet.
    pub outcome: PacketOutcome,
    /// The quoted packet, as far as it can be parsed.
    pub quoted: Option<Quoted>,
}

/// The packet that is quoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quoted {
    /// From whom. Port 0: it is neither UDP nor TCP.
    pub source: SocketAddr,
    /// To whom.
    pub destination: SocketAddr,
    /// What IP carries, see [`protocol`].
    pub protocol: u8,
    /// Its signature, if as much is quoted.
    pub signature: Option<Signature>,
    /// Of TCP: its sequence number, by which its sender tells a real quotation from an invented one (RFC 5927 section 4.1).
    pub sequence: Option<u32>,
}

impl IcmpError {
    /// The message in `frame`, whose headers `layers` were found before, if it is one that quotes packets. `quoted` is
    /// `None` when the checksum is wrong, the quotation is cut short or broken, or the message is not for the one who sent
    /// what it quotes.
    pub fn parse(frame: &[u8], layers: &Layers) -> Option<Self> {
        let message = layers.segment(frame);
        let [kind, code] = *take::<2>(message, 0)?;
        let outcome = match layers.is_v6() {
            false if layers.protocol == protocol::ICMP => outcome_v4(kind, code)?,
            true if layers.protocol == protocol::ICMPV6 => outcome_v6(kind, code)?,
            _ => return None,
        };
        let quoted = layers.is_intact(frame).then_some(()).and_then(|()| {
            let quoted = match layers.is_v6() {
                false => quoted_v4(message.get(HEADER..)?)?,
                true => quoted_v6(message.get(HEADER..)?)?,
            };
            let to = match layers.is_v6() {
                false => ipv4::addresses(frame, layers.ip).map(|(_, to)| IpAddr::V4(to)),
                true => ipv6::addresses(frame, layers.ip).map(|(_, to)| IpAddr::V6(to)),
            };
            (to == Some(quoted.source.ip())).then_some(quoted)
        });
        Some(Self { outcome, quoted })
    }
}

/// RFC 792; codes: RFC 1122 section 3.2.2.1, RFC 1812 section 5.2.7.
fn outcome_v4(kind: u8, code: u8) -> Option<PacketOutcome> {
    match (kind, code) {
        (3, 3) => Some(PacketOutcome::Refused),
        (3 | 11 | 12, _) => Some(PacketOutcome::Unreachable),
        (4 | 5, _) => Some(PacketOutcome::Forwarded),
        _ => None,
    }
}

/// RFC 4443 section 2.1: all below 128 are errors, also those that are not known yet. 137: redirect (RFC 4861).
fn outcome_v6(kind: u8, code: u8) -> Option<PacketOutcome> {
    match (kind, code) {
        (1, 4) => Some(PacketOutcome::Refused),
        (..=127, _) => Some(PacketOutcome::Unreachable),
        (137, _) => Some(PacketOutcome::Forwarded),
        _ => None,
    }
}

fn quoted_v4(packet: &[u8]) -> Option<Quoted> {
    let head: &[u8; ipv4::LEN] = take(packet, 0)?;
    let (header, total) =
        (usize::from(head[0] & 0x0f) * 4, usize::from(u16::from_be_bytes([head[2], head[3]])));
    // The whole packet is quoted, or its first fragment. Its checksum need not be right: routers count down.
    let offset = u16::from_be_bytes([head[6], head[7]]) & 0x1fff;
    if head[0] >> 4 != 4 || header < ipv4::LEN || total < header || offset != 0 {
        return None;
    }
    let [s0, s1, s2, s3, d0, d1, d2, d3] = *take::<8>(head, 12)?;
    let (source, destination) = (Ipv4Addr::new(s0, s1, s2, s3), Ipv4Addr::new(d0, d1, d2, d3));
    quoted((source.into(), destination.into()), (head[9], header, total), packet)
}

fn quoted_v6(packet: &[u8]) -> Option<Quoted> {
    let head: &[u8; ipv6::LEN] = take(packet, 0)?;
    let total = ipv6::LEN + usize::from(u16::from_be_bytes([head[4], head[5]]));
    let address = |at: usize| take::<16>(head, at).map(|octets| IpAddr::V6(Ipv6Addr::from(*octets)));
    let (source, destination) = (address(8)?, address(24)?);
    // Our own frames have no extension headers unless the recipe has them, and that of fragments.
    let (carried, header) = match head[6] {
        FRAGMENT => {
            let [next, _, high, low] = *take::<4>(packet, ipv6::LEN)?;
            let is_first = u16::from_be_bytes([high, low]) >> 3 == 0;
            is_first.then_some((next, ipv6::LEN + FRAGMENT_HEADER))?
        }
        carried => (carried, ipv6::LEN),
    };
    (head[0] >> 4 == 6).then(|| quoted((source, destination), (carried, header, total), packet))?
}

fn quoted(
    (source, destination): (IpAddr, IpAddr),
    (carried, header, total): (u8, usize, usize),
    packet: &[u8],
) -> Option<Quoted> {
    let [s0, s1, d0, d1] = match carried {
        protocol::UDP | protocol::TCP => *take::<4>(packet, header)?,
        _ => [0; 4],
    };
    let at = signature::place(total).filter(|at| *at >= header);
    let signature = at.and_then(|at| Signature::parse(packet.get(at..total.min(packet.len()))?));
    let sequence = take::<4>(packet, header + 4).filter(|_| carried == protocol::TCP);
    Some(Quoted {
        source: SocketAddr::new(source, u16::from_be_bytes([s0, s1])),
        destination: SocketAddr::new(destination, u16::from_be_bytes([d0, d1])),
        protocol: carried,
        signature,
        sequence: sequence.map(|bytes| u32::from_be_bytes(*bytes)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Flow;
    use crate::frame::Program;
    use etherparse::{Icmpv4Type, Icmpv6Type, PacketBuilder};
    use proptest::prelude::*;

    const MARK: Signature = Signature { stream: 7, sequence: 9, sent_ns: 11 };

    fn flow(v6: bool) -> Flow {
        let address = |end: u16| match v6 {
            false => SocketAddr::from(([10, 0, 0, end as u8], 5000 + end)),
            true => SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, end], 5000 + end)),
        };
        Flow { source_mac: [2; 6], destination_mac: [4; 6], source: address(1), destination: address(2) }
    }

    /// The IP packet that was sent.
    fn sent(v6: bool, size: usize) -> Vec<u8> {
        let mut frame = vec![0; size];
        let mut program = Program::udp(&flow(v6), size).expect("it fits");
        program.write(&mut frame, 0, &MARK);
        frame.split_off(14)
    }

    /// What `from` says of it.
    fn error(v6: bool, (kind, code): (u8, u8), quoted: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        let ether = PacketBuilder::ethernet2([4; 6], [2; 6]);
        if v6 {
            let octets = |end| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, end).octets();
            let kind = Icmpv6Type::Unknown { type_u8: kind, code_u8: code, bytes5to8: [0; 4] };
            ether.ipv6(octets(3), octets(1), 64).icmpv6(kind).write(&mut frame, quoted).expect("written");
        } else {
            let kind = Icmpv4Type::Unknown { type_u8: kind, code_u8: code, bytes5to8: [0; 4] };
            ether
                .ipv4([10, 0, 0, 3], [10, 0, 0, 1], 64)
                .icmpv4(kind)
                .write(&mut frame, quoted)
                .expect("written");
        }
        frame
    }

    fn parse(frame: &[u8]) -> Option<IcmpError> {
        IcmpError::parse(frame, &Layers::find(frame).expect("headers"))
    }

    #[test]
    fn errors_say_what_became_of_which_packet() {
        use PacketOutcome::*;
        for (v6, size) in [(false, 60), (false, 200), (true, 80), (true, 1280)] {
            let flow = flow(v6);
            let expected = Quoted {
                source: flow.source,
                destination: flow.destination,
                protocol: protocol::UDP,
                signature: Some(MARK),
                sequence: None,
            };
            let cases: &[((u8, u8), PacketOutcome)] = match v6 {
                false => &[
                    ((3, 3), Refused),
                    ((3, 0), Unreachable),
                    ((3, 4), Unreachable),
                    ((3, 13), Unreachable),
                    ((11, 0), Unreachable),
                    ((12, 0), Unreachable),
                    ((5, 1), Forwarded),
                    ((4, 0), Forwarded),
                ],
                true => &[
                    ((1, 4), Refused),
                    ((1, 0), Unreachable),
                    ((1, 1), Unreachable),
                    ((2, 0), Unreachable),
                    ((3, 0), Unreachable),
                    ((4, 1), Unreachable),
                    ((100, 0), Unreachable),
                    ((137, 0), Forwarded),
                ],
            };
            for (what, outcome) in cases {
                let frame = error(v6, *what, &sent(v6, size));
                assert_eq!(
                    parse(&frame),
                    Some(IcmpError { outcome: *outcome, quoted: Some(expected) }),
                    "{what:?}"
                );
                let mut tagged = frame[..12].to_vec();
                for tag in [&[0x88, 0xa8, 0, 5][..], &[0x81, 0, 0, 6]] {
                    tagged.extend_from_slice(tag);
                }
                tagged.extend_from_slice(&frame[12..]);
                assert_eq!(parse(&tagged), parse(&frame), "behind two tags");
            }
            // An echo and its reply quote nothing.
            for kind in if v6 { [128, 129] } else { [8, 0] } {
                assert_eq!(parse(&error(v6, (kind, 0), &sent(v6, size))), None);
            }
        }
    }

    #[test]
    fn a_quotation_may_be_short() {
        let packet = sent(false, 200);
        // RFC 792 asks for eight bytes behind the IP header.
        for len in 24..packet.len() {
            let quoted =
                parse(&error(false, (3, 3), &packet[..len])).and_then(|error| error.quoted).expect("ports");
            assert_eq!((quoted.source.port(), quoted.destination.port()), (5001, 5002));
            assert_eq!(quoted.signature, None, "{len} bytes");
        }
        for len in 0..24 {
            let refused = IcmpError { outcome: PacketOutcome::Refused, quoted: None };
            assert_eq!(parse(&error(false, (3, 3), &packet[..len])), Some(refused), "{len} bytes");
        }
    }

    #[test]
    fn the_first_fragment_of_a_packet_is_a_quotation() {
        let mut packet = sent(true, 200);
        packet.splice(40..40, [17, 0, 0, 1, 0, 0, 0, 9]);
        packet[6] = 44;
        let quoted = |packet: &[u8]| parse(&error(true, (2, 0), packet)).expect("an error").quoted;
        let found = quoted(&packet).expect("the ports of the first");
        assert_eq!((found.protocol, found.source.port(), found.destination.port()), (17, 5001, 5002));
        packet[43] = 9;
        assert_eq!(quoted(&packet), None, "a later one has none");
    }

    #[test]
    fn what_cannot_be_is_no_quotation() {
        let quoted = |frame: Vec<u8>| parse(&frame).expect("an error").quoted;
        let with = |at: usize, value: u8| {
            let mut packet = sent(false, 100);
            packet[at] = value;
            quoted(error(false, (3, 1), &packet))
        };
        assert_eq!(with(0, 0x65), None, "another version");
        assert_eq!(with(0, 0x44), None, "a header too short");
        assert_eq!(with(7, 1), None, "a later fragment");
        assert_eq!(with(3, 19), None, "shorter than its header");
        assert_eq!(with(15, 9), None, "of another sender than the one it is for");
        assert!(with(8, 1).is_some(), "routers count down, and some do not correct the checksum");
        let mut wrong = error(false, (3, 1), &sent(false, 100));
        wrong[80] ^= 1;
        assert_eq!(quoted(wrong), None, "a wrong checksum");
        let mut changed = sent(false, 100);
        changed[80] ^= 1;
        assert_eq!(quoted(error(false, (3, 1), &changed)).expect("headers").signature, None);
    }

    proptest! {
        #[test]
        fn hostile_quotations_break_nothing(
            v6: bool, kind: u8, code: u8, cut in 0usize..90,
            changes in proptest::collection::vec((0usize..90, any::<u8>()), 0..6),
        ) {
            let mut packet = sent(v6, 104);
            changes.into_iter().for_each(|(at, value)| packet[at] = value);
            let _any = parse(&error(v6, (kind, code), &packet[..cut]));
        }
    }
}
