//! The sessions of one worker as an element: translates between the inside and the outside, and writes the links' headers.

use crate::address_removal::{self, AddressRemovals, Parts};
use crate::addressing::{
    Addressing, GATEWAY, Links, NO_NEXT_HOP, Port, PostTranslation, RetaggedFrame, UNKNOWN,
};
use crate::clear::{Clear, clear};
use crate::control::{self, KIND};
use crate::headers;
use crate::hops::Hops;
use crate::link;
use crate::log::{DRAINS, Log};
use crate::packet_action::PacketAction;
use crate::pcp::{ALL_HOSTS_MAC, Answers};
use crate::pending_packets::PendingPackets;
use crate::session_retention::SessionRetention;
use crate::shared::{BindingEvent, ResolvedHop};
use crate::state::{Bound, Tally};
use crate::tracker_pair::TrackerPair;
use ::element::interface_addr::InterfaceAddrs;
use arrayvec::ArrayVec;
use dpdk::{Batch, Claim, Mbuf, Mempool, Meta, MetaFlags};
use engine::{Clock, Cx, Element, ElementInfo, Mail};
use nat_core::{
    BURST, Config, ConfigError, Forward, Frame, Headers, Hop, Ownership, PoolChange, Realm, Reason, Side,
    StaticForward, Verdict,
};
use packet::ipv4;
use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock};

/// Its outputs; what is left in a batch goes to the first.
pub const OUTPUTS: [&str; 2] = ["outside", "inside"];
const INSIDE: usize = 1;

/// Its reasons to drop: those of the NAT, and what the links add.
pub const DROPS: [&str; Reason::NAMES.len() + 8] = {
    let mut names = ["no_next_hop"; Reason::NAMES.len() + 8];
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
    names[AWAITING_ARP] = "awaiting_arp";
    names[STANDBY] = "standby";
    names
};
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
/// Its subscriber is asked for, and a later packet waits for the answer in its place.
const AWAITING_ARP: usize = NO_NEXT_HOP + 6;
/// The other NAT of a pair translates.
const STANDBY: usize = NO_NEXT_HOP + 7;

/// Why fragments that were held are dropped, without a packet at hand.
const LATE: [Reason; 2] = [Reason::FragmentTimeout, Reason::FragmentOfDropped];

/// Time between two looks at what has expired, ns.
const TURN: u64 = 500_000;
/// Work of one of them, in sessions that are looked at.
const BUDGET: usize = 2048;

/// Bytes of the tables' memory that are taken in one of them, until all are.
const POPULATED: usize = 4 << 20;

const _: () = assert!(DROPS.len() <= PacketAction::REASONS);

/// Element: keeps sessions, and translates packets.
#[derive(Debug)]
pub struct Nat44 {
    nat: nat_core::Nat,
    /// Inside and outside.
    ports: [Port; 2],
    links: Links,
    log: Option<Log>,
    pcp: Option<Answers>,
    /// Requests to it that got no answer, as far as they are counted here.
    unanswered: (u64, u64),
    /// By which next hops subscribers are reached.
    hops: Hops,
    /// Packets to those for which there is none yet.
    awaiting: PendingPackets<Mbuf>,
    /// For packets of its own.
    pool: Mempool,
    /// Whether there is memory of the tables that was not taken yet.
    populates: bool,
    advanced: u64,
    /// Looks at what has expired, so far.
    turns: u64,
    /// What was held and then dropped, as far as it is counted here.
    late: [u64; LATE.len()],
    kept: Option<SessionRetention>,
    /// What was kept before it began.
    restored: Option<Tally>,
    /// The other NAT that takes over.
    pair: Option<TrackerPair>,
    /// Addresses that go.
    leaving: Parts,
    /// The interfaces below its ports, which no other NAT opens.
    _claims: Vec<Claim>,
}

impl Nat44 {
    /// Between these ports: the number and the addresses of each, inside first.
    pub fn new(
        config: Config,
        sides: [(u16, &InterfaceAddrs); 2],
        links: Links,
        log: Option<Log>,
        pool: Mempool,
    ) -> Result<Self, ConfigError> {
        let ports = sides.map(|(number, addrs)| Port { number, mac: addrs.bare().mac });
        let hops = Hops::new(config.subscribers);
        let nat = nat_core::Nat::new(config)?;
        Ok(Self {
            nat,
            ports,
            links,
            log,
            pcp: None,
            unanswered: (0, 0),
            hops,
            awaiting: PendingPackets::new(),
            pool,
            populates: true,
            advanced: 0,
            turns: 0,
            late: [0; LATE.len()],
            kept: None,
            restored: None,
            pair: None,
            leaving: Parts::default(),
            _claims: Vec::new(),
        })
    }

