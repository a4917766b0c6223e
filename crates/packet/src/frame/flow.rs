//! From whom to whom frames go.

use crate::ethernet::Mac;
use std::net::SocketAddr;

/// Addresses and ports that a frame's layers leave open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Source Ethernet address.
    pub source_mac: Mac,
    /// Destination Ethernet address: the next hop's.
    pub destination_mac: Mac,
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
}
