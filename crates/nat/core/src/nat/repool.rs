//! Addresses of the pool that come and go while packets pass.
//!
//! An address that goes *drains*: no mapping, port block or subscriber's choice of an address begins on it, and what is there goes on. A
//! subscriber begins new mappings on another address from then on: paired pooling (RFC 4787 REQ-2) holds for all that it begins since, and
//! mappings that it has stay as they are (REQ-1). A block of the old address of which it has ports is *left to* it until its last mapping
//! there has ended. When all blocks of the address are free, and no session of another subscriber leads to it, it is given up.

use super::Nat;
use crate::config::PoolAddress;
use crate::pool::PoolChange;
use crate::session::{NONE, Session};
use crate::subscriber::{BLOCKS, Subscriber};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

/// The work of taking a subscriber its address, in lines that are looked at.
const MOVE: u32 = 32;

/// What is under way with addresses that go, and those that come back.
#[derive(Debug, Default)]
pub struct Drain {
    /// The next subscriber that is looked at for having an address that goes.
    subscriber: Option<u32>,
    /// Numbers of addresses that came back: blocks there that were left to subscribers may be theirs again.
    back: Vec<u32>,
    /// Addresses that are being given up: their numbers, the addresses themselves, and the next session that is looked at for
    /// leading to one of them.
    closed: Vec<u32>,
    addresses: Vec<u32>,
    session: u32,
    /// Addresses that were given up since nobody was told.
    given_up: VecDeque<u32>,
    /// Whether addresses have ever come or gone.
    begun: bool,
}

impl Nat {
    /// How many of these addresses find no room.
    pub fn without_room(&self, added: &[PoolAddress]) -> usize {
        self.pool.without_room(added)
    }

    /// Let addresses come and go. What comes is used at once, what goes drains with [`Nat::advance`]; those that find no room are left out. With
    /// `sites`, and with deterministic ports, no address has room.
    pub fn change_pool(&mut self, change: &PoolChange) {
        if change.is_empty() || self.sites.is_some() || self.config.deterministic.is_some() {
            return;
        }
        self.drain.begun = true;
        self.pool.drain_addresses(&change.removed);
        let back = self.pool.add_addresses(&change.added);
        self.drain.back.extend(back);
        if !change.removed.is_empty() {
            self.drain.subscriber = Some(0);
        }
        let is_back = |address: &u32| change.added.iter().any(|pool| pool.address.to_bits() == *address);
        self.drain.given_up.retain(|address| !is_back(address));
        self.drain.addresses.retain(|address| !is_back(address));
    }

    /// The next address, or part of one, that was given up: nothing goes by it any more.
    pub fn pop_given_up(&mut self) -> Option<Ipv4Addr> {
        self.drain.given_up.pop_front().map(Ipv4Addr::from_bits)
    }

    /// Addresses that drain, in order.
    pub fn draining(&self) -> Vec<Ipv4Addr> {
        self.pool.draining().into_iter().map(Ipv4Addr::from_bits).collect()
    }

    /// Ports, in order, whose sessions cannot go on after a restart: those of addresses that drain, and of blocks that are left to subscribers
    /// which have others by now.
    pub fn passing(&self) -> Vec<(Ipv4Addr, RangeInclusive<u16>)> {
        if !self.drain.begun {
            return Vec::new();
        }
        let draining = self.pool.draining();
        let mut all: Vec<_> =
            draining.iter().map(|address| (Ipv4Addr::from_bits(*address), 0..=u16::MAX)).collect();
        let numbers = (0..self.pool.slots()).filter(|number| !self.pool.drains(*number));
        for number in numbers {
            let left = self.pool.all_left(number).map(|(block, _)| self.pool.ports(number, block));
            all.extend(left.map(|(address, (first, last))| (address, first..=last)));
        }
        all.sort_unstable_by_key(|(address, ports)| (*address, *ports.start()));
        all
    }

