use super::*;
use crate::report::{SentStreams, StreamRecords};
use crate::schedule::{Schedule, Timing};
use crate::summaries::Summaries;
use proptest::prelude::*;
use protocol::pacer::Gaps;
use run::flows::DeviceSummaries;

const MILLION: u32 = 1_000_000;

/// Number `number` of a stream arrives; whether it counts as delivered.
fn arrive(table: &mut StreamTable, stream: u32, number: u64, tally: &mut Tally) -> bool {
    let (state, place, disturbed) = table.get_mut(stream).expect("its lane");
    let number = state.number(number);
    if number == state.next {
        state.next += 1;
    } else {
        let unexpected = UnexpectedArrival { number, now: 0, counts: true };
        if disturbed.arrived((state, place), unexpected, tally) == SequenceClass::Duplicate {
            return false;
        }
    }
    state.delivered(7);
    true
}

fn timing(devices: u32, count: u64) -> Timing {
    let gaps = Gaps::Constant;
    Timing { devices, interval_ns: 1e9, burst: 1, count, flows: 0, rest_ns: 0, ramp_ns: 0, after_ns: 0, gaps }
}

#[test]
fn a_million_streams_take_64_bytes_each_where_they_are_sent_and_received() {
    let mut table = StreamTable::new(MILLION, Lane::ALL, true);
    let mut tally = Tally::new(1);
    for stream in 0..MILLION {
        assert!(arrive(&mut table, stream, 0, &mut tally));
    }
    let through = Schedule::new(&timing(MILLION, 0), 1).memory();
    let in_flows = Schedule::new(&timing(MILLION, 10), 1).memory();
    // What does not grow with the streams: some KiB.
    let streams = MILLION as usize;
    assert!(table.memory() + through <= 50 * streams, "{} and {through}", table.memory());
    assert!(table.memory() + in_flows <= 64 * streams + 256 * 1024, "{} and {in_flows}", table.memory());
    let few = StreamTable::new(10, Lane::ALL, true).memory();
    assert!(table.memory() - few <= 41 * streams, "{} and {few}", table.memory());
}

#[test]
fn a_receiver_keeps_what_arrives_and_nothing_of_the_rest() {
    let mut table = StreamTable::new(MILLION, Lane::ALL, false);
    let before = table.memory();
    assert!(before < 128 * 1024, "{before}");
    arrive(&mut table, 777_777, 0, &mut Tally::new(1));
    assert_eq!(table.memory() - before, PAGE * size_of::<StreamState>());
    assert_eq!(table.summary(777_777).map(|tally| tally.delivered), Some(1));
    assert_eq!((table.summary(1), table.summary(MILLION)), (None, None));
}

#[test]
fn the_lanes_share_the_streams_out() {
    for of in 1..=17 {
        let lanes: Vec<Lane> = (0..of).map(|number| Lane::new(number, of)).collect();
        for stream in (0..2000).chain((1 << 24) - 2000..1 << 24) {
            let own: Vec<usize> = (0..of).filter(|lane| lanes[*lane].place(stream).is_some()).collect();
            assert_eq!(own, [stream as usize % of]);
            assert_eq!(lanes[own[0]].place(stream), Some(stream as usize / of));
        }
    }
    assert_eq!(Lane::ALL.place((1 << 24) - 1), Some((1 << 24) - 1));
}

#[test]
fn of_more_streams_than_there_is_room_for_what_came_late_and_again_is_counted_all_the_same() {
    let many = ORDERED as u32 + 100;
    let mut table = StreamTable::new(many, Lane::ALL, true);
    let mut tally = Tally::new(1);
    for stream in 0..many {
        assert!([0, 2, 1].iter().all(|number| arrive(&mut table, stream, *number, &mut tally)));
        assert!(!arrive(&mut table, stream, 1, &mut tally));
        if stream < many - 200 && stream > 200 {
            // Their orders are alike: only the memory counts.
            continue;
        }
        let one = table.summary(stream).expect("it arrived");
        assert_eq!((one.delivered, one.reordered, one.duplicates), (3, 1, 1));
    }
    assert_eq!((tally.counts.reordered, tally.counts.duplicates), (many.into(), many.into()));
    assert_eq!(tally.reordering().map(|all| all.extent.len()), Some(ORDERED as u64));
    assert_eq!(table.unordered(), 100);
    let mut finished = 0;
    table.finish(|_, finish| {
        finish(&mut ReorderingTally::default());
        finished += 1;
    });
    assert_eq!(finished, ORDERED);
}

#[test]
fn summaries_are_put_together_from_all_who_kept_something() {
    // Two groups; the first one's devices in two parts, and what comes back in two lanes.
    let mut summaries = Summaries::new([(3, true), (2, false)].into_iter());
    let sent = |group, from, devices, packets, frames: u32| {
        let mut schedule = Schedule::new(&timing(devices, 0), 1);
        for _ in 0..frames {
            schedule.take();
        }
        SentStreams { group, from, packets, schedule }
    };
    summaries.add(StreamRecords::Sent(vec![sent(0, 0, 2, 1, 5), sent(1, 0, 2, 10, 3)]));
    summaries.add(StreamRecords::Sent(vec![sent(0, 2, 1, 1, 4)]));
    for lane in 0..2 {
        let mut table = StreamTable::new(5, Lane::new(lane, 2), false);
        for stream in (0..5).filter(|stream| stream % 2 == lane as u32) {
            arrive(&mut table, stream, 0, &mut Tally::new(1));
            arrive(&mut table, stream, 1, &mut Tally::new(1));
        }
        summaries.add(StreamRecords::Received(table));
    }
    let all: Vec<_> = (0..summaries.count()).filter_map(|index| summaries.get(index)).collect();
    let told = all
        .iter()
        .map(|flow| (flow.group, flow.device, flow.tally.sent, flow.tally.delivered, flow.tally.failed));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [(0, 0, 3, 2, 1), (0, 1, 2, 2, 0), (0, 2, 4, 2, 2), (1, 0, 20, 2, 0), (1, 1, 10, 2, 0)]
    );
    assert_eq!(summaries.get(5), None);
}

proptest! {
    /// Also past the bits of a number that are carried, a stream is what one that remembers all says.
    #[test]
    fn a_stream_is_counted_as_by_one_that_remembers_all(
        steps in proptest::collection::vec((0u64..40, 0u64..900), 1..300),
        base in prop_oneof![Just(0u64), Just((1 << 40) - 300)],
    ) {
        let (mut table, mut tally) = (StreamTable::new(3, Lane::ALL, true), Tally::new(1));
        table.get_mut(1).expect("there").0.next = base;
        let (mut seen, mut next) = (std::collections::HashSet::new(), base);
        let mut expected = (0, 0, 0);
        for (ahead, behind) in steps {
            let number = (next + ahead).saturating_sub(behind / 20).max(base);
            let fresh = seen.insert(number);
            expected.0 += u64::from(fresh);
            expected.1 += u32::from(fresh && number < next);
            expected.2 += u32::from(!fresh);
            prop_assert_eq!(arrive(&mut table, 1, number & ((1 << 40) - 1), &mut tally), fresh);
            next = next.max(number + 1);
        }
        let one = table.summary(1).expect("it arrived");
        prop_assert_eq!((one.delivered, one.reordered, one.duplicates), expected);
        prop_assert_eq!((one.delay_last, one.delay_max, one.delay_sum), (7, 7, 7 * one.delivered));
        prop_assert_eq!(table.summary(0).map(|tally| tally.delivered), Some(0));
    }
}
