use super::*;
use crate::live::Direction;
use crate::packet_store::Burst;
use crate::spec::LinkSpec;
use crate::stats::Stats;
use proptest::prelude::*;
use serde_json::{Value, from_value, json};
use std::collections::{HashMap, HashSet};

const MS: u64 = 1_000_000;

/// Packets of one load: numbers, and which were damaged.
type Numbers = Vec<u32>;

/// Packets of 1000 bytes on the wire, known by their numbers.
#[derive(Default)]
struct Names {
    damaged: HashSet<u32>,
    freed: usize,
    no_copies: bool,
}

impl PacketStore for Names {
    type Load = Numbers;

    fn burst(&self, load: &Numbers) -> Burst {
        Burst { packets: load.len() as u32, bytes: 1000, last: 1000 }
    }

    fn split(&mut self, load: &mut Numbers, count: u32) -> Option<Numbers> {
        assert!((count as usize) < load.len() && count > 0, "{count} of {}", load.len());
        let rest = load.split_off(count as usize);
        Some(std::mem::replace(load, rest))
    }

    fn copy(&mut self, load: &Numbers) -> Option<Numbers> {
        assert_eq!(load.len(), 1);
        (!self.no_copies).then(|| load.clone())
    }

    fn corrupt(&mut self, load: &mut Numbers, _: u64) {
        assert_eq!(load.len(), 1);
        self.damaged.insert(load[0]);
    }

    fn free(&mut self, load: Numbers) {
        self.freed += load.len();
    }
}

struct TestPath {
    path: Path<Numbers>,
    store: Names,
    next: u32,
    /// Number and time of each packet that came out.
    out: Vec<(u32, u64)>,
}

impl TestPath {
    fn with(spec: &LinkSpec, capacity: usize) -> Self {
        spec.check().expect("makes sense");
        let live = DirectionControl::new(spec, Direction::AToB);
        let path = Path::new(live, capacity);
        Self { path, store: Names::default(), next: 1, out: Vec::new() }
    }

    fn new(impairment: Value) -> Self {
        Self::with(&from_value(json!({"seed": 5, "a_to_b": impairment})).expect("well-formed"), 100_000)
    }

    /// Everything that happens up to `now`, each at the time when the path said to come.
    fn advance(&mut self, now: u64) {
        while self.path.next_at() <= now {
            let at = self.path.next_at();
            self.path.advance(at, &mut self.store);
            self.take(at);
        }
        self.path.advance(now, &mut self.store);
        self.take(now);
    }

    fn take(&mut self, now: u64) {
        while let Some(load) = self.path.pop_due(now, &mut self.store) {
            self.out.extend(load.into_iter().map(|number| (number, now)));
        }
    }

    fn send(&mut self, now: u64, packets: u32) {
        self.advance(now);
        let load = (self.next..self.next + packets).collect();
        self.next += packets;
        self.path.offer(now, load, &mut self.store);
    }

    fn finish(&mut self) -> Stats {
        while self.path.next_at() != u64::MAX {
            self.advance(self.path.next_at());
        }
        self.stats()
    }

    fn stats(&self) -> Stats {
        self.path.live().stats()
    }

    fn numbers(&self) -> Vec<u32> {
        self.out.iter().map(|(number, _)| *number).collect()
    }
}

#[test]
fn nothing_asked_nothing_done() {
    let mut rig = TestPath::new(json!({}));
    rig.send(10, 3);
    rig.advance(10);
    assert_eq!(rig.out, [(1, 10), (2, 10), (3, 10)]);
    let stats = rig.stats();
    assert_eq!((stats.packets_in, stats.packets_out, stats.bytes_out, stats.held), (3, 3, 3000, 0));
}

#[test]
fn a_delay_is_kept_to_the_nanosecond() {
    let mut rig = TestPath::new(json!({"delay": {"constant": "40ms"}}));
    rig.send(7, 2);
    rig.send(8, 1);
    rig.advance(40 * MS + 6);
    assert_eq!((rig.out.len(), rig.stats().held), (0, 3));
    rig.finish();
    assert_eq!(rig.out, [(1, 40 * MS + 7), (2, 40 * MS + 7), (3, 40 * MS + 8)]);
    assert_eq!(rig.stats().late_max_ns, 0);
}

