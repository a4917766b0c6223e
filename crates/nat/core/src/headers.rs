//! What the NAT wants to know of a packet, found once.

use crate::key::{self, Endpoint, Key, Realm};
use crate::reason::Reason;
use packet::Parsed;
use packet::checksum::Sum;
use packet::layers::protocol;
use packet::{ethernet, ipv4};

/// Where the headers of an IPv4 packet are, and between which endpoints it goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Headers {
    /// Where it comes from, in the high half, and where it goes: as they stand in the packet, so that both are one load.
    pub addresses: u64,
    /// The ports, alike; of an ICMP query the identifier is the source's, and the destination's is 0.
    pub ports: u32,
    /// VLAN tags.
    pub realm: Realm,
    /// Where the IP header begins.
    pub l3: u16,
    /// Where what it carries begins.
    pub l4: u16,
    /// Where the IP packet ends.
    pub end: u16,
    /// What it carries.
    pub protocol: u8,
    /// What is special about it: [`Headers::FRAGMENT`] and so on. 0 for most packets: TCP or UDP at [`Headers::USUAL`].
    pub special: u8,
}

impl Headers {
    /// Where the IP header and what it carries are in a frame without tags or options.
    pub const USUAL: (u16, u16) = (ethernet::LEN as u16, (ethernet::LEN + ipv4::LEN) as u16);

    /// A piece of a packet.
    pub const FRAGMENT: u8 = 1;
    /// A piece that is not the first.
    pub const LATER: u8 = 2;
    /// TCP with SYN, FIN or RST.
    pub const TCP_CONTROL: u8 = 4;
    /// ICMP, or a protocol that is not translated.
    pub const OTHER: u8 = 8;
    /// Its transport header is not there in full.
    pub const SHORT: u8 = 16;
    /// It has no hops left to be forwarded.
    pub const LAST_HOP: u8 = 32;
    /// There are tags. The fast path takes it all the same.
    pub const ELSEWHERE: u8 = 64;
    /// There are IP options.
    pub const OPTIONS: u8 = 128;

    /// Of a frame. What is no IPv4, or broken, is a reason to drop it.
    #[inline]
    pub fn of(frame: &[u8]) -> Result<Self, Reason> {
        let parsed = Parsed::of(frame)?;
        Self::parsed(frame, &parsed)
    }

    /// Of what most frames are: TCP or UDP in whole IPv4 packets without tags or options. `None`: anything else, or broken. It is what
    /// [`Parsed::of`] finds, in a third of the time.
    #[inline(always)]
    pub(crate) fn plain(frame: &[u8]) -> Option<Self> {
        const L3: usize = ethernet::LEN;
        const L4: usize = L3 + ipv4::LEN;
        let head: &[u8; L4 + 8] = frame.first_chunk()?;
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        // EtherType, version and header length; no fragment.
        if double(head, L3 - 2) & 0xffff_ff00 != 0x0800_4500 || word(L3 + 6) & 0x3fff != 0 {
            return None;
        }
        let (end, protocol) = (L3 + usize::from(word(L3 + 2)), head[L3 + 9]);
        let mut special = if head[L3 + 8] <= 1 { Self::LAST_HOP } else { 0 };
        let least = match protocol {
            protocol::UDP => L4 + 8,
            protocol::TCP => {
                special |= if frame.get(L4 + 13)? & 0b0000_0111 != 0 { Self::TCP_CONTROL } else { 0 };
                L4 + 20
            }
            _ => return None,
        };
        if end < least || end > frame.len().min(u16::MAX.into()) || !Sum::ZERO.bytes(&head[L3..L4]).is_right()
        {
            return None;
        }
        Some(Self {
            addresses: u64::from_be_bytes(piece(head, L3 + 12)),
            ports: double(head, L4),
            realm: 0,
            l3: Self::USUAL.0,
            l4: Self::USUAL.1,
            end: end as u16,
            protocol,
            special,
        })
    }

    /// Of a frame that was parsed before.
    #[inline]
    pub fn parsed(frame: &[u8], parsed: &Parsed) -> Result<Self, Reason> {
        let ip = parsed.ip.filter(|ip| !ip.v6).ok_or(Reason::NotIpv4)?;
        let header: &[u8; 20] =
            frame.get(parsed.l3.into()..).and_then(|rest| rest.first_chunk()).ok_or(Reason::Truncated)?;
        let mut special = Self::place(parsed.l3, ip.l4) | if header[8] <= 1 { Self::LAST_HOP } else { 0 };
        if ip.fragment {
            special |= Self::FRAGMENT | if ip.later { Self::LATER } else { 0 };
        }
        if !ip.l4_whole {
            special |= Self::SHORT;
        }
        let mut ports = [0, 0];
        let segment = frame.get(ip.l4.into()..ip.end.into()).unwrap_or(&[]);
        if let (false, Some([a, b, c, d, e, f])) = (ip.later, segment.first_chunk()) {
            let word = |high: &u8, low: &u8| u16::from_be_bytes([*high, *low]);
            match ip.protocol {
                protocol::UDP => ports = [word(a, b), word(c, d)],
                protocol::TCP => {
                    ports = [word(a, b), word(c, d)];
                    if segment.get(13).is_some_and(|flags| flags & 0b0000_0111 != 0) {
                        special |= Self::TCP_CONTROL;
                    }
                }
                protocol::ICMP => (special, ports) = (special | Self::OTHER, [word(e, f), 0]),
                _ => special |= Self::OTHER,
            }
        } else if !matches!(ip.protocol, protocol::UDP | protocol::TCP) {
            special |= Self::OTHER;
        }
        Ok(Self {
            addresses: u64::from_be_bytes(piece(header, 12)),
            ports: u32::from(ports[0]) << 16 | u32::from(ports[1]),
            realm: key::realm(parsed.tags, parsed.tagged),
            l3: parsed.l3,
            l4: ip.l4,
            end: ip.end,
            protocol: ip.protocol,
            special,
        })
    }

