//! Pauses of a worker: time in which it had no CPU, apart from time that its own work took.
//!
//! A worker that polls reads the time every few turns. Two readings that are far apart mean that it had no CPU, or that its own
//! work took so long; only the kernel can tell which. So the kernel is asked for the thread's CPU time, but only then: it leaves out
//! what neighbours took and, where the hypervisor tells of it, what the host did. What it does not leave out counts as the
//! worker's own, so that no work of its own passes for a pause.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a pause is longer than, ns: a cable in memory holds 2,047 packets, which come in 0.1 ms at 20 Mpps, and so long a
/// receive ring of a NIC holds out at 10 Mpps.
pub const PAUSE_NS: u64 = 100_000;
/// What a turn is longer than that counts as long, ns: many times what full batches take.
pub const LONG_TURN_NS: u64 = 1_000_000;
/// Lengths that are told apart: from [`PAUSE_NS`] on, each twice the one before.
pub const LENGTHS: usize = 8;

/// How often and how long, by length.
#[derive(Debug, Default)]
pub(crate) struct PauseCounters {
    count: [AtomicU64; LENGTHS],
    ns: [AtomicU64; LENGTHS],
    longest: AtomicU64,
    /// The longest since somebody last took it.
    peak: AtomicU64,
}

/// A snapshot of pauses, all since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PauseStats {
    /// How many, by length: the first from [`PAUSE_NS`] on, each next one from twice as long on.
    pub count: [u64; LENGTHS],
    /// Their time, ns, by length.
    pub ns: [u64; LENGTHS],
    /// The longest, ns.
    pub longest_ns: u64,
}

impl PauseCounters {
    fn add(&self, ns: u64) {
        let length = (ns / PAUSE_NS).max(1).ilog2() as usize;
        let length = length.min(LENGTHS - 1);
        self.count[length].fetch_add(1, Ordering::Relaxed);
        self.ns[length].fetch_add(ns, Ordering::Relaxed);
        self.longest.fetch_max(ns, Ordering::Relaxed);
        self.peak.fetch_max(ns, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> PauseStats {
        let all =
            |counts: &[AtomicU64; LENGTHS]| counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        PauseStats {
            count: all(&self.count),
            ns: all(&self.ns),
            longest_ns: self.longest.load(Ordering::Relaxed),
        }
    }

    /// The longest since the last call, for one who asks at the end of each interval.
    pub(crate) fn take_peak(&self) -> u64 {
        self.peak.swap(0, Ordering::Relaxed)
    }
}

/// CPU time of the calling thread, ns.
pub(crate) trait CpuClock {
    fn now(&self) -> u64;
}

/// The kernel's.
#[derive(Debug)]
pub(crate) struct ThreadClock;

impl CpuClock for ThreadClock {
    fn now(&self) -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
    }
}

/// Tells pauses from long turns, for one worker. Times are ns on one clock.
#[derive(Debug)]
pub(crate) struct PauseWatch<C> {
    cpu: C,
    /// The time and the CPU time when both were last known.
    base: (u64, u64),
    /// Time since then in which the worker wanted no CPU.
    rested: u64,
    /// What time between two readings must be longer than for the kernel to be asked.
    alarm: u64,
}

impl<C: CpuClock> PauseWatch<C> {
    pub(crate) fn new(cpu: C) -> Self {
        Self { cpu, base: (0, 0), rested: 0, alarm: u64::MAX }
    }

    /// What time between two readings must be longer than to be [looked at](Self::look).
    #[inline]
    pub(crate) fn alarm(&self) -> u64 {
        self.alarm
    }

    /// To be called every now and then, which bounds what short waits for a CPU can add up to.
    pub(crate) fn begin(&mut self, now: u64) {
        self.base = (now, self.cpu.now());
        self.rested = 0;
        self.alarm = PAUSE_NS;
    }

    /// Until `now`, `spent` passed between two readings of the time, in which the worker did not rest: count what of it was
    /// a pause, and what a long turn.
    #[cold]
    pub(crate) fn check(&mut self, spent: u64, now: u64, pauses: &PauseCounters, long_turns: &PauseCounters) {
        let cpu = self.cpu.now();
        let (then, ran) = (self.base.0, cpu.saturating_sub(self.base.1));
        let without = now.saturating_sub(then).saturating_sub(self.rested).saturating_sub(ran);
        let pause = without.min(spent);
        self.base = (now, cpu);
        self.rested = 0;
        let mut own = spent;
        if pause >= PAUSE_NS {
            pauses.add(pause);
            own = spent - pause;
        } else {
            // Batches take so long here: do not ask at each of them.
            self.alarm = spent.saturating_mul(2).min(LONG_TURN_NS);
        }
        if own >= LONG_TURN_NS {
            long_turns.add(own);
        }
    }

    /// The worker wanted to rest for `asked`, and was away for `took`.
    #[inline]
    pub(crate) fn record_rest(&mut self, asked: u64, took: u64, pauses: &PauseCounters) {
        self.rested = self.rested.saturating_add(took);
        let late = took.saturating_sub(asked);
        if late >= PAUSE_NS {
            pauses.add(late);
        }
    }
}

#[cfg(test)]
mod tests;
