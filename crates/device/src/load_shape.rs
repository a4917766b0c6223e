//! When flows begin: arrival times from a rate, and how many devices are at work.

use profile::{Arrival, Closed, Open};
use protocol::fine_time::{self, FRACTION};
use protocol::pacer::{Gaps, Pacer, RateOverTime};
use protocol::rate_timeline::RateTimeline;
use protocol::time::Time;
use protocol::turns::Turns;
use std::sync::Arc;

/// A piecewise linear quantity over time: `(at, value)` corners, constant after the last.
#[derive(Debug, Clone, PartialEq)]
struct PiecewiseLinear(Arc<[(f64, f64)]>);

impl PiecewiseLinear {
    fn new(start: f64, stages: impl Iterator<Item = (f64, f64)>) -> Self {
        let mut corners = vec![(0.0, start)];
        let mut at = 0.0;
        for (over, value) in stages {
            at += over;
            corners.push((at, value));
        }
        Self(corners.into())
    }

    fn value(&self, t: f64) -> f64 {
        let next = self.0.partition_point(|(at, _)| *at <= t);
        let Some((t0, v0)) = self.0.get(next.wrapping_sub(1)).copied() else { return 0.0 };
        match self.0.get(next) {
            Some((t1, v1)) => v0 + (v1 - v0) * (t - t0) / (t1 - t0),
            None => v0,
        }
    }

    /// How long after `t` the integral from there reaches `area`; `None` if it never does.
    fn advance(&self, mut t: f64, mut area: f64) -> Option<f64> {
        let mut passed = 0.0;
        loop {
            let next = self.0.partition_point(|(at, _)| *at <= t);
            let v0 = self.value(t);
            let Some((t1, v1)) = self.0.get(next).copied() else {
                return (v0 > 0.0).then(|| passed + area / v0);
            };
            let span = t1 - t;
            let piece = (v0 + v1) / 2.0 * span;
            if piece >= area {
                // v0·x + s·x²/2 = area, in the form that stays exact when s is 0
                let slope = (v1 - v0) / span;
                return Some(passed + 2.0 * area / (v0 + (v0 * v0 + 2.0 * slope * area).max(0.0).sqrt()));
            }
            area -= piece;
            passed += span;
            t = t1;
        }
    }

    /// The integral from `t` to `end`.
    fn area(&self, mut t: f64, end: f64) -> f64 {
        let mut area = 0.0;
        while t < end {
            let next = self.0.partition_point(|(at, _)| *at <= t);
            let to = self.0.get(next).map_or(end, |(at, _)| at.min(end));
            // a step is at its corner: the value just before counts
            let last =
                self.0.get(next).filter(|(at, _)| *at == to).map_or_else(|| self.value(to), |(_, v)| *v);
            area += (self.value(t) + last) / 2.0 * (to - t);
            t = to;
        }
        area
    }
}

impl RateOverTime for PiecewiseLinear {
    const DRAWN: u64 = 10_000;

    /// A unit-rate process stretched by the course's integral gives the wanted rate at each moment.
    fn time_after(&self, at: u128, gap: f64) -> u128 {
        match self.advance(seconds(at), gap) {
            Some(wait) if seconds(at) + wait < FOREVER => {
                at + (wait * 1e9 * (1u64 << FRACTION) as f64) as u128
            }
            _ => u128::MAX,
        }
    }

    fn mean(&self, at: u128, end: u128) -> u64 {
        self.area(seconds(at), seconds(end)) as u64
    }
}

/// No run lasts longer, seconds.
const FOREVER: f64 = 1e9;

fn seconds(at: u128) -> f64 {
    at as f64 / (1u64 << FRACTION) as f64 / 1e9
}

/// Open-loop arrivals of one worker's share of a group.
#[derive(Debug)]
pub struct OpenLoop {
    /// In load time.
    pacer: Pacer<PiecewiseLinear>,
    timeline: Arc<RateTimeline>,
}

