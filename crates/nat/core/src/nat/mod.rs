//! One worker's NAT: everything it knows, and nothing that it shares.

mod ahead;
mod change;
mod changes;
mod clear;
mod ending;
mod expire;
mod fast;
mod forward_log;
mod fragment;
mod fragment_out;
mod hop;
mod icmp;
mod icmp_reply;
mod lifecycle;
mod mapping;
mod pages;
mod pcp_mapping;
mod public;
mod repool;
mod slow;
mod slow_path_packet;
mod syn_hold;
mod tcp;
#[cfg(test)]
mod testing;

pub use change::ForwardConflict;
pub(crate) use changes::Change;
pub use clear::ClearBounds;
pub use fast::{BURST, BurstMask};
pub(crate) use icmp::Quote;
pub use icmp::{reported_sender, reported_subscriber};
pub(crate) use lifecycle::Flow;
pub(crate) use mapping::Mapped;

use self::ahead::SlowPathPrefetch;
use self::change::RemovedForwards;
use self::changes::Changes;
use self::ending::Endings;
use self::forward_log::ForwardLog;
use self::fragment::Fragments;
use self::icmp_reply::Replies;
use self::repool::Drain;
use self::syn_hold::SynHold;
use crate::config::{Config, ConfigError, PoolAddress, StaticForward, Timeouts};
use crate::cpu;
use crate::event::{Event, Events};
use crate::expiry::Wheel;
use crate::explicit::ExplicitMappings;
use crate::hash::Hasher;
use crate::key::{Endpoint, Key, Realm};
use crate::memory;
use crate::outbox::Outbox;
use crate::pool::Pool;
use crate::reason::{Drops, Reason};
use crate::session::{NONE, Session, State, Tick, ticks};
use crate::sessions::Sessions;
use crate::sites::Sites;
use crate::subscriber::{Subscriber, Subscribers};
use crate::table::Table;
use crate::untranslated::Untranslated;
use crate::verdict::{Forward, Frame, Side, StopReason, Verdict};
use arrayvec::ArrayVec;
use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Lines that are looked at for sessions to end, for each session that is looked at for its time: they lie in a row.
const LINES: usize = 2;
/// Random numbers that are drawn together.
const DRAWN: usize = 16;

/// What was forwarded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForwardedCounts {
    /// Packets from the inside.
    pub up: u64,
    /// Packets from the outside.
    pub down: u64,
    /// Of both, those that the slow path decided.
    pub slow: u64,
}

/// Bytes that tables take when full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The session table's buckets.
    pub table: usize,
    /// The sessions.
    pub sessions: usize,
    /// What finds mappings.
    pub mappings: usize,
    /// The timer wheel.
    pub timers: usize,
    /// Subscribers and what finds them.
    pub subscribers: usize,
}

impl Memory {
    /// All together.
    pub fn total(&self) -> usize {
        self.table + self.sessions + self.mappings + self.timers + self.subscribers
    }
}

/// Idle times in ticks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Idle {
    udp: u32,
    icmp: u32,
    established: u32,
    opening: u32,
    closing: u32,
    pub(crate) subscriber: u32,
}

impl Idle {
    fn new(timeouts: &Timeouts) -> Self {
        Self {
            udp: ticks(timeouts.udp),
            icmp: ticks(timeouts.icmp),
            established: ticks(timeouts.tcp_established),
            opening: ticks(timeouts.tcp_opening),
            closing: ticks(timeouts.tcp_closing),
            subscriber: ticks(timeouts.idle_subscriber),
        }
    }

    /// How long a session lives without packets.
    #[inline]
    pub(crate) fn of(&self, session: &Session) -> u32 {
        self.of_state(session.protocol(), session.state())
    }

    /// How long one of this protocol in this state does.
    #[inline]
    pub(crate) fn of_state(&self, carried: u8, state: State) -> u32 {
        match state {
            State::Open if carried == packet::layers::protocol::ICMP => self.icmp,
            State::Open => self.udp,
            State::Established | State::FinUp | State::FinDown => self.established,
            State::SynUp | State::SynDown => self.opening,
            _ => self.closing,
        }
    }
}

