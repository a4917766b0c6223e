//! A packet's way through the slow path, which may lead through the NAT twice.

use crate::headers::Headers;
use crate::key::Endpoint;

/// A packet on its way through the slow path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    /// What it is now: a packet that goes back in is translated twice.
    pub headers: Headers,
    /// Whether this passage uses up a hop.
    pub hop: bool,
    pub now: u64,
}

/// The way of a packet whose source was translated and whose destination is an address of the pool (RFC 4787 REQ-9: its source is
/// the outside endpoint).
pub(crate) fn back_in(way: &Way, source: Endpoint, destination: Endpoint) -> Way {
    Way {
        headers: Headers { realm: 0, ..way.headers.between(source, destination) },
        hop: false,
        now: way.now,
    }
}
