//! What an operator may decide.

use super::SECOND;
use packet::ethernet::Tags;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

/// How all clients of a set behave.
#[derive(Debug, Clone)]
pub struct Config {
    /// Clients at most, and as many addresses remembered.
    pub most: usize,
    /// Ask servers to broadcast their replies, for what cannot receive frames for each address before it has one
    /// (RFC 2131 section 4.1).
    pub broadcast: bool,
    /// A client begins after a random time between these, in nanoseconds, so that many do not begin together (RFC 2131
    /// section 4.4.1: 1 to 10 s).
    pub start_delay: [u64; 2],
    /// Leases shorter than this, in seconds, are refused: they would be renewed all the time.
    pub least_lease: u32,
    /// Ask for leases of this length, in seconds.
    pub ask_lease: Option<u32>,
    /// Addresses that no client may have, whichever server offers them.
    pub never: Vec<RangeInclusive<Ipv4Addr>>,
    /// VLAN tags of the frames, out and in.
    pub tags: Tags,
}

impl Config {
    /// Whether a client may have an address, as far as the operator decides.
    pub(super) fn allows(&self, address: Ipv4Addr) -> bool {
        !self.never.iter().any(|never| never.contains(&address))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            most: 65_536,
            broadcast: true,
            start_delay: [SECOND, 10 * SECOND],
            least_lease: 60,
            ask_lease: None,
            never: Vec::new(),
            tags: Tags::NONE,
        }
    }
}
