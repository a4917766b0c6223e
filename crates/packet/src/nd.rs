//! Neighbour solicitations and advertisements for IPv6 over Ethernet (RFC 4861, RFC 2464).
//!
//! ```text
//!  0      1      2          4       8        24                          32
//!  | type | code | checksum | flags | target | option: link-layer address |
//! ```

use crate::bytes::take;
use crate::checksum;
use crate::ethernet::Mac;
use crate::ethernet::{self, Ethernet, Tags, kind};
use crate::ipv6::{self, Ipv6};
use crate::layers::{Layers, protocol};
use std::net::Ipv6Addr;

/// Bytes in a message with its option, as it is sent here.
pub const LEN: usize = 32;
/// Bytes in a frame with such a message, without tags.
pub const FRAME: usize = ethernet::LEN + ipv6::LEN + LEN;

/// To all nodes of a link.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// A message that comes from farther than the link has fewer hops left: it is none (section 7.1).
const HOPS: u8 = 255;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Flags of advertisements.
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
/// Bytes in a message without options.
const FIXED: usize = 24;

/// Solicitation or advertisement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Neighbour solicitation.
    Solicitation,
    /// The sender has it.
    Advertisement {
        /// Solicited flag: it answers a solicitation.
        solicited: bool,
        /// Whether it replaces an address that is known (the flag O).
        overrides: bool,
    },
}

/// A neighbour solicitation or advertisement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nd {
    /// Question or answer.
    pub operation: Operation,
    /// The frame's source and destination.
    pub link: (Mac, Mac),
    /// Source address; unspecified: duplicate address detection (RFC 4862).
    pub source: Ipv6Addr,
    /// To whom: one, or a group.
    pub destination: Ipv6Addr,
    /// The address that it is about.
    pub target: Ipv6Addr,
    /// The asker's Ethernet address in a question, the target's in an answer.
    pub mac: Option<Mac>,
}

/// The group that the holder of `address` listens to (RFC 4291 section 2.7.1).
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    let (high, low) = (0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, high, low)
}

/// The Ethernet address of a group (RFC 2464 section 7).
pub fn group_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

