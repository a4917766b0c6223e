//! What the paths to other hosts carry (RFC 1191, RFC 8201): the MTU of each destination of which a router said that it is less than
//! the link's.

use crate::config::SECOND;
use packet::{ipv4, ipv6, tcp};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// How long a router's word holds, ns: the path may have changed (RFC 1191 section 6.3, RFC 8201 section 4).
const AGE: u64 = 600 * SECOND;
/// Most destinations: of more the oldest is forgotten, and asked of the path again.
const MOST: usize = 4096;
/// The least that ICMP can make of a path's MTU (RFC 1191 section 3 lets it be 68, which only serves attackers).
pub(crate) const LEAST_V4: u16 = 552;
/// The least of IPv6: who says less is not believed (RFC 8201 section 4).
pub(crate) const LEAST_V6: u16 = 1280;

#[derive(Debug, Clone, Copy)]
struct Path {
    mtu: u16,
    until: u64,
}

/// The MTUs of paths that carry less than the link.
#[derive(Debug, Default)]
pub(crate) struct PathMtus {
    by_destination: HashMap<IpAddr, Path>,
    /// When each entry ends, the oldest first. An entry that changed meanwhile ends at another time.
    order: VecDeque<(u64, IpAddr)>,
}

impl PathMtus {
    /// Whether all paths carry what the link does.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_destination.is_empty()
    }

    /// What the path to `ip` carries, if that is known to be less than the link's MTU.
    #[inline]
    pub fn get(&self, ip: IpAddr, now: u64) -> Option<u16> {
        if self.is_empty() {
            return None;
        }
        self.by_destination.get(&ip).filter(|path| now < path.until).map(|path| path.mtu)
    }

    /// A router said of a packet of ours to `ip` that the path carries `told` bytes. Whether that may be: a message never makes a
    /// path carry more.
    pub fn learn(&mut self, ip: IpAddr, told: u32, link: u16, now: u64) -> bool {
        if ip.is_ipv6() && told < LEAST_V6.into() {
            return false;
        }
        let mtu = u16::try_from(told).unwrap_or(u16::MAX).max(LEAST_V4);
        if mtu >= self.get(ip, now).unwrap_or(link) {
            return true;
        }
        let until = now.saturating_add(AGE);
        self.by_destination.insert(ip, Path { mtu, until });
        self.order.push_back((until, ip));
        while let Some((end, oldest)) = self.order.front().copied() {
            if end > now && self.by_destination.len() <= MOST && self.order.len() <= 2 * MOST {
                break;
            }
            self.order.pop_front();
            if self.by_destination.get(&oldest).is_some_and(|path| path.until == end) {
                self.by_destination.remove(&oldest);
            }
        }
        true
    }
}

/// Payload of a segment without options in a packet of `mtu` bytes.
pub(crate) fn segment_size(mtu: u16, v4: bool) -> u16 {
    let headers = if v4 { ipv4::LEN } else { ipv6::LEN } + tcp::LEN;
    mtu.saturating_sub(headers as u16).max(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into()
    }

    #[test]
    fn a_path_is_believed_for_ten_minutes_and_never_carries_more_by_a_message() {
        let mut paths = PathMtus::default();
        assert_eq!(paths.get(ip(1), 0), None);
        for (told, expected) in [(1500, None), (9000, None), (1400, Some(1400)), (1450, Some(1400))] {
            assert!(paths.learn(ip(1), told, 1500, 5));
            assert_eq!(paths.get(ip(1), 5), expected, "{told}");
        }
        assert_eq!(paths.get(ip(2), 5), None);
        assert_eq!(paths.get(ip(1), AGE + 4), Some(1400));
        assert_eq!(paths.get(ip(1), AGE + 5), None);
        assert!(paths.learn(ip(1), 1450, 1500, AGE + 5));
        assert_eq!(paths.get(ip(1), AGE + 5), Some(1450));
    }

    #[test]
    fn less_than_hosts_must_take_is_not_believed() {
        let v6 = "fd00::2".parse().expect("an address");
        let mut paths = PathMtus::default();
        for (told, expected) in [(553, 553), (552, 552), (551, 552), (0, 552)] {
            paths.learn(ip(told), told, 1500, 0);
            assert_eq!(paths.get(ip(told), 0), Some(expected));
        }
        assert!(!paths.learn(v6, 1279, 1500, 0));
        assert_eq!(paths.get(v6, 0), None);
        assert!(paths.learn(v6, 1280, 1500, 0));
        assert_eq!(paths.get(v6, 0), Some(1280));
    }

    #[test]
    fn the_oldest_of_too_many_is_forgotten() {
        let mut paths = PathMtus::default();
        for n in 0..MOST as u32 {
            paths.learn(ip(n), 1000, 1500, 0);
        }
        assert_eq!((paths.get(ip(0), 0), paths.by_destination.len()), (Some(1000), MOST));
        paths.learn(ip(MOST as u32), 1000, 1500, 0);
        assert_eq!((paths.get(ip(0), 0), paths.by_destination.len()), (None, MOST));
        assert_eq!(paths.get(ip(1), 0), Some(1000));
        // one whose path gets worse and worse does not fill the memory
        for mtu in (600..1500).rev().cycle().take(20 * MOST) {
            paths.learn(ip(7), mtu, 1500, u64::from(mtu));
        }
        assert!(paths.order.len() <= 2 * MOST);
        // what has ended makes room
        paths.learn(ip(9_999), 1000, 1500, 2 * AGE);
        assert_eq!((paths.by_destination.len(), paths.order.len()), (1, 1));
    }
}
