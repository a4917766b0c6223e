//! Sessions (section 4.1): how long they are kept for clients that are away, and how they end.

use super::client::NEVER;
use super::{Mqtt, SECOND};
use crate::ConnectionId;

/// Sessions that are kept for clients that are away, at most.
const SESSIONS_MAX: usize = 1_000_000;
/// Sessions that are ended at a time: very many may be over at once, and messages are not to wait for that.
const ENDED_AT_ONCE: usize = 64;

/// How long a session with this Session Expiry Interval is kept, nanoseconds (section 3.1.2.11.2).
pub(super) fn kept_for(seconds: u32) -> u64 {
    if seconds == u32::MAX { NEVER } else { u64::from(seconds) * SECOND }
}

impl Mqtt {
    /// The client of a connection goes away, and its session with it, unless it is kept.
    pub(super) fn leave(&mut self, id: ConnectionId, now: u64) {
        let Some(client) = self.connection(id).and_then(|one| one.client.take()) else { return };
        let expires = self.clients[client as usize].leave(now);
        if expires <= now || self.names.len() > SESSIONS_MAX {
            self.forget(client);
        } else if expires < NEVER {
            self.away.insert((expires, client));
        }
    }

    /// The session that a client of this name goes on with, if there is one and it wants it.
    pub(super) fn taken_up(&mut self, name: &str, clean: bool, now: u64) -> Option<u32> {
        let client = *self.names.get(name)?;
        let one = &self.clients[client as usize];
        let expired = one.is_expired(now);
        self.away.remove(&(one.expires, client));
        self.counters.expired += u64::from(expired);
        if clean || expired {
            self.forget(client);
            return None;
        }
        Some(client)
    }

    /// End sessions of clients that have not come back in time.
    pub(super) fn end_expired(&mut self, now: u64) {
        for _ in 0..ENDED_AT_ONCE {
            let Some((_, client)) = self.away.first().copied().filter(|(expires, _)| *expires <= now) else {
                return;
            };
            self.counters.expired += 1;
            self.forget(client);
        }
    }

    /// Forget a client: nothing of its session is kept.
    fn forget(&mut self, client: u32) {
        let one = std::mem::take(&mut self.clients[client as usize]);
        self.away.remove(&(one.expires, client));
        for filter in &one.filters {
            self.subscriptions.remove(filter, client);
        }
        self.names.remove(&one.name);
        self.free.push(client);
    }
}
