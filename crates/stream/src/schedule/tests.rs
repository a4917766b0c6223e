use super::*;

fn timing() -> Timing {
    Timing {
        devices: 1,
        interval_ns: 1000.0,
        burst: 1,
        count: 0,
        flows: 0,
        rest_ns: 0,
        ramp_ns: 0,
        after_ns: 0,
        gaps: Gaps::Constant,
    }
}

fn first(timing: Timing, n: usize) -> Vec<(u32, u64, u64)> {
    let mut slots = Schedule::new(&timing, 1);
    let mut out = Vec::new();
    while out.len() < n && slots.due() < Time::NEVER {
        let slot = slots.take();
        out.push((slot.device, slot.sequence, slot.due.0));
    }
    out
}

#[test]
fn nothing_is_due_before_its_time() {
    let later = Timing { devices: 2, after_ns: 7000, ..timing() };
    assert_eq!(first(later.clone(), 3), [(0, 0, 7000), (1, 0, 7500), (0, 1, 8000)]);
    assert_eq!(first(Timing { count: 1, flows: 1, ..later.clone() }, 9), [(0, 0, 7000), (1, 0, 7500)]);
    let mut slots = Schedule::new(&later, 1);
    assert_eq!((slots.pending(Time(7000)), slots.pending(Time(8000))), (0, 2));
}

#[test]
fn devices_take_turns_evenly_spaced() {
    let got = first(Timing { devices: 4, ..timing() }, 6);
    assert_eq!(got, [(0, 0, 0), (1, 0, 250), (2, 0, 500), (3, 0, 750), (0, 1, 1000), (1, 1, 1250)]);
}

#[test]
fn any_rate_is_met_in_the_long_run() {
    for pps in [3.0, 999_999.0, 7_777_777.0, 14_880_952.0, 148_809_523.8] {
        let mut slots = Schedule::new(&Timing { interval_ns: 1e9 / pps, ..timing() }, 1);
        let n = 1_000_000u64;
        for _ in 0..n {
            slots.take();
        }
        let exact = n as f64 * 1e9 / pps;
        assert!((slots.due().0 as f64 - exact).abs() < 2.0, "{pps}: {} {exact}", slots.due().0);
    }
}

#[test]
fn bursts_fall_due_together_at_the_same_rate() {
    let got = first(Timing { burst: 3, devices: 2, ..timing() }, 7);
    assert_eq!(got.iter().map(|s| s.2).collect::<Vec<_>>(), [0, 0, 0, 1500, 1500, 1500, 3000]);
    assert_eq!(got.iter().map(|s| s.0).collect::<Vec<_>>(), [0, 0, 0, 1, 1, 1, 0]);
}

#[test]
fn flows_end_rest_and_end_for_good() {
    let mut slots = Schedule::new(&Timing { count: 2, flows: 2, rest_ns: 5000, ..timing() }, 1);
    let mut seen = Vec::new();
    while slots.due() < Time::NEVER {
        let slot = slots.take();
        seen.push((slot.due.0, slot.begins, slot.ends));
    }
    assert_eq!(seen, [(0, true, false), (1000, false, true), (7000, true, false), (8000, false, true)]);
    assert_eq!(slots.sent(0), Some((4, 2)));
    assert_eq!((slots.pending(Time(1 << 40)), slots.ready(Time(1 << 40), 9)), (0, 0));
}

#[test]
fn a_long_rest_is_not_counted_slot_by_slot() {
    // An hour, of a thousand million turns that nobody takes.
    let rest_ns = 3_600_000_000_000;
    for gaps in [Gaps::Constant, Gaps::Poisson] {
        let mut slots = Schedule::new(&Timing { devices: 2, count: 1, rest_ns, gaps, ..timing() }, 1);
        let (first, second) = ([slots.take(), slots.take()], [slots.take(), slots.take()]);
        for slot in second {
            let before = first.iter().find(|before| before.device == slot.device).expect("its first");
            let rest = slot.due.0 - before.due.0;
            assert!((rest_ns + 1..rest_ns + 50_000).contains(&rest), "{rest}");
        }
    }
    let timing = Timing { devices: 2, count: 1, rest_ns, ..timing() };
    let again = [(0, 1, rest_ns + 1000), (1, 1, rest_ns + 1500)];
    assert_eq!(first(timing, 4)[2..], again);
}

