//! How far out of order a datagram came (RFC 4737), from the gaps that were open when it did; and what else is asked
//! of the order in which datagrams come.
//!
//! The first datagram with a higher number than a late one is the one that skipped it. So it is enough to keep, for
//! each gap in the numbers, which datagram opened it: what arrives in order is never looked at.

use crate::histogram::{DELAY_MAX_NS, histogram};
use crate::loss_pattern::{LossTracker, Patterns};
use crate::reorder_density::{Densities, Density};
use hdrhistogram::Histogram;
use std::ops::Range;

/// Memory for gaps of one receiver, in gaps: shared by its streams, but for the fewest that each has.
const GAPS: usize = 1 << 16;
const GAPS_EACH: (usize, usize) = (16, 512);

/// So many later datagrams make TCP send again what only came late (RFC 5681 section 3.2).
const TCP: u64 = 3;

/// Numbers that were skipped.
#[derive(Debug, Clone, Copy, Default)]
struct Gap {
    /// The first of them.
    first: u64,
    /// Which arrival skipped them, counted from 0.
    index: u64,
    /// When it came, ns.
    at: u64,
}

/// The latest gaps of one stream.
#[derive(Debug, Clone)]
struct Gaps {
    ring: Box<[Gap]>,
    /// How many there were, also those whose places others have taken since.
    opened: u64,
    /// Number and arrival of the last that were late.
    late: [(u64, u64); TCP as usize],
}

/// How late one datagram was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lateness {
    /// Arrivals since the first with a higher number (RFC 4737 section 4.2, reordering extent).
    extent: u64,
    /// Time since then, ns (section 4.3, late time offset).
    time: u64,
    /// Whether the three arrivals before it all had higher numbers (section 5, 3-reordering).
    by_three: bool,
}

impl Gaps {
    fn shared(streams: usize) -> Self {
        let each = (GAPS / streams.max(1)).clamp(GAPS_EACH.0, GAPS_EACH.1);
        Self { ring: vec![Gap::default(); each].into(), opened: 0, late: [(u64::MAX, 0); TCP as usize] }
    }

    fn clear(&mut self) {
        self.opened = 0;
        self.late.fill((u64::MAX, 0));
    }

    /// Arrival `index` came `now`, and skipped the numbers from `first` on.
    fn skipped(&mut self, first: u64, index: u64, now: u64) {
        let place = (self.opened % self.ring.len() as u64) as usize;
        self.ring[place] = Gap { first, index, at: now };
        self.opened += 1;
    }

    /// Arrival `index` came `now` with a number that was skipped. `None`: too many were skipped since to know more.
    fn late(&mut self, number: u64, index: u64, now: u64) -> Option<Lateness> {
        let gap = self.find(number);
        let since = index.saturating_sub(TCP);
        let lower = |(other, at): &(u64, u64)| *other < number && *at >= since;
        let by_three = !self.late.iter().any(lower);
        self.late.rotate_right(1);
        self.late[0] = (number, index);
        let gap = gap?;
        let extent = index.saturating_sub(gap.index);
        Some(Lateness { extent, time: now.saturating_sub(gap.at), by_three: by_three && extent >= TCP })
    }

    /// The gap that `number` is of: the last that begins with it or before.
    fn find(&self, number: u64) -> Option<Gap> {
        let size = self.ring.len() as u64;
        let at = |position: u64| self.ring[(position % size) as usize];
        let (mut low, mut high) = (self.opened.saturating_sub(size), self.opened);
        let oldest = low;
        while low < high {
            let middle = low + (high - low) / 2;
            if at(middle).first <= number { low = middle + 1 } else { high = middle }
        }
        (low > oldest).then(|| at(low - 1))
    }
}

/// One datagram that did not come in order.
#[derive(Debug, Clone, Copy)]
pub struct OutOfOrder {
    /// Its number.
    pub number: u64,
    /// Which arrival of its stream it is, counted from 0 and without copies.
    pub index: u64,
    /// When it came, ns.
    pub now: u64,
}

/// The order of one stream. Only what does not come in order is told.
#[derive(Debug, Clone)]
pub struct ReorderTracker {
    gaps: Gaps,
    density: Density,
    losses: LossTracker,
}

