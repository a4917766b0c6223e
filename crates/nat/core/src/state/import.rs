//! A record becomes a part of a NAT, if it fits: checked against all that is there, whoever wrote it.

use super::{KeptMapping, KeptPorts, KeptSession, KeptSubscriber, Record};
use crate::config::Prefix;
use crate::event::{BlockRecord, EventKind, SessionRecord, Volume};
use crate::explicit::{Explicit, RemoteFilter};
use crate::key::Endpoint;
use crate::nat::{Mapped, Nat};
use crate::pool::class;
use crate::reason::Reason;
use crate::rewrite;
use crate::session::{NONE, Session, State, Traffic, tick, ticks};
use crate::subscriber::{BLOCKS, Subscriber};
use packet::layers::protocol;
use std::net::Ipv4Addr;

/// Why a record is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SkipReason {
    /// Its time was over meanwhile.
    Expired,
    /// Its subscriber is none any more.
    NotInside,
    /// Its outside address or port block is not there any more, or is cut otherwise.
    Pool,
    /// A static forward has its endpoint now, or its own is not there any more.
    Forward,
    /// There is no room for it.
    Full,
    /// It contradicts another record.
    Conflict,
}

impl SkipReason {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Expired, Self::NotInside, Self::Pool, Self::Forward, Self::Full, Self::Conflict];

    /// The name in logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::NotInside => "not_inside",
            Self::Pool => "pool",
            Self::Forward => "forward",
            Self::Full => "full",
            Self::Conflict => "conflict",
        }
    }
}

/// When records were written, and what is known now.
#[derive(Debug, Clone, Copy)]
pub struct ImportClock {
    /// Time since they were written, ns.
    pub passed: u64,
    /// The time now, ns.
    pub now: u64,
}

impl Nat {
    /// Take a record in. Subscribers come before their sessions. `hops` are a subscriber's next hops, away from it and towards it.
    /// What has an end in the log, and is left out, has ended now.
    pub fn import(&mut self, record: &Record, past: ImportClock, hops: (u16, u16)) -> Result<(), SkipReason> {
        match record {
            Record::Subscriber(kept) => self.import_subscriber(kept, past, hops),
            Record::Ports(kept) => {
                self.import_ports(kept, past);
                Ok(())
            }
            Record::Mapping(kept) => self.import_asked(kept, past),
            Record::Session(kept) => {
                let done = self.import_session(kept, past);
                if let Err(lost) = done {
                    self.rest_lost(kept, lost, past);
                    if self.config.log_sessions {
                        self.events.push(past.now, EventKind::SessionEnded(record_of(kept), volume_of(kept)));
                    }
                }
                done
            }
        }
    }

    /// Record what was taken in as if it began now: for a log that knows of nothing before.
    pub fn tell_imported(&mut self, record: &Record, now: u64) {
        match record {
            Record::Subscriber(kept) => {
                let number = self.subscribers.find(&self.hasher, kept.inside, kept.realm);
                let Some(line) = number.and_then(|number| self.subscribers.at(number)).copied() else {
                    return;
                };
                if line.has(Subscriber::FIXED) {
                    return;
                }
                for block in line.blocks() {
                    let block = self.block_record(&line, line.address, *block);
                    self.events.push(now, EventKind::BlockAllocated(block));
                }
            }
            Record::Session(kept) if self.config.log_sessions => {
                self.events.push(now, EventKind::SessionCreated(record_of(kept)));
            }
            _ => {}
        }
    }

