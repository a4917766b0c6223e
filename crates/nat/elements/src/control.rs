//! What is asked of a connection tracker at work: its sessions and subscribers page by page, and its numbers.
//!
//! A request looks at a bounded number of lines, so that packets wait for it no longer than for a burst. A page may so be short, or
//! empty, and yet not be the last: that one has no `next`.

use crate::filter::protocol_name;
pub use crate::filter::{SessionFilter, protocol_number};
use crate::log::Log;
use crate::pcp::Answers;
use crate::state::Tally;
use crate::tracker_pair::TrackerPair;
use engine::{Mail, Request};
use nat_core::session::State;
use nat_core::subscriber::Subscriber;
use nat_core::{Endpoint, Nat, Realm, Session, Usage};
use nat_pair::PairView;
use serde::ser::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

/// The kind of elements that understand these requests.
pub const KIND: &str = "nat44";
/// Lines of a table that one request looks at: 128 KiB, some 10 µs.
pub const LINES: u32 = 2048;
/// Words of the pool's bits that one request looks at: 128 KiB, too.
const WORDS: usize = 16 << 10;
/// Entries of a page.
pub const PAGE: usize = 256;

/// Ask for sessions.
#[derive(Debug, Clone, Copy)]
pub struct Sessions {
    /// The line of the table to begin at: 0, or what the page before said.
    pub from: u32,
    /// How many at most; never more than [`PAGE`].
    pub limit: usize,
    /// Which.
    pub filter: SessionFilter,
}

/// Some sessions.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPage {
    /// The sessions.
    pub sessions: Vec<SessionView>,
    /// The line to go on from. `None`: that was all.
    pub next: Option<u32>,
}

impl Request for Sessions {
    type Reply = SessionPage;
}

/// A session as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct SessionView {
    /// `udp`, `tcp` or `icmp`.
    pub protocol: &'static str,
    /// The subscriber's endpoint; of an ICMP query its identifier stands for the port.
    pub inside: SocketAddrV4,
    /// What stands for it outside.
    pub outside: SocketAddrV4,
    /// Whom it talks to; `None` for a mapping that was asked for, which waits for whoever comes.
    pub remote: Option<SocketAddrV4>,
    /// The subscriber's tags.
    pub vlans: Vlans,
    /// The state's name, see [`State::name`].
    pub state: &'static str,
    /// Seconds since its last packet.
    pub idle_s: f64,
    /// Packets from the inside, since it began or was last reported to the log.
    pub packets_up: u64,
    /// Bytes of these IP packets.
    pub bytes_up: u64,
    /// Packets from the outside, since it began or was last reported to the log.
    pub packets_down: u64,
    /// Bytes of these IP packets.
    pub bytes_down: u64,
}

impl SessionView {
    fn new(session: &Session, now: u64) -> Self {
        let address = |end: Endpoint| SocketAddrV4::new(Ipv4Addr::from_bits(end.address), end.port);
        let (state, passed) = (session.state(), session.volume());
        Self {
            protocol: protocol_name(session.protocol()),
            inside: address(session.inside()),
            outside: address(session.outside()),
            remote: (state != State::Pinned).then(|| address(session.remote())),
            vlans: Vlans::of(session.realm()),
            state: state.name(),
            // As exact as it is kept.
            idle_s: (session.idle(now) / 1_000_000) as f64 / 1e3,
            packets_up: passed.packets_up,
            bytes_up: passed.bytes_up,
            packets_down: passed.packets_down,
            bytes_down: passed.bytes_down,
        }
    }
}

/// VLAN ids of a subscriber, the outer tag's first; a list when shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Vlans {
    ids: [u16; 2],
    count: u8,
}

impl Vlans {
    /// Those that a realm stands for.
    pub fn of(realm: Realm) -> Self {
        let ids = [(realm >> 12 & 0xfff) as u16, (realm & 0xfff) as u16];
        let count = if realm == 0 { 0 } else { 1 + u8::from(ids[1] != 0) };
        Self { ids, count }
    }

    /// The ids.
    pub fn ids(&self) -> &[u16] {
        self.ids.get(..self.count.into()).unwrap_or(&[])
    }
}

impl Serialize for Vlans {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.ids().serialize(serializer)
    }
}

/// Ask for subscribers.
#[derive(Debug, Clone, Copy)]
pub struct Subscribers {
    /// The line of the table to begin at: 0, or what the page before said.
    pub from: u32,
    /// How many at most; never more than [`PAGE`].
    pub limit: usize,
    /// Only those with this address; they differ by their tags.
    pub subscriber: Option<Ipv4Addr>,
}

