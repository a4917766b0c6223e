//! Sessions that an operator ends.

use super::Nat;
use crate::expiry::CHUNK;
use crate::session::Session;
use arrayvec::ArrayVec;

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
            let mut found = ArrayVec::<u32, CHUNK>::new();
            while at < end && found.len() < most {
                let wanted = |session: &&Session| {
                    session.is_alive() && (bounds.asked || !session.is_asked()) && meant(session)
                };
                if self.sessions.at(at).filter(wanted).is_some() {
                    found.push(at);
                }
                at += 1;
            }
            self.end_all(&found, now);
            ended += found.len();
        }
        (ended, (at < self.sessions.used()).then_some(at))
    }
}

#[cfg(test)]
#[path = "clear_tests.rs"]
mod tests;
