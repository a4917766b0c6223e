//! A standby that knows what its active NAT knows: changes as they come, and sweeps of all that there is, which mend what was missed.
//!
//! ```text
//!  active    Nat::next_change, Nat::sweep ─▶ Update ─▶ bytes … bytes ─▶ Update ─▶ Nat::apply, Nat::age   standby
//! ```
//! An update says what is, not what to do: the same one twice changes nothing. What a standby has and was not told of in three
//! sweeps is no more.

use super::codec::{BadRecord, Fields, LONGEST, put_endpoint};
use super::export::ports_record;
use super::import::{ImportClock, SkipReason, remaining};
use super::{KeptMapping, KeptSession, KeptSubscriber, Record};
use crate::binding::{Hop, Mac};
use crate::config::Prefix;
use crate::event::SessionRecord;
use crate::explicit::Explicit;
use crate::key::Realm;
use crate::nat::{Change, Mapped, Nat};
use crate::session::{Session, State, Traffic, tick};
use crate::subscriber::Subscriber;
use std::net::Ipv4Addr;

const ENDED: u8 = 5;
const GONE: u8 = 6;
const ENDED_LEN: usize = 25;
const GONE_LEN: usize = 9;
const _: () = assert!(ENDED_LEN <= LONGEST && GONE_LEN <= LONGEST);

/// What a standby is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    /// This is there.
    There(Record),
    /// A session is over; or a mapping that was asked for, which has no remote side.
    Ended(SessionRecord, bool),
    /// A subscriber is gone.
    Gone(u32, Realm),
}

impl Update {
    /// Add its bytes, at most [`LONGEST`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::There(record) => record.encode(out),
            Self::Ended(session, asked) => {
                out.push(ENDED);
                put_endpoint(out, session.inside);
                out.extend(session.realm.to_le_bytes());
                put_endpoint(out, session.outside);
                put_endpoint(out, session.remote);
                out.push(session.protocol);
                out.push(u8::from(*asked));
            }
            Self::Gone(inside, realm) => {
                out.push(GONE);
                out.extend(inside.to_le_bytes());
                out.extend(realm.to_le_bytes());
            }
        }
    }

    /// The update at the beginning, and how many bytes it has.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), BadRecord> {
        let (kind, rest) = bytes.split_first().ok_or(BadRecord)?;
        let mut fields = Fields(rest);
        match *kind {
            ENDED => {
                let (inside, realm) = (fields.endpoint()?, fields.realm()?);
                let (outside, remote) = (fields.endpoint()?, fields.endpoint()?);
                let (protocol, asked) = (fields.protocol()?, fields.byte()?);
                if asked > 1 {
                    return Err(BadRecord);
                }
                let session = SessionRecord { inside, realm, outside, remote, protocol };
                Ok((Self::Ended(session, asked == 1), ENDED_LEN))
            }
            GONE => Ok((Self::Gone(fields.word()?, fields.realm()?), GONE_LEN)),
            _ => Record::decode(bytes).map(|(record, len)| (Self::There(record), len)),
        }
    }
}

/// Where a sweep goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    /// At a line of subscribers.
    Subscribers(u32),
    /// At a line of sessions.
    Sessions(u32),
    /// At a port block: the number of its address, and its place there.
    Ports(u32, u32),
}

impl Sweep {
    /// At the beginning.
    pub const START: Self = Self::Subscribers(0);
}

/// Where the search for what a standby was not told of goes on: sessions first, since who has some stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgingCursor {
    /// At a line of sessions.
    Sessions(u32),
    /// At a line of subscribers.
    Subscribers(u32),
}

impl AgingCursor {
    /// At the beginning.
    pub const START: Self = Self::Sessions(0);
}

impl Nat {
    /// Tell of the next change, in at most two updates. `false`: there is none.
    pub fn next_change(
        &mut self,
        now: u64,
        mac: impl Fn(Hop) -> Option<Mac>,
        mut tell: impl FnMut(&Update),
    ) -> bool {
        let Some(change) = self.pop_change() else { return false };
        match change {
            Change::Subscriber(number) => {
                // A line that is free names nobody.
                if let Some((_, line)) = self.subscribers.iter_from(number, 1).0.next() {
                    tell(&Update::There(self.subscriber_record(line, now, &mac)));
                }
            }
            Change::Gone(inside, realm) => tell(&Update::Gone(inside, realm)),
            Change::Session(index) => {
                if let Some(session) = self.sessions.at(index).filter(|session| session.is_alive()) {
                    self.session_records(index, session, now).for_each(|record| tell(&Update::There(record)));
                }
            }
            Change::Ended(session, asked) => tell(&Update::Ended(session, asked)),
        }
        true
    }