/// Some subscribers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriberPage {
    /// The subscribers.
    pub subscribers: Vec<SubscriberView>,
    /// The line to go on from. `None`: that was all.
    pub next: Option<u32>,
}

impl Request for Subscribers {
    type Reply = SubscriberPage;
}

/// A subscriber as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SubscriberView {
    /// The private address.
    pub address: Ipv4Addr,
    /// Its tags.
    pub vlans: Vlans,
    /// The address outside; `None` until it has a port block.
    pub outside: Option<Ipv4Addr>,
    /// How many sessions it has.
    pub sessions: u32,
    /// First and last port of each of its blocks.
    pub blocks: Vec<(u16, u16)>,
}

impl SubscriberView {
    fn new(nat: &Nat, subscriber: &Subscriber) -> Self {
        Self {
            address: subscriber.inside(),
            vlans: Vlans::of(subscriber.realm()),
            outside: nat.blocks_of(subscriber).next().map(|(address, _)| address),
            sessions: subscriber.sessions(),
            blocks: nat.blocks_of(subscriber).map(|(_, ports)| ports).collect(),
        }
    }
}

/// Ask for what is used of the pool, address by address.
#[derive(Debug, Clone, Copy)]
pub struct Pools {
    /// The number of the address to begin at: 0, or what the page before said.
    pub from: u32,
    /// How many at most; never more than [`PAGE`].
    pub limit: usize,
}

/// Some addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolPage {
    /// The addresses.
    pub pools: Vec<PoolView>,
    /// The number to go on from. `None`: that was all.
    pub next: Option<u32>,
}

impl Request for Pools {
    type Reply = PoolPage;
}

/// An address as it is shown, or the part of it that a worker has.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PoolView {
    /// The address.
    pub address: Ipv4Addr,
    /// First and last port that are given out.
    pub ports: (u16, u16),
    /// Its port blocks.
    pub blocks: u32,
    /// Of these, those that nobody has.
    pub blocks_free: u32,
    /// Subscribers that have blocks of it, or sessions left.
    pub subscribers: u32,
    /// Whether nothing begins on it any more: it is given up with its last session.
    pub draining: bool,
    /// Ports in use.
    pub used: ByProtocol,
    /// Ports in quarantine (RFC 6888 REQ-8).
    pub resting: ByProtocol,
}

/// A number of ports of each protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct ByProtocol {
    /// Of TCP.
    pub tcp: u32,
    /// Of UDP.
    pub udp: u32,
    /// Identifiers of ICMP queries.
    pub icmp: u32,
}

impl From<[u32; 3]> for ByProtocol {
    fn from([tcp, udp, icmp]: [u32; 3]) -> Self {
        Self { tcp, udp, icmp }
    }
}

impl From<&Usage> for PoolView {
    fn from(usage: &Usage) -> Self {
        let Usage { address, ports, blocks, blocks_free, subscribers, draining, used, resting } = *usage;
        let (used, resting) = (used.into(), resting.into());
        Self { address, ports, blocks, blocks_free, subscribers, draining, used, resting }
    }
}

/// Ask for a tracker's numbers.
#[derive(Debug, Clone, Copy)]
pub struct Status;

impl Request for Status {
    type Reply = StatusView;
}

/// A tracker's numbers. Counters are since the start.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct StatusView {
    /// Sessions there are.
    pub sessions: u64,
    /// Sessions there may be.
    pub most_sessions: u64,
    /// Subscribers there are.
    pub subscribers: u64,
    /// Subscribers there may be.
    pub most_subscribers: u64,
    /// Addresses of its pool.
    pub addresses: u64,
    /// Port blocks of these addresses.
    pub blocks: u64,
    /// Of these, those that nobody has.
    pub blocks_free: u64,
    /// Packets forwarded from the inside.
    pub forwarded_up: u64,
    /// Packets forwarded from the outside.
    pub forwarded_down: u64,
    /// Of both, those that the slow path decided: the first of a session, ICMP errors, fragments.
    pub slow: u64,
    /// Packets dropped by the NAT, by reason; reasons that there were.
    pub drops: BTreeMap<&'static str, u64>,
    /// Answers of the PCP server, by result code; those that there were.
    pub pcp: BTreeMap<&'static str, u64>,
    /// Bytes that its tables take when full.
    pub memory_bytes: u64,
    /// Records that did not reach a collector, see [`Log::lost`]; 0 without a log.
    pub log_lost: u64,
    /// Refusals that were not logged, see [`Log::suppressed`].
    pub log_suppressed: u64,
    /// What became of the state that was kept before it began; `None` if there was none.
    pub restored: Option<Tally>,
}

