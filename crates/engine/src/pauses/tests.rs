use super::*;
use proptest::prelude::*;
use std::cell::Cell;

const MS: u64 = 1_000_000;
const US: u64 = 1_000;
const TICK: u64 = 5 * MS;

/// A worker in simulated time: what it does, and what is done to it.
struct SimulatedWorker {
    now: u64,
    watch: PauseWatch<FakeCpu>,
    ticked: u64,
    pauses: PauseCounters,
    long_turns: PauseCounters,
}

#[derive(Default)]
struct FakeCpu(Cell<u64>);

impl CpuClock for FakeCpu {
    fn now(&self) -> u64 {
        self.0.get()
    }
}

impl SimulatedWorker {
    fn new() -> Self {
        let mut watch = PauseWatch::new(FakeCpu::default());
        watch.begin(0);
        Self { now: 0, watch, ticked: 0, pauses: Default::default(), long_turns: Default::default() }
    }

    /// Turns between two readings of the time: of own work, and with that taken away.
    fn turns(&mut self, own: u64, taken: u64) {
        let cpu = &self.watch.cpu.0;
        cpu.set(cpu.get() + own);
        self.now += own + taken;
        if own + taken > self.watch.alarm() {
            self.watch.check(own + taken, self.now, &self.pauses, &self.long_turns);
        }
        if self.now >= self.ticked + TICK {
            self.ticked = self.now;
            self.watch.begin(self.now);
        }
    }

    fn rest(&mut self, asked: u64, took: u64) {
        self.now += took;
        self.watch.record_rest(asked, took, &self.pauses);
    }

    /// Count, time and longest of pauses, and of long turns.
    fn found(&self) -> [(u64, u64, u64); 2] {
        [&self.pauses, &self.long_turns].map(|counters| {
            let stats = counters.stats();
            (stats.count.iter().sum(), stats.ns.iter().sum(), stats.longest_ns)
        })
    }
}

#[test]
fn what_is_taken_from_a_worker_is_a_pause() {
    let mut worker = SimulatedWorker::new();
    for taken in [0, 3 * MS, 0, 150 * US, 0] {
        worker.turns(10 * US, taken);
    }
    assert_eq!(worker.found(), [(2, 3150 * US, 3 * MS), (0, 0, 0)]);
}

#[test]
fn a_long_turn_of_its_own_is_none() {
    let mut worker = SimulatedWorker::new();
    worker.turns(8 * MS, 0);
    worker.turns(10 * US, 0);
    assert_eq!(worker.found(), [(0, 0, 0), (1, 8 * MS, 8 * MS)]);
}

#[test]
fn a_long_turn_in_which_it_is_interrupted_is_parted() {
    let mut worker = SimulatedWorker::new();
    worker.turns(2 * MS, 4 * MS);
    assert_eq!(worker.found(), [(1, 4 * MS, 4 * MS), (1, 2 * MS, 2 * MS)]);
}

#[test]
fn a_host_that_does_not_tell_what_it_takes_excuses_nothing() {
    // The kernel takes it for CPU time of the thread.
    let mut worker = SimulatedWorker::new();
    worker.turns(10 * US + 4 * MS, 0);
    assert_eq!(worker.found()[0].0, 0);
}

#[test]
fn each_threshold_is_exact() {
    let mut worker = SimulatedWorker::new();
    worker.turns(US, PAUSE_NS - 1);
    assert_eq!(worker.found()[0].0, 0);
    let mut worker = SimulatedWorker::new();
    worker.turns(US, PAUSE_NS);
    assert_eq!(worker.found()[0], (1, PAUSE_NS, PAUSE_NS));
    let mut worker = SimulatedWorker::new();
    worker.turns(LONG_TURN_NS - 1, 0);
    assert_eq!(worker.found()[1].0, 0);
    worker.turns(LONG_TURN_NS, 0);
    assert_eq!(worker.found()[1].0, 0, "the alarm is at that");
    worker.turns(LONG_TURN_NS + 1, 0);
    assert_eq!(worker.found()[1].0, 1);
}

#[test]
fn batches_that_take_long_are_not_asked_about_each_time() {
    let mut worker = SimulatedWorker::new();
    worker.turns(150 * US, 0);
    assert_eq!(worker.watch.alarm(), 300 * US);
    for _ in 0..100 {
        worker.turns(150 * US, 0);
    }
    assert_eq!(worker.found(), [(0, 0, 0); 2]);
    worker.turns(150 * US, 4 * MS);
    assert_eq!(worker.found()[0], (1, 4 * MS, 4 * MS));
}

#[test]
fn rest_is_no_pause_unless_it_lasts_longer_than_it_should() {
    let mut worker = SimulatedWorker::new();
    for _ in 0..1000 {
        worker.rest(50 * US, 60 * US);
        worker.turns(US, 0);
    }
    assert_eq!(worker.found(), [(0, 0, 0); 2]);
    worker.rest(50 * US, 4050 * US);
    assert_eq!(worker.found()[0], (1, 4 * MS, 4 * MS));
    // and what was rested is nobody's who looks later
    worker.turns(200 * US, 0);
    assert_eq!(worker.found()[0], (1, 4 * MS, 4 * MS));
}

#[test]
fn lengths_double() {
    let counters = PauseCounters::default();
    for ns in [PAUSE_NS, 199_999, 200_000, 3_199_999, 12_800_000, 950 * MS] {
        counters.add(ns);
    }
    assert_eq!(counters.stats().count, [2, 1, 0, 0, 1, 0, 0, 2]);
    assert_eq!((counters.take_peak(), counters.take_peak()), (950 * MS, 0));
    counters.add(PAUSE_NS);
    assert_eq!((counters.take_peak(), counters.stats().longest_ns), (PAUSE_NS, 950 * MS));
}

proptest! {
    /// Whatever happens to a worker: it has no more pauses than time was taken from it, and misses none that is long.
    #[test]
    fn no_more_is_excused_than_was_taken(
        turns in prop::collection::vec((0u64..400_000, prop_oneof![8 => 0u64..1, 1 => 0u64..20_000, 1 => 0u64..6_000_000]), 1..400)
    ) {
        let mut worker = SimulatedWorker::new();
        let (mut taken, mut long) = (0, 0);
        for (own, away) in turns {
            worker.turns(own, away);
            taken += away;
            long += if away > LONG_TURN_NS { away } else { 0 };
        }
        let [(_, pauses, _), _] = worker.found();
        prop_assert!(pauses <= taken, "{pauses} of {taken}");
        prop_assert!(pauses >= long, "{pauses} of {long}");
    }
}
