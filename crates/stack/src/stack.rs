//! A stack: its connections, their owners, and frames in and out.

use crate::config::{Config, MS};
use crate::connection::{CloseReason, Connection, Deadline, Env, NEVER, Pool, State, Tuple, flag};
use crate::counters::{Counters, DropReason};
use crate::fragments::Fragments;
use crate::listening::Listening;
use crate::neighbours::{Change, Neighbours, next_hop, own};
use crate::path_mtu::{PathMtus, segment_size};
use crate::ports::Ports;
use crate::seq::Seq;
use crate::share::Recipient;
use crate::sockets::Sockets;
use crate::table::Table;
use datagrams::SOCKET;
use packet::Mac;
use packet::tcp::{Header, flag as control};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use timer::TimerWheel;

mod calls;
mod datagrams;
mod frames;
mod icmp;
mod passive;
mod transmit;
mod unreachable;

/// Names a connection to its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle {
    index: u32,
    generation: u32,
}

/// Something can be done with a connection again. Told once each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Who owns it.
    pub owner: u64,
    /// Bytes can be read, or the end was reached.
    pub readable: bool,
    /// It came up, or takes more.
    pub writable: bool,
    /// The peer sends no more, or it broke.
    pub ended: bool,
}

/// Result of [`Stack::read`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Nothing for now.
    Dry,
    /// So many bytes; whether more can be read at once.
    Bytes(usize, bool),
    /// The peer has closed, and all that it sent was read.
    End,
}

/// Why a connection cannot begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// All ports towards this peer are in use.
    #[error("out of local ports")]
    NoPort,
    /// There are as many connections as the stack was made for.
    #[error("too many connections")]
    NoRoom,
    /// The peer is in no network of ours, and there is no router.
    #[error("network unreachable")]
    NoRoute,
}

/// State of a connection as its owner sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Its state.
    pub state: State,
    /// Whether the handshake is over.
    pub is_up: bool,
    /// Bytes that were given to it and never sent.
    pub unsent: usize,
    /// Bytes that were given to it and are not acknowledged.
    pub held: usize,
    /// Our end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
}

/// Connections of one port of a network, on one core.
#[derive(Debug)]
pub struct Stack {
    config: Config,
    table: Table,
    connections: Vec<Connection>,
    free: Vec<u32>,
    pool: Pool,
    timers: TimerWheel<u32>,
    /// Connections whose deadline found the wheel full: looked at each time.
    untimed: Vec<u32>,
    /// Connections with something to send.
    queue: VecDeque<u32>,
    /// Connections with events.
    told: VecDeque<u32>,
    neighbours: Neighbours,
    paths: PathMtus,
    ports: Ports,
    sockets: Sockets,
    /// The datagram socket that hears everybody.
    listening: Option<Listening>,
    fragments: Fragments,
    /// Identification of the next packet that is cut.
    identification: u32,
    /// Memory for a packet that is cut, or put together.
    whole: Vec<u8>,
    /// Most half-open connections of each port that is listened at, and how many there are.
    listeners: HashMap<u16, usize>,
    half_open: usize,
    /// Until when cookies are redeemed, ns.
    cookies_until: u64,
    accepted: VecDeque<Handle>,
    /// Connections that are only remembered, the oldest first: they make room for new ones.
    remembered: VecDeque<Handle>,
    /// How many ICMP errors may be sent.
    errors: unreachable::Limit,
    /// Frames that are ready.
    replies: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    counters: Counters,
}

/// Replies that wait to be sent, at most.
const REPLIES: usize = 1024;

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

/// Keyed hash of both ends.
fn hash([a, b]: [u64; 2], tuple: &Tuple) -> u64 {
    let halves = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => (u64::from(ip.to_bits()), 4),
        IpAddr::V6(ip) => ((ip.to_bits() >> 64) as u64, ip.to_bits() as u64),
    };
    let (l0, l1) = halves(tuple.local);
    let (r0, r1) = halves(tuple.remote);
    let ports = u64::from(tuple.local_port) << 16 | u64::from(tuple.remote_port);
    let once = fold(l0 ^ a, r0 ^ b);
    let twice = fold(once ^ l1 ^ b, r1.rotate_left(17) ^ ports ^ a);
    fold(twice ^ 0x9e37_79b9_7f4a_7c15, b | 1)
}