impl ReorderTracker {
    /// For one of `streams` streams: the more there are, the fewer gaps are kept of each.
    pub fn shared(streams: usize) -> Self {
        Self { gaps: Gaps::shared(streams), density: Density::default(), losses: LossTracker::default() }
    }

    /// As if nothing had come yet.
    pub fn clear(&mut self) {
        self.gaps.clear();
        self.density.clear();
        self.losses.clear();
    }

    /// `datagram` came when number `first` was expected. With `count`, what it skipped counts as lost if it never comes.
    #[cold]
    pub fn skipped(&mut self, first: u64, datagram: OutOfOrder, count: bool, into: &mut ReorderingTally) {
        self.gaps.skipped(first, datagram.index, datagram.now);
        self.density.disturbed(datagram.number, datagram.index, &mut into.densities);
        if count {
            self.losses.skipped(first, datagram.number, &mut into.losses);
        }
    }

    /// `datagram` came after one with a higher number.
    #[cold]
    pub fn late(&mut self, datagram: OutOfOrder, into: &mut ReorderingTally) {
        // `None`: too much was skipped since to know more
        if let Some(late) = self.gaps.late(datagram.number, datagram.index, datagram.now) {
            into.record(late);
        }
        self.density.disturbed(datagram.number, datagram.index, &mut into.densities);
        self.losses.arrived_late(datagram.number);
    }

    /// Nothing comes after `index` arrivals, and none of the numbers `last`, which were the last. Gives what is to be
    /// said of the stream.
    #[cold]
    pub fn finish(&mut self, index: u64, last: Range<u64>, into: &mut ReorderingTally) -> Pattern {
        let (furthest, most_waiting) = self.density.finish(index, &mut into.densities);
        if !last.is_empty() {
            self.losses.skipped(last.start, last.end, &mut into.losses);
        }
        self.losses.finish(&mut into.losses);
        let (loss_periods, longest_loss) = self.losses.periods;
        Pattern { loss_periods, longest_loss, furthest, most_waiting }
    }
}

/// What came out of order, or not at all, of all streams of a group.
#[derive(Debug, Clone)]
pub struct ReorderingTally {
    /// Extents, in datagrams.
    pub extent: Histogram<u64>,
    /// Late time offsets, ns.
    pub late: Histogram<u64>,
    /// How many were late by three or more.
    pub by_three: u64,
    /// How far from their places they came (RFC 5236).
    pub densities: Densities,
    /// What was lost (RFC 3357).
    pub losses: Patterns,
}

impl Default for ReorderingTally {
    fn default() -> Self {
        Self {
            extent: histogram(),
            late: histogram(),
            by_three: 0,
            densities: Densities::default(),
            losses: Patterns::default(),
        }
    }
}

impl ReorderingTally {
    fn record(&mut self, late: Lateness) {
        let _grown = self.extent.record(late.extent);
        let _grown = self.late.record(late.time.min(DELAY_MAX_NS));
        self.by_three += u64::from(late.by_three);
    }

    /// Whether all came, and in order.
    pub fn is_empty(&self) -> bool {
        self.extent.is_empty() && self.densities == Densities::default() && self.losses.is_empty()
    }

    /// Add all of `other`.
    pub fn merge(&mut self, other: &Self) {
        let _grown = self.extent.add(&other.extent);
        let _grown = self.late.add(&other.late);
        self.by_three += other.by_three;
        self.densities.merge(&other.densities);
        self.losses.merge(&other.losses);
    }

    /// Back to zero, keeping the memory.
    pub fn clear(&mut self) {
        self.extent.reset();
        self.late.reset();
        self.by_three = 0;
        self.densities = Densities::default();
        self.losses.clear();
    }
}

/// One stream's order in a few words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pattern {
    /// Loss periods (RFC 3357 section 6.2).
    pub loss_periods: u32,
    /// The longest, in datagrams.
    pub longest_loss: u32,
    /// The largest displacement, early or late (RFC 5236 section 3.3).
    pub furthest: u32,
    /// The most that waited for one expected (section 3.8).
    pub most_waiting: u32,
}

