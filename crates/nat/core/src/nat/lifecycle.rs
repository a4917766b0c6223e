//! Sessions and subscribers that come and go.

use super::Nat;
use super::hop::HOP;
use super::mapping::Mapped;
use crate::event::{BlockRecord, EventKind};
use crate::key::{Endpoint, Key, Realm};
use crate::pool::{PortRequest, class};
use crate::reason::Reason;
use crate::rewrite;
use crate::session::{NONE, Session, State, Traffic, tick};
use crate::subscriber::{BLOCKS, Subscriber};
use packet::layers::protocol;

/// A flow that is to become a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flow {
    pub inside: Endpoint,
    pub remote: Endpoint,
    pub protocol: u8,
    pub realm: Realm,
    pub state: State,
    /// The tick from which on it is idle.
    pub last_seen: u32,
}

/// What a session is found by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionHashes {
    /// By its packets, up and down.
    pub packets: [u64; 2],
    /// Its mapping, from the inside and from the outside.
    pub mapping: [u64; 2],
}

impl SessionHashes {
    /// Of what they are the hashes.
    pub fn keys(session: &Session) -> [Key; 4] {
        let inside = Key::inside(session.inside(), session.protocol(), session.realm());
        let outside = Key::outside(session.outside(), session.protocol());
        [session.up_key(), session.down_key(), inside, outside]
    }
}

impl From<[u64; 4]> for SessionHashes {
    fn from([up, down, inside, outside]: [u64; 4]) -> Self {
        Self { packets: [up, down], mapping: [inside, outside] }
    }
}

impl Nat {
    pub(crate) fn hashes_of(&self, session: &Session) -> SessionHashes {
        let mut hashes = [0; 4];
        self.hasher.hash_all(&SessionHashes::keys(session), &mut hashes);
        hashes.into()
    }

    /// The same of one that begins, of which some were asked for ahead.
    fn hashes_of_new(&self, session: &Session) -> SessionHashes {
        let [up, down, inside, outside] = SessionHashes::keys(session);
        let mut later = [0; 2];
        self.hasher.hash_all(&[down, outside], &mut later);
        [self.hash(up), later[0], self.hash(inside), later[1]].into()
    }

    /// Begin a session from the inside.
    pub(crate) fn open(&mut self, flow: &Flow, now: u64) -> Result<u32, Reason> {
        let mapped = self.mapped_inside(flow.inside, flow.protocol, flow.realm);
        match mapped {
            Some(mapped @ Mapped::Static(_)) => self.open_on(flow, mapped, now),
            Some(mapped) if self.shares_mappings(flow.protocol) => self.open_on(flow, mapped, now),
            _ => {
                let subscriber = self.admit(flow.inside.address, flow.realm, now)?;
                self.allows(subscriber)?;
                let outside = self.take_endpoint(subscriber, flow, now)?;
                self.open_with(flow, outside, subscriber, now)
            }
        }
    }

    /// Begin a session with an outside endpoint that was taken for it.
    pub(crate) fn open_with(
        &mut self,
        flow: &Flow,
        outside: Endpoint,
        subscriber: u32,
        now: u64,
    ) -> Result<u32, Reason> {
        let flags = if self.shares_mappings(flow.protocol) { Session::SHARED } else { 0 };
        let opened = self.begin(flow, outside, subscriber, flags, None, now);
        if opened.is_err() {
            self.pool.release_port(outside.address, outside.port, class(flow.protocol), now);
        }
        opened
    }

    /// Begin a session, from either side, on a mapping that is there.
    pub(crate) fn open_on(&mut self, flow: &Flow, mapped: Mapped, now: u64) -> Result<u32, Reason> {
        let subscriber = self.admit(flow.inside.address, flow.realm, now)?;
        self.allows(subscriber)?;
        match mapped {
            Mapped::Session(of) => {
                let outside = self.sessions.at(of).map(Session::outside).ok_or(Reason::NoMapping)?;
                self.begin(flow, outside, subscriber, Session::SHARED, Some(of), now)
            }
            Mapped::Static(number) => {
                let forward = self.forwards.get(number as usize).ok_or(Reason::NoMapping)?;
                let outside = forward.outside_endpoint();
                self.begin(flow, outside, subscriber, Session::STATIC, None, now)
            }
        }
    }

