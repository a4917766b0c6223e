//! Static forwards in the log: each is a mapping that begins and ends there, since its traffic leaves no other record (RFC 6888 section 4).

use super::Nat;
use super::change::MORE;
use crate::config::StaticForward;
use crate::event::{EventKind, MappingRecord};

/// Which static forwards the log knows.
#[derive(Debug)]
pub(crate) struct ForwardLog {
    /// Those whose beginning is to be logged.
    waiting: Vec<StaticForward>,
    /// Those whose beginning was logged, and whose end was not.
    begun: Vec<StaticForward>,
}

impl ForwardLog {
    /// The log knows none of these yet.
    pub(super) fn new(forwards: &[StaticForward]) -> Self {
        // Room for all that a reload may add, so that the worker allocates nothing between packets.
        let room = 2 * (forwards.len() + MORE);
        let mut waiting = Vec::with_capacity(room);
        waiting.extend_from_slice(forwards);
        Self { waiting, begun: Vec::with_capacity(room) }
    }

    /// A forward comes.
    pub(super) fn added(&mut self, forward: StaticForward) {
        // One that comes back before its end was logged has not ended.
        if !self.begun.contains(&forward) {
            self.waiting.push(forward);
        }
    }

    /// A forward goes: what was not logged by now need not be.
    pub(super) fn removed(&mut self, forward: &StaticForward) {
        self.waiting.retain(|other| other != forward);
    }

    /// The last session of a forward that went is over: whether its end belongs in the log.
    pub(super) fn session_ended(&mut self, forward: &StaticForward) -> bool {
        let at = self.begun.iter().position(|other| other == forward);
        at.is_some_and(|at| {
            self.begun.swap_remove(at);
            true
        })
    }

    /// Another NAT goes on with them, and logs them: here they begin anew.
    pub(crate) fn forget(&mut self) {
        self.waiting.append(&mut self.begun);
    }
}

impl Nat {
    /// Record up to `most` static forwards that came: for a NAT that translates and has a log.
    pub fn log_forwards(&mut self, now: u64, most: usize) {
        if self.is_standby {
            return;
        }
        for _ in 0..most.min(self.forward_log.waiting.len()) {
            let Some(forward) = self.forward_log.waiting.pop() else { return };
            self.forward_log.begun.push(forward);
            self.events.push(now, EventKind::MappingCreated(forward.record()));
        }
    }

    /// Record the end of up to `most` static forwards: the NAT stops. Whether there are more.
    pub fn end_forwards(&mut self, now: u64, most: usize) -> bool {
        self.forward_log.waiting.clear();
        for _ in 0..most {
            let Some(forward) = self.forward_log.begun.pop() else { return false };
            self.events.push(now, EventKind::MappingDeleted(forward.record()));
        }
        !self.forward_log.begun.is_empty()
    }
}

impl StaticForward {
    /// As the log has it.
    pub(super) fn record(&self) -> MappingRecord {
        MappingRecord {
            inside: self.inside_endpoint(),
            realm: self.realm,
            outside: self.outside_endpoint(),
            protocol: self.protocol,
        }
    }
}
