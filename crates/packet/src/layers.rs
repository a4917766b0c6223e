//! Where the headers of a frame are, or precisely why it has none that we can use.

use crate::bytes::take;
use crate::ethernet::{self, kind};
use crate::{checksum, ipv4, ipv6};

/// IP protocol numbers.
pub mod protocol {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// DCCP.
    pub const DCCP: u8 = 33;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// UDP-Lite.
    pub const UDP_LITE: u8 = 136;
}

/// Why a frame cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// It ends within a header.
    #[error("the frame ends within a header")]
    Truncated,
    /// It carries neither IPv4 nor IPv6.
    #[error("not an IP packet")]
    NotIp,
    /// The IP header says a version or header length that cannot be.
    #[error("a malformed IP header")]
    BadHeader,
    /// A length field disagrees with the frame.
    #[error("a length field disagrees with the frame")]
    BadLength,
    /// A checksum is wrong.
    #[error("a wrong checksum")]
    BadChecksum,
    /// A fragment: only the whole packet could be used.
    #[error("a fragment")]
    Fragment,
    /// It carries something else than UDP.
    #[error("not UDP")]
    NotUdp,
    /// It carries no measurement signature of ours.
    #[error("no signature")]
    NoSignature,
}

impl Fault {
    /// The names in counters, in the order of the variants: `Fault::NAMES[fault as usize]`.
    pub const NAMES: [&'static str; 8] = [
        "truncated",
        "not_ip",
        "bad_header",
        "bad_length",
        "bad_checksum",
        "fragment",
        "not_udp",
        "no_signature",
    ];

    /// The name in counters.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// Where the headers of an IP packet are in its frame. Only made by [`Layers::find`]; use with the same frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layers {
    /// Where the IP header begins.
    pub ip: usize,
    /// Where what IP carries begins.
    pub l4: usize,
    /// Where the IP packet ends; frames may be padded after it.
    pub end: usize,
    /// What IP carries, see [`protocol`].
    pub protocol: u8,
    v6: bool,
}

impl Layers {
    /// Find the headers in `frame`, behind up to two VLAN tags and the usual IPv6 extension headers.
    /// Lengths and the IPv4 header's checksum are checked.
    #[inline]
    pub fn find(frame: &[u8]) -> Result<Self, Fault> {
        let (found, at) = ethernet::payload(frame).ok_or(Fault::Truncated)?;
        let (layers, fragment) = match found {
            kind::IPV4 => v4(frame, at)?,
            kind::IPV6 => v6::<false>(frame, at)?,
            _ => return Err(Fault::NotIp),
        };
        if fragment == Fragment::No { Ok(layers) } else { Err(Fault::Fragment) }
    }

    /// The same of what was found to be carried at `at`, and whether it is a fragment, which is no fault here. Of one that is
    /// not the first, `l4` is where its piece of the data begins.
    #[inline]
    pub(crate) fn find_any(frame: &[u8], found: u16, at: usize) -> Result<(Self, Fragment), Fault> {
        match found {
            kind::IPV4 => v4(frame, at),
            kind::IPV6 => v6::<true>(frame, at),
            _ => Err(Fault::NotIp),
        }
    }

    /// Found before.
    #[inline]
    pub(crate) fn from_offsets(ip: usize, l4: usize, end: usize, protocol: u8, v6: bool) -> Self {
        Self { ip, l4, end, protocol, v6 }
    }

    /// UDP in IPv4, found otherwise.
    #[inline]
    pub(crate) fn plain(ip: usize, l4: usize, end: usize) -> Self {
        Self { ip, l4, end, protocol: protocol::UDP, v6: false }
    }

    /// Whether it is IPv6.
    #[inline]
    pub fn is_v6(&self) -> bool {
        self.v6
    }

    /// What IP carries, without the frame's padding.
    #[inline]
    pub fn segment<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.l4..self.end).unwrap_or(&[])
    }

    /// Whether the checksum of TCP, ICMP or ICMPv6 is right; of what has none that is known here, yes. UDP's is
    /// checked where its length is: [`udp::Datagram`](crate::udp::Datagram).
    #[inline]
    pub fn is_intact(&self, frame: &[u8]) -> bool {
        let known = matches!(self.protocol, protocol::TCP | protocol::ICMP | protocol::ICMPV6);
        !known || self.checksum(frame) == 0
    }

    /// The checksum of what IP carries, as it stands there: 0 over one that is right. ICMP's is without pseudo-header.
    #[inline]
    pub fn checksum(&self, frame: &[u8]) -> u16 {
        let segment = self.segment(frame);
        let pseudo = match self.protocol {
            protocol::ICMP => checksum::Sum::ZERO,
            _ => checksum::pseudo_header(self.addresses(frame), self.protocol, segment.len() as u32),
        };
        pseudo.plus(checksum::Sum::ZERO.bytes(segment)).checksum()
    }

    /// Source and destination address, one after the other, as they stand in the header.
    #[inline]
    pub fn addresses<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        let (from, to) = if self.v6 { (8, ipv6::LEN) } else { (12, ipv4::LEN) };
        frame.get(self.ip + from..self.ip + to).unwrap_or(&[])
    }
}

