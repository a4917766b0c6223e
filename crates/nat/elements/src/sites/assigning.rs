//! Which worker is told of which public address, and when: pure logic between the DHCP clients and the workers.
//!
//! A site is one worker's, which has a *slot* for it: port blocks. An address, a site and a slot that were withdrawn are used again,
//! by whichever worker, only when the worker that had them says that all of it has ended.

use super::leasing::Public;
use nat_core::{Mac, Ownership, Site};
use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::mpsc::{SyncSender, TrySendError};

/// Sites that are looked at in a turn, of those that wait for an address.
const LOOKS: usize = 64;

/// What a slot has: its site, that one's virtual MAC address, and its public address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotAssignment {
    /// Whose it is.
    pub site: Site,
    /// The site's virtual MAC address.
    pub mac: Mac,
    /// Its public address.
    pub address: Ipv4Addr,
}

/// What a worker is told: a slot has this from now on, or nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotUpdate {
    /// Which, of this worker's.
    pub slot: u32,
    /// What it has.
    pub assigned: Option<SlotAssignment>,
}

/// What a worker tells: nothing goes by a slot any more that was to have nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotRelease {
    /// Which worker.
    pub worker: usize,
    /// Its slot.
    pub slot: u32,
}

/// How the site of a number stands.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    /// What it is to have.
    wanted: Option<SlotAssignment>,
    /// What its worker has been told, until that says that it has ended; and whether it was told to end it.
    told: Option<(SlotAssignment, bool)>,
    /// Its worker and its slot there, which it keeps so that ports rest (RFC 6888 REQ-8) that it had.
    slot: Option<(usize, u32)>,
    /// Whether it is among those that wait for an address.
    waits: bool,
}

/// The slots of a worker.
#[derive(Debug, Default)]
struct Worker {
    /// The number that each is for. Low slots come first: what was never used takes no memory.
    numbers: Vec<u32>,
    free: Vec<u32>,
    updates: VecDeque<SlotUpdate>,
}

/// What all workers have been told.
#[derive(Debug)]
pub struct Assignments {
    lines: Vec<Line>,
    workers: Vec<Worker>,
    /// Addresses and sites that a worker has, also while they end, and their numbers.
    addresses: HashMap<Ipv4Addr, u32>,
    sites: HashMap<Site, u32>,
    waiting: VecDeque<u32>,
}

impl Assignments {
    /// None yet, of so many sites and workers.
    pub fn new(most: usize, workers: usize) -> Self {
        Self {
            lines: vec![Line::default(); most],
            workers: (0..workers).map(|_| Worker::default()).collect(),
            addresses: HashMap::new(),
            sites: HashMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// A site has an address from now on, or none any more. What its worker had for it before begins nothing from when that hears of it.
    pub fn follow(&mut self, public: &Public, ownership: &Ownership) {
        let Public { site, number, mac, address } = *public;
        let Some(line) = self.lines.get_mut(number as usize) else { return };
        line.wanted = address.map(|address| SlotAssignment { site, mac, address });
        if let (Some((told, ends @ false)), Some((worker, slot))) = (&mut line.told, line.slot) {
            if line.wanted == Some(*told) {
                return;
            }
            *ends = true;
            if let Some(owners) = ownership.address_owners() {
                owners.remove(told.address.to_bits());
            }
            if let Some(worker) = self.workers.get_mut(worker) {
                worker.updates.push_back(SlotUpdate { slot, assigned: None });
            }
        }
        if line.wanted.is_some() && !line.waits {
            line.waits = true;
            self.waiting.push_back(number);
        }
    }

    /// A worker says that nothing goes by a slot any more.
    pub fn vacated(&mut self, SlotRelease { worker, slot }: SlotRelease) {
        let number = self.workers.get(worker).and_then(|worker| worker.numbers.get(slot as usize));
        let Some(line) = number.and_then(|number| self.lines.get_mut(*number as usize)) else { return };
        if let (Some((told, true)), true) = (line.told, line.slot == Some((worker, slot))) {
            line.told = None;
            self.addresses.remove(&told.address);
            self.sites.remove(&told.site);
        }
    }

    /// Assign what can be now to those that wait, some of them at a time.
    pub fn advance(&mut self, ownership: &Ownership) {
        for _ in 0..self.waiting.len().min(LOOKS) {
            let Some(number) = self.waiting.pop_front() else { return };
            let waits = self.assign(number, ownership).is_none();
            if waits {
                self.waiting.push_back(number);
            }
            if let Some(line) = self.lines.get_mut(number as usize) {
                line.waits = waits;
            }
        }
    }

    /// `None`: not now.
    fn assign(&mut self, number: u32, ownership: &Ownership) -> Option<()> {
        let line = *self.lines.get(number as usize)?;
        let Some(wanted) = line.wanted else { return Some(()) };
        let used = self.addresses.contains_key(&wanted.address) || self.sites.contains_key(&wanted.site);
        if line.told.is_some() || used {
            return None;
        }
        let worker = ownership.site(wanted.site);
        let slot = self.slot_for(number, worker)?;
        // Before the worker hears of it: what answers its packets finds it.
        let owners = ownership.address_owners();
        if owners.is_some_and(|owners| !owners.set(wanted.address.to_bits(), worker)) {
            return None;
        }
        self.addresses.insert(wanted.address, number);
        self.sites.insert(wanted.site, number);
        self.lines.get_mut(number as usize)?.told = Some((wanted, false));
        let update = SlotUpdate { slot, assigned: Some(wanted) };
        self.workers.get_mut(worker)?.updates.push_back(update);
        Some(())
    }

    /// The slot of a number at a worker. What it had at another one is empty.
    fn slot_for(&mut self, number: u32, worker: usize) -> Option<u32> {
        let line = self.lines.get_mut(number as usize)?;
        if let Some((its, slot)) = line.slot {
            if its == worker {
                return Some(slot);
            }
            if let Some(before) = self.workers.get_mut(its) {
                before.free.push(slot);
            }
            line.slot = None;
        }
        let worker_slots = self.workers.get_mut(worker)?;
        let slot = match worker_slots.free.pop() {
            Some(slot) => {
                *worker_slots.numbers.get_mut(slot as usize)? = number;
                slot
            }
            None => {
                worker_slots.numbers.push(number);
                worker_slots.numbers.len() as u32 - 1
            }
        };
        line.slot = Some((worker, slot));
        Some(slot)
    }

    /// Tell workers what there is to tell, as far as they take it now.
    pub fn tell(&mut self, tell: &[SyncSender<SlotUpdate>]) {
        for (worker, tell) in self.workers.iter_mut().zip(tell) {
            while let Some(update) = worker.updates.pop_front() {
                if let Err(TrySendError::Full(update)) = tell.try_send(update) {
                    worker.updates.push_front(update);
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "assigning_tests.rs"]
mod tests;
