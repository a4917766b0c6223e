//! Sessions that end because there is nobody behind a next hop any more, such as when a lease is over.
//!
//! They are looked for in all lines, a few at a time, for all next hops that have waited when a search began: thousands of
//! subscribers that go at once cost one search.

use super::Nat;
use crate::binding::Hop;
use crate::session::Session;

/// Next hops under way.
#[derive(Debug, Default)]
pub struct Endings {
    /// Those that wait for the next search.
    waiting: Vec<Hop>,
    /// Those that are looked for, in order.
    current: Vec<Hop>,
    /// Where the search goes on.
    cursor: u32,
    /// Those by which no session goes any more.
    done: Vec<Hop>,
}

impl Nat {
    /// End all sessions that go by a next hop; [`Nat::pop_ended_hop`] tells when there is none left. None may begin meanwhile.
    pub fn end_hop(&mut self, hop: Hop) {
        self.endings.waiting.push(hop);
    }

    /// A next hop by which no session goes any more.
    pub fn pop_ended_hop(&mut self) -> Option<Hop> {
        self.endings.done.pop()
    }

    /// End the sessions in `lines` lines from number `from` on, for the log: the NAT stops. The line to go on from.
    pub fn end_from(&mut self, from: u32, lines: u32, now: u64) -> Option<u32> {
        let end = from.saturating_add(lines).min(self.sessions.used());
        (from..end).for_each(|index| self.end(index, now));
        (end < self.sessions.used()).then_some(end)
    }

    /// Let the subscribers in `lines` lines from number `from` on, which have no session any more, give their port blocks back.
    pub fn release_from(&mut self, from: u32, lines: u32, now: u64) -> Option<u32> {
        let (page, next) = self.subscribers.iter_from(from, lines);
        let numbers: Vec<u32> = page.map(|(number, _)| number).collect();
        numbers.into_iter().for_each(|number| self.release_subscriber(number, now));
        next
    }

    /// Look for them in the next `budget` lines; whether there are more.
    pub(crate) fn advance_endings(&mut self, now: u64, budget: usize) -> bool {
        let endings = &mut self.endings;
        if endings.current.is_empty() {
            if endings.waiting.is_empty() {
                return false;
            }
            endings.current.append(&mut endings.waiting);
            endings.current.sort_unstable();
            endings.cursor = 0;
        }
        let lines = self.sessions.used();
        let mut last = self.endings.cursor.saturating_add(budget as u32).min(lines);
        for index in self.endings.cursor..last {
            let gone = |hop: Hop| self.endings.current.binary_search(&hop).is_ok();
            let goes = |session: &Session| session.is_alive() && gone(session.down_hop);
            if self.sessions.at(index).is_some_and(goes) && !self.end_in_turn(index, now) {
                last = index;
                break;
            }
        }
        self.endings.cursor = last;
        if last >= lines {
            let endings = &mut self.endings;
            endings.done.append(&mut endings.current);
        }
        !self.endings.current.is_empty() || !self.endings.waiting.is_empty()
    }
}