#[test]
fn listed_packets_are_lost_also_inside_a_train() {
    let mut rig = TestPath::new(json!({"loss": {"list": [1, 4, 5, 10]}}));
    rig.send(0, 10);
    rig.send(1, 2);
    let stats = rig.finish();
    assert_eq!(rig.numbers(), [2, 3, 6, 7, 8, 9, 11, 12]);
    assert_eq!((stats.lost, rig.store.freed), (4, 4));
}

#[test]
fn reordered_packets_come_after_as_many_as_asked() {
    let mut rig = TestPath::new(json!({"reorder": {"share": "100%", "by": {"packets": 2}}}));
    rig.send(0, 1);
    // Only the first is held back; the parameters change before the others.
    rig.path.live().clone().set(&LinkSpec::default());
    rig.send(10, 4);
    let stats = rig.finish();
    assert_eq!(rig.numbers(), [2, 3, 1, 4, 5]);
    assert_eq!(stats.reordered, 1);
}

#[test]
fn who_is_not_overtaken_goes_on_after_a_while_and_does_not_count() {
    let mut rig = TestPath::new(json!({"reorder": {"share": "100%", "by": {"packets": 3}}}));
    rig.send(0, 2);
    let stats = rig.finish();
    assert_eq!(rig.out, [(1, 100 * MS), (2, 100 * MS)]);
    assert_eq!((stats.reordered, stats.held), (0, 0));
}

#[test]
fn a_packet_held_back_by_time_is_overtaken_by_those_that_come_within() {
    let mut rig = TestPath::new(
        json!({"delay": {"constant": "1ms"}, "reorder": {"share": "100%", "by": {"time": "2500us"}}}),
    );
    rig.send(0, 1);
    rig.path
        .live()
        .clone()
        .set(&from_value(json!({"a_to_b": {"delay": {"constant": "1ms"}}})).expect("a spec"));
    for at in 1..5 {
        rig.send(at * MS, 1);
    }
    assert_eq!(rig.finish().reordered, 1);
    assert_eq!(rig.out, [(2, 2 * MS), (3, 3 * MS), (1, 3 * MS + MS / 2), (4, 4 * MS), (5, 5 * MS)]);
}

#[test]
fn duplicates_follow_their_packet_and_damage_is_done_to_one() {
    let mut rig = TestPath::new(json!({"duplicate": "100%"}));
    rig.send(0, 2);
    assert_eq!(rig.finish().duplicated, 2);
    assert_eq!(rig.numbers(), [1, 1, 2, 2]);
    rig.store.no_copies = true;
    rig.send(1, 1);
    let stats = rig.finish();
    assert_eq!((stats.no_copy, stats.duplicated, rig.out.len()), (1, 2, 5));

    let mut rig = TestPath::new(json!({"corrupt": "1%"}));
    rig.send(0, 10_000);
    let stats = rig.finish();
    assert_eq!(stats.corrupted, rig.store.damaged.len() as u64);
    assert!((60..140).contains(&stats.corrupted), "{}", stats.corrupted);
}

#[test]
fn a_full_path_says_so() {
    let spec: LinkSpec = from_value(json!({"a_to_b": {"delay": {"constant": "1ms"}}})).expect("a spec");
    let mut rig = TestPath::with(&spec, 2);
    rig.send(0, 4);
    rig.send(1, 1);
    rig.send(2, 3);
    let stats = rig.stats();
    assert_eq!((stats.queue_full, stats.held, rig.store.freed), (3, 5, 3));
    rig.finish();
    assert_eq!(rig.numbers(), [1, 2, 3, 4, 5]);
}

#[test]
fn parameters_change_live_and_order_is_kept_when_the_way_gets_shorter() {
    let mut rig = TestPath::new(json!({"delay": {"constant": "10ms"}}));
    rig.send(0, 1);
    let live = rig.path.live().clone();
    live.set(&from_value(json!({"a_to_b": {"delay": {"constant": "1ms"}}})).expect("a spec"));
    rig.send(5 * MS, 1);
    rig.send(20 * MS, 1);
    let stats = rig.finish();
    assert_eq!(rig.out, [(1, 10 * MS), (2, 10 * MS), (3, 21 * MS)]);
    assert_eq!(stats.changes, 2);
}

