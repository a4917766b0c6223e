//! Timers of many devices in one heap, re-armed without touching it when they move later.
//!
//! The timer wheel (crate `timer`) was tried in the heap's place, with a timer per device that comes again each second. A
//! turn of a timer took 41 ns on the wheel and 28 ns here with 64 devices, 48 and 49 ns with 1,000, 136 and 172 ns with
//! 100,000, 574 and 978 ns with a million. But the wheel tells a time before which nothing is due, not when the next is: a
//! worker that sleeps until then woke 1.1 to 1.3 times a timer, each time with a call of the kernel, for which the heap
//! stays as long as messages go through the kernel.

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
    timers: Vec<Timer>,
    /// What [`overdue`](Self::overdue) found.
    found: Vec<(Time, u32)>,
}

#[derive(Debug, Clone, Copy)]
struct Timer {
    due: Time,
    /// Earliest entry in the heap.
    queued: Time,
}

impl Timers {
    /// Timers for `n` devices, all off.
    pub fn new(n: usize) -> Self {
        let off = Timer { due: Time::NEVER, queued: Time::NEVER };
        Self { heap: BinaryHeap::new(), timers: vec![off; n], found: Vec::new() }
    }

    /// Set device `i`'s timer; [`Time::NEVER`] turns it off.
    #[inline]
    pub fn set(&mut self, i: u32, due: Time) {
        let timer = &mut self.timers[i as usize];
        timer.due = due;
        if due < timer.queued {
            timer.queued = due;
            self.heap.push(Reverse((due, i)));
            if self.heap.len() > 2 * self.timers.len() {
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
        let queued = (0u32..).zip(&self.timers).filter(|(_, timer)| timer.queued != Time::NEVER);
        entries.extend(queued.map(|(i, timer)| Reverse((timer.queued, i))));
        self.heap = entries.into();
    }

    /// When there is next something to look at.
    #[inline]
    pub fn next(&self) -> Time {
        self.heap.peek().map_or(Time::NEVER, |Reverse((at, _))| *at)
    }

    /// The devices whose timer is due at `now`, after a look at `most` entries at most: what it costs follows from how many
    /// are late, not from how many devices there are.
    pub fn overdue(&mut self, now: Time, most: usize) -> impl Iterator<Item = u32> + '_ {
        self.found.clear();
        for _ in 0..most {
            if self.next() > now {
                break;
            }
            let Some(Reverse((at, i))) = self.heap.pop() else { break };
            let timer = &mut self.timers[i as usize];
            // as in `pop`; the same entry may be there twice
            if timer.queued != at || self.found.last() == Some(&(at, i)) {
                continue;
            }
            if timer.due <= now {
                self.found.push((at, i));
                continue;
            }
            timer.queued = timer.due;
            if timer.due != Time::NEVER {
                self.heap.push(Reverse((timer.due, i)));
            }
        }
        self.heap.extend(self.found.iter().copied().map(Reverse));
        self.found.iter().map(|(_, i)| *i)
    }

    /// Take one timer that is due at `now` and turn it off.
    #[inline]
    pub fn pop(&mut self, now: Time) -> Option<(u32, Time)> {
        while self.next() <= now {
            let Reverse((at, i)) = self.heap.pop()?;
            let timer = &mut self.timers[i as usize];
            if timer.queued != at {
                continue; // an earlier entry already stood for it
            }
            timer.queued = Time::NEVER;
            if timer.due <= now {
                return Some((i, std::mem::replace(&mut timer.due, Time::NEVER)));
            }
            if timer.due != Time::NEVER {
                timer.queued = timer.due;
                self.heap.push(Reverse((timer.due, i)));
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
                let mut late: Vec<u32> = timers.overdue(now, usize::MAX).collect();
                late.sort_unstable();
                let due = |i: &u32| list[*i as usize] <= now;
                prop_assert_eq!(late, (0..8).filter(due).collect::<Vec<_>>());
                prop_assert!(timers.overdue(now, 2).count() <= 2);
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
