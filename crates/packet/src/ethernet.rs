//! Ethernet II, with 802.1Q and 802.1ad tags.
//!
//! ```text
//!  0             6             12     14
//!  | destination | source      | type |
//! ```

use crate::{Mac, take, take_mut};

/// Bytes in the header.
pub const LEN: usize = 14;
/// Bytes in one VLAN tag.
pub const TAG: usize = 4;
/// To everybody.
pub const BROADCAST: Mac = [0xff; 6];

/// EtherTypes.
pub mod kind {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// 802.1Q tag.
    pub const VLAN: u16 = 0x8100;
    /// 802.1ad service tag.
    pub const QINQ: u16 = 0x88a8;
}

/// An Ethernet header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ethernet {
    /// To whom.
    pub destination: Mac,
    /// From whom.
    pub source: Mac,
    /// What follows, see [`kind`].
    pub kind: u16,
}

impl Ethernet {
    /// The header at the start of `frame`.
    #[inline]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let [d @ .., s0, s1, s2, s3, s4, s5, k0, k1] = take::<LEN>(frame, 0)?;
        let (destination, source) = (*d, [*s0, *s1, *s2, *s3, *s4, *s5]);
        Some(Self { destination, source, kind: u16::from_be_bytes([*k0, *k1]) })
    }

    /// Write the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8; LEN]) {
        out[..6].copy_from_slice(&self.destination);
        out[6..12].copy_from_slice(&self.source);
        out[12..].copy_from_slice(&self.kind.to_be_bytes());
    }
}

/// Send the frame back: swap destination and source. Too short a frame is left alone.
#[inline]
pub fn swap(frame: &mut [u8]) {
    if let Some(addresses) = take_mut::<12>(frame, 0) {
        let (destination, source) = addresses.split_at_mut(6);
        destination.swap_with_slice(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let header =
            Ethernet { destination: [1, 2, 3, 4, 5, 6], source: [7, 8, 9, 10, 11, 12], kind: kind::ARP };
        let mut bytes = [0; LEN];
        header.emit(&mut bytes);
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 6]);
        assert_eq!(Ethernet::parse(&bytes), Some(header));
        assert_eq!(Ethernet::parse(&bytes[..LEN - 1]), None);
        swap(&mut bytes);
        assert_eq!(bytes, [7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 8, 6]);
        swap(&mut bytes[..11]);
        assert_eq!(bytes[0], 7);
    }
}
