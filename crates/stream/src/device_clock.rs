//! A port's clock against ours: what its time stamps mean.
//!
//! Both are read at the same moment, again and again; the line through the oldest and the latest of the readings that are
//! kept says what moment of ours a tick is. It follows as the clocks drift apart, and begins anew when the port's clock is
//! set.

use std::collections::VecDeque;

/// Readings that are kept. One a second, the line is some seconds long: a reading that is wrong by 1 µs turns it by a
/// tenth of a millionth.
const KEPT: usize = 10;
/// As far from the line the port's clock was not read, but set.
const STEP_NS: u64 = 1_000_000;
/// Tries of which the best is taken.
const TRIES: usize = 5;

/// One moment on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// On the port's clock.
    pub ticks: u64,
    /// On ours, ns.
    pub ours: u64,
    /// Our clock was read before and after; this much was between, and twice the error at most.
    pub within: u64,
}

impl Reading {
    /// Read both: of a few tries the one with the least time between. `None`: the port's cannot be read.
    pub fn take(clock: impl Fn() -> Option<u64>, now: impl Fn() -> u64) -> Option<Self> {
        let one = || {
            let before = now();
            let ticks = clock()?;
            let within = now().saturating_sub(before);
            Some(Self { ticks, ours: before + within / 2, within })
        };
        (0..TRIES).filter_map(|_| one()).min_by_key(|reading| reading.within)
    }
}

/// What moment of ours a tick of the port's is.
#[derive(Debug, Clone)]
pub struct DeviceClock {
    /// The oldest first; never empty once there was one.
    readings: VecDeque<Reading>,
    /// Nanoseconds a tick; 0 before there are two readings.
    slope: f64,
}

impl DeviceClock {
    /// Nothing is known yet.
    pub fn new() -> Self {
        Self { readings: VecDeque::with_capacity(KEPT), slope: 0.0 }
    }

    /// Take a reading up.
    pub fn follow(&mut self, reading: Reading) {
        if self.to_local(reading.ticks).is_some_and(|ours| ours.abs_diff(reading.ours) > STEP_NS) {
            self.readings.clear();
        }
        if self.readings.len() == KEPT {
            self.readings.pop_front();
        }
        self.readings.push_back(reading);
        if let (Some(first), Some(last)) = (self.readings.front(), self.readings.back())
            && last.ticks > first.ticks
        {
            self.slope = last.ours.saturating_sub(first.ours) as f64 / (last.ticks - first.ticks) as f64;
        }
    }

    /// The moment of a tick on our clock, ns. `None`: there are too few readings to tell.
    #[inline]
    pub fn to_local(&self, ticks: u64) -> Option<u64> {
        let last = self.readings.back().filter(|_| self.slope > 0.0)?;
        let since = ticks.wrapping_sub(last.ticks) as i64 as f64 * self.slope;
        Some(last.ours.saturating_add_signed(since as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    const S: u64 = 1_000_000_000;

    /// A port's clock of 156.25 MHz that runs `ppm` too fast, `at` ns of ours.
    fn ticks(at: u64, ppm: f64) -> u64 {
        (at as f64 * 0.156_25 * (1.0 + ppm / 1e6)) as u64 + 77_000
    }

    #[test]
    fn the_best_of_the_tries_is_taken() {
        // The third try takes least time; each reads our clock twice.
        let times: Vec<u64> = vec![0, 900, 1000, 1500, 2000, 2100, 3000, 3700, 4000, 4600];
        let (at, read) = (Cell::new(0), Cell::new(0));
        let now = || times[at.replace(at.get() + 1)];
        let clock = || Some(read.replace(read.get() + 1));
        assert_eq!(Reading::take(clock, now), Some(Reading { ticks: 2, ours: 2050, within: 100 }));
        assert_eq!(Reading::take(|| None, || 0), None);
    }

    #[test]
    fn nothing_is_said_before_there_are_two_readings() {
        let mut clock = DeviceClock::new();
        assert_eq!(clock.to_local(5), None);
        clock.follow(Reading { ticks: 100, ours: 1000, within: 0 });
        assert_eq!(clock.to_local(100), None);
        clock.follow(Reading { ticks: 200, ours: 2000, within: 0 });
        assert_eq!((clock.to_local(250), clock.to_local(150)), (Some(2500), Some(1500)));
    }

    #[test]
    fn a_clock_that_is_set_begins_anew() {
        let mut clock = DeviceClock::new();
        for second in 1..=5 {
            clock.follow(Reading { ticks: second * 1000, ours: second * S, within: 0 });
        }
        // An hour ahead, as a PTP daemon may put it: what it ticks in a second is known all the same.
        clock.follow(Reading { ticks: 3_600_000, ours: 6 * S, within: 0 });
        assert_eq!(clock.to_local(3_600_500), Some(6 * S + S / 2));
    }

    proptest! {
        /// However fast it runs, and though readings are some hundred ns wrong, a stamp is worth what they are.
        #[test]
        fn stamps_are_as_good_as_readings(ppm in -100.0f64..100.0, noise in proptest::collection::vec(-200i64..200, 30)) {
            let mut clock = DeviceClock::new();
            for (second, noise) in noise.into_iter().enumerate() {
                let at = (second as u64 + 1) * S;
                clock.follow(Reading { ticks: ticks(at, ppm), ours: at.saturating_add_signed(noise), within: 400 });
                if second < 3 {
                    continue;
                }
                // Until the next reading.
                for after in [0, S / 3, S] {
                    let ours = clock.to_local(ticks(at + after, ppm)).expect("enough readings");
                    prop_assert!(ours.abs_diff(at + after) < 200 + 400 * after / (3 * S) + 20);
                }
            }
        }
    }
}