impl Nd {
    /// The message in `frame`; `None` when it is none, or not valid by sections 7.1.1 and 7.1.2. What has IPv6
    /// extension headers is none here.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let layers = Layers::find(frame).ok()?;
        let fits =
            layers.is_v6() && layers.protocol == protocol::ICMPV6 && layers.l4 == layers.ip + ipv6::LEN;
        let segment = layers.segment(frame);
        let fixed: &[u8; FIXED] = take(segment, 0)?;
        if !fits || frame.get(layers.ip + 7) != Some(&HOPS) || fixed[1] != 0 || !layers.is_intact(frame) {
            return None;
        }
        let (operation, option) = match fixed[0] {
            SOLICITATION => (Operation::Solicitation, 1),
            ADVERTISEMENT => {
                let (solicited, overrides) = (fixed[4] & SOLICITED != 0, fixed[4] & OVERRIDE != 0);
                (Operation::Advertisement { solicited, overrides }, 2)
            }
            _ => return None,
        };
        let Ethernet { destination, source, .. } = Ethernet::parse(frame)?;
        let link = (source, destination);
        let (source, destination) = ipv6::addresses(frame, layers.ip)?;
        let target = Ipv6Addr::from(*take::<16>(fixed, 8)?);
        let mac = link_layer_address(segment.get(FIXED..)?, option)?;
        let valid = match operation {
            Operation::Solicitation if source.is_unspecified() => {
                mac.is_none() && destination == solicited_node(target)
            }
            Operation::Solicitation => true,
            Operation::Advertisement { solicited, .. } => !(solicited && destination.is_multicast()),
        };
        let message = Self { operation, link, source, destination, target, mac };
        (valid && !target.is_multicast()).then_some(message)
    }

    /// A solicitation for `target` by the holder of `source`.
    pub fn solicitation(mac: Mac, source: Ipv6Addr, target: Ipv6Addr) -> Self {
        let destination = solicited_node(target);
        let link = (mac, group_mac(destination));
        Self { operation: Operation::Solicitation, link, source, destination, target, mac: Some(mac) }
    }

    /// The answer to this question by the holder of `mac` (section 7.2.4).
    pub fn answer(&self, mac: Mac) -> Self {
        if self.source.is_unspecified() {
            return Self::announcement(mac, self.target);
        }
        Self {
            operation: Operation::Advertisement { solicited: true, overrides: true },
            link: (mac, self.mac.unwrap_or(self.link.0)),
            source: self.target,
            destination: self.source,
            target: self.target,
            mac: Some(mac),
        }
    }

    /// An unsolicited advertisement of `ip` (section 7.2.6).
    pub fn announcement(mac: Mac, ip: Ipv6Addr) -> Self {
        Self {
            operation: Operation::Advertisement { solicited: false, overrides: true },
            link: (mac, group_mac(ALL_NODES)),
            source: ip,
            destination: ALL_NODES,
            target: ip,
            mac: Some(mac),
        }
    }

    /// Write the whole frame with these tags; its length. `None`, and nothing changed, when it does not fit. An
    /// advertisement takes the place of what was known before.
    pub fn emit(&self, out: &mut [u8], tags: &Tags) -> Option<usize> {
        let (of, flags, option) = match self.operation {
            Operation::Solicitation => (SOLICITATION, 0, 1),
            Operation::Advertisement { solicited, overrides } => {
                let flag = |bit: u8, is_set: bool| if is_set { bit } else { 0 };
                (ADVERTISEMENT, flag(SOLICITED, solicited) | flag(OVERRIDE, overrides), 2)
            }
        };
        let payload = if self.mac.is_some() { LEN } else { FIXED };
        let header = Ethernet { source: self.link.0, destination: self.link.1, kind: kind::IPV6 };
        let rest = header.emit_tagged(out, tags, ipv6::LEN + payload)?;
        let (ip, message) = rest.get_mut(..ipv6::LEN + payload)?.split_first_chunk_mut()?;
        let (source, destination, next) = (self.source, self.destination, protocol::ICMPV6);
        Ipv6 { source, destination, next, hops: HOPS, dscp: 0, payload: payload as u16 }.emit(ip);
        message[..FIXED - 16].copy_from_slice(&[of, 0, 0, 0, flags, 0, 0, 0]);
        message[FIXED - 16..FIXED].copy_from_slice(&self.target.octets());
        if let Some(mac) = self.mac {
            message[FIXED..FIXED + 2].copy_from_slice(&[option, 1]);
            message[FIXED + 2..].copy_from_slice(&mac);
        }
        let pseudo = checksum::pseudo_header(&ip[8..], next, payload as u32);
        let sum = pseudo.plus(checksum::Sum::ZERO.bytes(message)).checksum();
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        Some(ethernet::LEN + tags.bytes().len() + ipv6::LEN + payload)
    }
}

