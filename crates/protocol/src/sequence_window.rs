//! Which of a stream's latest numbers are missing: what came late and what came again, from the numbers of arrivals.
//!
//! Only what does not come in order is told, so a stream that comes in order costs one comparison and no memory here.

/// What an arrival is, by those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceClass {
    /// With the number expected.
    InOrder,
    /// With a later one, also in order: those from this number on are missing so far.
    Ahead(u64),
    /// For the first time, after one with a higher number: RFC 4737 section 3.3, type-P-reordered.
    Reordered,
    /// Not for the first time.
    Duplicate,
    /// Below the window: late or a copy, which cannot be told.
    TooLate,
}

/// The missing ones of a stream's latest numbers.
#[derive(Debug, Clone)]
pub struct SequenceWindow<B = Box<[u64]>> {
    /// Whether number n is missing, at bit n modulo their count, which is a power of two.
    missing: B,
    /// Numbers from here on came in order and were not told: their bits may be those of older ones.
    told: u64,
}

/// A window of a fixed length, 64 numbers a word, without memory of its own.
pub type FixedWindow<const WORDS: usize> = SequenceWindow<[u64; WORDS]>;

impl SequenceWindow {
    /// Over the latest `numbers`, rounded up to a power of two, at least 64.
    pub fn new(numbers: u64) -> Self {
        let words = (numbers.div_ceil(64).max(1) as usize).next_power_of_two();
        Self { missing: vec![0; words].into(), told: 0 }
    }
}

impl<const WORDS: usize> Default for FixedWindow<WORDS> {
    fn default() -> Self {
        const { assert!(WORDS.is_power_of_two()) };
        Self { missing: [0; WORDS], told: 0 }
    }
}

impl<B: AsRef<[u64]> + AsMut<[u64]>> SequenceWindow<B> {
    /// How many numbers it reaches back.
    pub fn size(&self) -> u64 {
        self.missing.as_ref().len() as u64 * 64
    }

    /// As if nothing had come yet.
    pub fn clear(&mut self) {
        self.missing.as_mut().fill(0);
        self.told = 0;
    }

    /// `number` arrived where `next` (RFC 4737 section 4.2.1, NextExp) was expected, which is one past the highest so far
    /// and is brought up to date. All arrivals since the last one told were in order.
    #[inline]
    pub fn arrived(&mut self, next: &mut u64, number: u64) -> SequenceClass {
        if number == *next {
            *next = number.saturating_add(1);
            return SequenceClass::InOrder;
        }
        self.disturbed(next, number)
    }

    #[cold]
    fn disturbed(&mut self, next: &mut u64, number: u64) -> SequenceClass {
        let (expected, size) = (*next, self.size());
        self.mark(self.told, expected, false);
        self.told = expected;
        if number > expected {
            self.mark(expected, number, true);
            *next = number.saturating_add(1);
            self.mark(number, *next, false);
            self.told = *next;
            return SequenceClass::Ahead(expected);
        }
        if expected - number > size {
            return SequenceClass::TooLate;
        }
        let (word, bit) = ((number % size / 64) as usize, 1 << (number % 64));
        let Some(missing) = self.missing.as_mut().get_mut(word) else { return SequenceClass::TooLate };
        if *missing & bit == 0 {
            return SequenceClass::Duplicate;
        }
        *missing &= !bit;
        SequenceClass::Reordered
    }

    /// Say of the numbers from `first` up to `end` whether they are missing.
    fn mark(&mut self, first: u64, end: u64, missing: bool) {
        let size = self.size();
        if end.saturating_sub(first) >= size {
            return self.missing.as_mut().fill(if missing { u64::MAX } else { 0 });
        }
        let mut at = first;
        while at < end {
            let many = (64 - at % 64).min(end - at);
            let bits = (u64::MAX >> (64 - many)) << (at % 64);
            let Some(word) = self.missing.as_mut().get_mut((at % size / 64) as usize) else { return };
            if missing {
                *word |= bits
            } else {
                *word &= !bits
            }
            at += many;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SequenceClass::{Ahead, Duplicate, InOrder, Reordered, TooLate};
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const SIZE: u64 = 1024;

    fn arrivals(numbers: &[u64]) -> Vec<SequenceClass> {
        let (mut window, mut next) = (FixedWindow::<16>::default(), 0);
        numbers.iter().map(|number| window.arrived(&mut next, *number)).collect()
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
            let (mut window, mut next) = (SequenceWindow::new(SIZE), 0);
            assert_eq!(window.size(), SIZE);
            (0..=last).for_each(|s| assert_eq!(window.arrived(&mut next, s), InOrder));
            window.arrived(&mut next, again)
        };
        assert_eq!(upto(SIZE - 1, 0), Duplicate);
        assert_eq!(upto(SIZE, 0), TooLate);
        assert_eq!(arrivals(&[5, 5 + SIZE, 6]), [Ahead(0), Ahead(6), Reordered]);
        assert_eq!(arrivals(&[5, 5 + 3 * SIZE, 6 + 2 * SIZE]), [Ahead(0), Ahead(6), Reordered]);
        let sizes = [0, 1, 64, 65, 1000].map(|numbers| SequenceWindow::new(numbers).size());
        assert_eq!(sizes, [64, 64, 64, 128, 1024]);
    }

    #[test]
    fn the_last_number_there_is_is_no_overflow() {
        assert_eq!(arrivals(&[u64::MAX, u64::MAX, 0]), [Ahead(0), InOrder, TooLate]);
    }

    proptest! {
        /// Against a set of all numbers ever seen, with long runs in order, that nobody tells the window of, between.
        #[test]
        fn it_agrees_with_one_that_remembers_all(
            steps in proptest::collection::vec((0u64..200, 0u64..2000, 0u64..1500), 1..200),
        ) {
            let (mut window, mut next) = (SequenceWindow::new(SIZE), 0);
            let mut all = HashSet::new();
            for (ahead, behind, in_order) in steps {
                let number = (next + ahead).saturating_sub(behind);
                let expected = if number == next {
                    InOrder
                } else if number > next {
                    Ahead(next)
                } else if next - number > SIZE {
                    TooLate
                } else if all.contains(&number) {
                    Duplicate
                } else {
                    Reordered
                };
                prop_assert_eq!(window.arrived(&mut next, number), expected, "{} at {}", number, next);
                all.insert(number);
                if in_order > 1000 {
                    all.extend(next..next + in_order);
                    next += in_order;
                }
            }
        }
    }
}