#[test]
fn a_ramp_wakes_devices_one_after_the_other() {
    let got = first(Timing { devices: 2, ramp_ns: 4000, ..timing() }, 5);
    assert_eq!(got, [(0, 0, 0), (0, 1, 1000), (0, 2, 2000), (1, 0, 2500), (0, 3, 3000)]);
    let mut slots = Schedule::new(&Timing { devices: 2, ramp_ns: 4000, ..timing() }, 1);
    assert_eq!((slots.active(Time(0)), slots.active(Time(1999)), slots.active(Time(2000))), (1, 1, 2));
}

#[test]
fn a_ramp_begins_when_the_group_does() {
    let later = Timing { devices: 2, ramp_ns: 4000, after_ns: 10_000, ..timing() };
    let got = first(later.clone(), 5);
    assert_eq!(got, [(0, 0, 10_000), (0, 1, 11_000), (0, 2, 12_000), (1, 0, 12_500), (0, 3, 13_000)]);
    let mut slots = Schedule::new(&later, 1);
    let active = [9_999, 10_000, 11_999, 12_000].map(|now| slots.active(Time(now)));
    assert_eq!(active, [0, 1, 1, 2]);
}

#[test]
fn a_ramp_that_is_over_is_looked_at_no_more() {
    let ramp = Timing { devices: 3, ramp_ns: 10_000, burst: 2, ..timing() };
    let mut slots = Schedule::new(&ramp, 1);
    while slots.flows.is_some() {
        assert!(slots.take().due < Time(10_000));
    }
    assert!(slots.due() >= Time(10_000));
    // a day, in one go
    let day = 86_400_000_000_000;
    let counted = slots.pending(Time(day));
    assert!(counted.abs_diff(3 * (day - 10_000) / 1000) < 10, "{counted}");
    assert_eq!(slots.sent(2).map(|(_, begun)| begun), Some(1));
    assert_eq!(slots.active(Time(day)), 3);
}

/// A generator that sends nothing for a day, at the rate of 64 B at 10 Gbit/s: were they gone through one by one, these would
/// need more memory than there is.
#[test]
fn of_many_that_are_behind_the_most_are_counted_by_their_mean() {
    let fast = Timing { devices: 1000, interval_ns: 67_200.0, ..timing() };
    let day = 86_400_000_000_000;
    for (timing, expected) in [
        (Timing { ramp_ns: 1_000_000_000, ..fast.clone() }, (day - 500_000_000) as f64 / 67.2),
        (Timing { ramp_ns: 2 * day, ..fast.clone() }, day as f64 / 67.2 * 0.2505),
        (Timing { ramp_ns: 2 * day, devices: 2, interval_ns: 100.0, ..timing() }, day as f64 / 100.0),
        (Timing { count: 30, rest_ns: 4_670_400, ..fast.clone() }, day as f64 / 67.2 * 0.3 * 100.0 / 99.0),
        (Timing { count: 30, burst: 10, ..fast.clone() }, day as f64 / 67.2),
        (Timing { count: 3000, flows: 500, ..fast.clone() }, 1000.0 * 3000.0 * 500.0),
        (Timing { count: 30, gaps: Gaps::Poisson, ..fast.clone() }, day as f64 / 67.2),
    ] {
        let mut slots = Schedule::new(&timing, 1);
        let before = slots.take().due;
        let counted = slots.pending(Time(day)) as f64;
        assert!((counted / expected - 1.0).abs() < 1e-3, "{timing:?}: {counted} for {expected}");
        // and nothing was sent
        assert_eq!((before, slots.sent(0)), (Time(0), Some((1, 1))));
    }
}

