//! Subscribers on the inside link that have not sent anything yet: asked for by ARP, within limits.

use crate::link;
use nat_core::Mac;
use nat_core::config::{Prefix, SECOND};
use nat_core::neighbours::{Host, is_of_one};
use packet::arp::Arp;
use packet::ethernet::Tags;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Hosts that are asked for at a time, and time between two requests, whomever they are for, ns.
const MOST: usize = 1_024;
const GAP: u64 = SECOND / 250;
/// Requests for a host, and time between two of them, ns (RFC 1122 section 2.3.2.1: one a second at most).
const TRIES: u8 = 3;
const PAUSE: u64 = SECOND;
/// Questions, and answers, under way between two elements.
const UNDER_WAY: usize = 1_024;
/// Hosts that were found, and may move.
const FOUND: usize = 16_384;
/// Hosts that wait for one router.
const BEHIND: usize = 256;

/// A network behind a router.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// The network.
    pub to: Prefix,
    /// The router, on the link.
    pub via: u32,
}

/// Somebody wants to know where a host is.
#[derive(Debug)]
pub struct Query {
    /// Which.
    pub host: Host,
    /// Who wants to know.
    pub asker: usize,
    /// The way back.
    pub reply: SyncSender<Answer>,
}

/// Where a host is; nowhere, if it did not answer or cannot be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Which.
    pub host: Host,
    /// Its Ethernet address.
    pub mac: Option<Mac>,
}

/// The way to who asks by ARP, if there is somebody.
#[derive(Debug)]
pub struct ResolverChannel {
    wanted: Arc<AtomicBool>,
    ask: SyncSender<Query>,
    asked: Option<Receiver<Query>>,
    askers: usize,
}

impl ResolverChannel {
    /// Nobody asks yet.
    pub fn new() -> Self {
        let (ask, asked) = sync_channel(UNDER_WAY);
        Self { wanted: Arc::default(), ask, asked: Some(asked), askers: 0 }
    }

    /// For who wants to know.
    pub fn client(&mut self) -> ResolverClient {
        let ((reply, answers), asker) = (sync_channel(UNDER_WAY), self.askers);
        self.askers += 1;
        ResolverClient { wanted: Arc::clone(&self.wanted), ask: self.ask.clone(), asker, reply, answers }
    }

    /// For who asks by ARP, once.
    pub fn end(&mut self) -> Option<Receiver<Query>> {
        self.wanted.store(true, Ordering::Relaxed);
        self.asked.take()
    }
}

/// Has hosts asked for.
#[derive(Debug)]
pub struct ResolverClient {
    wanted: Arc<AtomicBool>,
    ask: SyncSender<Query>,
    asker: usize,
    reply: SyncSender<Answer>,
    answers: Receiver<Answer>,
}

impl ResolverClient {
    /// Have a host asked for. `false`: nobody asks, or there is too much to ask.
    pub fn ask(&self, host: Host) -> bool {
        let query = Query { host, asker: self.asker, reply: self.reply.clone() };
        self.wanted.load(Ordering::Relaxed) && self.ask.try_send(query).is_ok()
    }

    /// The next answer. Of a host that was found there is another one when it moves.
    pub fn answer(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}

/// Who wants to know of a host: a bit for each, as a graph has 32 replicas of an element at most.
#[derive(Debug, Default, Clone, Copy)]
struct RequesterMask(u32);

impl RequesterMask {
    fn with(self, asker: usize) -> Self {
        Self(self.0 | u32::try_from(asker).ok().and_then(|at| 1u32.checked_shl(at)).unwrap_or_default())
    }

