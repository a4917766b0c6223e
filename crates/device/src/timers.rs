//! Timers of many devices in one heap, re-armed without touching it when they move later.

use protocol::time::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// One timer per device index.
///
/// Moving a timer later (an answer's time-out, with every answer) only writes `due`: the entry in the heap
/// comes up at its old time and is put back then. So the heap holds few entries and is rarely touched. Moving one
/// earlier leaves an entry behind; when those outnumber the devices they are swept out.
#[derive(Debug, Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(Time, u32)>>,
    slots: Vec<Slot>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    due: Time,
    /// Earliest entry in the heap.
    queued: Time,
}

impl Timers {
    /// Timers for `n` devices, all off.
    pub fn new(n: usize) -> Self {
        Self { heap: BinaryHeap::new(), slots: vec![Slot { due: Time::NEVER, queued: Time::NEVER }; n] }
    }

    /// Set device `i`'s timer; [`Time::NEVER`] turns it off.
    #[inline]
    pub fn set(&mut self, i: u32, due: Time) {
        let slot = &mut self.slots[i as usize];
        slot.due = due;
        if due < slot.queued {
            slot.queued = due;
            self.heap.push(Reverse((due, i)));
            if self.heap.len() > 2 * self.slots.len() {
                self.sweep();
            }
        }
    }

    /// Keep one entry per device. As many pushes as there are devices lie between two sweeps, so a push costs no
    /// more for it; the memory stays.
    #[cold]
    fn sweep(&mut self) {
        let mut entries = std::mem::take(&mut self.heap).into_vec();
        entries.clear();
        let queued = (0u32..).zip(&self.slots).filter(|(_, slot)| slot.queued != Time::NEVER);
        entries.extend(queued.map(|(i, slot)| Reverse((slot.queued, i))));
        self.heap = entries.into();
    }

    /// When there is next something to look at.
    #[inline]
    pub fn next(&self) -> Time {
        self.heap.peek().map_or(Time::NEVER, |Reverse((at, _))| *at)
    }

    /// Take one timer that is due at `now` and turn it off.
    #[inline]
    pub fn pop(&mut self, now: Time) -> Option<(u32, Time)> {
        while self.next() <= now {
            let Reverse((at, i)) = self.heap.pop()?;
            let slot = &mut self.slots[i as usize];
            if slot.queued != at {
                continue; // an earlier entry already stood for it
            }
            slot.queued = Time::NEVER;
            if slot.due <= now {
                return Some((i, std::mem::replace(&mut slot.due, Time::NEVER)));
            }
            if slot.due != Time::NEVER {
                slot.queued = slot.due;
                self.heap.push(Reverse((slot.due, i)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_timer_that_moves_later_stays_one_entry() {
        let mut t = Timers::new(1);
        for n in 1..1000 {
            t.set(0, Time(n));
        }
        assert_eq!(t.heap.len(), 1);
        assert_eq!(t.pop(Time(998)), None);
        assert_eq!(t.pop(Time(999)), Some((0, Time(999))));
        assert_eq!(t.pop(Time(5000)), None);
    }

    #[test]
    fn a_timer_that_moves_to_and_fro_leaves_no_heap_of_old_entries() {
        let mut t = Timers::new(4);
        for n in 0..10_000 {
            // an answer's time-out, then the answer and a short rest, over and over
            t.set(n as u32 % 4, Time(1_000_000 + n));
            t.set(n as u32 % 4, Time(n + 1));
            assert!(t.heap.len() <= 8, "{}", t.heap.len());
            assert_eq!(t.pop(Time(n + 1)), Some((n as u32 % 4, Time(n + 1))));
        }
    }

    proptest! {
        /// Against the obvious implementation.
        #[test]
        fn like_a_list(steps in prop::collection::vec((0u32..8, prop::option::of(1u64..200), 0u64..20), 1..300)) {
            let mut timers = Timers::new(8);
            let mut list = [Time::NEVER; 8];
            let mut now = Time(0);
            for (i, after, pass) in steps {
                let due = after.map_or(Time::NEVER, |d| Time(now.0 + d));
                timers.set(i, due);
                list[i as usize] = due;
                now = Time(now.0 + pass);
                let mut fired = vec![];
                while let Some((i, due)) = timers.pop(now) {
                    prop_assert_eq!(list[i as usize], due);
                    list[i as usize] = Time::NEVER;
                    fired.push(i);
                }
                prop_assert!(list.iter().all(|d| *d > now));
            }
        }
    }
}
