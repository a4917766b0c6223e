//! How the thread of a link shares its core with others: before all else while it has moments without work, as one of
//! them when it has none; and awake for nothing only for a share of the time.
//!
//! On a machine with more work than cores an ordinary thread waits its turn, which is milliseconds: packets then
//! leave that much too late. One with real-time priority is awake some 20 µs after it should be, or where a kernel is
//! not preemptible, when another's system call ends. Staying awake for all of the time would not help: who has a core
//! for himself is stopped by the kernel for up to 50 ms each second, for the others to have their 5 %.
//!
//! Who was given a core is another case: it is his, so that he is awake as long as anything is under way, as an ordinary
//! thread, which the kernel does not stop, but ahead of what else comes there.

use thread_priority::{
    Error, NormalThreadSchedulePolicy, RealtimeThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue,
    ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};

/// With work for this long without a pause, a thread is one among others until there is one, ns.
const BUSY: u64 = 50_000_000;
/// One in so many nanoseconds may be spent awake for nothing, besides what is spent so.
const SHARE: u64 = 4;
/// What can be saved up of them.
const SAVED: u64 = 2_000_000;

/// With a core of its own the thread spins when something is due within this time, ns.
const AHEAD: u64 = 20_000_000;

/// Niceness 0 and -20 on the scale of 0 to 99 that goes against it.
const ORDINARY: u8 = 48;
const KEEN: u8 = 99;

/// Scheduling class of a thread.
#[derive(Debug, Clone, Copy)]
enum SchedulingClass {
    /// SCHED_FIFO, priority 1; needs CAP_SYS_NICE.
    RealTime,
    /// SCHED_OTHER with this priority.
    Normal(u8),
}

fn prioritize(class: SchedulingClass) -> Result<(), Error> {
    let (priority, policy) = match class {
        SchedulingClass::RealTime => {
            (ThreadPriority::Min, ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo))
        }
        SchedulingClass::Normal(value) => (
            ThreadPriority::Crossplatform(
                ThreadPriorityValue::try_from(value).map_err(|_| Error::Priority("off the scale"))?,
            ),
            ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Other),
        ),
    };
    set_thread_priority_and_policy(thread_native_id(), priority, policy)
}

/// Action of a thread that has nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdleAction {
    /// Look again.
    Spin,
    /// Let others of the same real-time priority have their turn, and look again.
    Yield,
    /// Sleep for so long, ns, or until a frame comes.
    Nap(u64),
}

/// What a thread decides between two pieces of work.
#[derive(Debug)]
pub(super) struct LinkScheduling {
    /// Awake this long before something is due: the kernel wakes late.
    spin: u64,
    /// It has a core, and may be awake on it for all of the time.
    alone: bool,
    /// It may be put before others.
    may: bool,
    /// It is.
    first: bool,
    /// When there was last nothing to do.
    rested: u64,
    /// Time that may be spent awake for nothing, as of `at`.
    saved: u64,
    at: u64,
    /// It is spent now.
    awake: bool,
}

impl LinkScheduling {
    /// Of the thread that will ask.
    pub(super) fn new(spin: u64, realtime: bool) -> Self {
        Self { spin, alone: false, may: realtime, first: false, rested: 0, saved: SAVED, at: 0, awake: false }
    }

    /// The same of a thread that has a core.
    pub(super) fn own_core() -> Self {
        if let Err(why) = prioritize(SchedulingClass::Normal(KEEN)) {
            tracing::warn!(%why, "no higher priority: what else runs on the link's core makes packets late");
        }
        Self { alone: true, ..Self::new(AHEAD, false) }
    }

    /// It has done something at `now`, and there may be more to do.
    #[inline]
    pub(super) fn busy(&mut self, now: u64) {
        self.account(now);
        self.awake = false;
        if self.first && now.saturating_sub(self.rested) > BUSY {
            self.rank(false);
        }
    }

    /// There is nothing to do at `now`, for `free` ns.
    #[inline]
    pub(super) fn idle(&mut self, now: u64, free: u64) -> IdleAction {
        self.rested = now;
        if self.may && !self.first {
            self.rank(true);
        }
        self.account(now);
        self.awake = free <= if self.alone { self.spin } else { self.spin.min(self.saved) };
        match self.awake {
            true if self.first => IdleAction::Yield,
            true => IdleAction::Spin,
            // Without CPU time to spin before it is due, the thread sleeps until then.
            false if !self.alone && self.saved < self.spin => IdleAction::Nap(free),
            false => IdleAction::Nap(free - self.spin),
        }
    }