/// Whether a packet is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fragment {
    /// It is.
    No,
    /// It is the first piece of one.
    First,
    /// It is another piece.
    Later,
}

impl Fragment {
    /// By its offset and whether more follow.
    #[inline]
    fn of(offset: u16, more: bool) -> Self {
        match (offset, more) {
            (0, false) => Self::No,
            (0, true) => Self::First,
            _ => Self::Later,
        }
    }
}

#[inline]
fn v4(frame: &[u8], ip: usize) -> Result<(Layers, Fragment), Fault> {
    let fixed: &[u8; ipv4::LEN] = take(frame, ip).ok_or(Fault::Truncated)?;
    let header = usize::from(fixed[0] & 0x0f) * 4;
    if fixed[0] >> 4 != 4 || header < ipv4::LEN {
        return Err(Fault::BadHeader);
    }
    // Without options its length is known beforehand, and summing takes no loop.
    let sum = match header {
        ipv4::LEN => checksum::of(fixed),
        _ => checksum::of(frame.get(ip..ip + header).ok_or(Fault::Truncated)?),
    };
    if sum != 0 {
        return Err(Fault::BadChecksum);
    }
    let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    if total < header || ip + total > frame.len() {
        return Err(Fault::BadLength);
    }
    // More fragments, or not the first one (RFC 791 section 3.1).
    let field = u16::from_be_bytes([fixed[6], fixed[7]]);
    let fragment = Fragment::of(field & 0x1fff, field & 0x2000 != 0);
    Ok((Layers { ip, l4: ip + header, end: ip + total, protocol: fixed[9], v6: false }, fragment))
}

/// `FRAGMENTS`: whether fragments are looked into.
#[inline]
fn v6<const FRAGMENTS: bool>(frame: &[u8], ip: usize) -> Result<(Layers, Fragment), Fault> {
    /// RFC 8200 section 4.1 recommends each at most once, destination options twice.
    const EXTENSIONS: usize = 5;
    let fixed: &[u8; ipv6::LEN] = take(frame, ip).ok_or(Fault::Truncated)?;
    if fixed[0] >> 4 != 6 {
        return Err(Fault::BadHeader);
    }
    let end = ip + ipv6::LEN + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    if end > frame.len() {
        return Err(Fault::BadLength);
    }
    let (mut next, mut l4) = (fixed[6], ip + ipv6::LEN);
    let mut fragment = Fragment::No;
    for _ in 0..EXTENSIONS {
        match next {
            44 if !FRAGMENTS => return Err(Fault::Fragment),
            // RFC 8200 section 4.5: next header, reserved, offset in 8 bytes with two reserved bits and "more", identification.
            44 => {
                let [after, _, high, low] = *take::<4>(frame, l4).ok_or(Fault::Truncated)?;
                l4 += 8;
                if l4 > end {
                    return Err(Fault::BadLength);
                }
                let field = u16::from_be_bytes([high, low]);
                fragment = match Fragment::of(field >> 3, field & 1 != 0) {
                    // An atomic fragment (RFC 6946) is a packet that is whole; it is treated like others with this header.
                    Fragment::No => Fragment::First,
                    found => found,
                };
                next = after;
                if fragment == Fragment::Later {
                    return Ok((Layers { ip, l4, end, protocol: next, v6: true }, fragment));
                }
            }
            // Hop-by-hop, routing, destination options: next header, length in 8 bytes beyond the first 8.
            0 | 43 | 60 => {
                let [after, len] = *take::<2>(frame, l4).ok_or(Fault::Truncated)?;
                l4 += 8 + usize::from(len) * 8;
                if l4 > end {
                    return Err(Fault::BadLength);
                }
                next = after;
            }
            protocol => return Ok((Layers { ip, l4, end, protocol, v6: true }, fragment)),
        }
    }
    Err(Fault::BadHeader)
}
