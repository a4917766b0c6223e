//! Back-off of the poll loop while answers arrive at a high rate.
//!
//! A server that answers one of many connections wakes the worker that waits for it. When each answer finds the
//! worker waiting again, both pay a wake-up per answer, and the server's part is time that it does not answer in.
//! So the worker sleeps for a moment that is short against the time of an answer, and then takes several together. Where
//! anything falls due soon, it does not.

use protocol::time::Time;
use std::time::Duration;

/// Mean time between answers below which the worker backs off, ns.
const MAX_MEAN: u64 = 25_000;
/// A turn with more events than this shows that we, not the server, are overloaded.
const MAX_EVENTS: usize = 8;
/// Nothing may be due for this long, ns: a load that waits for a clock is not one that only waits for answers.
const MIN_IDLE: u64 = 1_000_000;
/// Of the time that an answer takes, as mean time between answers times flows, a rest is at most this part: the
/// server always has enough to do, and a delay is measured longer by half of this at most.
const SHARE: u64 = 16;
/// Shortest and longest back-off, ns.
const SHORTEST: u64 = 10_000;
const LONGEST: u64 = 30_000;

/// Mean time between answers, and the back-off that follows from it.
#[derive(Debug)]
pub struct BusyPollBackoff {
    /// When the last turn ended.
    last: Time,
    /// Mean time from one event to the next, ns.
    mean: u64,
}

impl BusyPollBackoff {
    /// Nothing has come yet.
    pub fn new() -> Self {
        Self { last: Time::ZERO, mean: MIN_IDLE }
    }

    /// A turn with so many events ends at `now`, `active` flows are under way, and nothing is due for `wait` ns.
    /// How long to rest before looking at the sockets again; zero: not at all.
    #[inline]
    pub fn rest(&mut self, now: Time, events: usize, active: u64, wait: u64) -> Duration {
        let took = now.since(self.last).min(MIN_IDLE);
        self.last = now;
        self.mean = (self.mean * 7 + took / events.max(1) as u64) / 8;
        if self.mean >= MAX_MEAN || events > MAX_EVENTS || wait < MIN_IDLE {
            return Duration::ZERO;
        }
        let rest = (active * self.mean / SHARE).min(LONGEST);
        if rest < SHORTEST { Duration::ZERO } else { Duration::from_nanos(rest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rest after many turns alike: `events` in `took` ns, with `active` flows and nothing due for `wait` ns.
    fn settled(events: usize, took: u64, active: u64, wait: u64) -> u64 {
        let mut backoff = BusyPollBackoff::new();
        let rests = (1..200).map(|turn| backoff.rest(Time(turn * took), events, active, wait));
        rests.last().map_or(0, |rest| rest.as_nanos() as u64)
    }

    #[test]
    fn it_rests_only_while_many_answers_are_all_there_is_to_wait_for() {
        assert_eq!(settled(1, 12_000, 64, 5_000_000), 30_000);
        assert_eq!(settled(1, 24_000, 64, 5_000_000), 30_000);
        assert_eq!(settled(1, 26_000, 64, 5_000_000), 0, "too rare");
        assert_eq!(settled(9, 9 * 12_000, 64, 5_000_000), 0, "we are the ones who are late");
        assert_eq!(settled(1, 12_000, 64, 999_999), 0, "something is due");
    }

    #[test]
    fn a_rest_is_short_against_an_answer() {
        assert_eq!(settled(1, 12_000, 13, 5_000_000), 0, "a rest of 9.75 µs is worth nothing");
        assert_eq!(settled(1, 12_000, 14, 5_000_000), 10_500);
        assert_eq!(settled(2, 20_000, 40, 5_000_000), 25_000);
    }

    #[test]
    fn it_learns_soon_that_answers_come_fast() {
        let mut backoff = BusyPollBackoff::new();
        let second = 1_000_000_000;
        let turns = (1..100).map(|turn| backoff.rest(Time(second + turn * 10_000), 1, 64, 5_000_000));
        let first = turns.take_while(|rest| rest.is_zero()).count();
        assert!((10..60).contains(&first), "{first} turns");
    }
}