/// One worker's NAT. Time is told, in ns; frames are changed in place.
#[derive(Debug)]
pub struct Nat {
    pub(crate) config: Config,
    pub(crate) hasher: Hasher,
    /// Under a secret of its own, so that no port tells anything of the tables.
    random: Hasher,
    drawn: u128,
    drawn_ahead: ArrayVec<u64, DRAWN>,
    pub(crate) table: Table,
    pub(crate) sessions: Sessions,
    pub(crate) mappings: Table,
    pub(crate) wheel: Wheel,
    pub(crate) idle: Idle,
    /// Another NAT says when sessions are over.
    pub(crate) is_standby: bool,
    pub(crate) subscribers: Subscribers,
    /// Those that had no session when they were put here, and since when.
    pub(crate) idle_subscribers: VecDeque<(u32, Tick)>,
    pub(crate) pool: Pool,
    pub(crate) sites: Option<Sites>,
    pub(crate) forwards: Vec<StaticForward>,
    pub(crate) forward_log: ForwardLog,
    /// The first forward of each subscriber that has some.
    pub(crate) forwarded_to: HashMap<(u32, Realm), u32>,
    /// Where subscribers are that are spoken to without translation; all workers share it.
    pub(crate) untranslated: Arc<Untranslated>,
    pub(crate) asked: ExplicitMappings,
    pub(crate) endings: Endings,
    pub(crate) removed: RemovedForwards,
    pub(crate) drain: Drain,
    pub(crate) changes: Changes,
    pub(crate) ahead: SlowPathPrefetch,
    /// Bytes of the tables that are populated.
    populated: usize,
    pub(crate) fragments: Fragments,
    pub(crate) syns: SynHold,
    pub(crate) replies: Replies,
    pub(crate) outbox: Outbox,
    pub(crate) events: Events,
    pub(crate) drops: Drops,
    /// Of these, what was held and then dropped.
    pub(crate) late_drops: Drops,
    pub(crate) forwarded: ForwardedCounts,
    /// The sessions by which the last packet of the slow path went up and down.
    pub(crate) touched: [u32; 2],
    /// Sessions that searches may still end in this turn.
    ends: usize,
}

