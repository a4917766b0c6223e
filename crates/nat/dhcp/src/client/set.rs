//! Very many clients.

use super::machine::{Client, State};
use super::message::{self, Reply};
use super::shared::Shared;
use super::{Config, Event, IgnoreReason, KnownAddress, Terms, Verdict, wire};
use crate::mac;
use packet::Mac;
use rand::Rng;
use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;

/// Why a client was not added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// There is one with this hardware address.
    #[error("there is a client {0} already")]
    Exists(String),
    /// The address of a group, or of nobody.
    #[error("{0} is no hardware address of one host")]
    NotOne(String),
    /// There are as many as there may be.
    #[error("there are {0} clients, which is the limit")]
    Full(usize),
}

/// DHCP clients, one a hardware address. After each call what is to be sent is in [`transmit`](Self::transmit) and what
/// happened in [`event`](Self::event); [`advance`](Self::advance) is due at [`next_due`](Self::next_due).
#[derive(Debug)]
pub struct Clients {
    clients: HashMap<Mac, Client>,
    /// When each is due. An ordered set and not the timer wheel, since each reply moves a time, often to an earlier one, and
    /// the next one must be known exactly.
    due: BTreeSet<(u64, Mac)>,
    shared: Shared,
    ignored: [u64; IgnoreReason::NAMES.len()],
}

impl Clients {
    /// None yet. Who knows the seed knows the `xid` of all exchanges: take a random one.
    pub fn new(config: Config, seed: u64) -> Self {
        let shared = Shared::new(config, seed);
        Self {
            clients: HashMap::new(),
            due: BTreeSet::new(),
            shared,
            ignored: [0; IgnoreReason::NAMES.len()],
        }
    }

    /// What clients had before, as [`known_addresses`](Self::known_addresses) gave it: when they are added they ask for it again.
    pub fn remember(&mut self, known: impl IntoIterator<Item = KnownAddress>) {
        for known in known.into_iter().take(self.shared.config.most) {
            self.shared.known.insert(known.mac, known);
        }
    }

    /// What clients have and had, those that are gone included; in no order.
    pub fn known_addresses(&self) -> impl Iterator<Item = &KnownAddress> {
        self.shared.known.values()
    }

    /// What one client has or had.
    pub fn known_of(&self, mac: Mac) -> Option<&KnownAddress> {
        self.shared.known.get(&mac)
    }

    /// A gone client does not come back.
    pub fn forget(&mut self, mac: Mac) {
        if !self.clients.contains_key(&mac) {
            self.shared.forget(mac);
        }
    }

    /// One more client.
    pub fn add(&mut self, mac: Mac, now: u64) -> Result<(), AddError> {
        let most = self.shared.config.most;
        if mac[0] & 1 == 1 || mac == Mac::default() {
            return Err(AddError::NotOne(mac::text(&mac)));
        }
        if self.clients.contains_key(&mac) {
            return Err(AddError::Exists(mac::text(&mac)));
        }
        if self.clients.len() >= most {
            return Err(AddError::Full(most));
        }
        let [least, most] = self.shared.config.start_delay;
        let due = now.saturating_add(self.shared.random.random_range(least..=most.max(least)));
        let known = self.shared.known.get(&mac).filter(|known| self.shared.config.allows(known.address));
        let client =
            Client::new(mac, known.map(|known| known.address), known.is_some_and(|known| known.bound), due);
        self.due.insert((client.due, mac));
        self.clients.insert(mac, client);
        Ok(())
    }

    /// A client gives its address back, if it has one, and is gone. False: there is none.
    pub fn release(&mut self, mac: Mac, now: u64) -> bool {
        let Some(mut client) = self.clients.remove(&mac) else { return false };
        self.due.remove(&(client.due, mac));
        client.release(now, &mut self.shared);
        true
    }

    /// Somebody else was found to have a client's address (by ARP, RFC 5227): it is declined. False: it has none.
    pub fn conflict(&mut self, mac: Mac, now: u64) -> bool {
        self.with(mac, |client, shared| client.conflict(now, shared)).unwrap_or(false)
    }

    /// A frame came.
    pub fn receive(&mut self, frame: &[u8], now: u64) -> Verdict {
        let (header, payload) = match wire::reply(frame, &self.shared.config.tags) {
            Ok(found) => found,
            Err(verdict) => return verdict,
        };
        let Some(mac) = message::client(payload).filter(|mac| self.clients.contains_key(mac)) else {
            return Verdict::NotOurs;
        };
        if header.destination != mac && header.destination != packet::ethernet::BROADCAST {
            return Verdict::NotOurs;
        }
        let heard = Reply::parse(payload).and_then(|reply| {
            self.with(mac, |client, shared| client.handle_reply(&reply, header.source, now, shared))
                .unwrap_or(Err(IgnoreReason::Malformed))
        });
        match heard {
            Ok(()) => Verdict::Accepted,
            Err(ignored) => {
                self.ignored[ignored as usize] += 1;
                Verdict::Ignored(ignored)
            }
        }
    }

    /// Do what is due by now.
    pub fn advance(&mut self, now: u64) {
        while self.advance_some(now, usize::MAX) {}
    }

    /// Let at most `most` clients do what is due by now; whether there may be more.
    pub fn advance_some(&mut self, now: u64, most: usize) -> bool {
        for _ in 0..most {
            let due = self.due.first().copied().filter(|(at, _)| *at <= now && *at < u64::MAX);
            let Some((_, mac)) = due else { return false };
            self.with(mac, |client, shared| client.wake(now, shared));
        }
        true
    }

    /// When [`advance`](Self::advance) is to be called next.
    pub fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(at, _)| *at).filter(|at| *at < u64::MAX)
    }

    /// The next frame to send.
    pub fn transmit(&mut self) -> Option<Vec<u8>> {
        self.shared.frames.pop_front()
    }

    /// What happened next.
    pub fn event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// What a client has.
    pub fn lease(&self, mac: Mac) -> Option<&Terms> {
        self.clients.get(&mac)?.lease()
    }

    /// Where a client is.
    pub fn state(&self, mac: Mac) -> Option<State> {
        self.clients.get(&mac).map(|client| client.state)
    }

    /// Who has an address.
    pub fn holder(&self, address: Ipv4Addr) -> Option<Mac> {
        self.shared.holders.get(&address).copied()
    }

    /// How many clients there are.
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Messages that nothing was done about, by reason.
    pub fn ignored(&self) -> impl Iterator<Item = (&'static str, u64)> {
        IgnoreReason::NAMES.into_iter().zip(self.ignored)
    }

    /// Do something with a client, and keep its time.
    fn with<T>(&mut self, mac: Mac, act: impl FnOnce(&mut Client, &mut Shared) -> T) -> Option<T> {
        let client = self.clients.get_mut(&mac)?;
        let before = client.due;
        let done = act(client, &mut self.shared);
        if client.due != before {
            self.due.remove(&(before, mac));
            self.due.insert((client.due, mac));
        }
        Some(done)
    }
}
