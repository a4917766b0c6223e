//! Addresses of the pool that go: whose sessions go on there, and until when the box answers for them.

use crate::log::Log;
use nat_core::{ClearBounds, Nat, PoolChange};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// An address that goes. Whoever answers for it does so until every worker has given up its part.
#[derive(Debug)]
pub struct AddressRemoval {
    address: Ipv4Addr,
    parts: AtomicU32,
}

impl AddressRemoval {
    /// One of which so many workers have a part.
    pub fn new(address: Ipv4Addr, parts: u32) -> Self {
        Self { address, parts: parts.into() }
    }

    /// Which it is.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Whether sessions may go by it still.
    pub fn is_there(&self) -> bool {
        self.parts.load(Ordering::Relaxed) > 0
    }

    /// A worker has given up its part, which it does once.
    pub fn give_up_part(&self) {
        self.parts.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Addresses that go together, in order.
pub type AddressRemovals = Arc<[AddressRemoval]>;

/// The one of this address.
pub fn find(list: &[AddressRemoval], address: Ipv4Addr) -> Option<usize> {
    list.binary_search_by_key(&address, AddressRemoval::address).ok()
}

/// What a worker gives up, and whom it tells.
#[derive(Debug, Default)]
pub struct Parts(HashMap<Ipv4Addr, (AddressRemovals, usize)>);

impl Parts {
    /// Addresses come and go from now on.
    pub fn change(&mut self, change: &PoolChange, leaving: &AddressRemovals) {
        // What comes back is of the pool again, not of what goes: else it would be answered for when it is neither.
        for pool in &change.added {
            self.give_up(pool.address);
        }
        for pool in &change.removed {
            if let Some(at) = find(leaving, pool.address) {
                self.0.insert(pool.address, (Arc::clone(leaving), at));
            }
        }
    }

    /// Tell of what was given up.
    pub fn advance(&mut self, nat: &mut Nat) {
        while let Some(address) = nat.pop_given_up() {
            self.give_up(address);
        }
    }

    fn give_up(&mut self, address: Ipv4Addr) {
        if let Some((list, at)) = self.0.remove(&address)
            && let Some(leaving) = list.get(at)
        {
            leaving.give_up_part();
        }
    }
}

/// End what could not go on after a restart: sessions by addresses that drain, which the pool has no more then, and by blocks there that
/// were left to subscribers.
pub fn end_passing(nat: &mut Nat, mut log: Option<&mut Log>, now: u64) {
    /// Sessions that are ended before the log takes of them.
    const AT_ONCE: usize = 256;
    let passing = nat.passing();
    let mut from = (!passing.is_empty()).then_some(0);
    while let Some(line) = from {
        let bounds = ClearBounds { lines: 1 << 16, sessions: AT_ONCE, asked: true };
        let meant = |session: &nat_core::Session| {
            let (address, port) = (Ipv4Addr::from_bits(session.outside().address), session.outside().port);
            let after = passing.partition_point(|(its, ports)| (*its, *ports.start()) <= (address, port));
            let last = after.checked_sub(1).and_then(|at| passing.get(at));
            last.is_some_and(|(its, ports)| *its == address && ports.contains(&port))
        };
        (_, from) = nat.clear_from(line, bounds, meant, now);
        if let Some(log) = &mut log {
            while log.drain(nat, now) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nat_core::config::PoolAddress;
    use nat_core::testing::{NOW, REMOTE, config, inside, send};

    fn whole(last: u8) -> PoolAddress {
        PoolAddress::all_ports(Ipv4Addr::new(203, 0, 113, last))
    }

    #[test]
    fn an_address_is_there_until_every_worker_has_given_up_its_part() {
        let list: AddressRemovals = [AddressRemoval::new(whole(1).address, 2)].into();
        let change = PoolChange { added: vec![whole(2)], removed: vec![whole(1)] };
        let mut workers = [0, 1].map(|_| {
            let mut nat = Nat::new(nat_core::Config { pool_room: 1, ..config() }).unwrap();
            let mut parts = Parts::default();
            nat.change_pool(&change);
            parts.change(&change, &list);
            (nat, parts)
        });
        for (nat, parts) in &mut workers {
            assert!(list[0].is_there());
            while nat.advance(NOW, 10) {}
            parts.advance(nat);
            assert!(nat.pop_given_up().is_none());
        }
        assert!(!list[0].is_there());
        // One that has come back is nothing of the past any more.
        let (nat, parts) = &mut workers[0];
        let again: AddressRemovals = [AddressRemoval::new(whole(2).address, 1)].into();
        let change = PoolChange { added: vec![whole(1)], removed: vec![whole(2)] };
        nat.change_pool(&change);
        parts.change(&change, &again);
        let back = PoolChange { added: vec![whole(2)], removed: Vec::new() };
        nat.change_pool(&back);
        parts.change(&back, &Arc::from([]));
        while nat.advance(NOW, 10) {}
        parts.advance(nat);
        assert!(!again[0].is_there() && nat.pool().addresses() == 2);
    }

    #[test]
    fn what_drains_ends_with_the_nat_and_nothing_else() {
        let mut nat = Nat::new(nat_core::Config { pool_room: 1, ..config() }).unwrap();
        for port in 1..1_000 {
            send(&mut nat, inside(1, port), REMOTE);
        }
        nat.change_pool(&PoolChange { added: vec![whole(2)], removed: vec![whole(1)] });
        for port in 1..10 {
            send(&mut nat, inside(2, port), REMOTE);
        }
        end_passing(&mut nat, None, NOW);
        assert_eq!(nat.session_count(), 9);
        end_passing(&mut nat, None, NOW);
        while nat.advance(NOW, 1_000) {}
        assert_eq!((nat.session_count(), nat.draining().len()), (9, 0));
    }
}
