//! Leases that bind nobody: of each that is said once.

use crate::neighbours::Host;
use std::collections::BTreeSet;

/// Leases that bind nobody, so many at most.
#[derive(Debug)]
pub struct Unbound {
    /// Those that are not to be bound.
    refused: BTreeSet<Host>,
    most: usize,
}

impl Unbound {
    /// None yet, and never more than so many.
    pub fn new(most: usize) -> Self {
        Self { refused: BTreeSet::new(), most }
    }

    /// One is not to be bound; whether that is to be said.
    pub fn refuse(&mut self, host: Host) -> bool {
        self.refused.len() < self.most && self.refused.insert(host)
    }

    /// One is bound, or has no lease any more.
    pub fn forget(&mut self, host: Host) {
        self.refused.remove(&host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_said_once_and_they_have_a_limit() {
        let mut unbound = Unbound::new(2);
        for (host, said) in [((4, 0), true), ((4, 0), false), ((5, 0), true), ((6, 0), false)] {
            assert_eq!(unbound.refuse(host), said, "{host:?}");
        }
        // The next lease of the same address is another one.
        unbound.forget((4, 0));
        assert!(unbound.refuse((4, 0)));
    }
}
