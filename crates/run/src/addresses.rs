//! The addresses of a target's name, in the order in which they are tried.

use profile::{Failover, Resolve};
use protocol::time::Time;
use std::net::{SocketAddr, ToSocketAddrs};

/// Most addresses of one name that are used: as many as there are bits for those that were tried.
const MOST: usize = u64::BITS as usize;

/// The addresses of one target; there is one at least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    first: SocketAddr,
    further: Vec<SocketAddr>,
    /// Whether devices are spread over them; else each begins at the one that worked last.
    spread: bool,
    /// Where they are servers that take over from one another.
    servers: Option<Servers>,
}

/// Servers that take over from one another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Servers {
    /// Priority and weight of each.
    ranks: Vec<(u16, u16)>,
    /// For how long one that failed a device is tried last by it, ns.
    avoid: u64,
}

impl Addresses {
    /// This one alone.
    pub fn one(address: SocketAddr) -> Self {
        Self { first: address, further: Vec::new(), spread: false, servers: None }
    }

    /// Servers that take over from one another.
    pub fn servers(failover: &Failover) -> Result<Self, String> {
        let places: Option<Vec<SocketAddr>> = failover.servers.iter().map(profile::Server::place).collect();
        let mut places = places.ok_or("an address without a port")?.into_iter();
        let first = places.next().ok_or("there is no server")?;
        let ranks = failover.servers.iter().map(|one| (one.priority, one.weight)).collect();
        let servers = Some(Servers { ranks, avoid: failover.avoid.ns() });
        Ok(Self { first, further: places.collect(), spread: false, servers })
    }

    /// The addresses of `host`, those that `policy` and `family` (whether IPv4) allow, in the order in which they are tried.
    pub fn of(host: &str, port: u16, policy: Resolve, family: Option<bool>) -> Result<Self, String> {
        let found =
            (host, port).to_socket_addrs().map_err(|e| format!("{host:?} cannot be resolved ({e})"))?;
        let found: Vec<SocketAddr> = in_turn(found.filter(|address| policy.allows(address.is_ipv4())));
        let fits = |address: &&SocketAddr| family.is_none_or(|v4| address.is_ipv4() == v4);
        let fitting: Vec<SocketAddr> = found.iter().filter(fits).copied().collect();
        let mut left = if fitting.is_empty() { found } else { fitting }.into_iter();
        let first = left.next().ok_or_else(|| match policy {
            Resolve::First | Resolve::All => format!("{host:?} has no address"),
            Resolve::V4 => format!("{host:?} has no IPv4 address"),
            Resolve::V6 => format!("{host:?} has no IPv6 address"),
        })?;
        Ok(Self { first, further: left.collect(), spread: policy == Resolve::All, servers: None })
    }

    /// The one that is tried first.
    pub fn first(&self) -> SocketAddr {
        self.first
    }

