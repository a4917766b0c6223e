//! What changes, for a standby that is to know the same: lines to be told of, in a bounded queue. What finds no room in it is counted, and
//! told of by the next sweep.

use super::Nat;
use crate::key::Realm;
use crate::session::{Session, State};
use std::collections::VecDeque;

/// Of whom something is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// A subscriber came, or its port blocks are others.
    Subscriber(u32),
    /// A subscriber is gone.
    Gone(u32, Realm),
    /// A session began, or its state is another.
    Session(u32),
    /// A session is over: it, and whether it was a mapping that was asked for.
    Ended(crate::event::SessionRecord, bool),
}

/// Changes that nobody was told of yet. Nothing is kept until somebody wants them.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    queue: VecDeque<Change>,
    capacity: usize,
    wanted: bool,
    lost: u64,
}

impl Changes {
    pub fn subscriber(&mut self, number: u32) {
        self.push(Change::Subscriber(number));
    }

    pub fn subscriber_removed(&mut self, inside: u32, realm: Realm) {
        self.push(Change::Gone(inside, realm));
    }

    #[inline]
    pub fn session(&mut self, index: u32) {
        self.push(Change::Session(index));
    }

    #[inline]
    pub fn session_ended(&mut self, session: &Session) {
        if self.wanted {
            self.push(Change::Ended(session.record(), session.state() == State::Pinned));
        }
    }

    #[inline]
    fn push(&mut self, change: Change) {
        if !self.wanted {
            return;
        }
        if self.queue.len() < self.capacity {
            self.queue.push_back(change);
        } else {
            self.lost += 1;
        }
    }
}

impl Nat {
    /// Have room for so many changes that nobody was told of yet.
    pub fn reserve_changes(&mut self, capacity: usize) {
        self.changes = Changes { queue: VecDeque::with_capacity(capacity), capacity, ..Changes::default() };
    }

    /// Whether changes are noted from now on; those of before are forgotten.
    pub fn note_changes(&mut self, wanted: bool) {
        self.changes.queue.clear();
        self.changes.wanted = wanted;
    }

    /// Changes that wait, and those that found no room.
    pub fn changes(&self) -> (usize, u64) {
        (self.changes.queue.len(), self.changes.lost)
    }

    pub(crate) fn pop_change(&mut self) -> Option<Change> {
        self.changes.queue.pop_front()
    }
}