    /// Whether a subscriber may have one session more.
    pub(crate) fn allows(&self, subscriber: u32) -> Result<(), Reason> {
        if !self.sessions.has_room() {
            return Err(Reason::SessionsFull);
        }
        self.has_public(subscriber)?;
        match self.subscribers.at(subscriber) {
            Some(line) if line.sessions >= self.config.sessions_per_subscriber => {
                Err(Reason::SubscriberSessions)
            }
            _ => Ok(()),
        }
    }

    /// Whether what a subscriber sends to an endpoint goes back in.
    pub(crate) fn goes_back(&self, to: Endpoint) -> bool {
        let leaves = || self.sites.as_ref().is_some_and(|sites| sites.is_leaving(to.address));
        self.pool.is_here(to) && !leaves()
    }

    fn begin(
        &mut self,
        flow: &Flow,
        outside: Endpoint,
        subscriber: u32,
        flags: u8,
        of: Option<u32>,
        now: u64,
    ) -> Result<u32, Reason> {
        let (l3_delta, l4_delta) = rewrite::deltas(flow.inside, outside, flow.protocol);
        let line = self.subscribers.at(subscriber);
        let hops = line.map_or((HOP, HOP), |line| (self.up_hop(line.address, line.up_hop), line.down_hop));
        let hairpin = if self.goes_back(flow.remote) { Session::HAIRPIN } else { 0 };
        let session = Session {
            inside: flow.inside.address,
            remote: flow.remote.address,
            outside: outside.address,
            inside_port: flow.inside.port,
            remote_port: flow.remote.port,
            outside_port: outside.port,
            state: flow.state as u8,
            flags: flags | hairpin,
            protocol_realm: u32::from(flow.protocol) << 24 | flow.realm,
            l3_delta,
            l4_delta,
            up_hop: hops.0,
            down_hop: hops.1,
            last_seen: flow.last_seen,
            subscriber,
            next: NONE,
            previous: NONE,
            up: Traffic::default(),
            down: Traffic::default(),
        };
        let index = self.install(session, of, now)?;
        if self.config.log_sessions {
            self.events.push(now, EventKind::SessionCreated(session.record()));
        }
        Ok(index)
    }

    /// Let a session be found: by packets, by its mapping, which may be that of another, and by time.
    pub(crate) fn install(&mut self, session: Session, of: Option<u32>, now: u64) -> Result<u32, Reason> {
        // First, so that what was just written field by field is not read as a whole yet: that would wait.
        let SessionHashes { packets: [up, down], mapping } = self.hashes_of_new(&session);
        let index = self.sessions.take(session).ok_or(Reason::SessionsFull)?;
        let shared = session.has(Session::SHARED);
        // The tables have room for what the sessions have room for, so none of these fails; if one did, nothing would be left.
        let pinned = session.state() == State::Pinned;
        let found = pinned || self.table.insert(up, index) && self.table.insert_late(down, index);
        let mapped = !shared || self.join_mapping(index, mapping, of);
        // When a mapping that was asked for ends is known at the first look at it.
        let idle = if pinned { 0 } else { self.idle.of(&session) };
        let timed = self.wheel.push(index, tick(now), session.last_seen.wrapping_add(idle));
        if !(found && mapped && timed) {
            self.table.remove(up, index);
            self.table.remove(down, index);
            if shared && mapped {
                let session = self.sessions.at(index).copied().unwrap_or(session);
                self.leave_mapping(index, &session, mapping);
            }
            self.sessions.release(index);
            return Err(Reason::SessionsFull);
        }
        if let Some(line) = self.subscribers.at_mut(session.subscriber) {
            line.sessions += 1;
        }
        self.changes.session(index);
        Ok(index)
    }

