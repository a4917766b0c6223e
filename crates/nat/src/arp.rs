//! Subscribers on the inside link that have not sent anything yet: asked for by ARP, within limits.

use crate::link;
use crate::neighbours::{Host, is_of_one};
use cgnat::Mac;
use cgnat::config::{Prefix, SECOND};
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

/// Somebody wants to know where a host is.
#[derive(Debug)]
pub struct Query {
    /// Which.
    pub host: Host,
    /// Who wants to know.
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
}

impl ResolverChannel {
    /// Nobody asks yet.
    pub fn new() -> Self {
        let (ask, asked) = sync_channel(UNDER_WAY);
        Self { wanted: Arc::default(), ask, asked: Some(asked) }
    }

    /// For who wants to know.
    pub fn client(&self) -> ResolverClient {
        let (reply, answers) = sync_channel(UNDER_WAY);
        ResolverClient { wanted: Arc::clone(&self.wanted), ask: self.ask.clone(), reply, answers }
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
    reply: SyncSender<Answer>,
    answers: Receiver<Answer>,
}

impl ResolverClient {
    /// Have a host asked for. `false`: nobody asks, or there is too much to ask.
    pub fn ask(&self, host: Host) -> bool {
        let query = Query { host, reply: self.reply.clone() };
        self.wanted.load(Ordering::Relaxed) && self.ask.try_send(query).is_ok()
    }

    /// The next answer.
    pub fn answer(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}

#[derive(Debug)]
struct Pending {
    tries: u8,
    /// When it is asked again, or given up.
    due: u64,
    reply: SyncSender<Answer>,
}

/// Asks for hosts of one link.
#[derive(Debug)]
pub struct Resolver {
    on_link: Vec<Prefix>,
    pending: HashMap<Host, Pending>,
    /// Those that were not asked for yet, and those that were with when they are due.
    fresh: VecDeque<Host>,
    again: VecDeque<(u64, Host)>,
    /// When the next request may be sent.
    free: u64,
}

impl Resolver {
    /// For the hosts of these prefixes.
    pub fn new(on_link: Vec<Prefix>) -> Self {
        let pending = HashMap::with_capacity(MOST);
        Self { on_link, pending, fresh: VecDeque::new(), again: VecDeque::new(), free: 0 }
    }

    /// Ask for a host, unless it is asked for already. Who is not on the link, and who is one too many, is nowhere.
    pub fn ask(&mut self, Query { host, reply }: Query) {
        if self.pending.contains_key(&host) {
            return;
        }
        if self.pending.len() >= MOST || !self.on_link.iter().any(|prefix| prefix.has(host.0)) {
            let _it_asks_again = reply.try_send(Answer { host, mac: None });
            return;
        }
        self.pending.insert(host, Pending { tries: 0, due: 0, reply });
        self.fresh.push_back(host);
    }

    /// Whom to send a request for now. Who answered none is given up.
    pub fn next(&mut self, now: u64) -> Option<Host> {
        if now < self.free {
            return None;
        }
        while let Some((due, host)) = self.again.front().copied().filter(|(due, _)| *due <= now) {
            self.again.pop_front();
            match self.pending.get(&host) {
                Some(pending) if pending.due != due => {}
                Some(pending) if pending.tries >= TRIES => self.end(host, None),
                Some(_) => return self.request(host, now),
                None => {}
            }
        }
        while let Some(host) = self.fresh.pop_front() {
            if self.pending.get(&host).is_some_and(|pending| pending.tries == 0) {
                return self.request(host, now);
            }
        }
        None
    }

    fn request(&mut self, host: Host, now: u64) -> Option<Host> {
        let pending = self.pending.get_mut(&host)?;
        (pending.tries, pending.due) = (pending.tries + 1, now + PAUSE);
        self.again.push_back((pending.due, host));
        self.free = now + GAP;
        Some(host)
    }

    /// Whether a frame says where a host is that is asked for. The address of a group is nobody's (RFC 1812 section 3.3.2).
    pub fn heard(&mut self, frame: &[u8]) -> bool {
        let Some(arp) = Arp::parse(frame).filter(|arp| is_of_one(arp.sender_mac)) else { return false };
        let host = (arp.sender.to_bits(), link::realm(&Tags::of(frame)));
        let known = self.pending.contains_key(&host);
        self.end(host, Some(arp.sender_mac));
        known
    }

    fn end(&mut self, host: Host, mac: Option<Mac>) {
        if let Some(pending) = self.pending.remove(&host) {
            let _it_asks_again = pending.reply.try_send(Answer { host, mac });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const BOX: (Mac, Ipv4Addr) = ([2, 0, 0, 0, 9, 3], Ipv4Addr::new(10, 0, 0, 254));
    const MAC: Mac = [2, 0, 0, 0, 0, 1];
    const HOST: Host = (0x0a00_0001, 7 << 12);

    fn made() -> (Resolver, ResolverClient, Receiver<Query>) {
        let resolver = Resolver::new(vec![Prefix::new(Ipv4Addr::new(10, 0, 0, 0), 24)]);
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
        assert!(!resolver.heard(&answer(HOST, MAC)), "it was not asked for any more");
    }

    #[test]
    fn who_answers_is_there_in_its_vlan_and_at_an_address_of_one() {
        let (mut resolver, client, asked) = made();
        assert!(client.ask(HOST));
        asked.try_iter().for_each(|query| resolver.ask(query));
        assert_eq!(resolver.next(0), Some(HOST));
        for (host, mac) in [((HOST.0, 0), MAC), ((HOST.0, 8 << 12), MAC), (HOST, [0xff; 6]), (HOST, [1; 6])] {
            assert!(!resolver.heard(&answer(host, mac)), "{host:?} {mac:?}");
        }
        assert!(resolver.heard(&answer(HOST, MAC)));
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
            resolver.ask(Query { host: (HOST.0, realm), reply: client.reply.clone() });
        }
        assert_eq!(client.answer().map(|answer| answer.host.1), Some(MOST as u32), "one too many");
        let sent = requests(&mut resolver, 30);
        assert!(sent.windows(250).all(|some| some[249].0 - some[0].0 >= 990), "more than 250 a second");
        assert_eq!(sent.len(), usize::from(TRIES) * MOST);
        assert!(resolver.pending.is_empty() && resolver.again.is_empty());
    }
}