impl Nat {
    /// With the memory that the configuration asks for.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let pool = Pool::new(&config)?;
        if let Some(prefix) = config.deterministic {
            let (blocks, _) = pool.blocks();
            if prefix.size() > blocks {
                return Err(ConfigError::Deterministic { subscribers: prefix.size(), blocks });
            }
        }
        let mut other = config.seed;
        other.iter_mut().for_each(|byte| *byte = !*byte);
        let (hasher, random) = (Hasher::new(config.seed), Hasher::new(other));
        let idle = Idle::new(&config.timeouts);
        let forwards = config.static_forwards.clone();
        let untranslated = Arc::new(Untranslated::new(config.subscribers, config.seed));
        if !config.exempt.is_empty() {
            untranslated.make_room();
        }
        let mut nat = Self {
            table: Table::new(2 * config.sessions, 60)?,
            sessions: Sessions::new(config.sessions)?,
            // The packet path does not look here: it may be fuller.
            mappings: Table::new(2 * (config.sessions + forwards.len() + change::MORE), 85)?,
            wheel: Wheel::new(config.sessions)?,
            subscribers: Subscribers::new(config.subscribers)?,
            idle_subscribers: VecDeque::with_capacity(config.subscribers),
            asked: ExplicitMappings::default(),
            endings: Endings::default(),
            removed: RemovedForwards::default(),
            drain: Drain::default(),
            changes: Changes::default(),
            ahead: SlowPathPrefetch::default(),
            populated: 0,
            fragments: Fragments::new(&config),
            syns: SynHold::new(&config),
            replies: Replies::new(&config),
            outbox: Outbox::new(Outbox::places(&config), config.mtu.inside.max(config.mtu.outside)),
            events: Events::new(config.events),
            drops: Drops::default(),
            late_drops: Drops::default(),
            touched: [NONE; 2],
            ends: usize::MAX,
            forwarded: ForwardedCounts::default(),
            drawn: 0,
            drawn_ahead: ArrayVec::new(),
            idle,
            is_standby: false,
            pool,
            sites: config.sites.map(Sites::new),
            forward_log: ForwardLog::new(&forwards),
            forwards,
            forwarded_to: HashMap::new(),
            untranslated,
            hasher,
            random,
            config,
        };
        (0..nat.forwards.len()).for_each(|number| nat.index_forward(number));
        Ok(nat)
    }

    /// Take it away: one that has nothing, and room for hardly more, stays in its place.
    pub fn take(&mut self) -> Result<Self, ConfigError> {
        let nothing = Config {
            sessions: 1,
            subscribers: 1,
            pool: vec![PoolAddress::all_ports(Ipv4Addr::new(192, 0, 2, 1))],
            fragmented_packets: 1,
            held_fragments: 1,
            held_syns: 1,
            events: 0,
            ..Config::default()
        };
        Ok(std::mem::replace(self, Self::new(nothing)?))
    }

    /// Know where those are that send without translation together with other workers, by whom packets for them are steered.
    pub fn share_untranslated(&mut self, shared: &Arc<Untranslated>) {
        self.untranslated = Arc::clone(shared);
        if !self.config.exempt.is_empty() {
            self.untranslated.make_room();
        }
    }

    /// A subscriber is no more: its address may be another's, also without translation.
    pub fn forget_untranslated(&self, inside: u32, realm: Realm) {
        self.untranslated.forget(inside, realm);
    }

    /// Translate a burst of frames that came in by one side; those are parsed that are not yet. Each gets its verdict; drops are counted.
    pub fn process(&mut self, side: Side, frames: &mut [Frame<'_>], now: u64) {
        for burst in frames.chunks_mut(BURST) {
            for frame in burst.iter() {
                cpu::prefetch(&*frame.bytes);
            }
            let forward = |_, frame: &mut Frame<'_>, to| frame.verdict = Verdict::Forward(to);
            let left = match side {
                Side::Inside => self.process_steady::<true>(burst, now, forward),
                Side::Outside => self.process_steady::<false>(burst, now, forward),
            };
            for at in left {
                self.process_left(side, &mut burst[at], now);
            }
        }
    }

    /// Of at most [`BURST`] frames, from the inside if `UP`, translate the plain packets of steady sessions; `forward` is told the number
    /// of each, and where it goes. The answer is which are left, for [`Nat::process_left`].
    #[inline(always)] // With what the caller does next, while the packet is at hand.
    pub fn process_steady<'f, const UP: bool>(
        &mut self,
        frames: &mut [Frame<'f>],
        now: u64,
        forward: impl FnMut(usize, &mut Frame<'f>, Forward),
    ) -> BurstMask {
        self.table.settle();
        let left = self.fast::<UP>(frames, now, forward);
        if !left.is_empty() {
            self.begin_ahead(if UP { Side::Inside } else { Side::Outside }, frames, left);
        }
        left
    }

    /// Decide on the next of the frames that are left: one that is broken has its verdict.
    pub fn process_left(&mut self, side: Side, frame: &mut Frame<'_>, now: u64) {
        if frame.verdict == Verdict::Pending {
            frame.verdict = self.process_slow(side, frame, now);
        }
        self.pass_left();
    }

    /// The next of the frames that are left is not for the NAT.
    #[inline]
    pub fn pass_left(&mut self) {
        self.step_ahead();
    }

    fn process_slow(&mut self, side: Side, frame: &mut Frame<'_>, now: u64) -> Verdict {
        match self.slow(side, frame.bytes, &frame.headers, now) {
            Ok(forward) => {
                self.count_forwarded(side);
                Verdict::Forward(forward)
            }
            Err(StopReason::Held) => Verdict::Held,
            Err(StopReason::Sent(_)) => {
                self.count_forwarded(side);
                Verdict::Held
            }
            Err(StopReason::Drop(reason)) => {
                self.drops.count(reason);
                Verdict::Drop(reason)
            }
        }
    }

    /// The slow path forwards a packet.
    fn count_forwarded(&mut self, from: Side) {
        match from {
            Side::Inside => self.forwarded.up += 1,
            Side::Outside => self.forwarded.down += 1,
        }
        self.forwarded.slow += 1;
    }

    /// Take the next `bytes` of the tables' memory; whether there is more. What is taken before it is used need not be waited for when
    /// packets do, and it is memory of the caller's NUMA node.
    pub fn populate(&mut self, bytes: usize) -> bool {
        let [lines, names] = self.subscribers.memory();
        let (table, sessions) = (self.table.memory(), self.sessions.memory());
        let all = [table, sessions, self.mappings.memory(), self.wheel.memory(), lines, names];
        let before = self.populated;
        self.populated = memory::populate(&all, before, bytes);
        self.populated == before + bytes
    }

    /// Let time pass: sessions, fragments, held SYNs and subscribers whose time has come are over. At most about `budget`
    /// sessions are looked at; the answer is whether more are due.
    pub fn advance(&mut self, now: u64, budget: usize) -> bool {
        self.ends = usize::MAX;
        self.advance_by(now, budget, budget)
    }

    /// The same `passed` ns after the last time, between packets: what ends at the same moment is ended little by little, unless
    /// there is hardly room for new sessions. Of sessions that end because something else is gone, at most `ends` do.
    pub fn advance_turn(&mut self, now: u64, passed: u64, budget: usize, ends: usize) -> bool {
        self.ends = ends;
        self.advance_by(now, self.scan_budget(now, passed).min(budget), budget)
    }

    /// End a session that a search has found. `false`: not in this turn any more.
    pub(crate) fn end_in_turn(&mut self, index: u32, now: u64) -> bool {
        let Some(left) = self.ends.checked_sub(1) else { return false };
        self.ends = left;
        self.end(index, now);
        true
    }

    fn advance_by(&mut self, now: u64, looks: usize, budget: usize) -> bool {
        let more = self.expire(now, looks);
        self.expire_subscribers(now);
        let more = self.advance_endings(now, LINES * budget) || more;
        let more = self.advance_removed(now, LINES * budget) || more;
        let more = self.advance_sites(now, LINES * budget) || more;
        let more = self.advance_drain(now, LINES * budget) || more;
        for _ in 0..self.fragments.expire(now, &mut self.outbox) {
            self.drop_held(Reason::FragmentTimeout);
        }
        self.answer_syns(now);
        more
    }

    /// The next packet that the NAT sends by itself, from its IP header on: an ICMP error, or a fragment that was held.
    pub fn pop_output(&mut self) -> Option<(Forward, &[u8])> {
        self.outbox.pop()
    }

    /// Send a packet of the box's own, made of parts from its IP header on. `false`: there is no room for it now.
    pub fn send_own(&mut self, parts: &[&[u8]], forward: Forward) -> bool {
        let kept = self.outbox.keep_parts(parts);
        if let Some(slot) = kept {
            self.outbox.send(slot, forward);
        }
        kept.is_some()
    }

    /// The next record for the log.
    pub fn pop_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Records that found no room.
    pub fn events_lost(&self) -> u64 {
        self.events.lost()
    }

    /// Drops, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Of these, packets that were held, for which nobody got a verdict but [`Verdict::Held`].
    pub fn late_drops(&self) -> &Drops {
        &self.late_drops
    }

    /// A packet that was held is dropped.
    pub(crate) fn drop_held(&mut self, reason: Reason) {
        self.drops.count(reason);
        self.late_drops.count(reason);
    }

    /// What was forwarded.
    pub fn forwarded(&self) -> ForwardedCounts {
        self.forwarded
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// All sessions, with their numbers; among them mappings that were asked for, with the state [`State::Pinned`].
    pub fn sessions(&self) -> impl Iterator<Item = (u32, &Session)> {
        self.sessions.alive()
    }

    /// How many sessions there are.
    pub fn session_count(&self) -> usize {
        self.table.len() / 2
    }

    /// All subscribers, with their numbers.
    pub fn subscribers(&self) -> impl Iterator<Item = (u32, &Subscriber)> {
        self.subscribers.iter()
    }

    /// Bytes the tables take when full.
    pub fn memory(&self) -> Memory {
        Memory {
            table: self.table.size(),
            sessions: self.sessions.size(),
            mappings: self.mappings.size(),
            timers: self.wheel.size(),
            subscribers: self.subscribers.size(),
        }
    }

    /// A number that nobody can guess.
    pub(crate) fn draw(&mut self) -> u64 {
        if self.drawn_ahead.is_empty() {
            // Together they take little more time than one.
            let keys: [Key; DRAWN] = std::array::from_fn(|at| Key(self.drawn + (DRAWN - at) as u128));
            let mut numbers = [0; DRAWN];
            self.random.hash_all(&keys, &mut numbers);
            self.drawn += DRAWN as u128;
            self.drawn_ahead = numbers.into();
        }
        self.drawn_ahead.pop().unwrap_or_default()
    }

    /// Who may have an endpoint of the pool in deterministic mode (RFC 7422): its address. `None`: nobody, or the mode is another.
    pub fn deterministic_subscriber(&self, outside: Endpoint) -> Option<Ipv4Addr> {
        let prefix = self.config.deterministic?;
        let index =
            self.pool.index_of(outside.address, outside.port).filter(|index| *index < prefix.size())?;
        Some(Ipv4Addr::from_bits(prefix.address.to_bits().wrapping_add(index as u32)))
    }
}
