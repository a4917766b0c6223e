//! The sessions of one worker as an element: translates between the inside and the outside, and writes the links' headers.

use crate::control::{self, KIND};
use crate::headers;
use crate::link;
use crate::log::Log;
use crate::neighbours::{Neighbour, Neighbours};
use crate::pcp::{ALL_HOSTS_MAC, Answers};
use crate::shared::SessionEnd;
use ::element::interface_addr::InterfaceAddrs;
use cgnat::{BURST, Config, ConfigError, Forward, Frame, Headers, Hop, Realm, Reason, Side, Verdict};
use dpdk::{Batch, Mbuf, Mempool, MetaFlags};
use engine::{About, Cx, Element, Mail};
use packet::{Mac, ipv4};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc::TrySendError;

/// Its outputs; what is left in a batch goes to the first.
pub const OUTPUTS: [&str; 2] = ["outside", "inside"];
const INSIDE: usize = 1;

/// Its reasons to drop: those of the NAT, and what the links add.
pub const DROPS: [&str; Reason::NAMES.len() + 6] = {
    let mut names = ["no_next_hop"; Reason::NAMES.len() + 6];
    let mut i = 0;
    while i < Reason::NAMES.len() {
        names[i] = Reason::NAMES[i];
        i += 1;
    }
    names[NO_ROOM] = "no_room";
    names[UNKNOWN_PORT] = "unknown_port";
    names[NOT_BOUND] = "not_bound";
    names[PCP_NOISE] = "pcp_noise";
    names[PCP_LIMITED] = "pcp_limited";
    names
};
/// The Ethernet address of the next hop is not known (yet).
const NO_NEXT_HOP: usize = Reason::NAMES.len();
/// There is no room for its tags.
const NO_ROOM: usize = NO_NEXT_HOP + 1;
/// No parser told by which of the two ports it came.
const UNKNOWN_PORT: usize = NO_NEXT_HOP + 2;
/// From the inside, and not through the NAT table.
const NOT_BOUND: usize = NO_NEXT_HOP + 3;
/// To the PCP server, and no request.
const PCP_NOISE: usize = NO_NEXT_HOP + 4;
/// Requests to the PCP server that were more than a subscriber may make, or than there was room for answers.
const PCP_LIMITED: usize = NO_NEXT_HOP + 5;

/// Next hops that are no subscriber's: none yet, and the router outside.
const UNKNOWN: Hop = 0;
const GATEWAY: Hop = 1;

/// Time between two looks at what has expired, ns.
const TURN: u64 = 500_000;
/// Sessions that are looked at in one of them.
const BUDGET: usize = 512;
/// After so many of them what the NAT table had handed on before a binding ended is through, and can begin no session more.
const SETTLE: u64 = 2_000;

/// A port, as the NAT knows it.
#[derive(Debug)]
struct Port {
    number: u16,
    mac: Mac,
}

/// What becomes of a packet, and where its IP header begins.
#[derive(Debug, Clone, Copy)]
struct Decision {
    verdict: Verdict,
    l3: u16,
}

/// What sessions have in common with the other elements of their NAT.
#[derive(Debug)]
pub struct Links {
    /// The router outside.
    pub gateway: Arc<Neighbour>,
    /// The subscribers.
    pub neighbours: Arc<Neighbours>,
    /// Subscribers that are gone.
    pub end: SessionEnd,
}

/// Element: keeps sessions, and translates packets.
#[derive(Debug)]
pub struct Conntrack {
    nat: cgnat::Nat,
    /// Inside and outside.
    ports: [Port; 2],
    links: Links,
    log: Option<Log>,
    pcp: Option<Answers>,
    /// Requests to it that got no answer, as far as they are counted here.
    unanswered: (u64, u64),
    /// By which next hop a subscriber is reached that has no session.
    hosts: HashMap<(u32, Realm), Hop>,
    /// For packets of its own.
    pool: Mempool,
    advanced: u64,
    /// Looks at what has expired, so far.
    turns: u64,
    /// Next hops by which no session went, and the turn in which that is looked at again; and all of them since the first look.
    settling: VecDeque<(u64, Hop)>,
    settled: HashSet<Hop>,
    /// Fragments whose time was over, as far as they are counted here.
    timeouts: u64,
}

impl Conntrack {
    /// Between these ports: the number and the addresses of each, inside first.
    pub fn new(
        config: Config,
        sides: [(u16, &InterfaceAddrs); 2],
        links: Links,
        log: Option<Log>,
        pool: Mempool,
    ) -> Result<Self, ConfigError> {
        let ports = sides.map(|(number, addrs)| Port { number, mac: addrs.bare().mac });
        let hosts = HashMap::with_capacity(config.subscribers);
        let nat = cgnat::Nat::new(config)?;
        let (settling, settled) = (VecDeque::new(), HashSet::new());
        Ok(Self {
            nat,
            ports,
            links,
            log,
            pcp: None,
            unanswered: (0, 0),
            hosts,
            pool,
            advanced: 0,
            turns: 0,
            settling,
            settled,
            timeouts: 0,
        })
    }

