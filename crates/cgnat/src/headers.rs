//! What the NAT wants to know of a packet, found once.

use crate::key::{self, Endpoint, Realm};
use crate::reason::Reason;
use packet::Parsed;
use packet::layers::protocol;

/// Where the headers of an IPv4 packet are, and between which endpoints it goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Headers {
    /// Where it comes from; of an ICMP query the identifier is the port.
    pub source: Endpoint,
    /// Where it goes; of an ICMP query the port is 0.
    pub destination: Endpoint,
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
    /// Whether the fast path must leave it: [`Headers::FRAGMENT`] and so on, 0 for most packets.
    pub special: u8,
}

impl Headers {
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

    /// Of a frame. What is no IPv4, or broken, is a reason to drop it.
    #[inline]
    pub fn of(frame: &[u8]) -> Result<Self, Reason> {
        let parsed = Parsed::of(frame)?;
        Self::parsed(frame, &parsed)
    }

    /// Of a frame that was parsed before.
    #[inline]
    pub fn parsed(frame: &[u8], parsed: &Parsed) -> Result<Self, Reason> {
        let ip = parsed.ip.filter(|ip| !ip.v6).ok_or(Reason::NotIpv4)?;
        let header: &[u8; 20] =
            frame.get(parsed.l3.into()..).and_then(|rest| rest.first_chunk()).ok_or(Reason::Truncated)?;
        let address =
            |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let mut special = if header[8] <= 1 { Self::LAST_HOP } else { 0 };
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
            source: Endpoint::new(address(12), ports[0]),
            destination: Endpoint::new(address(16), ports[1]),
            realm: key::realm(parsed.tags, parsed.tagged),
            l3: parsed.l3,
            l4: ip.l4,
            end: ip.end,
            protocol: ip.protocol,
            special,
        })
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
