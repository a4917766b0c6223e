//! Which worker has what comes in pieces from outside. Where several workers share an address, its port alone says whose a packet is, and
//! that is in the first piece: the others go where it went.

use crate::headers::Headers;
use crate::key::Realm;
use crate::ownership::Ownership;
use crate::verdict::Side;

/// Packets that are remembered. What is more takes the place of another.
const PLACES: usize = 1 << 10;

/// What pieces of one packet have in common (RFC 791 section 3.2), and where they come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PieceKey {
    addresses: u64,
    realm: Realm,
    id: u16,
    protocol: u8,
}

impl PieceKey {
    fn of(frame: &[u8], headers: &Headers) -> Option<Self> {
        let id = frame.get(usize::from(headers.l3) + 4..)?.first_chunk()?;
        let Headers { addresses, realm, protocol, .. } = *headers;
        Some(Self { addresses, realm, id: u16::from_be_bytes(*id), protocol })
    }

    /// Its place. Packets between two hosts have ids that differ in their low bits.
    fn place(self) -> usize {
        let mixed = (self.addresses ^ u64::from(self.realm) << 32 ^ u64::from(self.protocol) << 16)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed >> 48) as usize ^ usize::from(self.id)) % PLACES
    }
}

/// Whose packets are whose pieces are under way: of one who asks, to whom all pieces of a packet come. It does not grow.
#[derive(Debug, Clone)]
pub struct PieceOwners {
    places: Box<[Option<(PieceKey, u8)>]>,
}

impl Default for PieceOwners {
    fn default() -> Self {
        Self { places: vec![None; PLACES].into_boxed_slice() }
    }
}

impl PieceOwners {
    /// The worker of a packet, as [`Ownership::worker`] says it; of a piece that comes after the first one, that of the first.
    #[inline]
    pub fn worker(
        &mut self,
        ownership: &Ownership,
        side: Side,
        frame: &[u8],
        headers: &Headers,
    ) -> Option<usize> {
        let worker = ownership.worker(side, frame, headers);
        match side {
            Side::Outside if headers.is(Headers::FRAGMENT) => self.of_piece(frame, headers, worker),
            _ => worker,
        }
    }

    #[inline(never)] // Few packets come in pieces.
    fn of_piece(&mut self, frame: &[u8], headers: &Headers, worker: Option<usize>) -> Option<usize> {
        let Some(key) = PieceKey::of(frame, headers) else { return worker };
        let place = self.places.get_mut(key.place())?;
        if headers.is(Headers::LATER) {
            return match *place {
                Some((of, first)) if of == key => Some(first.into()),
                _ => worker,
            };
        }
        // The first piece of another packet with that id says anew where the others go.
        *place = worker.and_then(|worker| Some((key, u8::try_from(worker).ok()?)));
        worker
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PoolAddress;
    use packet::layers::protocol;
    use std::net::Ipv4Addr;

    const SHARED: u32 = 0xcb00_7101;

    fn ownership() -> Ownership {
        let part = |ports| vec![PoolAddress { address: Ipv4Addr::from_bits(SHARED), ports }];
        Ownership::new(&[part(1024..=9999), part(10_000..=65535)], [1; 32])
    }

    /// The worker of a piece, to that port where it is the first.
    fn piece(owners: &mut PieceOwners, source: u32, id: u16, port: Option<u16>) -> Option<usize> {
        let mut frame = [0; 64];
        frame[18..20].copy_from_slice(&id.to_be_bytes());
        let later = if port.is_none() { Headers::LATER } else { 0 };
        let headers = Headers {
            addresses: u64::from(source) << 32 | u64::from(SHARED),
            ports: port.map_or(0, |port| 53 << 16 | u32::from(port)),
            l3: 14,
            l4: 34,
            protocol: protocol::UDP,
            special: Headers::FRAGMENT | later,
            ..Headers::default()
        };
        owners.worker(&ownership(), Side::Outside, &frame, &headers)
    }

    #[test]
    fn pieces_go_where_the_first_one_went() {
        let mut owners = PieceOwners::default();
        assert_eq!(piece(&mut owners, 1, 7, None), Some(0), "nobody knows: it is with the address");
        assert_eq!(piece(&mut owners, 1, 7, Some(20_000)), Some(1));
        assert_eq!(piece(&mut owners, 1, 7, None), Some(1));
        assert_eq!(piece(&mut owners, 1, 7, None), Some(1));
        assert_eq!([piece(&mut owners, 2, 7, None), piece(&mut owners, 1, 8, None)], [Some(0); 2]);
        assert_eq!(piece(&mut owners, 1, 7, Some(2_000)), Some(0), "another packet");
        assert_eq!(piece(&mut owners, 1, 7, None), Some(0));
    }

    #[test]
    fn as_many_packets_of_a_host_are_remembered_as_there_are_places() {
        let mut owners = PieceOwners::default();
        let ids = 0..PLACES as u16;
        for id in ids.clone() {
            piece(&mut owners, 1, id, Some(20_000));
        }
        assert!(ids.clone().all(|id| piece(&mut owners, 1, id, None) == Some(1)));
        piece(&mut owners, 1, PLACES as u16, Some(20_000));
        assert_eq!(ids.filter(|id| piece(&mut owners, 1, *id, None) == Some(0)).count(), 1);
    }
}