    /// Nobody else is to have the interfaces below its ports.
    pub fn with_claims(mut self, claims: Vec<Claim>) -> Self {
        self._claims = claims;
        self
    }

    /// Let subscribers ask for mappings.
    pub fn with_pcp(mut self, pcp: Option<Answers>) -> Self {
        self.pcp = pcp;
        self
    }

    /// What becomes of its sessions, and those that it begins with: `restore` puts them into its tables, and says who is bound.
    pub fn keep(
        &mut self,
        kept: SessionRetention,
        restore: impl FnOnce(&mut nat_core::Nat, Option<&mut Log>) -> Option<(Tally, Vec<Bound>)>,
    ) {
        self.kept = Some(kept);
        let Some((tally, bound)) = restore(&mut self.nat, self.log.as_mut()) else { return };
        self.hops.restore(&bound);
        self.restored = Some(tally);
    }

    /// Be one of a pair.
    pub fn join(&mut self, pair: impl FnOnce(&mut nat_core::Nat) -> Option<TrackerPair>) {
        self.pair = pair(&mut self.nat);
    }

    /// Whether it translates: the other NAT of a pair may.
    #[inline]
    fn is_active(&self, now: u64) -> bool {
        self.pair.as_ref().is_none_or(|pair| pair.is_active(now))
    }

    /// Its tables.
    pub(crate) fn nat(&self) -> &nat_core::Nat {
        &self.nat
    }

    /// Its tables, to be changed.
    pub(crate) fn nat_mut(&mut self) -> &mut nat_core::Nat {
        &mut self.nat
    }

    /// Whether the subscriber of a forward is with this worker.
    pub(crate) fn is_own(&self, forward: &StaticForward) -> bool {
        let owner = self.kept.as_ref().and_then(|kept| Some((kept.ownership.get()?, kept.replica)));
        let inside = forward.inside_endpoint().address;
        owner.is_none_or(|((_, ownership), own)| ownership.subscriber(inside, forward.realm) == own)
    }

    /// Who owns what.
    pub(crate) fn ownership(&self) -> Option<Arc<OnceLock<(u16, Ownership)>>> {
        self.kept.as_ref().map(|kept| Arc::clone(&kept.ownership))
    }

    /// Let addresses of the pool come and go.
    pub(crate) fn change_pool(&mut self, change: &PoolChange, leaving: &AddressRemovals) {
        self.nat.change_pool(change);
        self.leaving.change(change, leaving);
    }

    /// By which side a packet came, or why it gets no further.
    #[inline]
    fn side(&self, mbuf: &Mbuf) -> Result<Side, usize> {
        let meta = mbuf.meta().ok_or(UNKNOWN_PORT)?;
        match &self.ports {
            [inside, _] if inside.number == meta.in_port => {
                if meta.flags.has(MetaFlags::SUBSCRIBER) {
                    Ok(Side::Inside)
                } else {
                    Err(NOT_BOUND)
                }
            }
            [_, outside] if outside.number == meta.in_port => Ok(Side::Outside),
            _ => Err(UNKNOWN_PORT),
        }
    }

    /// Translate packets of one side, at most [`BURST`], and write their link headers.
    #[inline]
    fn translate(&mut self, side: Side, mbufs: &mut [Mbuf], now: u64, fates: &mut [PacketAction]) {
        let mut later = PostTranslation::default();
        match side {
            Side::Inside => self.decide::<true>(mbufs, now, fates, &mut later),
            Side::Outside => self.decide::<false>(mbufs, now, fates, &mut later),
        }
        for RetaggedFrame { number, forward, l3, addresses } in later.tagged {
            let (Some(mbuf), Some(fate)) = (mbufs.get_mut(number), fates.get_mut(number)) else { continue };
            if !link::rewrite(mbuf, l3.into(), forward.realm, addresses) {
                *fate = PacketAction::drop(NO_ROOM);
            }
        }
        for (number, forward) in later.unresolved {
            if let Some(mbuf) = mbufs.get_mut(number) {
                mbuf.set_meta(Meta { hash: forward.realm, ..mbuf.meta().unwrap_or_default() });
            }
        }
    }

