//! What an operator may decide of sites.

use nat_core::{Mac, SiteBy, SiteConfig};
use profile::Address;
use protocol::problem::Problem;
use protocol::unit::Interval;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// What a site is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The subscribers with the same VLAN tags.
    Vlan,
    /// One subscriber.
    Subscriber,
    /// The subscribers of one prefix with the same VLAN tags.
    Prefix,
}

/// Sites, each with a public address that is assigned while packets pass: what a site is, and how many there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SiteOptions {
    /// Sites that may have an address at a time, up to 65534.
    pub most: usize,
    /// What a site is: `vlan`, `subscriber` or `prefix`.
    pub by: By,
    /// The length of the prefixes, where these are sites.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<u8>,
}

impl SiteOptions {
    /// As the NAT takes it.
    pub fn config(&self) -> SiteConfig {
        let by = match self.by {
            By::Vlan => SiteBy::Tags,
            By::Subscriber => SiteBy::Subscriber,
            By::Prefix => SiteBy::Prefix(self.prefix.unwrap_or(32)),
        };
        SiteConfig { most: self.most, by }
    }

    /// What is wrong with it.
    pub fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !(1..=SiteConfig::MOST).contains(&self.most) {
            let what = format!("{} is not within 1 to {}", self.most, SiteConfig::MOST);
            problems.push(Problem::new("most", what, "Use a number of that range"));
        }
        match (self.by, self.prefix) {
            (By::Prefix, None) => {
                let what = "the sites are prefixes, and their length is not said";
                problems.push(Problem::new("prefix", what, "Add a length like prefix: 29"));
            }
            (By::Prefix, Some(bits)) if !(1..=32).contains(&bits) => {
                let what = format!("{bits} is no length of an IPv4 prefix");
                problems.push(Problem::new("prefix", what, "Use 1 to 32"));
            }
            (By::Vlan | By::Subscriber, Some(_)) => {
                let what = "there is a prefix length, and the sites are no prefixes";
                problems.push(Problem::new("prefix", what, "Use by: prefix, or leave it out"));
            }
            _ => {}
        }
        problems
    }
}

/// Public addresses of sites by DHCP (RFC 2131): a client for each site, at a virtual MAC address of the site's own. Stands before
/// `nat-host` on the outside port; answers ARP for the addresses that sites have. What is not for it leaves by `out`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The outside port.
    pub port: String,
    /// What a site is, and how many there may be: as `nat44` has it.
    pub sites: SiteOptions,
    /// The virtual MAC address of the first site; each further one has the next. Default 02:4e:44:00:00:00.
    #[serde(default = "first_mac")]
    pub macs: String,
    /// A file in which the addresses of sites are kept, so that each asks for its own after a restart. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<String>,
    /// An address is given back so long after the site's last subscriber is gone. Default 5min.
    #[serde(default = "release_after")]
    pub release_after: Interval,
    /// Leases that are shorter are refused. Default 60s.
    #[serde(default = "least_lease")]
    pub least_lease: Interval,
    /// Who is a subscriber: an address of these is not taken. Default: the private addresses of RFC 1918 and RFC 6598.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscribers: Vec<Address>,
    /// Prefixes of which no address is taken either, such as the network of the inside port. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub never: Vec<Address>,
    /// The router outside, whose address is not taken either. Default: none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
}

/// The first virtual MAC address, if no other is said.
pub const FIRST_MAC: Mac = [2, 0x4e, 0x44, 0, 0, 0];

fn first_mac() -> String {
    nat_dhcp::mac::text(&FIRST_MAC)
}

fn release_after() -> Interval {
    Interval::secs(300)
}

fn least_lease() -> Interval {
    Interval::secs(60)
}

