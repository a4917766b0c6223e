//! What the threads of a server tell each other.

use crate::Counters;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Time between two looks at whether counts that were asked for are there.
const PAUSE: Duration = Duration::from_millis(5);

/// Where workers leave their counts, and what they are told.
#[derive(Debug)]
pub(super) struct Board {
    /// All are to end.
    pub over: AtomicBool,
    /// Counts that were asked for so far.
    pub asked: AtomicU64,
    /// Counts of each worker, and how many times it had been asked when it left them.
    counts: Mutex<Vec<(u64, Counters)>>,
}

impl Board {
    pub fn new(workers: usize) -> Self {
        let counts = Mutex::new(vec![(0, Counters::new()); workers]);
        Self { over: AtomicBool::new(false), asked: AtomicU64::new(0), counts }
    }

    pub fn leave(&self, number: usize, asked: u64, counters: Counters) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)[number] = (asked, counters);
    }

    /// Ask all workers for their counts, and wait for them.
    pub fn ask(&self) {
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let all = || {
            let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts.iter().all(|(asked, _)| *asked >= number)
        };
        while !all() && !self.over.load(Ordering::Relaxed) {
            thread::sleep(PAUSE);
        }
    }

    pub fn sum(&self) -> Counters {
        let mut sum = Counters::new();
        for (_, counters) in self.counts.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            for (name, value) in counters {
                *sum.entry(name).or_default() += value;
            }
        }
        sum
    }
}
