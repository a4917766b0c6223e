//! How long devices wait for answers: a server that freezes holds a closed loop still, and no delay is recorded of
//! what never comes.

use crate::answer_times::{AnswerTimes, Concurrency};
use protocol::meter::Window;
use protocol::time::Time;

/// What the devices of a group waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stalls {
    /// Device time within the measure phase in waits that were longer than the limit, ns.
    pub time: u64,
    /// The longest wait that reached into the measure phase, ns.
    pub longest: u64,
    /// Devices that were waiting longer than the limit when the sample ended: to the nanosecond where a phase ends, and
    /// to a hundredth of the limit elsewhere.
    pub waiting: u32,
    /// Device time within the measure phase in waits of any length, ns.
    pub waited: u64,
    /// How long answers took.
    pub answers: AnswerTimes,
}

/// One device's wait for an answer.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    /// When it began; [`Time::NEVER`]: the device waits for nothing.
    since: Time,
    /// How far time has been counted: waits of one device overlap where several messages are on their way.
    counted: Time,
    /// How many waited when it began.
    concurrency: Concurrency,
}

impl Wait {
    /// None so far.
    pub const fn none() -> Self {
        Self { since: Time::NEVER, counted: Time::ZERO, concurrency: Concurrency::IGNORED }
    }

    /// The device has waited since `since` ([`Time::NEVER`]: not at all), for an answer or else for a connection. A wait that
    /// began at another time ended now.
    #[inline]
    pub fn observe(
        &mut self,
        since: Time,
        is_answer: bool,
        now: Time,
        window: Window,
        into: &mut GroupWaits,
    ) {
        if since != self.since {
            let began = std::mem::replace(&mut self.since, since);
            if began != Time::NEVER {
                into.ages.remove(began);
                into.advance(now, window);
                into.waiting -= 1;
                into.stalls.answers.record(self.concurrency, now.since(began));
                self.over(began, now, into.limit, window, &mut into.stalls);
            }
            if since != Time::NEVER {
                into.ages.add(since);
                into.advance(now, window);
                into.waiting += 1;
                self.concurrency = match is_answer {
                    true => Concurrency::of(into.waiting, into.devices),
                    false => Concurrency::IGNORED,
                };
            }
        }
    }

    fn over(&mut self, began: Time, now: Time, limit: u64, window: Window, into: &mut Stalls) {
        if now < window.measure || began >= window.drain {
            return;
        }
        let took = now.since(began);
        into.longest = into.longest.max(took);
        if took > limit {
            let (from, to) = (began.max(window.measure).max(self.counted), now.min(window.drain));
            into.time += to.since(from);
            self.counted = self.counted.max(to);
        }
    }

    /// Whether the device has been waiting longer than the limit at `at`.
    #[inline]
    pub fn is_stalled(&self, at: Time, limit: u64) -> bool {
        self.since != Time::NEVER && at.since(self.since) > limit
    }
}

/// What a worker's devices of one group wait, kept up to date by [`Wait::observe`]: a sample looks at no device.
#[derive(Debug)]
pub struct GroupWaits {
    limit: u64,
    devices: u32,
    /// Devices that wait, and until when their time has been counted.
    waiting: u32,
    counted: Time,
    stalls: Stalls,
    ages: WaitAges,
}

impl GroupWaits {
    /// None of `devices` waits. A wait longer than `limit` ns is a stall.
    pub fn new(limit: u64, devices: u32) -> Self {
        Self {
            limit,
            devices,
            waiting: 0,
            counted: Time::ZERO,
            stalls: Stalls::default(),
            ages: WaitAges::new(limit),
        }
    }

    /// A wait longer than this is a stall, ns.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Count the time in which devices waited, up to `now`.
    #[inline]
    fn advance(&mut self, now: Time, window: Window) {
        let (from, to) = (self.counted.max(window.measure), now.min(window.drain));
        self.stalls.waited += u64::from(self.waiting) * to.since(from);
        self.counted = self.counted.max(now);
    }

