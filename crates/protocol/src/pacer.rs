//! When something is due, again and again: evenly, at random around a mean, or as a recording has it. Flows of devices and
//! datagrams of streams are timed by the same [`Pacer`], and messages of a flow by the same [`Step`].

use crate::fine_time::{self, of_ns};
use crate::time::Time;
use crate::turns::Turns;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;

/// How the times between events are spread.
#[derive(Debug, Clone, PartialEq)]
pub enum Gaps {
    /// All alike.
    Constant,
    /// All alike over several machines, of whose events these are ours.
    Turns(Arc<Turns>),
    /// Exponentially, around the same mean: a Poisson process.
    Poisson,
    /// Evenly, between nothing and twice the mean.
    Uniform,
    /// These, ns, and again; they say the rate.
    Given(Arc<[u64]>),
}

/// Gaps as they are drawn.
#[derive(Debug, Clone)]
enum Spread {
    Constant,
    Turns { turns: Arc<Turns>, next: u64 },
    Poisson(SmallRng),
    Uniform(SmallRng),
    Given { gaps: Arc<[u64]>, next: usize },
}

/// How fast events follow each other, at each moment. Moments are in 2⁻³² ns ([`fine_time`]).
pub trait RateOverTime {
    /// So many events ahead are drawn one by one; beyond that as many are counted as there are on average.
    const DRAWN: u64;

    /// The moment that is `gap` mean gaps after `at`; the last there is: never.
    fn time_after(&self, at: u128, gap: f64) -> u128;

    /// The moment that is one mean gap after `at`.
    #[inline]
    fn next(&self, at: u128) -> u128 {
        self.time_after(at, 1.0)
    }

    /// How many events are before `end` where one is at `at` and all gaps are alike, if that can be told at once.
    fn regular_events(&self, at: u128, end: u128) -> Option<u64> {
        let _one_by_one = (at, end);
        None
    }

    /// How many events there are from `at` to `end` on average.
    fn mean(&self, at: u128, end: u128) -> u64;
}

/// A steady rate: the mean gap. Any is met however long a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step(pub u128);

impl Step {
    /// When event number `i` is, after number 0.
    #[inline]
    pub fn nth(self, i: u64) -> u128 {
        u128::from(i).saturating_mul(self.0)
    }

    /// How many events there are less than `span` after number 0, itself counted.
    #[inline]
    pub fn count(self, span: u128) -> u64 {
        u64::try_from(span.div_ceil(self.0)).unwrap_or(u64::MAX)
    }
}

impl RateOverTime for Step {
    /// About half a millisecond.
    const DRAWN: u64 = 65_536;

    #[inline]
    fn time_after(&self, at: u128, gap: f64) -> u128 {
        at + (gap * self.0 as f64) as u128
    }

    #[inline]
    fn next(&self, at: u128) -> u128 {
        at + self.0
    }

    fn regular_events(&self, at: u128, end: u128) -> Option<u64> {
        Some(self.count(end.saturating_sub(at)))
    }

    fn mean(&self, at: u128, end: u128) -> u64 {
        u64::try_from(end.saturating_sub(at) / self.0).unwrap_or(u64::MAX)
    }
}

/// When events are due.
#[derive(Debug, Clone)]
pub struct Pacer<R = Step> {
    /// When the next is due, in 2⁻³² ns; the last moment there is: never.
    pub at: u128,
    /// How fast they follow.
    pub rate: R,
    spread: Spread,
}

impl<R: RateOverTime> Pacer<R> {
    /// The first event is due at zero.
    pub fn new(rate: R, gaps: &Gaps, seed: u64) -> Self {
        let spread = match gaps {
            Gaps::Constant => Spread::Constant,
            Gaps::Turns(turns) => Spread::Turns { turns: turns.clone(), next: 0 },
            Gaps::Poisson => Spread::Poisson(SmallRng::seed_from_u64(seed)),
            Gaps::Uniform => Spread::Uniform(SmallRng::seed_from_u64(seed)),
            Gaps::Given(gaps) => Spread::Given { gaps: gaps.clone(), next: 0 },
        };
        Self { at: 0, rate, spread }
    }

    /// When the next event is due; [`Time::NEVER`] after the last.
    #[inline]
    pub fn due(&self) -> Time {
        fine_time::time(self.at)
    }

    /// Whether all gaps are alike.
    #[inline]
    pub fn is_even(&self) -> bool {
        matches!(self.spread, Spread::Constant)
    }

    /// Go on to the next event.
    #[inline]
    pub fn advance(&mut self) {
        self.at = match &mut self.spread {
            Spread::Constant => self.rate.next(self.at),
            Spread::Turns { turns, next } => {
                let gap = turns.gap(*next);
                *next += 1;
                self.rate.time_after(self.at, gap)
            }
            Spread::Poisson(rng) => self.rate.time_after(self.at, fine_time::exponential(rng)),
            Spread::Uniform(rng) => self.rate.time_after(self.at, 2.0 * rng.random::<f64>()),
            Spread::Given { gaps, next } => {
                let gap = gaps.get(*next).copied().unwrap_or(0);
                *next = if *next + 1 < gaps.len() { *next + 1 } else { 0 };
                self.at + of_ns(gap)
            }
        };
    }

