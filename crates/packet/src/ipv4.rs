//! IPv4 (RFC 791).
//!
//! ```text
//!  0       1      2        4    6          8     9          10         12      16           20
//!  |ver,ihl| dscp | length | id | fragment | ttl | protocol | checksum | source | destination |
//! ```

use crate::bytes::{take, take_mut};
use crate::checksum;
use std::net::Ipv4Addr;

/// Bytes in a header without options.
pub const LEN: usize = 20;

/// An IPv4 header without options, as we send it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv4 {
    /// From whom.
    pub source: Ipv4Addr,
    /// To whom.
    pub destination: Ipv4Addr,
    /// What follows: 17 UDP, 6 TCP, 1 ICMP.
    pub protocol: u8,
    /// Hops it may make.
    pub ttl: u8,
    /// Differentiated services code point, 0–63.
    pub dscp: u8,
    /// Bytes that follow the header.
    pub payload: u16,
}

impl Ipv4 {
    /// Write the header with its checksum. It may not be fragmented on its way, so its identification
    /// means nothing and is zero (RFC 6864 section 4.1).
    #[inline]
    pub fn emit(&self, out: &mut [u8; LEN]) {
        out[0] = 0x45;
        out[1] = self.dscp << 2;
        out[2..4].copy_from_slice(&self.payload.saturating_add(LEN as u16).to_be_bytes());
        out[4..8].copy_from_slice(&[0, 0, 0x40, 0]);
        out[8] = self.ttl;
        out[9] = self.protocol;
        out[10..12].fill(0);
        out[12..16].copy_from_slice(&self.source.octets());
        out[16..20].copy_from_slice(&self.destination.octets());
        let sum = checksum::of(out);
        out[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Source and destination of the header at `at`.
#[inline]
pub fn addresses(frame: &[u8], at: usize) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let [s0, s1, s2, s3, d0, d1, d2, d3] = *take::<8>(frame, at + 12)?;
    Some((Ipv4Addr::new(s0, s1, s2, s3), Ipv4Addr::new(d0, d1, d2, d3)))
}

/// Swap source and destination of the header at `at`. No checksum changes: sums do not care about order.
#[inline]
pub fn swap(frame: &mut [u8], at: usize) {
    if let Some(addresses) = take_mut::<8>(frame, at + 12) {
        let (source, destination) = addresses.split_at_mut(4);
        source.swap_with_slice(destination);
    }
}

/// Let the packet whose header is at `at` make `ttl` hops from here. The header's checksum follows.
#[inline]
pub fn set_ttl(frame: &mut [u8], at: usize, ttl: u8) {
    if let Some([old, protocol, sum @ ..]) = take_mut::<4>(frame, at + 8) {
        let word = |ttl| u16::from_be_bytes([ttl, *protocol]);
        *sum = checksum::update(u16::from_be_bytes(*sum), word(*old), word(ttl)).to_be_bytes();
        *old = ttl;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_what_others_write() {
        let header = Ipv4 {
            source: Ipv4Addr::new(192, 168, 0, 1),
            destination: Ipv4Addr::new(10, 0, 0, 255),
            protocol: 17,
            ttl: 64,
            dscp: 46,
            payload: 26,
        };
        let mut bytes = [0xaa; LEN];
        header.emit(&mut bytes);
        let mut judge =
            etherparse::Ipv4Header::new(26, 64, etherparse::IpNumber::UDP, [192, 168, 0, 1], [10, 0, 0, 255])
                .unwrap();
        judge.dscp = 46.try_into().unwrap();
        judge.dont_fragment = true;
        judge.header_checksum = judge.calc_header_checksum();
        assert_eq!(bytes[..], judge.to_bytes()[..]);
        assert_eq!(addresses(&bytes, 0), Some((header.source, header.destination)));
        swap(&mut bytes, 0);
        assert_eq!(addresses(&bytes, 0), Some((header.destination, header.source)));
        assert_eq!(checksum::of(&bytes), 0);
        assert_eq!(addresses(&bytes, 1), None);
    }
}