#[test]
fn what_is_to_be_expected_is_about_what_comes() {
    for timing in [
        Timing { devices: 100, ramp_ns: 3_000_000, ..timing() },
        Timing { devices: 3, ramp_ns: 3_000_000, after_ns: 400_000, ..timing() },
        Timing { devices: 50, ramp_ns: 900_000, count: 7, rest_ns: 13_000, burst: 3, ..timing() },
        Timing { devices: 50, count: 10, rest_ns: 9_999, interval_ns: 500.0, ..timing() },
    ] {
        let mut slots = Schedule::new(&timing, 1);
        slots.take();
        for end in [1_000_000, 2_000_000] {
            let (expected, exact) = (slots.expected_before(Time(end)), slots.pending(Time(end)));
            assert!(expected.abs_diff(exact) <= exact / 20, "{timing:?}: {expected} for {exact}");
        }
    }
}

#[test]
fn what_is_due_is_counted_exactly() {
    for timing in [
        timing(),
        Timing { devices: 7, interval_ns: 333.3, ..timing() },
        Timing { burst: 5, ..timing() },
        Timing { ramp_ns: 10_000, devices: 3, ..timing() },
        Timing { count: 3, rest_ns: 700, ..timing() },
        Timing { gaps: Gaps::Given([100, 0, 2500].into()), ..timing() },
        Timing { gaps: Gaps::Given([7].into()), devices: 2, ..timing() },
        Timing { gaps: Gaps::Given([100, 900].into()), ramp_ns: 3000, devices: 2, ..timing() },
    ] {
        let mut slots = Schedule::new(&timing, 1);
        for step in 0..200 {
            let end = Time(step * 97);
            let mut ahead = slots.clone();
            let mut count = 0;
            while ahead.due() < end {
                ahead.take();
                count += 1;
            }
            assert_eq!(slots.pending(end), count, "{timing:?} to {end}");
            if step % 3 == 0 && slots.due() < end {
                slots.take();
            }
        }
    }
    let slots = Schedule::new(&Timing { burst: 5, ..timing() }, 1);
    assert_eq!(
        (slots.ready(Time(4999), 100), slots.ready(Time(5000), 100), slots.ready(Time(5000), 7)),
        (5, 10, 7)
    );
}

#[test]
fn without_marks_the_first_and_the_last_time_are_the_same() {
    for timing in [timing(), Timing { devices: 3, ..timing() }, Timing { count: 3, rest_ns: 700, ..timing() }]
    {
        let (mut one, mut many) = (Schedule::new(&timing, 1), Schedule::new(&timing, 1));
        for step in 0..100u64 {
            let now = Time(step * 1777);
            let most = many.ready(now, (step % 7) as usize);
            let mut marks = Marks::NONE;
            let taken = many.take_unmarked((now, most), (5, 0), &mut marks, |_| {});
            let due: Vec<u64> = (0..taken).map(|_| one.take().due.0 + 5).collect();
            if let (Some(first), Some(last)) = (due.first(), due.last()) {
                assert_eq!((marks.sent_ns[0], marks.sent_ns[taken - 1]), (*first, *last));
            }
            assert_eq!((many.due(), taken), (one.due(), due.len()));
        }
        assert!((0..timing.devices).all(|device| many.sent(device) == one.sent(device)));
    }
}

