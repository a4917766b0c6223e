//! What the server asks of the NAT.

use std::net::{Ipv4Addr, SocketAddrV4};

/// What a client shows that a mapping is its own.
pub type Nonce = [u8; 12];

/// A subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Client {
    /// Its inside address.
    pub address: Ipv4Addr,
    /// What tells overlapping inside addresses apart: VLAN tags.
    pub realm: u32,
}

/// The inside end of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Inside {
    /// Whose.
    pub client: Client,
    /// IP protocol.
    pub protocol: u8,
    /// Port.
    pub port: u16,
}

/// Who made an explicit mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A MAP request with this nonce: only who knows it may change the mapping.
    Pcp(Nonce),
    /// The operator. No request changes it.
    Static,
}

/// An explicit mapping that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explicit {
    /// Who made it.
    pub origin: Origin,
    /// Outside address and port.
    pub external: SocketAddrV4,
    /// Seconds that it has left.
    pub lifetime_s: u32,
}

/// Whose packets a mapping lets in (RFC 6887 section 13.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filter {
    /// Network.
    pub address: Ipv4Addr,
    /// Bits of it that count, 0 to 32.
    pub prefix: u8,
    /// Port, 0 for all.
    pub port: u16,
}

/// A change of a mapping's filters. A mapping without filters lets everything in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filters {
    /// Drop those that are there first.
    pub clear: bool,
    /// Then add these.
    pub add: Vec<Filter>,
}

/// An explicit mapping that is wanted, or is to live on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// For whom.
    pub inside: Inside,
    /// To be kept with the mapping.
    pub nonce: Nonce,
    /// The outside address that is wished for.
    pub address: Option<Ipv4Addr>,
    /// The outside port that is wished for.
    pub port: Option<u16>,
    /// No other will do.
    pub exact: bool,
    /// Seconds from now, in bounds.
    pub lifetime_s: u32,
    /// Whose packets are let in.
    pub filters: Filters,
}

/// A session that is wanted, or is to live longer than it would.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// For whom.
    pub inside: Inside,
    /// Of the request.
    pub nonce: Nonce,
    /// The outside address that is wished for.
    pub address: Option<Ipv4Addr>,
    /// The outside port that is wished for.
    pub port: Option<u16>,
    /// The other end.
    pub remote: SocketAddrV4,
    /// Seconds from now, in bounds; with 0 none begins. It never shortens what the session has left (RFC 6887 section 12.3).
    pub lifetime_s: u32,
}

/// What was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappingGrant {
    /// Outside address and port.
    pub external: SocketAddrV4,
    /// Seconds from now.
    pub lifetime_s: u32,
}

/// Why nothing was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The subscriber is none, or may not do so.
    NotAuthorized,
    /// There is no outside address at the moment.
    NetworkFailure,
    /// Sessions or ports of the NAT are used up.
    NoResources,
    /// The subscriber's own are.
    Quota,
    /// What was wished for is taken, and no other would do.
    CannotProvideExternal,
    /// More filters than the NAT keeps for a mapping.
    ExcessiveRemotePeers,
    /// A session was asked for with a lifetime of 0, and there is none.
    NotThere,
}

/// The NAT's explicit mappings.
pub trait Mappings {
    /// The explicit mapping of an inside endpoint.
    fn explicit(&self, inside: Inside) -> Option<Explicit>;
    /// How many a subscriber has by PCP.
    fn count(&self, client: Client) -> u32;
    /// Make an explicit mapping, or have the one that is there live on. Where the endpoint has an implicit mapping already, it
    /// becomes explicit and keeps its outside port (RFC 6887 section 11.3).
    fn map(&mut self, map: Map) -> Result<MappingGrant, Refusal>;
    /// End an explicit mapping.
    fn delete(&mut self, inside: Inside);
    /// End all of a subscriber that were made with this nonce, of one protocol or of all.
    fn delete_all(&mut self, client: Client, protocol: Option<u8>, nonce: Nonce);
    /// Make a session, or have the one that is there live on.
    fn peer(&mut self, peer: Peer) -> Result<MappingGrant, Refusal>;
}