#[test]
fn a_timeline_is_followed_and_repeated() {
    let way = |ms: u64| json!({"delay": {"constant": format!("{ms}ms")}});
    let spec = json!({
        "a_to_b": way(1),
        "timeline": {"steps": [{"at": "10ms", "a_to_b": way(2)}, {"at": "15ms"}, {"at": "20ms", "a_to_b": way(3)}],
                     "repeat": "30ms"}
    });
    let mut rig = TestPath::with(&from_value(spec).expect("a spec"), 100);
    for at in [0, 9, 10, 19, 20, 29, 30, 40, 55, 1050] {
        rig.send((1000 + at) * MS, 1);
        rig.advance((1004 + at) * MS);
    }
    let delays: Vec<u64> = rig.out.iter().map(|(_, at)| at % (5 * MS) / MS).collect();
    // Sent plus delay, modulo 5 ms; the one sent at 30 does not overtake the one sent at 29.
    assert_eq!(delays, [1, 0, 2, 1, 3, 2, 2, 2, 3, 1]);
}

#[test]
fn a_rate_limit_spaces_packets_by_their_bytes_on_the_wire() {
    // 1000 bytes at 8 Mbit/s: 1 ms each.
    let mut rig = TestPath::new(json!({"delay": {"constant": "5ms"}, "bottleneck": {"rate": "8Mbit/s"}}));
    rig.send(0, 3);
    rig.send(MS / 2, 1);
    rig.send(100 * MS, 1);
    rig.finish();
    let at = |ms: u64| ms * MS;
    assert_eq!(rig.out, [(1, at(6)), (2, at(7)), (3, at(8)), (4, at(9)), (5, at(106))]);
}

#[test]
fn what_does_not_fit_the_queue_is_dropped_and_an_idle_line_takes_one_more() {
    let queue = |limit: Value| json!({"bottleneck": {"rate": "8Mbit/s", "queue": {"tail_drop": limit}}});
    for limit in [json!({"packets": 3}), json!({"bytes": "3500B"})] {
        let mut rig = TestPath::new(queue(limit));
        rig.send(0, 6);
        assert_eq!(rig.stats().tail_dropped, 2);
        // At 1.5 ms the second is on the line, so two wait, and one more fits.
        rig.send(MS + MS / 2, 2);
        let stats = rig.finish();
        assert_eq!(rig.numbers(), [1, 2, 3, 4, 7]);
        assert_eq!((stats.tail_dropped, rig.store.freed), (3, 3));
    }
}

#[test]
fn a_train_leaves_a_fast_line_in_pieces_of_at_most_100_us() {
    // 1000 bytes at 400 Mbit/s: 20 µs each, so five to a piece.
    let mut rig = TestPath::new(json!({"bottleneck": {"rate": "400Mbit/s"}}));
    rig.send(0, 12);
    rig.finish();
    let times: Vec<u64> = rig.out.iter().map(|(_, at)| at / 1000).collect();
    assert_eq!(times, [100, 100, 100, 100, 100, 200, 200, 200, 200, 200, 240, 240]);
}

#[test]
fn the_rate_is_what_was_asked_also_where_a_packet_is_no_whole_number_of_nanoseconds() {
    // 1000 bytes at 7 Gbit/s: 1142.857… ns.
    let mut rig = TestPath::new(
        json!({"bottleneck": {"rate": "7Gbit/s", "queue": {"tail_drop": {"packets": 1000000}}}}),
    );
    rig.send(0, 70_000);
    rig.send(1, 630_000);
    rig.finish();
    let last = rig.out.last().expect("some").1;
    assert!(last.abs_diff(800 * MS) <= 10, "{last}");
}

#[test]
fn opening_the_line_lets_all_go() {
    let mut rig = TestPath::new(json!({"bottleneck": {"rate": "8Mbit/s"}}));
    rig.send(0, 5);
    rig.path.live().clone().set(&LinkSpec::default());
    rig.advance(MS);
    assert_eq!(rig.numbers(), [1, 2, 3, 4, 5]);
    rig.send(2 * MS, 1);
    rig.finish();
    assert_eq!(rig.out.last(), Some(&(6, 2 * MS)));
}

