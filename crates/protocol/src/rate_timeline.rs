//! The rate of a group as it is changed while the run goes on.
//!
//! Schedules count in *load time*, which runs faster than the run's own while the rate is above the profile's, and slower
//! while it is below. A change is for a moment to come: times that fell due before it stay as they were, so intended times
//! and backlogs are exact on both sides of it. Whoever sends reads it without locks.

use crate::fine_time::{self, of_ns};
use crate::time::Time;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Changes of one rate in one run.
pub const CHANGES: usize = 1_000;
/// What times are rounded up by, 2⁻³² ns: more than a float is off by, far less than a nanosecond.
const ROUNDING: u128 = 1 << 24;

/// From a moment on the rate is another.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Change {
    /// The moment, in the run's time and in load time, 2⁻³² ns.
    at: u128,
    load: u128,
    /// Load time that passes in a unit of the run's.
    factor: f64,
}

const BEFORE: Change = Change { at: 0, load: 0, factor: 1.0 };

/// How a rate changed so far. One thread changes it, any number read it.
#[derive(Debug, Default)]
pub struct RateTimeline {
    /// The rate that the profile asks for, a second; zero: there is none.
    nominal: AtomicU64,
    count: AtomicUsize,
    changes: OnceLock<Box<[OnceLock<Change>]>>,
}

impl RateTimeline {
    /// A rate of so many a second that nobody has changed.
    pub fn new(nominal: f64) -> Self {
        let this = Self::default();
        this.set_nominal(nominal);
        this
    }

    /// What the profile asks for, a second; zero where nothing is sent at a rate.
    pub fn nominal(&self) -> f64 {
        f64::from_bits(self.nominal.load(Ordering::Relaxed))
    }

    /// The transport knows the rate better than the model.
    pub fn set_nominal(&self, per_second: f64) {
        self.nominal.store(per_second.to_bits(), Ordering::Relaxed);
    }

    /// How often it was changed.
    #[inline]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    fn change_at(&self, number: usize) -> Change {
        let slot = self.changes.get().and_then(|slots| slots.get(number));
        slot.and_then(OnceLock::get).copied().unwrap_or(BEFORE)
    }

    /// The last change that `began` holds of.
    fn latest(&self, began: impl Fn(&Change) -> bool) -> Change {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low.midpoint(high);
            if began(&self.change_at(middle)) { low = middle + 1 } else { high = middle }
        }
        low.checked_sub(1).map_or(BEFORE, |last| self.change_at(last))
    }

    /// Change number `number` and what it multiplies the profile's rate by, if there were so many.
    pub fn change(&self, number: usize) -> Option<(Time, f64)> {
        let change = (number < self.count()).then(|| self.change_at(number))?;
        Some((fine_time::time(change.at), change.factor))
    }

    /// How many changes have come by `at`.
    pub fn count_by(&self, at: Time) -> usize {
        (0..self.count()).take_while(|number| self.change(*number).is_some_and(|(t, _)| t <= at)).count()
    }

    /// What the profile's rate is multiplied by at the end of all changes.
    pub fn factor(&self) -> f64 {
        self.latest(|_| true).factor
    }

    /// From `at` on, a moment to come, the profile's rate times `factor`. False after too many changes, and before the last one.
    pub fn change_to(&self, at: Time, factor: f64) -> bool {
        let count = self.count();
        let last = self.latest(|_| true);
        let at = of_ns(at.0);
        if count >= CHANGES || (count > 0 && at <= last.at) {
            return false;
        }
        let load = last.load + scaled(at - last.at, last.factor);
        let slots = self.changes.get_or_init(|| (0..CHANGES).map(|_| OnceLock::new()).collect());
        let set = slots[count].set(Change { at, load, factor }).is_ok();
        self.count.store(count + usize::from(set), Ordering::Release);
        set
    }

    /// Load time at a moment of the run, both 2⁻³² ns.
    #[inline]
    pub fn load_time(&self, at: u128) -> u128 {
        if self.count() == 0 {
            return at;
        }
        let change = self.latest(|change| change.at <= at);
        change.load + scaled(at - change.at, change.factor)
    }

    /// The moment of the run at which it is `load` in load time, both 2⁻³² ns. The last there is stays that.
    #[inline]
    pub fn run_time(&self, load: u128) -> u128 {
        if self.count() == 0 || load == u128::MAX {
            return load;
        }
        let change = self.latest(|change| change.load <= load);
        change.at + scaled(load - change.load, 1.0 / change.factor) + ROUNDING
    }

    /// Load time before which everything falls due that does so before `end`.
    pub fn load_until(&self, end: Time) -> u128 {
        let end = of_ns(end.0);
        if self.count() == 0 { end } else { self.load_time(end.saturating_sub(ROUNDING)) }
    }
}

fn scaled(span: u128, factor: f64) -> u128 {
    if factor == 1.0 { span } else { (span as f64 * factor) as u128 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn load_time_runs_as_fast_as_the_rate() {
        let timeline = RateTimeline::new(10.0);
        assert_eq!((timeline.load_time(7), timeline.run_time(7), timeline.factor()), (7, 7, 1.0));
        assert!(timeline.change_to(Time(100 * MS), 2.0) && timeline.change_to(Time(200 * MS), 0.5));
        let load = |ms: u64| fine_time::time(timeline.load_time(of_ns(ms * MS))).0 / MS;
        assert_eq!([50, 100, 150, 200, 300].map(load), [50, 100, 200, 300, 350]);
        let run = |ms: u64| fine_time::time(timeline.run_time(of_ns(ms * MS)));
        assert_eq!([50, 100, 200, 300, 350].map(run), [50, 100, 150, 200, 300].map(|ms| Time(ms * MS)));
        assert_eq!((timeline.count_by(Time(100 * MS)), timeline.change(1)), (1, Some((Time(200 * MS), 0.5))));
        assert_eq!(timeline.run_time(u128::MAX), u128::MAX);
        assert!(!timeline.change_to(Time(200 * MS), 3.0), "a moment has one rate");
    }

    #[test]
    fn no_more_changes_than_there_is_room_for() {
        let timeline = RateTimeline::new(1.0);
        let changed = |n: usize| timeline.change_to(Time((n as u64 + 1) * MS), 1.0 + n as f64);
        assert!((0..CHANGES).all(changed) && !changed(CHANGES));
        assert_eq!(timeline.count(), CHANGES);
    }

    proptest! {
        #[test]
        fn what_is_due_before_a_moment_is_what_is_before_it_in_load_time(
            changes in prop::collection::vec((1u64..1 << 34, 0.001f64..1000.0), 0..5),
            load in 0u64..1 << 40, end in 0u64..1 << 40,
        ) {
            let timeline = RateTimeline::new(1.0);
            let mut at = 0;
            for (after, factor) in changes {
                at += after;
                prop_assert!(timeline.change_to(Time(at), factor));
            }
            let due = fine_time::time(timeline.run_time(of_ns(load)));
            // to the nanosecond; on it floats decide
            if due.0.abs_diff(end) > 1 {
                prop_assert_eq!(due < Time(end), of_ns(load) < timeline.load_until(Time(end)));
            }
            prop_assert!(due <= fine_time::time(timeline.run_time(of_ns(load + 1))));
        }
    }
}
