//! Lists of IPv4 addresses and prefixes, as options have them.

use nat_core::config::Prefix;
use profile::Address;
use protocol::problem::Problem;
use std::net::{IpAddr, Ipv4Addr};

/// Most addresses of a list.
const MOST: u64 = 1 << 16;

/// An IPv4 prefix; an address by itself is one of 32 bits.
pub fn prefix(address: &Address) -> Option<Prefix> {
    let IpAddr::V4(ip) = address.ip else { return None };
    Some(Prefix::new(ip, address.prefix.unwrap_or(32)))
}

/// As prefixes.
pub fn prefixes(list: &[Address]) -> Vec<Prefix> {
    list.iter().filter_map(prefix).collect()
}

/// Every address of them.
pub fn all(list: &[Address]) -> impl Iterator<Item = Ipv4Addr> {
    list.iter().filter_map(prefix).flat_map(|prefix| {
        let bits = u32::from(prefix.bits.min(32));
        let first = prefix.address.to_bits() & u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        let last = (prefix.size() - 1).min(MOST) as u32;
        (0..=last).map(move |i| Ipv4Addr::from_bits(first.wrapping_add(i)))
    })
}

/// Which of them are no IPv4.
pub fn not_ipv4(key: &str, list: &[Address]) -> Vec<Problem> {
    let wrong = list.iter().enumerate().filter(|(_, address)| prefix(address).is_none());
    let problem = |(i, address)| {
        let what = format!("{address} is not IPv4");
        Problem::new(format!("{key}[{i}]"), what, "Use IPv4: NAT64 is not there")
    };
    wrong.map(problem).collect()
}

/// What is wrong with a list of which every address is used.
pub fn problems(key: &str, list: &[Address]) -> Vec<Problem> {
    let mut problems = not_ipv4(key, list);
    let size: u64 = prefixes(list).iter().map(Prefix::size).sum();
    if size > MOST {
        let what = format!("{size} addresses are more than there can be");
        problems.push(Problem::new(key, what, "Use at most 65,536"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &[&str]) -> Vec<Address> {
        text.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn prefixes_are_all_their_addresses() {
        let found: Vec<String> =
            all(&list(&["203.0.113.18/31", "192.0.2.7"])).map(|ip| ip.to_string()).collect();
        assert_eq!(found, ["203.0.113.18", "203.0.113.19", "192.0.2.7"]);
        assert_eq!(all(&list(&["203.0.113.77/28"])).next(), Some(Ipv4Addr::new(203, 0, 113, 64)));
    }

    #[test]
    fn what_cannot_be_a_pool_is_said() {
        assert!(problems("pool", &list(&["10.0.0.0/16"])).is_empty());
        assert!(problems("pool", &list(&["10.0.0.0/15"]))[0].what.contains("131072"));
        assert_eq!(problems("pool", &list(&["10.0.0.1", "fd00::1"]))[0].key, "pool[1]");
    }
}