    /// End a session. Its line stays until its timer comes, or is given back by who calls.
    pub(crate) fn end(&mut self, index: u32, now: u64) {
        if let Some(session) = self.sessions.at(index).filter(|session| session.is_alive()) {
            self.end_found(index, self.hashes_of(session), now);
        }
    }

    /// The same for who has its hashes.
    pub(crate) fn end_found(&mut self, index: u32, hashes: SessionHashes, now: u64) {
        let SessionHashes { packets: [up, down], mapping } = hashes;
        let Some(session) = self.sessions.at(index).copied().filter(Session::is_alive) else { return };
        self.table.remove(up, index);
        self.table.remove(down, index);
        let last = !session.has(Session::SHARED) || self.leave_mapping(index, &session, mapping);
        if let Some(line) = self.sessions.at_mut(index) {
            line.state = State::Ended as u8;
        }
        if session.state() == State::Pinned || session.has(Session::EXTENDED) {
            self.asked.forget(index, session.subscriber);
        }
        self.changes.session_ended(&session);
        if self.config.log_sessions {
            self.events.push(now, EventKind::SessionEnded(session.record(), session.volume()));
        }
        if last && !session.has(Session::STATIC) {
            self.pool.release_port(session.outside, session.outside_port, class(session.protocol()), now);
            self.shed_block(session.subscriber, session.outside(), now);
        }
        let Some(line) = self.subscribers.at_mut(session.subscriber) else { return };
        line.sessions = line.sessions.saturating_sub(1);
        if line.sessions == 0 {
            line.idle_since = tick(now);
            if !line.has(Subscriber::QUEUED) {
                line.flags |= Subscriber::QUEUED;
                self.idle_subscribers.push_back((session.subscriber, tick(now)));
            }
        }
    }

    /// The subscriber with this address and these tags, which begins to be one if it may.
    pub(crate) fn admit(&mut self, inside: u32, realm: Realm, now: u64) -> Result<u32, Reason> {
        let hash = self.hash(Key::subscriber(inside, realm));
        if let Some(number) = self.subscribers.find_by(hash, inside, realm) {
            return Ok(number);
        }
        if !self.is_inside(inside) || self.config.is_no_host(inside) {
            return Err(Reason::NotInside);
        }
        let mut line = Subscriber {
            inside,
            realm,
            address: NONE,
            sessions: 0,
            blocks: [NONE; BLOCKS],
            block_count: 0,
            flags: 0,
            up_hop: HOP,
            down_hop: HOP,
            idle_since: tick(now),
            next: NONE,
        };
        if let Some(prefix) = self.config.deterministic {
            // RFC 7422: the address says all, so an address with tags, of which there may be many, cannot be one of these.
            if !prefix.has(inside) || realm != 0 {
                return Err(Reason::NotInside);
            }
            let index = u64::from(inside - prefix.address.to_bits());
            let (address, block) = self.pool.fixed_block(index).ok_or(Reason::PoolExhausted)?;
            (line.address, line.blocks[0], line.block_count) = (address, block, 1);
            line.flags |= Subscriber::FIXED;
        }
        let number = self.subscribers.add(&self.hasher, line).ok_or(Reason::SubscribersFull)?;
        if line.block_count > 0 {
            self.pool.join(line.address);
        }
        // Until it has a session it is idle. Its line may wait from when it was another's.
        if let Some(line) = self.subscribers.at_mut(number).filter(|line| !line.has(Subscriber::QUEUED)) {
            line.flags |= Subscriber::QUEUED;
            self.idle_subscribers.push_back((number, tick(now)));
        }
        self.changes.subscriber(number);
        Ok(number)
    }

