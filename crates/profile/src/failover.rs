//! The servers of a target that take over from one another.

use crate::error::{BAD_VALUE, CONFLICT, OUT_OF_RANGE};
use crate::{Error, Group, Profile, Resolve, Transport, bounded};
use protocol::unit::Interval;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Most servers of a target.
pub const SERVERS: usize = 64;

/// Servers that take over from one another, as SRV records name them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Failover {
    /// The servers.
    #[serde(deserialize_with = "bounded::list::<_, _, SERVERS>")]
    #[schemars(length(min = 1, max = 64))]
    pub servers: Vec<Server>,
    /// How long a device tries a server that failed it after all others. Default 30s.
    #[serde(default = "half_a_minute")]
    pub avoid: Interval,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Address and port, like `"192.0.2.1:5060"` or `"[2001:db8::1]:5060"`.
    pub address: String,
    /// Those with the lowest are tried first. Default 0.
    #[serde(default)]
    pub priority: u16,
    /// Share of the devices that try it first, among those of its priority. Default 0.
    #[serde(default)]
    pub weight: u16,
}

impl Server {
    /// Its address and port.
    pub fn place(&self) -> Option<SocketAddr> {
        self.address.parse().ok().filter(|place: &SocketAddr| place.port() > 0)
    }
}

fn half_a_minute() -> Interval {
    Interval::secs(30)
}

pub(crate) fn check(profile: &Profile, group: &Group, at: &str, add: &mut impl FnMut(Option<Error>)) {
    let Some(failover) = &group.failover else { return };
    let at = format!("{at}.failover");
    let name = group.model.name();
    if !group.model.fails_over() {
        let what = format!("{name} does not go on with another server");
        add(Some(Error::new(CONFLICT, at.clone(), what, "Leave it out")));
    }
    if matches!(profile.transport, Transport::Dpdk(_)) {
        let what = "the dpdk transport sends to one address";
        add(Some(Error::new(CONFLICT, at.clone(), what, "Leave it out, or use the sockets transport")));
    }
    if group.resolve != Resolve::First {
        let what = "the servers are named, and no name is resolved";
        add(Some(Error::new(CONFLICT, at.clone(), what, "Leave resolve out")));
    }
    if failover.servers.is_empty() {
        let fix = "Name one at least, like {\"address\": \"192.0.2.1:5060\"}";
        add(Some(Error::new(OUT_OF_RANGE, format!("{at}.servers"), "there is no server", fix)));
    }
    let mut places = Vec::new();
    for (i, server) in failover.servers.iter().enumerate() {
        let key = format!("{at}.servers[{i}].address");
        match server.place() {
            None => {
                let what = format!("{:?} is no address with a port", server.address);
                add(Some(Error::new(BAD_VALUE, key, what, "Write it like \"192.0.2.1:5060\"")));
            }
            Some(place) if places.contains(&place) => {
                add(Some(Error::new(CONFLICT, key, format!("{place} is named twice"), "Name it once")));
            }
            Some(place) => places.push(place),
        }
    }
}