    pub(super) fn import_subscriber(
        &mut self,
        kept: &KeptSubscriber,
        past: ImportClock,
        (up_hop, down_hop): (u16, u16),
    ) -> Result<(), SkipReason> {
        let before = self.subscriber_count();
        let number = self.admit(kept.inside, kept.realm, past.now).map_err(|reason| match reason {
            Reason::NotInside => SkipReason::NotInside,
            Reason::SubscribersFull => SkipReason::Full,
            _ => SkipReason::Pool,
        });
        if number.is_ok() && self.subscriber_count() == before {
            return Err(SkipReason::Conflict);
        }
        let firsts = kept.first.get(..kept.blocks.into()).unwrap_or(&[]);
        let Ok(number) = number else {
            firsts.iter().for_each(|first| self.tell_released(kept, *first, past.now));
            return number.map(|_| ());
        };
        let Some(line) = self.subscribers.at_mut(number) else { return Err(SkipReason::Full) };
        (line.up_hop, line.down_hop) = (up_hop, down_hop);
        line.idle_since = tick(past.now).wrapping_sub(elapsed(kept.idle, past).min(u32::MAX / 4));
        if line.has(Subscriber::FIXED) {
            return Ok(());
        }
        let claimed = self.claim_blocks(number, kept, past.now);
        let has_none = self.subscribers.at(number).is_none_or(|line| line.block_count == 0);
        if has_none { claimed } else { Ok(()) }
    }

    /// Let a subscriber have the blocks of a record that it does not have yet. An error: it does not have all of them.
    pub(super) fn claim_blocks(
        &mut self,
        number: u32,
        kept: &KeptSubscriber,
        now: u64,
    ) -> Result<(), SkipReason> {
        let Some(mut line) = self.subscribers.at(number).copied() else { return Err(SkipReason::Full) };
        let mut done = Ok(());
        for first in kept.first.get(..kept.blocks.into()).unwrap_or(&[]) {
            let endpoint = Endpoint::new(kept.outside, *first);
            let there = self.pool.block_of(endpoint.address, endpoint.port);
            if there.is_some_and(|(_, block)| line.blocks().contains(&block)) {
                continue;
            }
            let room = usize::from(line.block_count) < BLOCKS;
            match self.pool.claim_whole(endpoint, kept.size).filter(|_| room) {
                Some((address, block)) if line.block_count == 0 || line.address == address => {
                    if line.block_count == 0 {
                        self.pool.join(address);
                    }
                    line.address = address;
                    line.blocks[usize::from(line.block_count)] = block;
                    line.block_count += 1;
                    continue;
                }
                Some((address, block)) => self.pool.release_block(address, block),
                None => {}
            }
            self.tell_released(kept, *first, now);
            done = Err(SkipReason::Pool);
        }
        if let Some(there) = self.subscribers.at_mut(number) {
            *there = line;
        }
        done
    }

    /// A block that a subscriber had is its no more.
    fn tell_released(&mut self, kept: &KeptSubscriber, first: u16, now: u64) {
        let (inside, outside) = (Ipv4Addr::from_bits(kept.inside), Ipv4Addr::from_bits(kept.outside));
        let ports = (first, first.saturating_add(kept.size.saturating_sub(1)));
        let block = BlockRecord { inside, realm: kept.realm, outside, ports };
        self.events.push(now, EventKind::BlockReleased(block));
    }

    fn import_ports(&mut self, kept: &KeptPorts, past: ImportClock) {
        let Some(left) = remaining(kept.left, past) else { return };
        let ports = (0..64u16).filter(|bit| kept.ports >> bit & 1 == 1);
        for port in ports.filter_map(|bit| kept.outside.port.checked_add(bit)) {
            let endpoint = Endpoint::new(kept.outside.address, port);
            self.pool.rest_port(endpoint, class(kept.protocol), left, past.now);
        }
    }

