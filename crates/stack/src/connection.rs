//! State of one connection: its block, and the buffers that it borrows while it needs them.

use crate::config::TcpConfig;
use crate::congestion::Congestion;
use crate::counters::Counters;
use crate::flight::Flight;
use crate::receive_buffer::ReceiveBuffer;
use crate::rtt::Rtt;
use crate::send_buffer::SendBuffer;
use crate::seq::Seq;
use std::net::{IpAddr, SocketAddr};

/// States of RFC 9293 section 3.3.2. What listens is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are named by the standard")]
pub enum State {
    Closed,
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// Nobody listens there.
    #[error("connection refused")]
    Refused,
    /// The peer reset it.
    #[error("connection reset by peer")]
    Reset,
    /// Nothing was acknowledged for too long.
    #[error("connection timed out")]
    TimedOut,
    /// Nobody on the link has the address of the next hop.
    #[error("no route to host")]
    NoNeighbour,
    /// ICMP said that the host cannot be reached.
    #[error("host unreachable")]
    Unreachable,
}

/// Flags of a connection.
pub(crate) mod flag {
    /// Both sides offered timestamps.
    pub const TIMESTAMPS: u32 = 1;
    /// Both sides offered selective acknowledgments.
    pub const SACK: u32 = 1 << 1;
    /// A SYN, with ACK or without, is to be sent.
    pub const SEND_SYN: u32 = 1 << 2;
    /// An acknowledgment is to be sent at once.
    pub const ACK_NOW: u32 = 1 << 3;
    /// A RST is to be sent, and with it the connection ends.
    pub const SEND_RST: u32 = 1 << 4;
    /// Its owner has closed: a FIN follows the last byte.
    pub const FIN_QUEUED: u32 = 1 << 5;
    /// The peer's FIN has come, and all before it.
    pub const FIN_RECEIVED: u32 = 1 << 6;
    /// Its owner has let go of it.
    pub const ORPHAN: u32 = 1 << 7;
    /// It waits in the list of connections with something to send.
    pub const QUEUED: u32 = 1 << 8;
    /// It waits in the list of connections with events.
    pub const TOLD: u32 = 1 << 9;
    /// Somebody else opened it.
    pub const PASSIVE: u32 = 1 << 10;
    /// Segments were seen to be reordered.
    pub const REORDERED: u32 = 1 << 11;
    /// A tail loss probe was sent in this flight.
    pub const PROBED: u32 = 1 << 12;
    /// A probe of the peer's closed window is to be sent.
    pub const SEND_PROBE: u32 = 1 << 13;
    /// The peer's window kept something from being sent.
    pub const BLOCKED: u32 = 1 << 14;
    /// More was to be sent than the send buffer holds: its owner waits for room.
    pub const FULL: u32 = 1 << 15;
    /// Our SYN is acknowledged.
    pub const UP: u32 = 1 << 16;
    /// Our FIN was sent.
    pub const FIN_SENT: u32 = 1 << 17;
    /// Our FIN is acknowledged.
    pub const FIN_ACKED: u32 = 1 << 18;
    /// A tail loss probe is to be sent.
    pub const SEND_TAIL: u32 = 1 << 19;
    /// Our SYN was sent more than once.
    pub const SYN_AGAIN: u32 = 1 << 20;
    /// The table leads to it.
    pub const IN_TABLE: u32 = 1 << 21;
    /// Somebody else opened it, and it waits for its owner or has one.
    pub const ACCEPTED: u32 = 1 << 22;
    /// It is in the list of those that are only remembered.
    pub const REMEMBERED: u32 = 1 << 23;
    /// Its segments are smaller than both ends would take, as a router on the path said.
    pub const SMALL_PATH: u32 = 1 << 24;
}

/// Events that its owner is to be told of.
pub(crate) mod event {
    pub const READABLE: u8 = 1;
    pub const WRITABLE: u8 = 2;
    pub const ENDED: u8 = 4;
}

/// Meaning of the retransmission deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deadline {
    None,
    /// Retransmission timeout.
    Retransmit,
    /// Probe timeout (RFC 8985 section 7).
    Probe,
    /// Reordering window (RFC 8985 section 6).
    Reorder,
    /// The peer's window is closed (RFC 9293 section 3.8.6.1).
    Persist,
    /// Nothing came for long (RFC 9293 section 3.8.4).
    KeepAlive,
    /// 2 MSL, or the peer does not close.
    Gone,
}

/// Buffers, and what is in flight.
#[derive(Debug, Default)]
pub(crate) struct Active {
    pub send: SendBuffer,
    pub receive: ReceiveBuffer,
    pub flight: Flight,
    /// Where the peer's FIN is, if it came before all that it sent.
    pub fin_at: Option<Seq>,
}

/// Buffers that are kept for later besides as many as are lent.
const SPARE: usize = 1024;

/// Buffers that no connection needs now.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    #[expect(clippy::vec_box, reason = "they are lent and given back as they are")]
    free: Vec<Box<Active>>,
    /// How many are lent.
    pub lent: usize,
    /// Memory for a segment whose bytes lie apart.
    pub scratch: Vec<u8>,
}

