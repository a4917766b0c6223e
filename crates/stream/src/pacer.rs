//! When something is due, again and again: evenly, at random around a mean, or as a recording has it.

use protocol::fine_time::{self, of_ns};
use protocol::time::Time;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::sync::Arc;

/// How the times between slots are spread.
#[derive(Debug, Clone, PartialEq)]
pub enum Gaps {
    /// All alike.
    Constant,
    /// Exponentially, around the same mean: a Poisson process.
    Poisson,
    /// These, ns, and again; they say the rate.
    Given(Arc<[u64]>),
}

/// When slots are due.
#[derive(Debug, Clone)]
pub(super) struct Pacer {
    /// When the next slot is due and how far apart they are, on average: nanoseconds, in units of 2^-32, so that
    /// any rate is met in the long run.
    pub at: u128,
    pub step: u128,
    spread: Spread,
}

#[derive(Debug, Clone)]
enum Spread {
    Constant,
    Poisson(SmallRng),
    Given { gaps: Arc<[u64]>, next: usize },
}

impl Pacer {
    /// From zero on, `every` ns.
    pub fn new(every: f64, gaps: &Gaps, seed: u64) -> Self {
        let step = fine_time::of_ns_f64(every);
        let spread = match gaps {
            Gaps::Constant => Spread::Constant,
            Gaps::Poisson => Spread::Poisson(SmallRng::seed_from_u64(seed)),
            Gaps::Given(gaps) => Spread::Given { gaps: gaps.clone(), next: 0 },
        };
        Self { at: 0, step, spread }
    }

    /// When the next slot is due.
    #[inline]
    pub fn due(&self) -> Time {
        fine_time::time(self.at)
    }

    /// Whether all gaps are alike.
    #[inline]
    pub fn is_even(&self) -> bool {
        matches!(self.spread, Spread::Constant)
    }

    /// Go on to the next slot.
    #[inline]
    pub fn advance(&mut self) {
        self.at += match &mut self.spread {
            Spread::Constant => self.step,
            Spread::Poisson(rng) => (fine_time::exponential(rng) * self.step as f64) as u128,
            Spread::Given { gaps, next } => {
                let gap = gaps.get(*next).copied().unwrap_or(0);
                *next = if *next + 1 < gaps.len() { *next + 1 } else { 0 };
                of_ns(gap)
            }
        };
    }

    /// Go on by whole rounds of so many slots, as far as none of them is due after `until`. Of what has no law but its
    /// mean, about as many; a recording is gone through slot by slot.
    pub fn pass(&mut self, slots: u32, until: Time) {
        let round = self.step.saturating_mul(slots.into());
        let left = of_ns(until.0).saturating_sub(self.at);
        if !matches!(self.spread, Spread::Given { .. }) {
            self.at += left / round * round;
        }
    }

    /// How many datagrams are due by and with `now`, at most `most`: `first` in the next slot, which is due, and `each` in
    /// all others.
    #[inline]
    pub fn ready(&self, now: Time, first: usize, (each, most): (usize, usize)) -> usize {
        // The largest instant that still shows as `now`.
        let until = of_ns(now.0) | fine_time::LAST;
        let mut ready = first;
        if let Spread::Constant = self.spread {
            let mut at = self.at;
            if at.saturating_add(self.step.saturating_mul(most as u128)) <= until {
                return most;
            }
            // Few then: a division costs more than counting.
            while ready < most {
                at += self.step;
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

    /// How many slots are due before `end`. Of a Poisson process that is far behind, how many are to be expected.
    pub fn before(&self, end: Time) -> u64 {
        let end = of_ns(end.0);
        if self.at >= end {
            return 0;
        }
        let span = end - self.at;
        match &self.spread {
            Spread::Constant => u64::try_from(span.div_ceil(self.step)).unwrap_or(u64::MAX),
            Spread::Poisson(_) => {
                /// Drawn one by one: about half a millisecond.
                const DRAWN: u64 = 65_536;
                let mut ahead = self.clone();
                let mut slots = 0;
                while ahead.at < end && slots < DRAWN {
                    slots += 1;
                    ahead.advance();
                }
                slots + u64::try_from(end.saturating_sub(ahead.at) / self.step).unwrap_or(u64::MAX - DRAWN)
            }
            Spread::Given { gaps, .. } => {
                let round: u128 = gaps.iter().map(|gap| of_ns(*gap)).sum();
                let rounds = span.checked_div(round).unwrap_or(0);
                let mut ahead = Self { at: self.at + rounds * round, ..self.clone() };
                let mut slots = u64::try_from(rounds).unwrap_or(u64::MAX).saturating_mul(gaps.len() as u64);
                // Less than one more round, or nothing but gaps of zero, which are refused beforehand.
                for _ in 0..gaps.len() {
                    if ahead.at >= end {
                        break;
                    }
                    slots += 1;
                    ahead.advance();
                }
                slots
            }
        }
    }
}
