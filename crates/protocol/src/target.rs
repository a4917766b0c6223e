//! What a model can be pointed at: schemes of URLs, what carries them, and the target of one group.

use crate::problem::{Problem, closest};
use schemars::JsonSchema;
use serde::Serialize;

/// What carries a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// An ordered byte stream: TCP or TLS.
    Stream,
    /// Datagrams: UDP.
    Datagram,
    /// ICMP messages, from the ICMP header on.
    Icmp,
}

/// The first part of a URL, and what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Scheme {
    /// `mqtt` in `mqtt://host`.
    pub name: &'static str,
    /// The port when the URL has none; null: the URL must have one, or the carrier has no ports.
    pub port: Option<u16>,
    /// What carries it.
    #[schemars(extend("default" = "stream"))]
    pub carrier: Carrier,
    /// Whether the stream is inside TLS.
    pub tls: bool,
}

impl Scheme {
    /// A scheme over TCP.
    pub const fn tcp(name: &'static str, port: Option<u16>) -> Self {
        Self { name, port, carrier: Carrier::Stream, tls: false }
    }

    /// A scheme over TLS.
    pub const fn tls(name: &'static str, port: Option<u16>) -> Self {
        Self { name, port, carrier: Carrier::Stream, tls: true }
    }

    /// Whether the stream is that of an SCTP association in place of a TCP connection.
    pub fn is_sctp(self) -> bool {
        self.name.ends_with("+sctp")
    }

    /// A scheme over UDP.
    pub const fn udp(name: &'static str, port: Option<u16>) -> Self {
        Self { name, port, carrier: Carrier::Datagram, tls: false }
    }

    /// A scheme over ICMP, which has no ports.
    pub const fn icmp(name: &'static str) -> Self {
        Self { name, port: None, carrier: Carrier::Icmp, tls: false }
    }

    /// The one called `name` among those of `model`; schemes have no case (RFC 3986 section 3.1).
    pub fn find(model: &str, among: &[Scheme], name: &str) -> Result<Scheme, Problem> {
        let known = || among.iter().map(|scheme| scheme.name);
        among.iter().find(|scheme| scheme.name.eq_ignore_ascii_case(name)).copied().ok_or_else(|| {
            let usable = known().map(|name| format!("{name}://")).collect::<Vec<_>>().join(" or ");
            let fix = match closest(name, known()) {
                Some(meant) => format!("did you mean {meant}://?"),
                None => format!("use {usable}"),
            };
            Problem::new("", format!("{model} does not run over {name}://"), fix)
        })
    }
}

/// What a group is pointed at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The scheme of its URL.
    pub scheme: Scheme,
    /// Host as the URL has it, a name or an address; an IPv6 address in brackets.
    pub host: String,
    /// The port; 0 for ICMP.
    pub port: u16,
    /// Whether it is reached over IPv6.
    pub ipv6: bool,
}