/// Twice as much as the line takes, for `seconds`.
fn overload(queue: Value, seconds: u64) -> (TestPath, Stats) {
    let mut rig = TestPath::new(json!({"bottleneck": {"rate": "8Mbit/s", "queue": queue}}));
    for half_ms in 0..seconds * 2000 {
        rig.send(half_ms * MS / 2, 1);
    }
    let stats = rig.stats();
    (rig, stats)
}

#[test]
fn codel_holds_the_delay_of_an_answering_sender_near_its_target() {
    let mut rig = TestPath::new(json!({"bottleneck": {"rate": "8Mbit/s", "queue": {"codel": {}}}}));
    // A sender that halves its rate on each drop and adds a little per millisecond: 1 packet/ms fits.
    let (mut rate, mut credit, mut drops) = (2.0f64, 0.0, 0);
    let mut sent: HashMap<u32, u64> = HashMap::new();
    for ms in 0..20_000u64 {
        credit += rate;
        while credit >= 1.0 {
            credit -= 1.0;
            sent.insert(rig.next, ms * MS);
            rig.send(ms * MS, 1);
        }
        let now = rig.stats().codel_dropped;
        rate = if now > drops { (rate / 2.0).max(0.2) } else { rate + 0.002 };
        drops = now;
    }
    let stats = rig.finish();
    assert!(stats.codel_dropped > 10 && stats.tail_dropped == 0, "{stats:?}");
    let mut waits: Vec<u64> =
        rig.out.iter().filter(|(_, at)| *at > 5000 * MS).map(|(number, at)| at - sent[number]).collect();
    waits.sort_unstable();
    let median = waits[waits.len() / 2];
    assert!(median < 15 * MS, "half of the packets waited {median} ns");
}

#[test]
fn codel_drops_more_and_more_from_a_sender_that_does_not_answer() {
    let (_, stats) = overload(json!({"codel": {}}), 3);
    // 3000 drops a second would be needed; RFC 8289 gets there slowly: sqrt law, and the limit catches the
    // rest.
    assert!(stats.codel_dropped > 50 && stats.tail_dropped > 0, "{stats:?}");
    assert_eq!(stats.packets_in, stats.packets_out + stats.held + stats.dropped());
}

#[test]
fn red_keeps_the_mean_queue_between_its_thresholds() {
    let red = json!({"red": {"limit": {"packets": 100}, "min": "10%", "max": "40%", "max_p": "100%", "weight": "1%"}});
    let (rig, stats) = overload(red, 3);
    assert!(stats.tail_dropped == 0 && stats.red_dropped > 1000, "{stats:?}");
    // Half must be dropped; that share is halfway between the thresholds or a little below.
    let waits = &rig.out[rig.out.len() / 2..];
    let mean = waits.iter().map(|(number, at)| (at - u64::from(number - 1) * MS / 2) / MS).sum::<u64>();
    let mean = mean / waits.len() as u64;
    assert!((10..40).contains(&mean), "{mean} ms");
}

#[test]
fn jitter_that_keeps_order_delays_and_never_swaps() {
    let mut rig = TestPath::new(json!({"delay": {"uniform": {"from": "1ms", "to": "9ms"}}}));
    let mut free =
        TestPath::new(json!({"delay": {"uniform": {"from": "1ms", "to": "9ms"}}, "overtaking": true}));
    for at in 0..2000 {
        rig.send(at * MS, 3);
        free.send(at * MS, 3);
    }
    rig.finish();
    free.finish();
    assert!(rig.out.is_sorted());
    let sent = |number: u32| u64::from(number - 1) / 3 * MS;
    let delays: Vec<u64> = free.out.iter().map(|(number, at)| at - sent(*number)).collect();
    let mean = delays.iter().sum::<u64>() / delays.len() as u64;
    assert!((4_900_000..5_100_000).contains(&mean), "{mean}");
    assert!(delays.iter().all(|delay| (MS..=9 * MS).contains(delay)));
    let swaps = free.out.windows(2).filter(|w| w[1].0 < w[0].0).count();
    assert!(swaps > 1000, "{swaps}");
}

