//! What a worker does when there is nothing to do.
//!
//! Polling keeps delays short, but machines with two cores exist, and a poller that never yields takes one
//! of them from everybody. So a worker that finds nothing first spins, then yields at each turn, then
//! sleeps a little longer each time. It neither sleeps nor yields when something is to be sent soon.

use std::time::Duration;

/// How patient workers are, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdlePolicy {
    /// Without packets for this long, a worker begins to yield.
    pub yield_after_ns: u64,
    /// Without packets for this long, it begins to sleep.
    pub sleep_after_ns: u64,
    /// Its longest sleep; also what an arriving packet may have to wait.
    pub sleep_max_ns: u64,
    /// It stays awake this long before something is to be sent: the kernel wakes late.
    pub margin_ns: u64,
}

impl Default for IdlePolicy {
    fn default() -> Self {
        Self { yield_after_ns: 20_000, sleep_after_ns: 2_000_000, sleep_max_ns: 50_000, margin_ns: 100_000 }
    }
}

/// Shortest sleep; less is mostly the cost of the call.
const SLEEP_MIN_NS: u64 = 2_000;

/// Action of a worker that has nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdleAction {
    Spin,
    Yield,
    Sleep(Duration),
}

#[derive(Debug)]
pub(crate) struct Idle {
    policy: IdlePolicy,
    /// When there was last something to do.
    worked: u64,
    sleep: u64,
}

impl Idle {
    pub(crate) fn new(policy: IdlePolicy, now: u64) -> Self {
        Self { policy, worked: now, sleep: SLEEP_MIN_NS }
    }

    #[inline]
    pub(crate) fn record_work(&mut self, now: u64) {
        self.worked = now;
        self.sleep = SLEEP_MIN_NS;
    }

    /// Nothing to do at `now`; something is to be sent at `due`.
    pub(crate) fn rest(&mut self, now: u64, due: u64) -> IdleAction {
        let free = due.saturating_sub(now);
        let idle = now.saturating_sub(self.worked);
        let policy = &self.policy;
        if idle < policy.yield_after_ns || free <= policy.margin_ns {
            return IdleAction::Spin;
        }
        if idle < policy.sleep_after_ns || free <= policy.margin_ns + SLEEP_MIN_NS {
            return IdleAction::Yield;
        }
        let sleep = self.sleep.min(free - policy.margin_ns);
        self.sleep = (self.sleep * 2).min(policy.sleep_max_ns).max(SLEEP_MIN_NS);
        IdleAction::Sleep(Duration::from_nanos(sleep))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: u64 = u64::MAX;

    fn idle() -> Idle {
        Idle::new(IdlePolicy::default(), 1000)
    }

    #[test]
    fn first_it_spins_then_yields_then_sleeps_longer_and_longer() {
        let mut idle = idle();
        assert_eq!(idle.rest(1000 + 19_999, NEVER), IdleAction::Spin);
        assert_eq!(idle.rest(1000 + 20_000, NEVER), IdleAction::Yield);
        assert_eq!(idle.rest(1000 + 1_999_999, NEVER), IdleAction::Yield);
        let sleeps: Vec<_> = (0..7).map(|_| idle.rest(1000 + 2_000_000, NEVER)).collect();
        let us = |us| IdleAction::Sleep(Duration::from_micros(us));
        assert_eq!(sleeps, [us(2), us(4), us(8), us(16), us(32), us(50), us(50)]);
        idle.record_work(5_000_000);
        assert_eq!(idle.rest(5_000_001, NEVER), IdleAction::Spin);
        assert_eq!(idle.rest(7_000_001, NEVER), us(2));
    }

    #[test]
    fn it_is_awake_when_a_send_is_due() {
        let mut idle = idle();
        let now = 10_000_000;
        assert_eq!(idle.rest(now, now), IdleAction::Spin);
        assert_eq!(idle.rest(now, now - 1), IdleAction::Spin);
        assert_eq!(idle.rest(now, now + 100_000), IdleAction::Spin);
        assert_eq!(idle.rest(now, now + 102_000), IdleAction::Yield);
        assert_eq!(idle.rest(now, now + 102_001), IdleAction::Sleep(Duration::from_nanos(2_000)));
        for _ in 0..10 {
            idle.rest(now, NEVER);
        }
        assert_eq!(idle.rest(now, now + 110_000), IdleAction::Sleep(Duration::from_nanos(10_000)));
    }
}
