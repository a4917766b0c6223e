//! Requests that came before: a message that comes again is not processed again (RFC 7252 section 4.5).

use super::reply::Token;
use protocol::coap::wire::Code;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

/// How long a message may come again, ns (EXCHANGE_LIFETIME, section 4.8.2).
const LIFETIME: u64 = 247_000_000_000;
/// Most requests that are remembered; beyond it the oldest are forgotten earlier.
const MOST: usize = 1 << 19;

/// What was done with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was answered in the acknowledgement.
    Answered(Code),
    /// Its response is a message of its own.
    Separate,
    /// It is left unanswered.
    Dropped,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    token: Token,
    at: u64,
    outcome: Outcome,
}

/// What was done with the latest requests, by who sent them and their message ID.
#[derive(Debug, Default)]
pub(super) struct RecentRequests {
    all: HashMap<(SocketAddr, u16), Entry>,
    order: VecDeque<(u64, (SocketAddr, u16))>,
}

impl RecentRequests {
    /// What was done with this message. One of another token is another message: a fast client runs out of identifiers.
    pub fn find(&self, from: SocketAddr, id: u16, token: Token, now: u64) -> Option<Outcome> {
        let entry = self.all.get(&(from, id))?;
        let same = entry.token == token && now.saturating_sub(entry.at) < LIFETIME;
        same.then_some(entry.outcome)
    }

    /// Remember it.
    pub fn add(&mut self, from: SocketAddr, id: u16, token: Token, outcome: Outcome, now: u64) {
        while self
            .order
            .front()
            .is_some_and(|(at, _)| self.order.len() >= MOST || now.saturating_sub(*at) >= LIFETIME)
        {
            let Some((at, key)) = self.order.pop_front() else { break };
            if self.all.get(&key).is_some_and(|entry| entry.at == at) {
                self.all.remove(&key);
            }
        }
        self.all.insert((from, id), Entry { token, at: now, outcome });
        self.order.push_back((now, (from, id)));
    }
}
