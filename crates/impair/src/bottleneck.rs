//! A line of limited rate with a queue before it, in virtual time.
//!
//! Nothing waits for a timer: when packets leave follows from when they came. The line is asked from time to
//! time for what has begun to leave; a late question changes no answer. What arrives as one super-segment
//! leaves in pieces of at most [`CHUNK`], so that acknowledgements come as evenly as a receiver would send
//! them.

use crate::codel::Codel;
use crate::packet_store::PacketStore;
use crate::red::Red;
use crate::spec::{self, Limit, Queue};
use crate::stats::Counters;
use rand::rngs::SmallRng;
use std::collections::VecDeque;

/// Longest time on the line of packets that leave together, ns. Also what a queue may seem shorter by.
const CHUNK: u64 = 100_000;

/// The line: nanoseconds per byte, in 2^-32.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line(u64);

impl Line {
    fn new(bits_per_second: f64) -> Self {
        Self((8e9 / bits_per_second * 4_294_967_296.0) as u64)
    }

    /// Time on the line, ns in 2^-32.
    #[inline]
    fn time(self, bytes: u64) -> u128 {
        u128::from(bytes) * u128::from(self.0)
    }
}

#[derive(Debug)]
enum Discipline {
    Tail,
    Red(Red),
    Codel(Codel),
}

#[derive(Debug)]
struct QueuedPacket<L> {
    since: u64,
    load: L,
}

/// Line and queue. Without a line nothing waits here.
#[derive(Debug)]
pub(crate) struct Bottleneck<L> {
    line: Option<Line>,
    discipline: Discipline,
    limit: Limit,
    queue: VecDeque<QueuedPacket<L>>,
    capacity: usize,
    /// What waits: packets, and bytes on the wire.
    packets: u64,
    bytes: u64,
    /// When the line is free, ns, and 2^-32 ns.
    free_at: u64,
    fraction: u32,
    /// CoDel has decided, ahead of time, that the head is dropped when it gets to the line.
    doomed: bool,
    rng: SmallRng,
}

impl<L> Bottleneck<L> {
    /// No line; a queue for at most `capacity` loads.
    pub(crate) fn new(capacity: usize, rng: SmallRng) -> Self {
        Self {
            line: None,
            discipline: Discipline::Tail,
            limit: Limit::default(),
            queue: VecDeque::with_capacity(capacity),
            capacity,
            packets: 0,
            bytes: 0,
            free_at: 0,
            fraction: 0,
            doomed: false,
            rng,
        }
    }

    /// Draws of its queue begin anew; [`set`](Self::set) follows.
    pub(crate) fn draw_anew(&mut self, rng: SmallRng) {
        self.rng = rng;
        if matches!(self.discipline, Discipline::Red(_)) {
            self.discipline = Discipline::Tail;
        }
    }

    /// From now on so. What waits goes on waiting, for the new line.
    pub(crate) fn set(&mut self, spec: Option<&spec::Bottleneck>) {
        self.line = spec.map(|spec| Line::new(spec.rate.bits()));
        let Some(spec) = spec else { return };
        match (&spec.queue, &mut self.discipline) {
            (Queue::Red(spec), Discipline::Red(red)) => red.set(spec),
            (Queue::Codel(spec), Discipline::Codel(codel)) => codel.set(spec),
            (Queue::TailDrop(_), discipline) => *discipline = Discipline::Tail,
            (Queue::Red(spec), discipline) => *discipline = Discipline::Red(Red::new(spec, self.rng.clone())),
            (Queue::Codel(spec), discipline) => *discipline = Discipline::Codel(Codel::new(spec)),
        }
        self.limit = match &spec.queue {
            Queue::TailDrop(limit) => *limit,
            Queue::Red(red) => red.limit,
            Queue::Codel(codel) => codel.limit,
        };
    }