    /// What becomes of them, from the inside if `UP`, but for what is done later.
    #[inline]
    fn decide<const UP: bool>(
        &mut self,
        mbufs: &mut [Mbuf],
        now: u64,
        fates: &mut [PacketAction],
        later: &mut PostTranslation,
    ) {
        let side = if UP { Side::Inside } else { Side::Outside };
        let mut hops = [UNKNOWN; BURST];
        // Filled as it is read: a frame is copied from a place that was just cleared slower than it is made.
        let mut frames = ArrayVec::<Frame<'_>, BURST>::new();
        mbufs.iter().for_each(Mbuf::prefetch_data);
        frames.extend(mbufs.iter_mut().zip(&mut hops).take(BURST).map(|(mbuf, hop)| {
            let meta = mbuf.meta().unwrap_or_default();
            if UP {
                // Of a subscriber: nothing else is let through.
                *hop = meta.hash as Hop;
            }
            let headers = headers::of(mbuf, meta).unwrap_or_default();
            Frame::parsed(mbuf.data_mut(), headers)
        }));
        let Self { nat, ports, links, .. } = self;
        let addressing = Addressing::new(ports, links);
        let left = nat.process_steady::<UP>(&mut frames, now, |number, frame, forward| {
            if let Some(fate) = fates.get_mut(number) {
                *fate = addressing.apply(number, frame, forward, later);
            }
        });
        for number in left {
            let (Some(frame), Some(fate)) = (frames.get_mut(number), fates.get_mut(number)) else { continue };
            self.process_left(side, frame, hops[number], now);
            *fate = match frame.verdict {
                Verdict::Forward(forward) => self.addressing().apply(number, frame, forward, later),
                Verdict::Drop(reason) => PacketAction::drop(reason as usize),
                Verdict::Held | Verdict::Pending => PacketAction::HELD,
            };
        }
        for (number, forward) in std::mem::take(&mut later.unresolved) {
            let (Some(frame), Some(fate)) = (frames.get_mut(number), fates.get_mut(number)) else { continue };
            match self.host(side, frame, forward.realm) {
                Some(hop) => {
                    let forward = Forward { hop, ..forward };
                    *fate = self.addressing().apply(number, frame, forward, later);
                }
                None => {
                    *fate = PacketAction::AWAITS;
                    let _there_is_room = later.unresolved.try_push((number, forward));
                }
            }
        }
    }

    #[inline(never)]
    fn process_left(&mut self, side: Side, frame: &mut Frame<'_>, hop: Hop, now: u64) {
        if side == Side::Inside && frame.verdict == Verdict::Pending {
            // An error comes by the next hop of who it is about: whoever reports it begins nothing.
            if nat_core::reported_subscriber(frame.bytes, &frame.headers).is_none() {
                self.learn(&frame.headers, hop, now);
            }
            if let Some(pcp) = &mut self.pcp
                && pcp.is_request(&frame.headers)
            {
                pcp.answer(&mut self.nat, frame.bytes, &frame.headers, hop, now);
                frame.verdict = Verdict::Held;
                self.nat.pass_left();
                return;
            }
        }
        self.nat.process_left(side, frame, now);
    }

    /// Whoever begins something is to be found again.
    fn learn(&mut self, headers: &Headers, hop: Hop, now: u64) {
        let (host, realm) = (headers.source().address, headers.realm);
        // Mostly its line says so already. Who may be no subscriber gets nothing, as the packet's own verdict will say.
        if self.nat.set_hops(Ipv4Addr::from_bits(host), realm, GATEWAY, hop, now) != Ok(false) {
            self.hops.learn((host, realm), hop);
        }
    }