impl Stack {
    /// Without connections.
    pub fn new(mut config: Config) -> Self {
        config.addresses.sort_unstable();
        config.addresses.dedup();
        Self {
            table: Table::new(config.connections),
            connections: Vec::with_capacity(config.connections),
            free: Vec::new(),
            pool: Pool::default(),
            timers: TimerWheel::new(config.connections.saturating_mul(2) + 1024),
            untimed: Vec::new(),
            queue: VecDeque::new(),
            told: VecDeque::new(),
            neighbours: Neighbours::new(),
            paths: PathMtus::default(),
            ports: Ports::new(config.ports.clone(), config.secret[0]),
            sockets: Sockets::new(config.sockets, config.ports.clone(), config.secret[1]),
            listening: None,
            fragments: Fragments::default(),
            identification: config.secret[1] as u32,
            whole: Vec::new(),
            listeners: HashMap::new(),
            half_open: 0,
            cookies_until: 0,
            accepted: VecDeque::new(),
            remembered: VecDeque::new(),
            errors: unreachable::Limit::default(),
            replies: VecDeque::new(),
            spare: Vec::new(),
            counters: Counters::default(),
            config,
        }
    }

    /// What it counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Connections that are there, those that are closing or remembered included.
    pub fn connections(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    /// Connections that were let go and are not closed yet: those that are only remembered do not count.
    pub fn closing(&self) -> usize {
        let waits = |conn: &&Connection| {
            conn.has(flag::ORPHAN)
                && (conn.has(flag::SEND_RST) || !matches!(conn.state, State::Closed | State::TimeWait))
        };
        self.connections.iter().filter(waits).count()
    }

    /// Buffers that are in use.
    pub fn buffers(&self) -> usize {
        self.pool.lent
    }

    /// Bytes of memory that the send buffers of connections take. What is sent by [`write_shared`](Self::write_shared) takes none.
    pub fn send_memory(&self) -> usize {
        self.connections.iter().flat_map(|conn| &conn.active).map(|active| active.send.memory()).sum()
    }

    /// Whether it has this address.
    pub fn owns(&self, ip: IpAddr) -> bool {
        self.config.addresses.binary_search(&ip).is_ok()
    }

    /// The address with which it is in the network of the next hop to `ip`, if it is in it.
    pub fn address_towards(&self, ip: IpAddr) -> Option<IpAddr> {
        let hop = next_hop(&self.config, ip)?;
        self.config.networks.iter().any(|network| network.contains(hop)).then(|| own(&self.config, hop))?
    }

    fn hash(&self, tuple: &Tuple) -> u64 {
        hash(self.config.secret, tuple)
    }

    fn find(&self, hash: u64, tuple: &Tuple) -> Option<u32> {
        self.table.find(hash as u32, |index| {
            self.connections.get(index as usize).is_some_and(|conn| conn.tuple == *tuple)
        })
    }

    fn mss(&self, ip: IpAddr) -> u16 {
        segment_size(self.config.mtu, ip.is_ipv4()).min(self.config.tcp.mss)
    }

    /// A number for a new connection, in the table. `None`: there are too many.
    fn add(&mut self, tuple: Tuple, state: State, now: u64) -> Result<u32, ConnectError> {
        let hop = next_hop(&self.config, tuple.remote).ok_or(ConnectError::NoRoute)?;
        let full =
            self.free.is_empty() && self.connections.len() >= self.config.connections && !self.make_room();
        if full {
            return Err(ConnectError::NoRoom);
        }
        let neighbour = self.neighbours.hold(hop).ok_or(ConnectError::NoRoom)?;
        let hash = self.hash(&tuple);
        // RFC 6528: a clock of 4 µs, and an offset that nobody else knows
        let iss = Seq((now / 4_000) as u32) + fold(hash, self.config.secret[0]) as u32;
        let mut conn = Connection::new(tuple, state, iss, self.mss(tuple.remote));
        conn.hash = hash as u32;
        conn.neighbour = neighbour;
        // the same for all connections between two hosts, so that it goes on where the last one ended (RFC 7323 section 7.1)
        let hosts = Tuple { local_port: 0, remote_port: 0, ..tuple };
        conn.ts_offset = self.hash(&hosts) as u32;
        if self.config.tcp.window_scale {
            let spare = u32::BITS - (self.config.tcp.receive_buffer >> 16).leading_zeros();
            conn.receive_scale = spare.min(14) as u8;
        }
        conn.set(flag::SEND_SYN | flag::IN_TABLE);
        let index = match self.free.pop() {
            Some(index) => {
                let place = &mut self.connections[index as usize];
                conn.generation = place.generation;
                *place = conn;
                index
            }
            None => {
                self.connections.push(conn);
                self.connections.len() as u32 - 1
            }
        };
        self.table.insert(hash as u32, index);
        Ok(index)
    }

    /// Forget the connection that has been remembered longest.
    fn make_room(&mut self) -> bool {
        while let Some(handle) = self.remembered.pop_front() {
            let conn = self.connections.get(handle.index as usize);
            if conn.is_some_and(|conn| conn.generation == handle.generation && conn.state == State::TimeWait)
            {
                self.remove(handle.index);
                return true;
            }
        }
        false
    }

    fn handle(&self, index: u32) -> Handle {
        Handle { index, generation: self.connections[index as usize].generation }
    }

    fn get(&self, handle: Handle) -> Option<&Connection> {
        self.connections.get(handle.index as usize).filter(|conn| conn.generation == handle.generation)
    }

    /// Begin to connect from one of our addresses; `owner` is told of what happens.
    pub fn connect(
        &mut self,
        local: IpAddr,
        remote: SocketAddr,
        owner: u64,
        now: u64,
    ) -> Result<Handle, ConnectError> {
        let mut old = None;
        let mut ports = std::mem::replace(&mut self.ports, Ports::new(0..=0, 0));
        let tuple = |local_port| Tuple { local, remote: remote.ip(), local_port, remote_port: remote.port() };
        let share = self.config.share;
        let port = ports.next(local, remote, |port| {
            let tuple = tuple(port);
            if !share.has((local, remote.ip()), (port, remote.port())) {
                return false;
            }
            old = self.find(self.hash(&tuple), &tuple);
            // RFC 6191: a port that is only remembered may be used again, with a higher sequence number
            old.is_none_or(|index| {
                let conn = &self.connections[index as usize];
                conn.state == State::TimeWait && conn.has(flag::ORPHAN)
            })
        });
        self.ports = ports;
        let port = port.ok_or(ConnectError::NoPort)?;
        let least = old.map(|index| {
            let nxt = self.connections[index as usize].nxt;
            self.remove(index);
            nxt + u32::from(u16::MAX)
        });
        let index = self.add(tuple(port), State::SynSent, now)?;
        let conn = &mut self.connections[index as usize];
        if let Some(least) = least {
            conn.iss = conn.iss.later(least);
            (conn.una, conn.nxt) = (conn.iss, conn.iss);
        }
        conn.owner = owner;
        self.counters.opened += 1;
        self.settle(index);
        Ok(self.handle(index))
    }

    fn call(&mut self, handle: Handle, now: u64) -> Option<Call<'_>> {
        let conn = self.connections.get_mut(handle.index as usize);
        let conn = conn.filter(|conn| conn.generation == handle.generation)?;
        Some(Call {
            conn,
            env: Env { now, config: &self.config.tcp, pool: &mut self.pool, counters: &mut self.counters },
        })
    }

