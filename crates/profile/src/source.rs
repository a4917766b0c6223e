//! Pools of local addresses, so that the ports of one address are not the limit.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// More addresses than this in one pool is a slip of the pen.
const POOL_MAX: u128 = 65_536;

/// Addresses that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    first: IpAddr,
    last: IpAddr,
}

impl Pool {
    /// What `"10.0.0.1"`, `"10.0.0.0/28"` (its hosts) or `"10.0.0.1-10.0.0.9"` stands for.
    pub fn read(text: &str) -> Result<Self, String> {
        let parse = |t: &str| {
            t.trim().parse::<IpAddr>().map_err(|_| format!("{t:?} in {text:?} is not an IP address"))
        };
        let (first, last) = if let Some((network, bits)) = text.split_once('/') {
            let network = parse(network)?;
            let width = if network.is_ipv4() { 32 } else { 128 };
            let bits: u32 =
                bits.parse().ok().filter(|b| *b <= width).ok_or_else(|| {
                    format!("{bits:?} in {text:?} is not a prefix length; use 0 to {width}")
                })?;
            let span = (1u128 << (width - bits).min(127)) - 1;
            let base = number(network) & !span;
            // network and broadcast address are not hosts (RFC 1122 3.2.1.3; /31: RFC 3021)
            let edge = u128::from(network.is_ipv4() && span > 1);
            (from_number(base + edge, network), from_number(base + span - edge, network))
        } else if let Some((first, last)) = text.split_once('-') {
            (parse(first)?, parse(last)?)
        } else {
            let one = parse(text)?;
            (one, one)
        };
        if first.is_ipv4() != last.is_ipv4() {
            return Err(format!("{text:?} mixes IPv4 and IPv6"));
        }
        let (low, high) = (number(first), number(last));
        if low > high {
            return Err(format!("{text:?} ends before it begins"));
        }
        if high - low >= POOL_MAX {
            return Err(format!("{text:?} has {} addresses; {POOL_MAX} is the most", high - low + 1));
        }
        Ok(Self { first, last })
    }

    /// How many.
    pub fn count(&self) -> usize {
        (number(self.last) - number(self.first)) as usize + 1
    }

    /// Each of them.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let like = self.first;
        (number(self.first)..=number(self.last)).map(move |n| from_number(n, like))
    }

    /// Whether `ip` is one of them.
    pub fn has(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.first.is_ipv4() && (self.first..=self.last).contains(&ip)
    }

    /// An address that is in two of these, and which two.
    pub fn overlap(pools: &[Self]) -> Option<(IpAddr, usize, usize)> {
        let mut order: Vec<usize> = (0..pools.len()).collect();
        order.sort_by_key(|i| pools[*i].first);
        let mut furthest = *order.first()?;
        for next in order.into_iter().skip(1) {
            let (before, this) = (pools[furthest], pools[next]);
            if before.has(this.first) {
                return Some((this.first, furthest.min(next), furthest.max(next)));
            }
            furthest = next;
        }
        None
    }
}

/// All addresses of a [`Pool`] as it is written.
pub fn expand(text: &str) -> Result<Vec<IpAddr>, String> {
    Pool::read(text).map(|pool| pool.addresses().collect())
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

fn from_number(n: u128, like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(n as u32)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(n)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_expand() {
        let ips = |t: &str| expand(t).expect(t).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(ips("10.0.0.1"), ["10.0.0.1"]);
        assert_eq!(ips("10.0.0.1-10.0.0.3"), ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        assert_eq!(ips("10.0.0.9/30"), ["10.0.0.9", "10.0.0.10"]);
        assert_eq!(ips("10.0.0.8/31"), ["10.0.0.8", "10.0.0.9"]);
        assert_eq!(ips("10.0.0.8/32"), ["10.0.0.8"]);
        assert_eq!(ips("fd00::1-fd00::2"), ["fd00::1", "fd00::2"]);
        assert_eq!(ips("10.0.0.0/16").len(), 65_534);
        assert_eq!(ips("10.0.0.0-10.0.255.255").len(), 65_536);
    }

    #[test]
    fn an_address_in_two_pools_is_found() {
        let overlap = |texts: &[&str]| {
            let pools: Vec<Pool> = texts.iter().map(|text| Pool::read(text).expect(text)).collect();
            Pool::overlap(&pools).map(|(ip, a, b)| (ip.to_string(), a, b))
        };
        assert_eq!(overlap(&["10.0.0.5", "10.0.0.1-10.0.0.4", "fd00::5", "10.0.0.6"]), None);
        assert_eq!(overlap(&["10.0.0.9", "10.0.0.1", "10.0.0.9"]), Some(("10.0.0.9".into(), 0, 2)));
        assert_eq!(overlap(&["10.0.0.0/28", "10.0.0.14"]), Some(("10.0.0.14".into(), 0, 1)));
        assert_eq!(overlap(&[]), None);
    }

    #[test]
    fn bad_pools_say_why() {
        for (text, why) in [
            ("10.0.0", "not an IP"),
            ("10.0.0.0/33", "prefix"),
            ("10.0.0.2-10.0.0.1", "before"),
            ("10.0.0.1-fd00::1", "mixes"),
            ("10.0.0.0-10.1.0.0", "the most"),
            ("::/0", "the most"),
        ] {
            let error = expand(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
