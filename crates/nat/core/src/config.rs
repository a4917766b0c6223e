//! What an operator decides.

use crate::key::Realm;
pub use crate::prefix::Prefix;
pub use crate::rules::{IpOptions, PacketFilter, Rule};
pub use crate::sites::SiteConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;

/// An address of the pool, and its ports that are this worker's. Several workers may each have some ports of one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolAddress {
    /// The address.
    pub address: Ipv4Addr,
    /// The ports.
    pub ports: RangeInclusive<u16>,
}

impl PoolAddress {
    /// All ports that clients use (RFC 4787 section 4.2.1).
    pub fn all_ports(address: Ipv4Addr) -> Self {
        Self { address, ports: 1024..=65535 }
    }
}

/// Who may answer to a mapping (RFC 4787 section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Filtering {
    /// Everybody.
    EndpointIndependent,
    /// Whom the subscriber sent to, from the port it sent to.
    AddressAndPortDependent,
}

/// Which packets share a mapping (RFC 4787 section 4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// All from one inside endpoint.
    EndpointIndependent,
    /// Those between the same two endpoints.
    AddressAndPortDependent,
}

/// A choice for each of TCP, UDP and ICMP queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerProtocol<T> {
    /// TCP.
    pub tcp: T,
    /// UDP.
    pub udp: T,
    /// ICMP queries.
    pub icmp: T,
}

/// Idle times in ns after which a session is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// UDP: 5 min (RFC 4787 REQ-5).
    pub udp: u64,
    /// ICMP queries: 60 s (RFC 5508 REQ-2).
    pub icmp: u64,
    /// TCP that is open: 2 h 4 min (RFC 5382 REQ-5).
    pub tcp_established: u64,
    /// TCP that is being opened: 4 min (RFC 5382 REQ-5); it may be shorter (RFC 7857 section 2.1).
    pub tcp_opening: u64,
    /// TCP that is closed or was reset: 4 min (RFC 5382 REQ-5).
    pub tcp_closing: u64,
    /// An unsolicited SYN before it is answered: 6 s (RFC 5382 REQ-4).
    pub unsolicited_syn: u64,
    /// Between a port's last use and its next: 120 s (RFC 6888 REQ-8).
    pub port_quarantine: u64,
    /// Fragments that wait for the first one: 2 s.
    pub fragment: u64,
    /// A subscriber without sessions keeps its port blocks and its address: 300 s.
    pub idle_subscriber: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            udp: 300 * SECOND,
            icmp: 60 * SECOND,
            tcp_established: 7_440 * SECOND,
            tcp_opening: 240 * SECOND,
            tcp_closing: 240 * SECOND,
            unsolicited_syn: 6 * SECOND,
            port_quarantine: 120 * SECOND,
            fragment: 2 * SECOND,
            idle_subscriber: 300 * SECOND,
        }
    }
}

impl Timeouts {
    /// The longest, ns: 13 days.
    const MOST: u64 = 1 << 50;

    /// What is wrong with them.
    fn faults(&self) -> impl Iterator<Item = ConfigError> {
        let all = [
            ("timeouts.tcp_established", self.tcp_established, 7_440 * SECOND, " (RFC 5382 REQ-5)"),
            ("timeouts.tcp_opening", self.tcp_opening, SECOND, ""),
            ("timeouts.tcp_closing", self.tcp_closing, 240 * SECOND, " (RFC 5382 REQ-5)"),
            ("timeouts.udp", self.udp, 120 * SECOND, " (RFC 4787 REQ-5)"),
            ("timeouts.icmp", self.icmp, 60 * SECOND, " (RFC 5508 REQ-2)"),
            ("timeouts.port_quarantine", self.port_quarantine, SECOND, ""),
        ];
        all.into_iter().filter_map(|(key, value, least, why)| match value {
            value if value < least => Some(ConfigError::Short { key, value, least, why }),
            value if value > Self::MOST => Some(ConfigError::Long { key, value }),
            _ => None,
        })
    }
}

/// Destinations that are forwarded without translation (RFC 6888 REQ-6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exemption {
    /// Where to.
    pub destination: Prefix,
    /// To which ports; none is all.
    pub ports: Option<RangeInclusive<u16>>,
}

/// An outside endpoint that always leads to an inside one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaticForward {
    /// 6 or 17.
    pub protocol: u8,
    /// Address outside.
    pub outside: (Ipv4Addr, u16),
    /// Address inside.
    pub inside: (Ipv4Addr, u16),
    /// Tags of the inside.
    pub realm: Realm,
}

