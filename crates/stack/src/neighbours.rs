//! Neighbours: Ethernet addresses of the hosts and routers on the link (RFC 826, RFC 4861).

use crate::config::{Config, MS, SECOND};
use packet::Mac;
use packet::arp::{Arp, Operation};
use packet::nd::{self, Nd};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// From one question to the next (RFC 4861 section 10: RETRANS_TIMER).
const AGAIN: u64 = SECOND;
/// The first is repeated sooner: it is often lost while a link comes up.
const FIRST: u64 = 100 * MS;
/// Questions without an answer until a neighbour counts as unreachable.
const QUESTIONS: u8 = 4;
/// How long an address holds without having been heard (REACHABLE_TIME).
const FRESH: u64 = 30 * SECOND;
/// Most neighbours.
const MOST: usize = 1 << 16;

/// State of a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It is asked for.
    Unknown,
    /// This is its address.
    Known(Mac),
    /// Nobody answered.
    Silent,
}

#[derive(Debug)]
struct Neighbour {
    ip: IpAddr,
    reach: Reach,
    asked: u8,
    ask_at: u64,
    confirmed: u64,
    pending: bool,
    /// Connections and sockets that wait for its address.
    waiting: Vec<u32>,
}

/// All neighbours.
#[derive(Debug)]
pub(crate) struct Neighbours {
    all: Vec<Neighbour>,
    by_ip: HashMap<IpAddr, u32>,
    /// Those that are asked for.
    pending: Vec<u32>,
    next_at: u64,
}

/// A neighbour that answered, or did not.
#[derive(Debug)]
pub(crate) struct Change {
    pub found: bool,
    pub waiting: Vec<u32>,
}

/// The next hop to `ip`.
pub(crate) fn next_hop(config: &Config, ip: IpAddr) -> Option<IpAddr> {
    let mut own =
        config.networks.iter().filter(|network| network.address.is_ipv4() == ip.is_ipv4()).peekable();
    if own.peek().is_none() || own.any(|network| network.contains(ip)) {
        return Some(ip);
    }
    config.gateways.iter().find(|gateway| gateway.is_ipv4() == ip.is_ipv4()).copied()
}

impl Neighbours {
    pub fn new() -> Self {
        Self { all: Vec::new(), by_ip: HashMap::new(), pending: Vec::new(), next_at: u64::MAX }
    }

    /// The number of a neighbour; `None`: there are too many.
    pub fn number(&mut self, ip: IpAddr) -> Option<u32> {
        if let Some(number) = self.by_ip.get(&ip) {
            return Some(*number);
        }
        if self.all.len() >= MOST {
            return None;
        }
        let number = self.all.len() as u32;
        let (reach, waiting) = (Reach::Unknown, Vec::new());
        self.all.push(Neighbour { ip, reach, asked: 0, ask_at: 0, confirmed: 0, pending: false, waiting });
        self.by_ip.insert(ip, number);
        Some(number)
    }

    /// Whether nobody answered when it was asked for last.
    pub fn is_silent(&self, number: u32) -> bool {
        self.all.get(number as usize).is_some_and(|neighbour| neighbour.reach == Reach::Silent)
    }

    /// Its address, if it is known; else it is asked for, and `who` waits.
    pub fn reach(&mut self, number: u32, who: Option<u32>, now: u64) -> Reach {
        let Some(neighbour) = self.all.get_mut(number as usize) else { return Reach::Silent };
        let known = matches!(neighbour.reach, Reach::Known(_));
        if known && now.saturating_sub(neighbour.confirmed) <= FRESH {
            return neighbour.reach;
        }
        if !neighbour.pending {
            (neighbour.pending, neighbour.asked, neighbour.ask_at) = (true, 0, now);
            if !known {
                neighbour.reach = Reach::Unknown;
            }
            self.pending.push(number);
            self.next_at = self.next_at.min(now);
        }
        let reach = neighbour.reach;
        if !known && let Some(who) = who.filter(|who| !neighbour.waiting.contains(who)) {
            neighbour.waiting.push(who);
        }
        reach
    }

    /// A neighbour said its address. It is believed of those that are known here only.
    fn learn(&mut self, ip: IpAddr, mac: Mac, now: u64) -> Option<Change> {
        let number = *self.by_ip.get(&ip)?;
        let neighbour = self.all.get_mut(number as usize)?;
        neighbour.reach = Reach::Known(mac);
        neighbour.confirmed = now;
        if std::mem::take(&mut neighbour.pending) {
            self.pending.retain(|pending| *pending != number);
            if self.pending.is_empty() {
                self.next_at = u64::MAX;
            }
        }
        Some(Change { found: true, waiting: std::mem::take(&mut neighbour.waiting) })
    }

    /// An ARP message came. What it says of its sender, and the answer if it asks for an address that `owns` says is ours.
    pub fn arp(
        &mut self,
        arp: &Arp,
        mac: Mac,
        owns: impl Fn(IpAddr) -> bool,
        now: u64,
    ) -> (Option<Change>, Option<Arp>) {
        let change = self.learn(arp.sender.into(), arp.sender_mac, now);
        let asks = arp.operation == Operation::Request && arp.sender != arp.target;
        (change, (asks && owns(arp.target.into())).then(|| arp.answer(mac)))
    }