#[test]
fn many_at_once_are_the_same_as_one_by_one() {
    for timing in [
        timing(),
        Timing { devices: 7, interval_ns: 333.3, ..timing() },
        Timing { burst: 5, ..timing() },
        Timing { ramp_ns: 10_000, devices: 3, ..timing() },
        Timing { count: 3, rest_ns: 700, ..timing() },
        Timing { count: 3, flows: 2, devices: 2, ..timing() },
        Timing { gaps: Gaps::Poisson, ..timing() },
    ] {
        let (mut one, mut many) = (Schedule::new(&timing, 1), Schedule::new(&timing, 1));
        for step in 0..200u64 {
            let (now, room) = (Time(step * 977), (step % 11) as usize);
            let (mut marks, mut turns) = (Marks::NONE, Vec::new());
            let taken = many.take_all((now, room), (5, 7), &mut marks, |slot| turns.push(*slot));
            let slots: Vec<Departure> = (0..taken).map(|_| one.take()).collect();
            for (row, slot) in slots.iter().enumerate() {
                let mark = (marks.devices[row], marks.streams[row], marks.sequences[row], marks.sent_ns[row]);
                assert_eq!(mark, (slot.device, slot.device + 7, slot.sequence, slot.due.0 + 5));
            }
            assert!(turns.iter().eq(slots.iter().filter(|slot| slot.begins || slot.ends)));
            assert!(taken == room || many.due() > now);
            assert_eq!((many.due(), many.pending(Time(1 << 18))), (one.due(), one.pending(Time(1 << 18))));
        }
        assert!((0..timing.devices).all(|device| many.sent(device) == one.sent(device)));
    }
}

#[test]
fn a_recordings_own_gaps_are_kept() {
    let got = first(Timing { gaps: Gaps::Given([100, 0, 2500].into()), ..timing() }, 7);
    assert_eq!(got.iter().map(|slot| slot.2).collect::<Vec<_>>(), [0, 100, 100, 2600, 2700, 2700, 5200]);
}

