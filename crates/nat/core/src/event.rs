//! What a log is made of: sessions and port blocks that come and go, in a queue that a logger drains.

use crate::key::{Endpoint, Realm};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// Packets and bytes of a session since it began or was last reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Volume {
    /// From the inside.
    pub packets_up: u64,
    /// From the inside.
    pub bytes_up: u64,
    /// From the outside.
    pub packets_down: u64,
    /// From the outside.
    pub bytes_down: u64,
}

/// What a session is known by outside of the NAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionRecord {
    /// The subscriber's endpoint.
    pub inside: Endpoint,
    /// Its tags.
    pub realm: Realm,
    /// What stands for it outside.
    pub outside: Endpoint,
    /// Whom it talks to.
    pub remote: Endpoint,
    /// 1, 6 or 17.
    pub protocol: u8,
}

/// Consecutive ports of an address that belong to one subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRecord {
    /// The subscriber's address.
    pub inside: Ipv4Addr,
    /// Its tags.
    pub realm: Realm,
    /// The address outside.
    pub outside: Ipv4Addr,
    /// First and last port.
    pub ports: (u16, u16),
}

/// A mapping that is there whether it has sessions or not: a static forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappingRecord {
    /// The subscriber's endpoint.
    pub inside: Endpoint,
    /// Its tags.
    pub realm: Realm,
    /// What stands for it outside.
    pub outside: Endpoint,
    /// 6 or 17.
    pub protocol: u8,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// A session began.
    SessionCreated(SessionRecord),
    /// A session is over.
    SessionEnded(SessionRecord, Volume),
    /// A session goes on; its counters begin anew.
    SessionInterim(SessionRecord, Volume),
    /// A subscriber got a port block.
    BlockAllocated(BlockRecord),
    /// A subscriber's port block is free again.
    BlockReleased(BlockRecord),
    /// A static forward is there.
    MappingCreated(MappingRecord),
    /// A static forward is there no more.
    MappingDeleted(MappingRecord),
    /// A new flow was refused for the want of sessions or ports, or by a limit.
    Refused(crate::Reason, Ipv4Addr, Realm),
}

/// What happened, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Time in ns.
    pub at: u64,
    /// What.
    pub what: EventKind,
}

/// A second, ns.
const SECOND: u64 = 1_000_000_000;
/// Refusals of a second that are told; who is refused asks again and again, and would take the room of what must be told.
const REFUSALS: u32 = 100;

/// A bounded queue. What does not fit is counted, not waited for.
#[derive(Debug)]
pub struct Events {
    queue: VecDeque<Event>,
    capacity: usize,
    lost: u64,
    /// A second, and refusals of it that were told.
    refusals: (u64, u32),
}

impl Events {
    /// Room for so many.
    pub fn new(capacity: usize) -> Self {
        Self { queue: VecDeque::with_capacity(capacity), capacity, lost: 0, refusals: (0, 0) }
    }

    /// Add one at the end.
    #[inline]
    pub fn push(&mut self, at: u64, what: EventKind) {
        if self.queue.len() < self.capacity {
            self.queue.push_back(Event { at, what });
        } else {
            self.lost += 1;
        }
    }

    /// Add a refusal, unless enough of this second were told: how many there were the counters of drops say.
    pub fn push_refusal(&mut self, at: u64, what: EventKind) {
        let second = at / SECOND;
        if self.refusals.0 != second {
            self.refusals = (second, 0);
        }
        if self.refusals.1 < REFUSALS {
            self.refusals.1 += 1;
            self.push(at, what);
        }
    }

    /// Take the first.
    pub fn pop(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }

    /// How many did not fit.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reason;

    #[test]
    fn refusals_leave_room_for_what_must_be_told() {
        let mut events = Events::new(150);
        let refused = EventKind::Refused(Reason::PoolExhausted, Ipv4Addr::LOCALHOST, 0);
        for at in 0..1_000 {
            events.push_refusal(SECOND + at, refused);
        }
        let block = BlockRecord {
            inside: Ipv4Addr::LOCALHOST,
            realm: 0,
            outside: Ipv4Addr::LOCALHOST,
            ports: (1, 2),
        };
        events.push(SECOND + 1_000, EventKind::BlockAllocated(block));
        events.push_refusal(2 * SECOND, refused);
        let told: Vec<EventKind> = std::iter::from_fn(|| events.pop()).map(|event| event.what).collect();
        assert_eq!((told.len(), events.lost()), (102, 0));
        assert_eq!((told[100], told[101]), (EventKind::BlockAllocated(block), refused));
    }
}
