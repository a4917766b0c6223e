//! Targets of requests and responses (RFC 3263, RFC 3261 section 18.2.2), without a resolver.
//!
//! A [`Locator`] asks for DNS records, one query at a time, and makes of the answers the places to try, best first.

mod dns;
mod locator;

pub use dns::{Answer, Naptr, Query, Srv};
pub use locator::{Locator, MAX_TARGETS, Step};

use crate::message::header::Via;
use std::net::IpAddr;

/// A transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// TLS over TCP.
    Tls,
    /// WebSocket (RFC 7118).
    Ws,
    /// WebSocket over TLS.
    Wss,
}

impl Transport {
    /// Name in Via.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
            Self::Ws => "WS",
            Self::Wss => "WSS",
        }
    }

    /// The transport of this name, in any case.
    pub fn of(name: &str) -> Option<Self> {
        [Self::Udp, Self::Tcp, Self::Tls, Self::Ws, Self::Wss]
            .into_iter()
            .find(|transport| name.eq_ignore_ascii_case(transport.as_str()))
    }

    /// Port where none is named (RFC 3261 section 19.1.2, RFC 7118 section 5).
    pub fn port(self) -> u16 {
        match self {
            Self::Udp | Self::Tcp => 5_060,
            Self::Tls => 5_061,
            Self::Ws => 80,
            Self::Wss => 443,
        }
    }

    /// Encrypted, as `sips:` asks for.
    pub fn secure(self) -> bool {
        matches!(self, Self::Tls | Self::Wss)
    }

    /// Messages arrive, in order (RFC 3261 section 17).
    pub fn reliable(self) -> bool {
        self != Self::Udp
    }

    /// Prefix of the SRV name (RFC 3263 section 4.1).
    fn srv_prefix(self) -> Option<&'static str> {
        match self {
            Self::Udp => Some("_sip._udp."),
            Self::Tcp => Some("_sip._tcp."),
            Self::Tls => Some("_sips._tcp."),
            Self::Ws | Self::Wss => None,
        }
    }

    /// Service of a NAPTR record.
    fn of_service(service: &str) -> Option<Self> {
        [
            ("SIP+D2U", Self::Udp),
            ("SIP+D2T", Self::Tcp),
            ("SIPS+D2T", Self::Tls),
            ("SIP+D2W", Self::Ws),
            ("SIPS+D2W", Self::Wss),
        ]
        .into_iter()
        .find_map(|(name, transport)| service.eq_ignore_ascii_case(name).then_some(transport))
    }
}

/// A place to send to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target {
    /// Transport.
    pub transport: Transport,
    /// Address.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
}

/// Why there is no place to send to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LocateError {
    /// The URI asks for a transport that is not known or not supported.
    #[error("the transport of the URI is not supported")]
    Transport,
    /// `sips:` with a transport that is not encrypted.
    #[error("a sips URI cannot be reached over UDP")]
    Insecure,
    /// DNS has no address.
    #[error("DNS has no address for the URI")]
    NoAddress,
    /// The answer is to no query, or of another kind than the query.
    #[error("the DNS answer does not belong to the query")]
    Answer,
}

impl LocateError {
    /// Stable name, for counters and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Transport => "locate_transport",
            Self::Insecure => "locate_insecure",
            Self::NoAddress => "locate_no_address",
            Self::Answer => "locate_answer",
        }
    }
}

/// Host and port that a response is sent to over an unreliable transport, or where the connection is gone (RFC 3261 section 18.2.2,
/// RFC 3581 section 4), by the topmost Via.
pub fn response_target(via: &Via) -> (String, u16) {
    let transport = Transport::of(&via.transport).unwrap_or(Transport::Udp);
    let port = via.port.unwrap_or(transport.port());
    if let Some(maddr) = via.params.get("maddr") {
        return (maddr.to_owned(), port);
    }
    match via.params.get("received") {
        Some(received) => (received.to_owned(), via.rport().flatten().unwrap_or(port)),
        None => (via.host.clone(), port),
    }
}

/// An address written as a host: IPv4, or IPv6 with or without brackets.
fn numeric(host: &str) -> Option<IpAddr> {
    let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    host.parse().ok()
}

#[cfg(test)]
mod tests;