/// Ask for the pair that a NAT is one of; `None`: it is of none.
#[derive(Debug, Clone, Copy)]
pub struct PairStatus;

impl Request for PairStatus {
    type Reply = Option<PairView>;
}

/// Let the standby of a pair go on in place of this NAT. An error says why that cannot be now.
#[derive(Debug, Clone, Copy)]
pub struct HandOver;

impl Request for HandOver {
    type Reply = Result<(), &'static str>;
}

const NO_PAIR: &str = "this NAT has no `pair`";

/// What a tracker has beside its tables.
#[derive(Debug, Clone, Copy, Default)]
pub struct TrackerParts<'a> {
    /// Its log.
    pub log: Option<&'a Log>,
    /// Who answers requests for mappings.
    pub pcp: Option<&'a Answers>,
    /// What became of the state that was kept before it began.
    pub restored: Option<&'a Tally>,
    /// The other NAT that takes over.
    pub pair: Option<&'a TrackerPair>,
}

/// Answer what this module knows. Mail that is something else is given back.
pub fn answer(nat: &Nat, beside: TrackerParts<'_>, mail: Mail, now: u64) -> Result<(), Mail> {
    mail.answer(|asked: Sessions| sessions(nat, &asked, now))
        .or_else(|mail| mail.answer(|asked: Subscribers| subscribers(nat, &asked)))
        .or_else(|mail| mail.answer(|asked: Pools| pools(nat, asked, now)))
        .or_else(|mail| mail.answer(|_: Status| status(nat, beside)))
        .or_else(|mail| mail.answer(|_: PairStatus| beside.pair.map(TrackerPair::view)))
        .or_else(|mail| mail.answer(|_: HandOver| beside.pair.map_or(Err(NO_PAIR), TrackerPair::hand_over)))
}

/// A page of sessions.
pub fn sessions(nat: &Nat, asked: &Sessions, now: u64) -> SessionPage {
    let (lines, after) = nat.sessions_from(asked.from, LINES);
    let wanted = lines.filter(|(_, session)| asked.filter.matches(session));
    let (sessions, next) = page(wanted, after, asked.limit, |session| SessionView::new(session, now));
    SessionPage { sessions, next }
}

/// A page of subscribers.
pub fn subscribers(nat: &Nat, asked: &Subscribers) -> SubscriberPage {
    let (lines, after) = nat.subscribers_from(asked.from, LINES);
    let wanted = lines.filter(|(_, line)| asked.subscriber.is_none_or(|wanted| wanted == line.inside()));
    let (subscribers, next) = page(wanted, after, asked.limit, |line| SubscriberView::new(nat, line));
    SubscriberPage { subscribers, next }
}

/// A page of addresses.
pub fn pools(nat: &Nat, asked: Pools, now: u64) -> PoolPage {
    let (found, next) = nat.pool().usage_from(asked.from, (asked.limit.clamp(1, PAGE), WORDS), now);
    PoolPage { pools: found.iter().map(PoolView::from).collect(), next }
}

/// The numbers.
pub fn status(nat: &Nat, beside: TrackerParts<'_>) -> StatusView {
    let TrackerParts { log, pcp, restored, .. } = beside;
    let (config, forwarded, (blocks, blocks_free)) = (nat.config(), nat.forwarded(), nat.pool().blocks());
    StatusView {
        sessions: nat.session_count() as u64,
        most_sessions: config.sessions as u64,
        subscribers: nat.subscriber_count() as u64,
        most_subscribers: config.subscribers as u64,
        addresses: nat.pool().addresses() as u64,
        blocks,
        blocks_free,
        forwarded_up: forwarded.up,
        forwarded_down: forwarded.down,
        slow: forwarded.slow,
        drops: nat.drops().iter().map(|(reason, count)| (reason.name(), count)).collect(),
        pcp: pcp.map(Answers::results).unwrap_or_default(),
        memory_bytes: nat.memory().total() as u64,
        log_lost: log.map_or(0, Log::lost),
        log_suppressed: log.map_or(0, Log::suppressed),
        restored: restored.cloned(),
    }
}

/// The first `limit` of these lines as they are shown, and where to go on: at the first that found no room, or `after` them all.
fn page<'a, L: 'a, V>(
    lines: impl Iterator<Item = (u32, &'a L)>,
    after: Option<u32>,
    limit: usize,
    view: impl Fn(&L) -> V,
) -> (Vec<V>, Option<u32>) {
    let limit = limit.clamp(1, PAGE);
    let mut found = Vec::with_capacity(limit);
    for (number, line) in lines {
        if found.len() == limit {
            return (found, Some(number));
        }
        found.push(view(line));
    }
    (found, after)
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
