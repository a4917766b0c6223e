//! Addresses as they are written in SIP.

use std::net::{IpAddr, SocketAddr};

/// A host as it is written in a URI: an IPv6 address has brackets.
pub fn host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// Host and port as they are written in a URI.
pub fn host_port(address: SocketAddr) -> String {
    format!("{}:{}", host(address.ip()), address.port())
}

/// The address that a host of a URI stands for, if it is no name.
pub fn parse(host: &str, port: Option<u16>) -> Option<SocketAddr> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    bare.parse().ok().map(|ip| SocketAddr::new(ip, port.unwrap_or(5060)))
}