    /// After something was done with a connection: queue it where it belongs, set its timer, and let go of it at its end.
    fn settle(&mut self, index: u32) {
        let conn = &mut self.connections[index as usize];
        if conn.state == State::Closed && conn.has(flag::IN_TABLE) {
            conn.clear(flag::IN_TABLE);
            self.table.remove(conn.hash, index);
            if conn.has(flag::PASSIVE) && !conn.has(flag::UP) {
                self.half_open -= 1;
            }
            if conn.has(flag::PASSIVE) && !conn.has(flag::ACCEPTED) {
                conn.set(flag::ORPHAN);
            }
        }
        if conn.has(flag::PASSIVE) && conn.has(flag::UP) && !conn.has(flag::ACCEPTED) {
            conn.set(flag::ACCEPTED);
            self.half_open -= 1;
            self.accepted.push_back(Handle { index, generation: conn.generation });
        }
        if conn.state == State::Closed && conn.has(flag::ORPHAN) && !conn.has(flag::SEND_RST) {
            return self.remove(index);
        }
        if conn.state == State::TimeWait && conn.has(flag::ORPHAN) && !conn.has(flag::REMEMBERED) {
            conn.set(flag::REMEMBERED);
            self.remembered.push_back(Handle { index, generation: conn.generation });
        }
        if !conn.has(flag::QUEUED) && conn.wants_to_send() {
            conn.set(flag::QUEUED);
            self.queue.push_back(index);
        }
        if conn.events != 0 && !conn.has(flag::TOLD) {
            conn.set(flag::TOLD);
            self.told.push_back(index);
        }
        let at = conn.next_at();
        if at < conn.timer_at {
            conn.timer_at = at;
            if self.timers.push(at, index).is_err() {
                conn.timer_at = NEVER;
                self.untimed.push(index);
            }
        }
    }