impl Pool {
    fn take(&mut self) -> Box<Active> {
        self.lent += 1;
        self.free.pop().unwrap_or_default()
    }

    fn give(&mut self, mut active: Box<Active>) {
        self.lent -= 1;
        active.send.clear();
        active.receive.clear();
        active.flight.clear();
        active.fin_at = None;
        if self.free.len() < self.lent.max(SPARE) {
            self.free.push(active);
        }
    }
}

/// What a connection works with during one call.
pub(crate) struct Env<'a> {
    pub now: u64,
    pub config: &'a TcpConfig,
    pub pool: &'a mut Pool,
    pub counters: &'a mut Counters,
}

/// Both ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tuple {
    pub local: IpAddr,
    pub remote: IpAddr,
    pub local_port: u16,
    pub remote_port: u16,
}

impl Tuple {
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.local, self.local_port)
    }

    pub fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.remote, self.remote_port)
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub tuple: Tuple,
    pub state: State,
    pub broken: Option<CloseReason>,
    pub deadline: Deadline,
    pub events: u8,
    pub retries: u8,
    /// Duplicate acknowledgments in a row, where there is no SACK; probes of a closed window.
    pub duplicates: u8,
    /// Challenges sent in the second that [`challenged_in`](Self::challenged_in) names.
    pub challenges: u8,
    pub send_scale: u8,
    pub receive_scale: u8,
    pub flags: u32,
    /// Largest payload of a segment, without options; the one that both ends take; and the one that we take, as our SYN says.
    pub mss: u16,
    pub agreed_mss: u16,
    pub offered_mss: u16,
    /// The largest payload of a segment that came.
    pub largest: u16,
    pub generation: u32,
    pub hash: u32,
    pub neighbour: u32,
    pub challenged_in: u32,
    // send sequence
    pub iss: Seq,
    pub una: Seq,
    pub nxt: Seq,
    pub window: u32,
    pub window_max: u32,
    pub wl1: Seq,
    pub wl2: Seq,
    // receive sequence
    pub rcv_nxt: Seq,
    /// Right edge of the window, the farthest that was ever advertised.
    pub rcv_edge: Seq,
    pub last_ack: Seq,
    // timestamps (RFC 7323)
    pub ts_recent: u32,
    pub ts_recent_at: u32,
    pub ts_offset: u32,
    pub rtt: Rtt,
    pub congestion: Congestion,
    /// When something was last sent, ns; in handshakes the SYN.
    pub sent_at: u64,
    pub deadline_at: u64,
    pub ack_at: u64,
    /// When the wheel has it, ns.
    pub timer_at: u64,
    pub owner: u64,
    pub active: Option<Box<Active>>,
}

/// No time.
pub(crate) const NEVER: u64 = u64::MAX;

impl Connection {
    pub fn new(tuple: Tuple, state: State, iss: Seq, mss: u16) -> Self {
        Self {
            tuple,
            state,
            broken: None,
            deadline: Deadline::None,
            events: 0,
            retries: 0,
            duplicates: 0,
            challenges: 0,
            send_scale: 0,
            receive_scale: 0,
            flags: 0,
            mss,
            agreed_mss: mss,
            offered_mss: mss,
            largest: 0,
            generation: 0,
            hash: 0,
            neighbour: 0,
            challenged_in: 0,
            iss,
            una: iss,
            nxt: iss,
            window: 0,
            window_max: 0,
            wl1: Seq(0),
            wl2: Seq(0),
            rcv_nxt: Seq(0),
            rcv_edge: Seq(0),
            last_ack: Seq(0),
            ts_recent: 0,
            ts_recent_at: 0,
            ts_offset: 0,
            rtt: Rtt::default(),
            congestion: Congestion::new(mss),
            sent_at: 0,
            deadline_at: NEVER,
            ack_at: NEVER,
            timer_at: NEVER,
            owner: 0,
            active: None,
        }
    }

    #[inline]
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub fn set(&mut self, flag: u32) {
        self.flags |= flag;
    }

    #[inline]
    pub fn clear(&mut self, flag: u32) {
        self.flags &= !flag;
    }

    /// Its buffers, from the pool if it has none.
    #[inline]
    pub fn active(&mut self, pool: &mut Pool) -> &mut Active {
        self.active.get_or_insert_with(|| pool.take())
    }

    /// Give the buffers back if nothing is in them.
    pub fn rest(&mut self, pool: &mut Pool) {
        let idle = self.active.as_ref().is_some_and(|active| {
            active.send.len() == 0
                && active.receive.is_empty()
                && active.flight.is_empty()
                && active.fin_at.is_none()
        });
        if idle {
            self.release(pool);
        }
    }

    /// Give the buffers back, whatever is in them.
    pub fn release(&mut self, pool: &mut Pool) {
        if let Some(active) = self.active.take() {
            pool.give(active);
        }
    }

    /// Bytes that can be read.
    #[inline]
    pub fn readable(&self) -> usize {
        self.active.as_ref().map_or(0, |active| active.receive.ready())
    }

