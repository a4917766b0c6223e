//! When the messages of a flow fall due: message `i` at `base + i · interval`.
//!
//! The schedule does not wait for answers (open loop within the flow): when the other side is slow,
//! messages leave late and their delay still counts from when they were due.

use crate::fine_time;
use crate::meter::Phase;
use crate::model::Cx;
use crate::pacer::Step;
use crate::rate_timeline::RateTimeline;
use crate::time::Time;
use crate::unit::{Interval, Rate};
use std::sync::Arc;

/// The distance between two messages, in 2⁻³² ns, so that rates which do not divide a second stay exact.
#[derive(Debug, Clone)]
pub struct Pace {
    step: Step,
    /// How many messages fall due together.
    burst: u64,
    /// How the rate is changed while the run goes on.
    timeline: Arc<RateTimeline>,
}

impl Pace {
    /// One message every `interval`. Zero: each message is due when the former is answered.
    pub fn every(interval: Interval) -> Self {
        Self::new(Step(fine_time::of_ns(interval.ns())), interval.per_second())
    }

    /// So many messages a second; the rate must be above zero.
    pub fn per_second(rate: Rate) -> Self {
        Self::new(Step(fine_time::of_ns_f64(1e9 / rate.0)), rate.0)
    }

    fn new(step: Step, per_second: f64) -> Self {
        Self { step, burst: 1, timeline: Arc::new(RateTimeline::new(per_second)) }
    }

    /// How its rate is changed while the run goes on.
    pub fn timeline(&self) -> &Arc<RateTimeline> {
        &self.timeline
    }

    /// The same rate, `burst` messages at a time.
    #[must_use]
    pub fn in_bursts(self, burst: u32) -> Self {
        Self { burst: u64::from(burst.max(1)), ..self }
    }

    /// Whether messages wait for answers instead of for a time.
    #[inline]
    pub fn closed_loop(&self) -> bool {
        self.step == Step(0)
    }

    /// When message `i` is due.
    #[inline]
    pub fn due(&self, base: Time, i: u64) -> Time {
        let first = if self.burst == 1 { i } else { i - i % self.burst };
        let after = self.step.nth(first);
        if self.timeline.count() == 0 {
            return Time(base.0.saturating_add(fine_time::time(after).0));
        }
        let load = self.timeline.load_time(fine_time::of_ns(base.0)).saturating_add(after);
        fine_time::time(self.timeline.run_time(load))
    }

    /// How many messages have fallen due up to and with `at`.
    #[inline]
    pub fn due_by(&self, base: Time, at: Time) -> u64 {
        if at < base || self.closed_loop() {
            return 0;
        }
        // due(i) ≤ at  ⇔  i·step < (at − base + 1)·2³²
        let steady = self.timeline.count() == 0;
        let load = |at: Time| self.timeline.load_time(fine_time::of_ns(at.0));
        let since =
            if steady { fine_time::of_ns(at.since(base)) } else { load(at).saturating_sub(load(base)) };
        let below = since + fine_time::LAST + 1;
        let mut due = Step(self.step.nth(self.burst)).count(below).saturating_mul(self.burst);
        // of a rate that was changed it is about as many
        while !steady && due > 0 && self.due(base, due - 1) > at {
            due -= self.burst.min(due);
        }
        while !steady && self.due(base, due) <= at {
            due += self.burst;
        }
        due
    }

    /// How many messages from `next` on (of `count`; 0: no end) fall due before `end`.
    #[inline]
    pub fn pending(&self, base: Time, next: u64, count: u64, end: Time) -> u64 {
        // mostly none, which costs no division to see
        if self.closed_loop() || self.due(base, next) >= end {
            return 0;
        }
        let limit = if count == 0 { u64::MAX } else { count };
        self.due_by(base, Time(end.0 - 1)).min(limit).saturating_sub(next)
    }