    /// Forget a connection.
    fn remove(&mut self, index: u32) {
        let conn = &mut self.connections[index as usize];
        if conn.has(flag::IN_TABLE) {
            self.table.remove(conn.hash, index);
        }
        conn.release(&mut self.pool);
        self.neighbours.release(conn.neighbour);
        let was_remembered = conn.has(flag::REMEMBERED);
        // places in lists that it still has are passed over
        conn.generation = conn.generation.wrapping_add(1);
        conn.flags &= flag::QUEUED | flag::TOLD;
        conn.state = State::Closed;
        conn.events = 0;
        (conn.deadline_at, conn.ack_at, conn.timer_at) = (NEVER, NEVER, NEVER);
        self.free.push(index);
        while was_remembered && self.remembered.front().is_some_and(|first| self.get(*first).is_none()) {
            self.remembered.pop_front();
        }
    }

    /// The time is `now`: what is due happens.
    pub fn advance(&mut self, now: u64) {
        let (config, replies, spare) = (&self.config, &mut self.replies, &mut self.spare);
        let counters = &mut self.counters;
        let change = self.neighbours.advance(now, |ip| frames::solicit(config, ip, replies, spare, counters));
        if let Some(change) = change {
            self.neighbour_changed(change, now);
        }
        while let Some((at, index)) = self.timers.pop(now) {
            self.timer(index, at, now);
        }
        for index in std::mem::take(&mut self.untimed) {
            let due = self.connections.get(index as usize).is_some_and(|conn| conn.next_at() <= now);
            if due {
                self.timer(index, NEVER, now);
            } else {
                self.settle(index);
            }
        }
    }

    fn timer(&mut self, index: u32, at: u64, now: u64) {
        let Some(conn) = self.connections.get_mut(index as usize) else { return };
        // an earlier deadline took its place, or the connection is gone
        if conn.timer_at != at {
            return;
        }
        conn.timer_at = NEVER;
        if conn.next_at() <= now {
            let (pool, counters) = (&mut self.pool, &mut self.counters);
            conn.timer(&mut Env { now, config: &self.config.tcp, pool, counters });
        }
        self.settle(index);
    }

    /// A time before which nothing is due.
    pub fn next_at(&self) -> u64 {
        let ready = !self.queue.is_empty() || !self.replies.is_empty() || !self.told.is_empty();
        if ready || !self.untimed.is_empty() || self.sockets.is_busy() {
            0
        } else {
            self.timers.next_at().min(self.neighbours.next_at())
        }
    }

