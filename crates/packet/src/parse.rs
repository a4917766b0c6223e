//! Offsets, lengths and addresses that later stages need, found in one pass.

use crate::bytes::take;
use crate::checksum::{self, Sum};
use crate::ethernet::{self, kind};
use crate::ipv4;
use crate::layers::{Fault, Fragment, Layers, protocol};
use crate::udp::Datagram;

/// What a frame is made of. Of a frame that is not IP only what comes before its network header is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parsed {
    /// Tag control information of up to two VLAN tags, the outer one first.
    pub tags: [u16; 2],
    /// Number of tags.
    pub tagged: u8,
    /// EtherType behind the tags.
    pub kind: u16,
    /// Where the network header begins.
    pub l3: u16,
    /// What IP carries, of an IP packet.
    pub ip: Option<Ip>,
}

/// What an IP packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ip {
    /// Where the transport header begins, or, of a later fragment, its piece of the data.
    pub l4: u16,
    /// Where the packet ends; frames may be padded after it.
    pub end: u16,
    /// The protocol, behind IPv6 extension headers: see [`protocol`].
    pub protocol: u8,
    /// Whether it is IPv6.
    pub v6: bool,
    /// Whether it is a piece of a packet.
    pub fragment: bool,
    /// Whether it is another piece than the first.
    pub later: bool,
    /// Whether a transport header that is known here is there in full.
    pub l4_whole: bool,
}

impl Parsed {
    /// Find the headers in `frame`, behind up to two VLAN tags and the usual IPv6 extension headers. Lengths and the IPv4
    /// header's checksum are checked. What is not IP is no fault, and neither is a fragment.
    #[inline]
    pub fn of(frame: &[u8]) -> Result<Self, Fault> {
        let (kind, at) = ethernet::payload(frame).ok_or(Fault::Truncated)?;
        let mut tags = [0; 2];
        let tagged = (at - ethernet::LEN) / ethernet::TAG;
        for (tag, i) in tags.iter_mut().zip(0..tagged) {
            let place = take(frame, ethernet::LEN + i * ethernet::TAG).ok_or(Fault::Truncated)?;
            *tag = u16::from_be_bytes(*place);
        }
        let ip = match kind {
            kind::IPV4 | kind::IPV6 => Some(Ip::of(frame, kind, at)?),
            _ => None,
        };
        Ok(Self { tags, tagged: tagged as u8, kind, l3: at as u16, ip })
    }

    /// What [`Parsed::of`] and, with `VERIFY`, [`Parsed::is_intact`] say of a frame that is what nearly all are: TCP or UDP in a
    /// whole IPv4 packet, without tags or options. `None`: anything else, or broken; ask those two.
    #[inline(always)] // Returned through memory, what it found would cost as much again as finding it.
    pub fn plain<const VERIFY: bool>(frame: &[u8]) -> Option<Self> {
        const L3: usize = ethernet::LEN;
        const L4: usize = L3 + ipv4::LEN;
        let head: &[u8; L4 + 8] = frame.first_chunk()?;
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        // EtherType, version and header length, type of service, length, identification.
        let start = u64::from_be_bytes(std::array::from_fn(|i| head[L3 - 2 + i]));
        // No fragment.
        if start & 0xffff_ff00_0000_0000 != 0x0800_4500_0000_0000 || word(L3 + 6) & 0x3fff != 0 {
            return None;
        }
        let end = L3 + usize::from((start >> 16) as u16);
        let segment = frame.get(L4..end)?;
        let protocol = head[L3 + 9];
        let summed = match protocol {
            protocol::UDP if segment.len() == usize::from(word(L4 + 4)) && segment.len() >= 8 => {
                word(L4 + 6) != 0
            }
            protocol::TCP if segment.len() >= 20 => true,
            _ => return None,
        };
        let header = Sum::ZERO.bytes(&head[L3..L4]);
        let pseudo = || checksum::pseudo_header(&head[L3 + 12..L4], protocol, segment.len() as u32);
        if !header.is_right() || (VERIFY && summed && !pseudo().bytes(segment).is_right()) {
            return None;
        }
        let end = u16::try_from(end).ok()?;
        let (l3, l4) = (L3 as u16, L4 as u16);
        let ip = Ip { l4, end, protocol, v6: false, fragment: false, later: false, l4_whole: true };
        Some(Self { tags: [0; 2], tagged: 0, kind: kind::IPV4, l3, ip: Some(ip) })
    }

