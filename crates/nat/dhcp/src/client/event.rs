//! What becomes known of clients.

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
        why: LossReason,
    },
    /// It asked for an address and a server said no. It tries to get another.
    Refused {
        /// Who.
        mac: Mac,
        /// What it asked for.
        address: Ipv4Addr,
    },
    /// A server offered an address that no client can have. It waits for another offer.
    Unfit {
        /// Who.
        mac: Mac,
        /// What was offered.
        address: Ipv4Addr,
        /// Who offered it.
        server: Ipv4Addr,
    },
}

/// Why an address was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossReason {
    /// The lease's time passed.
    Expired,
    /// A server said no when it was to be renewed (DHCPNAK).
    Refused,
    /// Somebody else has it; it was declined.
    Conflict,
    /// It was given back.
    Released,
}

/// An address that a client had: it asks for it again when it comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownAddress {
    /// Who.
    #[serde(with = "mac")]
    pub mac: Mac,
    /// What it had.
    pub address: Ipv4Addr,
    /// Whether it may still have it, so that it asks a server to confirm that (INIT-REBOOT); else it says in its DHCPDISCOVER
    /// that it would like it.
    pub bound: bool,
}
