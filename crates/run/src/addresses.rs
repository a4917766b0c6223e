//! The addresses of a target's name, in the order in which they are tried.

use profile::Resolve;
use std::net::{SocketAddr, ToSocketAddrs};

/// Most addresses of one name that are used.
const MOST: usize = 64;

/// The addresses of one target; there is one at least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    first: SocketAddr,
    further: Vec<SocketAddr>,
    /// Whether devices are spread over them; else each begins at the one that worked last.
    spread: bool,
}

impl Addresses {
    /// This one alone.
    pub fn one(address: SocketAddr) -> Self {
        Self { first: address, further: Vec::new(), spread: false }
    }

    /// The addresses of `host`, those that `policy` and `family` (whether IPv4) allow, in the order in which they are tried.
    pub fn of(host: &str, port: u16, policy: Resolve, family: Option<bool>) -> Result<Self, String> {
        let found =
            (host, port).to_socket_addrs().map_err(|e| format!("{host:?} cannot be resolved ({e})"))?;
        let found: Vec<SocketAddr> = in_turn(found.filter(|address| policy.takes(address.is_ipv4())));
        let fits = |address: &&SocketAddr| family.is_none_or(|v4| address.is_ipv4() == v4);
        let fitting: Vec<SocketAddr> = found.iter().filter(fits).copied().collect();
        let mut left = if fitting.is_empty() { found } else { fitting }.into_iter();
        let first = left.next().ok_or_else(|| match policy {
            Resolve::First | Resolve::All => format!("{host:?} has no address"),
            Resolve::V4 => format!("{host:?} has no IPv4 address"),
            Resolve::V6 => format!("{host:?} has no IPv6 address"),
        })?;
        Ok(Self { first, further: left.collect(), spread: policy == Resolve::All })
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

    pub(crate) fn first_mut(&mut self) -> &mut SocketAddr {
        &mut self.first
    }
}

/// An address as it is told: without its port where there are none (ICMP).
pub fn shown(address: SocketAddr) -> String {
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
        };
        assert_eq!([0, 1, 2].map(|device| some.own(device)), [Some(0), Some(1), Some(0)]);
        assert_eq!(some.tries(), 1);
        some.spread = false;
        assert_eq!((some.own(1), some.tries()), (None, 2));
    }
}
