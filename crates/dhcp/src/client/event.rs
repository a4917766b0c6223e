//! What becomes known of clients and of what came.

use super::Terms;
use crate::mac;
use packet::Mac;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// What happened to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It has an address now.
    Acquired {
        /// Who.
        mac: Mac,
        /// The address, and on which terms.
        lease: Terms,
    },
    /// It has its address for longer.
    Renewed {
        /// Who.
        mac: Mac,
        /// The address, and on which terms.
        lease: Terms,
    },
    /// It no longer has its address. Unless it was released it tries to get one again.
    Lost {
        /// Who.
        mac: Mac,
        /// What it had.
        address: Ipv4Addr,
        /// Why.
        why: Lost,
    },
    /// It asked for an address and a server said no. It tries to get another.
    Refused {
        /// Who.
        mac: Mac,
        /// What it asked for.
        address: Ipv4Addr,
    },
}

/// Why an address was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// The lease's time passed.
    Expired,
    /// A server said no when it was to be renewed (DHCPNAK).
    Refused,
    /// Somebody else has it; it was declined.
    Conflict,
    /// It was given back.
    Released,
}

/// What a received frame was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// No message from a DHCP server to one of these clients.
    NotOurs,
    /// One that a client acted on.
    Accepted,
    /// One that nothing was done about.
    Ignored(Ignored),
}

/// Why nothing was done about a server's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Ignored {
    /// No DHCP message that can be used.
    #[error("malformed")]
    Malformed,
    /// Of another exchange (`xid`), or of one that is over.
    #[error("of another exchange")]
    OtherExchange,
    /// Of a type that is not waited for in this state.
    #[error("not waited for")]
    Unexpected,
    /// Not from the server that was chosen.
    #[error("from another server")]
    OtherServer,
    /// Not for the address that was asked for.
    #[error("for another address")]
    OtherAddress,
    /// For an address that no host can have there.
    #[error("an address that no host can have")]
    BadAddress,
    /// A lease of no length, or shorter than we take.
    #[error("a lease that is too short")]
    ShortLease,
    /// For an address that another of the clients has.
    #[error("an address that another client has")]
    Taken,
}

impl Ignored {
    /// The names in counters, in the order of the variants: `Ignored::NAMES[ignored as usize]`.
    pub const NAMES: [&'static str; 8] = [
        "malformed",
        "other_exchange",
        "unexpected",
        "other_server",
        "other_address",
        "bad_address",
        "short_lease",
        "taken",
    ];
}

/// An address that a client had: it asks for it again when it comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Who.
    #[serde(with = "mac")]
    pub mac: Mac,
    /// What it had.
    pub address: Ipv4Addr,
    /// Whether it may still have it, so that it asks a server to confirm that (INIT-REBOOT); else it says in its DHCPDISCOVER
    /// that it would like it.
    pub bound: bool,
}