    /// Let subscribers ask for mappings.
    pub fn with_pcp(mut self, pcp: Option<Answers>) -> Self {
        self.pcp = pcp;
        self
    }

    fn side(&self, in_port: u16) -> Option<Side> {
        match &self.ports {
            [inside, _] if inside.number == in_port => Some(Side::Inside),
            [_, outside] if outside.number == in_port => Some(Side::Outside),
            _ => None,
        }
    }

    /// Translate packets of one side, at most [`BURST`].
    fn translate(&mut self, side: Side, mbufs: &mut [Mbuf], now: u64, decisions: &mut [Decision]) {
        let count = mbufs.len().min(BURST);
        let mut frames: [Frame<'_>; BURST] = std::array::from_fn(|_| Frame::new(&mut []));
        let mut hops = [UNKNOWN; BURST];
        for mbuf in mbufs.iter() {
            cgnat::prefetch(mbuf.data());
        }
        for ((frame, mbuf), hop) in frames.iter_mut().zip(mbufs.iter_mut()).zip(&mut hops) {
            let meta = mbuf.meta().unwrap_or_default();
            if meta.flags.has(MetaFlags::SUBSCRIBER) {
                *hop = meta.hash as Hop;
            }
            let headers = headers::of(mbuf, &meta).unwrap_or_default();
            *frame = Frame::parsed(mbuf.data_mut(), headers);
        }
        let frames = &mut frames[..count];
        self.nat.process_steady(side, frames, now);
        for (frame, hop) in frames.iter_mut().zip(hops) {
            if frame.verdict != Verdict::Pending {
                continue;
            }
            if side == Side::Inside {
                self.learn(&frame.headers, hop, now);
                if let Some(pcp) = &mut self.pcp
                    && pcp.takes(&frame.headers)
                {
                    pcp.answer(&mut self.nat, frame.bytes, &frame.headers, hop, now);
                    frame.verdict = Verdict::Held;
                    continue;
                }
            }
            self.nat.process_pending(side, frame, now);
        }
        for (frame, decision) in frames.iter().zip(decisions) {
            *decision = Decision { verdict: frame.verdict, l3: frame.headers.l3 };
        }
    }

    /// Whoever begins something is to be found again.
    fn learn(&mut self, headers: &Headers, hop: Hop, now: u64) {
        let (host, realm) = (headers.source.address, headers.realm);
        if self.hosts.len() < self.nat.config().subscribers || self.hosts.contains_key(&(host, realm)) {
            self.hosts.insert((host, realm), hop);
        }
        // Who may be no subscriber gets nothing, as the packet's own verdict will say.
        let _not_a_subscriber = self.nat.set_hops(Ipv4Addr::from_bits(host), realm, GATEWAY, hop, now);
    }

    /// Write the link header for where a packet goes.
    #[inline]
    fn send_on(&self, mbuf: &mut Mbuf, l3: u16, forward: Forward) -> Result<(), usize> {
        let (port, to) = match forward.to {
            Side::Outside => (&self.ports[1], self.links.gateway.mac()),
            Side::Inside if forward.hop != UNKNOWN => {
                (&self.ports[0], self.links.neighbours.mac(forward.hop))
            }
            Side::Inside => {
                let to = ipv4::addresses(mbuf.data(), l3.into()).map(|(_, to)| to.to_bits());
                let hop = to.and_then(|to| self.hosts.get(&(to, forward.realm)));
                (&self.ports[0], hop.and_then(|hop| self.links.neighbours.mac(*hop)))
            }
        };
        let to = to.ok_or(NO_NEXT_HOP)?;
        if link::rewrite(mbuf, l3.into(), forward.realm, (to, port.mac)) { Ok(()) } else { Err(NO_ROOM) }
    }

    /// Hand a packet to the output that it goes to; what goes outside is given back, for the batch.
    fn emit(mbuf: Mbuf, to: Side, cx: &mut Cx<'_>) -> Option<Mbuf> {
        match to {
            Side::Outside => Some(mbuf),
            Side::Inside => {
                cx.emit(INSIDE, mbuf);
                None
            }
        }
    }

    /// Packets that the NAT sends by itself.
    fn send_own(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        while batch.room() > 0 && cx.room(INSIDE) > 0 {
            let Some((forward, packet)) = self.nat.pop_output() else { return };
            let Some(mut mbuf) = self.pool.packet(packet) else { return };
            match self.send_on(&mut mbuf, 0, forward) {
                Ok(()) => {
                    if let Some(mbuf) = Self::emit(mbuf, forward.to, cx) {
                        let _room_was_asked_for = batch.push(mbuf);
                    }
                }
                Err(reason) => cx.count(reason, 1),
            }
        }
    }

    /// Announce that mappings were lost, and count requests that got no answer.
    fn advance_pcp(&mut self, now: u64, cx: &mut Cx<'_>) {
        let Some(pcp) = &mut self.pcp else { return };
        let (noise, limited) = pcp.unanswered();
        cx.count(PCP_NOISE, noise - self.unanswered.0);
        cx.count(PCP_LIMITED, limited - self.unanswered.1);
        self.unanswered = (noise, limited);
        if cx.room(INSIDE) > 0
            && let Some((packet, realm)) = pcp.announcement(now)
            && let Some(mut mbuf) = self.pool.packet(&packet)
            && link::rewrite(&mut mbuf, 0, realm, (ALL_HOSTS_MAC, self.ports[0].mac))
        {
            cx.emit(INSIDE, mbuf);
        }
    }

    /// What is due: sessions that are over, by their time or with their subscriber.
    fn advance(&mut self, now: u64, cx: &mut Cx<'_>) {
        self.nat.advance(now, BUDGET);
        // They were held, and are dropped without a packet at hand.
        let timeouts = self.nat.drops().of(Reason::FragmentTimeout);
        cx.count(Reason::FragmentTimeout as usize, timeouts - self.timeouts);
        self.timeouts = timeouts;
        while let Ok(ended) = self.links.end.ended.try_recv() {
            self.nat.end_hop(ended.hop);
            let host = (ended.inside, ended.realm);
            if self.hosts.get(&host) == Some(&ended.hop) {
                self.hosts.remove(&host);
                self.nat.forget_hops(Ipv4Addr::from_bits(host.0), host.1);
            }
        }
        if let Some(log) = &mut self.log {
            let _more_next_time = log.drain(&mut self.nat, now);
        }
        self.turns += 1;
        while let Some(hop) = self.nat.pop_ended_hop() {
            if self.settled.insert(hop) {
                self.settling.push_back((self.turns + SETTLE, hop));
            } else if let Err(TrySendError::Full(hop)) = self.links.end.released.try_send(hop) {
                // It takes no more now: it is told after the next search.
                self.nat.end_hop(hop);
                break;
            } else {
                self.settled.remove(&hop);
            }
        }
        while let Some((_, hop)) = self.settling.front().copied().filter(|(due, _)| *due <= self.turns) {
            self.settling.pop_front();
            self.nat.end_hop(hop);
        }
    }
}

impl Element for Conntrack {
    fn about(&self) -> About {
        About { kind: KIND, takes: true, outputs: &OUTPUTS, drops: &DROPS, polled: true }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        let now = cx.now();
        let in_port = |mbuf: &Mbuf| mbuf.meta().map(|meta| meta.in_port);
        cx.sift(batch, |mbuf| match mbuf.meta() {
            Some(meta) if meta.in_port == self.ports[0].number => {
                if meta.flags.has(MetaFlags::SUBSCRIBER) {
                    Ok(())
                } else {
                    Err(NOT_BOUND)
                }
            }
            Some(meta) if meta.in_port == self.ports[1].number => Ok(()),
            _ => Err(UNKNOWN_PORT),
        });
        let mut decisions = [Decision { verdict: Verdict::Held, l3: 0 }; dpdk::BURST];
        let mut done = 0;
        for of_a_side in batch.frames_mut().chunk_by_mut(|a, b| in_port(a) == in_port(b)) {
            let side = of_a_side.first().and_then(in_port).and_then(|port| self.side(port));
            for burst in of_a_side.chunks_mut(BURST) {
                let Some(side) = side else { continue };
                let decisions = &mut decisions[done..done + burst.len()];
                done += burst.len();
                self.translate(side, burst, now, decisions);
            }
        }
        let mut decisions = decisions.iter();
        batch.filter_map(|mut mbuf| match decisions.next()? {
            Decision { verdict: Verdict::Forward(forward), l3 } => {
                match self.send_on(&mut mbuf, *l3, *forward) {
                    Ok(()) => Self::emit(mbuf, forward.to, cx),
                    Err(reason) => {
                        cx.count(reason, 1);
                        None
                    }
                }
            }
            Decision { verdict: Verdict::Drop(reason), .. } => {
                cx.count(*reason as usize, 1);
                None
            }
            Decision { verdict: Verdict::Held | Verdict::Pending, .. } => None,
        });
    }

    fn poll(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        let now = cx.now();
        if now.saturating_sub(self.advanced) >= TURN {
            self.advanced = now;
            self.advance(now, cx);
            self.advance_pcp(now, cx);
        }
        self.send_own(batch, cx);
        cx.wake_at(now + TURN);
    }

    fn control(&mut self, mail: Mail, now: u64) {
        let _not_understood = control::answer(&self.nat, (self.log.as_ref(), self.pcp.as_ref()), mail, now);
    }
}

impl Drop for Conntrack {
    /// What was recorded is logged.
    fn drop(&mut self) {
        if let Some(log) = &mut self.log {
            while log.drain(&mut self.nat, self.advanced) {}
        }
    }
}