    /// Go on by `gap` mean gaps, whatever their spread.
    pub fn advance_by(&mut self, gap: f64) {
        self.at = self.rate.time_after(self.at, gap);
    }
}

impl<R: RateOverTime + Clone> Pacer<R> {
    /// How many events are due before `end`. Of random ones that are far behind, how many are to be expected.
    pub fn events_before(&self, end: Time) -> u64 {
        self.before_fine(of_ns(end.0))
    }

    /// The same before a moment in 2⁻³² ns.
    pub fn before_fine(&self, end: u128) -> u64 {
        if self.at >= end {
            return 0;
        }
        match &self.spread {
            Spread::Constant if let Some(events) = self.rate.regular_events(self.at, end) => events,
            Spread::Given { gaps, .. } => self.given_before(gaps, end),
            _ => {
                let mut ahead = self.clone();
                for events in 0..R::DRAWN {
                    if ahead.at >= end {
                        return events;
                    }
                    ahead.advance();
                }
                let rest = if ahead.at < end { self.rate.mean(ahead.at, end).saturating_add(1) } else { 0 };
                R::DRAWN.saturating_add(rest)
            }
        }
    }

    /// Of a recording, whole rounds at once.
    fn given_before(&self, gaps: &[u64], end: u128) -> u64 {
        let round: u128 = gaps.iter().map(|gap| of_ns(*gap)).sum();
        let rounds = (end - self.at).checked_div(round).unwrap_or(0);
        let mut ahead = Self { at: self.at + rounds * round, ..self.clone() };
        let mut events = u64::try_from(rounds).unwrap_or(u64::MAX).saturating_mul(gaps.len() as u64);
        // Less than one more round, or nothing but gaps of zero, which are refused beforehand.
        for _ in 0..gaps.len() {
            if ahead.at >= end {
                break;
            }
            events += 1;
            ahead.advance();
        }
        events
    }
}

impl Pacer {
    /// Go on by whole rounds of so many events, as far as none of them is due after `until`. Of what has no law but its
    /// mean, about as many; a recording is gone through event by event.
    pub fn pass(&mut self, events: u32, until: Time) {
        let round = self.rate.0.saturating_mul(events.into());
        let left = of_ns(until.0).saturating_sub(self.at);
        if !matches!(self.spread, Spread::Given { .. }) {
            self.at += left / round * round;
        }
    }

    /// How many datagrams are due by and with `now`, at most `most`: `first` with the next event, which is due, and `each`
    /// with all others.
    #[inline]
    pub fn ready(&self, now: Time, first: usize, (each, most): (usize, usize)) -> usize {
        // The largest instant that still shows as `now`.
        let until = of_ns(now.0) | fine_time::LAST;
        let mut ready = first;
        if let Spread::Constant = self.spread {
            let (mut at, step) = (self.at, self.rate.0);
            if at.saturating_add(step.saturating_mul(most as u128)) <= until {
                return most;
            }
            // Few then: a division costs more than counting.
            while ready < most {
                at += step;
                if at > until {
                    return ready;
                }
                ready += each;
            }
            return most;
        }
        let mut ahead = self.clone();
        while ready < most {
            ahead.advance();
            if ahead.at > until {
                return ready;
            }
            ready += each;
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn events_that_are_counted_are_those_that_come(
            step in 1u128..1 << 50, end in 0u64..3_000_000, kind in 0usize..4, seed in 0u64..9,
        ) {
            let kinds = [Gaps::Constant, Gaps::Poisson, Gaps::Uniform, Gaps::Given([7, 0, 30_000].into())];
            let step = step.max(1 << 40);
            let mut pacer = Pacer::new(Step(step), &kinds[kind], seed);
            pacer.advance();
            let before = pacer.events_before(Time(end));
            let mut events = 0;
            while pacer.due() < Time(end) {
                pacer.advance();
                events += 1;
            }
            prop_assert_eq!(before, events);
        }

        #[test]
        fn even_events_are_those_of_their_number(step in 1u128..1 << 50, i in 0u64..1000) {
            let (step, mut pacer) = (Step(step), Pacer::new(Step(step), &Gaps::Constant, 1));
            (0..i).for_each(|_| pacer.advance());
            prop_assert_eq!(pacer.at, step.nth(i));
            prop_assert_eq!((step.count(pacer.at), step.count(pacer.at + 1)), (i, i + 1));
        }
    }

    #[test]
    fn events_far_ahead_are_counted_by_their_mean() {
        for gaps in [Gaps::Poisson, Gaps::Uniform] {
            let pacer = Pacer::new(Step(of_ns(100)), &gaps, 3);
            let (exact, counted) = (10_000_000u64, pacer.events_before(Time(1_000_000_000)));
            // five standard deviations of what is drawn
            assert!(counted.abs_diff(exact) < 5 * Step::DRAWN.isqrt(), "{gaps:?}: {counted}");
        }
    }
}