impl OpenLoop {
    /// Arrivals at `1/workers` of the rate; constant arrivals of workers, and of the machines of `turns`, interleave.
    /// `timeline`: how the rate is changed while the run goes on.
    pub fn new(
        open: &Open,
        factor: f64,
        (worker, workers): (usize, usize),
        turns: &Turns,
        seed: u64,
        timeline: Arc<RateTimeline>,
    ) -> Self {
        let share = factor / workers as f64;
        let stages = open.stages.iter().map(|s| (s.over.0.as_secs_f64(), s.rate.0 * share));
        let course = PiecewiseLinear::new(open.rate.0 * share, stages);
        let turns = Arc::new(turns.clone().of_worker(worker, workers));
        let gaps = match open.arrival {
            Arrival::Constant if turns.is_alone() => Gaps::Constant,
            Arrival::Constant => Gaps::Turns(Arc::clone(&turns)),
            Arrival::Poisson => Gaps::Poisson,
            Arrival::Uniform => Gaps::Uniform,
        };
        let mut pacer = Pacer::new(course, &gaps, seed.wrapping_add(worker as u64));
        match open.arrival {
            Arrival::Constant => pacer.advance_by(turns.moment(0)),
            Arrival::Poisson | Arrival::Uniform => pacer.advance(),
        }
        Self { pacer, timeline }
    }

    /// When the next flow is due; [`Time::NEVER`] after the last.
    pub fn next(&self) -> Time {
        fine_time::time(self.timeline.run_time(self.pacer.at))
    }

    /// Take the next arrival and work out the one after it.
    pub fn pop(&mut self) -> Time {
        let due = self.next();
        self.pacer.advance();
        due
    }

    /// How many arrivals from the next one on fall before `end`.
    pub fn pending(&self, end: Time) -> u64 {
        self.pacer.before_fine(self.timeline.load_until(end))
    }
}

/// How many of a worker's devices are at work, closed loop.
#[derive(Debug)]
pub struct ClosedLoop {
    course: PiecewiseLinear,
    devices: u32,
    /// Whose turn it is to begin.
    turns: Turns,
    worker: f64,
    workers: f64,
    /// Part of this machine's devices that the worker has.
    share: f64,
}

/// What a course may be short of a device by rounding.
const SHORT: f64 = 1e-9;
/// How far from a whole number of devices on the course of a machine one of them comes alive, at least.
const APART: f64 = 1e-6;

impl ClosedLoop {
    /// `devices` of this worker out of `group` in all of this machine. Those of all workers, and of the machines of `turns`,
    /// come alive in turn.
    pub fn new(
        closed: &Closed,
        (devices, group): (u32, u32),
        (worker, workers): (usize, usize),
        turns: &Turns,
    ) -> Self {
        let share = f64::from(devices) / f64::from(group.max(1));
        let course = if closed.stages.is_empty() {
            PiecewiseLinear::new(0.0, [(closed.ramp.0.as_secs_f64(), f64::from(devices))].into_iter())
        } else {
            let stages = closed.stages.iter();
            PiecewiseLinear::new(0.0, stages.map(|s| (s.over.0.as_secs_f64(), f64::from(s.devices) * share)))
        };
        let turns = turns.clone().of_worker(worker, workers);
        Self { course, devices, turns, worker: worker as f64, workers: workers.max(1) as f64, share }
    }

    /// Where on the course device `i` of this worker comes alive: at its turn, but between its number among those of the
    /// machine and the next. So a machine that is to have a whole number of devices has them, whatever the others have.
    fn begin(&self, i: u32) -> f64 {
        let place = f64::from(i) * self.workers + self.worker;
        let turn = self.turns.moment(i.into()) * self.workers;
        turn.clamp(place + APART, place + 1.0 - APART) * self.share
    }

    /// How many may be at work at `now`.
    pub fn size(&self, now: Time) -> u32 {
        let value = self.course.value(now.0 as f64 / 1e9) + SHORT;
        if value >= f64::from(self.devices) {
            return self.devices;
        }
        // device `i` begins about there
        let mut size = value as u32;
        while size > 0 && self.begin(size - 1) > value {
            size -= 1;
        }
        while size < self.devices && self.begin(size) <= value {
            size += 1;
        }
        size
    }