    fn numbers(self) -> impl Iterator<Item = usize> {
        (0..u32::BITS as usize).filter(move |at| self.0 >> at & 1 == 1)
    }
}

#[derive(Debug)]
struct Pending {
    tries: u8,
    /// When it is asked again, or given up.
    due: u64,
    askers: RequesterMask,
}

/// A host that was found, and who wanted to know.
#[derive(Debug)]
struct ResolvedHost {
    mac: Mac,
    askers: RequesterMask,
}

/// Asks for hosts of one link, and hears when one that was found moves.
#[derive(Debug)]
pub struct Resolver {
    on_link: Vec<Prefix>,
    /// The longest prefixes first.
    routes: Vec<Route>,
    /// Hosts that wait for routers, by router; and where these were found.
    behind: HashMap<Host, Vec<(Host, RequesterMask)>>,
    routers: HashMap<Host, Mac>,
    /// Who asks.
    own: Mac,
    replies: Vec<Option<SyncSender<Answer>>>,
    pending: HashMap<Host, Pending>,
    /// Those that were not asked for yet; those that were, with when they are asked again; and those that are not any more, with when
    /// they are given up.
    fresh: VecDeque<Host>,
    again: VecDeque<(u64, Host)>,
    last: VecDeque<(u64, Host)>,
    /// When the next request may be sent.
    free: u64,
    /// Those that were found, and in which order: the first makes room.
    found: HashMap<Host, ResolvedHost>,
    order: VecDeque<Host>,
}

impl Resolver {
    /// For the hosts of these prefixes, by who has this Ethernet address.
    pub fn new(on_link: Vec<Prefix>, own: Mac) -> Self {
        Self {
            on_link,
            routes: Vec::new(),
            behind: HashMap::new(),
            routers: HashMap::new(),
            own,
            replies: Vec::new(),
            pending: HashMap::with_capacity(MOST),
            fresh: VecDeque::with_capacity(MOST),
            again: VecDeque::with_capacity(MOST),
            last: VecDeque::with_capacity(MOST),
            free: 0,
            found: HashMap::with_capacity(FOUND),
            order: VecDeque::with_capacity(FOUND),
        }
    }

    /// Hosts of these networks are reached by routers.
    pub fn with_routes(mut self, mut routes: Vec<Route>) -> Self {
        routes.sort_by_key(|route| std::cmp::Reverse(route.to.bits));
        self.routes = routes;
        self
    }

    /// Whom to ask for: a host on the link itself, or the router that leads to it, in the same VLAN.
    fn next_hop(&self, host: Host) -> Option<Host> {
        if self.on_link.iter().any(|prefix| prefix.has(host.0)) {
            return Some(host);
        }
        self.routes.iter().find(|route| route.to.has(host.0)).map(|route| (route.via, host.1))
    }

    /// Ask for a host, unless it is asked for already. Who is not on the link, nor behind a router there, and who is one too many, is
    /// nowhere.
    pub fn ask(&mut self, Query { host, asker, reply }: Query) {
        let room = self.pending.len() < MOST;
        let next_hop = self.next_hop(host).filter(|hop| room || self.pending.contains_key(hop));
        if !next_hop.is_some_and(|next_hop| self.wait_for(next_hop, host, asker)) {
            let _it_asks_again = reply.try_send(Answer { host, mac: None });
            return;
        }
        if self.replies.len() <= asker {
            self.replies.resize(asker + 1, None);
        }
        self.replies[asker] = Some(reply);
    }

    /// Let somebody wait for a host's next hop. `false`: too many wait for it.
    fn wait_for(&mut self, next_hop: Host, host: Host, asker: usize) -> bool {
        if next_hop != host {
            let behind = self.behind.entry(next_hop).or_default();
            let room = behind.len() < BEHIND;
            match behind.iter_mut().find(|(waiting, _)| *waiting == host) {
                Some((_, askers)) => *askers = askers.with(asker),
                None if !room => return false,
                None => behind.push((host, RequesterMask::default().with(asker))),
            }
        }
        let pending = self.pending.entry(next_hop).or_insert_with(|| {
            self.fresh.push_back(next_hop);
            Pending { tries: 0, due: 0, askers: RequesterMask::default() }
        });
        if next_hop == host {
            pending.askers = pending.askers.with(asker);
        }
        true
    }

    /// Whom to send a request for now: who was not asked for yet comes first, so that one who is there does not wait for many who are
    /// not. Who answered none is given up.
    pub fn next(&mut self, now: u64) -> Option<Host> {
        if now < self.free {
            return None;
        }
        while let Some(host) = pop_due(&mut self.last, &self.pending, now) {
            self.end(host, None);
        }
        while let Some(host) = self.fresh.pop_front() {
            if self.pending.get(&host).is_some_and(|pending| pending.tries == 0) {
                return self.request(host, now);
            }
        }
        let host = pop_due(&mut self.again, &self.pending, now)?;
        self.request(host, now)
    }