    pub(super) fn import_session(&mut self, kept: &KeptSession, past: ImportClock) -> Result<(), SkipReason> {
        let number = self
            .subscribers
            .find(&self.hasher, kept.inside.address, kept.realm)
            .ok_or_else(|| self.missing_subscriber_reason(kept))?;
        let line = *self.subscribers.at(number).ok_or(SkipReason::Full)?;
        let (flags, of) = self.place_of(kept, &line)?;
        let mut session = self.session_of(kept, number, &line, flags);
        let (idle, asked) = (elapsed(kept.idle, past), remaining(kept.asked, past));
        if asked.is_none() && (kept.state == State::Pinned || idle >= self.idle.of(&session)) {
            return Err(SkipReason::Expired);
        }
        session.last_seen = tick(past.now).wrapping_sub(idle.min(u32::MAX / 4));
        let twice = kept.state != State::Pinned
            && (self.find_up(kept.inside, kept.remote, kept.protocol, kept.realm).is_some()
                || self.find_down(kept.remote, kept.outside, kept.protocol).is_some());
        if twice {
            return Err(SkipReason::Conflict);
        }
        if !self.sessions.has_room() {
            return Err(SkipReason::Full);
        }
        // The first of a mapping has its port; so has each session where none is shared.
        let claims = flags & Session::STATIC == 0 && of.is_none();
        if claims && !self.pool.claim_port(kept.outside, class(kept.protocol), past.now) {
            return Err(SkipReason::Conflict);
        }
        let Ok(index) = self.install(session, of, past.now) else {
            if claims {
                self.pool.release_port(
                    kept.outside.address,
                    kept.outside.port,
                    class(kept.protocol),
                    past.now,
                );
            }
            return Err(SkipReason::Full);
        };
        if let (Some(left), Some(line)) = (asked, self.sessions.at_mut(index))
            && kept.state != State::Pinned
        {
            line.flags |= Session::EXTENDED;
            self.asked.extend(index, past.now + left);
        }
        if let (State::Pinned, Some(of)) = (kept.state, of) {
            // The mapping is found by the one that stays, as when it was asked for.
            for hash in self.hashes_of(&session).mapping {
                self.mappings.replace(hash, of, index);
            }
        }
        Ok(())
    }

    pub(super) fn import_asked(&mut self, kept: &KeptMapping, past: ImportClock) -> Result<(), SkipReason> {
        let until = past.now + remaining(kept.left, past).ok_or(SkipReason::Expired)?;
        let index = match self.mapped_inside(kept.inside, kept.protocol, kept.realm) {
            Some(Mapped::Session(index)) if self.is_pinned(index) => index,
            // The mapping was left out: that was told.
            _ => return Err(SkipReason::Pool),
        };
        let subscriber = self.sessions.at(index).ok_or(SkipReason::Pool)?.subscriber;
        let filters = kept.lets_in.iter().take(kept.filters.into()).map(|(address, bits, port)| {
            RemoteFilter { network: Prefix::new(Ipv4Addr::from_bits(*address), *bits), port: *port }
        });
        let explicit = Explicit { until, nonce: kept.nonce, filters: filters.collect() };
        self.asked.keep(index, subscriber, explicit);
        Ok(())
    }

    /// Why the subscriber of a session is not there.
    fn missing_subscriber_reason(&self, kept: &KeptSession) -> SkipReason {
        if !self.is_inside(kept.inside.address) {
            SkipReason::NotInside
        } else if self.subscriber_count() >= self.config.subscribers {
            SkipReason::Full
        } else {
            SkipReason::Pool
        }
    }

    /// What kind of endpoint a session has outside, and the session whose mapping it shares.
    fn place_of(&self, kept: &KeptSession, line: &Subscriber) -> Result<(u8, Option<u32>), SkipReason> {
        let inside = self.mapped_inside(kept.inside, kept.protocol, kept.realm);
        let outside = self.mapped_outside(kept.outside, kept.protocol);
        if let Some(Mapped::Static(number)) = outside {
            let same = self.forwards.get(number as usize).is_some_and(|forward| {
                forward.inside_endpoint() == kept.inside && forward.realm == kept.realm
            });
            // Who asked for a mapping has it in the forward.
            let fits = same && kept.state != State::Pinned;
            return if fits { Ok((Session::STATIC, None)) } else { Err(SkipReason::Forward) };
        }
        if kept.forward || matches!(inside, Some(Mapped::Static(_))) {
            return Err(SkipReason::Forward);
        }
        let block = self.pool.block_of(kept.outside.address, kept.outside.port).ok_or(SkipReason::Pool)?;
        if block.0 != line.address || !line.blocks().contains(&block.1) {
            return Err(SkipReason::Pool);
        }
        if !self.shares_mappings(kept.protocol) {
            return if kept.state == State::Pinned { Err(SkipReason::Conflict) } else { Ok((0, None)) };
        }
        match (inside, outside) {
            (None, None) => Ok((Session::SHARED, None)),
            (Some(Mapped::Session(of)), Some(Mapped::Session(same))) => {
                let agrees = |session: &Session| {
                    session.inside() == kept.inside
                        && session.realm() == kept.realm
                        && session.outside() == kept.outside
                };
                let is_one = [of, same].iter().all(|one| self.sessions.at(*one).is_some_and(agrees));
                let again = kept.state == State::Pinned && self.is_pinned(of);
                if is_one && !again { Ok((Session::SHARED, Some(of))) } else { Err(SkipReason::Conflict) }
            }
            _ => Err(SkipReason::Conflict),
        }
    }

