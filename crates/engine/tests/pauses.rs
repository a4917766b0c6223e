//! A worker at work tells time that it did not have from time that it took.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::eal;
use dpdk::Batch;
use engine::{Cx, Element, ElementInfo, Engine, Graph, Options, Placement, WorkerStats};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

const ONCE: Duration = Duration::from_millis(5);

/// Takes its worker's time, once.
struct Once(Option<fn()>);

impl Element for Once {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "once", takes: false, outputs: &["out"], drops: &[], polled: true }
    }

    fn poll(&mut self, _: &mut Batch, _: &mut Cx<'_>) {
        if let Some(what) = self.0.take() {
            what();
        }
    }
}

/// Waits in the kernel: no work of its own.
fn wait() {
    std::thread::sleep(ONCE);
}

/// Uses so much CPU time, however long that takes.
fn work() {
    let cpu = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
    };
    let begun = cpu();
    while cpu() - begun < ONCE {
        std::hint::spin_loop();
    }
}

/// What a worker counted by the time that it had turns again.
fn after(what: fn()) -> WorkerStats {
    let mut graph = Graph::new();
    let once = graph.add("once", Once(Some(what)));
    let sink = graph.add("sink", crate::common::Recorder::default().check(1));
    graph.connect(once, sink);
    let engine = Engine::start(eal(), graph, &Placement::single(None), &Options::default()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while engine.workers()[0].turns < 2 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(1));
    }
    let longest = engine.take_longest()[0];
    let stats = engine.workers()[0].clone();
    assert!(stats.pauses.longest_ns >= longest.0 && stats.long_turns.longest_ns >= longest.1);
    stats
}

#[test]
fn time_that_a_worker_did_not_have_is_a_pause() {
    let WorkerStats { pauses, .. } = after(wait);
    assert!(u128::from(pauses.longest_ns) >= ONCE.as_nanos() * 9 / 10, "{pauses:?}");
    assert!(pauses.ns.iter().sum::<u64>() >= pauses.longest_ns, "{pauses:?}");
}

#[test]
fn time_that_a_worker_took_is_a_long_turn() {
    let WorkerStats { long_turns, .. } = after(work);
    assert!(u128::from(long_turns.longest_ns) >= ONCE.as_nanos() * 9 / 10, "{long_turns:?}");
}