    /// The headers of a whole IP packet.
    #[inline]
    pub fn layers(&self) -> Option<Layers> {
        let ip = self.ip.filter(|ip| !ip.fragment)?;
        let (l4, end) = (ip.l4.into(), ip.end.into());
        Some(Layers::from_offsets(self.l3.into(), l4, end, ip.protocol, ip.v6))
    }

    /// Whether the checksum of what IP carries is right, in a whole packet; of what has none that is known here, yes. UDP over
    /// IPv4 may come without (RFC 768).
    #[inline]
    pub fn is_intact(&self, frame: &[u8]) -> bool {
        let Some(layers) = self.layers() else { return true };
        match layers.protocol {
            protocol::UDP => Datagram::parse(frame, &layers).is_ok(),
            _ => layers.is_intact(frame),
        }
    }

    /// Source and destination address of an IP packet, one after the other, as they stand in the header.
    #[inline]
    pub fn addresses<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        let ip = self.ip?;
        Some(
            Layers::from_offsets(self.l3.into(), ip.l4.into(), ip.end.into(), ip.protocol, ip.v6)
                .addresses(frame),
        )
    }

    /// Source and destination port; of an ICMP query its identifier, twice. `None`: there are none.
    #[inline]
    pub fn ports(&self, frame: &[u8]) -> Option<[u16; 2]> {
        self.ip?.ports(frame)
    }
}

impl Ip {
    #[inline]
    fn of(frame: &[u8], kind: u16, at: usize) -> Result<Self, Fault> {
        let (layers, fragment) = Layers::find_any(frame, kind, at)?;
        let offset = |at: usize| u16::try_from(at).map_err(|_| Fault::BadLength);
        let (l4, end) = (offset(layers.l4)?, offset(layers.end)?);
        let later = fragment == Fragment::Later;
        let least = match layers.protocol {
            protocol::UDP | protocol::UDP_LITE | protocol::ICMP | protocol::ICMPV6 => 8,
            protocol::TCP => 20,
            protocol::SCTP | protocol::DCCP => 12,
            _ => usize::MAX,
        };
        Ok(Self {
            l4,
            end,
            protocol: layers.protocol,
            v6: layers.is_v6(),
            fragment: fragment != Fragment::No,
            later,
            l4_whole: !later && layers.end - layers.l4 >= least,
        })
    }

    #[inline]
    fn ports(&self, frame: &[u8]) -> Option<[u16; 2]> {
        if !self.l4_whole {
            return None;
        }
        let [a, b, c, d, e, f] = *take::<6>(frame, self.l4.into())?;
        let at = |bytes| u16::from_be_bytes(bytes);
        match self.protocol {
            protocol::TCP | protocol::UDP | protocol::UDP_LITE | protocol::SCTP | protocol::DCCP => {
                Some([at([a, b]), at([c, d])])
            }
            // Echo and time stamp (RFC 792), echo of ICMPv6 (RFC 4443 section 4): the identifier at byte 4.
            protocol::ICMP => matches!(a, 0 | 8 | 13 | 14).then(|| [at([e, f]); 2]),
            protocol::ICMPV6 => matches!(a, 128 | 129).then(|| [at([e, f]); 2]),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum;
    use proptest::prelude::*;

    fn ethernet(kind: &[u8], rest: &[u8]) -> Vec<u8> {
        [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], kind, rest].concat()
    }

    fn v4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
        let [f0, f1] = fragment.to_be_bytes();
        let len = 20 + payload.len() as u8;
        let mut header = [0x45, 0, 0, len, 0, 0, f0, f1, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let sum = checksum::of(&header).to_be_bytes();
        header[10..12].copy_from_slice(&sum);
        [&header[..], payload].concat()
    }

    fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut header = [0; 40];
        (header[0], header[5], header[6], header[7]) = (0x60, payload.len() as u8, next, 64);
        [&header[..], payload].concat()
    }