    /// Bytes that were given to it and are not acknowledged.
    #[inline]
    pub fn unacknowledged_bytes(&self) -> usize {
        self.active.as_ref().map_or(0, |active| active.send.len())
    }

    /// Bytes under way up to the last that was sent, SYN and FIN counted.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.nxt.since(self.una)
    }

    /// Bytes of payload that were sent and are not acknowledged.
    #[inline]
    pub fn sent_bytes(&self) -> usize {
        if self.has(flag::UP) { (self.in_flight() as usize).min(self.unacknowledged_bytes()) } else { 0 }
    }

    /// Bytes that were given to it and were never sent.
    #[inline]
    pub fn unsent(&self) -> usize {
        self.unacknowledged_bytes() - self.sent_bytes()
    }

    /// Whether its owner may send.
    pub fn takes_data(&self) -> bool {
        matches!(self.state, State::SynSent | State::SynReceived | State::Established | State::CloseWait)
            && !self.has(flag::FIN_QUEUED)
    }

    /// Let it end with `why`, which its owner is told.
    pub fn fail(&mut self, why: CloseReason) {
        if self.broken.is_none() && self.state != State::TimeWait {
            self.broken = Some(why);
        }
        self.end();
    }

    /// Let it end.
    pub fn end(&mut self) {
        self.state = State::Closed;
        self.deadline = Deadline::None;
        (self.deadline_at, self.ack_at) = (NEVER, NEVER);
        self.flags &= !(flag::SEND_SYN | flag::ACK_NOW | flag::SEND_PROBE | flag::SEND_TAIL);
        self.events |= event::READABLE | event::WRITABLE | event::ENDED;
    }

    /// Set the retransmission deadline.
    #[inline]
    pub fn arm(&mut self, deadline: Deadline, at: u64) {
        self.deadline = deadline;
        self.deadline_at = at;
    }

    /// Clear the retransmission deadline.
    #[inline]
    pub fn disarm(&mut self) {
        self.arm(Deadline::None, NEVER);
    }

    /// The path carries segments of `most` bytes, or whatever the ends take. Whether that is less than before.
    pub fn fit_path(&mut self, most: Option<u16>) -> bool {
        let (before, size) = (self.mss, most.unwrap_or(u16::MAX).min(self.agreed_mss));
        if self.has(flag::SMALL_PATH) || size < before {
            self.mss = size;
            self.clear(flag::SMALL_PATH);
            if size < self.agreed_mss {
                self.set(flag::SMALL_PATH);
            }
        }
        self.mss < before
    }

    /// Whether it waits for nothing that it sent.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        matches!(self.deadline, Deadline::None | Deadline::KeepAlive)
    }

    /// When it wants to be looked at.
    #[inline]
    pub fn next_at(&self) -> u64 {
        self.deadline_at.min(self.ack_at)
    }

    /// The value of the timestamp option (RFC 7323 section 5.4: a clock of 1 ms).
    #[inline]
    pub fn timestamp(&self, now: u64) -> u32 {
        ((now / crate::config::MS) as u32).wrapping_add(self.ts_offset)
    }

    /// 2 MSL begin.
    pub fn time_wait(&mut self, env: &mut Env<'_>) {
        self.state = State::TimeWait;
        if self.readable() == 0 {
            self.release(env.pool);
        }
        self.ack_at = NEVER;
        self.arm(Deadline::Gone, env.now.saturating_add(env.config.time_wait));
    }

    /// Its owner closes: FIN after the last byte, or RST where something was received that nobody read (RFC 2525 section 2.17).
    pub fn close(&mut self, env: &mut Env<'_>) {
        self.set(flag::ORPHAN);
        let unread = self.readable() > 0;
        match self.state {
            State::Closed | State::TimeWait => {}
            State::SynSent => self.end(),
            _ if unread => self.abort(),
            State::SynReceived | State::Established | State::CloseWait => self.shut_down(),
            State::FinWait2 => self.arm(Deadline::Gone, env.now.saturating_add(env.config.fin_timeout)),
            State::FinWait1 | State::Closing | State::LastAck => {}
        }
    }

    /// Its owner sends no more, and reads on.
    pub fn shut_down(&mut self) {
        match self.state {
            State::SynSent => self.set(flag::FIN_QUEUED),
            State::SynReceived | State::Established => {
                self.set(flag::FIN_QUEUED);
                self.state = State::FinWait1;
            }
            State::CloseWait => {
                self.set(flag::FIN_QUEUED);
                self.state = State::LastAck;
            }
            _ => {}
        }
    }

    /// Reset it.
    pub fn abort(&mut self) {
        match self.state {
            State::Closed => {}
            State::SynSent | State::TimeWait => self.end(),
            _ => {
                self.end();
                self.set(flag::SEND_RST);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;

    #[test]
    fn an_idle_connection_takes_256_bytes_at_most() {
        let all = size_of::<Connection>() + Table::bytes_each();
        assert!(all <= 256, "{} + {}", size_of::<Connection>(), Table::bytes_each());
    }
}
