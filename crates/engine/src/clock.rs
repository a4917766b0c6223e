//! Nanoseconds from the processor's time stamp counter.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Turns time stamps of [`dpdk::tsc`] into nanoseconds. One for the whole process, so that times taken on
/// different workers compare.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// The stamp at time zero.
    zero: u64,
    /// Nanoseconds per tick, as a fraction of 2^32.
    ns_per_tick: u64,
}

/// How long the counter is compared with the kernel's clock. The comparison is good to some 50 ns at either
/// end, so the rate to some parts per million.
const CALIBRATION: Duration = Duration::from_millis(20);

/// A little time before the clock was made, so that no stamp is before zero.
const EARLIER_NS: u64 = 1_000_000;

impl Clock {
    /// The process's clock; measured at first use, which takes 20 ms.
    pub fn get() -> Clock {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        *CLOCK.get_or_init(Clock::calibrate)
    }

    fn calibrate() -> Clock {
        let (instant0, tsc0) = pair();
        std::thread::sleep(CALIBRATION);
        let (instant1, tsc1) = pair();
        let ns = u64::try_from((instant1 - instant0).as_nanos()).unwrap_or(u64::MAX);
        let ticks = tsc1.saturating_sub(tsc0).max(1);
        let ns_per_tick = (u128::from(ns) << 32) / u128::from(ticks);
        let ns_per_tick = u64::try_from(ns_per_tick).unwrap_or(u64::MAX).max(1);
        let mut clock = Clock { zero: tsc0, ns_per_tick };
        clock.zero = tsc0.saturating_sub(clock.ticks(EARLIER_NS));
        clock
    }

    /// Now, in nanoseconds since the clock's zero. Costs a [`dpdk::tsc`].
    #[inline]
    pub fn now(&self) -> u64 {
        self.at(stamp())
    }

    /// The time of the stamp `tsc`, in nanoseconds since the clock's zero.
    #[inline]
    pub fn at(&self, tsc: u64) -> u64 {
        self.ns(tsc.saturating_sub(self.zero))
    }

    /// How many nanoseconds `ticks` are.
    #[inline]
    pub fn ns(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.ns_per_tick)) >> 32) as u64
    }

    /// How many ticks `ns` nanoseconds are.
    pub fn ticks(&self, ns: u64) -> u64 {
        u64::try_from((u128::from(ns) << 32) / u128::from(self.ns_per_tick)).unwrap_or(u64::MAX)
    }
}

/// A stamp of now.
#[cfg(not(feature = "testing"))]
#[inline]
fn stamp() -> u64 {
    dpdk::tsc()
}

/// Whether time stands still until somebody lets it pass.
#[cfg(not(feature = "testing"))]
#[inline]
pub(crate) fn is_told() -> bool {
    false
}

#[cfg(feature = "testing")]
pub(crate) use testing::{is_told, stamp};

/// Time that passes only when a test lets it: for graphs at work whose timers are hours long.
#[cfg(feature = "testing")]
pub mod testing {
    use super::Clock;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// The stamp that everybody reads; 0: the counter's own.
    static TOLD: AtomicU64 = AtomicU64::new(0);

    pub(crate) fn is_told() -> bool {
        TOLD.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn stamp() -> u64 {
        match TOLD.load(Ordering::Relaxed) {
            0 => dpdk::tsc(),
            told => told,
        }
    }

    /// Let so many nanoseconds pass, for all workers of the process. From the first call on time stands still between two.
    pub fn pass(ns: u64) {
        let clock = Clock::get();
        TOLD.store(stamp() + clock.ticks(ns), Ordering::Relaxed);
    }
}

/// A worker's watch. Reading the time stamp counter can cost as much as working on a packet, so it is read when somebody
/// asks for the time, at most once while packets are passed on.
#[derive(Debug)]
pub(crate) struct Watch {
    clock: Clock,
    /// The latest stamp.
    stamp: u64,
    /// Ticks up to it that are not accounted for.
    spent: u64,
    /// Something was done since, so that the stamp is too old for the next reader.
    stale: bool,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self { clock: Clock::get(), stamp: stamp(), spent: 0, stale: false }
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Something is done now.
    #[inline]
    pub(crate) fn pass(&mut self) {
        self.stale = true;
    }

    /// The time, ns on the clock.
    #[inline]
    pub(crate) fn now(&mut self) -> u64 {
        if self.stale {
            self.read();
        }
        self.last()
    }

    /// When the watch was read last.
    #[inline]
    pub(crate) fn last(&self) -> u64 {
        self.clock.at(self.stamp)
    }

    /// Ticks since the last lap.
    #[inline]
    pub(crate) fn lap(&mut self) -> u64 {
        self.read();
        std::mem::take(&mut self.spent)
    }

    /// What was until now is not to be accounted for.
    #[inline]
    pub(crate) fn skip(&mut self) {
        self.read();
        self.spent = 0;
    }

    #[inline]
    fn read(&mut self) {
        let stamp = stamp();
        self.spent = self.spent.wrapping_add(stamp.wrapping_sub(self.stamp));
        self.stamp = stamp;
        self.stale = false;
    }
}

/// The same moment on both clocks: of a few tries, the one with the least time between the readings.
fn pair() -> (Instant, u64) {
    let one = || {
        let before = dpdk::tsc();
        let instant = Instant::now();
        let after = dpdk::tsc();
        (after.wrapping_sub(before), instant, before + after.wrapping_sub(before) / 2)
    };
    let first = one();
    let best = (0..16).map(|_| one()).fold(first, |best, next| if next.0 < best.0 { next } else { best });
    (best.1, best.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_as_fast_as_the_kernels() {
        let clock = Clock::get();
        // pairs of readings that nothing came between, however busy the machine is
        let (began, from) = pair();
        std::thread::sleep(Duration::from_millis(200));
        let (ended, to) = pair();
        let real = ended.duration_since(began).as_nanos() as f64;
        let ours = (clock.at(to) - clock.at(from)) as f64;
        assert!((ours / real - 1.0).abs() < 1e-3, "{ours} ns of ours are {real} ns");
    }

    #[test]
    fn it_never_goes_back_and_knows_its_zero() {
        let clock = Clock::get();
        assert_eq!(clock.at(0), 0);
        let mut last = 0;
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        let ticks = clock.ticks(1_000_000_000);
        let ns = clock.at(clock.zero + ticks);
        assert!(ns.abs_diff(1_000_000_000) <= 1, "{ns}");
    }

    #[test]
    fn months_do_not_overflow() {
        let clock = Clock { zero: 0, ns_per_tick: 1 << 31 };
        let year = 365 * 24 * 3600 * 1_000_000_000u64;
        assert_eq!(clock.at(2 * year), year);
    }
}