#[test]
fn poisson_gaps_have_the_mean_and_the_spread_of_an_exponential() {
    let timing = Timing { gaps: Gaps::Poisson, ..timing() };
    let got = first(timing.clone(), 200_001);
    let gaps: Vec<f64> = got.windows(2).map(|two| (two[1].2 - two[0].2) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    // The standard error of the mean is 2.2 ns here; the seed is fixed.
    assert!((mean - 1000.0).abs() < 10.0, "{mean}");
    assert!((variance.sqrt() - 1000.0).abs() < 20.0, "{}", variance.sqrt());
    let mut slots = Schedule::new(&timing, 1);
    let due = got.iter().filter(|slot| slot.2 <= 50_000).count();
    assert_eq!(slots.ready(Time(50_000), 1000), due);
    let due = got.iter().filter(|slot| slot.2 < 1_000_000).count() as u64;
    assert_eq!(slots.pending(Time(1_000_000)), due, "not far ahead it is exact");
    assert!(slots.pending(Time(200_000_000)).abs_diff(200_000) < 2_000, "and later to be expected");
}

/// What devices do, from what they sent and nothing else.
fn active_by_definition(timing: &Timing, sent: &[Departure], device: u32, now: u64) -> bool {
    let mine: Vec<&Departure> = sent.iter().filter(|one| one.device == device).collect();
    let ends = mine.iter().filter(|one| one.ends).count() as u32;
    let Some(last) = mine.iter().rfind(|one| one.ends) else {
        return timing.after_ns + timing.ramp_ns * u64::from(device) / u64::from(timing.devices) <= now;
    };
    ends != timing.flows && last.due.0 + timing.rest_ns < now
}

#[test]
fn devices_are_active_from_when_they_wake_until_they_rest() {
    for timing in [
        Timing { devices: 5, ..timing() },
        Timing { devices: 5, after_ns: 7_000, ..timing() },
        Timing { devices: 7, ramp_ns: 9_000, ..timing() },
        Timing { devices: 7, ramp_ns: 9_000, after_ns: 20_000, ..timing() },
        Timing { devices: 7, ramp_ns: 9_000, interval_ns: 70_000.0, ..timing() },
        Timing { devices: 4, ramp_ns: 9_000, after_ns: 20_000, count: 2, rest_ns: 900, ..timing() },
        Timing { devices: 7, ramp_ns: 9_001, count: 2, rest_ns: 1700, ..timing() },
        Timing { devices: 4, ramp_ns: 50_000, count: 1, rest_ns: 10, ..timing() },
        Timing { devices: 4, count: 3, rest_ns: 0, flows: 3, burst: 2, ..timing() },
        Timing { devices: 3, count: 2, rest_ns: 30_000, gaps: Gaps::Poisson, ..timing() },
    ] {
        let (mut slots, mut sent) = (Schedule::new(&timing, 1), Vec::new());
        for now in (0..60_000).step_by(137) {
            while slots.due() <= Time(now) {
                sent.push(slots.take());
            }
            let active = |device: &u32| active_by_definition(&timing, &sent, *device, now);
            let expected = (0..timing.devices).filter(active).count() as u32;
            if now % 3 == 0 {
                assert_eq!(slots.active(Time(now)), expected, "{timing:?} at {now}");
            }
            let before = (slots.due(), slots.active(Time(now)), slots.pending(Time(now + 9_000)));
            let after = (slots.due(), slots.active(Time(now)), slots.pending(Time(now + 9_000)));
            assert_eq!(before, after, "counting what is due changes nothing");
        }
    }
}

#[test]
fn a_sample_looks_at_those_that_rest_and_at_no_other() {
    let million = Timing { devices: 1_000_000, count: 2, rest_ns: 5_000, burst: 2, ..timing() };
    let mut slots = Schedule::new(&Timing { interval_ns: 1e9, ..million }, 1);
    let ends = (0..40).filter(|_| slots.take().ends).count();
    let resting = |slots: &Schedule| slots.flows.as_ref().map(Flows::resting_devices);
    assert_eq!((ends, resting(&slots)), (20, Some(3)), "the others' rest is over");
    let due = slots.due();
    assert_eq!(slots.active(due), 999_998, "one more woke since");
    assert_eq!(slots.active(Time(1 << 40)), 1_000_000);
    assert_eq!(resting(&slots), Some(0));
    let due = slots.due();
    assert_eq!(slots.pending(due), 0);
    assert_eq!(slots.pending(Time(due.0 + 1)), 2);
}

/// What a seed stands for is in results that others repeat.
#[test]
fn a_seed_gives_the_times_that_it_always_gave() {
    let times = |gaps| {
        let mut slots = Schedule::new(&Timing { gaps, interval_ns: 777.7, devices: 3, ..timing() }, 42);
        let times: Vec<u64> = (0..5000).map(|_| slots.take().due.0).collect();
        [times[0], times[1], times[2], times[999], times[4999]]
    };
    assert_eq!(times(Gaps::Constant), [0, 259, 518, 258974, 1295907]);
    assert_eq!(times(Gaps::Poisson), [0, 275, 396, 249133, 1280012]);
    assert_eq!(times(Gaps::Given([100, 0, 2500].into())), [0, 100, 100, 865800, 4331700]);
}

#[test]
fn a_rate_that_changes_moves_only_what_is_due_later() {
    let mut slots = Schedule::new(&Timing { devices: 2, ..timing() }, 1);
    let taken: Vec<u64> = (0..3).map(|_| slots.take().due.0).collect();
    assert_eq!((taken, slots.due()), (vec![0, 500, 1000], Time(1500)));
    // twice as fast from 1,300 ns on: what was 200 ns away is 100 ns away
    slots.set_rate(Time(1300), 2.0);
    assert_eq!((slots.pending(Time(2400)), slots.due()), (4, Time(1400)));
    assert_eq!((0..3).map(|_| slots.take().due.0).collect::<Vec<_>>(), [1400, 1650, 1900]);
    // half as fast as at the beginning
    slots.set_rate(Time(2150), 0.5);
    assert_eq!((0..2).map(|_| slots.take().due.0).collect::<Vec<_>>(), [2150, 3150]);
}
