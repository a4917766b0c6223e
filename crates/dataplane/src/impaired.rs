//! Ports at the end of a bad path: what comes in goes through an `impair` element before anything else.

use dpdk::Mempool;
use impair::spec::{Step, Timeline, WayStep};
use impair::{Direction, Impair, LinkSpec, Live};
use run::graph::{ImpairedPort, Way};
use std::sync::{Arc, Mutex, PoisonError};

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

/// As one way of a link.
fn spec(way: Way, seed: u64) -> LinkSpec {
    let step = |step: WayStep| Step { at: step.at, a_to_b: Some(step.impair), b_to_a: None };
    let timeline = way.impair_timeline.map(|timeline| Timeline {
        steps: timeline.steps.into_iter().map(step).collect(),
        repeat: timeline.repeat,
    });
    let timeline = timeline.unwrap_or_default();
    LinkSpec { seed, a_to_b: way.impair, timeline, ..LinkSpec::default() }
}

/// A port's `impair` element and how to change it. Clones change the same one.
#[derive(Debug, Clone)]
pub struct Impaired {
    /// The port's name.
    pub port: String,
    live: Live,
    /// With the timeline, whose times are the run's.
    spec: Arc<LinkSpec>,
    /// Something else has been said since; held while it is.
    changed: Arc<Mutex<bool>>,
}

impl Impaired {
    /// Of a port that has one. The same seed and frames give the same decisions; each port has its own.
    pub fn new(port: &profile::Port, seed: u64) -> Option<Self> {
        let way = Way { impair: port.impair.clone()?, impair_timeline: port.impair_timeline.clone() };
        let spec = spec(way, seed);
        let first = LinkSpec { timeline: Timeline::default(), ..spec.clone() };
        let live = Live::new(&first, Direction::AToB);
        Some(Self { port: port.name.clone(), live, spec: Arc::new(spec), changed: Arc::default() })
    }

    /// The element: room for `capacity` frames on their way; duplicates come from `pool`.
    pub fn element(&self, pool: &Mempool, capacity: usize) -> Impair {
        Impair::new(self.live.clone(), pool.clone(), capacity)
    }

    /// The run begins now.
    pub fn begin(&self) {
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if !*changed && !self.spec.timeline.steps.is_empty() {
            self.live.set(&self.spec);
        }
    }
}

impl ImpairedPort for Impaired {
    fn port(&self) -> &str {
        &self.port
    }

    fn set(&self, way: Way) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        *changed = true;
        self.live.set(&spec(way, self.spec.seed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use impair::{Burst, PacketStore, Path};
    use serde_json::{from_value, json};

    /// Frames that only are.
    struct Nothing;

    impl PacketStore for Nothing {
        type Load = ();
        fn burst(&self, (): &()) -> Burst {
            Burst::single(60)
        }
        fn split(&mut self, (): &mut (), _: u32) -> Option<()> {
            None
        }
        fn copy(&mut self, (): &()) -> Option<()> {
            Some(())
        }
        fn corrupt(&mut self, (): &mut (), _: u64) {}
        fn free(&mut self, (): ()) {}
    }

    #[test]
    fn what_was_said_by_hand_stays_when_the_run_begins() {
        let all_lost = json!({"steps": [{"at": "0s", "impair": {"loss": {"periodic": 1}}}]});
        let port = json!({"name": "b", "device": "pair:x", "impair": {}, "impair_timeline": all_lost});
        let port: profile::Port = from_value(port).expect("a port");
        for (by_hand, lost) in [(false, 4), (true, 2)] {
            let one = Impaired::new(&port, 1).expect("it is impaired");
            let every_second = from_value(json!({"impair": {"loss": {"periodic": 2}}})).expect("a way");
            if by_hand {
                one.clone().set(every_second);
            }
            one.begin();
            let mut path = Path::new(one.live.clone(), 8);
            for now in 1..5 {
                path.turn(now, &mut Nothing);
                path.offer(now, (), &mut Nothing);
            }
            assert_eq!(one.live.stats().lost, lost);
        }
    }
}
