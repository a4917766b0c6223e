//! What whoever knows of leases tells the NAT table.

use engine::Request;
use nat_core::{Mac, Realm};
use std::net::Ipv4Addr;

/// Bind a subscriber to an Ethernet address, or tell that it is gone: for whoever knows its lease.
#[derive(Debug, Clone, Copy)]
pub struct Bind {
    /// Its private address.
    pub inside: Ipv4Addr,
    /// Its tags.
    pub realm: Realm,
    /// Its Ethernet address. `None`: its binding is over.
    pub mac: Option<Mac>,
}

impl Request for Bind {
    /// Whether it was done: there was room for it, or there was such a binding.
    type Reply = bool;
}