    /// The endpoint of the RTP stream that an inside endpoint would be the RTCP of, by its port, where parity is kept.
    pub(super) fn rtp_of(&self, inside: Endpoint, carried: u8) -> Option<Endpoint> {
        let is_rtcp = carried == protocol::UDP && self.config.port_parity && inside.port % 2 == 1;
        is_rtcp.then(|| Endpoint::new(inside.address, inside.port - 1))
    }

    /// An outside endpoint for an inside one that has none.
    fn take_endpoint(&mut self, subscriber: u32, flow: &Flow, now: u64) -> Result<Endpoint, Reason> {
        self.leave_draining(subscriber, now);
        let class = class(flow.protocol);
        let udp = flow.protocol == protocol::UDP && self.config.port_parity;
        let wish = if udp { PortRequest::Parity(flow.inside.port) } else { PortRequest::Any };
        let line = *self.subscribers.at(subscriber).ok_or(Reason::SubscribersFull)?;
        // Contiguity (RFC 4787 section 4.2.3): RTCP's port is the one after RTP's.
        if let Some(rtp) = self.rtp_of(flow.inside, flow.protocol)
            && let Some(Mapped::Session(rtp)) = self.mapped_inside(rtp, flow.protocol, flow.realm)
            && let Some(rtp) = self.sessions.at(rtp).map(Session::outside)
            && let Some((number, block)) = self.pool.block_of(rtp.address, rtp.port)
            && rtp.port % 2 == 0
            && line.blocks().contains(&block)
            && let Some(port) =
                self.pool.take_port(number, block, class, PortRequest::Exactly(rtp.port + 1), 0, now)
        {
            return Ok(Endpoint::new(rtp.address, port));
        }
        let random = self.draw_port();
        let found = |nat: &mut Self, address: u32, blocks: &[u32], wish| {
            blocks.iter().find_map(|block| nat.pool.take_port(address, *block, class, wish, random, now))
        };
        if let Some(port) = found(self, line.address, line.blocks(), wish) {
            return Ok(Endpoint::new(self.pool.address(line.address), port));
        }
        let refused = self.take_block(subscriber, class, now).err();
        let line = *self.subscribers.at(subscriber).ok_or(Reason::SubscribersFull)?;
        // Mostly a new block has ports of every kind; without one any port is better than none.
        let added = if refused.is_none() { line.blocks().last().copied() } else { None };
        let port = found(self, line.address, added.as_slice(), wish).or_else(|| {
            (wish != PortRequest::Any).then(|| found(self, line.address, line.blocks(), PortRequest::Any))?
        });
        let address = self.pool.address(line.address);
        port.map(|port| Endpoint::new(address, port)).ok_or(refused.unwrap_or(Reason::SubscriberPorts))
    }

    /// One block more for a subscriber, of its own address: paired pooling (RFC 4787 REQ-2).
    fn take_block(&mut self, subscriber: u32, class: usize, now: u64) -> Result<(), Reason> {
        /// Of an address all blocks that are free may rest; there are others.
        const ADDRESSES: usize = 4;
        let line = *self.subscribers.at(subscriber).ok_or(Reason::SubscribersFull)?;
        if line.block_count >= u16::from(self.config.blocks_per_subscriber) || line.has(Subscriber::FIXED) {
            return Err(Reason::SubscriberPorts);
        }
        let tries = if line.block_count == 0 { ADDRESSES } else { 1 };
        for _ in 0..tries {
            let address = match line.block_count {
                0 => self.pick_address(subscriber)?,
                _ => line.address,
            };
            let random = self.draw();
            if let Some(block) = self.pool.take_block(address, class, random, now) {
                self.give_block(subscriber, address, block, now);
                return Ok(());
            }
        }
        Err(Reason::PoolExhausted)
    }