    /// Whether packets need not pass here.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.line.is_none() && self.queue.is_empty()
    }

    /// When the next packet begins to leave.
    #[inline]
    pub(crate) fn next_at(&self) -> u64 {
        self.queue.front().map_or(u64::MAX, |head| match self.line {
            Some(_) => self.free_at.max(head.since),
            None => head.since,
        })
    }

    /// A load comes. Everything up to `now` was [served](Self::serve).
    pub(crate) fn offer<C: PacketStore<Load = L>>(
        &mut self,
        now: u64,
        mut load: L,
        store: &mut C,
        stats: &Counters,
    ) {
        let idle = self.queue.is_empty() && self.free_at <= now;
        if let (Discipline::Red(red), Some(line), true) = (&mut self.discipline, self.line, idle) {
            let one = (line.time(store.burst(&load).bytes.into()) >> 32).max(1) as f64;
            red.idle((now - self.free_at) as f64 / one);
        }
        // Each packet has its own chance; those before a dropped one are let in first. One of those let in is
        // on the line, if that was idle.
        let (mut at, mut accepted) = (0, 0);
        let before = (self.packets, self.bytes);
        while let Discipline::Red(red) = &mut self.discipline {
            let burst = store.burst(&load);
            if at >= burst.packets {
                break;
            }
            let ahead = accepted - u64::from(idle).min(accepted);
            let waiting = match self.limit {
                Limit::Packets(most) => (before.0 + ahead).min(most.into()),
                Limit::Bytes(most) => (before.1 + ahead * u64::from(burst.bytes)).min(most.0),
            };
            if !red.drops(waiting as f64) {
                (at, accepted) = (at + 1, accepted + 1);
                continue;
            }
            if at > 0
                && let Some(before) = store.split(&mut load, at)
            {
                self.admit(now, idle, before, store, stats);
            }
            at = 0;
            let one = if store.burst(&load).packets > 1 { store.split(&mut load, 1) } else { None };
            let dropped = one.as_ref().unwrap_or(&load);
            stats.red_dropped.add(store.burst(dropped).packets.into());
            match one {
                Some(one) => store.free(one),
                None => return store.free(load),
            }
        }
        self.admit(now, idle, load, store, stats);
    }

    /// Let wait as many packets of `load` as fit, drop the rest.
    fn admit<C: PacketStore<Load = L>>(
        &mut self,
        now: u64,
        idle: bool,
        mut load: L,
        store: &mut C,
        stats: &Counters,
    ) {
        let burst = store.burst(&load);
        // What is on the line does not wait: an idle line takes one at once.
        let room = match self.limit {
            Limit::Packets(limit) => (u64::from(limit) + u64::from(idle)).saturating_sub(self.packets),
            Limit::Bytes(limit) => {
                let room =
                    (limit.0 + if idle { u64::from(burst.bytes) } else { 0 }).saturating_sub(self.bytes);
                if burst.total() <= room { burst.packets.into() } else { room / u64::from(burst.bytes) }
            }
        };
        let room = if self.queue.len() < self.capacity { room } else { 0 };
        if room < u64::from(burst.packets) {
            let kept = if room == 0 { None } else { store.split(&mut load, room as u32) };
            stats.tail_dropped.add(store.burst(&load).packets.into());
            match kept {
                Some(kept) => store.free(std::mem::replace(&mut load, kept)),
                None => return store.free(load),
            }
        }
        let burst = store.burst(&load);
        self.packets += u64::from(burst.packets);
        self.bytes += burst.total();
        self.queue.push_back(QueuedPacket { since: now, load });
    }

    /// What began to leave at `now` or before, piece by piece: the time when its last bit has left, and the
    /// piece.
    pub(crate) fn serve<C: PacketStore<Load = L>>(
        &mut self,
        now: u64,
        store: &mut C,
        stats: &Counters,
    ) -> Option<(u64, L)> {
        let Some(line) = self.line else {
            let head = self.queue.pop_front()?;
            let burst = store.burst(&head.load);
            self.uncount(u64::from(burst.packets), burst.total());
            return Some((now, head.load));
        };
        // Whether the packet before the head was dropped at the head's moment; and that moment.
        let (mut again, mut moment) = (false, self.free_at);
        loop {
            let Some(head) = self.queue.front() else {
                if let Discipline::Codel(codel) = &mut self.discipline
                    && moment <= now
                {
                    codel.queue_empty(moment, again);
                }
                return None;
            };
            let (since, start) = (head.since, self.free_at.max(head.since));
            moment = start;
            if start > now {
                return None;
            }
            let burst = store.burst(&head.load);
            if self.drops_head(start, since, burst.bytes_of(1), again) {
                let dropped = self.dequeue(1, store)?;
                stats.codel_dropped.add(store.burst(&dropped).packets.into());
                store.free(dropped);
                again = true;
                continue;
            }
            if start > self.free_at {
                self.fraction = 0;
            }
            // As many as leave within a chunk; those that are dropped on the way end it.
            let each = line.time(burst.bytes.into()).max(1);
            let most = (u128::from(CHUNK) << 32) / each;
            let most = (most.clamp(1, burst.packets.into())) as u32;
            let mut count = 1;
            if let Discipline::Codel(codel) = &mut self.discipline {
                while count < most {
                    let then = start + (line.time(burst.bytes_of(count)) >> 32) as u64;
                    let rest = self.bytes.saturating_sub(burst.bytes_of(count + 1));
                    if codel.drops(then, then - since, burst.bytes.into(), rest, false) {
                        self.doomed = true;
                        break;
                    }
                    count += 1;
                }
            } else {
                count = most;
            }
            let end = line.time(burst.bytes_of(count)) + u128::from(self.fraction);
            self.fraction = end as u32;
            self.free_at = start + (end >> 32) as u64;
            let piece = self.dequeue(count, store)?;
            return Some((self.free_at, piece));
        }
    }

    fn drops_head(&mut self, start: u64, since: u64, bytes: u64, again: bool) -> bool {
        if std::mem::take(&mut self.doomed) {
            return true;
        }
        let rest = self.bytes.saturating_sub(bytes);
        match &mut self.discipline {
            Discipline::Codel(codel) => codel.drops(start, start - since, bytes, rest, again),
            _ => false,
        }
    }

    /// Take the first `count` packets of the head.
    fn dequeue<C: PacketStore<Load = L>>(&mut self, count: u32, store: &mut C) -> Option<L> {
        let head = self.queue.front_mut()?;
        let burst = store.burst(&head.load);
        self.packets -= u64::from(count).min(self.packets);
        self.bytes -= burst.bytes_of(count).min(self.bytes);
        if count < burst.packets
            && let Some(part) = store.split(&mut head.load, count)
        {
            return Some(part);
        }
        self.queue.pop_front().map(|head| head.load)
    }

    fn uncount(&mut self, packets: u64, bytes: u64) {
        self.packets -= packets.min(self.packets);
        self.bytes -= bytes.min(self.bytes);
    }
}