    const UDP: [u8; 12] = [0xc0, 0, 0, 7, 0, 12, 0, 0, 1, 2, 3, 4];

    fn ip(frame: &[u8]) -> Ip {
        Parsed::of(frame).expect("right").ip.expect("IP")
    }

    #[test]
    fn tags_offsets_and_ports_are_found() {
        let frame = ethernet(&[0x88, 0xa8, 0, 10, 0x81, 0, 0x20, 100, 8, 0], &v4(17, 0x4000, &UDP));
        let parsed = Parsed::of(&frame).expect("right");
        assert_eq!((parsed.tags, parsed.tagged, parsed.kind, parsed.l3), ([10, 0x2064], 2, 0x0800, 22));
        let ip = parsed.ip.expect("IP");
        assert_eq!(
            (ip.l4, ip.end, ip.protocol, ip.v6, ip.fragment, ip.l4_whole),
            (42, 54, 17, false, false, true)
        );
        assert_eq!(parsed.ports(&frame), Some([0xc000, 7]));
        assert_eq!(parsed.addresses(&frame), Some(&[10, 0, 0, 1, 10, 0, 0, 2][..]));
        assert_eq!(parsed.layers(), Some(Layers::find(&frame).expect("whole")));
        let arp = ethernet(&[0x81, 0, 0, 5, 8, 6], &[0; 28]);
        let parsed = Parsed::of(&arp).expect("not a fault");
        assert_eq!(
            (parsed.tags, parsed.tagged, parsed.kind, parsed.l3, parsed.ip),
            ([5, 0], 1, 0x0806, 18, None)
        );
        assert_eq!((parsed.ports(&arp), parsed.addresses(&arp), parsed.layers()), (None, None, None));
    }

    #[test]
    fn fragments_are_told_from_whole_packets() {
        let v4 = |fragment, payload: &[u8]| ethernet(&[8, 0], &v4(17, fragment, payload));
        for (field, fragment, later) in [
            (0, false, false),
            (0x4000, false, false),
            (0x2000, true, false),
            (0x2001, true, true),
            (1, true, true),
        ] {
            let frame = v4(field, &UDP);
            let found = ip(&frame);
            assert_eq!(
                (found.fragment, found.later, found.l4_whole),
                (fragment, later, !later),
                "{field:#x}"
            );
            assert_eq!(found.ports(&frame).is_some(), !later);
            assert_eq!(Parsed::of(&frame).expect("right").layers().is_some(), !fragment);
        }
        assert!(!ip(&v4(0x2000, &UDP[..7])).l4_whole, "a first piece without all of the header");
        let piece = |field: u16, payload: &[u8]| {
            let [f0, f1] = field.to_be_bytes();
            ethernet(&[0x86, 0xdd], &v6(44, &[&[17, 0, f0, f1, 0, 0, 0, 9], payload].concat()))
        };
        for (field, later) in [(1, false), (0, false), (8, true), (9, true)] {
            let found = ip(&piece(field, &UDP));
            assert_eq!(
                (found.fragment, found.later, found.l4, found.protocol),
                (true, later, 62, 17),
                "{field}"
            );
        }
        let cut = ethernet(&[0x86, 0xdd], &v6(44, &[17, 0, 0, 1]));
        assert_eq!(Parsed::of(&cut), Err(Fault::BadLength));
        assert_eq!(Layers::find(&cut), Err(Fault::Fragment));
    }

