//! Leases that bind nobody: of each that is said once, and those for which there is no room wait for it.

use nat_core::Mac;
use nat_core::neighbours::Host;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Leases that bind nobody, so many at most.
#[derive(Debug)]
pub struct UnboundLeases {
    /// Those that wait for room.
    waiting: BTreeMap<Host, Mac>,
    /// Those that are not to be bound.
    refused: BTreeSet<Host>,
    most: usize,
}

impl UnboundLeases {
    /// None yet, and never more than so many of each.
    pub fn new(most: usize) -> Self {
        Self { waiting: BTreeMap::new(), refused: BTreeSet::new(), most }
    }

    /// One is not to be bound; whether that is to be said.
    pub fn refuse(&mut self, host: Host) -> bool {
        self.waiting.remove(&host);
        self.refused.len() < self.most && self.refused.insert(host)
    }

    /// One waits for room; whether that is to be said.
    pub fn wait(&mut self, host: Host, mac: Mac) -> bool {
        self.refused.remove(&host);
        let full = self.waiting.len() >= self.most;
        match self.waiting.entry(host) {
            Entry::Vacant(place) if !full => {
                place.insert(mac);
                true
            }
            Entry::Vacant(_) => false,
            Entry::Occupied(mut place) => {
                place.insert(mac);
                false
            }
        }
    }

    /// One is bound, or has no lease any more.
    pub fn forget(&mut self, host: Host) {
        self.waiting.remove(&host);
        self.refused.remove(&host);
    }

    /// One that waits for room.
    pub fn first(&self) -> Option<(Host, Mac)> {
        self.waiting.first_key_value().map(|(host, mac)| (*host, *mac))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_said_once_and_they_have_a_limit() {
        let mut unbound = UnboundLeases::new(2);
        for (host, said) in [((1, 0), true), ((1, 0), false), ((2, 0), true), ((3, 0), false)] {
            assert_eq!(unbound.wait(host, [2; 6]), said, "{host:?}");
        }
        for (host, said) in [((4, 0), true), ((4, 0), false), ((5, 0), true), ((6, 0), false)] {
            assert_eq!(unbound.refuse(host), said, "{host:?}");
        }
        // The next lease of the same address is another one.
        unbound.forget((4, 0));
        assert!(unbound.refuse((4, 0)));
        // Who waits does so with what its lease said last, or not any more.
        assert!(!unbound.wait((1, 0), [4; 6]));
        assert_eq!(unbound.first(), Some(((1, 0), [4; 6])));
        unbound.forget((1, 0));
        assert_eq!(unbound.first(), Some(((2, 0), [2; 6])));
        unbound.refuse((2, 0));
        assert_eq!(unbound.first(), None);
    }
}
