//! How delays change from one message of a device to its next (RFC 5481 section 4.1, IPDV), by the magnitude.
//!
//! Counted in the buckets of a [`histogram`] of three digits, and handed out as one: this is done for every message, and
//! takes a fraction of what recording in the histogram itself would.

use crate::histogram::{DELAY_MAX_NS, histogram};
use hdrhistogram::Histogram;

/// Buckets of one power of two.
const PART: usize = 1024;
/// Below 1024, and one for each power of two up to ten minutes in nanoseconds.
const PARTS: usize = 31;
const _: () = assert!(DELAY_MAX_NS < 1 << (PARTS + 9));

/// Changes, ns.
#[derive(Debug, Clone, Default)]
pub struct Variation {
    sum: u64,
    count: u64,
    /// Those that were needed so far.
    parts: [Option<Box<[u64; PART]>>; PARTS],
}

impl Variation {
    /// From one message to the next the delay changed by `ns`.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        let ns = ns.min(DELAY_MAX_NS);
        self.sum = self.sum.saturating_add(ns);
        self.count += 1;
        let part = (u64::BITS - (ns / PART as u64).leading_zeros()) as usize;
        let place = (ns >> part.saturating_sub(1)) as usize % PART;
        match &mut self.parts[part] {
            Some(counts) => counts[place] += 1,
            none => none.insert(empty())[place] += 1,
        }
    }

    /// The exact mean, ns: what RFC 3550's running jitter settles at; `None` without a pair.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// All of them.
    pub fn distribution(&self) -> Histogram<u64> {
        let mut all = histogram();
        for (part, counts) in self.parts.iter().enumerate() {
            let lowest = if part == 0 { 0 } else { PART };
            for (place, count) in
                counts.iter().flat_map(|counts| counts.iter().enumerate()).filter(|(_, n)| **n > 0)
            {
                let ns = ((lowest + place) as u64) << part.saturating_sub(1);
                let _grown = all.record_n(ns, *count);
            }
        }
        all
    }

    /// Add all of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.sum = self.sum.saturating_add(other.sum);
        self.count += other.count;
        for (mine, theirs) in self.parts.iter_mut().zip(&other.parts) {
            if let Some(theirs) = theirs {
                let mine = mine.get_or_insert_with(empty);
                mine.iter_mut().zip(theirs.iter()).for_each(|(mine, theirs)| *mine += theirs);
            }
        }
    }

    /// Back to zero, keeping the memory.
    pub fn clear(&mut self) {
        (self.sum, self.count) = (0, 0);
        self.parts.iter_mut().flatten().for_each(|counts| counts.fill(0));
    }
}

#[cold]
fn empty() -> Box<[u64; PART]> {
    Box::new([0; PART])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_the_histogram_of_what_was_recorded(
            values in prop::collection::vec((0u64..64).prop_flat_map(|bits| 0..=u64::MAX >> bits), 1..200),
        ) {
            let (mut one, mut other, mut expected) = (Variation::default(), Variation::default(), histogram());
            for (i, value) in values.iter().enumerate() {
                if i % 2 == 0 { one.record(*value) } else { other.record(*value) }
                prop_assert!(expected.record((*value).min(DELAY_MAX_NS)).is_ok());
            }
            one.merge(&other);
            let distribution = one.distribution();
            let (found, wanted) = (distribution.iter_recorded(), expected.iter_recorded());
            prop_assert!(found.map(|at| (at.value_iterated_to(), at.count_at_value()))
                .eq(wanted.map(|at| (at.value_iterated_to(), at.count_at_value()))));
            let mean = values.iter().map(|v| (*v).min(DELAY_MAX_NS) as f64).sum::<f64>() / values.len() as f64;
            prop_assert!((one.mean().unwrap_or(-1.0) - mean).abs() <= mean * 1e-9);
            one.clear();
            prop_assert!(one.distribution().is_empty() && one.mean().is_none());
        }
    }
}
