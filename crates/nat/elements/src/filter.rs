//! Which sessions somebody means.

use nat_core::{Realm, Session};
use packet::layers::protocol;
use std::net::Ipv4Addr;

/// Which sessions are wanted. What is `None` may be anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// The subscriber's address.
    pub subscriber: Option<Ipv4Addr>,
    /// The subscriber's tags.
    pub realm: Option<Realm>,
    /// The address outside.
    pub outside: Option<Ipv4Addr>,
    /// The port outside, or the identifier of an ICMP query.
    pub outside_port: Option<u16>,
    /// The address that it talks to.
    pub remote: Option<Ipv4Addr>,
    /// The port that it talks to.
    pub remote_port: Option<u16>,
    /// 1, 6 or 17.
    pub protocol: Option<u8>,
}

impl SessionFilter {
    /// Whether a session is one of these.
    pub fn matches(&self, session: &Session) -> bool {
        let (inside, outside, remote) = (session.inside(), session.outside(), session.remote());
        let is = |wanted: Option<Ipv4Addr>, address: u32| wanted.is_none_or(|one| one.to_bits() == address);
        is(self.subscriber, inside.address)
            && self.realm.is_none_or(|realm| realm == session.realm())
            && is(self.outside, outside.address)
            && self.outside_port.is_none_or(|port| port == outside.port)
            && is(self.remote, remote.address)
            && self.remote_port.is_none_or(|port| port == remote.port)
            && self.protocol.is_none_or(|protocol| protocol == session.protocol())
    }
}

const PROTOCOLS: [(u8, &str); 3] = [(protocol::UDP, "udp"), (protocol::TCP, "tcp"), (protocol::ICMP, "icmp")];

/// What a session's protocol is called.
pub(crate) fn protocol_name(number: u8) -> &'static str {
    PROTOCOLS.into_iter().find(|(its, _)| *its == number).map_or("icmp", |(_, name)| name)
}

/// The number of a protocol that sessions may have.
pub fn protocol_number(name: &str) -> Option<u8> {
    PROTOCOLS.into_iter().find(|(_, its)| *its == name).map(|(number, _)| number)
}
