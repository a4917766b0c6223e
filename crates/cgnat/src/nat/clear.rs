//! Sessions that an operator ends.

use super::Nat;
use crate::expiry::CHUNK;
use crate::session::{Session, State};

/// What is to be ended, and how much of it at once.
#[derive(Debug, Clone, Copy)]
pub struct ClearBounds {
    /// Lines of the table that are looked at.
    pub lines: u32,
    /// Sessions that are ended, at most.
    pub sessions: usize,
    /// Also mappings that were asked for, and sessions that were asked to live on (RFC 6887).
    pub asked: bool,
}

impl Nat {
    /// End sessions that are `meant`, from line `from` on, as if their time had come. How many there were, and the line to go on from;
    /// `None`: there are no more.
    pub fn clear_from(
        &mut self,
        from: u32,
        bounds: ClearBounds,
        meant: impl Fn(&Session) -> bool,
        now: u64,
    ) -> (usize, Option<u32>) {
        let end = from.saturating_add(bounds.lines).min(self.sessions.used());
        let (mut at, mut ended) = (from, 0);
        while at < end && ended < bounds.sessions {
            let most = (bounds.sessions - ended).min(CHUNK);
            let (mut found, mut count) = ([0; CHUNK], 0);
            while at < end && count < most {
                let wanted = |session: &&Session| {
                    session.is_alive() && (bounds.asked || !is_asked(session)) && meant(session)
                };
                if let Some(session) = self.sessions.at(at).filter(wanted) {
                    self.prefetch_tables(session);
                    found[count] = at;
                    count += 1;
                }
                at += 1;
            }
            found[..count].iter().for_each(|index| self.end(*index, now));
            ended += count;
        }
        (ended, (at < self.sessions.used()).then_some(at))
    }
}

/// Whether somebody asked that it is there.
fn is_asked(session: &Session) -> bool {
    session.state() == State::Pinned || session.has(Session::EXTENDED)
}

#[cfg(test)]
#[path = "clear_tests.rs"]
mod tests;
