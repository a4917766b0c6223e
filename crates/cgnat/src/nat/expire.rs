//! Sessions whose time has come.

use super::Nat;
use crate::cpu;
use crate::expiry::CHUNK;
use crate::session::{Session, State, Tick, tick};

/// Time between two looks at what is there because somebody asked for it, ns. Who gives it up leaves its line taken until the next one:
/// so long does a subscriber keep what it asks for and gives up in turn.
const LOOK: u64 = 60 * crate::config::SECOND;
/// Time between two looks of a standby at what seems to be over, ns.
const HELD: u64 = 2 * crate::config::SECOND;

impl Nat {
    /// Look at sessions that are due, about `budget` of them. Whether more are.
    pub(crate) fn expire(&mut self, now: u64, budget: usize) -> bool {
        let time = tick(now);
        let mut due = [0; CHUNK];
        let mut looked = 0;
        while looked < budget {
            let count = self.wheel.pop(time, &mut due);
            if count == 0 {
                return false;
            }
            looked += count;
            let due = &due[..count.min(CHUNK)];
            for index in due {
                if let Some(session) = self.sessions.at(*index) {
                    cpu::prefetch(session);
                }
            }
            self.prefetch_over(due, time);
            for index in due {
                self.look_at(*index, time, now);
            }
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

    /// Ask for the buckets of those that are over: finding them takes longer than removing them.
    fn prefetch_over(&self, due: &[u32], time: Tick) {
        for index in due {
            let Some(session) = self.sessions.at(*index).filter(|session| session.is_alive()) else {
                continue;
            };
            if is_over(session, self.idle.of(session), time) {
                self.prefetch_tables(session);
            }
        }
    }

    /// Ask for the buckets in which a session is found.
    pub(crate) fn prefetch_tables(&self, session: &Session) {
        let mut hashes = [0; 2];
        self.hasher.hash_all(&[session.up_key(), session.down_key()], &mut hashes);
        let (table, mappings) = (self.table.view(), self.mappings.view());
        hashes.iter().for_each(|hash| table.prefetch(*hash));
        self.mapping_hashes(session).iter().for_each(|hash| mappings.prefetch(*hash));
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
