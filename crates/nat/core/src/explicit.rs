//! What was asked for (RFC 6887): mappings with their end, their owner's nonce and their filters, and sessions that are to live on.
//!
//! A session's line has no room for that, and few have any: it is kept beside them, by their numbers.

use crate::config::Prefix;
use crate::key::{Endpoint, Realm};
use crate::reason::Reason;
use std::collections::HashMap;

/// What a subscriber shows that a mapping is its own.
pub type Nonce = [u8; 12];

/// Filters that a mapping may have.
pub const FILTERS: usize = 8;

/// Whom a mapping lets in (RFC 6887 section 13.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteFilter {
    /// From these addresses.
    pub network: Prefix,
    /// From this port; 0 is all.
    pub port: u16,
}

impl RemoteFilter {
    fn has(&self, remote: Endpoint) -> bool {
        self.network.has(remote.address) && (self.port == 0 || self.port == remote.port)
    }
}

/// A mapping, or a session, that is wanted.
#[derive(Debug, Clone, Copy)]
pub struct MappingRequest<'a> {
    /// For which inside endpoint.
    pub inside: Endpoint,
    /// Of which protocol.
    pub protocol: u8,
    /// With which tags.
    pub realm: Realm,
    /// The outside address that is wished for.
    pub address: Option<u32>,
    /// The outside port that is wished for.
    pub port: Option<u16>,
    /// No other will do.
    pub exact: bool,
    /// When it ends, ns.
    pub until: u64,
    /// Whose it is.
    pub nonce: Nonce,
    /// Drop the filters that are there.
    pub clear: bool,
    /// Then add these. A mapping without filters lets everybody in.
    pub filters: &'a [RemoteFilter],
}

impl MappingRequest<'_> {
    /// Without wishes and filters.
    pub fn new(inside: Endpoint, protocol: u8, realm: Realm, until: u64) -> Self {
        let (address, port, exact, nonce) = (None, None, false, [0; 12]);
        Self { inside, protocol, realm, address, port, exact, until, nonce, clear: false, filters: &[] }
    }

    /// Whether this is what was wished for.
    pub(crate) fn is_satisfied_by(&self, outside: Endpoint) -> bool {
        self.address.is_none_or(|address| address == outside.address)
            && self.port.is_none_or(|port| port == outside.port)
    }
}

/// Why it is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MappingError {
    /// As a packet would be dropped.
    Refused(Reason),
    /// What was wished for cannot be had, and no other would do.
    Taken,
    /// More filters than [`FILTERS`].
    Filters,
    /// Nothing is there, and nothing was to begin.
    NotThere,
}

impl From<Reason> for MappingError {
    fn from(reason: Reason) -> Self {
        Self::Refused(reason)
    }
}

/// A mapping that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explicit {
    /// When it ends, ns.
    pub until: u64,
    /// Whose it is.
    pub nonce: Nonce,
    /// Whom it lets in; none is everybody.
    pub filters: Vec<RemoteFilter>,
}

/// What stands explicitly for an inside endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExplicitMapping<'a> {
    /// A static forward.
    Static(Endpoint),
    /// A mapping that was asked for.
    Requested(Endpoint, &'a Explicit),
}

/// All that was asked for.
#[derive(Debug, Default)]
pub(crate) struct ExplicitMappings {
    /// Mappings, by the number of their session.
    mappings: HashMap<u32, Explicit>,
    /// Their numbers, by subscriber.
    of: HashMap<u32, Vec<u32>>,
    /// Until when sessions are to live, by their number.
    sessions: HashMap<u32, u64>,
}

impl ExplicitMappings {
    /// The filters that a mapping would have.
    pub fn filters(
        &self,
        index: Option<u32>,
        wanted: &MappingRequest<'_>,
    ) -> Result<Vec<RemoteFilter>, MappingError> {
        let there = index.and_then(|index| self.mappings.get(&index)).filter(|_| !wanted.clear);
        let mut filters = there.map(|there| there.filters.clone()).unwrap_or_default();
        for filter in wanted.filters {
            // Who asks again asks for the same ones.
            if !filters.contains(filter) {
                filters.push(*filter);
            }
            if filters.len() > FILTERS {
                return Err(MappingError::Filters);
            }
        }
        Ok(filters)
    }

    /// Keep a mapping, or what has changed of it.
    pub fn keep(&mut self, index: u32, subscriber: u32, explicit: Explicit) {
        if self.mappings.insert(index, explicit).is_none() {
            self.of.entry(subscriber).or_default().push(index);
        }
    }

    /// Let a session live until then, if that is later than what was asked before.
    pub fn extend(&mut self, index: u32, until: u64) -> u64 {
        let there = self.sessions.entry(index).or_default();
        *there = until.max(*there);
        *there
    }

    pub fn mapping(&self, index: u32) -> Option<&Explicit> {
        self.mappings.get(&index)
    }

    pub fn expires_at(&self, index: u32) -> Option<u64> {
        self.mappings
            .get(&index)
            .map(|explicit| explicit.until)
            .or_else(|| self.sessions.get(&index).copied())
    }

    /// The numbers of a subscriber's mappings.
    pub fn of(&self, subscriber: u32) -> &[u32] {
        self.of.get(&subscriber).map_or(&[], Vec::as_slice)
    }

    /// Whether a mapping lets somebody in.
    pub fn lets_in(&self, index: u32, remote: Endpoint) -> bool {
        let Some(explicit) = self.mappings.get(&index) else { return true };
        explicit.filters.is_empty() || explicit.filters.iter().any(|filter| filter.has(remote))
    }

    /// Whether nothing is kept.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.mappings.is_empty() && self.of.is_empty() && self.sessions.is_empty()
    }

    /// It is over.
    pub fn forget(&mut self, index: u32, subscriber: u32) {
        self.sessions.remove(&index);
        if self.mappings.remove(&index).is_some()
            && let Some(numbers) = self.of.get_mut(&subscriber)
        {
            numbers.retain(|number| *number != index);
            if numbers.is_empty() {
                self.of.remove(&subscriber);
            }
        }
    }
}
