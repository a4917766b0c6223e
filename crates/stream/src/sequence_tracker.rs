//! What became of one stream: order and duplicates, from the sequence numbers of arrivals.

/// How a datagram arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// With the number expected.
    InOrder,
    /// With a later one, also in order: those from this number on are missing so far.
    Ahead(u64),
    /// After one with a higher number: RFC 4737 section 3.3, type-P-reordered.
    Reordered,
    /// Not for the first time.
    Duplicate,
}

/// How far back a duplicate is told from one that is only late, in datagrams.
pub const WINDOW: u64 = 1024;
const WORDS: usize = (WINDOW / 64) as usize;

/// One stream, as seen by the receiver.
#[derive(Debug, Clone)]
pub struct SequenceTracker {
    /// One more than the highest number seen: RFC 4737's NextExp.
    next: u64,
    /// Whether number n was seen, for the last [`WINDOW`] numbers, at bit n modulo [`WINDOW`].
    seen: [u64; WORDS],
}

impl Default for SequenceTracker {
    fn default() -> Self {
        Self { next: 0, seen: [0; WORDS] }
    }
}

impl SequenceTracker {
    /// Number `sequence` arrived.
    #[inline]
    pub fn arrived(&mut self, sequence: u64) -> Arrival {
        let (word, bit) = ((sequence % WINDOW / 64) as usize, 1 << (sequence % 64));
        if sequence >= self.next {
            let expected = self.next;
            if sequence > expected {
                self.forget(sequence);
            }
            self.next = sequence + 1;
            self.seen[word] |= bit;
            return if sequence == expected { Arrival::InOrder } else { Arrival::Ahead(expected) };
        }
        if self.next - sequence > WINDOW {
            // Too long ago to know; a late one is likelier than a copy.
            return Arrival::Reordered;
        }
        if self.seen[word] & bit != 0 {
            return Arrival::Duplicate;
        }
        self.seen[word] |= bit;
        Arrival::Reordered
    }

    /// The numbers from `next` up to `sequence` were not seen: their places still show older ones.
    fn forget(&mut self, sequence: u64) {
        if sequence - self.next >= WINDOW {
            self.seen = [0; WORDS];
            return;
        }
        for missing in self.next..sequence {
            self.seen[(missing % WINDOW / 64) as usize] &= !(1 << (missing % 64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Arrival::{Ahead, Duplicate, InOrder, Reordered};
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn arrivals(sequences: &[u64]) -> Vec<Arrival> {
        let mut tracker = SequenceTracker::default();
        sequences.iter().map(|s| tracker.arrived(*s)).collect()
    }

    #[test]
    fn order_gaps_late_ones_and_copies() {
        assert_eq!(arrivals(&[0, 1, 2]), [InOrder; 3]);
        assert_eq!(arrivals(&[0, 3, 1, 2, 4]), [InOrder, Ahead(1), Reordered, Reordered, InOrder]);
        assert_eq!(
            arrivals(&[0, 0, 2, 2, 1, 1]),
            [InOrder, Duplicate, Ahead(1), Duplicate, Reordered, Duplicate]
        );
    }

    #[test]
    fn the_window_is_as_long_as_it_says() {
        let upto = |last: u64, again: u64| {
            let mut tracker = SequenceTracker::default();
            (0..=last).for_each(|s| assert_eq!(tracker.arrived(s), InOrder));
            tracker.arrived(again)
        };
        assert_eq!(upto(WINDOW - 1, 0), Duplicate);
        assert_eq!(upto(WINDOW, 0), Reordered);
        assert_eq!(arrivals(&[5, 5 + WINDOW, 6]), [Ahead(0), Ahead(6), Reordered]);
        assert_eq!(arrivals(&[5, 5 + 3 * WINDOW, 6 + 2 * WINDOW]), [Ahead(0), Ahead(6), Reordered]);
    }

    proptest! {
        /// Against a set of all numbers ever seen.
        #[test]
        fn it_agrees_with_one_that_remembers_all(steps in proptest::collection::vec(0u64..40, 1..400)) {
            let mut tracker = SequenceTracker::default();
            let (mut all, mut next, mut base) = (HashSet::new(), 0, 0u64);
            for step in steps {
                base += 10;
                let sequence = (base + step).saturating_sub(20);
                let expected = match (sequence >= next, all.insert(sequence)) {
                    (true, _) if sequence > next => Ahead(next),
                    (true, _) => InOrder,
                    (false, true) => Reordered,
                    (false, false) => Duplicate,
                };
                next = next.max(sequence + 1);
                prop_assert_eq!(tracker.arrived(sequence), expected);
            }
        }
    }
}
