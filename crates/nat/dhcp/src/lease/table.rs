//! What is leased, and what a record changes of it.

use super::{Lease, Record};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::collections::hash_map::{Entry, HashMap};
use std::net::Ipv4Addr;

/// Why a lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseEnd {
    /// The client gave it back, or the server freed it.
    Released,
    /// The client found that somebody else has the address.
    Declined,
    /// Its time passed.
    Expired,
    /// The server gave the address to another client.
    Reassigned,
}

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseEvent {
    /// A client has an address that it did not have.
    Granted(Lease),
    /// It has it for longer, or under another name.
    Renewed(Lease),
    /// It no longer has it.
    Ended(Lease, LeaseEnd),
}

/// What is leased. An event is of what is new only, however often a file says it.
///
/// That a file no longer speaks of a lease does not end it: a rotation seen in the middle looks the same. The file says
/// that it ended, or its time passes.
#[derive(Debug)]
pub struct Table {
    leases: HashMap<Ipv4Addr, Lease>,
    /// Their ends, the next one first: leases are few enough, and each renewal moves one.
    ends: BTreeSet<(u64, Ipv4Addr)>,
    most: usize,
    refused: u64,
}

impl Table {
    /// Of at most so many leases.
    pub fn new(most: usize) -> Self {
        Self { leases: HashMap::new(), ends: BTreeSet::new(), most, refused: 0 }
    }

    /// What a file says, at this time in seconds since 1970.
    pub fn apply(&mut self, record: Record, now: u64, mut event: impl FnMut(LeaseEvent)) {
        match record {
            Record::Free(address, why) => {
                self.end(address, why, &mut event);
            }
            // Old news: it ended when its time passed, whoever has the address since was written later.
            Record::Leased(lease) if lease.expires.is_some_and(|at| at <= now) => {
                self.end(lease.address, LeaseEnd::Expired, &mut event);
            }
            Record::Leased(lease) => self.leased(lease, &mut event),
        }
    }

    fn leased(&mut self, lease: Lease, event: &mut impl FnMut(LeaseEvent)) {
        let full = self.leases.len() >= self.most;
        let (address, ends) = (lease.address, lease.expires);
        match self.leases.entry(address) {
            Entry::Occupied(known) if *known.get() == lease => return,
            Entry::Occupied(mut known) => {
                let before = known.insert(lease.clone());
                if let Some(at) = before.expires {
                    self.ends.remove(&(at, address));
                }
                if before.same_client(&lease) {
                    event(LeaseEvent::Renewed(lease));
                } else {
                    event(LeaseEvent::Ended(before, LeaseEnd::Reassigned));
                    event(LeaseEvent::Granted(lease));
                }
            }
            Entry::Vacant(_) if full => {
                self.refused += 1;
                return;
            }
            Entry::Vacant(place) => {
                place.insert(lease.clone());
                event(LeaseEvent::Granted(lease));
            }
        }
        self.ends.extend(ends.map(|at| (at, address)));
    }

    fn end(&mut self, address: Ipv4Addr, why: LeaseEnd, event: &mut impl FnMut(LeaseEvent)) {
        if let Some(lease) = self.leases.remove(&address) {
            if let Some(at) = lease.expires {
                self.ends.remove(&(at, address));
            }
            event(LeaseEvent::Ended(lease, why));
        }
    }

    /// End the leases whose time has passed.
    pub fn expire(&mut self, now: u64, mut event: impl FnMut(LeaseEvent)) {
        while let Some((at, address)) = self.ends.first().copied().filter(|(at, _)| *at <= now) {
            self.ends.remove(&(at, address));
            if let Some(lease) = self.leases.remove(&address) {
                event(LeaseEvent::Ended(lease, LeaseEnd::Expired));
            }
        }
    }

    /// When the next lease ends by itself.
    pub fn next_end(&self) -> Option<u64> {
        self.ends.first().map(|(at, _)| *at)
    }

    /// The lease of an address.
    pub fn get(&self, address: Ipv4Addr) -> Option<&Lease> {
        self.leases.get(&address)
    }

    /// All leases, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Lease> {
        self.leases.values()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// Records of leases for which there was no room.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}