    /// A subscriber that may have one more has a block from now on.
    pub(crate) fn give_block(&mut self, subscriber: u32, address: u32, block: u32, now: u64) {
        let Some(line) = self.subscribers.at_mut(subscriber) else { return };
        if line.block_count == 0 {
            self.pool.join(address);
        }
        line.address = address;
        line.blocks[usize::from(line.block_count)] = block;
        line.block_count += 1;
        let line = *line;
        self.changes.subscriber(subscriber);
        let record = self.block_record(&line, address, block);
        self.events.push(now, EventKind::BlockAllocated(record));
    }

    pub(crate) fn block_record(&self, line: &Subscriber, address: u32, block: u32) -> BlockRecord {
        let (outside, ports) = self.pool.ports(address, block);
        BlockRecord { inside: line.inside(), realm: line.realm, outside, ports }
    }

    /// Give back the block of an endpoint that is free again, if none of its ports is in use and it is not the only one.
    fn shed_block(&mut self, subscriber: u32, outside: Endpoint, now: u64) {
        let Some((number, block)) = self.pool.block_of(outside.address, outside.port) else { return };
        let Some(line) = self.subscribers.at(subscriber) else { return };
        if self.pool.left_to(block).is_some() {
            let line = *line;
            return self.end_left(&line, number, block, now);
        }
        if line.block_count < 2 || line.has(Subscriber::FIXED) || self.pool.used(block) > 0 {
            return;
        }
        self.take_back(subscriber, block, now);
    }

    /// A block of which no port is used is its subscriber's no more.
    pub(crate) fn take_back(&mut self, subscriber: u32, block: u32, now: u64) {
        let Some(line) = self.subscribers.at_mut(subscriber) else { return };
        let Some(at) = line.blocks().iter().position(|its| *its == block) else { return };
        line.block_count -= 1;
        line.blocks.swap(at, usize::from(line.block_count));
        line.blocks[usize::from(line.block_count)] = NONE;
        let line = *line;
        if line.block_count == 0 {
            self.pool.leave(line.address);
        }
        self.changes.subscriber(subscriber);
        self.give_back(&line, line.address, block, now);
    }

    pub(crate) fn give_back(&mut self, line: &Subscriber, address: u32, block: u32, now: u64) {
        self.pool.release_block(address, block);
        let record = self.block_record(line, address, block);
        self.events.push(now, EventKind::BlockReleased(record));
    }

    /// Subscribers that had no session for long enough are none any more.
    pub(crate) fn expire_subscribers(&mut self, now: u64) {
        /// A call's work is bounded.
        const LOOKS: usize = 64;
        if self.is_standby {
            return;
        }
        for _ in 0..LOOKS {
            let Some((number, since)) = self.idle_subscribers.front().copied() else { return };
            if tick(now).wrapping_sub(since) < self.idle.subscriber {
                return;
            }
            self.idle_subscribers.pop_front();
            let Some(line) = self.subscribers.at_mut(number) else { continue };
            let is_there = line.is_taken();
            // It had sessions meanwhile: it waits again, at most as long as it did.
            if is_there
                && line.sessions == 0
                && tick(now).wrapping_sub(line.idle_since) < self.idle.subscriber
            {
                self.idle_subscribers.push_back((number, line.idle_since));
                continue;
            }
            line.flags &= !Subscriber::QUEUED;
            if is_there && line.sessions == 0 {
                self.release_subscriber(number, now);
            }
        }
    }

    /// One that has no session is no subscriber any more.
    pub(crate) fn release_subscriber(&mut self, number: u32, now: u64) {
        let Some(line) = self.subscribers.at(number).copied() else { return };
        if !line.has(Subscriber::FIXED) {
            for block in line.blocks() {
                self.give_back(&line, line.address, *block, now);
            }
        }
        if line.block_count > 0 {
            self.pool.leave(line.address);
        }
        self.changes.subscriber_removed(line.inside, line.realm);
        self.subscribers.remove(&self.hasher, number);
    }
}
