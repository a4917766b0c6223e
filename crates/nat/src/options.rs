//! What a graph says of a NAT.

use crate::element::{DROPS, KIND, Nat, OUTPUTS};
use ::element::kind::{Build, ElementKind};
use cgnat::Config;
use cgnat::config::{Filtering, PoolAddress, Prefix};
use engine::Element;
use profile::{Address, Error};
use protocol::problem::Problem;
use rand::TryRngCore;
use rand::rngs::OsRng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr};

/// Largest pool, in addresses.
const POOL: u64 = 1 << 16;

/// A carrier-grade NAT (RFC 6888) between two ports, on one worker. Packets come to it from a parser of each port; those to the
/// ports' own addresses, and what is no IP, leave by `inside_local` and `outside_local`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The port towards the subscribers. Its address is their gateway.
    pub inside: String,
    /// The port towards the rest of the world. It answers ARP for the addresses of the pool.
    pub outside: String,
    /// The router outside, which everything is sent to.
    pub gateway: Ipv4Addr,
    /// Outside addresses, or prefixes of them.
    pub pool: Vec<Address>,
    /// Who is a subscriber. Default: the private addresses of RFC 1918 and RFC 6598.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscribers: Vec<Address>,
    /// Sessions there may be: 64 bytes each, and about 40 more in tables. Default 1048576.
    #[serde(default = "sessions")]
    pub sessions: usize,
    /// Subscribers there may be. Default 16384.
    #[serde(default = "most_subscribers")]
    pub most_subscribers: usize,
    /// Ports of a block: a power of two from 64 to 16384. Default 512.
    #[serde(default = "ports_per_block")]
    pub ports_per_block: u16,
    /// Port blocks that a subscriber may have, up to 8. Default 4.
    #[serde(default = "blocks_per_subscriber")]
    pub blocks_per_subscriber: u8,
    /// Sessions that a subscriber may have. Default 8192.
    #[serde(default = "sessions_per_subscriber")]
    pub sessions_per_subscriber: u32,
    /// Who may answer to a UDP mapping (RFC 4787 section 5). Default endpoint_independent.
    #[serde(default)]
    pub udp_filtering: Filter,
    /// The largest MSS that a SYN may ask for. Default: as it asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mss: Option<u16>,
}

/// Who may answer to a mapping.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    /// Everybody.
    #[default]
    EndpointIndependent,
    /// Whom the subscriber sent to, from the port it sent to.
    AddressAndPortDependent,
}

fn sessions() -> usize {
    1 << 20
}

fn most_subscribers() -> usize {
    1 << 14
}

fn ports_per_block() -> u16 {
    512
}

fn blocks_per_subscriber() -> u8 {
    4
}

fn sessions_per_subscriber() -> u32 {
    8192
}

/// An IPv4 prefix; an address by itself is one of 32 bits.
fn prefix(address: &Address) -> Option<Prefix> {
    let IpAddr::V4(ip) = address.ip else { return None };
    Some(Prefix::new(ip, address.prefix.unwrap_or(32)))
}

impl Options {
    /// As the NAT takes it.
    fn config(&self) -> Config {
        let pool = self.pool.iter().filter_map(prefix).flat_map(|prefix| {
            let bits = prefix.bits.min(32);
            let first = prefix.address.to_bits() & u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            let last = (prefix.size() - 1).min(POOL) as u32;
            (0..=last).map(move |i| PoolAddress::whole(Ipv4Addr::from_bits(first.wrapping_add(i))))
        });
        let mut config = Config {
            pool: pool.collect(),
            sessions: self.sessions,
            subscribers: self.most_subscribers,
            ports_per_block: self.ports_per_block,
            blocks_per_subscriber: self.blocks_per_subscriber,
            sessions_per_subscriber: self.sessions_per_subscriber,
            mss: self.mss,
            // Nobody reads them here.
            events: 0,
            ..Config::default()
        };
        if !self.subscribers.is_empty() {
            config.inside = self.subscribers.iter().filter_map(prefix).collect();
        }
        config.filtering.udp = match self.udp_filtering {
            Filter::EndpointIndependent => Filtering::EndpointIndependent,
            Filter::AddressAndPortDependent => Filtering::AddressAndPortDependent,
        };
        config
    }
}

impl ElementKind for Options {
    const KIND: &'static str = KIND;
    const DROPS: &'static [&'static str] = &DROPS;
    const REPLICABLE: bool = false;
    const EXAMPLE: &'static str =
        r#"{"inside": "a", "outside": "b", "gateway": "203.0.113.1", "pool": ["203.0.113.16/28"]}"#;

    fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let lists = [("pool", &self.pool), ("subscribers", &self.subscribers)];
        for (key, list) in lists {
            for (i, address) in list.iter().enumerate().filter(|(_, address)| prefix(address).is_none()) {
                let what = format!("{address} is not IPv4");
                problems.push(Problem::new(format!("{key}[{i}]"), what, "Use IPv4: NAT64 is not there"));
            }
        }
        if self.inside == self.outside {
            let what = "inside and outside are the same port";
            problems.push(Problem::new("outside", what, "Give each side a port of its own"));
        }
        let size: u64 = self.pool.iter().filter_map(prefix).map(|prefix| prefix.size()).sum();
        if size > POOL {
            let what = format!("{size} addresses are more than a pool can have");
            problems.push(Problem::new("pool", what, "Use at most 65,536"));
        }
        if problems.is_empty()
            && let Err(why) = self.config().check()
        {
            let why = why.to_string();
            let (key, what) = why.split_once(": ").unwrap_or(("pool", &why));
            problems.push(Problem::new(key, what, "See docs/reference/elements.md"));
        }
        problems
    }

    fn outputs(&self) -> Vec<String> {
        OUTPUTS.map(str::to_owned).to_vec()
    }

    fn ports(&self) -> Vec<(&'static str, &str)> {
        vec![("inside", &self.inside), ("outside", &self.outside)]
    }

    fn build(&self, cx: &mut Build<'_>) -> Result<Box<dyn Element>, Error> {
        let (inside, outside) = (cx.port("inside", &self.inside)?, cx.port("outside", &self.outside)?);
        let sides = [inside, outside].map(|(number, port)| (number as u16, port.addrs.clone()));
        let mut config = self.config();
        // Nobody is to know what ports and places in tables are drawn from.
        OsRng.try_fill_bytes(&mut config.seed).map_err(|why| cx.fault("inside", &why.to_string()))?;
        let nat = Nat::new(config, sides, self.gateway, cx.pool.clone());
        Ok(Box::new(nat.map_err(|why| cx.fault("sessions", &why.to_string()))?))
    }
}
