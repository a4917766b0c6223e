//! The Ethernet header of a packet that goes on: new addresses, and the tags of the side that it goes to.

use dpdk::Mbuf;
use nat_core::{Realm, key};
use packet::Mac;
use packet::ethernet::{self, TAG, Tags, kind};

/// To whom, and from whom, as they stand in the header: two words, which take two stores and not twelve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses(u64, u32);

const ADDRESSES: usize = 12;

/// To one, from another.
#[inline(always)]
pub fn addresses([a, b, c, d, e, f]: Mac, [g, h, i, j, k, l]: Mac) -> Addresses {
    Addresses(u64::from_ne_bytes([a, b, c, d, e, f, g, h]), u32::from_ne_bytes([i, j, k, l]))
}

impl Addresses {
    #[inline(always)]
    fn write(self, header: &mut [u8; ADDRESSES]) {
        header[..8].copy_from_slice(&self.0.to_ne_bytes());
        header[8..].copy_from_slice(&self.1.to_ne_bytes());
    }
}

/// The tags that stand for a realm: none, one, or a service tag and another.
pub fn tags(realm: Realm) -> Tags {
    let ids = [(realm >> 12 & 0xfff) as u16, (realm & 0xfff) as u16];
    let used = if realm == 0 { 0 } else { 1 + usize::from(ids[1] != 0) };
    Tags::vlans(&ids[..used]).unwrap_or(Tags::NONE)
}

/// The realm that tags stand for.
pub fn realm(tags: &Tags) -> Realm {
    let controls = tags.bytes().chunks_exact(TAG).map(|tag| u16::from_be_bytes([tag[2], tag[3]]));
    let (mut of, mut count) = ([0; 2], 0);
    for (of, control) in of.iter_mut().zip(controls) {
        *of = control;
        count += 1;
    }
    key::realm(of, count)
}

/// Give an IP packet without tags new Ethernet addresses. `false`, and nothing is written: it has some.
#[inline]
pub fn readdress(frame: &mut [u8], l3: usize, addresses: Addresses) -> bool {
    // Behind them is the EtherType, which is that of IPv4.
    let Some(header) = frame.first_chunk_mut().filter(|_| l3 == ethernet::LEN) else { return false };
    addresses.write(header);
    true
}

/// Give the IP packet that begins at `l3` an Ethernet header. `false`: there is no room before it.
#[inline]
pub fn rewrite(mbuf: &mut Mbuf, l3: usize, realm: u32, addresses: Addresses) -> bool {
    let tags = tags(realm);
    let wanted = ethernet::LEN + tags.bytes().len();
    let moved = match wanted.checked_sub(l3) {
        Some(0) => true,
        Some(more) => mbuf.prepend(more).is_some(),
        None => mbuf.adjust(l3 - wanted),
    };
    moved && write(mbuf.data_mut(), &tags, addresses)
}

#[inline]
fn write(frame: &mut [u8], tags: &Tags, addresses: Addresses) -> bool {
    let len = tags.bytes().len();
    let Some(header) = frame.get_mut(..ADDRESSES + len + 2) else { return false };
    let Some((head, rest)) = header.split_first_chunk_mut() else { return false };
    addresses.write(head);
    rest[..len].copy_from_slice(tags.bytes());
    rest[len..].copy_from_slice(&kind::IPV4.to_be_bytes());
    true
}

const _: () = assert!(TAG * 2 + ethernet::LEN <= 64, "a header fits into any headroom");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_realm_is_its_tags() {
        assert_eq!(tags(0), Tags::NONE);
        assert_eq!(Some(tags(7 << 12)), Tags::vlans(&[7]));
        assert_eq!(Some(tags(7 << 12 | 9)), Tags::vlans(&[7, 9]));
        assert!([0, 7 << 12, 7 << 12 | 9].iter().all(|of| realm(&tags(*of)) == *of));
    }

    #[test]
    fn addresses_tags_and_type_stand_before_the_packet() {
        let mut frame = [0xee; 20];
        assert!(write(&mut frame, &tags(7 << 12), addresses([1; 6], [2; 6])));
        assert_eq!(frame[..18], [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x81, 0, 0, 7, 8, 0]);
        assert_eq!(frame[18..], [0xee; 2]);
        assert!(!write(&mut frame[..13], &Tags::NONE, addresses([0; 6], [0; 6])));
    }
}