impl Options {
    /// What is wrong with it.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems: Vec<Problem> =
            self.sites.check().into_iter().map(|problem| problem.under("sites")).collect();
        problems.extend(crate::addresses::not_ipv4("subscribers", &self.subscribers));
        problems.extend(crate::addresses::not_ipv4("never", &self.never));
        let fix = "Use one like 02:4e:44:00:00:00, of one host and locally administered";
        match nat_dhcp::mac::parse(&self.macs) {
            None => {
                let what = format!("{:?} is no MAC address", self.macs);
                problems.push(Problem::new("macs", what, fix));
            }
            Some(first) if first[0] & 1 == 1 || !Macs::new(first, self.sites.most).is_one_vendor() => {
                let what =
                    format!("{} and {} more are not all addresses of hosts", self.macs, self.sites.most);
                problems.push(Problem::new("macs", what, fix));
            }
            Some(_) => {}
        }
        if let Some(file) = self.known.as_ref().filter(|file| !file.starts_with('/')) {
            let what = format!("{file:?} is no path from the root on");
            problems.push(Problem::new("known", what, "Use one like /var/lib/netdyno/sites.json"));
        }
        if self.least_lease.ns() < nat_core::config::SECOND {
            let what = "a lease lasts a second at least";
            problems.push(Problem::new("least_lease", what, "Use 1s or more"));
        }
        problems
    }

    /// The virtual MAC addresses.
    pub fn macs(&self) -> Macs {
        Macs::new(nat_dhcp::mac::parse(&self.macs).unwrap_or_default(), self.sites.most)
    }
}

/// The virtual MAC addresses of all sites: consecutive ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Macs {
    first: u64,
    count: u64,
}

impl Macs {
    /// So many from this one on.
    pub fn new(first: Mac, count: usize) -> Self {
        let [a, b, c, d, e, f] = first;
        Self { first: u64::from_be_bytes([0, 0, a, b, c, d, e, f]), count: count as u64 }
    }

    /// Whether the first three bytes of all are the same: so all are of hosts if the first is.
    fn is_one_vendor(&self) -> bool {
        self.first > 0 && self.first >> 24 == (self.first + self.count.max(1) - 1) >> 24
    }

    /// That of this number.
    pub fn of(&self, number: u32) -> Mac {
        let [.., a, b, c, d, e, f] = (self.first + u64::from(number)).to_be_bytes();
        [a, b, c, d, e, f]
    }

    /// The number of an address that is one of these.
    pub fn number(&self, mac: Mac) -> Option<u32> {
        let number = Self::new(mac, 0).first.checked_sub(self.first)?;
        (number < self.count).then_some(number as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problems(more: &serde_json::Value) -> Vec<String> {
        let mut options = json!({"port": "b", "sites": {"most": 10, "by": "vlan"}});
        for (key, value) in more.as_object().unwrap() {
            options[key] = value.clone();
        }
        let options: Options = serde_json::from_value(options).unwrap();
        options.problems().into_iter().map(|problem| problem.key).collect()
    }

    #[test]
    fn what_cannot_be_is_said_with_its_key() {
        for (more, key) in [
            (json!({"sites": {"most": 0, "by": "vlan"}}), "sites.most"),
            (json!({"sites": {"most": 65535, "by": "vlan"}}), "sites.most"),
            (json!({"sites": {"most": 1, "by": "prefix"}}), "sites.prefix"),
            (json!({"sites": {"most": 1, "by": "prefix", "prefix": 33}}), "sites.prefix"),
            (json!({"sites": {"most": 1, "by": "vlan", "prefix": 24}}), "sites.prefix"),
            (json!({"macs": "03:00:00:00:00:00"}), "macs"),
            (json!({"macs": "02:4e:44:ff:ff:fe"}), "macs"),
            (json!({"macs": "1:2"}), "macs"),
            (json!({"known": "sites.json"}), "known"),
            (json!({"least_lease": "500ms"}), "least_lease"),
            (json!({"subscribers": ["fd00::/8"]}), "subscribers[0]"),
        ] {
            assert_eq!(problems(&more), [key], "{more}");
        }
        for good in [
            json!({}),
            json!({"sites": {"most": 65534, "by": "prefix", "prefix": 32}}),
            json!({"macs": "02:4e:44:ff:ff:f6"}),
        ] {
            assert_eq!(problems(&good), Vec::<String>::new(), "{good}");
        }
    }

    #[test]
    fn macs_are_numbered() {
        let macs = Macs::new([2, 0x4e, 0x44, 0, 0, 0xff], 3);
        assert_eq!(macs.of(1), [2, 0x4e, 0x44, 0, 1, 0]);
        for number in 0..3 {
            assert_eq!(macs.number(macs.of(number)), Some(number));
        }
        assert_eq!((macs.number(macs.of(3)), macs.number([2, 0x4e, 0x44, 0, 0, 0xfe])), (None, None));
    }
}