/// Everything an operator decides for one worker's NAT.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Sessions there may be.
    pub sessions: usize,
    /// Subscribers there may be.
    pub subscribers: usize,
    /// Who is a subscriber.
    pub inside: Vec<Prefix>,
    /// Outside addresses, in the beginning.
    pub pool: Vec<PoolAddress>,
    /// How many there may be more, by [`Nat::change_pool`](crate::Nat::change_pool). Each takes up to 74 kB once it is used.
    pub pool_room: usize,
    /// In place of a pool: each site has an address that is assigned while packets pass.
    pub sites: Option<SiteConfig>,
    /// Ports of a block: a power of two from 64 to 16,384.
    pub ports_per_block: u16,
    /// Blocks that a subscriber may have, at most [`crate::subscriber::BLOCKS`].
    pub blocks_per_subscriber: u8,
    /// Sessions that a subscriber may have.
    pub sessions_per_subscriber: u32,
    /// Whether address and ports follow from the subscriber's address alone (RFC 7422): it is one of this prefix.
    pub deterministic: Option<Prefix>,
    /// Which packets share a mapping.
    pub mapping: PerProtocol<Mapping>,
    /// Who may answer to one.
    pub filtering: PerProtocol<Filtering>,
    /// Idle times.
    pub timeouts: Timeouts,
    /// Whether UDP from the outside keeps a session alive too (RFC 4787 REQ-6).
    pub refresh_inbound: bool,
    /// Whether UDP ports stay even or odd (RFC 4787 REQ-4), and the one after a mapped even port comes after that.
    pub port_parity: bool,
    /// Not translated.
    pub exempt: Vec<Exemption>,
    /// Always there.
    pub static_forwards: Vec<StaticForward>,
    /// The largest MSS that a SYN may ask for.
    pub mss: Option<u16>,
    /// The largest IP packet that each side's link takes.
    pub mtu: Mtu,
    /// What is dropped by addresses, options and rules.
    pub packet_filter: PacketFilter,
    /// What the NAT's own ICMP errors come from: its address inside and outside. None are sent from a side without.
    pub addresses: Addresses,
    /// ICMP errors that the NAT may send in a second.
    pub icmp_errors_per_second: u32,
    /// Packets of which fragments may be under way.
    pub fragmented_packets: usize,
    /// Fragments that may wait for the first one.
    pub held_fragments: usize,
    /// Unsolicited SYNs that may be held.
    pub held_syns: usize,
    /// Records that may wait for the logger.
    pub events: usize,
    /// Whether each session is recorded, or port blocks only (RFC 6888 REQ-12, REQ-14).
    pub log_sessions: bool,
    /// What hashes and ports are drawn from. Nobody else may know it.
    pub seed: [u8; 32],
}

/// The largest IP packet of each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mtu {
    /// Towards subscribers.
    pub inside: u16,
    /// Away from them.
    pub outside: u16,
}

/// The NAT's own address on each side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Towards subscribers.
    pub inside: Option<Ipv4Addr>,
    /// Away from them.
    pub outside: Option<Ipv4Addr>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sessions: 1 << 20,
            subscribers: 1 << 14,
            inside: vec![
                Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 8),
                Prefix::new(Ipv4Addr::new(100, 64, 0, 0), 10),
                Prefix::new(Ipv4Addr::new(172, 16, 0, 0), 12),
                Prefix::new(Ipv4Addr::new(192, 168, 0, 0), 16),
            ],
            pool: Vec::new(),
            pool_room: 0,
            sites: None,
            ports_per_block: 512,
            blocks_per_subscriber: 4,
            sessions_per_subscriber: 8_192,
            deterministic: None,
            mapping: PerProtocol {
                tcp: Mapping::EndpointIndependent,
                udp: Mapping::EndpointIndependent,
                icmp: Mapping::EndpointIndependent,
            },
            filtering: PerProtocol {
                tcp: Filtering::AddressAndPortDependent,
                udp: Filtering::EndpointIndependent,
                icmp: Filtering::AddressAndPortDependent,
            },
            timeouts: Timeouts::default(),
            refresh_inbound: false,
            port_parity: true,
            exempt: Vec::new(),
            static_forwards: Vec::new(),
            mss: None,
            mtu: Mtu { inside: u16::MAX, outside: u16::MAX },
            packet_filter: PacketFilter::default(),
            addresses: Addresses::default(),
            icmp_errors_per_second: 1_000,
            fragmented_packets: 32_768,
            held_fragments: 256,
            held_syns: 1_024,
            events: 65_536,
            log_sessions: true,
            seed: [0; 32],
        }
    }
}

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A number is out of its range.
    #[error("{key}: {value} is not within {least} to {most}")]
    Range {
        /// Which key.
        key: &'static str,
        /// What it is.
        value: u64,
        /// What it must be at least.
        least: u64,
        /// What it must be at most.
        most: u64,
    },
    /// A time is shorter than its RFC, or the clock of the tables, lets it be.
    #[error("{key}: {} is less than {}{why}", time(*value), time(*least))]
    Short {
        /// Which key.
        key: &'static str,
        /// What it is, ns.
        value: u64,
        /// What it must be at least, ns.
        least: u64,
        /// Who says so, in parentheses.
        why: &'static str,
    },
    /// A time is longer than the tables can tell.
    #[error("{key}: {} is more than {}", time(*value), time(Timeouts::MOST))]
    Long {
        /// Which key.
        key: &'static str,
        /// What it is, ns.
        value: u64,
    },
    /// Not a power of two.
    #[error("ports_per_block: {0} is no power of two")]
    BlockSize(u16),
    /// An address of the pool has no room for a block.
    #[error("pool: the ports of {0} hold no port block")]
    NoBlock(Ipv4Addr),
    /// An address of the pool is there twice with the same ports.
    #[error("pool: {0} is there twice")]
    Twice(Ipv4Addr),
    /// An address of the pool is an inside one: translated packets would leak back in.
    #[error("pool: {0} is an inside address")]
    PoolInside(Ipv4Addr),
    /// More subscribers than the pool has blocks.
    #[error("deterministic: {subscribers} subscribers need as many port blocks, the pool has {blocks}")]
    Deterministic {
        /// Addresses of the prefix.
        subscribers: u64,
        /// Blocks of the pool.
        blocks: u64,
    },
    /// Sites, and a pool or ports that are computed.
    #[error(
        "sites: their addresses are assigned; there can be no pool and no deterministic ports beside them"
    )]
    Sites,
    /// A static forward that cannot be.
    #[error("static_forwards: {address}:{port} is {why}")]
    Forward {
        /// Which of them.
        at: usize,
        /// Its outside address.
        address: Ipv4Addr,
        /// Its outside port.
        port: u16,
        /// Why.
        why: &'static str,
    },
    /// Memory could not be had.
    #[error("no memory for the tables: {0}")]
    Memory(#[from] std::io::Error),
}

