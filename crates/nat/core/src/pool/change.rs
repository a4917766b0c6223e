//! Addresses that come and go while packets pass. One that goes drains: nothing begins on it, what is there goes on, and when all of its
//! blocks are free it is given up.

use super::{Pool, Use, layout};
use crate::config::PoolAddress;
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// Addresses of a worker, or its parts of them, that come, and others that go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolChange {
    /// These come, or come back while they drain.
    pub added: Vec<PoolAddress>,
    /// These drain from now on.
    pub removed: Vec<PoolAddress>,
}

impl PoolChange {
    /// Whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }
}

impl Pool {
    /// How many addresses may be added that are not there.
    pub fn vacancies(&self) -> usize {
        self.addresses.iter().filter(|this| this.address == 0).count()
    }

    /// Whether there are addresses that drain.
    #[inline]
    pub(crate) fn any_drains(&self) -> bool {
        self.draining > 0
    }

    /// Whether nothing begins on the address of this number any more.
    #[inline]
    pub(crate) fn drains(&self, number: u32) -> bool {
        self.addresses.get(number as usize).is_some_and(|this| this.used_for != Use::All)
    }

    /// Addresses that drain, in order.
    pub(crate) fn draining(&self) -> Vec<u32> {
        if self.draining == 0 {
            return Vec::new();
        }
        let all = self.sorted.iter().map(|at| &self.addresses[*at as usize]);
        all.filter(|this| this.used_for == Use::Drains).map(|this| this.address).collect()
    }

    /// How many of these addresses find no room, with those that they have something in common with.
    pub(crate) fn without_room(&self, added: &[PoolAddress]) -> usize {
        let new = added.iter().filter(|pool| self.find(pool).is_none()).count();
        let overlap = added.iter().filter(|pool| self.overlaps(pool)).count();
        new.saturating_sub(self.vacancies()).max(overlap)
    }

    /// Let addresses be there. Those that come back are said, by their numbers: what is left there may be theirs again who had it.
    pub(crate) fn add_addresses(&mut self, added: &[PoolAddress]) -> Vec<u32> {
        let (mut back, mut come, mut vacant) = (Vec::new(), Vec::new(), None);
        for pool in added {
            if let Some(number) = self.find(pool) {
                if let Some(this) =
                    self.addresses.get_mut(number as usize).filter(|this| this.used_for == Use::Drains)
                {
                    this.used_for = Use::All;
                    self.draining -= 1;
                    self.totals.0 += u64::from(this.blocks);
                    self.totals.1 += u64::from(this.free);
                    self.open.push(number);
                    back.push(number);
                }
                continue;
            }
            let (first_port, blocks) = layout(pool, self.size);
            if pool.address.is_unspecified() || blocks == 0 || self.overlaps(pool) {
                continue;
            }
            let vacant = vacant.get_or_insert_with(|| FreeSlots::of(self));
            let Some(number) = vacant.take(self, (pool.address, first_port), blocks) else { continue };
            let this = &mut self.addresses[number as usize];
            (this.address, this.used_for) = (pool.address.to_bits(), Use::All);
            (this.first_port, this.ports) = (first_port, (*pool.ports.start(), *pool.ports.end()));
            (this.blocks, this.free) = (blocks, blocks);
            self.totals.0 += u64::from(blocks);
            self.totals.1 += u64::from(blocks);
            self.open.push(number);
            // Found from the end of the loop on, as `sorted` is searched in it; nothing of these overlaps, as the configuration is checked.
            come.push(number);
        }
        self.sorted.append(&mut come);
        let addresses = &self.addresses;
        self.sorted.sort_by_key(|at| (addresses[*at as usize].address, addresses[*at as usize].first_port));
        back
    }

    /// Let nothing begin on addresses any more.
    pub(crate) fn drain_addresses(&mut self, removed: &[PoolAddress]) {
        for pool in removed {
            let Some(number) = self.find(pool) else { continue };
            let Some(this) = self.addresses.get_mut(number as usize).filter(|this| this.used_for == Use::All)
            else {
                continue;
            };
            this.used_for = Use::Drains;
            self.draining += 1;
            self.totals.0 -= u64::from(this.blocks);
            self.totals.1 -= u64::from(this.free);
            if this.free == this.blocks {
                self.emptied.push(number);
            }
        }
        let addresses = &self.addresses;
        self.open.retain(|number| addresses[*number as usize].used_for == Use::All);
    }