    /// Since the last call, and how many devices are stalled at `at`.
    pub fn take(&mut self, at: Time, window: Window) -> Stalls {
        self.advance(at, window);
        Stalls { waiting: self.ages.stalled(at), ..std::mem::take(&mut self.stalls) }
    }
}

/// Steps that are counted one by one: more than twice the limit.
const STEPS: u64 = 512;
/// Steps of a limit, at least.
const STEPS_OF_LIMIT: u64 = 128;
/// Shortest step, as a power of two of ns: 1 µs.
const SHORTEST: u32 = 10;

/// How many devices wait since when, in steps of less than a hundredth of the limit.
#[derive(Debug)]
struct WaitAges {
    limit: u64,
    /// A step is 2 to the power of this, ns.
    shift: u32,
    /// Devices by the step in which their wait began, from `first` on; number n at place n modulo [`STEPS`].
    counts: Box<[u32; STEPS as usize]>,
    first: u64,
    /// Devices whose wait began before that.
    stalled: u32,
}

impl WaitAges {
    fn new(limit: u64) -> Self {
        let shift = (limit / STEPS_OF_LIMIT).max(1).ilog2().max(SHORTEST);
        Self { limit, shift, counts: Box::new([0; STEPS as usize]), first: 0, stalled: 0 }
    }

    #[inline]
    fn count(&mut self, since: Time) -> &mut u32 {
        let step = since.0 >> self.shift;
        if step < self.first {
            return &mut self.stalled;
        }
        if step - self.first >= STEPS {
            // all of them are twice as old as the limit by now
            self.go_on(step + 1 - STEPS);
        }
        &mut self.counts[(step % STEPS) as usize]
    }

    #[inline]
    fn add(&mut self, since: Time) {
        *self.count(since) += 1;
    }

    #[inline]
    fn remove(&mut self, since: Time) {
        *self.count(since) -= 1;
    }

    /// Steps before `first` are stalled.
    fn go_on(&mut self, first: u64) {
        for step in (self.first..first).take(STEPS as usize) {
            self.stalled += std::mem::take(&mut self.counts[(step % STEPS) as usize]);
        }
        self.first = self.first.max(first);
    }