#[test]
fn the_same_seed_decides_the_same_and_another_differently() {
    let run = |seed: u64| {
        let spec = json!({"seed": seed, "a_to_b": {"loss": {"independent": "10%"}, "duplicate": "5%",
            "delay": {"normal": {"mean": "5ms", "deviation": "1ms"}}, "overtaking": true}});
        let mut rig = TestPath::with(&from_value(spec).expect("a spec"), 10_000);
        (0..500).for_each(|at| rig.send(at * MS / 10, 4));
        rig.finish();
        rig.out
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn draws_begin_anew_with_another_seed_and_go_on_without_one() {
    let way = json!({"a_to_b": {"loss": {"independent": "20%"}}});
    let spec: LinkSpec = from_value(way).expect("a spec");
    let mut rig = TestPath::with(&spec, 1000);
    let live = rig.path.live().clone();
    let mut round = |seed: Option<u64>, now: u64| {
        live.set_drawn(&spec, seed);
        // what was set later, without a seed, does not undo that
        live.set(&spec);
        let first = rig.next;
        rig.out.clear();
        rig.send(now, 200);
        rig.advance(now + 1);
        rig.out.iter().map(|(number, _)| number - first).collect::<Vec<_>>()
    };
    let (one, two, again) = (round(Some(7), 0), round(Some(8), MS), round(Some(7), 2 * MS));
    assert!(one == again && one != two && (120..190).contains(&one.len()), "{} {}", one.len(), two.len());
    assert_ne!(round(None, 3 * MS), one);
}

fn anything() -> impl Strategy<Value = Value> {
    let delay = prop_oneof![
        Just(json!({"constant": "3ms"})),
        Just(json!({"uniform": {"from": "0ms", "to": "5ms"}})),
        Just(json!({"normal": {"mean": "2ms", "deviation": "1ms"}})),
    ];
    let loss = prop_oneof![
        Just(json!({"independent": "5%"})),
        Just(json!({"periodic": 7})),
        Just(json!({"gilbert_elliott": {"enter_bad": "5%", "leave_bad": "30%"}})),
    ];
    // A packet takes 1 ms on the line, so a burst leaves packet by packet.
    let bottleneck = prop_oneof![
        Just(json!(null)),
        Just(json!({"rate": "8Mbit/s", "queue": {"tail_drop": {"packets": 10}}})),
        Just(json!({"rate": "8Mbit/s", "queue": {"codel": {"target": "2ms", "interval": "20ms"}}})),
        Just(
            json!({"rate": "8Mbit/s", "queue": {"red": {"limit": {"packets": 20}, "min": "10%", "max": "80%",
            "weight": "10%", "max_p": "20%"}}})
        ),
    ];
    let reorder = prop_oneof![
        Just(json!(null)),
        Just(json!({"share": "10%", "by": {"packets": 2}})),
        Just(json!({"share": "10%", "by": {"time": "2ms"}})),
    ];
    (delay, loss, bottleneck, reorder, any::<[bool; 4]>()).prop_map(|(delay, loss, line, reorder, on)| {
        json!({
            "delay": delay,
            "overtaking": on[0],
            "loss": if on[1] { loss } else { json!(null) },
            "duplicate": if on[2] { json!("5%") } else { json!(null) },
            "corrupt": if on[3] { json!("5%") } else { json!(null) },
            "reorder": reorder,
            "bottleneck": line,
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Trains fare exactly as their packets would have one by one; nothing appears or vanishes uncounted.
    #[test]
    fn a_train_fares_as_its_packets_would(
        impairment in anything(),
        bursts in proptest::collection::vec((0u64..3 * MS, 1u32..40), 1..60),
    ) {
        let (mut whole, mut single) = (TestPath::new(impairment.clone()), TestPath::new(impairment.clone()));
        let mut now = 0;
        for (pause, packets) in bursts {
            now += pause;
            whole.send(now, packets);
            (0..packets).for_each(|_| single.send(now, 1));
            let stats = whole.stats();
            prop_assert_eq!(stats.packets_in + stats.duplicated, stats.packets_out + stats.dropped() + stats.held);
        }
        let (a, b) = (whole.finish(), single.finish());
        prop_assert_eq!(&whole.out, &single.out);
        prop_assert_eq!(&whole.store.damaged, &single.store.damaged);
        prop_assert_eq!(a.clone(), b);
        prop_assert_eq!(a.held, 0);
        prop_assert_eq!(whole.store.freed as u64, a.dropped());
        prop_assert_eq!(whole.out.len() as u64, a.packets_out);
        if impairment["overtaking"] == json!(false) && impairment["reorder"].is_null() {
            prop_assert!(whole.out.is_sorted());
        }
    }
}
