//! Ethernet II, with 802.1Q and 802.1ad tags.
//!
//! ```text
//!  0             6             12     14
//!  | destination | source      | type |
//! ```

use crate::bytes::{take, take_mut};

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Bytes that every Ethernet frame has on the wire besides the ones here: the frame check sequence.
pub const FCS: usize = 4;

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

/// What `frame` carries, see [`kind`], and where that begins: behind up to two tags.
#[inline]
pub fn payload(frame: &[u8]) -> Option<(u16, usize)> {
    let kind_at = |at| take(frame, at).map(|kind| u16::from_be_bytes(*kind));
    let mut at = LEN;
    let mut found = kind_at(at - 2)?;
    while at < LEN + 2 * TAG && (found == kind::VLAN || found == kind::QINQ) {
        found = kind_at(at + 2)?;
        at += TAG;
    }
    Some((found, at))
}

/// The VLAN tags of a frame, the outer one first: none, one, or two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tags {
    /// As they stand in a frame, from the first one's type on.
    bytes: [u8; 2 * TAG],
    len: usize,
}

impl Tags {
    /// No tag.
    pub const NONE: Self = Self { bytes: [0; 2 * TAG], len: 0 };

    /// Tags of these VLANs: one is 802.1Q, of two the first is the service tag (802.1ad). `None`: they are more.
    pub fn vlans(ids: &[u16]) -> Option<Self> {
        ids.iter().enumerate().try_fold(Self::NONE, |tags, (i, id)| {
            tags.and(if i + 1 < ids.len() { kind::QINQ } else { kind::VLAN }, *id)
        })
    }

    /// These, and inside of them one of this type with this control information (priority and VLAN). `None`:
    /// there are two already.
    pub fn and(mut self, kind: u16, control: u16) -> Option<Self> {
        let place = take_mut::<TAG>(&mut self.bytes, self.len)?;
        *place = (u32::from(kind) << 16 | u32::from(control)).to_be_bytes();
        self.len += TAG;
        Some(self)
    }

    /// The tags of `frame`: the first two, if there are more.
    #[inline]
    pub fn of(frame: &[u8]) -> Self {
        let mut tags = Self::NONE;
        let end = payload(frame).map_or(LEN, |(_, at)| at);
        if let Some(found) = frame.get(LEN - 2..end - 2) {
            tags.len = found.len();
            tags.bytes[..found.len()].copy_from_slice(found);
        }
        tags
    }

    /// As they stand in a frame, between source address and EtherType.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Whether they are of the same VLANs: priorities and types of tags do not count.
    #[inline]
    pub fn same_vlans(&self, other: &Self) -> bool {
        let ids = |tags: &Self| u64::from_be_bytes(tags.bytes) & 0x0000_0fff_0000_0fff;
        self.len == other.len && ids(self) == ids(other)
    }
}

impl Ethernet {
    /// Write the header with these tags; what comes after it. `None`, and nothing changed, without room for
    /// `least` bytes there.
    pub fn emit_tagged<'a>(&self, out: &'a mut [u8], tags: &Tags, least: usize) -> Option<&'a mut [u8]> {
        let header = LEN + tags.len;
        if out.len() < header + least {
            return None;
        }
        let (head, rest) = out.split_at_mut(header);
        head[..6].copy_from_slice(&self.destination);
        head[6..12].copy_from_slice(&self.source);
        head[12..header - 2].copy_from_slice(tags.bytes());
        head[header - 2..].copy_from_slice(&self.kind.to_be_bytes());
        Some(rest)
    }
}

/// Send the frame back: swap destination and source. Too short a frame is not changed.
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

    #[test]
    fn tags_are_found_as_they_were_written() {
        let header = Ethernet { destination: [1; 6], source: [2; 6], kind: kind::IPV4 };
        for ids in [&[][..], &[100], &[4094, 1]] {
            let tags = Tags::vlans(ids).unwrap();
            let mut frame = [7; LEN + 2 * TAG + 3];
            let rest = header.emit_tagged(&mut frame, &tags, 3).map(|rest| rest.len());
            assert_eq!(rest, Some(3 + 2 * TAG - ids.len() * TAG));
            let judge = etherparse::LaxSlicedPacket::from_ethernet(&frame).unwrap();
            let read: Vec<u16> = judge.vlan_ids().iter().map(|id| id.value()).collect();
            assert_eq!(read, ids);
            assert_eq!(payload(&frame), Some((kind::IPV4, LEN + ids.len() * TAG)));
            assert_eq!(Tags::of(&frame), tags);
            let mut small = vec![7; LEN + ids.len() * TAG + 2];
            assert_eq!(header.emit_tagged(&mut small, &tags, 3), None);
            assert!(small.iter().all(|byte| *byte == 7));
        }
        assert_eq!(Tags::vlans(&[1, 2, 3]), None);
        let high = Tags::NONE.and(kind::QINQ, 0xe064).unwrap();
        let low = Tags::vlans(&[100]).unwrap();
        assert!(high.same_vlans(&low) && high != low);
        assert!(!Tags::vlans(&[100, 0]).unwrap().same_vlans(&low));
        assert_eq!(Tags::of(&[0x81; 13]), Tags::NONE);
    }
}