    fn addressing(&self) -> Addressing<'_> {
        Addressing::new(&self.ports, &self.links)
    }

    /// A subscriber's next hop, by the destination of a packet without a session, or of a session that began when it was not known.
    #[inline(never)]
    fn host(&mut self, side: Side, frame: &Frame<'_>, realm: Realm) -> Option<Hop> {
        let (_, to) = ipv4::addresses(frame.bytes, frame.headers.l3.into())?;
        let hop =
            self.hops.of((to.to_bits(), realm)).filter(|hop| self.links.neighbours.mac(*hop).is_some())?;
        self.nat.give_hop(side, &frame.headers, hop);
        Some(hop)
    }

    /// Let a packet wait for its subscriber's Ethernet address. What is dropped for that, and why.
    #[cold]
    fn hold(&mut self, mbuf: Mbuf, now: u64) -> Option<usize> {
        let meta = mbuf.meta().unwrap_or_default();
        let (_, to) = ipv4::addresses(mbuf.data(), meta.l3.into())?;
        match self.awaiting.hold((to.to_bits(), meta.hash), mbuf, now) {
            Ok(before) => before.map(|_| AWAITING_ARP),
            Err(_) => Some(NO_NEXT_HOP),
        }
    }

    /// A subscriber that was asked for is there, or nowhere: so goes what waited for that.
    fn find(&mut self, ResolvedHop { host, hop }: ResolvedHop, now: u64, cx: &mut Cx<'_>) {
        let waited = self.awaiting.answer(host, hop.is_some(), now);
        let mac = hop.and_then(|hop| {
            self.hops.learn(host, hop);
            self.nat.reach(Ipv4Addr::from_bits(host.0), host.1, GATEWAY, hop);
            self.links.neighbours.mac(hop)
        });
        let Some(mut mbuf) = waited else { return };
        let l3 = mbuf.meta().map_or(0, |meta| meta.l3.into());
        match mac {
            None => cx.count(NO_NEXT_HOP, 1),
            Some(mac) if link::rewrite(&mut mbuf, l3, host.1, link::addresses(mac, self.ports[0].mac)) => {
                cx.emit(INSIDE, mbuf)
            }
            Some(_) => cx.count(NO_ROOM, 1),
        }
    }

    /// Write the link header of a packet of our own.
    fn send_on(&mut self, mbuf: &mut Mbuf, forward: Forward) -> Result<(), usize> {
        let headers = Headers::default();
        let frame = Frame::parsed(mbuf.data_mut(), headers);
        let forward = match forward {
            Forward { to: Side::Inside, hop: UNKNOWN, realm, .. } => {
                Forward { hop: self.host(Side::Outside, &frame, realm).ok_or(NO_NEXT_HOP)?, ..forward }
            }
            known => known,
        };
        let addresses = self.addressing().of(forward)?;
        if link::rewrite(mbuf, 0, forward.realm, addresses) { Ok(()) } else { Err(NO_ROOM) }
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
            match self.send_on(&mut mbuf, forward) {
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
            && link::rewrite(&mut mbuf, 0, realm, link::addresses(ALL_HOSTS_MAC, self.ports[0].mac))
        {
            cx.emit(INSIDE, mbuf);
        }
    }

    /// What is due: sessions that are over, by their time or with their subscriber.
    fn advance(&mut self, now: u64, passed: u64, cx: &mut Cx<'_>) {
        let ends = self.log.as_mut().map_or(usize::MAX, Log::ends);
        self.nat.advance_turn(now, passed, BUDGET, ends);
        if let Some(sites) = &mut self.links.sites {
            sites.advance(&mut self.nat);
        }
        self.leaving.advance(&mut self.nat);
        for (reason, counted) in LATE.into_iter().zip(&mut self.late) {
            let all = self.nat.late_drops().of(reason);
            cx.count(reason as usize, all - std::mem::replace(counted, all));
        }
        // A packet that waited may go inside for each.
        while cx.room(INSIDE) > 0
            && let Ok(told) = self.links.end.told.try_recv()
        {
            match told {
                BindingEvent::Ended(ended) => self.hops.end(ended, &mut self.nat),
                BindingEvent::Resolved(found) => self.find(found, now, cx),
            }
        }
        let ask = &self.links.end.ask;
        self.awaiting.ask(|host| ask.try_send(host).is_ok());
        cx.count(NO_NEXT_HOP, self.awaiting.expire(now));
        let (log, neighbours) = (&mut self.log, &self.links.neighbours);
        let active = self
            .pair
            .as_mut()
            .is_none_or(|pair| pair.turn(&mut self.nat, (&mut self.hops, neighbours), log.as_mut(), now));
        if active && let Some(log) = log {
            log.begin_forwards(&mut self.nat, now);
            let _more_next_time = (0..DRAINS).all(|_| log.drain(&mut self.nat, now));
        }
        self.turns += 1;
        self.hops.advance(&mut self.nat, &self.links.end);
    }
}

