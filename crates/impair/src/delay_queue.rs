//! Packets on their way, in the order in which they leave.
//!
//! What leaves no earlier than all before it goes to a ring: with a constant delay, or order kept, that is
//! everything, and costs a few nanoseconds however much is on its way. The rest goes to a [`TimerWheel`]. A packet
//! that leaves at the same time as another leaves after it.

use std::collections::VecDeque;
use timer::TimerWheel;

/// What is held, by the time it leaves. Never allocates after it was made.
#[derive(Debug)]
pub(crate) struct DelayQueue<T> {
    ring: VecDeque<(u64, T)>,
    wheel: TimerWheel<T>,
    capacity: usize,
}

impl<T> DelayQueue<T> {
    /// Room for `capacity` items. Memory is only used for as many as ever are there.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { ring: VecDeque::with_capacity(capacity), wheel: TimerWheel::new(capacity), capacity }
    }

    /// Items held.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.ring.len() + self.wheel.len()
    }

    /// Hold `item` until `at`; a full queue gives it back.
    #[inline]
    pub(crate) fn push(&mut self, at: u64, item: T) -> Result<(), T> {
        if self.len() >= self.capacity {
            return Err(item);
        }
        // Equal times: what is in the wheel with the ring's last time came before the ring got there.
        if self.ring.back().is_none_or(|(last, _)| at >= *last) {
            self.ring.push_back((at, item));
            return Ok(());
        }
        self.wheel.push(at, item)
    }

    /// The same for one that later items will overtake: they need not go another way for its sake. Of those
    /// that leave at its time it may be the last.
    pub(crate) fn push_detour(&mut self, at: u64, item: T) -> Result<(), T> {
        if self.len() >= self.capacity { Err(item) } else { self.wheel.push(at, item) }
    }

    /// The next item that leaves at `now` or before, and when it was to leave.
    #[inline]
    pub(crate) fn pop(&mut self, now: u64) -> Option<(u64, T)> {
        let ring = self.ring.front().map(|(at, _)| *at).filter(|at| *at <= now);
        if !self.wheel.is_empty()
            && let Some(wheel) = self.wheel.peek(now)
            && ring.is_none_or(|ring| wheel < ring)
        {
            return self.wheel.pop(now);
        }
        ring.and_then(|_| self.ring.pop_front())
    }

    /// A time before which nothing leaves; [`u64::MAX`] when nothing is held.
    #[inline]
    pub(crate) fn next_at(&self) -> u64 {
        let ring = self.ring.front().map_or(u64::MAX, |(at, _)| *at);
        ring.min(self.wheel.next_at())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_full_queue_gives_back() {
        let mut held = DelayQueue::new(2);
        assert_eq!(held.push(5, 'a'), Ok(()));
        assert_eq!(held.push(3, 'b'), Ok(()));
        assert_eq!(held.push(9, 'c'), Err('c'));
        assert_eq!(held.pop(10), Some((3, 'b')));
        assert_eq!(held.push(9, 'c'), Ok(()));
        assert_eq!((held.pop(10), held.pop(10), held.pop(10)), (Some((5, 'a')), Some((9, 'c')), None));
        assert_eq!(held.next_at(), u64::MAX);
    }

    proptest! {
        /// Against a sorted list: by time, then by the order in which they came.
        #[test]
        fn it_is_a_stable_queue_by_time(
            steps in proptest::collection::vec((0u64..2000, 0u64..3000, 0usize..4), 1..300)
        ) {
            let mut held = DelayQueue::new(1000);
            let mut naive: Vec<(u64, usize)> = Vec::new();
            let mut now = 1_000_000;
            for (number, (pass, delay, pops)) in steps.into_iter().enumerate() {
                // Detours end at odd times, all else at even ones: between equals of both kinds nothing is
                // promised.
                let (pass, delay) = (pass / 7 * 2, delay * 2);
                now += pass;
                let detour = number % 5 == 4;
                let at = now + delay + u64::from(detour);
                let pushed = if detour { held.push_detour(at, number) } else { held.push(at, number) };
                prop_assert_eq!(pushed, Ok(()));
                let place = naive.partition_point(|(other, _)| *other <= at);
                naive.insert(place, (at, number));
                prop_assert_eq!(held.len(), naive.len());
                now += pass;
                for _ in 0..pops {
                    let due = naive.first().filter(|(at, _)| *at <= now).copied();
                    prop_assert!(held.next_at() <= naive.first().map_or(u64::MAX, |(at, _)| *at));
                    prop_assert_eq!(held.pop(now), due);
                    if due.is_some() { naive.remove(0); }
                }
            }
        }
    }
}