    /// Where it comes from.
    #[inline]
    pub fn source(&self) -> Endpoint {
        Endpoint::new((self.addresses >> 32) as u32, (self.ports >> 16) as u16)
    }

    /// Where it goes.
    #[inline]
    pub fn destination(&self) -> Endpoint {
        Endpoint::new(self.addresses as u32, self.ports as u16)
    }

    /// What its session is found by.
    #[inline(always)]
    pub(crate) fn key<const UP: bool>(&self) -> Key {
        Key::packet::<UP>(self.addresses, self.ports, self.protocol, self.realm)
    }

    /// The same, between other endpoints.
    #[inline]
    pub fn between(self, source: Endpoint, destination: Endpoint) -> Self {
        let addresses = u64::from(source.address) << 32 | u64::from(destination.address);
        let ports = u32::from(source.port) << 16 | u32::from(destination.port);
        Self { addresses, ports, ..self }
    }

    /// Whether they were looked for: no IP header is where the frame begins.
    #[inline(always)]
    pub(crate) fn are_known(&self) -> bool {
        self.l3 != 0
    }

    /// Whether the fast path takes it.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.special & !Self::ELSEWHERE == 0
    }

    /// What of `special` follows from where the headers are.
    #[inline]
    pub fn place(l3: u16, l4: u16) -> u8 {
        if (l3, l4) == Self::USUAL {
            return 0;
        }
        Self::ELSEWHERE | if usize::from(l4) > usize::from(l3) + ipv4::LEN { Self::OPTIONS } else { 0 }
    }

    /// Whether all of these are so.
    #[inline]
    pub fn is(&self, special: u8) -> bool {
        self.special & special == special
    }

    /// Bytes of the IP packet.
    #[inline]
    pub fn len(&self) -> u64 {
        u64::from(self.end.saturating_sub(self.l3))
    }

    /// Whether there are none, which cannot be.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Bytes of a header.
#[inline(always)]
fn piece<const N: usize, const LEN: usize>(head: &[u8; LEN], at: usize) -> [u8; N] {
    std::array::from_fn(|i| head[at + i])
}

/// Four of them as a number.
#[inline(always)]
fn double<const LEN: usize>(head: &[u8; LEN], at: usize) -> u32 {
    u32::from_be_bytes(piece(head, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::checksum;
    use proptest::prelude::*;

    proptest! {
        /// Frames that are nearly right, so that each condition decides for some.
        #[test]
        fn the_short_way_finds_what_the_long_one_finds(
            rest in proptest::collection::vec(any::<u8>(), 0..60),
            protocol in prop_oneof![Just(6u8), Just(17), Just(1), any::<u8>()],
            first in prop_oneof![8 => Just(0x45u8), 1 => any::<u8>()],
            fragment in prop_oneof![4 => Just(0u16), 4 => Just(0x4000), 1 => any::<u16>()],
            hops in 0u8..4,
            longer in -3i32..3,
            wrong in prop_oneof![8 => Just(0u8), 1 => any::<u8>()],
            kind in prop_oneof![8 => Just(0x0800u16), 1 => Just(0x8100), 1 => any::<u16>()],
        ) {
            let [f0, f1] = fragment.to_be_bytes();
            let [t0, t1] = ((20 + rest.len() as i32 + longer) as u16).to_be_bytes();
            let mut ip = [first, 0, t0, t1, 0, 7, f0, f1, hops, protocol, 0, 0, 10, 0, 0, 1, 198, 51, 100, 2];
            let [c0, c1] = checksum::of(&ip).to_be_bytes();
            (ip[10], ip[11]) = (c0 ^ wrong, c1);
            let frame = [&[2; 12], &kind.to_be_bytes()[..], &ip, &rest].concat();
            let long = Parsed::of(&frame).map_err(Reason::from).and_then(|parsed| Headers::parsed(&frame, &parsed));
            if let Some(short) = Headers::plain(&frame) {
                prop_assert_eq!(Ok(short), long);
            }
        }
    }
}