/// The first option of this type in `options`, if it is there. `None`: they are malformed (section 4.6).
fn link_layer_address(mut options: &[u8], wanted: u8) -> Option<Option<Mac>> {
    let mut found = None;
    while let Some([kind, units]) = options.first_chunk::<2>() {
        let (option, rest) = options.split_at_checked(usize::from(*units) * 8).filter(|_| *units > 0)?;
        if *kind == wanted && *units == 1 {
            found = found.or(take::<6>(option, 2).copied());
        }
        options = rest;
    }
    options.is_empty().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{Icmpv6Slice, Icmpv6Type, LaxSlicedPacket, NetSlice, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    const MINE: Mac = [2, 0, 0, 0, 0, 1];
    const YOURS: Mac = [2, 0, 0, 0, 0, 2];

    fn ip(text: &str) -> Ipv6Addr {
        text.parse().expect("an address")
    }

    fn frame(nd: &Nd) -> Vec<u8> {
        let mut frame = vec![0; FRAME];
        let len = nd.emit(&mut frame, &Tags::NONE).expect("it fits");
        frame.truncate(len);
        frame
    }

    /// The same frame with bytes changed, and the checksum right again.
    fn changed(nd: &Nd, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut frame = frame(nd);
        change(&mut frame);
        frame[56..58].fill(0);
        let payload = frame.len() - 54;
        frame[18..20].copy_from_slice(&(payload as u16).to_be_bytes());
        let pseudo = checksum::pseudo_header(&frame[22..54], 58, payload as u32);
        let sum = pseudo.plus(checksum::Sum::ZERO.bytes(&frame[54..])).checksum();
        frame[56..58].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    #[test]
    fn a_question_and_its_answer() {
        let ask = Nd::solicitation(MINE, ip("fd00::1"), ip("fd00::aa:bbcc"));
        let asked = frame(&ask);
        assert_eq!(asked[..6], [0x33, 0x33, 0xff, 0xaa, 0xbb, 0xcc]);
        assert_eq!(ask.destination, ip("ff02::1:ffaa:bbcc"));
        assert_eq!(Nd::parse(&asked), Some(ask));
        let said = ask.answer(YOURS);
        assert_eq!((said.link, said.source, said.destination), ((YOURS, MINE), ask.target, ask.source));
        assert_eq!(Nd::parse(&frame(&said)), Some(said));
        // Without the option the frame's source address stands for it.
        assert_eq!(Nd { mac: None, ..ask }.answer(YOURS).link, (YOURS, MINE));
        // Duplicate address detection has no address to answer to: all nodes get the advertisement.
        let probe = Nd { source: Ipv6Addr::UNSPECIFIED, mac: None, ..ask };
        assert_eq!(Nd::parse(&frame(&probe)), Some(probe));
        assert_eq!(frame(&probe).len(), FRAME - 8);
        let said = probe.answer(YOURS);
        assert_eq!((said.link.1, said.destination), ([0x33, 0x33, 0, 0, 0, 1], ALL_NODES));
        assert_eq!(said.operation, Operation::Advertisement { solicited: false, overrides: true });
        for len in 0..FRAME {
            assert_eq!(Nd::parse(&asked[..len]), None);
            assert_eq!(ask.emit(&mut asked.clone()[..len], &Tags::NONE), None);
        }
    }

    #[test]
    fn what_is_not_valid_is_none() {
        let ask = Nd::solicitation(MINE, ip("fd00::1"), ip("fd00::2"));
        let said = ask.answer(YOURS);
        let wrong = |nd: &Nd, why: &str, change: &dyn Fn(&mut Vec<u8>)| {
            assert_eq!(Nd::parse(&changed(nd, change)), None, "{why}");
        };
        assert_eq!(Nd::parse(&changed(&ask, |_| ())), Some(ask));
        for nd in [&ask, &said] {
            wrong(nd, "from farther than the link", &|frame| frame[21] = 254);
            wrong(nd, "a code", &|frame| frame[55] = 1);
            wrong(nd, "another type", &|frame| frame[54] = 134);
            wrong(nd, "a target that is a group", &|frame| frame[62] = 0xff);
            wrong(nd, "an option without length", &|frame| frame[87 - 8] = 0);
            wrong(nd, "an option beyond the end", &|frame| frame[87 - 8] = 2);
            wrong(nd, "half an option", &|frame| frame.truncate(82));
            wrong(nd, "an odd byte", &|frame| frame.truncate(79));
            wrong(nd, "too short", &|frame| frame.truncate(77));
            let mut frame = frame(nd);
            frame[57] ^= 1;
            assert_eq!(Nd::parse(&frame), None, "a wrong checksum");
        }
        let probe = Nd { source: Ipv6Addr::UNSPECIFIED, ..ask };
        assert_eq!(Nd::parse(&frame(&probe)), None, "nobody, with an Ethernet address");
        let probe = Nd { mac: None, destination: ALL_NODES, ..probe };
        assert_eq!(Nd::parse(&frame(&probe)), None, "nobody, to everybody");
        assert_eq!(Nd::parse(&frame(&Nd { destination: ALL_NODES, ..said })), None, "solicited by everybody");
    }

    #[test]
    fn other_options_are_passed_over() {
        let ask = Nd::solicitation(MINE, ip("fd00::1"), ip("fd00::2"));
        let nonce = |frame: &mut Vec<u8>| {
            frame.splice(78..78, [14, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        };
        assert_eq!(Nd::parse(&changed(&ask, nonce)), Some(ask));
        let none = changed(&ask, |frame| frame[78] = 14);
        assert_eq!(Nd::parse(&none), Some(Nd { mac: None, ..ask }));
    }

    proptest! {
        /// Another implementation reads the same, and finds the checksum right.
        #[test]
        fn others_read_what_is_written(
            (source, target, macs) in any::<(u128, u128, (Mac, Mac))>(),
            ids in proptest::collection::vec(0u16..4096, 0..3),
            said in any::<Option<bool>>(), overrides in any::<bool>(),
        ) {
            let (source, target) = (Ipv6Addr::from(source >> 8), Ipv6Addr::from(target >> 8));
            let ask = Nd::solicitation(macs.0, source, target);
            let mut nd = match said {
                None => ask,
                Some(true) => ask.answer(macs.1),
                Some(false) => Nd::announcement(macs.1, target),
            };
            if let Operation::Advertisement { overrides: place, .. } = &mut nd.operation {
                *place = overrides;
            }
            let tags = Tags::vlans(&ids).expect("at most two");
            let mut bytes = [0xaa; FRAME + 8];
            let len = nd.emit(&mut bytes, &tags).expect("it fits");
            prop_assert_eq!(len, FRAME + 4 * ids.len());
            let read = SlicedPacket::from_ethernet(&bytes[..len]).expect("a packet");
            let vlans: Vec<u16> = read.vlan_ids().iter().map(|id| id.value()).collect();
            prop_assert_eq!(vlans, ids);
            let Some(NetSlice::Ipv6(net)) = read.net else { panic!("no IPv6") };
            let header = net.header();
            prop_assert_eq!((header.source_addr(), header.destination_addr()), (nd.source, nd.destination));
            prop_assert_eq!((header.hop_limit(), usize::from(header.payload_length())), (255, LEN));
            let Some(TransportSlice::Icmpv6(icmp)) = read.transport else { panic!("no ICMPv6") };
            prop_assert!(icmp.is_checksum_valid(header.source(), header.destination()));
            check(&icmp, &nd);
            if !source.is_unspecified() && !target.is_multicast() {
                prop_assert_eq!(Nd::parse(&bytes), Some(nd));
                prop_assert_eq!(Tags::of(&bytes), tags);
            }
        }

        #[test]
        fn no_bytes_panic(
            changes in proptest::collection::vec((0usize..FRAME, any::<u8>()), 0..4),
            cut in 0..=FRAME,
        ) {
            let mut bytes = frame(&Nd::solicitation(MINE, ip("fd00::1"), ip("fd00::2")));
            changes.iter().for_each(|(at, value)| bytes[*at] = *value);
            let found = Nd::parse(&bytes[..cut]);
            let lax = LaxSlicedPacket::from_ethernet(&bytes[..cut]);
            prop_assert!(found.is_none() || lax.is_ok());
        }
    }

    /// What etherparse says of it.
    fn check(icmp: &Icmpv6Slice<'_>, nd: &Nd) {
        let option = match (icmp.icmp_type(), nd.operation) {
            (Icmpv6Type::NeighborSolicitation, Operation::Solicitation) => 1,
            (Icmpv6Type::NeighborAdvertisement(flags), Operation::Advertisement { solicited, overrides }) => {
                assert_eq!((flags.router, flags.solicited, flags.r#override), (false, solicited, overrides));
                2
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(icmp.payload()[..16], nd.target.octets());
        assert_eq!(icmp.payload()[16..18], [option, 1]);
        assert_eq!(Some(&icmp.payload()[18..]), nd.mac.as_ref().map(|mac| &mac[..]));
    }
}
