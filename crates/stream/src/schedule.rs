//! Whose turn it is when the datagrams of a group fall due.
//!
//! All devices of a group send at the same pace, evenly staggered, so the group is one sequence of slots at
//! the common pace that the devices take in turn: nothing to sort, however many devices there are.

use crate::pacer::{FRACTION, Gaps, Pacer};
use packet::frame::{Marks, ROWS};
use protocol::time::Time;

/// How a group sends.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Devices in the group.
    pub devices: u32,
    /// Time between the datagrams of one device, ns.
    pub interval_ns: f64,
    /// Datagrams that fall due together; the rate stays the same.
    pub burst: u32,
    /// Datagrams per flow; 0: until the load ends.
    pub count: u64,
    /// Flows per device; 0: until the load ends.
    pub flows: u32,
    /// Rest between the flows of a device, ns.
    pub rest_ns: u64,
    /// Time over which the devices begin, evenly, ns.
    pub ramp_ns: u64,
    /// How the times between slots are spread.
    pub gaps: Gaps,
}

/// One device's place in its flows.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// Its next datagram's sequence number, over all its flows.
    sequence: u64,
    /// Datagrams left in its flow.
    left: u64,
    /// Flows left, the present one included.
    flows: u32,
    /// It has no turn before this.
    wakes: u64,
    /// When its flow began.
    begun: Time,
}

/// A datagram to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Whose it is.
    pub device: u32,
    /// Its number in the device's stream.
    pub sequence: u64,
    /// When it is due.
    pub due: Time,
    /// It is the first of a flow.
    pub begins: bool,
    /// It is the last of a flow.
    pub ends: bool,
    /// When its flow began.
    pub begun: Time,
}

/// The slots of one group, from now on.
#[derive(Debug, Clone)]
pub struct Slots {
    shape: Shape,
    beat: Pacer,
    device: u32,
    /// Datagrams of the present slot that are already sent.
    in_burst: u32,
    turns: Vec<Turn>,
    /// Devices that will ever send again.
    alive: u32,
    /// All devices are awake, and for good: whose turn it is needs no looking.
    plain: bool,
}

impl Slots {
    /// From the start of the run.
    pub fn new(shape: &Shape, seed: u64) -> Self {
        let devices = shape.devices.max(1);
        let shape = Shape { devices, burst: shape.burst.max(1), ..shape.clone() };
        let every = shape.interval_ns * f64::from(shape.burst) / f64::from(devices);
        let turn = |i: u32| Turn {
            sequence: 0,
            left: if shape.count == 0 { u64::MAX } else { shape.count },
            flows: if shape.flows == 0 { u32::MAX } else { shape.flows },
            wakes: u64::try_from(u128::from(shape.ramp_ns) * u128::from(i) / u128::from(devices))
                .unwrap_or(u64::MAX),
            begun: Time::NEVER,
        };
        let turns = (0..devices).map(turn).collect();
        let mut slots = Self {
            plain: shape.ramp_ns == 0 && shape.count == 0,
            beat: Pacer::new(every, &shape.gaps, seed),
            shape,
            device: 0,
            in_burst: 0,
            turns,
            alive: devices,
        };
        slots.skip();
        slots
    }

    /// When the next datagram is due; [`Time::NEVER`] when there is none.
    #[inline]
    pub fn due(&self) -> Time {
        if self.alive == 0 {
            return Time::NEVER;
        }
        self.beat.due()
    }

    /// How many datagrams are due by and with `now`, at most `most`. Exact while no flow ends or begins.
    #[inline]
    pub fn ready(&self, now: Time, most: usize) -> usize {
        if self.due() > now {
            return 0;
        }
        self.beat.ready(now, (self.shape.burst - self.in_burst) as usize, (self.shape.burst as usize, most))
    }