    /// Tell of what is in the next `lines` lines, or of the ports of one block that rest if `resting` is wanted. Where to go on;
    /// `None`: that was all.
    pub fn sweep(
        &self,
        at: Sweep,
        (lines, resting): (u32, bool),
        now: u64,
        mac: impl Fn(Hop) -> Option<Mac>,
        mut tell: impl FnMut(&Update),
    ) -> Option<Sweep> {
        let mut tell = |record| tell(&Update::There(record));
        match at {
            Sweep::Subscribers(from) => {
                let (page, next) = self.subscribers.iter_from(from, lines);
                page.for_each(|(_, line)| tell(self.subscriber_record(line, now, &mac)));
                Some(next.map_or(Sweep::Sessions(0), Sweep::Subscribers))
            }
            Sweep::Sessions(from) => {
                let (page, next) = self.sessions.alive_from(from, lines);
                page.flat_map(|(index, session)| self.session_records(index, session, now)).for_each(tell);
                next.map(Sweep::Sessions).or(resting.then_some(Sweep::Ports(0, 0)))
            }
            Sweep::Ports(address, block) => {
                self.pool.resting_in(address, block, now).for_each(|ports| tell(ports_record(ports)));
                if block + 1 < self.pool.blocks_at(address) {
                    return Some(Sweep::Ports(address, block + 1));
                }
                (address + 1 < self.pool.slots()).then_some(Sweep::Ports(address + 1, 0))
            }
        }
    }

    /// Know what an update says. `hops` are its subscriber's next hops, as for [`Nat::import`]; 0 is none that is known.
    pub fn apply(&mut self, update: &Update, now: u64, hops: (u16, u16)) -> Result<(), SkipReason> {
        let past = ImportClock { passed: 0, now };
        match update {
            Update::There(Record::Subscriber(kept)) => self.apply_subscriber(kept, past, hops),
            Update::There(Record::Session(kept)) => self.apply_session(kept, past),
            Update::There(Record::Mapping(kept)) => self.apply_asked(kept, past),
            Update::There(record @ Record::Ports(_)) => self.import(record, past, hops),
            Update::Ended(session, asked) => {
                if let Some(index) = self.find_session(session, *asked) {
                    self.end(index, now);
                }
                Ok(())
            }
            Update::Gone(inside, realm) => {
                if let Some(number) = self.subscribers.find(&self.hasher, *inside, *realm) {
                    self.forget_subscriber(number, now);
                }
                Ok(())
            }
        }
    }

    /// Whether another NAT says when sessions and subscribers are over, and not how long they are idle here.
    pub fn set_standby(&mut self, is_standby: bool) {
        if is_standby && !self.is_standby {
            self.forward_log.forget();
        }
        self.is_standby = is_standby;
    }

    /// A sweep is over: what is in the next `lines` lines, and was not told of in three of them, is no more. Where to go on; `None`: that
    /// was all.
    pub fn age(&mut self, at: AgingCursor, lines: u32, now: u64) -> Option<AgingCursor> {
        match at {
            AgingCursor::Sessions(from) => {
                let end = from.saturating_add(lines).min(self.sessions.used());
                for index in from..end {
                    let line = self.sessions.at_mut(index).filter(|session| session.is_alive());
                    if line.is_some_and(Session::grow_old) {
                        self.end(index, now);
                    }
                }
                Some(if end < self.sessions.used() {
                    AgingCursor::Sessions(end)
                } else {
                    AgingCursor::Subscribers(0)
                })
            }
            AgingCursor::Subscribers(from) => {
                let end = from.saturating_add(lines).min(self.subscribers.used());
                for number in from..end {
                    let Some(line) = self.subscribers.at_mut(number) else { break };
                    if line.grow_old() {
                        self.forget_subscriber(number, now);
                    }
                }
                (end < self.subscribers.used()).then_some(AgingCursor::Subscribers(end))
            }
        }
    }

    /// The line of a session that is known, with this outside endpoint or another.
    fn find_session(&self, session: &SessionRecord, asked: bool) -> Option<u32> {
        let SessionRecord { inside, realm, remote, protocol, .. } = *session;
        if !asked {
            return self.find_up(inside, remote, protocol, realm);
        }
        match self.mapped_inside(inside, protocol, realm)? {
            Mapped::Session(index) if self.is_pinned(index) => Some(index),
            _ => None,
        }
    }

