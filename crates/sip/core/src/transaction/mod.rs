//! Transactions (RFC 3261 section 17, RFC 6026): four state machines without I/O.
//!
//! A machine takes messages, requests of its user and the time, and returns [`Actions`]. The caller keeps the message that may be
//! sent again. Whoever drives a machine calls `on_timer` when [`deadline`](InviteClient::deadline) has come.
//! Times are nanoseconds of any clock that does not go back.

mod build;
mod client;
mod invite_client;
mod invite_server;
mod key;
mod server;

pub use build::{ack, cancel};
pub use client::Client;
pub use invite_client::InviteClient;
pub use invite_server::InviteServer;
pub use key::{ClientKey, ServerKey};
pub use server::Server;

/// A millisecond in nanoseconds.
pub const MS: u64 = 1_000_000;

/// Timer values (RFC 3261 section 17.1.1.1 and appendix A).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timers {
    /// Estimate of the round trip time.
    pub t1: u64,
    /// Longest interval between retransmissions, but of INVITE requests.
    pub t2: u64,
    /// Longest time that a message stays in the network.
    pub t4: u64,
    /// Timer D: how long an INVITE client absorbs final responses over an unreliable transport.
    pub d: u64,
    /// How long an INVITE server waits for its user before it sends 100.
    pub trying: u64,
}

impl Default for Timers {
    fn default() -> Self {
        Self { t1: 500 * MS, t2: 4_000 * MS, t4: 5_000 * MS, d: 32_000 * MS, trying: 200 * MS }
    }
}

impl Timers {
    /// 64 T1: timers B, F, H, J, L and M.
    pub fn limit(&self) -> u64 {
        self.t1.saturating_mul(64)
    }
}

/// State of a transaction. Each machine has some of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// INVITE client: no response yet.
    Calling,
    /// Others: no response yet.
    Trying,
    /// There was a provisional response.
    Proceeding,
    /// INVITE: there was a 2xx (RFC 6026).
    Accepted,
    /// There was a final response; of INVITE, none of class 2.
    Completed,
    /// INVITE server: the ACK came.
    Confirmed,
    /// Over. Nothing changes this.
    Terminated,
}

/// A message that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transmit {
    /// The request of a client.
    Request,
    /// ACK for the final response, as [`ack`] makes it.
    Ack,
    /// The last response that the user of a server gave.
    Response,
    /// 100 Trying, which the caller keeps as the last response.
    Trying,
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// As it should.
    Normal,
    /// No final response came (timers B, F), or no ACK (timer H).
    Timeout,
    /// The transport could not send.
    TransportError,
}

/// Actions after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use]
pub struct Actions {
    /// Send this.
    pub transmit: Option<Transmit>,
    /// The message is for the transaction's user; otherwise it is absorbed.
    pub deliver: bool,
    /// The transport's failure is for the transaction's user. The transaction goes on unless it ended.
    pub failed: bool,
    /// The transaction ended.
    pub end: Option<End>,
}

impl Actions {
    const NONE: Self = Self { transmit: None, deliver: false, failed: false, end: None };

    const fn transmit(what: Transmit) -> Self {
        Self { transmit: Some(what), ..Self::NONE }
    }

    const fn deliver() -> Self {
        Self { deliver: true, ..Self::NONE }
    }

    const fn end(end: End) -> Self {
        Self { end: Some(end), ..Self::NONE }
    }
}

/// No time.
const NEVER: u64 = u64::MAX;

/// State and timers of any machine: one that sends again, and one that ends a state.
#[derive(Debug, Clone, Copy)]
struct Core {
    state: State,
    reliable: bool,
    interval: u64,
    again_at: u64,
    end_at: u64,
}

impl Core {
    fn new(state: State, reliable: bool) -> Self {
        Self { state, reliable, interval: 0, again_at: NEVER, end_at: NEVER }
    }

    fn deadline(&self) -> Option<u64> {
        Some(self.again_at.min(self.end_at)).filter(|at| *at != NEVER)
    }

    /// Sends again after `interval`, over an unreliable transport.
    fn retransmit_after(&mut self, now: u64, interval: u64) {
        if !self.reliable {
            self.interval = interval;
            self.again_at = now.saturating_add(interval);
        }
    }

    fn enter(&mut self, state: State, end_at: u64) {
        *self = Self { state, end_at, again_at: NEVER, ..*self };
    }

    /// Enters a state that takes `wait` over an unreliable transport and no time over a reliable one, where it ends the transaction.
    fn linger(&mut self, state: State, now: u64, wait: u64) -> Option<End> {
        if self.reliable {
            self.enter(State::Terminated, NEVER);
            return Some(End::Normal);
        }
        self.enter(state, now.saturating_add(wait));
        None
    }

    fn terminate(&mut self, end: End) -> Actions {
        self.enter(State::Terminated, NEVER);
        Actions { failed: end == End::TransportError, ..Actions::end(end) }
    }
}

/// Methods that every machine has.
macro_rules! common {
    ($type:ident) => {
        impl $type {
            /// State.
            pub fn state(&self) -> State {
                self.core.state
            }

            /// When `on_timer` is to be called; `None` while no timer runs.
            pub fn deadline(&self) -> Option<u64> {
                self.core.deadline()
            }
        }
    };
}
use common;

#[cfg(test)]
mod tests;