    #[inline]
    fn account(&mut self, now: u64) {
        let passed = now.saturating_sub(self.at);
        self.at = now;
        self.saved = match self.awake {
            true => self.saved.saturating_sub(passed),
            false => (self.saved + passed / SHARE).min(SAVED),
        };
    }

    #[cold]
    fn rank(&mut self, first: bool) {
        match prioritize(if first { SchedulingClass::RealTime } else { SchedulingClass::Normal(ORDINARY) }) {
            Ok(()) => self.first = first,
            Err(why) => {
                tracing::warn!(%why, "no real-time priority: on a busy machine packets will leave late");
                self.may = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_thread_is_one_as_others_are() {
        // Fields 19 and 41 of its stat file: niceness and policy (proc(5)).
        let stat = std::thread::spawn(|| {
            let ordinary = || prioritize(SchedulingClass::Normal(ORDINARY));
            prioritize(SchedulingClass::RealTime)
                .and_then(|()| ordinary())
                .or_else(|_| ordinary())
                .expect("ordinary");
            std::fs::read_to_string("/proc/thread-self/stat").expect("its file")
        });
        let stat = stat.join().expect("a thread");
        let fields: Vec<&str> =
            stat.rsplit(") ").next().map(|rest| rest.split(' ').collect()).expect("fields");
        assert_eq!((fields[19 - 3], fields[41 - 3]), ("0", "0"));
    }

    #[test]
    fn it_is_awake_in_time_and_sleeps_before() {
        let mut scheduling = LinkScheduling::new(60_000, false);
        assert_eq!(scheduling.idle(0, 1_000_000), IdleAction::Nap(940_000));
        assert_eq!(scheduling.idle(939_999, 60_001), IdleAction::Nap(1));
        assert_eq!(scheduling.idle(940_000, 60_000), IdleAction::Spin);
        assert_eq!(scheduling.idle(1_000_000, 0), IdleAction::Spin);
        scheduling.first = true;
        assert_eq!(scheduling.idle(940_000, 60_000), IdleAction::Yield);
    }

    #[test]
    fn who_has_a_core_is_awake_as_long_as_anything_is_under_way() {
        // In a thread of its own, as it has another priority afterwards.
        let thread = std::thread::spawn(|| {
            let (mut scheduling, mut now) = (LinkScheduling::own_core(), 0);
            for _ in 0..1_000 {
                assert_eq!(scheduling.idle(now, AHEAD), IdleAction::Spin);
                now += AHEAD;
                scheduling.busy(now);
            }
            assert_eq!(scheduling.idle(now, AHEAD + 1), IdleAction::Nap(1));
            assert_eq!(scheduling.idle(now, u64::MAX), IdleAction::Nap(u64::MAX - AHEAD));
        });
        thread.join().expect("it behaves");
    }

    #[test]
    fn at_most_a_share_of_the_time_is_spent_awake_for_nothing() {
        let (mut scheduling, mut now, mut spent) = (LinkScheduling::new(60_000, false), 0, 0);
        // Something is due each 50 µs, and takes 1 µs.
        for _ in 0..20_000 {
            let awake = scheduling.idle(now, 49_000) == IdleAction::Spin;
            spent += if awake { 49_000 } else { 0 };
            now += 49_000;
            scheduling.busy(now);
            now += 1_000;
        }
        let share = now / (SHARE + 1);
        assert!((share * 9 / 10..share + SAVED + 49_000).contains(&spent), "{spent} of {now}");
    }

    #[test]
    fn who_never_rests_gives_way_until_he_does() {
        // In a thread of its own, as it has another priority afterwards.
        let thread = std::thread::spawn(|| {
            let mut scheduling = LinkScheduling::new(60_000, true);
            scheduling.idle(0, 1_000);
            let allowed = scheduling.first;
            scheduling.busy(BUSY);
            assert_eq!(scheduling.first, allowed);
            scheduling.busy(BUSY + 1);
            assert!(!scheduling.first);
            scheduling.idle(BUSY + 2, 1_000);
            assert_eq!((scheduling.first, scheduling.may), (allowed, allowed));
        });
        thread.join().expect("it behaves");
    }
}