    fn apply_subscriber(
        &mut self,
        kept: &KeptSubscriber,
        past: ImportClock,
        hops: (u16, u16),
    ) -> Result<(), SkipReason> {
        let Some(number) = self.subscribers.find(&self.hasher, kept.inside, kept.realm) else {
            return self.import_subscriber(kept, past, hops);
        };
        let idle = kept.idle.min(u32::MAX / 4);
        let Some(line) = self.subscribers.at_mut(number) else { return Err(SkipReason::Full) };
        line.be_young();
        if hops.1 != 0 {
            (line.up_hop, line.down_hop) = hops;
        }
        line.idle_since = tick(past.now).wrapping_sub(idle);
        if line.has(Subscriber::FIXED) {
            return Ok(());
        }
        let firsts = kept.first.get(..kept.blocks.into()).unwrap_or(&[]);
        let line = *line;
        for block in line.blocks() {
            let (outside, (first, _)) = self.pool.ports(line.address, *block);
            let stays = outside.to_bits() == kept.outside && firsts.contains(&first);
            // What is used still is that of sessions that have not ended here yet.
            if !stays && self.pool.used(*block) == 0 {
                self.take_back(number, *block, past.now);
            }
        }
        self.claim_blocks(number, kept, past.now)
    }

    fn apply_session(&mut self, kept: &KeptSession, past: ImportClock) -> Result<(), SkipReason> {
        let KeptSession { inside, realm, outside, remote, protocol, .. } = *kept;
        let asked = kept.state == State::Pinned;
        let named = SessionRecord { inside, realm, outside, remote, protocol };
        if let Some(index) = self.find_session(&named, asked) {
            let same = self.sessions.at(index).is_some_and(|session| {
                session.outside() == outside && session.has(Session::STATIC) == kept.forward
            });
            if same {
                self.refresh(index, kept, past);
                return Ok(());
            }
            self.end(index, past.now);
        }
        match self.import_session(kept, past) {
            // Who is in its way has ended, or this NAT would not be told of it.
            Err(SkipReason::Conflict) if self.clear_way(kept, past.now) => self.import_session(kept, past),
            done => done,
        }
    }

    /// A session is there still, and this is what it is doing.
    fn refresh(&mut self, index: u32, kept: &KeptSession, past: ImportClock) {
        let of = self.sessions.at(index).map(|session| session.subscriber);
        let hops = of.and_then(|number| self.subscribers.at(number)).map(|line| (line.up_hop, line.down_hop));
        let extended = remaining(kept.asked, past);
        let Some(session) = self.sessions.at_mut(index) else { return };
        session.be_young();
        if let Some((up, down)) = hops {
            (session.up_hop, session.down_hop) = (up, down);
        }
        if kept.state == State::Pinned {
            return;
        }
        session.state = kept.state as u8;
        let told = tick(past.now).wrapping_sub(kept.idle.min(u32::MAX / 4));
        // Who was active before may have seen a later packet than the other was told of.
        if told.wrapping_sub(session.last_seen) <= u32::MAX / 2 {
            session.last_seen = told;
        }
        (session.up, session.down) = (Traffic::from_bits(kept.up), Traffic::from_bits(kept.down));
        if let Some(left) = extended {
            session.flags |= Session::EXTENDED;
            self.asked.extend(index, past.now + left);
        }
    }

    /// End sessions that have endpoints of this one and are not it. Whether there was one.
    fn clear_way(&mut self, kept: &KeptSession, now: u64) -> bool {
        let mut cleared = false;
        if kept.state != State::Pinned
            && let Some(index) = self.find_down(kept.remote, kept.outside, kept.protocol)
        {
            self.end(index, now);
            cleared = true;
        }
        let mapped = [
            self.mapped_outside(kept.outside, kept.protocol),
            self.mapped_inside(kept.inside, kept.protocol, kept.realm),
        ];
        for by in mapped {
            let Some(Mapped::Session(index)) = by else { continue };
            let other = self.sessions.at(index).is_some_and(|session| {
                session.is_alive()
                    && (session.inside(), session.realm(), session.outside())
                        != (kept.inside, kept.realm, kept.outside)
            });
            if other {
                self.end(index, now);
                cleared = true;
            }
        }
        cleared
    }

    fn apply_asked(&mut self, kept: &KeptMapping, past: ImportClock) -> Result<(), SkipReason> {
        let before = match self.mapped_inside(kept.inside, kept.protocol, kept.realm) {
            Some(Mapped::Session(index)) => self.asked.mapping(index).cloned(),
            _ => None,
        };
        // Nothing is new of most of them: what is there is not made again.
        let same = |explicit: &Explicit| {
            explicit.nonce == kept.nonce
                && explicit.filters.len() == usize::from(kept.filters)
                && explicit.filters.iter().zip(&kept.lets_in).all(|(filter, (address, bits, port))| {
                    (filter.network, filter.port)
                        == (Prefix::new(Ipv4Addr::from_bits(*address), *bits), *port)
                })
                && explicit.until.abs_diff(past.now + (u64::from(kept.left) << 20)) < 1 << 24
        };
        if before.as_ref().is_some_and(same) { Ok(()) } else { self.import_asked(kept, past) }
    }

    /// One that has no session here either is no subscriber any more.
    fn forget_subscriber(&mut self, number: u32, now: u64) {
        if self.subscribers.at(number).is_some_and(|line| line.sessions == 0) {
            self.release_subscriber(number, now);
        }
    }
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
