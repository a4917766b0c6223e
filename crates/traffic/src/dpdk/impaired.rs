//! Ports at the end of a bad path: what comes in goes through an `impair` element before anything else.

use dpdk::Mempool;
use impair::spec::{Step, Timeline, WayStep};
use impair::{Direction, Impair, LinkSpec, Live};

/// Bytes of a packet's memory besides the room for its frame, at most: head room, DPDK's own, alignment.
const EXTRA: u64 = 512;

/// The packets that a pool has in `memory` for frames of `room` bytes, and how many of them each of so many impaired
/// `ways` may hold. Without any it needs but `base`.
pub fn packets(memory: u64, ways: usize, room: u64, base: u32) -> (u32, usize) {
    if ways == 0 {
        return (base, 0);
    }
    // An eighth is for rings, queues and cables.
    let most = memory / 8 * 7 / (room + EXTRA);
    let all = u32::try_from(most).unwrap_or(u32::MAX).max(base);
    (all, (all - base).max(base / 2) as usize / ways)
}

/// A port's element, and the hand on it.
#[derive(Debug)]
pub struct Impaired {
    live: Live,
    /// With the timeline, whose times are the run's.
    spec: LinkSpec,
}

impl Impaired {
    /// Of a port that has one. The same seed and frames give the same decisions; each port has its own.
    pub fn new(port: &profile::Port, seed: u64) -> Option<Self> {
        let step = |step: &WayStep| Step { at: step.at, a_to_b: Some(step.impair.clone()), b_to_a: None };
        let timeline = port.impair_timeline.as_ref().map(|timeline| Timeline {
            steps: timeline.steps.iter().map(step).collect(),
            repeat: timeline.repeat,
        });
        let first = LinkSpec { seed, a_to_b: port.impair.clone()?, ..LinkSpec::default() };
        let live = Live::new(&first, Direction::AToB);
        Some(Self { live, spec: LinkSpec { timeline: timeline.unwrap_or_default(), ..first } })
    }

    /// The element: room for `capacity` frames on their way; duplicates come from `pool`.
    pub fn element(&self, pool: &Mempool, capacity: usize) -> Impair {
        Impair::new(self.live.clone(), pool.clone(), capacity)
    }

    /// The run begins now.
    pub fn begin(&self) {
        if !self.spec.timeline.steps.is_empty() {
            self.live.set(&self.spec);
        }
    }
}
