//! How long devices wait for answers: a server that freezes holds a closed loop still, and no delay is recorded of
//! what never comes.

use protocol::meter::Window;
use protocol::time::Time;

/// What the devices of a group waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stalls {
    /// Device time within the measure phase in waits that were longer than the limit, ns.
    pub time: u64,
    /// The longest wait that reached into the measure phase, ns.
    pub longest: u64,
    /// Devices that were waiting longer than the limit when the sample ended.
    pub waiting: u32,
}

/// One device's wait for an answer.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    /// When it began; [`Time::NEVER`]: the device waits for nothing.
    since: Time,
    /// How far time has been counted: waits of one device overlap where several messages are on their way.
    counted: Time,
}

impl Wait {
    /// None so far.
    pub const fn none() -> Self {
        Self { since: Time::NEVER, counted: Time::ZERO }
    }

    /// The device has waited since `since` ([`Time::NEVER`]: not at all). A wait that began at another time ended now.
    #[inline]
    pub fn see(&mut self, since: Time, now: Time, limit: u64, window: Window, into: &mut Stalls) {
        if since != self.since {
            let began = std::mem::replace(&mut self.since, since);
            if began != Time::NEVER {
                self.over(began, now, limit, window, into);
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
        let (mut wait, mut sum) = (Wait::none(), Stalls::default());
        for (from, to) in waits {
            wait.see(Time(from * S), Time(from * S), LIMIT, window(), &mut sum);
            wait.see(Time::NEVER, Time(to * S), LIMIT, window(), &mut sum);
        }
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
    fn an_answer_to_one_of_several_ends_only_its_own_wait() {
        let (mut wait, mut sum) = (Wait::none(), Stalls::default());
        // sent at 11 and 12 s, answered together at 15 s
        wait.see(Time(11 * S), Time(11 * S), LIMIT, window(), &mut sum);
        wait.see(Time(12 * S), Time(15 * S), LIMIT, window(), &mut sum);
        assert!(wait.is_stalled(Time(15 * S), LIMIT) && !wait.is_stalled(Time(14 * S), LIMIT));
        wait.see(Time::NEVER, Time(15 * S), LIMIT, window(), &mut sum);
        assert_eq!((sum.time / S, sum.longest / S), (4, 4), "no moment counts twice");
        assert!(!wait.is_stalled(Time(99 * S), LIMIT));
    }

    proptest! {
        #[test]
        fn one_device_never_stalls_for_longer_than_there_was(
            steps in prop::collection::vec((0u64..30, 0u64..6), 0..40),
        ) {
            let (mut wait, mut sum, mut now) = (Wait::none(), Stalls::default(), 0);
            for (back, on) in steps {
                now += on;
                let since = if back == 0 { Time::NEVER } else { Time(now.saturating_sub(back) * S) };
                wait.see(since, Time(now * S), LIMIT, window(), &mut sum);
            }
            prop_assert!(sum.time <= 10 * S);
            prop_assert!(sum.time == 0 || sum.longest > LIMIT);
        }
    }
}
