//! Parameters that change while packets are on their way, handed over without a lock on the packet path.

use crate::link_stage::Parameters;
use crate::record::Recording;
use crate::spec::{Bottleneck, Impairment, LinkSpec};
use crate::stats::{Counters, Stats};
use protocol::unit::Interval;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// One of the two directions of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From end a to end b.
    AToB,
    /// From end b to end a.
    BToA,
}

impl Direction {
    /// What the specification says of this direction at first.
    pub fn of(self, spec: &LinkSpec) -> &Impairment {
        match self {
            Self::AToB => &spec.a_to_b,
            Self::BToA => &spec.b_to_a,
        }
    }

    /// Of this direction alone, from that of the link.
    fn seed(self, link: u64) -> u64 {
        link.wrapping_mul(2).wrapping_add(self as u64)
    }
}

/// What holds from a time on.
#[derive(Debug)]
pub(crate) struct Entry {
    at: u64,
    pub(crate) parameters: Parameters,
    pub(crate) bottleneck: Option<Bottleneck>,
}

impl Entry {
    fn new(at: u64, spec: &Impairment) -> Self {
        Self { at, parameters: Parameters::new(spec), bottleneck: spec.bottleneck.clone() }
    }
}

/// A direction's parameters over time, ready for use.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// The first holds from 0 on.
    entries: Vec<Entry>,
    repeat: Option<u64>,
    /// With which all draws begin anew, until that was done.
    seed: Option<u64>,
}

impl Schedule {
    fn new(spec: &LinkSpec, direction: Direction) -> Self {
        let mut entries = vec![Entry::new(0, direction.of(spec))];
        for step in &spec.timeline.steps {
            let way = match direction {
                Direction::AToB => &step.a_to_b,
                Direction::BToA => &step.b_to_a,
            };
            entries.extend(way.as_ref().map(|way| Entry::new(step.at.ns(), way)));
        }
        Self { entries, repeat: spec.timeline.repeat.map(|repeat| repeat.ns()), seed: None }
    }
}

#[derive(Debug)]
struct SharedState {
    /// There is a schedule that was not taken yet.
    fresh: AtomicBool,
    /// That one; else the one before the last, which the next setter frees.
    next: Mutex<Box<Schedule>>,
    counters: Counters,
}

/// Control of one direction: changes its parameters and reads its counters, from any thread, at any time.
#[derive(Debug, Clone)]
pub struct DirectionControl {
    shared: Arc<SharedState>,
    direction: Direction,
    /// Of this direction alone.
    pub(crate) seed: u64,
}

impl DirectionControl {
    /// `spec` must have been [checked](LinkSpec::check).
    pub fn new(spec: &LinkSpec, direction: Direction) -> Self {
        let next = Mutex::new(Box::new(Schedule::new(spec, direction)));
        let shared = SharedState { fresh: AtomicBool::new(true), next, counters: Counters::default() };
        Self { shared: Arc::new(shared), direction, seed: direction.seed(spec.seed) }
    }

    /// From now on so; times of the timeline begin now. What is on its way arrives when it would have. The
    /// seed stays as it was, and so do the decisions of impairments that do not change.
    pub fn set(&self, spec: &LinkSpec) {
        self.set_drawn(spec, None);
    }

    /// [Set](Self::set), with all draws begun anew by a seed of a link, if one is given.
    pub fn set_drawn(&self, spec: &LinkSpec, seed: Option<u64>) {
        let mut schedule = Box::new(Schedule::new(spec, self.direction));
        let mut next = self.shared.next.lock().unwrap_or_else(PoisonError::into_inner);
        // one that was not taken up yet is not lost
        schedule.seed = seed.map(|seed| self.direction.seed(seed)).or(next.seed);
        *next = schedule;
        self.shared.fresh.store(true, Ordering::Release);
    }

    /// The counters now.
    pub fn stats(&self) -> Stats {
        self.shared.counters.snapshot()
    }