    fn session_of(&self, kept: &KeptSession, number: u32, line: &Subscriber, flags: u8) -> Session {
        let (l3_delta, l4_delta) = rewrite::deltas(kept.inside, kept.outside, kept.protocol);
        let hairpin = if self.pool.is_here(kept.remote) { Session::HAIRPIN } else { 0 };
        let remote = if kept.state == State::Pinned { Endpoint::default() } else { kept.remote };
        Session {
            inside: kept.inside.address,
            remote: remote.address,
            outside: kept.outside.address,
            inside_port: kept.inside.port,
            remote_port: remote.port,
            outside_port: kept.outside.port,
            state: kept.state as u8,
            flags: flags | if kept.state == State::Pinned { 0 } else { hairpin },
            protocol_realm: u32::from(kept.protocol) << 24 | kept.realm,
            l3_delta,
            l4_delta,
            up_hop: line.up_hop,
            down_hop: line.down_hop,
            last_seen: 0,
            subscriber: number,
            next: NONE,
            previous: NONE,
            up: Traffic::from_bits(kept.up),
            down: Traffic::from_bits(kept.down),
        }
    }

    /// The port of a session that is left out rests, from now on or from when its time was over (RFC 6888 REQ-8).
    fn rest_lost(&mut self, kept: &KeptSession, lost: SkipReason, past: ImportClock) {
        if kept.forward {
            return;
        }
        let since_asked = past.passed.saturating_sub(u64::from(kept.asked) << 20);
        let ago = match (lost, kept.state) {
            (SkipReason::Expired, State::Pinned) => since_asked,
            (SkipReason::Expired, state) => {
                let lives = self.idle.of_state(kept.protocol, state);
                since_asked.min(u64::from(elapsed(kept.idle, past).saturating_sub(lives)) << 20)
            }
            _ => 0,
        };
        let left = self.config.timeouts.port_quarantine.saturating_sub(ago);
        self.pool.rest_port(kept.outside, class(kept.protocol), left, past.now);
    }
}

/// What is left now of so many ticks, ns.
pub(super) fn remaining(ticks: u32, past: ImportClock) -> Option<u64> {
    (u64::from(ticks) << 20).checked_sub(past.passed).filter(|left| *left > 0)
}

/// Ticks for which something is idle now.
fn elapsed(idle: u32, past: ImportClock) -> u32 {
    idle.saturating_add(ticks(past.passed))
}

fn record_of(kept: &KeptSession) -> SessionRecord {
    let KeptSession { inside, realm, outside, remote, protocol, .. } = *kept;
    SessionRecord { inside, realm, outside, remote, protocol }
}

fn volume_of(kept: &KeptSession) -> Volume {
    let (up, down) = (Traffic::from_bits(kept.up), Traffic::from_bits(kept.down));
    Volume {
        packets_up: up.packets(),
        bytes_up: up.bytes(),
        packets_down: down.packets(),
        bytes_down: down.bytes(),
    }
}

const _: () = assert!(BLOCKS <= u8::MAX as usize && protocol::ICMP == 1);
