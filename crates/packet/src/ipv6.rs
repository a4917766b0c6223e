//! IPv6 (RFC 8200).
//!
//! ```text
//!  0              4        6      7           8         24            40
//!  |ver,class,flow| length | next | hop limit | source  | destination |
//! ```

use crate::bytes::{take, take_mut};
use std::net::Ipv6Addr;

/// Bytes in the header.
pub const LEN: usize = 40;

/// An IPv6 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6 {
    /// From whom.
    pub source: Ipv6Addr,
    /// To whom.
    pub destination: Ipv6Addr,
    /// What follows: 17 UDP, 6 TCP, 58 ICMPv6.
    pub next: u8,
    /// Hops it may make.
    pub hops: u8,
    /// Differentiated services code point, 0–63.
    pub dscp: u8,
    /// Bytes that follow the header.
    pub payload: u16,
}

impl Ipv6 {
    /// Write the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; LEN]) {
        out[0] = 0x60 | (self.dscp >> 2);
        out[1] = self.dscp << 6;
        out[2..4].fill(0);
        out[4..6].copy_from_slice(&self.payload.to_be_bytes());
        out[6] = self.next;
        out[7] = self.hops;
        out[8..24].copy_from_slice(&self.source.octets());
        out[24..40].copy_from_slice(&self.destination.octets());
    }
}

/// Source and destination of the header at `at`.
#[inline]
pub fn addresses(frame: &[u8], at: usize) -> Option<(Ipv6Addr, Ipv6Addr)> {
    let source: [u8; 16] = *take(frame, at + 8)?;
    let destination: [u8; 16] = *take(frame, at + 24)?;
    Some((source.into(), destination.into()))
}

/// Swap source and destination of the header at `at`. No checksum changes: sums do not care about order.
#[inline]
pub fn swap(frame: &mut [u8], at: usize) {
    if let Some(addresses) = take_mut::<32>(frame, at + 8) {
        let (source, destination) = addresses.split_at_mut(16);
        source.swap_with_slice(destination);
    }
}

/// Let the packet whose header is at `at` make `hops` hops from here.
#[inline]
pub fn set_hops(frame: &mut [u8], at: usize, hops: u8) {
    take_mut::<1>(frame, at + 7).into_iter().for_each(|place| *place = [hops]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_what_others_write() {
        let (source, destination) = (Ipv6Addr::LOCALHOST, "fd00::2".parse().unwrap());
        let header = Ipv6 { source, destination, next: 17, hops: 64, dscp: 46, payload: 26 };
        let mut bytes = [0xaa; LEN];
        header.emit(&mut bytes);
        let judge = etherparse::Ipv6Header {
            traffic_class: 46 << 2,
            payload_length: 26,
            next_header: etherparse::IpNumber::UDP,
            hop_limit: 64,
            source: source.octets(),
            destination: destination.octets(),
            ..Default::default()
        };
        assert_eq!(bytes[..], judge.to_bytes()[..]);
        swap(&mut bytes, 0);
        assert_eq!(addresses(&bytes, 0), Some((destination, source)));
        assert_eq!(addresses(&bytes[..LEN - 1], 0), None);
    }
}