    /// Take the datagrams that are due by and with `now`, at most `most`, and write their marks, those of a stream that
    /// began at `zero` and has number `first`; how many. `turn` is told those with which a flow begins or ends.
    #[inline]
    pub fn take_all(
        &mut self,
        (now, most): (Time, usize),
        (zero, first): (u64, u32),
        marks: &mut Marks,
        mut turn: impl FnMut(&Slot),
    ) -> usize {
        let most = most.min(ROWS);
        let mut taken = 0;
        if self.plain && self.shape.burst == 1 && self.beat.is_even() {
            taken = self.take_plain(now, most, marks);
        }
        while taken < most && self.due() <= now {
            let slot = self.take();
            marks.devices[taken] = slot.device;
            marks.sequences[taken] = slot.sequence;
            marks.sent_ns[taken] = slot.due.0;
            if slot.begins || slot.ends {
                turn(&slot);
            }
            taken += 1;
        }
        for (stream, device) in marks.streams[..taken].iter_mut().zip(&marks.devices) {
            *stream = first.wrapping_add(*device);
        }
        marks.sent_ns[..taken].iter_mut().for_each(|sent| *sent = sent.saturating_add(zero));
        taken
    }

    /// As [`Slots::take_all`] with `most` from [`Slots::ready`], for frames that show nothing of their marks: of one
    /// stream under way only the first and the last time are written.
    #[inline]
    pub fn take_unmarked(
        &mut self,
        (now, most): (Time, usize),
        (zero, first): (u64, u32),
        marks: &mut Marks,
        turn: impl FnMut(&Slot),
    ) -> usize {
        let constant = self.plain && self.shape.burst == 1 && self.beat.is_even();
        match &mut *self.turns {
            [one] if constant && one.sequence > 0 && (1..=ROWS).contains(&most) => {
                let last = self.beat.at + self.beat.step * (most as u128 - 1);
                let due = |at: u128| ((at >> FRACTION) as u64).saturating_add(zero);
                marks.sent_ns[0] = due(self.beat.at);
                marks.sent_ns[most - 1] = due(last);
                one.sequence += most as u64;
                self.beat.at = last + self.beat.step;
                most
            }
            _ => self.take_all((now, most), (zero, first), marks, turn),
        }
    }

    /// As [`Slots::take_all`], as long as nothing begins, and nothing ends or bursts: all that there is to do for most
    /// streams.
    #[inline]
    fn take_plain(&mut self, now: Time, most: usize, marks: &mut Marks) -> usize {
        let (mut at, step) = (self.beat.at, self.beat.step);
        let rows = marks.sent_ns[..most].iter_mut().zip(&mut marks.sequences).zip(&mut marks.devices);
        let mut taken = 0;
        if let [turn] = &mut *self.turns {
            if turn.sequence > 0 {
                for ((sent, sequence), device) in rows {
                    let due = (at >> FRACTION) as u64;
                    if due > now.0 {
                        break;
                    }
                    (*sent, *sequence, *device) = (due, turn.sequence + taken as u64, 0);
                    at += step;
                    taken += 1;
                }
                turn.sequence += taken as u64;
            }
        } else {
            let mut next = self.device;
            for ((sent, sequence), device) in rows {
                let due = (at >> FRACTION) as u64;
                let Some(turn) = self.turns.get_mut(next as usize) else { break };
                if due > now.0 || turn.sequence == 0 {
                    break;
                }
                (*sent, *sequence, *device) = (due, turn.sequence, next);
                turn.sequence += 1;
                next = if next + 1 == self.shape.devices { 0 } else { next + 1 };
                at += step;
                taken += 1;
            }
            self.device = next;
        }
        self.beat.at = at;
        taken
    }