/// A length of time in the unit that suits it.
fn time(ns: u64) -> String {
    match ns {
        0 => "0s".to_owned(),
        ns if ns % (60 * SECOND) == 0 => format!("{}min", ns / (60 * SECOND)),
        ns if ns % SECOND == 0 => format!("{}s", ns / SECOND),
        ns if ns % 1_000_000 == 0 => format!("{}ms", ns / 1_000_000),
        ns => format!("{ns}ns"),
    }
}

impl Config {
    /// Places for addresses that there are none of in the beginning.
    pub(crate) fn spare(&self) -> usize {
        match (self.sites, self.deterministic) {
            (Some(sites), _) => sites.most,
            // Which block is whose follows from all addresses: they stay.
            (None, Some(_)) => 0,
            (None, None) => self.pool_room,
        }
    }

    /// What is wrong with it first, if anything.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.faults().into_iter().next().map_or(Ok(()), Err)
    }

    /// All that is wrong with it.
    pub fn faults(&self) -> Vec<ConfigError> {
        let mut faults = Vec::new();
        self.ranges(&mut faults);
        faults.extend(self.timeouts.faults());
        if !self.ports_per_block.is_power_of_two() {
            faults.push(ConfigError::BlockSize(self.ports_per_block));
        }
        self.addresses(&mut faults);
        self.forwards(&mut faults);
        faults
    }

    fn ranges(&self, faults: &mut Vec<ConfigError>) {
        let mut within = |key, value: u64, least: u64, most: u64| {
            if !(least..=most).contains(&value) {
                faults.push(ConfigError::Range { key, value, least, most });
            }
        };
        within("sessions", self.sessions as u64, 1, 1 << 30);
        within("subscribers", self.subscribers as u64, 1, 1 << 28);
        match self.sites {
            None => within("pool", self.pool.len() as u64, 1, 1 << 16),
            Some(sites) => within("sites.most", sites.most as u64, 1, SiteConfig::MOST as u64),
        }
        within("pool_room", self.pool_room as u64, 0, 1 << 16);
        within("ports_per_block", self.ports_per_block.into(), 64, 16_384);
        within(
            "blocks_per_subscriber",
            self.blocks_per_subscriber.into(),
            1,
            crate::subscriber::BLOCKS as u64,
        );
        within("fragmented_packets", self.fragmented_packets as u64, 1, 1 << 20);
        within("held_fragments", self.held_fragments as u64, 1, 1 << 16);
        within("held_syns", self.held_syns as u64, 1, 1 << 20);
        within("mtu", self.mtu.inside.min(self.mtu.outside).into(), 576, u16::MAX.into());
        within("acl", self.packet_filter.rules.len() as u64, 0, 1024);
    }

    fn addresses(&self, faults: &mut Vec<ConfigError>) {
        if self.sites.is_some() && (!self.pool.is_empty() || self.deterministic.is_some()) {
            faults.push(ConfigError::Sites);
        }
        for (at, PoolAddress { address, ports }) in self.pool.iter().enumerate() {
            if self.inside.iter().any(|prefix| prefix.has(address.to_bits())) {
                faults.push(ConfigError::PoolInside(*address));
            }
            let twice = |other: &PoolAddress| {
                other.address == *address
                    && other.ports.start() <= ports.end()
                    && ports.start() <= other.ports.end()
            };
            if self.pool.iter().skip(at + 1).any(twice) {
                faults.push(ConfigError::Twice(*address));
            }
        }
        if let Some(prefix) = self.deterministic
            && !self.inside.iter().any(|inside| inside.overlaps(&prefix))
        {
            faults.push(ConfigError::Deterministic { subscribers: prefix.size(), blocks: 0 });
        }
    }

    fn forwards(&self, faults: &mut Vec<ConfigError>) {
        for (at, forward) in self.static_forwards.iter().enumerate() {
            let (address, port) = forward.outside;
            let is_twice = |other: &StaticForward| {
                other.protocol == forward.protocol && other.outside == forward.outside
            };
            let why = if !self.pool.iter().any(|pool| pool.address == address) {
                "no address of the pool"
            } else if !matches!(forward.protocol, 6 | 17) {
                "neither TCP nor UDP"
            } else if self.static_forwards.iter().take(at).any(is_twice) {
                "there twice"
            } else if !self.inside.iter().any(|prefix| prefix.has(forward.inside.0.to_bits())) {
                "to nobody inside"
            } else {
                continue;
            };
            faults.push(ConfigError::Forward { at, address, port, why });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let outside = Ipv4Addr::new(203, 0, 113, 1);
        let inside = (Ipv4Addr::new(10, 0, 0, 7), 80);
        let forward = StaticForward { protocol: 6, outside: (outside, 80), inside, realm: Realm::default() };
        let pool = vec![PoolAddress::all_ports(outside)];
        Config { pool, static_forwards: vec![forward], ..Config::default() }
    }

    #[test]
    fn prefixes_hold_what_they_say() {
        let prefix = Prefix::new(Ipv4Addr::new(10, 1, 0, 0), 16);
        assert!(prefix.has(0x0a01_ffff) && !prefix.has(0x0a02_0000) && Prefix::ALL.has(7));
        let host = Prefix::new(Ipv4Addr::new(10, 1, 0, 1), 32);
        assert!(host.has(0x0a01_0001) && !host.has(0x0a01_0000) && host.size() == 1);
    }

    /// Each limit has a value that passes and one that does not.
    #[test]
    fn what_cannot_be_is_refused() {
        config().check().unwrap();
        type Change = fn(&mut Config);
        let bad: [(Change, &str); 13] = [
            (|c| c.pool.clear(), "pool"),
            (|c| c.sessions = 0, "sessions"),
            (|c| c.ports_per_block = 32, "ports_per_block"),
            (|c| c.ports_per_block = 500, "no power of two"),
            (|c| c.blocks_per_subscriber = 9, "blocks_per_subscriber"),
            (|c| c.timeouts.tcp_established = 7_439 * SECOND, "tcp_established"),
            (|c| c.timeouts.udp = 119 * SECOND, "udp"),
            (|c| c.timeouts.icmp = 59 * SECOND, "timeouts.icmp: 59s is less than 1min (RFC 5508 REQ-2)"),
            (|c| c.timeouts.tcp_opening = (1 << 50) + 1, "timeouts.tcp_opening: 1125899906842625ns is more"),
            (
                |c| c.static_forwards[0].inside.0 = Ipv4Addr::new(8, 8, 8, 8),
                "203.0.113.1:80 is to nobody inside",
            ),
            (|c| c.static_forwards.push(c.static_forwards[0]), "203.0.113.1:80 is there twice"),
            (|c| c.pool.push(PoolAddress::all_ports(Ipv4Addr::new(10, 0, 0, 1))), "inside address"),
            (|c| c.pool.push(c.pool[0].clone()), "twice"),
        ];
        for (change, says) in bad {
            let mut config = config();
            change(&mut config);
            let errors: Vec<_> = config.faults().iter().map(ToString::to_string).collect();
            assert!(errors.iter().any(|error| error.contains(says)), "{errors:?}");
        }
        let good: [Change; 3] =
            [|c| c.blocks_per_subscriber = 8, |c| c.ports_per_block = 64, |c| c.timeouts.udp = 120 * SECOND];
        for change in good {
            let mut config = config();
            change(&mut config);
            config.check().unwrap();
        }
    }
}
