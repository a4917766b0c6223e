//! Which datagrams of a flow came back, and how: in turn, ahead, late, again.

use crate::order::Order;

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
        Self { next: 0, bits: vec![0; (window / 64) as usize].into(), order: None }
    }

    pub(super) fn clear(&mut self) {
        self.next = 0;
        self.bits.fill(0);
        self.order.iter_mut().for_each(|order| order.clear());
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