    #[inline]
    pub(crate) fn counters(&self) -> &Counters {
        &self.shared.counters
    }
}

/// The hand on both directions of a link, which keeps what was changed.
#[derive(Debug)]
pub struct LiveLink {
    directions: [DirectionControl; 2],
    began: Instant,
    recording: Mutex<Recording>,
}

impl LiveLink {
    /// A link that begins now. `spec` must have been [checked](LinkSpec::check).
    pub fn new(spec: &LinkSpec) -> Self {
        let directions = [Direction::AToB, Direction::BToA].map(|way| DirectionControl::new(spec, way));
        Self { directions, began: Instant::now(), recording: Mutex::new(Recording::new(spec)) }
    }

    /// The hand on one direction.
    pub fn direction(&self, direction: Direction) -> &DirectionControl {
        &self.directions[direction as usize]
    }

    /// From now on so, in both directions.
    pub fn set(&self, spec: &LinkSpec) {
        self.set_drawn(spec, None);
    }

    /// [Set](Self::set), with all draws begun anew by this seed, if one is given. What is recorded has the first
    /// seed only.
    pub fn set_drawn(&self, spec: &LinkSpec, seed: Option<u64>) {
        self.recording().set(Interval(self.began.elapsed()), spec);
        self.directions.iter().for_each(|live| live.set_drawn(spec, seed));
    }

    /// What it did so far, as one specification that does it again.
    pub fn recorded(&self) -> LinkSpec {
        self.recording().until(Interval(self.began.elapsed()))
    }

    /// The counters now: a to b, b to a.
    pub fn stats(&self) -> [Stats; 2] {
        [self.directions[0].stats(), self.directions[1].stats()]
    }

    fn recording(&self) -> MutexGuard<'_, Recording> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows a schedule, and takes up the next.
#[derive(Debug)]
pub(crate) struct Follower {
    live: DirectionControl,
    schedule: Box<Schedule>,
    began: u64,
    at: usize,
    /// When the next entry is to be used.
    next: u64,
}

impl Follower {
    pub(crate) fn new(live: DirectionControl) -> Self {
        let schedule = Box::new(Schedule { entries: Vec::new(), repeat: None, seed: None });
        Self { live, schedule, began: 0, at: 0, next: u64::MAX }
    }

    #[inline]
    pub(crate) fn live(&self) -> &DirectionControl {
        &self.live
    }

    /// When the timeline's next step is due, unless other parameters are set before.
    #[inline]
    pub(crate) fn next_at(&self) -> u64 {
        self.next
    }

    /// What is to be used from now on, and with which seed draws begin anew, if they do; `None` when it is what was
    /// used before. To be asked again until then.
    #[inline]
    pub(crate) fn follow(&mut self, now: u64) -> Option<(&Entry, Option<u64>)> {
        if self.live.shared.fresh.load(Ordering::Acquire) && self.take_up() {
            (self.began, self.at) = (now, 0);
        } else if now < self.next {
            return None;
        } else {
            self.go_on();
        }
        let seed = self.schedule.seed.take();
        let Schedule { entries, repeat, .. } = &*self.schedule;
        let next = entries.get(self.at + 1).map(|entry| entry.at).or(*repeat);
        self.next = next.map_or(u64::MAX, |next| self.began.saturating_add(next));
        self.live.shared.counters.changes.add(1);
        Some((entries.get(self.at)?, seed))
    }

    /// A setter holds the lock for the time of a move; if it does just now, the next poll takes the parameters.
    #[cold]
    fn take_up(&mut self) -> bool {
        let Ok(mut next) = self.live.shared.next.try_lock() else { return false };
        std::mem::swap(&mut *next, &mut self.schedule);
        self.live.shared.fresh.store(false, Ordering::Release);
        true
    }

    /// To the next entry, or back to the first.
    #[cold]
    fn go_on(&mut self) {
        self.at += 1;
        if self.at >= self.schedule.entries.len() {
            self.at = 0;
            self.began = self.next;
        }
    }
}