    /// Devices that have been waiting longer than the limit at `at`, as far as whole steps tell.
    fn stalled(&mut self, at: Time) -> u32 {
        self.go_on(at.since(Time(self.limit)) >> self.shift);
        self.stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;
    const LIMIT: u64 = 2 * S;

    fn window() -> Window {
        Window { measure: Time(10 * S), drain: Time(20 * S) }
    }

    /// What waits from one second to another add up to, one after the other.
    fn waits(waits: &[(u64, u64)]) -> (u64, u64) {
        let (mut wait, mut group) = (Wait::none(), GroupWaits::new(LIMIT, 1));
        for (from, to) in waits {
            wait.observe(Time(from * S), true, Time(from * S), window(), &mut group);
            wait.observe(Time::NEVER, true, Time(to * S), window(), &mut group);
        }
        let sum = group.take(Time(30 * S), window());
        assert_eq!(sum.waiting, 0, "it waits for nothing any more");
        assert!(sum.waited >= sum.time && sum.waited <= 10 * S, "{sum:?}");
        (sum.time / S, sum.longest / S)
    }

    #[test]
    fn only_waits_longer_than_the_limit_count_and_then_whole() {
        assert_eq!(waits(&[(11, 13), (13, 15)]), (0, 2), "as long as the limit is not longer");
        assert_eq!(waits(&[(11, 14), (14, 15), (15, 19)]), (7, 4));
    }

    #[test]
    fn a_wait_counts_as_far_as_it_reaches_into_the_measure_phase() {
        assert_eq!(waits(&[(3, 10)]), (0, 7), "up to its first moment");
        assert_eq!(waits(&[(3, 9)]), (0, 0));
        assert_eq!(waits(&[(3, 12)]), (2, 9));
        assert_eq!(waits(&[(18, 29)]), (2, 11));
        assert_eq!(waits(&[(20, 29)]), (0, 0), "begun while draining");
        assert_eq!(waits(&[(1, 29)]), (10, 28));
    }

    #[test]
    fn waits_of_any_length_add_up_as_far_as_they_reach_into_the_measure_phase() {
        let (mut wait, mut other, mut group) = (Wait::none(), Wait::none(), GroupWaits::new(LIMIT, 2));
        wait.observe(Time(9 * S), true, Time(9 * S), window(), &mut group);
        other.observe(Time(11 * S), true, Time(11 * S), window(), &mut group);
        wait.observe(Time::NEVER, true, Time(12 * S), window(), &mut group);
        assert_eq!(group.take(Time(13 * S), window()).waited, 4 * S, "two seconds each");
        // the answer to the first of two messages: it waits for the second, and no time counts twice
        other.observe(Time(12 * S), true, Time(14 * S), window(), &mut group);
        other.observe(Time::NEVER, true, Time(29 * S), window(), &mut group);
        assert_eq!(group.take(Time(30 * S), window()).waited, 7 * S);
    }

    #[test]
    fn an_answer_to_one_of_several_ends_only_its_own_wait() {
        let (mut wait, mut group) = (Wait::none(), GroupWaits::new(LIMIT, 1));
        // sent at 11 and 12 s, answered together at 15 s
        wait.observe(Time(11 * S), true, Time(11 * S), window(), &mut group);
        wait.observe(Time(12 * S), true, Time(15 * S), window(), &mut group);
        assert!(wait.is_stalled(Time(15 * S), LIMIT) && !wait.is_stalled(Time(14 * S), LIMIT));
        wait.observe(Time::NEVER, true, Time(15 * S), window(), &mut group);
        let sum = group.take(Time(15 * S), window());
        assert_eq!((sum.time / S, sum.longest / S), (4, 4), "no moment counts twice");
        assert!(!wait.is_stalled(Time(99 * S), LIMIT));
    }

    proptest! {
        #[test]
        fn one_device_never_stalls_for_longer_than_there_was(
            steps in prop::collection::vec((0u64..30, 0u64..6), 0..40),
        ) {
            let (mut wait, mut group, mut now) = (Wait::none(), GroupWaits::new(LIMIT, 1), 0);
            for (back, on) in steps {
                now += on;
                let since = if back == 0 { Time::NEVER } else { Time(now.saturating_sub(back) * S) };
                wait.observe(since, true, Time(now * S), window(), &mut group);
            }
            let sum = group.take(Time(now * S), window());
            prop_assert!(sum.time <= 10 * S);
            prop_assert!(sum.time == 0 || sum.longest > LIMIT);
        }

        /// Against looking at each device.
        #[test]
        fn the_stalled_are_counted_without_a_look_at_them(
            limit in prop::sample::select(vec![1, 1000, 100_000, 100_000_000, 2 * S, 3600 * S, u64::MAX]),
            steps in prop::collection::vec((0usize..8, 0u64..4, 0u64..2_000, prop::bool::ANY), 1..400),
        ) {
            let (mut waits, mut group) = ([Wait::none(); 8], GroupWaits::new(limit, 8));
            let step = limit.min(3600 * S) / 300 + 1;
            let mut now = 0;
            for (device, back, on, ends) in steps {
                now += on * step / 100;
                let since = if ends { Time::NEVER } else { Time(now.saturating_sub(back * step)) };
                waits[device].observe(since, true, Time(now), window(), &mut group);
                if back == 0 {
                    let stalled = |limit| waits.iter().filter(|wait| wait.is_stalled(Time(now), limit)).count();
                    let counted = group.take(Time(now), window()).waiting as usize;
                    let late = limit.saturating_add((limit / 100).max(1 << SHORTEST));
                    prop_assert!((stalled(late)..=stalled(limit)).contains(&counted), "{}", counted);
                }
            }
        }
    }
}
