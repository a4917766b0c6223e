//! Which datagrams were lost, as patterns: loss distances, loss periods and their lengths (RFC 3357).
//!
//! A number is lost when 1,024 higher ones went by and it did not come, or when nothing comes any more. Only gaps are
//! told, so what arrives in order costs nothing.

use crate::histogram::histogram;
use hdrhistogram::Histogram;

/// So far back a number may still come.
const HORIZON: u64 = 1024;
const WORDS: usize = (HORIZON / 64) as usize;

/// The loss constraint delta (section 6.1), the one of its example: more than one loss in a hundred.
pub const DELTA: u64 = 99;

/// Patterns, of all streams of a group.
#[derive(Debug, Clone)]
pub struct Patterns {
    /// Losses in a row (section 6.3).
    pub lengths: Histogram<u64>,
    /// From each loss to the one before of its stream (section 5.4.1); a stream's first has none.
    pub distances: Histogram<u64>,
    /// The same from the first of a period to the last of the one before (section 6.4).
    pub between: Histogram<u64>,
}

impl Default for Patterns {
    fn default() -> Self {
        Self { lengths: histogram(), distances: histogram(), between: histogram() }
    }
}

impl Patterns {
    /// Add all of `other`.
    pub fn merge(&mut self, other: &Self) {
        let _grown = self.lengths.add(&other.lengths);
        let _grown = self.distances.add(&other.distances);
        let _grown = self.between.add(&other.between);
    }

    /// Back to zero, keeping the memory.
    pub fn clear(&mut self) {
        self.lengths.reset();
        self.distances.reset();
        self.between.reset();
    }

    /// Whether nothing was lost.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty() && self.distances.is_empty()
    }

    /// How many were lost: in each period, one more than came just after another.
    pub fn lost(&self) -> u64 {
        self.lengths.len() + self.distances.count_at(1)
    }

    /// How many losses came no more than `delta` after the one before.
    pub fn noticeable(&self, delta: u64) -> u64 {
        self.distances
            .iter_recorded()
            .take_while(|at| at.value_iterated_to() <= delta)
            .map(|at| at.count_at_value())
            .sum()
    }
}

/// One stream's.
#[derive(Debug, Clone)]
pub struct LossTracker {
    /// Which numbers are missing of those up to `end`, at bit number modulo [`HORIZON`].
    missing: [u64; WORDS],
    /// Below it all is settled.
    from: u64,
    /// One past the last that was missing.
    end: u64,
    /// The loss period under way, from its first to one past its last; empty before the first.
    period: (u64, u64),
    /// Loss periods, and the longest.
    pub periods: (u32, u32),
}

impl Default for LossTracker {
    fn default() -> Self {
        Self { missing: [0; WORDS], from: 0, end: 0, period: (0, 0), periods: (0, 0) }
    }
}

impl LossTracker {
    /// As if nothing had come yet.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Number `number` came when `first` was expected.
    pub fn skipped(&mut self, first: u64, number: u64, into: &mut Patterns) {
        let settled = number.saturating_sub(HORIZON);
        self.settle(settled, into);
        if first < settled {
            self.count_lost(first, settled, into);
        }
        let mut at = first.max(settled);
        while at < number {
            let (bit, many) = (at % 64, (64 - at % 64).min(number - at));
            self.missing[word(at)] |= low_bits(many) << bit;
            at += many;
        }
        self.end = number;
    }

    /// Number `number` came late.
    pub fn arrived_late(&mut self, number: u64) {
        if (self.from..self.end).contains(&number) {
            self.missing[word(number)] &= !(1 << (number % 64));
        }
    }

    /// Nothing more comes.
    pub fn finish(&mut self, into: &mut Patterns) {
        self.settle(self.end, into);
        self.close(into);
        self.period = (0, 0);
    }

    /// What is missing below `upto` is lost.
    fn settle(&mut self, upto: u64, into: &mut Patterns) {
        let end = upto.min(self.end);
        let mut at = self.from.max(self.end.saturating_sub(HORIZON));
        while at < end {
            let bits = self.missing[word(at)] >> (at % 64);
            let most = (64 - at % 64).min(end - at);
            let there = u64::from(bits.trailing_zeros()).min(most);
            let many =
                u64::from((!bits.checked_shr(there as u32).unwrap_or(0)).trailing_zeros()).min(most - there);
            if many > 0 {
                self.missing[word(at)] &= !(low_bits(many) << ((at + there) % 64));
                self.count_lost(at + there, at + there + many, into);
            }
            at += there + many;
        }
        self.from = self.from.max(upto);
    }

    /// These were lost, none of them empty nor before the last.
    fn count_lost(&mut self, first: u64, end: u64, into: &mut Patterns) {
        let (begun, last) = self.period;
        let mut in_row = end - first;
        if last == first && begun < last {
            self.period.1 = end;
        } else {
            self.close(into);
            if begun < last {
                let distance = first - (last - 1);
                let _grown = into.distances.record(distance);
                let _grown = into.between.record(distance);
            }
            self.period = (first, end);
            in_row -= 1;
        }
        if in_row > 0 {
            let _grown = into.distances.record_n(1, in_row);
        }
    }