    /// Number `n`; they come again after the last.
    pub fn at(&self, n: usize) -> SocketAddr {
        match n % self.count() {
            0 => self.first,
            n => self.further.get(n - 1).copied().unwrap_or(self.first),
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        std::iter::once(self.first).chain(self.further.iter().copied())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        1 + self.further.len()
    }

    /// Which of them device number `device` has to itself, where devices are spread over them.
    pub fn own(&self, device: u32) -> Option<usize> {
        self.spread.then(|| device as usize % self.count())
    }

    /// How many of them one device may try.
    pub fn tries(&self) -> usize {
        if self.spread { 1 } else { self.count() }
    }

    /// Whether devices go on with another where one fails them.
    pub fn fail_over(&self) -> bool {
        self.servers.is_some()
    }

    /// Of servers that take over from one another, the one that device number `device` tries at `now`. `failed`: when each
    /// failed it the last time, [`Time::ZERO`]: never. `tried`: a bit for each that is not to be taken again, if there is another.
    ///
    /// RFC 2782: by priority, and within one by a draw of weights, here one for each device: it stays with its server. Those that
    /// failed it of late come last, the one that failed longest ago before the others.
    pub fn server(&self, device: u32, now: Time, failed: &[Time], tried: u64) -> usize {
        let Some(servers) = &self.servers else { return 0 };
        let avoided = |n: usize| {
            let at = failed.get(n).copied().filter(|at| *at != Time::ZERO);
            at.filter(|at| now.since(*at) < servers.avoid).unwrap_or(Time::ZERO)
        };
        let place = |n: &usize| {
            let (priority, weight) = servers.ranks.get(*n).copied().unwrap_or_default();
            (tried >> *n & 1, avoided(*n), priority, draw_rank(device, *n, weight))
        };
        (0..self.count()).min_by_key(place).unwrap_or(0)
    }

    pub(crate) fn first_mut(&mut self) -> &mut SocketAddr {
        &mut self.first
    }
}

/// The place of server number `n` in a draw of device number `device`: each server comes first in proportion to its weight, and one
/// without weight behind those with some, save for a small chance (RFC 2782).
fn draw_rank(device: u32, n: usize, weight: u16) -> u64 {
    let mut mixed = (u64::from(device) << 8 | n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let uniform = ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
    // the smallest of exponential times whose rates are the weights
    let time = -(1.0 - uniform).ln() / (f64::from(weight) + 0.01);
    (time * 1e12) as u64
}

/// An address as it is told: without its port where there are none (ICMP).
pub fn address_text(address: SocketAddr) -> String {
    if address.port() == 0 { address.ip().to_string() } else { address.to_string() }
}

/// Each once, and the families in turn from that of the first on (RFC 8305 section 4); the order within each is the
/// resolver's (RFC 6724).
fn in_turn(found: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut each: Vec<SocketAddr> = Vec::new();
    for address in found {
        if each.len() < MOST && !each.contains(&address) {
            each.push(address);
        }
    }
    let Some(v4_first) = each.first().map(SocketAddr::is_ipv4) else { return each };
    let (mut one, mut other) = (0, 0);
    let mut numbered: Vec<(usize, bool, SocketAddr)> = Vec::new();
    for address in each {
        let is_other = address.is_ipv4() != v4_first;
        let place = if is_other { &mut other } else { &mut one };
        numbered.push((*place, is_other, address));
        *place += 1;
    }
    numbered.sort_by_key(|(place, is_other, _)| (*place, *is_other));
    numbered.into_iter().map(|(_, _, address)| address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().expect(text)).collect()
    }

    #[test]
    fn families_take_turns_in_the_resolvers_order() {
        let order = |texts: &[&str]| in_turn(addresses(texts).into_iter());
        let (a, b, c) = ("[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1");
        let (x, y) = ("192.0.2.1:1", "192.0.2.2:1");
        // RFC 8305 section 4: one address of the first family, then one of the other
        assert_eq!(order(&[a, b, c, x, y]), addresses(&[a, x, b, y, c]));
        assert_eq!(order(&[x, y, a]), addresses(&[x, a, y]));
        assert_eq!(order(&[a, a, x, a]), addresses(&[a, x]));
        assert_eq!(order(&[]), addresses(&[]));
    }

    #[test]
    fn a_policy_and_a_family_leave_some_out() {
        let of = |host, policy, family| Addresses::of(host, 80, policy, family);
        let v4 = of("127.0.0.1", Resolve::V4, None).expect("an address");
        assert_eq!((v4.count(), v4.at(0), v4.at(5)), (1, v4.first(), v4.first()));
        assert!(of("127.0.0.1", Resolve::V6, None).expect_err("none").contains("no IPv6 address"));
        assert!(of("::1", Resolve::V4, None).expect_err("none").contains("no IPv4 address"));
        assert!(
            of("no-such-name.invalid", Resolve::First, None)
                .expect_err("none")
                .contains("cannot be resolved")
        );
        // what sources cannot reach is told by who knows the sources
        assert!(of("127.0.0.1", Resolve::First, Some(false)).is_ok());
    }

    #[test]
    fn devices_are_spread_only_where_that_is_asked_for() {
        let mut some = Addresses {
            first: addresses(&["192.0.2.1:1"])[0],
            further: addresses(&["192.0.2.2:1"]),
            spread: true,
            servers: None,
        };
        assert_eq!([0, 1, 2].map(|device| some.own(device)), [Some(0), Some(1), Some(0)]);
        assert_eq!(some.tries(), 1);
        some.spread = false;
        assert_eq!((some.own(1), some.tries()), (None, 2));
    }

    fn failover(text: &str) -> Addresses {
        Addresses::servers(&serde_json::from_str(text).expect("servers")).expect("addresses")
    }

    #[test]
    fn servers_are_tried_by_priority_and_those_that_failed_last() {
        let three = failover(
            r#"{"servers": [{"address": "192.0.2.1:5060", "priority": 20}, {"address": "192.0.2.2:5061", "priority": 10},
                {"address": "[2001:db8::1]:5062", "priority": 30}], "avoid": "10s"}"#,
        );
        let second = |s: u64| Time(s * 1_000_000_000);
        let pick = |now, failed: &[Time], tried| three.server(7, second(now), failed, tried);
        assert_eq!((three.count(), three.tries(), three.at(1).port()), (3, 3, 5061));
        assert_eq!(pick(100, &[], 0), 1);
        assert_eq!(pick(100, &[], 0b010), 0);
        let failed = [second(99), second(98), Time::ZERO];
        assert_eq!(pick(100, &failed, 0), 2, "it never failed");
        assert_eq!(pick(100, &failed, 0b100), 1, "it failed longest ago");
        assert_eq!(pick(108, &failed, 0), 1, "10 s have passed: the first takes over again");
        assert_eq!(pick(107, &failed, 0), 2);
        assert_eq!(pick(200, &failed, 0b010), 0, "the second was tried, and all are forgiven");
        assert_eq!(pick(200, &failed, 0b011), 2, "it is the only one that was not tried");
    }

    #[test]
    fn weights_are_shares_of_the_devices() {
        let three = failover(
            r#"{"servers": [{"address": "192.0.2.1:5060", "weight": 60}, {"address": "192.0.2.2:5060", "weight": 20},
                {"address": "192.0.2.3:5060"}]}"#,
        );
        let mut shares = [0_u32; 3];
        (0..10_000).for_each(|device| shares[three.server(device, Time::ZERO, &[], 0)] += 1);
        assert!(shares[0].abs_diff(7_500) < 150 && shares[1].abs_diff(2_500) < 150, "{shares:?}");
        assert!(shares[2] < 20, "{shares:?}");
        let first = three.server(5, Time::ZERO, &[], 0);
        assert_ne!(three.server(5, Time::ZERO, &[], 1 << first), first);
    }
}