    /// A subscriber whose address drains has none any more, and the next port block that it gets is of another. Blocks of which it uses no
    /// port are free; the others are left to it.
    pub(crate) fn leave_draining(&mut self, subscriber: u32, now: u64) -> bool {
        if !self.pool.any_drains() {
            return false;
        }
        let Some(line) = self.subscribers.at(subscriber).copied() else { return false };
        if line.block_count == 0 || !self.pool.drains(line.address) || line.has(Subscriber::FIXED) {
            return false;
        }
        for block in line.blocks() {
            if self.pool.used(*block) > 0 {
                self.pool.leave_to(*block, Some(subscriber));
            } else {
                self.give_back(&line, line.address, *block, now);
            }
        }
        self.pool.leave(line.address);
        if let Some(line) = self.subscribers.at_mut(subscriber) {
            (line.address, line.blocks, line.block_count) = (NONE, [NONE; BLOCKS], 0);
        }
        self.changes.subscriber(subscriber);
        true
    }

    /// A mapping in a block that was left to a subscriber has ended: if it was the last the block is free.
    pub(crate) fn end_left(&mut self, line: &Subscriber, number: u32, block: u32, now: u64) {
        if self.pool.used(block) == 0 {
            self.pool.leave_to(block, None);
            self.give_back(line, number, block, now);
        }
    }

    /// Go on with what addresses that go and come back ask for, in about `budget` lines; whether there is more.
    pub(crate) fn advance_drain(&mut self, now: u64, budget: usize) -> bool {
        let mut left = budget as u32;
        if let Some(from) = self.drain.subscriber {
            let (mut at, most) = (from, self.subscribers.used());
            while at < most && left > 0 {
                left = left.saturating_sub(if self.leave_draining(at, now) { MOVE } else { 1 });
                at += 1;
            }
            self.drain.subscriber = (at < most).then_some(at);
        }
        while left > 0
            && let Some(number) = self.drain.back.pop()
        {
            left = left.saturating_sub(self.pool.blocks_at(number));
            self.take_up(number);
        }
        // What forwards reserved is free when their sessions have ended.
        if self.drain.subscriber.is_some() || self.removed.is_searching() {
            return self.drain.subscriber.is_some();
        }
        if self.drain.closed.is_empty() {
            self.drain.closed = self.pool.close();
            let addresses = self.drain.closed.iter().map(|number| self.pool.address(*number));
            self.drain.addresses.extend(addresses);
            self.drain.addresses.sort_unstable();
            self.drain.session = 0;
        }
        if self.drain.closed.is_empty() {
            return !self.drain.back.is_empty();
        }
        self.close(now, left)
    }

    /// Blocks of an address that came back are those again of whom they were left to, unless it has another address by now.
    fn take_up(&mut self, number: u32) {
        if self.pool.drains(number) {
            return;
        }
        let left: Vec<(u32, u32)> = self.pool.all_left(number).collect();
        for (block, subscriber) in left {
            let Some(line) = self.subscribers.at_mut(subscriber) else { continue };
            let count = usize::from(line.block_count);
            if count == BLOCKS || count > 0 && line.address != number {
                continue;
            }
            line.address = number;
            line.blocks[count] = block;
            line.block_count += 1;
            if count == 0 {
                self.pool.join(number);
            }
            self.pool.leave_to(block, None);
            self.changes.subscriber(subscriber);
        }
    }

    /// End sessions that lead to addresses that are given up, in the next lines; whether there is more to do. When there are no more, the addresses
    /// are gone.
    fn close(&mut self, now: u64, lines: u32) -> bool {
        let used = self.sessions.used();
        let mut last = self.drain.session.saturating_add(lines).min(used);
        for index in self.drain.session..last {
            let leads = |session: &Session| {
                session.is_alive()
                    && session.has(Session::HAIRPIN)
                    && self.drain.addresses.binary_search(&session.remote).is_ok()
            };
            if self.sessions.at(index).is_some_and(leads) && !self.end_in_turn(index, now) {
                last = index;
                break;
            }
        }
        self.drain.session = last;
        if last < used {
            return true;
        }
        let closed = std::mem::take(&mut self.drain.closed);
        for number in &closed {
            let address = self.pool.address(*number);
            // It may have come back in another place.
            if !self.pool.has(address) {
                self.drain.given_up.push_back(address);
            }
        }
        self.pool.forget(&closed);
        self.drain.addresses.clear();
        !self.drain.back.is_empty()
    }
}

#[cfg(test)]
#[path = "repool_tests.rs"]
mod tests;
