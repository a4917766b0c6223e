//! Neighbours: Ethernet addresses of the hosts and routers on the link (RFC 826, RFC 4861).

use crate::config::{Config, MS, SECOND};
use packet::Mac;
use packet::arp::{Arp, Operation};
use packet::nd::{self, Nd};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// From one question to the next (RFC 4861 section 10: RETRANS_TIMER).
const AGAIN: u64 = SECOND;
/// The first is repeated sooner: it is often lost while a link comes up.
const FIRST: u64 = 100 * MS;
/// Questions without an answer until a neighbour counts as unreachable.
const QUESTIONS: u8 = 4;
/// How long an address holds without having been heard (REACHABLE_TIME).
const FRESH: u64 = 30 * SECOND;
/// Most neighbours: a new one then takes the place of one that nobody uses.
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
    /// Until when its address holds without being asked for again.
    fresh_until: u64,
    pending: bool,
    /// Connections and sockets that wait for its address.
    waiting: Vec<u32>,
    /// How many connections and sockets have its number.
    held: u32,
    /// Whether it was asked for its address since its place was last looked at.
    used: bool,
    /// Its place among those that nobody has and that are not asked for.
    idle: Option<(bool, u64)>,
}

/// All neighbours.
#[derive(Debug)]
pub(crate) struct Neighbours {
    all: Vec<Neighbour>,
    by_ip: HashMap<IpAddr, u32>,
    /// Those that are asked for.
    pending: Vec<u32>,
    /// Those that may go, by place: who did not answer goes first, and then who has been idle longest.
    idle: BTreeMap<(bool, u64), u32>,
    /// Number of the next place.
    place: u64,
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
        Self {
            all: Vec::new(),
            by_ip: HashMap::new(),
            pending: Vec::new(),
            idle: BTreeMap::new(),
            place: 0,
            next_at: u64::MAX,
        }
    }

    /// The number of a neighbour, which is its own while it is asked for or [held](Self::hold), and may be another's after
    /// that. `None`: too many are in use.
    pub fn number(&mut self, ip: IpAddr) -> Option<u32> {
        if let Some(number) = self.by_ip.get(&ip) {
            return Some(*number);
        }
        let neighbour = Neighbour {
            ip,
            reach: Reach::Unknown,
            asked: 0,
            ask_at: 0,
            fresh_until: 0,
            pending: false,
            waiting: Vec::new(),
            held: 0,
            used: false,
            idle: None,
        };
        let number = if self.all.len() < MOST {
            self.all.push(neighbour);
            self.all.len() as u32 - 1
        } else {
            let number = self.make_room()?;
            let old = std::mem::replace(self.all.get_mut(number as usize)?, neighbour);
            self.by_ip.remove(&old.ip);
            number
        };
        self.by_ip.insert(ip, number);
        self.refresh_place(number);
        Some(number)
    }

    /// The number of one that may go.
    fn make_room(&mut self) -> Option<u32> {
        loop {
            let (_, number) = self.idle.pop_first()?;
            let neighbour = self.all.get_mut(number as usize)?;
            neighbour.idle = None;
            let serves = std::mem::take(&mut neighbour.used) && matches!(neighbour.reach, Reach::Known(_));
            if !serves {
                return Some(number);
            }
            self.refresh_place(number);
        }
    }

    /// The same of one that a connection or socket has from now on, until it is [released](Self::release).
    pub fn hold(&mut self, ip: IpAddr) -> Option<u32> {
        let number = self.number(ip)?;
        self.all.get_mut(number as usize)?.held += 1;
        self.refresh_place(number);
        Some(number)
    }

    /// One has it no more.
    pub fn release(&mut self, number: u32) {
        if let Some(neighbour) = self.all.get_mut(number as usize) {
            neighbour.held -= 1;
            self.refresh_place(number);
        }
    }

    /// Whether it may go has changed, or what is known of it.
    fn refresh_place(&mut self, number: u32) {
        let Some(neighbour) = self.all.get_mut(number as usize) else { return };
        if let Some(place) = neighbour.idle.take() {
            self.idle.remove(&place);
        }
        if neighbour.held == 0 && !neighbour.pending {
            let place = (matches!(neighbour.reach, Reach::Known(_)), self.place);
            self.place += 1;
            neighbour.idle = Some(place);
            self.idle.insert(place, number);
        }
    }

    /// Whether nobody answered when it was asked for last.
    pub fn is_silent(&self, number: u32) -> bool {
        self.all.get(number as usize).is_some_and(|neighbour| neighbour.reach == Reach::Silent)
    }

    /// Its address, if it is known; else it is asked for, and `who` waits.
    pub fn reach(&mut self, number: u32, who: Option<u32>, now: u64) -> Reach {
        let Some(neighbour) = self.all.get_mut(number as usize) else { return Reach::Silent };
        let known = matches!(neighbour.reach, Reach::Known(_));
        neighbour.used = true;
        if known && now < neighbour.fresh_until {
            return neighbour.reach;
        }
        let begins = !neighbour.pending;
        if begins {
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
        if begins {
            self.refresh_place(number);
        }
        reach
    }

    /// A neighbour said its address. It is believed of those that are known here only.
    fn learn(&mut self, ip: IpAddr, mac: Mac, now: u64) -> Option<Change> {
        self.know(ip, Some(mac), true, now)
    }

    /// A neighbour's address is known, another one or, with `None`, the same as before; whether it holds for a time (`fresh`), or is
    /// asked for again when it is used.
    fn know(&mut self, ip: IpAddr, mac: Option<Mac>, fresh: bool, now: u64) -> Option<Change> {
        let number = *self.by_ip.get(&ip)?;
        let neighbour = self.all.get_mut(number as usize)?;
        if let Some(mac) = mac {
            neighbour.reach = Reach::Known(mac);
        }
        neighbour.fresh_until = if fresh { now + FRESH + 1 } else { 0 };
        if std::mem::take(&mut neighbour.pending) {
            self.pending.retain(|pending| *pending != number);
            if self.pending.is_empty() {
                self.next_at = u64::MAX;
            }
        }
        let waiting = std::mem::take(&mut neighbour.waiting);
        self.refresh_place(number);
        Some(Change { found: true, waiting })
    }

    /// A neighbour advertised its address (RFC 4861 section 7.2.5): one that does not override says nothing against what is known.
    fn advertised(
        &mut self,
        ip: IpAddr,
        mac: Option<Mac>,
        (solicited, overrides): (bool, bool),
        now: u64,
    ) -> Option<Change> {
        let neighbour = self.all.get_mut(*self.by_ip.get(&ip)? as usize)?;
        let Reach::Known(known) = neighbour.reach else {
            return mac.and_then(|mac| self.know(ip, Some(mac), solicited, now));
        };
        let differs = mac.is_some_and(|mac| mac != known);
        if differs && !overrides {
            // it is asked for again, and stays what it is meanwhile
            neighbour.fresh_until = 0;
            return None;
        }
        if !solicited && !differs {
            return None;
        }
        self.know(ip, mac, solicited, now)
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
        let change = match nd.operation {
            nd::Operation::Solicitation => nd.mac.and_then(|mac| self.learn(nd.source.into(), mac, now)),
            nd::Operation::Advertisement { solicited, overrides } => {
                self.advertised(nd.target.into(), nd.mac, (solicited, overrides), now)
            }
        };
        let solicits = nd.operation == nd::Operation::Solicitation;
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
        let (mut given_up, mut silent) = (Vec::new(), Vec::new());
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
                silent.push(*number);
                return false;
            }
            neighbour.asked += 1;
            neighbour.ask_at = now + if neighbour.asked == 1 { FIRST } else { AGAIN };
            ask(neighbour.ip);
            true
        });
        let due = self.pending.iter().filter_map(|number| all.get(*number as usize)).map(|one| one.ask_at);
        self.next_at = due.min().unwrap_or(u64::MAX);
        silent.into_iter().for_each(|number| self.refresh_place(number));
        (!given_up.is_empty()).then_some(Change { found: false, waiting: given_up })
    }
}