    /// Take the next datagram. Only to be called when [`Slots::due`] is a time.
    #[inline]
    pub fn take(&mut self) -> Slot {
        let due = self.due();
        let device = self.device;
        let turn = &mut self.turns[device as usize];
        let sequence = turn.sequence;
        turn.sequence += 1;
        let begins = sequence == 0 || (self.shape.count > 0 && turn.left == self.shape.count);
        if begins {
            turn.begun = due;
        }
        let begun = turn.begun;
        turn.left = turn.left.saturating_sub(1);
        let ends = turn.left == 0;
        if ends {
            turn.flows = turn.flows.saturating_sub(1);
            turn.left = self.shape.count;
            turn.wakes = due.0.saturating_add(self.shape.rest_ns).saturating_add(1);
            if turn.flows == 0 {
                turn.wakes = u64::MAX;
                self.alive -= 1;
            }
        }
        self.in_burst += 1;
        if self.in_burst >= self.shape.burst || ends {
            self.next_slot();
            self.skip();
        }
        Slot { device, sequence, due, begins, ends, begun }
    }

    #[inline]
    fn next_slot(&mut self) {
        self.in_burst = 0;
        self.beat.advance();
        self.device += 1;
        if self.device == self.shape.devices {
            self.device = 0;
        }
    }

    /// Pass over the turns of devices that do not send then.
    #[inline]
    fn skip(&mut self) {
        if self.plain || self.alive == 0 {
            return;
        }
        let mut passed = 0;
        while self.turns[self.device as usize].wakes > self.due().0 {
            if passed < self.shape.devices {
                self.next_slot();
                passed += 1;
                continue;
            }
            // All rest.
            let wakes = self.turns.iter().map(|turn| turn.wakes).min().unwrap_or(0);
            self.beat.pass(self.shape.devices, Time(wakes));
            passed = 0;
        }
    }

    /// How many datagrams would fall due before `end`: the load that is intended but not sent yet.
    pub fn pending(&self, end: Time) -> u64 {
        if self.alive == 0 || self.due() >= end {
            return 0;
        }
        if self.plain {
            let slots = self.beat.before(end);
            return slots.saturating_mul(self.shape.burst.into()).saturating_sub(self.in_burst.into());
        }
        let mut ahead = self.clone();
        let mut pending = 0;
        while ahead.due() < end {
            ahead.take();
            pending += 1;
        }
        pending
    }

    /// Devices with a flow under way at `now`.
    pub fn active(&self, now: Time) -> u32 {
        self.turns.iter().filter(|turn| turn.wakes <= now.0).count() as u32
    }

