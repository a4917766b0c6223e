//! What an operator may decide of a NAT's behaviour beside its size, as a graph says it.

use crate::addresses;
use nat_core::config::{Exemption, StaticForward, Timeouts};
use profile::{Address, Vlans};
use protocol::unit::Interval;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddrV4;

/// A protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForwardProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// An outside endpoint that always leads to an inside one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortForward {
    /// `tcp` or `udp`.
    pub protocol: ForwardProtocol,
    /// An address of the pool, and a port, like `203.0.113.16:443`.
    pub outside: SocketAddrV4,
    /// The subscriber's, like `10.0.0.7:8443`.
    pub inside: SocketAddrV4,
    /// The subscriber's VLAN, or two of them for QinQ, the service VLAN first. Default: none.
    #[serde(default, skip_serializing_if = "Vlans::is_empty")]
    pub vlan: Vlans,
}

impl From<&PortForward> for StaticForward {
    fn from(forward: &PortForward) -> Self {
        let id = |at: usize| forward.vlan.ids().get(at).map_or(0, |id| u32::from(id & 0x0fff));
        Self {
            protocol: match forward.protocol {
                ForwardProtocol::Tcp => 6,
                ForwardProtocol::Udp => 17,
            },
            outside: (*forward.outside.ip(), forward.outside.port()),
            inside: (*forward.inside.ip(), forward.inside.port()),
            realm: id(0) << 12 | id(1),
        }
    }
}

/// Idle times after which sessions are over. Each has the value that its RFC recommends unless it is said.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdleTimes {
    /// UDP. Default 5min (RFC 4787 REQ-5); 2min at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<Interval>,
    /// ICMP queries. Default 60s (RFC 5508 REQ-2), which is the least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp: Option<Interval>,
    /// Open TCP connections. Default 124min (RFC 5382 REQ-5), which is the least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_established: Option<Interval>,
    /// TCP connections that are being opened. Default 4min (RFC 5382 REQ-5); it may be shorter (RFC 7857 section 2.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_opening: Option<Interval>,
    /// TCP connections that were closed or reset. Default 4min (RFC 5382 REQ-5), which is the least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_closing: Option<Interval>,
    /// Between a port's last use and its next. Default 2min (RFC 6888 REQ-8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_quarantine: Option<Interval>,
}

impl IdleTimes {
    /// Whether nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// With what is said.
    pub fn over(&self, timeouts: Timeouts) -> Timeouts {
        let or = |said: Option<Interval>, other| said.map_or(other, Interval::ns);
        Timeouts {
            udp: or(self.udp, timeouts.udp),
            icmp: or(self.icmp, timeouts.icmp),
            tcp_established: or(self.tcp_established, timeouts.tcp_established),
            tcp_opening: or(self.tcp_opening, timeouts.tcp_opening),
            tcp_closing: or(self.tcp_closing, timeouts.tcp_closing),
            port_quarantine: or(self.port_quarantine, timeouts.port_quarantine),
            ..timeouts
        }
    }
}

/// Destinations that are forwarded untranslated.
pub fn exemptions(list: &[Address]) -> Vec<Exemption> {
    let exempt = |destination| Exemption { destination, ports: None };
    addresses::prefixes(list).into_iter().map(exempt).collect()
}
