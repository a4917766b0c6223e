//! How a run is steered: its clock, its phases, pause, stop and abort.
//!
//! Written by the daemon and read by workers each turn of their loop, without locks.

use protocol::meter::{Phase, Window};
use protocol::time::Time;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How the run is steered. Written by the daemon, read by workers.
#[derive(Debug)]
pub struct Control {
    epoch: Instant,
    /// Nanoseconds from `epoch` to the run's time zero; `u64::MAX` until it is set going.
    zero: AtomicU64,
    /// When the run stands still: the run's time at which it was paused, `u64::MAX` when it runs.
    paused_at: AtomicU64,
    measure: u64,
    /// May come sooner than planned: see [`Control::stop`].
    drain: AtomicU64,
    drain_for: u64,
    sample: u64,
    abort: AtomicBool,
    /// How often a rate was changed.
    rate_changes: AtomicU64,
}

impl Control {
    /// A run with these phases (nanoseconds) and a sample each `sample`.
    pub fn new(warmup: u64, measure: u64, drain: u64, sample: u64) -> Self {
        Self {
            epoch: Instant::now(),
            zero: AtomicU64::new(u64::MAX),
            paused_at: AtomicU64::new(u64::MAX),
            measure: warmup,
            drain: AtomicU64::new(warmup.saturating_add(measure)),
            drain_for: drain,
            sample: sample.max(1_000_000),
            abort: AtomicBool::new(false),
            rate_changes: AtomicU64::new(0),
        }
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Let the workers begin.
    pub fn start_workers(&self) {
        self.go_at(Instant::now());
    }

    /// Let the workers begin at this moment.
    pub fn go_at(&self, zero: Instant) {
        let zero = u64::try_from(zero.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX);
        self.zero.store(zero.min(u64::MAX - 1), Ordering::Release);
    }

    /// How long until the run begins; none once it has begun, or was never set going.
    pub fn begins_in(&self) -> Duration {
        match self.zero.load(Ordering::Acquire) {
            u64::MAX => Duration::ZERO,
            zero => Duration::from_nanos(zero.saturating_sub(self.elapsed())),
        }
    }

    /// The run's time, `None` before it began. Stands still while paused.
    #[inline]
    pub fn now(&self) -> Option<Time> {
        // the pause first: if it is seen to have ended, so is the time zero that was moved before
        let paused = self.paused_at.load(Ordering::Acquire);
        let zero = self.zero.load(Ordering::Acquire);
        match (zero, paused) {
            (u64::MAX, _) => None,
            (_, u64::MAX) => self.elapsed().checked_sub(zero).map(Time),
            (_, at) => Some(Time(at)),
        }
    }

    /// Stop the run's clock: nothing falls due, so nothing is sent.
    pub fn pause(&self) {
        if let Some(now) = self.now() {
            self.paused_at.store(now.0, Ordering::Relaxed);
        }
    }

    /// Let the clock go on from where it stood.
    pub fn resume(&self) {
        let at = self.paused_at.load(Ordering::Relaxed);
        if at != u64::MAX {
            self.zero.store(self.elapsed().saturating_sub(at), Ordering::Release);
            self.paused_at.store(u64::MAX, Ordering::Release);
        }
    }

    /// Whether the clock stands still.
    pub fn is_paused(&self) -> bool {
        self.paused_at.load(Ordering::Relaxed) != u64::MAX
    }

    /// Go to the drain phase now, if it has not come yet. Ends a pause too.
    pub fn stop(&self) {
        /// All workers learn of the end before it comes: what was due around it is then of the same phase for the
        /// one that sends it and the one that receives it.
        const AHEAD: u64 = 5_000_000;
        if let Some(now) = self.now() {
            let ahead = if self.is_paused() { 0 } else { AHEAD };
            self.drain.fetch_min(now.0 + ahead, Ordering::Relaxed);
        } else {
            self.abort();
        }
        self.resume();
    }

    /// Abort: workers end without draining and without closing flows.
    pub fn abort(&self) {
        self.abort.store(true, Ordering::Relaxed);
    }

    /// Whether the run is aborted.
    #[inline]
    pub fn aborted(&self) -> bool {
        self.abort.load(Ordering::Relaxed)
    }

    /// How often a rate was changed; workers look at their groups' rates again when it is another number.
    #[inline]
    pub fn rate_changes(&self) -> u64 {
        self.rate_changes.load(Ordering::Acquire)
    }

    /// A rate was changed.
    pub fn note_rate_change(&self) {
        self.rate_changes.fetch_add(1, Ordering::Release);
    }

    /// The phases, as they stand.
    #[inline]
    pub fn window(&self) -> Window {
        let drain = self.drain.load(Ordering::Relaxed);
        Window { measure: Time(self.measure.min(drain)), drain: Time(drain) }
    }

    /// When draining is given up.
    pub fn end(&self) -> Time {
        Time(self.drain.load(Ordering::Relaxed).saturating_add(self.drain_for))
    }

    /// The next moment after `after` at which a worker reports: every sample interval of each phase, and
    /// where a phase ends, so that no sample straddles two.
    pub fn boundary(&self, after: Time) -> Time {
        let w = self.window();
        let (from, to) = match w.phase(after) {
            Phase::Warmup => (0, w.measure.0),
            Phase::Measure => (w.measure.0, w.drain.0),
            Phase::Drain => (w.drain.0, u64::MAX),
        };
        let next = from + ((after.0 - from) / self.sample + 1) * self.sample;
        Time(next.min(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn samples_end_where_phases_do() {
        let c = Control::new(2 * S + S / 2, 2 * S, S, S);
        let mut at = Time(0);
        let mut seen = vec![];
        for _ in 0..7 {
            at = c.boundary(at);
            seen.push(at.0 as f64 / S as f64);
        }
        assert_eq!(seen, [1.0, 2.0, 2.5, 3.5, 4.5, 5.5, 6.5]);
        assert_eq!(c.window().phase(Time(2 * S + S / 2)), Phase::Measure);
    }

    #[test]
    fn a_pause_stops_the_clock() {
        let c = Control::new(S, S, S, S);
        assert_eq!(c.now(), None);
        c.start_workers();
        c.pause();
        let at = c.now();
        std::thread::sleep(std::time::Duration::from_millis(3));
        assert_eq!(c.now(), at);
        c.resume();
        let after = c.now().expect("going");
        assert!(after >= at.expect("going"));
        assert!(!c.is_paused());
    }

    #[test]
    fn a_run_begins_when_it_was_told_to() {
        let c = Control::new(S, S, S, S);
        c.go_at(Instant::now() + Duration::from_millis(20));
        assert_eq!(c.now(), None);
        assert!(c.begins_in() > Duration::from_millis(1));
        std::thread::sleep(Duration::from_millis(21));
        assert!(c.now().is_some());
        assert_eq!(c.begins_in(), Duration::ZERO);
    }

    #[test]
    fn stopping_before_it_begins_aborts() {
        let c = Control::new(S, S, S, S);
        c.go_at(Instant::now() + Duration::from_secs(3600));
        c.stop();
        assert!(c.aborted());
    }

    #[test]
    fn stopping_brings_the_drain_phase_forward() {
        let c = Control::new(S, S, S, S);
        c.start_workers();
        c.stop();
        assert!(c.window().drain < Time(S));
        assert_eq!(c.window().phase(Time(S)), Phase::Drain);
        assert!(c.end() < Time(2 * S));
    }
}