    /// When each flow began that is under way.
    pub fn under_way(&self) -> impl Iterator<Item = Time> + '_ {
        let fresh =
            |turn: &&Turn| turn.sequence > 0 && (self.shape.count == 0 || turn.left < self.shape.count);
        self.turns.iter().filter(fresh).map(|turn| turn.begun)
    }

    /// How many datagrams each device has sent.
    pub fn sent(&self) -> impl Iterator<Item = u64> + '_ {
        self.turns.iter().map(|turn| turn.sequence)
    }

    /// How many flows each device has begun.
    pub fn begun(&self) -> impl Iterator<Item = u32> + '_ {
        let all = if self.shape.flows == 0 { u32::MAX } else { self.shape.flows };
        self.turns.iter().map(move |turn| {
            let under_way = turn.sequence > 0 && (self.shape.count == 0 || turn.left < self.shape.count);
            (all - turn.flows) + u32::from(under_way)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> Shape {
        Shape {
            devices: 1,
            interval_ns: 1000.0,
            burst: 1,
            count: 0,
            flows: 0,
            rest_ns: 0,
            ramp_ns: 0,
            gaps: Gaps::Constant,
        }
    }

    fn first(shape: Shape, n: usize) -> Vec<(u32, u64, u64)> {
        let mut slots = Slots::new(&shape, 1);
        let mut out = Vec::new();
        while out.len() < n && slots.due() < Time::NEVER {
            let slot = slots.take();
            out.push((slot.device, slot.sequence, slot.due.0));
        }
        out
    }

    #[test]
    fn devices_take_turns_evenly_spaced() {
        let got = first(Shape { devices: 4, ..shape() }, 6);
        assert_eq!(got, [(0, 0, 0), (1, 0, 250), (2, 0, 500), (3, 0, 750), (0, 1, 1000), (1, 1, 1250)]);
    }

    #[test]
    fn any_rate_is_met_in_the_long_run() {
        for pps in [3.0, 999_999.0, 7_777_777.0, 14_880_952.0, 148_809_523.8] {
            let mut slots = Slots::new(&Shape { interval_ns: 1e9 / pps, ..shape() }, 1);
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
        let got = first(Shape { burst: 3, devices: 2, ..shape() }, 7);
        assert_eq!(got.iter().map(|s| s.2).collect::<Vec<_>>(), [0, 0, 0, 1500, 1500, 1500, 3000]);
        assert_eq!(got.iter().map(|s| s.0).collect::<Vec<_>>(), [0, 0, 0, 1, 1, 1, 0]);
    }

    #[test]
    fn flows_end_rest_and_end_for_good() {
        let mut slots = Slots::new(&Shape { count: 2, flows: 2, rest_ns: 5000, ..shape() }, 1);
        let mut seen = Vec::new();
        while slots.due() < Time::NEVER {
            let slot = slots.take();
            seen.push((slot.due.0, slot.begins, slot.ends));
        }
        assert_eq!(seen, [(0, true, false), (1000, false, true), (7000, true, false), (8000, false, true)]);
        assert_eq!(slots.sent().collect::<Vec<_>>(), [4]);
        assert_eq!(slots.begun().collect::<Vec<_>>(), [2]);
        assert_eq!((slots.pending(Time(1 << 40)), slots.ready(Time(1 << 40), 9)), (0, 0));
    }

    #[test]
    fn a_long_rest_is_not_counted_slot_by_slot() {
        // An hour, of a thousand million turns that nobody takes.
        let rest_ns = 3_600_000_000_000;
        for gaps in [Gaps::Constant, Gaps::Poisson] {
            let mut slots = Slots::new(&Shape { devices: 2, count: 1, rest_ns, gaps, ..shape() }, 1);
            let (first, second) = ([slots.take(), slots.take()], [slots.take(), slots.take()]);
            for slot in second {
                let before = first.iter().find(|before| before.device == slot.device).expect("its first");
                let rest = slot.due.0 - before.due.0;
                assert!((rest_ns + 1..rest_ns + 50_000).contains(&rest), "{rest}");
            }
        }
        let shape = Shape { devices: 2, count: 1, rest_ns, ..shape() };
        let again = [(0, 1, rest_ns + 1000), (1, 1, rest_ns + 1500)];
        assert_eq!(first(shape, 4)[2..], again);
    }

    #[test]
    fn a_ramp_wakes_devices_one_after_the_other() {
        let got = first(Shape { devices: 2, ramp_ns: 4000, ..shape() }, 5);
        assert_eq!(got, [(0, 0, 0), (0, 1, 1000), (0, 2, 2000), (1, 0, 2500), (0, 3, 3000)]);
        let slots = Slots::new(&Shape { devices: 2, ramp_ns: 4000, ..shape() }, 1);
        assert_eq!((slots.active(Time(0)), slots.active(Time(1999)), slots.active(Time(2000))), (1, 1, 2));
    }

    #[test]
    fn what_is_due_is_counted_exactly() {
        for shape in [
            shape(),
            Shape { devices: 7, interval_ns: 333.3, ..shape() },
            Shape { burst: 5, ..shape() },
            Shape { ramp_ns: 10_000, devices: 3, ..shape() },
            Shape { count: 3, rest_ns: 700, ..shape() },
            Shape { gaps: Gaps::Given([100, 0, 2500].into()), ..shape() },
            Shape { gaps: Gaps::Given([7].into()), devices: 2, ..shape() },
            Shape { gaps: Gaps::Given([100, 900].into()), ramp_ns: 3000, devices: 2, ..shape() },
        ] {
            let mut slots = Slots::new(&shape, 1);
            for step in 0..200 {
                let end = Time(step * 97);
                let mut ahead = slots.clone();
                let mut count = 0;
                while ahead.due() < end {
                    ahead.take();
                    count += 1;
                }
                assert_eq!(slots.pending(end), count, "{shape:?} to {end}");
                if step % 3 == 0 && slots.due() < end {
                    slots.take();
                }
            }
        }
        let slots = Slots::new(&Shape { burst: 5, ..shape() }, 1);
        assert_eq!(
            (slots.ready(Time(4999), 100), slots.ready(Time(5000), 100), slots.ready(Time(5000), 7)),
            (5, 10, 7)
        );
    }

    #[test]
    fn without_marks_the_first_and_the_last_time_are_the_same() {
        for shape in [shape(), Shape { devices: 3, ..shape() }, Shape { count: 3, rest_ns: 700, ..shape() }] {
            let (mut one, mut many) = (Slots::new(&shape, 1), Slots::new(&shape, 1));
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
            assert!(many.sent().eq(one.sent()) && many.begun().eq(one.begun()));
        }
    }

    #[test]
    fn many_at_once_are_the_same_as_one_by_one() {
        for shape in [
            shape(),
            Shape { devices: 7, interval_ns: 333.3, ..shape() },
            Shape { burst: 5, ..shape() },
            Shape { ramp_ns: 10_000, devices: 3, ..shape() },
            Shape { count: 3, rest_ns: 700, ..shape() },
            Shape { count: 3, flows: 2, devices: 2, ..shape() },
            Shape { gaps: Gaps::Poisson, ..shape() },
        ] {
            let (mut one, mut many) = (Slots::new(&shape, 1), Slots::new(&shape, 1));
            for step in 0..200u64 {
                let (now, room) = (Time(step * 977), (step % 11) as usize);
                let (mut marks, mut turns) = (Marks::NONE, Vec::new());
                let taken = many.take_all((now, room), (5, 7), &mut marks, |slot| turns.push(*slot));
                let slots: Vec<Slot> = (0..taken).map(|_| one.take()).collect();
                for (row, slot) in slots.iter().enumerate() {
                    let mark =
                        (marks.devices[row], marks.streams[row], marks.sequences[row], marks.sent_ns[row]);
                    assert_eq!(mark, (slot.device, slot.device + 7, slot.sequence, slot.due.0 + 5));
                }
                assert!(turns.iter().eq(slots.iter().filter(|slot| slot.begins || slot.ends)));
                assert!(taken == room || many.due() > now);
                assert_eq!(
                    (many.due(), many.pending(Time(1 << 18))),
                    (one.due(), one.pending(Time(1 << 18)))
                );
            }
            assert!(many.sent().eq(one.sent()) && many.begun().eq(one.begun()));
        }
    }

    #[test]
    fn a_recordings_own_gaps_are_kept() {
        let got = first(Shape { gaps: Gaps::Given([100, 0, 2500].into()), ..shape() }, 7);
        assert_eq!(got.iter().map(|slot| slot.2).collect::<Vec<_>>(), [0, 100, 100, 2600, 2700, 2700, 5200]);
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_the_spread_of_an_exponential() {
        let shape = Shape { gaps: Gaps::Poisson, ..shape() };
        let got = first(shape.clone(), 200_001);
        let gaps: Vec<f64> = got.windows(2).map(|two| (two[1].2 - two[0].2) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // The standard error of the mean is 2.2 ns here; the seed is fixed.
        assert!((mean - 1000.0).abs() < 10.0, "{mean}");
        assert!((variance.sqrt() - 1000.0).abs() < 20.0, "{}", variance.sqrt());
        let slots = Slots::new(&shape, 1);
        let due = got.iter().filter(|slot| slot.2 <= 50_000).count();
        assert_eq!(slots.ready(Time(50_000), 1000), due);
        let due = got.iter().filter(|slot| slot.2 < 1_000_000).count() as u64;
        assert_eq!(slots.pending(Time(1_000_000)), due, "not far ahead it is exact");
        assert!(slots.pending(Time(200_000_000)).abs_diff(200_000) < 2_000, "and later to be expected");
    }
}