impl Pattern {
    /// Both, seen in different places.
    pub fn merge(&mut self, other: &Self) {
        self.loss_periods = self.loss_periods.saturating_add(other.loss_periods);
        self.longest_loss = self.longest_loss.max(other.longest_loss);
        self.furthest = self.furthest.max(other.furthest);
        self.most_waiting = self.most_waiting.max(other.most_waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What RFC 4737 says of each arrival, from all that came before it: `None` where it is in order or a copy.
    fn by_definition(arrivals: &[(u64, u64)]) -> Vec<Option<Lateness>> {
        let mut before: Vec<(u64, u64)> = Vec::new();
        let mut judge = |&(number, at): &(u64, u64)| {
            if before.iter().any(|(other, _)| *other == number) {
                return None;
            }
            let first_higher = before.iter().position(|(other, _)| *other > number);
            let late = first_higher.map(|j| Lateness {
                extent: (before.len() - j) as u64,
                time: at - before[j].1,
                by_three: before.len() >= 3
                    && before[before.len() - 3..].iter().all(|(other, _)| *other > number),
            });
            before.push((number, at));
            late
        };
        arrivals.iter().map(&mut judge).collect()
    }

    /// The same from gaps.
    fn by_gaps(arrivals: &[(u64, u64)], gaps: &mut Gaps) -> Vec<Option<Lateness>> {
        let (mut seen, mut next) = (std::collections::HashSet::new(), 0);
        let mut judge = |&(number, at): &(u64, u64)| {
            if !seen.insert(number) {
                return None;
            }
            let index = seen.len() as u64 - 1;
            if number < next {
                return gaps.late(number, index, at);
            }
            if number > next {
                gaps.skipped(next, index, at);
            }
            next = number + 1;
            None
        };
        arrivals.iter().map(&mut judge).collect()
    }

    #[test]
    fn the_examples_of_rfc_4737_come_out() {
        let times = |numbers: &[u64]| -> Vec<(u64, u64)> {
            numbers.iter().enumerate().map(|(i, number)| (*number, 10 * i as u64)).collect()
        };
        let late = |numbers: &[u64]| -> Vec<(u64, u64, bool)> {
            let all = by_gaps(&times(numbers), &mut Gaps::shared(1));
            all.into_iter().flatten().map(|late| (late.extent, late.time, late.by_three)).collect()
        };
        // one that four others overtook
        assert_eq!(late(&[1, 2, 3, 5, 6, 7, 8, 4, 9, 10]), [(4, 40, true)]);
        // two that came late together: between the second and those that overtook it stands the first
        assert_eq!(late(&[1, 2, 3, 4, 7, 8, 9, 10, 5, 6, 11]), [(4, 40, true), (5, 50, false)]);
        // lost ones are not late
        assert_eq!(late(&[1, 2, 5, 6, 9]), []);
    }

    #[test]
    fn a_gap_is_known_until_as_many_others_opened_as_there_is_room_for() {
        let mut gaps = Gaps::shared(GAPS);
        for i in 0..16 {
            gaps.skipped(10 * i, i, i);
        }
        assert_eq!(gaps.late(3, 100, 100).map(|late| late.extent), Some(100));
        gaps.skipped(160, 101, 101);
        assert_eq!(gaps.late(4, 102, 102), None);
        assert_eq!(gaps.late(13, 103, 103).map(|late| late.extent), Some(102));
    }

    proptest! {
        /// Numbers that wander: lost, late, doubled, in any mix.
        #[test]
        fn gaps_tell_what_the_definition_says(steps in proptest::collection::vec((0u64..24, 0u64..9), 1..300)) {
            let (mut base, mut now) = (0u64, 0);
            let arrivals: Vec<(u64, u64)> = steps
                .into_iter()
                .map(|(step, wait)| {
                    base += 1 + step / 20 * 3;
                    now += wait;
                    ((base + step).saturating_sub(12), now)
                })
                .collect();
            prop_assert_eq!(by_gaps(&arrivals, &mut Gaps::shared(1)), by_definition(&arrivals));
        }
    }
}