    /// The loss period under way is over.
    fn close(&mut self, into: &mut Patterns) {
        let length = self.period.1 - self.period.0;
        if length > 0 {
            let _grown = into.lengths.record(length);
            let (many, longest) = self.periods;
            self.periods = (many.saturating_add(1), longest.max(u32::try_from(length).unwrap_or(u32::MAX)));
        }
    }
}

fn word(number: u64) -> usize {
    (number % HORIZON / 64) as usize
}

/// So many bits, 1 to 64.
fn low_bits(many: u64) -> u64 {
    u64::MAX >> (64 - many)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn all(of: &Histogram<u64>) -> Vec<u64> {
        of.iter_recorded()
            .flat_map(|at| (0..at.count_at_value()).map(move |_| at.value_iterated_to()))
            .collect()
    }

    /// Of the numbers up to `sent`, these arrived.
    fn patterns(arrived: &[u64], sent: u64) -> (Patterns, LossTracker) {
        let (mut losses, mut into, mut next) = (LossTracker::default(), Patterns::default(), 0);
        for number in arrived {
            if *number < next {
                losses.arrived_late(*number);
            } else if *number > next {
                losses.skipped(next, *number, &mut into);
            }
            next = next.max(number + 1);
        }
        if next < sent {
            losses.skipped(next, sent, &mut into);
        }
        losses.finish(&mut into);
        (into, losses)
    }

    #[test]
    fn the_examples_of_rfc_3357_come_out() {
        // sections 5.4.3 and 6.5: of 1 to 10, these were lost: 2, 5, 7, 9, 10
        let (found, losses) = patterns(&[0, 1, 3, 4, 6, 8], 11);
        assert_eq!(all(&found.distances), [1, 2, 2, 3]);
        assert_eq!(all(&found.lengths), [1, 1, 1, 2]);
        assert_eq!(all(&found.between), [2, 2, 3]);
        assert_eq!((found.noticeable(2), found.lost()), (3, 5));
        assert_eq!(losses.periods, (4, 2));
        // section 6.1: 50, and three from 125 on
        let arrived: Vec<u64> = (0..200).filter(|n| ![50, 125, 126, 127].contains(n)).collect();
        assert_eq!(patterns(&arrived, 200).0.noticeable(DELTA), 3);
        // and 100, 175, 275, 290, 400 of 500
        let arrived: Vec<u64> = (0..500).filter(|n| ![100, 175, 275, 290, 400].contains(n)).collect();
        assert_eq!(patterns(&arrived, 500).0.noticeable(DELTA), 2);
    }

    #[test]
    fn a_number_may_still_come_until_1024_higher_ones_went_by() {
        let upto = |last: u64, late: u64| {
            let mut arrived: Vec<u64> = (0..=last).filter(|n| ![5, last - 1].contains(n)).collect();
            arrived.push(late);
            patterns(&arrived, last).0.lost()
        };
        assert_eq!(upto(5 + HORIZON, 5), 1, "the last but one");
        assert_eq!(upto(6 + HORIZON, 5), 2);
        let (one, _) = patterns(&[0, 1_000_000], 1_000_001);
        assert_eq!((one.lengths.len(), one.lost()), (1, 999_999), "however many they are");
    }

    proptest! {
        /// Against a list of all that did not come.
        #[test]
        fn periods_and_distances_are_those_of_a_full_list(
            steps in prop::collection::vec((0u64..40, 0u64..400), 1..300), sent in 0u64..100,
        ) {
            let (mut next, mut seen) = (0u64, BTreeSet::new());
            let mut arrived = Vec::new();
            for (ahead, behind) in steps {
                let number = (next + ahead * ahead / 40).saturating_sub(behind / 4 * (behind % 4 / 3));
                next = next.max(number + 1);
                if seen.insert(number) {
                    arrived.push(number);
                }
            }
            let sent = next + sent;
            let lost: Vec<u64> = (0..sent).filter(|number| !seen.contains(number)).collect();
            let mut distances: Vec<u64> = lost.windows(2).map(|two| two[1] - two[0]).collect();
            let mut lengths: Vec<u64> = lost.chunk_by(|a, b| b - a == 1).map(|row| row.len() as u64).collect();
            let mut between: Vec<u64> = distances.iter().copied().filter(|distance| *distance > 1).collect();
            distances.sort_unstable();
            lengths.sort_unstable();
            between.sort_unstable();
            let (found, losses) = patterns(&arrived, sent);
            prop_assert_eq!(losses.periods.0 as usize, lengths.len());
            prop_assert_eq!(losses.periods.1 as u64, lengths.last().copied().unwrap_or(0));
            prop_assert_eq!(all(&found.distances), distances);
            prop_assert_eq!(all(&found.lengths), lengths);
            prop_assert_eq!(all(&found.between), between);
            prop_assert_eq!(found.lost(), lost.len() as u64);
        }
    }
}
