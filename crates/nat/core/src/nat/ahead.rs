//! What new flows look up is asked for while packets before theirs are worked on: their mapping and subscriber first, then the line of
//! that one, then its ports. The hashes for that are computed together, and are known when it is their turn.
//!
//! A CPU has some twenty cache lines under way and forgets what it is asked for beyond, so nothing is asked for a whole burst at once.

use super::Nat;
use super::fast::{BURST, BurstMask};
use crate::cpu;
use crate::headers::Headers;
use crate::key::Key;
use crate::pool::class;
use crate::session::NONE;
use crate::verdict::{Frame, Side};
use arrayvec::ArrayVec;

/// How many packets ahead mappings and subscribers are asked for, lines of subscribers, and ports.
const FOUND_BY: usize = 6;
const LINES: usize = 4;
const PORTS: usize = 2;

/// Of one packet: what it is looked up by, and the hashes of these.
#[derive(Debug, Clone, Copy)]
struct Ask {
    /// Of its mapping, the mapping whose RTCP this would be, which often is the same, its subscriber, and its session.
    keys: [Key; KEYS],
    hashes: [u64; KEYS],
    /// Whether its subscriber is known by it.
    is_up: bool,
    class: usize,
    /// The line which is probably that of the subscriber, and the session which probably has the RTP stream's mapping.
    line: u32,
    rtp: u32,
    /// By which its port is looked for, if it begins a mapping.
    random: Option<u64>,
}

const KEYS: usize = 4;

/// Of the packets of a burst that the fast path left.
#[derive(Debug, Default)]
pub(crate) struct SlowPathPrefetch {
    asks: ArrayVec<Ask, BURST>,
    /// The one that is worked on.
    at: usize,
}

impl Nat {
    /// Packets of a burst are left: what the first of them need is asked for.
    #[inline(never)]
    pub(super) fn begin_ahead(&mut self, side: Side, frames: &[Frame<'_>], left: BurstMask) {
        let mut asks = ArrayVec::<Ask, BURST>::new();
        let mut keys = ArrayVec::<[Key; KEYS], BURST>::new();
        for frame in left.filter_map(|at| frames.get(at)) {
            let Headers { protocol, realm, .. } = frame.headers;
            let (source, destination) = (frame.headers.source(), frame.headers.destination());
            let is_up = side == Side::Inside;
            let all = if is_up {
                let rtp = self.rtp_of(source, protocol).unwrap_or(source);
                let mappings = [source, rtp].map(|endpoint| Key::inside(endpoint, protocol, realm));
                let session = Key::outbound(source, destination, protocol, realm);
                [mappings[0], mappings[1], Key::subscriber(source.address, realm), session]
            } else {
                let mapping = Key::outside(destination, protocol);
                [mapping, mapping, mapping, Key::inbound(source, destination, protocol)]
            };
            let random = is_up.then(|| self.draw());
            let class = class(protocol);
            let ask = Ask { keys: all, hashes: [0; KEYS], is_up, class, line: NONE, rtp: NONE, random };
            let _there_is_room = (keys.try_push(all), asks.try_push(ask));
        }
        let mut hashes = [[0; KEYS]; BURST];
        self.hasher.hash_all(keys.as_flattened(), hashes.as_flattened_mut());
        asks.iter_mut().zip(hashes).for_each(|(ask, hashes)| ask.hashes = hashes);
        self.ahead = SlowPathPrefetch { asks, at: 0 };
        (0..FOUND_BY).for_each(|at| self.ask_found_by(at));
        (0..LINES).for_each(|at| self.ask_line(at));
        (0..PORTS).for_each(|at| self.ask_ports(at));
    }

    /// The next packet is worked on now.
    #[inline]
    pub(super) fn step_ahead(&mut self) {
        self.ahead.at += 1;
        let at = self.ahead.at;
        self.ask_found_by(at + FOUND_BY - 1);
        self.ask_line(at + LINES - 1);
        self.ask_ports(at + PORTS - 1);
    }

    /// The hash of a key.
    #[inline]
    pub(crate) fn hash(&self, key: Key) -> u64 {
        let known = self.ahead.asks.get(self.ahead.at);
        let at = known.and_then(|ask| ask.keys.iter().position(|its| *its == key));
        match known.zip(at) {
            Some((ask, at)) => ask.hashes[at],
            None => self.hasher.hash(key),
        }
    }

    /// A random number by which a port is looked for: that by which it was asked for, if it was.
    pub(super) fn draw_port(&mut self) -> u64 {
        let at = self.ahead.at;
        let drawn = self.ahead.asks.get_mut(at).and_then(|ask| ask.random.take());
        drawn.unwrap_or_else(|| self.draw())
    }

    #[inline]
    fn ask_found_by(&self, at: usize) {
        let Some(ask) = self.ahead.asks.get(at) else { return };
        let [mapping, rtp, subscriber, _] = ask.hashes;
        self.mappings.view().prefetch(mapping);
        if rtp != mapping {
            self.mappings.view().prefetch(rtp);
        }
        if ask.is_up {
            self.subscribers.prefetch(subscriber);
        }
    }

    #[inline]
    fn ask_line(&mut self, at: usize) {
        let Some(ask) = self.ahead.asks.get_mut(at) else { return };
        let [mapping, rtp, subscriber, _] = ask.hashes;
        if ask.is_up {
            ask.line = self.subscribers.prefetch_line(subscriber).unwrap_or(NONE);
        }
        // Its own mapping is a new one, mostly; that of the RTP port is there.
        if rtp != mapping
            && let Some(number) = self.mappings.view().candidate(rtp)
            && let Some(session) = self.sessions.get().get(number as usize)
        {
            ask.rtp = number;
            cpu::prefetch(session);
        }
    }

    #[inline]
    fn ask_ports(&self, at: usize) {
        let Some(ask) = self.ahead.asks.get(at) else { return };
        // RTCP's port is the one after RTP's.
        if let Some(rtp) = self.sessions.at(ask.rtp)
            && let Some((block, port)) = self.pool.place_of(rtp.outside())
        {
            return self.pool.prefetch_port(block, ask.class, port);
        }
        let (Some(line), Some(random)) = (self.subscribers.at(ask.line), ask.random) else { return };
        // They are tried in order, and most have no more.
        for block in line.blocks().iter().take(2) {
            self.pool.prefetch(*block, ask.class, random);
        }
    }
}
