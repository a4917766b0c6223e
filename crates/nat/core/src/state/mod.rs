//! What a NAT knows, as records that outlive it: written when it stops, read when it begins again.
//!
//! ```text
//!  Nat::export ─▶ Record ─▶ Record::encode ─▶ bytes … bytes ─▶ Record::decode ─▶ Record ─▶ Nat::import
//!                (subscribers, then ports at rest, then sessions, each with what was asked for it)
//! ```
//! Records name addresses and ports and no places in tables, so they fit a NAT with other tables, another pool or another number of
//! workers as far as that allows. What does not fit is left out, with its reason; whatever records say, the tables stay consistent.
//! A standby is told of the same records while the NAT runs: see [`Update`].

mod audit;
mod codec;
mod export;
mod import;
mod live;
#[cfg(test)]
mod tests;

pub use codec::{BadRecord, LONGEST};
pub use import::{ImportClock, SkipReason};
pub use live::{AgingCursor, Sweep, Update};

use crate::binding::Mac;
use crate::explicit::{FILTERS, Nonce};
use crate::key::{Endpoint, Realm};
use crate::session::State;
use crate::subscriber::BLOCKS;

/// One thing that a NAT knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// A subscriber and its port blocks.
    Subscriber(KeptSubscriber),
    /// Ports that rest.
    Ports(KeptPorts),
    /// A session.
    Session(KeptSession),
    /// Whose a mapping is that was asked for, and whom it lets in; the mapping is a session before it.
    Mapping(KeptMapping),
}

impl Record {
    /// The subscriber that it is of, if it is of one.
    pub fn subscriber(&self) -> Option<(u32, Realm)> {
        match self {
            Self::Subscriber(kept) => Some((kept.inside, kept.realm)),
            Self::Session(kept) => Some((kept.inside.address, kept.realm)),
            Self::Mapping(kept) => Some((kept.inside.address, kept.realm)),
            Self::Ports(_) => None,
        }
    }
}

/// A subscriber and its port blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptSubscriber {
    /// Its private address.
    pub inside: u32,
    /// Its tags.
    pub realm: Realm,
    /// Its Ethernet address; zeros are none.
    pub mac: Mac,
    /// The address of its port blocks; 0 if it has none.
    pub outside: u32,
    /// The first port of each block.
    pub first: [u16; BLOCKS],
    /// How many blocks it has.
    pub blocks: u8,
    /// Ports of a block.
    pub size: u16,
    /// For how long it has had no session, in ticks.
    pub idle: u32,
}

/// Up to 64 ports that rest (RFC 6888 REQ-8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptPorts {
    /// Their address, and the first of the 64.
    pub outside: Endpoint,
    /// 6, 17, or 1 for the identifiers of ICMP.
    pub protocol: u8,
    /// For how long at least they rest from now on, in ticks.
    pub left: u32,
    /// A bit for each port that does.
    pub ports: u64,
}

/// A session, or a mapping that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptSession {
    /// The subscriber's endpoint.
    pub inside: Endpoint,
    /// Its tags.
    pub realm: Realm,
    /// What stands for it outside.
    pub outside: Endpoint,
    /// Whom it talks to.
    pub remote: Endpoint,
    /// 1, 6 or 17.
    pub protocol: u8,
    /// What it is doing.
    pub state: State,
    /// Whether its outside endpoint is that of a static forward.
    pub forward: bool,
    /// For how long nothing was seen that keeps it alive, in ticks.
    pub idle: u32,
    /// For how long it is to live whether something is seen or not, because somebody asked for that, in ticks.
    pub asked: u32,
    /// Packets and bytes from the inside, as a session counts them.
    pub up: u64,
    /// And from the outside.
    pub down: u64,
}

/// A mapping that was asked for (RFC 6887).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptMapping {
    /// The subscriber's endpoint.
    pub inside: Endpoint,
    /// Its tags.
    pub realm: Realm,
    /// 6 or 17.
    pub protocol: u8,
    /// For how long, in ticks.
    pub left: u32,
    /// Whose it is.
    pub nonce: Nonce,
    /// Whom it lets in: address, length of the prefix, and port, of the first `filters`.
    pub lets_in: [(u32, u8, u16); FILTERS],
    /// How many filters it has.
    pub filters: u8,
}
