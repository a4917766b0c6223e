//! Whether all tables of a NAT say the same: for tests, and for what reads files of others.

use crate::nat::{Mapped, Nat};
use crate::session::{Session, State};
use crate::subscriber::Subscriber;
use std::collections::{HashMap, HashSet};

impl Nat {
    /// What contradicts what, if anything. It looks at everything, so packets would wait long for it.
    pub fn audit(&self) -> Result<(), String> {
        let unless = |holds: bool, what: &str, of: u32| {
            if holds { Ok(()) } else { Err(format!("{what}: {of}")) }
        };
        let (mut of_subscriber, mut rings) = (HashMap::<u32, u32>::new(), HashSet::new());
        let (mut found, mut used) = (0, HashMap::<u32, u32>::new());
        for (index, session) in self.sessions.alive() {
            let line = self.subscribers.at(session.subscriber).copied();
            let its = line.is_some_and(|line| (line.inside, line.realm) == (session.inside, session.realm()));
            unless(its, "its subscriber is another", index)?;
            *of_subscriber.entry(session.subscriber).or_default() += 1;
            if session.state() != State::Pinned {
                found += 2;
                let (inside, outside, remote) = (session.inside(), session.outside(), session.remote());
                let up = self.find_up(inside, remote, session.protocol(), session.realm());
                let down = self.find_down(remote, outside, session.protocol());
                unless((up, down) == (Some(index), Some(index)), "packets do not find it", index)?;
            }
            let first = if session.has(Session::SHARED) {
                self.audit_ring(index, session)?;
                rings.insert((session.outside(), session.protocol()))
            } else {
                !session.has(Session::STATIC)
            };
            if session.has(Session::STATIC) {
                let mapped = self.mapped_outside(session.outside(), session.protocol());
                unless(matches!(mapped, Some(Mapped::Static(_))), "its forward is not there", index)?;
            } else {
                let block = self.pool.block_of(session.outside, session.outside_port);
                let owned = block.zip(line).is_some_and(|((number, block), line)| {
                    line.address == number && line.blocks().contains(&block)
                        || self.pool.left_to(block) == Some(session.subscriber)
                });
                unless(owned, "its port block is not its subscriber's", index)?;
                let (_, block) = block.unwrap_or_default();
                *used.entry(block).or_default() += u32::from(first);
            }
        }
        unless(found == self.table.len(), "packets find more than there is", found as u32)?;
        let mappings = 2 * (rings.len() + self.live_forwards().count());
        unless(mappings == self.mappings.len(), "mappings that nobody has", mappings as u32)?;
        let (mut blocks, mut fixed) = (HashSet::new(), false);
        for (number, line) in self.subscribers.iter() {
            let has = of_subscriber.get(&number).copied().unwrap_or(0);
            unless(line.sessions == has, "it has other sessions than it counts", number)?;
            for block in line.blocks() {
                fixed |= line.has(Subscriber::FIXED);
                unless(blocks.insert(*block), "two have its block", *block)?;
                let taken = self.pool.is_taken(*block) || line.has(Subscriber::FIXED);
                unless(taken, "its block is free", *block)?;
                let ports = used.get(block).copied().unwrap_or(0);
                unless(self.pool.used(*block) == ports, "its ports are others", *block)?;
            }
        }
        for (block, of) in (0..self.pool.slots()).flat_map(|number| self.pool.all_left(number)) {
            unless(blocks.insert(block), "two have a block that is left to somebody", block)?;
            unless(self.pool.is_taken(block), "a block that is left to somebody is free", block)?;
            let ports = used.get(&block).copied().unwrap_or(0);
            unless(ports > 0 && self.pool.used(block) == ports, "its ports are others", block)?;
            unless(of_subscriber.contains_key(&of), "a block is left to who has no session", block)?;
        }
        let lines = || self.subscribers.iter().filter(|(_, line)| !line.blocks().is_empty());
        for number in 0..self.pool.slots() {
            let joined = lines().filter(|(_, line)| line.address == number).count();
            unless(
                self.pool.joined_subscribers(number) == joined,
                "other subscribers than it counts have it",
                number,
            )?;
        }
        let (all, free) = self.pool.blocks();
        let counted = blocks.iter().filter(|block| !self.pool.drains(self.pool.number_of(**block))).count();
        unless(fixed || all - free == counted as u64, "blocks that nobody has", (all - free) as u32)
    }

    /// All of a mapping's sessions are linked, have the same endpoints, and are found by both of them.
    fn audit_ring(&self, index: u32, session: &Session) -> Result<(), String> {
        let at = |index: u32| self.sessions.at(index).filter(|session| session.is_alive());
        let same = |other: &Session| {
            (other.inside(), other.outside(), other.protocol(), other.realm())
                == (session.inside(), session.outside(), session.protocol(), session.realm())
        };
        let next = at(session.next).filter(|next| next.previous == index && same(next));
        let previous = at(session.previous).filter(|previous| previous.next == index);
        let by = [
            self.mapped_inside(session.inside(), session.protocol(), session.realm()),
            self.mapped_outside(session.outside(), session.protocol()),
        ];
        let known = by.iter().all(|by| matches!(by, Some(Mapped::Session(of)) if at(*of).is_some_and(same)));
        if next.is_some() && previous.is_some() && known {
            return Ok(());
        }
        Err(format!("the mapping of session {index} is broken"))
    }
}
