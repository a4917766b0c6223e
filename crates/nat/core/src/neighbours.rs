//! To which Ethernet addresses next hops lead. One element writes them, others read them, maybe on other cores.

use crate::{Hop, Mac, Realm};
use std::sync::atomic::{AtomicU64, Ordering};

/// A subscriber: its private address, and its tags.
pub type Host = (u32, Realm);

/// An Ethernet address that may not be known (yet).
#[derive(Debug, Default)]
pub struct Neighbour(AtomicU64);

/// Above the 48 bits of an address: there is one.
const KNOWN: u64 = 1 << 48;

impl Neighbour {
    /// The address, if it is known.
    #[inline]
    pub fn mac(&self) -> Option<Mac> {
        let [0, 1, a, b, c, d, e, f] = self.0.load(Ordering::Relaxed).to_be_bytes() else { return None };
        Some([a, b, c, d, e, f])
    }

    /// It is this one, unless no single host can have it: what is sent to a group everybody would read.
    pub fn set(&self, mac: Mac) {
        if is_of_one(mac) {
            let [a, b, c, d, e, f] = mac;
            self.0.store(KNOWN | u64::from_be_bytes([0, 0, a, b, c, d, e, f]), Ordering::Relaxed);
        }
    }

    fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Whether it is the address of one host.
pub fn is_of_one(mac: Mac) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

/// Those of all next hops.
#[derive(Debug)]
pub struct Neighbours(Box<[Neighbour]>);

impl Default for Neighbours {
    /// As many as sessions can name.
    fn default() -> Self {
        Self((0..=Hop::MAX).map(|_| Neighbour::default()).collect())
    }
}

impl Neighbours {
    /// The address of a next hop.
    #[inline]
    pub fn mac(&self, hop: Hop) -> Option<Mac> {
        self.0.get(usize::from(hop))?.mac()
    }

    /// A next hop is at this address.
    pub fn set(&self, hop: Hop, mac: Mac) {
        if let Some(neighbour) = self.0.get(usize::from(hop)) {
            neighbour.set(mac);
        }
    }

    /// A next hop is nowhere any more.
    pub fn clear(&self, hop: Hop) {
        if let Some(neighbour) = self.0.get(usize::from(hop)) {
            neighbour.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_kept_until_they_are_cleared() {
        let neighbours = Neighbours::default();
        assert_eq!(neighbours.mac(7), None);
        neighbours.set(7, [2, 0xff, 0, 0, 0, 9]);
        assert_eq!((neighbours.mac(7), neighbours.mac(8)), (Some([2, 0xff, 0, 0, 0, 9]), None));
        neighbours.clear(7);
        neighbours.set(Hop::MAX, [0xfe, 0, 0, 0, 0, 0]);
        assert_eq!((neighbours.mac(7), neighbours.mac(Hop::MAX)), (None, Some([0xfe, 0, 0, 0, 0, 0])));
    }

    #[test]
    fn nobody_has_everybody_elses_packets_sent_to_a_group() {
        let neighbour = Neighbour::default();
        for mac in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0; 6]] {
            neighbour.set(mac);
            assert_eq!(neighbour.mac(), None, "{mac:?}");
        }
    }
}
