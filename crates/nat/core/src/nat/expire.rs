//! Sessions whose time has come.

use super::Nat;
use super::lifecycle::SessionHashes;
use crate::cpu;
use crate::expiry::CHUNK;
use crate::key::Key;
use crate::pool::class;
use crate::session::{Session, State, Tick, tick};
use arrayvec::ArrayVec;

/// Time between two looks at what is there because somebody asked for it, ns. Who gives it up leaves its line taken until the next one:
/// so long does a subscriber keep what it asks for and gives up in turn.
const LOOK: u64 = 60 * crate::config::SECOND;
/// Time between two looks of a standby at what seems to be over, ns.
const HELD: u64 = 2 * crate::config::SECOND;

/// The work of ending a session, in looks at one that goes on.
const END: usize = 4;
/// Looks of a turn at least: what they take is 2 to 4 % of a turn of 0.5 ms, with the cache lines that packets miss after them.
const LEAST: u64 = 128;
/// Time in which all that is due now would be looked at, if none of it ended, ns.
const SPREAD: u64 = 4 * crate::config::SECOND;

impl Nat {
    /// How many looks a turn has that comes `passed` ns after the last. A million sessions may be over at the same moment: packets
    /// do not wait for that, unless lines are short.
    pub(super) fn scan_budget(&self, now: u64, passed: u64) -> usize {
        if self.sessions.is_short() {
            return usize::MAX;
        }
        (self.wheel.due_count(tick(now)) as u64).saturating_mul(passed).div_ceil(SPREAD).max(LEAST) as usize
    }

    /// Look at sessions that are due, with the work of about `budget` looks. Whether more are.
    pub(crate) fn expire(&mut self, now: u64, budget: usize) -> bool {
        let time = tick(now);
        let mut due = [0; CHUNK];
        let mut looked = 0;
        while looked < budget {
            let count = self.wheel.pop(time, &mut due);
            if count == 0 {
                return false;
            }
            let due = &due[..count.min(CHUNK)];
            // These were asked for with the ones before, but for the first of a place of the wheel.
            for index in due.iter().chain(self.wheel.upcoming()) {
                if let Some(session) = self.sessions.at(*index) {
                    cpu::prefetch(session);
                }
            }
            let mut over = ArrayVec::<u32, CHUNK>::new();
            for index in due {
                if self.is_plainly_over(*index, time) {
                    over.push(*index);
                } else {
                    self.look_at(*index, time, now);
                }
            }
            looked += count + (END - 1) * over.len();
            self.end_all(&over, now);
            over.iter().for_each(|index| self.sessions.release(*index));
        }
        true
    }

    fn look_at(&mut self, index: u32, time: Tick, now: u64) {
        let Some(session) = self.sessions.at(index) else { return };
        if !session.is_alive() {
            if session.state == State::Ended as u8 {
                self.sessions.release(index);
            }
            return;
        }
        let idle = self.idle.of(session);
        let asked = self.asked_until(index, session);
        if let Some(until) = asked.filter(|until| *until > now) {
            self.wheel.push(index, time, tick(until.min(now + LOOK)));
        } else if !is_over(session, idle, time) && session.state != State::Pinned as u8 {
            self.wheel.push(index, time, session.last_seen.wrapping_add(idle));
        } else if self.is_standby {
            // The other NAT may have seen a packet since it last told of it.
            self.wheel.push(index, time, tick(now + HELD));
        } else {
            self.end(index, now);
            self.sessions.release(index);
        }
    }

    /// Whether a session is over, and nobody asked that it is there.
    fn is_plainly_over(&self, index: u32, time: Tick) -> bool {
        let session = self.sessions.at(index).filter(|session| session.is_alive() && !session.is_asked());
        !self.is_standby && session.is_some_and(|session| is_over(session, self.idle.of(session), time))
    }

    /// End sessions, at most [`CHUNK`].
    pub(crate) fn end_all(&mut self, sessions: &[u32], now: u64) {
        /// What a session takes back is asked for while as many before it end: with fewer it has not come by then, and with more it comes
        /// no sooner.
        const AHEAD: usize = 6;
        let there = sessions.iter().take(CHUNK).map(|index| self.sessions.at(*index));
        let keys: ArrayVec<[Key; 4], CHUNK> =
            there.map(|session| session.map(SessionHashes::keys).unwrap_or_default()).collect();
        let mut hashes = [[0; 4]; CHUNK];
        self.hasher.hash_all(keys.as_flattened(), hashes[..keys.len()].as_flattened_mut());
        let all: ArrayVec<_, CHUNK> = sessions
            .iter()
            .zip(hashes)
            .map(|(index, hashes)| (*index, SessionHashes::from(hashes)))
            .collect();
        let ask = |nat: &Self, at: usize| {
            if let Some((index, hashes)) = all.get(at) {
                nat.prefetch_end(*index, hashes);
            }
        };
        (0..AHEAD).for_each(|at| ask(self, at));
        for (at, (index, hashes)) in all.iter().enumerate() {
            ask(self, at + AHEAD);
            self.end_found(*index, *hashes, now);
        }
    }

    /// Ask for what a session is found by, and what it gives back: that takes longer than the rest of its end.
    fn prefetch_end(&self, index: u32, hashes: &SessionHashes) {
        let (table, mappings) = (self.table.view(), self.mappings.view());
        hashes.packets.iter().for_each(|hash| table.prefetch(*hash));
        hashes.mapping.iter().for_each(|hash| mappings.prefetch(*hash));
        let Some(session) = self.sessions.at(index) else { return };
        if let Some(line) = self.subscribers.at(session.subscriber) {
            cpu::prefetch(line);
        }
        if let Some((block, port)) = self.pool.place_of(session.outside()) {
            self.pool.prefetch_port(block, class(session.protocol()), port);
        }
    }
}

/// Whether nothing was seen of a session for `idle`. A packet that was stamped after `time` was read is no long time ago.
fn is_over(session: &Session, idle: u32, time: Tick) -> bool {
    if session.state == State::Pinned as u8 {
        return false;
    }
    let since = time.wrapping_sub(session.last_seen);
    since >= idle && since <= u32::MAX / 2
}

#[cfg(test)]
#[path = "expire_tests.rs"]
mod tests;