    fn request(&mut self, host: Host, now: u64) -> Option<Host> {
        let pending = self.pending.get_mut(&host)?;
        (pending.tries, pending.due) = (pending.tries + 1, now + PAUSE);
        let queue = if pending.tries < TRIES { &mut self.again } else { &mut self.last };
        queue.push_back((pending.due, host));
        self.free = now + GAP;
        Some(host)
    }

    /// Whether a frame says where a host is that is asked for, or that one which was found has moved. The address of a group is nobody's
    /// (RFC 1812 section 3.3.2). A host speaks for itself: it is bound to the Ethernet address that it sends from.
    pub fn learn(&mut self, frame: &[u8]) -> bool {
        let Some(arp) = Arp::parse(frame).filter(|arp| is_of_one(arp.sender_mac)) else { return false };
        if arp.sender_mac == self.own || frame.get(6..12) != Some(&arp.sender_mac) {
            return false;
        }
        let host = (arp.sender.to_bits(), link::realm(&Tags::of(frame)));
        if self.pending.contains_key(&host) {
            self.end(host, Some(arp.sender_mac));
            return true;
        }
        let router = self.moved_router(host, arp.sender_mac);
        self.has_moved(host, arp.sender_mac) || router
    }

    /// Whether a router was found elsewhere before: then all that it leads to have moved.
    fn moved_router(&mut self, router: Host, mac: Mac) -> bool {
        if self.routers.get(&router).is_none_or(|before| *before == mac) {
            return false;
        }
        let behind: Vec<Host> =
            self.found.keys().filter(|host| self.next_hop(**host) == Some(router)).copied().collect();
        behind.into_iter().for_each(|host| {
            self.has_moved(host, mac);
        });
        self.routers.insert(router, mac);
        true
    }

    /// Whether a host was found elsewhere before.
    fn has_moved(&mut self, host: Host, mac: Mac) -> bool {
        let Some(ResolvedHost { mac: before, askers }) =
            self.found.get_mut(&host).filter(|there| there.mac != mac)
        else {
            return false;
        };
        let askers = *askers;
        // Who has no room for the answer now hears of it by the next announcement.
        if answer(&self.replies, askers, Answer { host, mac: Some(mac) }) {
            *before = mac;
        }
        true
    }

    fn end(&mut self, host: Host, mac: Option<Mac>) {
        let Some(Pending { askers, .. }) = self.pending.remove(&host) else { return };
        let _it_asks_again = answer(&self.replies, askers, Answer { host, mac });
        if let Some(mac) = mac.filter(|_| askers.numbers().next().is_some()) {
            self.keep(host, ResolvedHost { mac, askers });
        }
        let Some(behind) = self.behind.remove(&host) else { return };
        if let Some(mac) = mac.filter(|_| self.routers.len() < FOUND) {
            self.routers.insert(host, mac);
        }
        for (host, askers) in behind {
            let _it_asks_again = answer(&self.replies, askers, Answer { host, mac });
            if let Some(mac) = mac {
                self.keep(host, ResolvedHost { mac, askers });
            }
        }
    }