    /// Give up addresses that drain and have nothing any more: they are not found from now on. Their numbers, in order.
    pub(crate) fn close(&mut self) -> Vec<u32> {
        if self.emptied.is_empty() {
            return Vec::new();
        }
        let addresses = &self.addresses;
        let empty = |number: &u32| {
            let this = &addresses[*number as usize];
            this.used_for == Use::Drains && this.free == this.blocks
        };
        // Not taken: its room stays.
        let mut closed: Vec<u32> = self.emptied.iter().copied().filter(empty).collect();
        self.emptied.clear();
        closed.sort_unstable();
        closed.dedup();
        for number in &closed {
            self.addresses[*number as usize].used_for = Use::Closes;
        }
        self.draining -= closed.len();
        self.sorted.retain(|number| closed.binary_search(number).is_err());
        closed
    }

    /// Nothing leads to these addresses any more, which were given up: others may have their places.
    pub(crate) fn forget(&mut self, closed: &[u32]) {
        for number in closed {
            let Some(this) = self.addresses.get_mut(*number as usize) else { continue };
            if this.used_for == Use::Closes {
                (this.was, this.address, this.used_for) = (this.address, 0, Use::All);
            }
        }
    }

    /// The sessions of a subscriber go on in a block, though it is not among those that it takes ports of; or in none's.
    pub(crate) fn leave_to(&mut self, block: u32, subscriber: Option<u32>) {
        if let Some(this) = self.blocks.get_mut().get_mut(block as usize) {
            this.left_to = subscriber.map_or(0, |number| number + 1);
        }
    }

    /// Whose sessions go on in a block, though it is not among those that it takes ports of.
    #[inline]
    pub(crate) fn left_to(&self, block: u32) -> Option<u32> {
        self.blocks.get().get(block as usize)?.left_to.checked_sub(1)
    }

    /// The blocks of an address that were left to somebody, and to whom.
    pub(crate) fn all_left(&self, number: u32) -> impl Iterator<Item = (u32, u32)> {
        let blocks =
            self.addresses.get(number as usize).map_or(0..0, |this| this.block..this.block + this.blocks);
        blocks.filter_map(|block| Some((block, self.left_to(block)?)))
    }

    /// The number of the address of a block.
    pub(crate) fn number_of(&self, block: u32) -> u32 {
        // Their blocks follow each other in the order of their numbers.
        self.addresses.partition_point(|this| this.block <= block).saturating_sub(1) as u32
    }

    /// The number of an address, or of a part of it.
    fn find(&self, pool: &PoolAddress) -> Option<u32> {
        let (first, _) = layout(pool, self.size);
        let (number, _) = self.block_of(pool.address.to_bits(), first)?;
        let ports = (*pool.ports.start(), *pool.ports.end());
        self.addresses.get(number as usize).filter(|this| this.ports == ports).map(|_| number)
    }

    /// Whether another part of an address is there that has ports of this one.
    fn overlaps(&self, pool: &PoolAddress) -> bool {
        let address = pool.address.to_bits();
        let (first, last) = (*pool.ports.start(), *pool.ports.end());
        let from = self.sorted.partition_point(|at| self.addresses[*at as usize].address < address);
        let its = self.sorted.iter().skip(from).map(|at| &self.addresses[*at as usize]);
        its.take_while(|this| this.address == address)
            .any(|this| this.ports != (first, last) && this.ports.0 <= last && first <= this.ports.1)
    }
}

/// Places for addresses. One that an address had before is its again if it is free, since its ports may rest.
struct FreeSlots {
    /// By address and first port.
    was: HashMap<(u32, u16), u32>,
    /// From the last to the first.
    others: Vec<u32>,
}

impl FreeSlots {
    fn of(pool: &Pool) -> Self {
        let all = || (0..).zip(&pool.addresses).filter(|(_, this)| this.address == 0);
        let had = all().filter(|(_, this)| this.was != 0);
        let was = had.map(|(number, this)| ((this.was, this.first_port), number));
        // Those that were never used are taken first, in order.
        let mut others: Vec<(bool, u32)> = all().map(|(number, this)| (this.was != 0, number)).collect();
        others.sort_unstable_by(|a, b| b.cmp(a));
        Self { was: was.collect(), others: others.into_iter().map(|(_, number)| number).collect() }
    }

    fn take(&mut self, pool: &Pool, (address, first_port): (Ipv4Addr, u16), blocks: u32) -> Option<u32> {
        let fits = |number: &u32| {
            pool.addresses.get(*number as usize).is_some_and(|this| this.address == 0 && this.room >= blocks)
        };
        if let Some(number) = self.was.remove(&(address.to_bits(), first_port)).filter(fits) {
            return Some(number);
        }
        let at = self.others.iter().rposition(fits)?;
        Some(self.others.remove(at))
    }
}
