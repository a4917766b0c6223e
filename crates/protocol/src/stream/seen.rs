//! Which datagrams of a flow came back, and how: in turn, ahead, late, again.

use crate::reordering::Order;
use packet::signature::SEQUENCE_MAX;

/// Streams among which the memory for gaps is shared out, as each of many has little.
const SHARE: usize = 1 << 10;

/// Which datagrams came back.
#[derive(Debug)]
pub(super) struct Seen {
    /// One past the highest number that came (NextExp of RFC 4737 §4.2.1).
    pub(super) next: u64,
    /// One bit for each of the latest numbers.
    bits: Box<[u64]>,
    /// From the first gap on.
    pub(super) order: Option<Box<Order>>,
    /// The number on the wire of the flow's first datagram: flows go on where those before them ended.
    pub(super) first: u64,
    /// How many different datagrams came back, of those due in the warm-up and of those due later.
    pub(super) back: [u64; 2],
    /// Failures that the transport had counted when the flow began.
    pub(super) failed_before: u32,
    /// And until the warm-up was over.
    pub(super) failed_warmup: u32,
}

/// What a datagram is, by those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The next.
    InOrder,
    /// Higher than that: those from this number on are missing so far.
    Ahead(u64),
    /// The first of its number, after a higher one.
    Reordered,
    /// Not the first of its number.
    Again,
    /// Too long ago to tell.
    TooLate,
}

impl Seen {
    pub(super) fn new(window: u64) -> Self {
        Self {
            next: 0,
            bits: vec![0; (window / 64) as usize].into(),
            order: None,
            first: 0,
            back: [0; 2],
            failed_before: 0,
            failed_warmup: 0,
        }
    }

    /// A flow begins after one of `sent` datagrams, and after so many failures.
    pub(super) fn begin(&mut self, sent: u64, failed: u32) {
        self.first = (self.first + sent) & SEQUENCE_MAX;
        self.back = [0; 2];
        (self.failed_before, self.failed_warmup) = (failed, failed);
        self.next = 0;
        self.bits.fill(0);
        self.order.iter_mut().for_each(|order| order.clear());
    }

    /// How many different datagrams came back.
    #[inline]
    pub(super) fn back(&self) -> u64 {
        self.back[0] + self.back[1]
    }

    pub(super) fn order(&mut self) -> &mut Order {
        self.order.get_or_insert_with(|| Box::new(Order::shared(SHARE)))
    }

    #[inline]
    fn place(&self, number: u64) -> (usize, u64) {
        ((number / 64) as usize & (self.bits.len() - 1), 1 << (number % 64))
    }

    #[inline]
    pub(super) fn arrive(&mut self, number: u64) -> Arrival {
        let window = self.bits.len() as u64 * 64;
        if number >= self.next {
            // the words between the last and this one are from a former round
            let (last, word) = (self.next.wrapping_sub(1) / 64, number / 64);
            let fresh = if self.next == 0 { word + 1 } else { word - last };
            for i in 0..fresh.min(self.bits.len() as u64) {
                self.bits[(word - i) as usize & (self.bits.len() - 1)] = 0;
            }
            let (word, bit) = self.place(number);
            self.bits[word] |= bit;
            let expected = std::mem::replace(&mut self.next, number + 1);
            return if number == expected { Arrival::InOrder } else { Arrival::Ahead(expected) };
        }
        // a whole word less, as the latest word overwrites the oldest
        if self.next - number > window - 64 {
            return Arrival::TooLate;
        }
        let (word, bit) = self.place(number);
        if self.bits[word] & bit != 0 {
            return Arrival::Again;
        }
        self.bits[word] |= bit;
        Arrival::Reordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_window_knows_what_a_full_list_knows(steps in prop::collection::vec((0u64..200, 0u64..2000), 1..300)) {
            let mut seen = Seen::new(1024);
            let mut all = std::collections::HashSet::new();
            let mut next = 0;
            for (ahead, behind) in steps {
                let number = (next + ahead).saturating_sub(behind);
                let expected = if number == next {
                    Arrival::InOrder
                } else if number > next {
                    Arrival::Ahead(next)
                } else if next - number > 1024 - 64 {
                    Arrival::TooLate
                } else if all.contains(&number) {
                    Arrival::Again
                } else {
                    Arrival::Reordered
                };
                prop_assert_eq!(seen.arrive(number), expected, "{} at {}", number, next);
                all.insert(number);
                next = next.max(number + 1);
            }
        }
    }
}