    fn keep(&mut self, host: Host, mut located: ResolvedHost) {
        if let Some(before) = self.found.get_mut(&host) {
            located.askers.0 |= before.askers.0;
            *before = located;
            return;
        }
        if self.found.len() >= FOUND
            && let Some(first) = self.order.pop_front()
        {
            self.found.remove(&first);
        }
        self.order.push_back(host);
        self.found.insert(host, located);
    }
}

/// The next of a queue that is due.
fn pop_due(queue: &mut VecDeque<(u64, Host)>, pending: &HashMap<Host, Pending>, now: u64) -> Option<Host> {
    while let Some((due, host)) = queue.front().copied().filter(|(due, _)| *due <= now) {
        queue.pop_front();
        // It may have answered, and be asked for anew.
        if pending.get(&host).is_some_and(|pending| pending.due == due) {
            return Some(host);
        }
    }
    None
}

/// Answer all who wanted to know; whether all have room for it.
fn answer(replies: &[Option<SyncSender<Answer>>], askers: RequesterMask, answer: Answer) -> bool {
    let mut all = true;
    for reply in askers.numbers().filter_map(|at| replies.get(at)?.as_ref()) {
        all &= reply.try_send(answer).is_ok();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::net::Ipv4Addr;

    const BOX: (Mac, Ipv4Addr) = ([2, 0, 0, 0, 9, 3], Ipv4Addr::new(10, 0, 0, 254));
    const MAC: Mac = [2, 0, 0, 0, 0, 1];
    const HOST: Host = (0x0a00_0001, 7 << 12);

    fn made() -> (Resolver, ResolverClient, Receiver<Query>) {
        let resolver = Resolver::new(vec![Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 24)], BOX.0);
        let mut channel = ResolverChannel::new();
        let client = channel.client();
        assert!(!client.ask(HOST), "nobody asks yet");
        (resolver, client, channel.end().unwrap())
    }

    /// When requests were sent, ms, in so many seconds.
    fn requests(resolver: &mut Resolver, seconds: u64) -> Vec<(u64, Host)> {
        let times = (0..seconds * 1_000).map(|ms| (ms, resolver.next(ms * SECOND / 1_000)));
        times.filter_map(|(ms, host)| Some((ms, host?))).collect()
    }

    fn answer(host: Host, mac: Mac) -> Vec<u8> {
        let question = Arp::request(BOX.0, BOX.1, Ipv4Addr::from_bits(host.0));
        let mut frame = vec![0; 64];
        let len = question.answer(mac).emit_tagged(&mut frame, &link::tags(host.1)).unwrap();
        frame.truncate(len);
        frame
    }

    #[test]
    fn a_host_is_asked_for_three_times_and_then_is_nowhere() {
        let (mut resolver, client, asked) = made();
        assert!(client.ask(HOST) && client.ask(HOST));
        asked.try_iter().for_each(|query| resolver.ask(query));
        assert_eq!(requests(&mut resolver, 10), [0, 1_000, 2_000].map(|ms| (ms, HOST)));
        assert_eq!((client.answer(), client.answer()), (Some(Answer { host: HOST, mac: None }), None));
        assert!(!resolver.learn(&answer(HOST, MAC)), "it was not asked for any more");
    }

    #[test]
    fn who_answers_is_there_in_its_vlan_and_at_an_address_of_one() {
        let (mut resolver, client, asked) = made();
        assert!(client.ask(HOST));
        asked.try_iter().for_each(|query| resolver.ask(query));
        assert_eq!(resolver.next(0), Some(HOST));
        for (host, mac) in [((HOST.0, 0), MAC), ((HOST.0, 8 << 12), MAC), (HOST, [0xff; 6]), (HOST, [1; 6])] {
            assert!(!resolver.learn(&answer(host, mac)), "{host:?} {mac:?}");
        }
        assert!(resolver.learn(&answer(HOST, MAC)));
        assert_eq!(client.answer(), Some(Answer { host: HOST, mac: Some(MAC) }));
        assert_eq!(requests(&mut resolver, 10), []);
    }

    #[test]
    fn requests_are_limited_however_many_are_wanted() {
        let (mut resolver, client, asked) = made();
        // Off the link.
        assert!(client.ask((0x0a00_0101, 0)));
        asked.try_iter().for_each(|query| resolver.ask(query));
        assert_eq!(client.answer(), Some(Answer { host: (0x0a00_0101, 0), mac: None }));
        for realm in 0..=MOST as u32 {
            resolver.ask(Query { host: (HOST.0, realm), asker: 0, reply: client.reply.clone() });
        }
        assert_eq!(client.answer().map(|answer| answer.host.1), Some(MOST as u32), "one too many");
        let sent = requests(&mut resolver, 30);
        assert!(sent.windows(250).all(|some| some[249].0 - some[0].0 >= 990), "more than 250 a second");
        assert_eq!(sent.len(), usize::from(TRIES) * MOST);
        let first: HashSet<Host> = sent[..MOST].iter().map(|(_, host)| *host).collect();
        assert_eq!(first.len(), MOST, "one is asked for again before another was at all");
        assert!(resolver.pending.is_empty() && resolver.again.is_empty() && resolver.last.is_empty());
    }

    #[test]
    fn all_who_asked_are_answered_and_again_when_the_host_moves() {
        const THERE: Mac = [2, 0, 0, 0, 0, 2];
        let (mut resolver, mut channel) = (made().0, ResolverChannel::new());
        let clients = [channel.client(), channel.client()];
        let asked = channel.end().unwrap();
        assert!(clients.iter().all(|client| client.ask(HOST)));
        asked.try_iter().for_each(|query| resolver.ask(query));
        assert_eq!(requests(&mut resolver, 1), [(0, HOST)]);
        let answers = || clients.each_ref().map(|client| client.answer().and_then(|answer| answer.mac));
        for mac in [MAC, THERE, MAC] {
            assert!(resolver.learn(&answer(HOST, mac)) && !resolver.learn(&answer(HOST, mac)), "{mac:?}");
            assert_eq!((answers(), answers()), ([Some(mac); 2], [None; 2]));
        }
        // An announcement by who has it now; and by others.
        let announced = |mac, source: Mac| {
            let mut frame = vec![0; 64];
            let arp = Arp::announcement(mac, Ipv4Addr::from_bits(HOST.0));
            arp.emit_tagged(&mut frame, &link::tags(HOST.1)).unwrap();
            frame[6..12].copy_from_slice(&source);
            frame
        };
        for (mac, source) in [(THERE, MAC), (BOX.0, BOX.0), ([0xff; 6], [0xff; 6])] {
            assert!(!resolver.learn(&announced(mac, source)), "{mac:?} by {source:?}");
        }
        assert!(resolver.learn(&announced(THERE, THERE)));
        assert_eq!(answers(), [Some(THERE); 2]);
    }

    #[test]
    fn who_is_behind_a_router_is_reached_by_it() {
        const ROUTER: Host = (0x0a00_0001, 7 << 12);
        let (resolver, client, asked) = made();
        let to = Prefix::new(Ipv4Addr::new(100, 64, 0, 0), 16);
        let far = Prefix::new(Ipv4Addr::new(100, 64, 9, 0), 24);
        let routes = vec![Route { to, via: ROUTER.0 }, Route { to: far, via: ROUTER.0 + 1 }];
        let mut resolver = resolver.with_routes(routes);
        let behind = [(0x6440_0001, ROUTER.1), (0x6440_0002, ROUTER.1)];
        let others = [(0x6440_0901, ROUTER.1), (0x6441_0001, ROUTER.1)];
        assert!(behind.iter().chain(&others).chain(&behind).all(|host| client.ask(*host)));
        asked.try_iter().for_each(|query| resolver.ask(query));
        // No route leads there.
        assert_eq!(client.answer(), Some(Answer { host: others[1], mac: None }));
        // One request for all of a router, three in all; the longest prefix decides.
        let sent = requests(&mut resolver, 1);
        assert_eq!(
            sent.iter().map(|(_, host)| *host).collect::<Vec<_>>(),
            [ROUTER, (ROUTER.0 + 1, ROUTER.1)]
        );
        assert!(!resolver.learn(&answer((ROUTER.0, 0), MAC)), "in another VLAN");
        assert!(resolver.learn(&answer(ROUTER, MAC)));
        let answers = || [client.answer(), client.answer(), client.answer()];
        let found = |mac| behind.map(|host| Some(Answer { host, mac: Some(mac) }));
        assert_eq!(answers(), [found(MAC)[0], found(MAC)[1], None]);
        // The router moves, and with it all behind it.
        const THERE: Mac = [2, 0, 0, 0, 0, 2];
        assert!(resolver.learn(&answer(ROUTER, THERE)) && !resolver.learn(&answer(ROUTER, THERE)));
        let mut moved = answers();
        moved.sort_by_key(|answer| answer.map(|answer| answer.host));
        assert_eq!(moved, [None, found(THERE)[0], found(THERE)[1]]);
        assert_eq!(requests(&mut resolver, 10).len(), 2, "two more for the router that is nowhere");
        assert_eq!(client.answer(), Some(Answer { host: others[0], mac: None }));
        assert!(resolver.pending.is_empty() && resolver.behind.is_empty());
    }

    #[test]
    fn who_was_found_long_ago_makes_room() {
        let (mut resolver, client, _asked) = made();
        for realm in 0..=FOUND as u32 {
            resolver.ask(Query { host: (HOST.0, realm), asker: 0, reply: client.reply.clone() });
            assert!(resolver.learn(&answer((HOST.0, realm), MAC)));
            assert!(client.answer().is_some());
        }
        assert_eq!((resolver.found.len(), resolver.order.len()), (FOUND, FOUND));
        assert!(!resolver.found.contains_key(&(HOST.0, 0)));
    }
}