    /// The flow ends, or sends no more: count as intended the messages from `next` on (of `count`; 0: no
    /// end) that fell due while the load was on and were never sent. Of a load with a total these are sent by
    /// other flows while the load is on: see [`Cx::unsendable`].
    pub fn count_missed(&self, cx: &mut Cx<'_>, base: Time, next: u64, count: u64) {
        let over = Time(cx.now.0.saturating_add(1));
        let warmup = self.pending(base, next, count, cx.window.measure.min(over));
        let all = self.pending(base, next, count, cx.window.drain.min(over));
        let (warmup, all) = (warmup.min(cx.unsendable), all.min(cx.unsendable));
        cx.unsendable -= all;
        cx.meter[Phase::Warmup as usize].counts.messages_intended += warmup;
        cx.meter[Phase::Measure as usize].counts.messages_intended += all - warmup;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use proptest::prelude::*;

    #[test]
    fn a_third_of_a_second_does_not_drift() {
        let pace = Pace::per_second(Rate(3.0));
        assert_eq!(pace.due(Time(5), 3_000_000).0 / 1000, 1_000_000_000_000);
        assert_eq!(Pace::every(Interval::ms(10)).due(Time(7), 3), Time(30_000_007));
        assert!(Pace::every(Interval::default()).closed_loop());
    }

    #[test]
    fn what_fell_due_and_was_not_sent_still_counts_as_intended() {
        let mut bench = Bench::new(());
        bench.window.measure = Time(100);
        bench.window.drain = Time(200);
        let pace = Pace::every(Interval(std::time::Duration::from_nanos(10)));
        bench.now = Time(1000);
        // due at 0, 10, …; 5 were sent; 6..=10 (50 … 90) in the warm-up, ten in the measure phase, then none
        bench.call(|(), cx| pace.count_missed(cx, Time::ZERO, 5, 0));
        assert_eq!(bench.counts(Phase::Warmup).messages_intended, 5);
        assert_eq!(bench.counts(Phase::Measure).messages_intended, 10);
        assert_eq!(bench.counts(Phase::Drain).messages_intended, 0);
        bench.call(|(), cx| pace.count_missed(cx, Time::ZERO, 5, 7));
        assert_eq!(bench.counts(Phase::Warmup).messages_intended, 7);
        // ten were due, of a load that ends with three messages unsent: no device misses one of them again
        bench.call(|(), cx| {
            cx.unsendable = 3;
            pace.count_missed(cx, Time(100), 0, 0);
            assert_eq!(cx.unsendable, 0);
            pace.count_missed(cx, Time(100), 0, 0);
        });
        assert_eq!(bench.counts(Phase::Measure).messages_intended, 13);
    }

    #[test]
    fn a_rate_that_changes_moves_only_what_falls_due_later() {
        let pace = Pace::every(Interval::ms(10));
        let base = Time(3_000_000);
        let before: Vec<Time> = (0..10).map(|i| pace.due(base, i)).collect();
        // number 9 is due at 93 ms; from 98 ms on twice as fast
        assert!(pace.timeline().change_to(Time(98_000_000), 2.0));
        assert_eq!((0..10).map(|i| pace.due(base, i)).collect::<Vec<_>>(), before);
        let ms = [100.5, 105.5, 110.5].map(|ms: f64| Time((ms * 1e6) as u64));
        assert_eq!([10, 11, 12].map(|i| pace.due(base, i)), ms);
        assert_eq!(
            [97.9, 100.4, 100.5, 110.5].map(|ms| pace.due_by(base, Time((ms * 1e6) as u64))),
            [10, 10, 11, 13]
        );
        assert_eq!(pace.pending(base, 10, 0, Time(110_500_000)), 2);
    }

    proptest! {
        #[test]
        fn due_and_due_by_agree(
            rate in 0.01f64..1e8, base in 0u64..1 << 40, i in 0u64..1 << 30, burst in 1u32..9,
            factor in proptest::option::of(0.01f64..100.0),
        ) {
            let pace = Pace::per_second(Rate(rate)).in_bursts(burst);
            if let Some(factor) = factor {
                pace.timeline().change_to(Time(base + (1 << 30)), factor);
            }
            let base = Time(base);
            let at = pace.due(base, i);
            let n = pace.due_by(base, at);
            prop_assert!(n > i);
            prop_assert!(pace.due(base, n - 1) <= at && pace.due(base, n) > at);
        }
    }
}
