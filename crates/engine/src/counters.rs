//! The counters of elements and workers: one writer, read by any thread at any time.

use crate::pauses::{PauseCounters, PauseStats};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most reasons to drop that one element can have, besides the built-in ones.
pub const REASONS: usize = 60;

/// Built-in reasons, which every element has before its own.
pub const BUILT_IN: [&str; 2] = ["refused", "overflow"];
/// The next element had no room.
pub(crate) const REFUSED: usize = 0;
/// More packets were emitted to one output in a batch than it had room for.
pub(crate) const OVERFLOW: usize = 1;

/// A counter with one writer. Not a read-modify-write instruction, which would cost twenty times as much.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// `n` more; to be called by one thread only.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// What it counted so far.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One element's counters: what changes with every batch in cache lines of its own, so that readers and other elements do
/// not disturb it, and what it dropped in others, as many as its reasons need.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub(crate) packets_in: Count,
    pub(crate) packets_out: Count,
    pub(crate) bytes: Count,
    pub(crate) batches: Count,
    /// Ticks spent on the packets that were timed.
    cycles: Count,
    timed: Count,
    /// By reason, the built-in ones first.
    drops: Box<[Line]>,
    reasons: usize,
}

const PER_LINE: usize = 8;

/// Counters in one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([Count; PER_LINE]);

impl Counters {
    /// For an element with so many reasons of its own.
    pub(crate) fn new(own: usize) -> Self {
        let reasons = BUILT_IN.len() + own;
        Self {
            packets_in: Count::default(),
            packets_out: Count::default(),
            bytes: Count::default(),
            batches: Count::default(),
            cycles: Count::default(),
            timed: Count::default(),
            drops: (0..reasons.div_ceil(PER_LINE)).map(|_| Line::default()).collect(),
            reasons,
        }
    }

    /// Count `n` packets as dropped. A reason out of range is counted as the last one: a wrong number must not lose the
    /// count.
    #[inline]
    pub(crate) fn drop(&self, reason: usize, n: u64) {
        let reason = reason.min(self.reasons - 1);
        if let Some(Line(line)) = self.drops.get(reason / PER_LINE) {
            line[reason % PER_LINE].add(n);
        }
    }

    /// Packets dropped, by reason.
    pub(crate) fn drops(&self) -> impl Iterator<Item = u64> {
        self.drops.iter().flat_map(|Line(line)| line).map(Count::get).take(self.reasons)
    }

    /// Note that `packets` took so many ticks.
    #[inline]
    pub(crate) fn time(&self, cycles: u64, packets: usize) {
        self.cycles.add(cycles);
        self.timed.add(packets as u64);
    }

    /// Ticks spent on all packets, when those that were timed stand for the others.
    pub(crate) fn cycles(&self) -> u64 {
        let (cycles, timed) = (self.cycles.get(), self.timed.get());
        let packets = self.packets_in.get().max(self.packets_out.get());
        let all = u128::from(cycles) * u128::from(packets.max(timed)) / u128::from(timed.max(1));
        u64::try_from(all).unwrap_or(u64::MAX)
    }
}

/// One worker's counters.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerCounters {
    pub(crate) turns: Count,
    pub(crate) busy: Count,
    pub(crate) idle: Count,
    pub(crate) slept_ns: Count,
    pub(crate) thread: Count,
    /// Time without a CPU.
    pub(crate) pauses: PauseCounters,
    /// Turns that took long by themselves.
    pub(crate) long_turns: PauseCounters,
}

/// A snapshot of one element's counters, all since the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ElementStats {
    /// The element's name in the graph.
    pub name: String,
    /// What kind of element it is.
    pub kind: String,
    /// The worker it runs on.
    pub worker: usize,
    /// Packets taken from other elements.
    pub packets_in: u64,
    /// Packets handed to other elements, which took them.
    pub packets_out: u64,
    /// Bytes of the packets taken, or handed on by an element that takes none, without FCS; counted for ports only.
    pub bytes: u64,
    /// Batches taken, or made by an element that takes none.
    pub batches: u64,
    /// Time stamp counter ticks spent on them; one batch in several is timed and stands for the others.
    pub cycles: u64,
    /// Packets dropped, by reason, without reasons that did not occur.
    pub drops: Vec<(String, u64)>,
}

impl ElementStats {
    /// Mean ticks per packet; 0 when there were none.
    pub fn cycles_per_packet(&self) -> f64 {
        match self.packets_in.max(self.packets_out) {
            0 => 0.0,
            packets => self.cycles as f64 / packets as f64,
        }
    }

    /// Mean packets per batch; 0 when there were none.
    pub fn packets_per_batch(&self) -> f64 {
        match self.batches {
            0 => 0.0,
            batches => self.packets_in.max(self.packets_out) as f64 / batches as f64,
        }
    }

    /// Packets dropped, for whatever reason.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().map(|(_, n)| n).sum()
    }
}

/// A snapshot of one worker's counters, all since the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkerStats {
    /// The core it is pinned to, if it is.
    pub core: Option<usize>,
    /// Turns of its loop.
    pub turns: u64,
    /// Ticks spent on packets.
    pub busy_cycles: u64,
    /// Ticks spent in polls that found no packets, without sleep.
    pub idle_cycles: u64,
    /// Nanoseconds asleep.
    pub slept_ns: u64,
    /// Time in which it wanted a CPU and had none, of [`PAUSE_NS`](crate::pauses::PAUSE_NS) in a row at least.
    pub pauses: PauseStats,
    /// Turns of [`LONG_TURN_NS`](crate::pauses::LONG_TURN_NS) at least, without pauses.
    pub long_turns: PauseStats,
    /// The kernel's number of its thread, as in `/proc/self/task/`; what the kernel knows of it is there.
    pub thread: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_take_as_much_room_as_reasons_need_and_share_no_line() {
        assert_eq!((align_of::<Counters>(), size_of::<Counters>()), (128, 128));
        assert_eq!((align_of::<Line>(), size_of::<Line>()), (64, 64));
        for (own, lines) in [(0, 1), (6, 1), (7, 2), (REASONS, 8)] {
            assert_eq!(Counters::new(own).drops.len(), lines, "{own}");
        }
    }

    #[test]
    fn each_reason_has_its_count_and_none_is_lost() {
        let counters = Counters::new(REASONS);
        (0..BUILT_IN.len() + REASONS).for_each(|reason| counters.drop(reason, reason as u64));
        assert_eq!(counters.drops().collect::<Vec<_>>(), (0..62).collect::<Vec<u64>>());
        let counters = Counters::new(1);
        counters.drop(2, 1);
        counters.drop(4711, 10);
        assert_eq!(counters.drops().collect::<Vec<_>>(), [0, 0, 11]);
    }
}
