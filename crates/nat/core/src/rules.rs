//! What an operator says of addresses, IP options and sessions that are not permitted.

use crate::headers::Headers;
use crate::prefix::Prefix;
use crate::verdict::Side;
use packet::layers::protocol;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

/// What is dropped by addresses and options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PacketFilter {
    /// Prefixes in the subscribers' space that are reached by the outside port: its own network, and what an operator allows.
    pub outside: Vec<Prefix>,
    /// Addresses that no host has: network and broadcast addresses of the ports' own networks.
    pub non_host_addresses: Vec<Ipv4Addr>,
    /// Packets with which IP options are dropped.
    pub options: IpOptions,
    /// Which new sessions are permitted, in order: the first rule that a packet matches decides; one that matches none is permitted.
    pub rules: Vec<Rule>,
}

/// Packets with which IP options (RFC 791 section 3.1) are forwarded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IpOptions {
    /// With any but loose and strict source routes (RFC 7126 sections 4.3 and 4.4).
    #[default]
    NoSourceRoute,
    /// With none.
    None,
    /// With any.
    Any,
}

/// A rule for packets that begin something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Whether what it matches is permitted.
    pub permit: bool,
    /// The side that the packet comes from; `None`: either.
    pub from: Option<Side>,
    /// The protocol's number; `None`: any.
    pub protocol: Option<u8>,
    /// The source, as it came.
    pub source: Prefix,
    /// The destination, as it came.
    pub destination: Prefix,
    /// Destination ports of TCP and UDP; `None`: any, and other protocols.
    pub ports: Option<RangeInclusive<u16>>,
}

impl Rule {
    /// Whether it decides on a packet from this side.
    pub fn matches(&self, side: Side, headers: &Headers) -> bool {
        let (source, destination) = (headers.source().address, headers.destination());
        let has_ports = matches!(headers.protocol, protocol::TCP | protocol::UDP);
        self.from.is_none_or(|from| from == side)
            && self.protocol.is_none_or(|protocol| protocol == headers.protocol)
            && self.source.has(source)
            && self.destination.has(destination.address)
            && self.ports.as_ref().is_none_or(|ports| has_ports && ports.contains(&destination.port))
    }
}