    /// Those who waited for a neighbour go on, or have failed.
    fn neighbour_changed(&mut self, change: Change, now: u64) {
        for index in change.waiting {
            if index & SOCKET != 0 {
                let neighbours = &self.neighbours;
                let is_silent = |number| neighbours.is_silent(number);
                self.sockets.neighbour_changed(index & !SOCKET, change.found, is_silent);
                continue;
            }
            let Some(conn) = self.connections.get_mut(index as usize) else { continue };
            if change.found {
                // with no deadline only the rounds in which it was silent were counted
                if conn.has(flag::UP) && conn.deadline == Deadline::None {
                    conn.retries = 0;
                }
            } else if conn.state == State::Closed {
                // nobody is there to be told
                conn.clear(flag::SEND_RST);
            } else if !conn.has(flag::UP) || conn.retries >= self.config.tcp.retries {
                conn.fail(CloseReason::NoNeighbour);
            } else {
                conn.retries += 1;
                // what was never sent, an acknowledgment or a question goes when it is found: no retransmission is due
                if conn.in_flight() > 0 && conn.deadline != Deadline::Persist {
                    conn.arm(Deadline::Retransmit, now + self.config.tcp.min_rto.max(MS));
                }
            }
            self.settle(index);
        }
    }

    /// A frame arrived. Who takes it, where several stacks share the port: to these it is to be given, once each.
    pub fn receive(&mut self, frame: &[u8], now: u64) -> Recipient {
        self.counters.frames_received += 1;
        self.take_frame(frame, false, now)
    }

    /// The same of a frame whose checksum of UDP or TCP the port has validated: it is not summed again.
    pub fn receive_validated(&mut self, frame: &[u8], now: u64) -> Recipient {
        self.counters.frames_received += 1;
        self.take_frame(frame, true, now)
    }

    /// A frame arrived and could not be read.
    pub fn count_unreadable(&mut self) {
        self.counters.frames_received += 1;
        self.counters.drop(DropReason::NotCopied);
    }

    /// A segment arrived, from Ethernet address `from`.
    fn segment(&mut self, tuple: Tuple, header: &Header, payload: &[u8], from: Mac, now: u64) {
        let hash = self.hash(&tuple);
        let mut found = self.find(hash, &tuple);
        let begins = header.flags & (control::SYN | control::ACK | control::RST) == control::SYN;
        if let Some(index) = found
            && begins
            && self.listeners.contains_key(&tuple.local_port)
            && self.connections[index as usize].is_superseded(header, self.config.tcp.timestamps)
        {
            self.remove(index);
            found = None;
        }
        if found.is_none() && begins && self.listeners.contains_key(&tuple.local_port) {
            return self.begin_passive(tuple, header, from, now);
        }
        if found.is_none() {
            found = self.redeem(&tuple, header, now);
        }
        let Some(index) = found else {
            self.counters.drop(DropReason::NoConnection);
            // who listens ignores what neither begins nor acknowledges anything (RFC 9293 section 3.10.7.2)
            if header.has(control::ACK) || !self.listeners.contains_key(&tuple.local_port) {
                self.reply_reset(&tuple, header, payload.len(), from);
            }
            return;
        };
        let conn = &mut self.connections[index as usize];
        let (pool, counters) = (&mut self.pool, &mut self.counters);
        let refuse =
            conn.segment(header, payload, &mut Env { now, config: &self.config.tcp, pool, counters });
        self.settle(index);
        if refuse {
            self.reply_reset(&tuple, header, payload.len(), from);
        }
    }
}

/// A connection, and what it works with.
struct Call<'a> {
    conn: &'a mut Connection,
    env: Env<'a>,
}

impl Call<'_> {
    fn parts(&mut self) -> (&mut Connection, Env<'_>) {
        let Env { now, config, pool, counters } = &mut self.env;
        (self.conn, Env { now: *now, config, pool, counters })
    }
}