impl Element for Nat44 {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: KIND, takes: true, outputs: &OUTPUTS, drops: &DROPS, polled: true }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        let now = cx.now();
        if !self.is_active(now) {
            cx.drop_rejected(batch, |_| Err(STANDBY));
            return;
        }
        let side = batch.frames().first().and_then(|first| self.side(first).ok());
        let (mut admitted, mut of_one_side) = (true, true);
        for mbuf in batch.frames() {
            let its = self.side(mbuf).ok();
            admitted &= its.is_some();
            of_one_side &= its == side;
        }
        if !admitted {
            cx.drop_rejected(batch, |mbuf| self.side(mbuf).map(|_| ()));
        }
        let mut fates = [PacketAction::HELD; dpdk::BURST];
        if let (true, true, Some(side)) = (admitted, of_one_side, side) {
            for (burst, fates) in batch.frames_mut().chunks_mut(BURST).zip(fates.chunks_mut(BURST)) {
                self.translate(side, burst, now, fates);
            }
        } else {
            let mut fates = &mut fates[..];
            let in_port = |mbuf: &Mbuf| mbuf.meta().map(|meta| meta.in_port);
            for run in batch.frames_mut().chunk_by_mut(|a, b| in_port(a) == in_port(b)) {
                let Some(side) = run.first().and_then(|first| self.side(first).ok()) else { continue };
                for burst in run.chunks_mut(BURST) {
                    let (of_burst, rest) = fates.split_at_mut(burst.len());
                    fates = rest;
                    self.translate(side, burst, now, of_burst);
                }
            }
        }
        // Mostly all go one way: what subscribers send stays where it is, and what comes for them goes on together.
        let are_all = |one: PacketAction| {
            fates[..batch.len()].iter().filter(|fate| **fate == one).count() == batch.len()
        };
        if are_all(PacketAction::OUTSIDE) {
            return;
        }
        if are_all(PacketAction::INSIDE) {
            return cx.emit_all(INSIDE, batch);
        }
        let mut fates = fates.iter();
        batch.filter_map(|mbuf| match *fates.next()? {
            PacketAction::OUTSIDE => Some(mbuf),
            PacketAction::INSIDE => {
                cx.emit(INSIDE, mbuf);
                None
            }
            fate => {
                let reason = if fate == PacketAction::AWAITS { self.hold(mbuf, now) } else { fate.reason() };
                if let Some(reason) = reason {
                    cx.count(reason, 1);
                }
                None
            }
        });
    }

    fn poll(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        let now = cx.now();
        if now.saturating_sub(self.advanced) >= TURN {
            let passed = now.saturating_sub(std::mem::replace(&mut self.advanced, now));
            self.advance(now, passed, cx);
            self.populates = self.populates && self.nat.populate(POPULATED);
            if self.is_active(now) {
                self.advance_pcp(now, cx);
            }
            if self.turns == 1
                && let Some(keeper) = self.kept.as_ref().and_then(|kept| kept.keeper.as_ref())
            {
                keeper.worker_started();
            }
        }
        if self.is_active(now) {
            self.send_own(batch, cx);
        }
    }

    fn control(&mut self, mail: Mail, now: u64) {
        let Err(mail) = self.reload(mail) else { return };
        let is_active = self.is_active(now);
        let clear = |asked: Clear| clear(&mut self.nat, self.log.as_mut(), &asked, is_active, now);
        let Err(mail) = mail.answer(clear) else { return };
        let more = control::TrackerParts {
            log: self.log.as_ref(),
            pcp: self.pcp.as_ref(),
            restored: self.restored.as_ref(),
            pair: self.pair.as_ref(),
        };
        let _not_understood = control::answer(&self.nat, more, mail, now);
    }
}

impl Drop for Nat44 {
    /// Sessions and port blocks are kept for the next start, or else end, and the log says so. A NAT that never ran leaves everything
    /// as it was.
    fn drop(&mut self) {
        let Some(kept) = &self.kept else { return };
        let keeper = kept.keeper.as_ref();
        if self.turns == 0 && !keeper.is_some_and(|keeper| keeper.has_begun()) {
            return;
        }
        let (now, neighbours) = (Clock::get().now(), &self.links.neighbours);
        let goes_on = match &mut self.pair {
            // Of a standby nothing was in the log.
            Some(pair) if !pair.is_active(now) => return,
            Some(pair) => pair.end(&mut self.nat, neighbours, now),
            None => keeper.is_some_and(|keeper| {
                address_removal::end_passing(&mut self.nat, self.log.as_mut(), now);
                keeper.give(&self.nat, now, |hop| neighbours.mac(hop))
            }),
        };
        match (self.log.take(), &self.pair) {
            (Some(log), Some(pair)) if goes_on => pair.close(&mut self.nat, log, now),
            (Some(log), _) => kept.say_rest(&mut self.nat, log, goes_on, now),
            (None, _) => {}
        }
    }
}
