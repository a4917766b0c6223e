//! Times in which the generator itself was late with audio.
//!
//! A listener cannot tell a packet that left late from one that the network delayed: both come too late for the playout buffer.
//! Who plays and who listens are user agents of one run, though maybe of two groups and workers: so a run knows these times, and
//! calls that were up meanwhile are rated by nobody. A lock is taken where a packet leaves late and as a call ends, and not otherwise.

use crate::per_run::{self, Runs, locked};
use protocol::time::Time;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Times that are kept; calls that are summed up ended a moment ago.
const KEPT: usize = 1024;

static RUNS: Runs<LateAudio> = Mutex::new(Vec::new());

/// From when a packet was due until it left, in the order in which they left.
#[derive(Debug, Default)]
pub(crate) struct LateAudio(Mutex<VecDeque<(Time, Time)>>);

impl LateAudio {
    /// Those of run number `trial`.
    pub fn of(trial: u64) -> Arc<Self> {
        per_run::of(&RUNS, trial)
    }

    /// A packet that was due at `due` leaves at `now`.
    pub fn note(&self, due: Time, now: Time) {
        let mut all = locked(&self.0);
        match all.back_mut() {
            Some((from, until)) if due <= *until => (*from, *until) = (due.min(*from), now.max(*until)),
            _ => all.push_back((due, now)),
        }
        if all.len() > KEPT {
            all.pop_front();
        }
    }

    /// Whether there was one between two times.
    pub fn during(&self, from: Time, until: Time) -> bool {
        locked(&self.0).iter().any(|(due, left)| *due <= until && *left >= from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_left_late_concerns_the_calls_that_were_up() {
        let (ours, same, other) = (LateAudio::of(81), LateAudio::of(81), LateAudio::of(82));
        ours.note(Time(100), Time(150));
        ours.note(Time(120), Time(160));
        assert!(same.during(Time(0), Time(100)) && same.during(Time(160), Time(900)));
        assert!(!same.during(Time(0), Time(99)) && !same.during(Time(161), Time(900)));
        assert!(!other.during(Time(0), Time(900)));
        assert_eq!(locked(&ours.0).len(), 1, "one pause");
        (1..=2 * KEPT as u64).for_each(|n| ours.note(Time(n * 1000), Time(n * 1000 + 1)));
        assert_eq!(locked(&ours.0).len(), KEPT);
    }
}