    #[test]
    fn icmp_queries_have_their_identifier_for_ports() {
        for (protocol, kind, ports) in
            [(1, 8, true), (1, 0, true), (1, 3, false), (58, 128, true), (58, 1, false)]
        {
            let frame = ethernet(&[8, 0], &v4(protocol, 0, &[kind, 0, 0, 0, 0x12, 0x34, 0, 1]));
            let expected = ports.then_some([0x1234; 2]);
            assert_eq!(Parsed::of(&frame).expect("right").ports(&frame), expected, "{protocol} {kind}");
        }
    }

    proptest! {
        /// Whatever comes: no panic, and no contradiction to what finds whole packets.
        #[test]
        fn it_agrees_with_the_finder_of_layers(
            six in any::<bool>(),
            changes in proptest::collection::vec((0usize..80, any::<u8>()), 0..6),
            cut in 0usize..=80,
        ) {
            let mut frame = if six {
                ethernet(&[0x81, 0, 0, 1, 0x86, 0xdd], &v6(17, &UDP))
            } else {
                ethernet(&[0x81, 0, 0, 1, 8, 0], &v4(17, 0, &UDP))
            };
            for (at, value) in changes {
                if let Some(place) = frame.get_mut(at) {
                    *place = value;
                }
            }
            let frame = &frame[..cut.min(frame.len())];
            match (Parsed::of(frame), Layers::find(frame)) {
                (Ok(parsed), Ok(layers)) => prop_assert_eq!(parsed.layers(), Some(layers)),
                (Ok(parsed), Err(Fault::NotIp)) => prop_assert_eq!(parsed.ip, None),
                (Ok(parsed), Err(fault)) => {
                    prop_assert!(fault == Fault::Fragment && parsed.ip.is_some_and(|ip| ip.fragment));
                }
                (Err(fault), Err(found)) => prop_assert!(fault == found || found == Fault::Fragment),
                (Err(fault), Ok(_)) => prop_assert!(false, "{fault} of what is found"),
            }
            if let Ok(parsed) = Parsed::of(frame) {
                let _no_panic = (parsed.ports(frame), parsed.addresses(frame));
                prop_assert!(parsed.ip.is_none_or(|ip| usize::from(ip.end) <= frame.len() && ip.l4 <= ip.end));
            }
        }

        /// Plain packets are found as such, and as the long way finds them; what is changed is so only if it is still right.
        #[test]
        fn plain_packets_are_found_as_any_others(
            tcp in any::<bool>(),
            summed in any::<bool>(),
            payload in proptest::collection::vec(any::<u8>(), 0..80),
            padding in 0usize..20,
            change in proptest::option::of((0usize..60, any::<u8>())),
        ) {
            let length = (8 + payload.len() as u16).to_be_bytes();
            let mut segment = if tcp {
                [&[0xc0, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0][..], &payload].concat()
            } else {
                [&[0xc0, 0, 0, 7, length[0], length[1], 0, 0], &payload[..]].concat()
            };
            let (number, at) = if tcp { (6, 16) } else { (17, 6) };
            if tcp || summed {
                let pseudo = checksum::pseudo_header(&[10, 0, 0, 1, 10, 0, 0, 2], number, segment.len() as u32);
                let sum = match pseudo.bytes(&segment).checksum() {
                    0 => 0xffff,
                    sum => sum,
                };
                segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            }
            let mut frame = ethernet(&[8, 0], &v4(number, 0x4000, &segment));
            frame.extend(vec![0; padding]);
            if let Some((at, value)) = change.filter(|(at, _)| *at < frame.len()) {
                frame[at] = value;
            }
            let (parsed, plain) = (Parsed::of(&frame), Parsed::plain::<true>(&frame));
            let right = parsed.is_ok_and(|parsed| parsed.is_intact(&frame));
            match plain {
                Some(plain) => prop_assert!(right && Ok(plain) == parsed),
                None => prop_assert!(change.is_some()),
            }
            if let Some(plain) = Parsed::plain::<false>(&frame) {
                prop_assert_eq!(Ok(plain), parsed);
            }
        }
    }
}
