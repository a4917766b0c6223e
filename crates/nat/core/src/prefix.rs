//! IPv4 prefixes.

use std::net::Ipv4Addr;

/// Addresses that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// The first address.
    pub address: Ipv4Addr,
    /// How many bits are the same.
    pub bits: u8,
}

impl Prefix {
    /// All addresses.
    pub const ALL: Self = Self { address: Ipv4Addr::UNSPECIFIED, bits: 0 };

    /// Such as `10.0.0.0/8`.
    pub const fn new(address: Ipv4Addr, bits: u8) -> Self {
        Self { address, bits }
    }

    /// Whether an address is one of them.
    #[inline]
    pub fn has(&self, address: u32) -> bool {
        (self.address.to_bits() ^ address)
            .checked_shr(32 - u32::from(self.bits.min(32)))
            .is_none_or(|differs| differs == 0)
    }

    /// How many there are.
    pub fn size(&self) -> u64 {
        1 << (32 - u32::from(self.bits.min(32)))
    }

    /// Whether an address is in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.has(other.address.to_bits()) || other.has(self.address.to_bits())
    }
}