/// Our address that is asked with for the neighbour `ip`: that whose network holds it, the narrowest first, else the first of its
/// family.
pub(crate) fn own(config: &Config, ip: IpAddr) -> Option<IpAddr> {
    let near = config.networks.iter().filter(|network| network.contains(ip));
    let near = near.max_by_key(|network| network.prefix).map(|network| network.address);
    near.or_else(|| config.addresses.iter().find(|own| own.is_ipv4() == ip.is_ipv4()).copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

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
        assert_eq!(all.reach(number, Some(3), 30 * SECOND + 1), Reach::Known(MAC));
        assert_eq!(all.next_at(), u64::MAX);
        // stale: it is asked again, and used meanwhile
        assert_eq!(all.reach(number, Some(3), 30 * SECOND + 2), Reach::Known(MAC));
        assert_eq!(all.next_at(), 30 * SECOND + 2);
    }

    #[test]
    fn nobody_is_learnt_who_was_not_asked_for() {
        let mut all = Neighbours::new();
        let spoof = Arp::request(MAC, Ipv4Addr::new(10, 0, 0, 9), Ipv4Addr::new(10, 0, 0, 1));
        let (change, answer) = all.arp(&spoof, [2; 6], |_| true, 0);
        assert!(change.is_none() && answer.is_some() && all.all.is_empty());
        assert_eq!(all.arp(&spoof, [2; 6], |_| false, 0).1, None, "not ours");
    }

    /// RFC 4861 section 7.2.5.
    #[test]
    fn an_advertisement_overrides_what_is_known_only_if_it_says_so() {
        let (v6, other): (_, Mac) = (std::net::Ipv6Addr::from([0xfd; 16]), [2, 0, 0, 0, 0, 9]);
        let mut all = Neighbours::new();
        let number = all.number(v6.into()).expect("room");
        let said = |all: &mut Neighbours, mac: Option<Mac>, solicited, overrides, now| {
            let operation = nd::Operation::Advertisement { solicited, overrides };
            let link = (MAC, [2; 6]);
            let message = Nd { operation, link, source: v6, destination: v6, target: v6, mac };
            all.nd(&message, [2; 6], |_| true, now).0.is_some()
        };
        all.reach(number, None, 0);
        assert!(!said(&mut all, None, true, true, 0), "no address yet, and none is said");
        assert!(said(&mut all, Some(MAC), true, false, 0), "the first needs no override");
        assert!(!said(&mut all, Some(other), false, false, 1));
        assert_eq!(all.next_at(), u64::MAX);
        assert_eq!(all.reach(number, None, 1), Reach::Known(MAC), "it is asked for again");
        assert_eq!(all.next_at(), 1);
        assert!(!said(&mut all, Some(other), true, false, 1));
        assert_eq!((all.reach(number, None, 1), all.next_at()), (Reach::Known(MAC), 1), "and again");
        assert!(said(&mut all, None, true, false, 1), "the same is still there");
        assert_eq!((all.reach(number, None, 30 * SECOND), all.next_at()), (Reach::Known(MAC), u64::MAX));
        assert!(said(&mut all, Some(other), true, true, 2));
        assert_eq!((all.reach(number, None, 30 * SECOND), all.next_at()), (Reach::Known(other), u64::MAX));
        assert!(said(&mut all, Some(MAC), false, true, 3), "unsolicited: it is asked whether that is so");
        assert_eq!((all.reach(number, None, 3), all.next_at()), (Reach::Known(MAC), 3));
    }

    fn other(n: usize) -> IpAddr {
        Ipv4Addr::from_bits(0x0b00_0000 + n as u32).into()
    }

    /// As many as there may be, none of which answers.
    fn fill(all: &mut Neighbours, now: &mut u64, from: usize, to: usize) {
        for n in from..to {
            let number = all.number(other(n)).expect("room");
            all.reach(number, None, *now);
        }
        while all.next_at() < u64::MAX {
            *now = all.next_at();
            all.advance(*now, |_| ());
        }
    }

    #[test]
    fn there_is_room_for_a_new_neighbour_whoever_came_before() {
        let (mut all, mut now) = (Neighbours::new(), 0);
        fill(&mut all, &mut now, 0, MOST);
        assert_eq!((all.all.len(), all.by_ip.len()), (MOST, MOST));
        let number = all.number(IP).expect("the oldest that did not answer has gone");
        assert_eq!((number, all.all.len(), all.by_ip.len()), (0, MOST, MOST));
        assert_eq!(all.reach(number, Some(7), now), Reach::Unknown, "it is asked for");
        assert_eq!(all.number(other(1)), Some(1), "the others are still there");
        fill(&mut all, &mut now, MOST, 2 * MOST - 1);
        assert_eq!(all.by_ip.len(), MOST);
    }

    #[test]
    fn many_addresses_do_not_drive_out_who_is_in_use() {
        let (mut all, mut now) = (Neighbours::new(), 0);
        // one that a connection has, one that answered and that datagrams go to, and one that is being asked for
        let held = all.hold(other(0)).expect("room");
        let served = all.number(IP).expect("room");
        all.learn(IP, MAC, now);
        fill(&mut all, &mut now, 1, MOST - 1);
        for n in 0..3 * MOST {
            assert!(all.number(other(MOST + n)).is_some());
            if n % 1000 == 0 {
                all.learn(IP, MAC, now);
                assert_eq!(all.reach(served, None, now), Reach::Known(MAC));
            }
        }
        assert_eq!((all.number(other(0)), all.number(IP)), (Some(held), Some(served)));
        let asked = all.number(other(5 * MOST)).expect("room");
        all.reach(asked, Some(9), now);
        for n in 0..2 * MOST {
            all.number(other(6 * MOST + n)).expect("room");
        }
        assert_eq!(all.number(other(5 * MOST)), Some(asked));
        // nobody has it any more: it goes
        all.release(held);
        for n in 0..2 * MOST {
            all.number(other(8 * MOST + n)).expect("room");
        }
        assert!(!all.by_ip.contains_key(&other(0)));
    }

    #[test]
    fn who_answered_and_is_used_outlasts_who_answered_once() {
        let mut all = Neighbours::new();
        let served = all.number(IP).expect("room");
        all.learn(IP, MAC, 0);
        for n in 1..MOST {
            all.number(other(n)).expect("room");
            all.learn(other(n), MAC, 0);
        }
        for n in 0..2 * MOST {
            all.reach(served, None, 0);
            all.number(other(MOST + n)).expect("room");
            all.learn(other(MOST + n), MAC, 0);
        }
        assert_eq!(all.number(IP), Some(served));
    }

    #[test]
    fn there_is_none_where_all_are_in_use() {
        let mut all = Neighbours::new();
        for n in 0..MOST {
            all.hold(other(n)).expect("room");
        }
        assert_eq!(all.number(IP), None);
        all.release(5);
        assert_eq!(all.number(IP), Some(5));
    }
}