    /// When the size may next differ from that at `now`: worth a look again then.
    pub fn next_change(&self, now: Time) -> Time {
        let t = now.0 as f64 / 1e9;
        let next = self.course.0.partition_point(|(at, _)| *at <= t);
        match self.course.0.get(next) {
            None => Time::NEVER,
            Some((t1, v1)) => {
                let (v0, size) = (self.course.value(t), self.size(now));
                let slope = (v1 - v0) / (t1 - t);
                let way = match slope {
                    _ if slope > 0.0 && size < self.devices => self.begin(size) - v0,
                    _ if slope < 0.0 && size > 0 => self.begin(size - 1) - v0,
                    _ => f64::INFINITY,
                };
                // the next device, or the next corner, but not more often than each millisecond
                let step = if way.is_finite() { (way / slope).max(1e-3) } else { f64::INFINITY };
                Time(((t + step).min(*t1) * 1e9).ceil() as u64)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{DeviceStage, RateStage};
    use proptest::prelude::*;
    use protocol::unit::{Interval, Rate};

    fn open(rate: f64, arrival: Arrival) -> Open {
        Open { rate: Rate(rate), arrival, stages: vec![], max_flows: 0 }
    }

    fn alone() -> Turns {
        Turns::new(1, &[], &[])
    }

    /// The turns of machines with so many devices.
    fn machines(devices: &[u32]) -> Vec<Turns> {
        let some = |part: &[u32]| part.iter().map(|d| (*d, 1)).collect::<Vec<_>>();
        (0..devices.len())
            .map(|i| Turns::new(devices[i], &some(&devices[..i]), &some(&devices[i + 1..])))
            .collect()
    }

    fn until(a: &mut OpenLoop, end: f64) -> Vec<f64> {
        let mut times = vec![];
        while a.next() < Time((end * 1e9) as u64) {
            times.push(a.pop().0 as f64 / 1e9);
        }
        times
    }

    #[test]
    fn constant_arrivals_are_evenly_spaced() {
        let times = until(
            &mut OpenLoop::new(&open(1000.0, Arrival::Constant), 1.0, (0, 1), &alone(), 1, Arc::default()),
            2.0,
        );
        assert_eq!(times.len(), 2000);
        assert!(times.windows(2).all(|w| (w[1] - w[0] - 0.001).abs() < 1e-8));
    }

    #[test]
    fn workers_share_the_rate_and_interleave() {
        let mut all: Vec<f64> = (0..4)
            .flat_map(|w| {
                until(
                    &mut OpenLoop::new(
                        &open(100.0, Arrival::Constant),
                        1.0,
                        (w, 4),
                        &alone(),
                        1,
                        Arc::default(),
                    ),
                    1.0,
                )
            })
            .collect();
        all.sort_by(f64::total_cmp);
        assert_eq!(all.len(), 100);
        assert!(all.windows(2).all(|w| (w[1] - w[0] - 0.01).abs() < 1e-8), "{all:?}");
    }

    #[test]
    fn machines_that_share_a_rate_interleave_as_one() {
        for devices in [&[2, 2, 2][..], &[4, 3, 3], &[7, 2, 1], &[1, 5]] {
            let total: u32 = devices.iter().sum();
            let changed = |at: f64| if at < 2.0 { at * 20.0 } else { 40.0 + (at - 2.0) * 60.0 };
            let mut all: Vec<f64> = machines(devices)
                .iter()
                .zip(devices)
                .flat_map(|(turns, own)| {
                    let rate = 20.0 * f64::from(*own) / f64::from(total);
                    (0..2).flat_map(move |worker| {
                        let open = open(rate, Arrival::Constant);
                        let timeline = Arc::new(RateTimeline::new(20.0));
                        assert!(timeline.change_to(Time(2_000_000_000), 3.0));
                        let make = || OpenLoop::new(&open, 1.0, (worker, 2), turns, 1, Arc::clone(&timeline));
                        let pending = make().pending(Time(4_000_000_000));
                        let times = until(&mut make(), 4.0);
                        assert_eq!(pending, times.len() as u64);
                        times
                    })
                })
                .collect();
            all.sort_by(f64::total_cmp);
            assert_eq!(all.len(), 160, "{devices:?}");
            for (i, at) in all.iter().enumerate() {
                assert!((changed(*at) - i as f64 - 0.5).abs() < 1e-5, "{devices:?}: {i} at {at}");
            }
        }
    }

    #[test]
    fn random_arrivals_keep_the_mean_rate() {
        for arrival in [Arrival::Poisson, Arrival::Uniform] {
            let n = until(
                &mut OpenLoop::new(&open(10_000.0, arrival), 1.0, (0, 1), &alone(), 7, Arc::default()),
                10.0,
            )
            .len();
            // five standard deviations of a Poisson count
            assert!((n as f64 - 100_000.0).abs() < 5.0 * 316.0, "{arrival:?}: {n}");
        }
    }

    #[test]
    fn poisson_gaps_vary_as_they_should() {
        let times = until(
            &mut OpenLoop::new(&open(1000.0, Arrival::Poisson), 1.0, (0, 1), &alone(), 3, Arc::default()),
            100.0,
        );
        let gaps: Vec<f64> = times.windows(2).map(|w| w[1] - w[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let var = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((var.sqrt() / mean - 1.0).abs() < 0.02, "coefficient of variation {}", var.sqrt() / mean);
    }

    #[test]
    fn a_ramp_has_the_area_under_its_line() {
        let stages = vec![
            RateStage { over: Interval::secs(10), rate: Rate(100.0) },
            RateStage { over: Interval::secs(0), rate: Rate(0.0) },
        ];
        let ramp = Open { stages, ..open(0.0, Arrival::Constant) };
        let times = until(&mut OpenLoop::new(&ramp, 1.0, (0, 1), &alone(), 1, Arc::default()), 60.0);
        assert_eq!(times.len(), 500);
        assert_eq!(times.iter().filter(|t| **t < 5.0).count(), 125);
    }

    #[test]
    fn a_rate_of_zero_never_comes() {
        assert_eq!(
            OpenLoop::new(&open(0.0, Arrival::Constant), 1.0, (0, 1), &alone(), 1, Arc::default()).next(),
            Time::NEVER
        );
    }

    #[test]
    fn the_highest_rate_stays_exact_at_the_end_of_a_long_run() {
        let year = 31_536_000.0;
        let stages = vec![
            RateStage { over: Interval::secs(31_536_000), rate: Rate(0.0) },
            RateStage { over: Interval::secs(0), rate: Rate(1e9) },
        ];
        let late = Open { stages, ..open(0.0, Arrival::Constant) };
        let mut arrivals = OpenLoop::new(&late, 1.0, (0, 1), &alone(), 1, Arc::default());
        let first = arrivals.pop();
        assert!((first.0 as f64 / 1e9 - year).abs() < 1e-6, "{first}");
        for n in 1..10_000 {
            assert_eq!(arrivals.pop().since(first), n);
        }
    }

    /// What a seed stands for is in results that others repeat.
    #[test]
    fn a_seed_gives_the_times_that_it_always_gave() {
        let stages = vec![RateStage { over: Interval::secs(2), rate: Rate(4_000.0) }];
        let times = |arrival, worker| {
            let open = Open { stages: stages.clone(), ..open(300.0, arrival) };
            let mut arrivals = OpenLoop::new(&open, 1.5, (worker, 3), &alone(), 42, Arc::default());
            let times: Vec<u64> = (0..5000).map(|_| arrivals.pop().0).collect();
            [times[0], times[1], times[2], times[999], times[4999]]
        };
        assert_eq!(times(Arrival::Constant, 0), [1107330, 7599698, 13852756, 1316572745, 3424583333]);
        assert_eq!(times(Arrival::Constant, 2), [5463517, 11793380, 17900862, 1317060055, 3424916666]);
        assert_eq!(times(Arrival::Poisson, 1), [1902629, 11785842, 15732421, 1340289058, 3397055777]);
        assert_eq!(times(Arrival::Uniform, 1), [2225447, 9908074, 20586580, 1320542307, 3429526444]);
    }

    #[test]
    fn what_is_pending_is_what_would_be_popped() {
        let stages = vec![
            RateStage { over: Interval::secs(2), rate: Rate(40_000.0) },
            RateStage { over: Interval::secs(0), rate: Rate(500.0) },
        ];
        for arrival in [Arrival::Constant, Arrival::Poisson, Arrival::Uniform] {
            let open = Open { stages: stages.clone(), ..open(100.0, arrival) };
            for end in [0.0, 0.003, 0.5, 1.0, 2.0, 7.5] {
                let mut arrivals = OpenLoop::new(&open, 1.0, (0, 1), &alone(), 5, Arc::default());
                let _first = arrivals.pop();
                let pending = arrivals.pending(Time((end * 1e9) as u64));
                let popped = until(&mut arrivals, end).len() as u64;
                // beyond those drawn random arrivals are as many as the rate says: five standard deviations
                let off = match arrival {
                    _ if popped <= PiecewiseLinear::DRAWN => 0,
                    Arrival::Constant => 1,
                    Arrival::Poisson | Arrival::Uniform => 5 * popped.isqrt(),
                };
                assert!(pending.abs_diff(popped) <= off, "{arrival:?} to {end}: {pending}, {popped}");
            }
        }
        // a load far beyond reach is counted in no time
        let flood = OpenLoop::new(&open(1e9, Arrival::Poisson), 1.0, (0, 1), &alone(), 1, Arc::default());
        let pending = flood.pending(Time(3_600_000_000_000));
        assert!(pending.abs_diff(3_600_000_000_000) < 10_000_000, "{pending}");
    }

    #[test]
    fn a_rate_that_is_changed_moves_only_the_arrivals_to_come() {
        for arrival in [Arrival::Constant, Arrival::Poisson] {
            let timeline = Arc::new(RateTimeline::new(1000.0));
            let make = |timeline: &Arc<RateTimeline>| {
                OpenLoop::new(&open(1000.0, arrival), 1.0, (0, 2), &alone(), 3, Arc::clone(timeline))
            };
            let mut changed = make(&timeline);
            let before = until(&mut make(&timeline), 1.0);
            assert_eq!(
                until(&mut changed, 0.6),
                before.iter().copied().filter(|t| *t < 0.6).collect::<Vec<_>>()
            );
            assert!(
                timeline.change_to(Time(700_000_000), 4.0) && timeline.change_to(Time(1_700_000_000), 0.1)
            );
            let pending = changed.pending(Time(2_700_000_000));
            let rest = until(&mut changed, 2.7);
            assert_eq!(pending, rest.len() as u64);
            let part = |from: f64, to: f64| rest.iter().filter(|t| (from..to).contains(*t)).count();
            let parts = [part(0.6, 0.7), part(0.7, 1.7), part(1.7, 2.7)];
            match arrival {
                Arrival::Constant => assert_eq!(parts, [50, 2000, 50]),
                // five standard deviations
                _ => assert!(parts[1].abs_diff(2000) < 224 && parts[2].abs_diff(50) < 36, "{parts:?}"),
            }
        }
    }

    #[test]
    fn a_closed_loop_follows_its_ramp() {
        let closed = Closed { ramp: Interval::secs(10), ..Closed::default() };
        let devices = ClosedLoop::new(&closed, (100, 100), (0, 1), &alone());
        assert_eq!(devices.size(Time(0)), 0);
        assert_eq!(devices.size(Time(5_000_000_000)), 50);
        assert_eq!(devices.size(Time(10_000_000_000)), 100);
        assert_eq!(devices.next_change(Time(11_000_000_000)), Time::NEVER);
        let at_once = ClosedLoop::new(&Closed::default(), (100, 100), (0, 1), &alone());
        assert_eq!(at_once.size(Time(0)), 100);
    }

    #[test]
    fn a_closed_loop_can_shrink_again() {
        let stage = |over, devices| DeviceStage { over: Interval::secs(over), devices };
        let closed = Closed { stages: vec![stage(1, 10), stage(1, 10), stage(1, 2)], ..Closed::default() };
        let devices = ClosedLoop::new(&closed, (5, 10), (0, 2), &alone());
        assert_eq!([1.0, 2.0, 3.0, 9.0].map(|t| devices.size(Time((t * 1e9) as u64))), [5, 5, 1, 1]);
    }

    #[test]
    fn devices_of_workers_and_machines_come_alive_one_by_one() {
        let closed = Closed { ramp: Interval::secs(1), ..Closed::default() };
        for devices in [&[2, 2, 2][..], &[4, 3, 3], &[5, 1]] {
            let total: u32 = devices.iter().sum();
            let mut begun: Vec<f64> = vec![];
            for (turns, own) in machines(devices).iter().zip(devices) {
                for worker in 0..2u32 {
                    let mine = (own + 1 - worker) / 2;
                    let shape = ClosedLoop::new(&closed, (mine, *own), (worker as usize, 2), turns);
                    let (mut now, mut size) = (Time::ZERO, 0);
                    while now != Time::NEVER {
                        let more = shape.size(now) - size;
                        begun.extend((0..more).map(|_| now.0 as f64 / 1e9));
                        size += more;
                        now = shape.next_change(now);
                    }
                    assert_eq!(size, mine);
                }
            }
            begun.sort_by(f64::total_cmp);
            assert_eq!(begun.len(), total as usize);
            for (i, at) in begun.iter().enumerate() {
                let due = (i as f64 + 0.5) / f64::from(total);
                assert!((at - due).abs() < 1e-6, "{devices:?}: {i} at {at}, due {due}");
            }
        }
    }

    /// Largest remainder, as devices and stages are split over the machines of a fleet.
    fn split(total: u32, weights: &[u32]) -> Vec<u32> {
        let sum: u64 = weights.iter().map(|one| u64::from(*one)).sum();
        let product = |one: &u32| u64::from(total) * u64::from(*one);
        let mut found: Vec<u32> = weights.iter().map(|one| (product(one) / sum) as u32).collect();
        let mut order: Vec<usize> = (0..weights.len()).collect();
        order.sort_by_key(|i| (std::cmp::Reverse(product(&weights[*i]) % sum), *i));
        let rest = total - found.iter().sum::<u32>();
        order.into_iter().take(rest as usize).for_each(|i| found[i] += 1);
        found
    }

    /// Turns alone would not keep to that: of machines of very different sizes the small ones wait long for theirs.
    #[test]
    fn machines_of_any_sizes_have_the_devices_of_a_stage() {
        let ten_small = [10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
        for devices in [&[20, 4, 4, 4][..], &[5, 1, 1, 1], &ten_small, &[3, 2, 5]] {
            let total: u32 = devices.iter().sum();
            for (wanted, workers) in (1..=total).flat_map(|wanted| (1..=3).map(move |n| (wanted, n))) {
                let parts = split(wanted, devices);
                let mut at_work = 0;
                for ((turns, own), part) in machines(devices).iter().zip(devices).zip(parts) {
                    let stage = DeviceStage { over: Interval::secs(1), devices: part };
                    let closed = Closed { stages: vec![stage], ..Closed::default() };
                    for worker in 0..workers {
                        let mine = own / workers + u32::from(worker < own % workers);
                        let worker = (worker as usize, workers as usize);
                        let shape = ClosedLoop::new(&closed, (mine, *own), worker, turns);
                        at_work += shape.size(Time(2_000_000_000));
                    }
                }
                assert_eq!(at_work, wanted, "{workers} workers on machines of {devices:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn changes_are_looked_at_in_time(ramp in 1u64..100, devices in 1u32..5000) {
            let closed = Closed { ramp: Interval::secs(ramp), ..Closed::default() };
            let shape = ClosedLoop::new(&closed, (devices, devices), (0, 1), &alone());
            let mut now = Time::ZERO;
            let mut looks = 0u32;
            while shape.next_change(now) != Time::NEVER {
                let next = shape.next_change(now);
                prop_assert!(next > now);
                now = next;
                looks += 1;
                prop_assert!(looks <= 4 * devices + 10);
            }
            prop_assert_eq!(shape.size(now), devices);
        }
    }
}