    /// The same of neighbour discovery.
    pub fn nd(
        &mut self,
        nd: &Nd,
        mac: Mac,
        owns: impl Fn(IpAddr) -> bool,
        now: u64,
    ) -> (Option<Change>, Option<Nd>) {
        let solicits = nd.operation == nd::Operation::Solicitation;
        let said = if solicits { nd.source } else { nd.target };
        let change = nd.mac.and_then(|mac| self.learn(said.into(), mac, now));
        (change, (solicits && owns(nd.target.into())).then(|| nd.answer(mac)))
    }

    /// When the next question is due.
    pub fn next_at(&self) -> u64 {
        self.next_at
    }

    /// Ask what is due: `ask` gets each address. Gives those who waited for a neighbour that did not answer.
    pub fn advance(&mut self, now: u64, mut ask: impl FnMut(IpAddr)) -> Option<Change> {
        if now < self.next_at {
            return None;
        }
        let mut given_up = Vec::new();
        let all = &mut self.all;
        self.pending.retain(|number| {
            let Some(neighbour) = all.get_mut(*number as usize) else { return false };
            if neighbour.ask_at > now {
                return true;
            }
            if neighbour.asked >= QUESTIONS {
                neighbour.reach = Reach::Silent;
                neighbour.pending = false;
                given_up.append(&mut neighbour.waiting);
                return false;
            }
            neighbour.asked += 1;
            neighbour.ask_at = now + if neighbour.asked == 1 { FIRST } else { AGAIN };
            ask(neighbour.ip);
            true
        });
        let due = self.pending.iter().filter_map(|number| all.get(*number as usize)).map(|one| one.ask_at);
        self.next_at = due.min().unwrap_or(u64::MAX);
        (!given_up.is_empty()).then_some(Change { found: false, waiting: given_up })
    }
}

/// Our address towards `ip`: the first of its family.
pub(crate) fn own_v4(config: &Config) -> Option<Ipv4Addr> {
    config.addresses.iter().find_map(|ip| if let IpAddr::V4(ip) = ip { Some(*ip) } else { None })
}

/// The same of IPv6.
pub(crate) fn own_v6(config: &Config) -> Option<Ipv6Addr> {
    config.addresses.iter().find_map(|ip| if let IpAddr::V6(ip) = ip { Some(*ip) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;

    const IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
    const MAC: Mac = [2, 0, 0, 0, 0, 2];

    #[test]
    fn who_does_not_answer_is_silent_after_four_questions() {
        let mut all = Neighbours::new();
        let number = all.number(IP).expect("room");
        assert_eq!(all.reach(number, Some(7), 0), Reach::Unknown);
        let (mut now, mut asked, mut change) = (0, Vec::new(), None);
        while change.is_none() {
            now = all.next_at();
            change = all.advance(now, |ip| asked.push((now / MS, ip)));
        }
        assert_eq!(asked, [(0, IP), (100, IP), (1_100, IP), (2_100, IP)]);
        let change = change.expect("given up");
        assert_eq!((change.found, change.waiting), (false, vec![7]));
        assert_eq!((now, all.next_at()), (3_100 * MS, u64::MAX));
        assert_eq!(all.reach(number, Some(7), now), Reach::Unknown, "it is asked again");
    }

    #[test]
    fn an_address_is_learnt_and_refreshed_while_it_is_used() {
        let mut all = Neighbours::new();
        let number = all.number(IP).expect("room");
        all.reach(number, Some(3), 0);
        all.advance(0, |_| ());
        let reply = Arp {
            operation: Operation::Reply,
            sender_mac: MAC,
            sender: Ipv4Addr::new(10, 0, 0, 2),
            target_mac: [2; 6],
            target: Ipv4Addr::new(10, 0, 0, 1),
        };
        let (change, answer) = all.arp(&reply, [2; 6], |_| true, 1);
        assert_eq!((change.map(|change| change.waiting), answer), (Some(vec![3]), None));
        assert_eq!(all.reach(number, Some(3), FRESH), Reach::Known(MAC));
        assert_eq!(all.next_at(), u64::MAX);
        // stale: it is asked again, and used meanwhile
        assert_eq!(all.reach(number, Some(3), FRESH + 2), Reach::Known(MAC));
        assert_eq!(all.next_at(), FRESH + 2);
    }

    #[test]
    fn nobody_is_learnt_who_was_not_asked_for() {
        let mut all = Neighbours::new();
        let spoof = Arp::request(MAC, Ipv4Addr::new(10, 0, 0, 9), Ipv4Addr::new(10, 0, 0, 1));
        let (change, answer) = all.arp(&spoof, [2; 6], |_| true, 0);
        assert!(change.is_none() && answer.is_some() && all.all.is_empty());
        assert_eq!(all.arp(&spoof, [2; 6], |_| false, 0).1, None, "not ours");
    }
}
