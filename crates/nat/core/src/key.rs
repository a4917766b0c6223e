//! What a session or a mapping is found by.

/// Addresses, ports, protocol and tags in 16 bytes: one register to hash and to compare.
///
/// ```text
///  127        96 95         64 63   48 47   32 31      24 23     0
///  | address A  | address B   | port A| port B| protocol | realm |
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Key(pub u128);

/// The VLAN tags that tell overlapping inside addresses apart: twelve bits of the outer tag's id and twelve of the inner's;
/// 0 is untagged, since id 0 means just that (IEEE 802.1Q section 9.6).
pub type Realm = u32;

/// In place of tags: the outside. No VLAN has the id 4095.
const OUTSIDE: u32 = 0xff_ffff;
/// In place of tags: a mapping by its outside endpoint.
const MAPPED: u32 = 0xff_fffe;

/// An address and a port; of an ICMP query its identifier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// IPv4 address, as a number.
    pub address: u32,
    /// Port or identifier.
    pub port: u16,
}

impl Endpoint {
    /// Of an address as a number, and a port.
    #[inline]
    pub const fn new(address: u32, port: u16) -> Self {
        Self { address, port }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", std::net::Ipv4Addr::from_bits(self.address), self.port)
    }
}

/// The tags' part of a key, from tag control information, outer tag first.
#[inline]
pub fn realm(tags: [u16; 2], tagged: u8) -> Realm {
    let id = |tag: u16| u32::from(tag & 0x0fff);
    match tagged {
        0 => 0,
        1 => id(tags[0]) << 12,
        _ => id(tags[0]) << 12 | id(tags[1]),
    }
}

#[inline]
fn key(a: Endpoint, b: Endpoint, protocol: u8, realm: u32) -> Key {
    let addresses = u128::from(a.address) << 96 | u128::from(b.address) << 64;
    let rest =
        u64::from(a.port) << 48 | u64::from(b.port) << 32 | u64::from(protocol) << 24 | u64::from(realm);
    Key(addresses | u128::from(rest))
}

impl Key {
    /// Of a packet, by both addresses and both ports as they stand in it; from the inside with the tags of its subscriber.
    #[inline(always)]
    pub fn packet<const UP: bool>(addresses: u64, ports: u32, protocol: u8, realm: Realm) -> Self {
        let realm = if UP { realm } else { OUTSIDE };
        let rest = u64::from(ports) << 32 | u64::from(u32::from(protocol) << 24 | realm);
        Self(u128::from(addresses) << 64 | u128::from(rest))
    }

    /// Of a packet from the inside.
    #[inline]
    pub fn outbound(inside: Endpoint, remote: Endpoint, protocol: u8, realm: Realm) -> Self {
        key(inside, remote, protocol, realm)
    }

    /// Of a packet from the outside.
    #[inline]
    pub fn inbound(remote: Endpoint, outside: Endpoint, protocol: u8) -> Self {
        key(remote, outside, protocol, OUTSIDE)
    }

    /// Of a mapping, by its inside endpoint.
    #[inline]
    pub fn inside(inside: Endpoint, protocol: u8, realm: Realm) -> Self {
        key(inside, Endpoint::default(), protocol, realm)
    }

    /// Of a mapping, by its outside endpoint.
    #[inline]
    pub fn outside(outside: Endpoint, protocol: u8) -> Self {
        key(outside, Endpoint::default(), protocol, MAPPED)
    }

    /// Of a subscriber.
    #[inline]
    pub fn subscriber(address: u32, realm: Realm) -> Self {
        key(Endpoint::new(address, 0), Endpoint::default(), 0, realm)
    }

    /// In place of a subscriber's: no tags are like these.
    pub const NOBODY: Self = Self(u128::MAX);

    /// The subscriber whose key it is.
    #[inline]
    pub fn owner(self) -> (u32, Realm) {
        ((self.0 >> 96) as u32, self.0 as u32)
    }
}
