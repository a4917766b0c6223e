//! What the clients of a set share.

use super::message::{self, Request};
use super::wire::{self, Endpoints};
use super::{Config, Event, IgnoreReason, KnownAddress};
use packet::Mac;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;

/// What clients share.
#[derive(Debug)]
pub(super) struct Shared {
    pub config: Config,
    pub random: SmallRng,
    pub frames: VecDeque<Vec<u8>>,
    pub events: VecDeque<Event>,
    /// Who has an address.
    pub holders: HashMap<Ipv4Addr, Mac>,
    pub known: HashMap<Mac, KnownAddress>,
}

impl Shared {
    /// Nothing yet.
    pub(super) fn new(config: Config, seed: u64) -> Self {
        Self {
            config,
            random: SmallRng::seed_from_u64(seed),
            frames: VecDeque::new(),
            events: VecDeque::new(),
            holders: HashMap::new(),
            known: HashMap::new(),
        }
    }

    /// Send a request.
    pub(super) fn send(&mut self, way: &Endpoints, request: &Request, xid: u32, secs: u16) {
        let message = message::request(request, way.mac, xid, secs, &self.config);
        self.frames.extend(message.and_then(|message| wire::frame(way, &self.config.tags, &message)));
    }

    /// Say what happened.
    pub(super) fn push_event(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Whether no other client has it.
    pub(super) fn is_free(&self, address: Ipv4Addr, mac: Mac) -> Result<(), IgnoreReason> {
        match self.holders.get(&address) {
            Some(holder) if *holder != mac => Err(IgnoreReason::Taken),
            _ => Ok(()),
        }
    }

    /// It has this address.
    pub(super) fn set_address(&mut self, mac: Mac, address: Ipv4Addr) {
        self.holders.insert(address, mac);
        if self.known.len() < self.config.most || self.known.contains_key(&mac) {
            self.known.insert(mac, KnownAddress { mac, address, bound: true });
        }
    }

    /// It no longer has it, and would like it again.
    pub(super) fn frees(&mut self, mac: Mac, address: Ipv4Addr) {
        self.holders.remove(&address);
        if let Some(known) = self.known.get_mut(&mac) {
            known.bound = false;
        }
    }

    /// It is not to ask for what it had.
    pub(super) fn forget(&mut self, mac: Mac) {
        self.known.remove(&mac);
    }
}
