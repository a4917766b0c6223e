//! When the datagrams of a group are due, and which of its devices sends each.
//!
//! All devices of a group send at the same pace, evenly staggered, so the group is one sequence of slots at
//! the common pace that the devices take in turn: nothing to sort, however many devices there are.

mod flows;

use flows::Flows;
use packet::frame::{Marks, ROWS};
use protocol::fine_time::{self, FRACTION};
use protocol::pacer::{Gaps, Pacer, Step};
use protocol::time::Time;

/// How a group sends.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
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
    /// When the first datagram is due, ns.
    pub after_ns: u64,
    /// How the times between slots are spread.
    pub gaps: Gaps,
}

/// So many datagrams, and slots, that are due and not sent are gone through one by one; the rest is counted by its mean. Who
/// cannot keep up would have ever more of them to go through.
const DRAWN: usize = 65_536;
const SLOTS: u128 = 1 << 20;

/// Time between two slots of the whole group, ns.
fn slot_ns(timing: &Timing) -> f64 {
    timing.interval_ns * f64::from(timing.burst) / f64::from(timing.devices)
}

/// A datagram to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
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

/// When the datagrams of one group are due, and whose they are, from now on.
#[derive(Debug, Clone)]
pub struct Schedule {
    timing: Timing,
    pacer: Pacer,
    device: u32,
    /// Datagrams of the present slot that are already sent.
    in_burst: u32,
    /// The next sequence number of each device, over all its flows.
    sequences: Vec<u64>,
    /// `None`: all devices are awake, and for good. Whose turn it is needs no looking.
    flows: Option<Flows>,
    /// Those of a ramp that is over: to free memory is not for the packets' way.
    woken: Option<Flows>,
    /// Devices that will ever send again.
    alive: u32,
}

impl Schedule {
    /// From the start of the run.
    pub fn new(timing: &Timing, seed: u64) -> Self {
        let devices = timing.devices.max(1);
        let timing = Timing { devices, burst: timing.burst.max(1), ..timing.clone() };
        let through = timing.ramp_ns == 0 && timing.count == 0;
        let mut pacer = Pacer::new(Step(fine_time::of_ns_f64(slot_ns(&timing))), &timing.gaps, seed);
        pacer.at = fine_time::of_ns(timing.after_ns);
        let mut schedule = Self {
            pacer,
            device: 0,
            in_burst: 0,
            sequences: vec![0; devices as usize],
            flows: (!through).then(|| Flows::new(&timing)),
            woken: None,
            alive: devices,
            timing,
        };
        schedule.skip(Time::NEVER);
        schedule
    }

    /// From `at` on, before which nothing is due any more, `factor` times the rate that the group began with; the slot under way
    /// comes as much sooner or later.
    pub fn set_rate(&mut self, at: Time, factor: f64) {
        let step = fine_time::of_ns_f64(slot_ns(&self.timing) / factor);
        let at = fine_time::of_ns(at.0);
        let rest = self.pacer.at.saturating_sub(at) as f64 * (step as f64 / self.pacer.rate.0 as f64);
        self.pacer.rate = Step(step);
        self.pacer.at = at + rest as u128;
    }

    /// When the next datagram is due; [`Time::NEVER`] when there is none.
    #[inline]
    pub fn due(&self) -> Time {
        if self.alive == 0 {
            return Time::NEVER;
        }
        self.pacer.due()
    }

    /// How many datagrams are due by and with `now`, at most `most`. Exact while no flow ends or begins.
    #[inline]
    pub fn ready(&self, now: Time, most: usize) -> usize {
        if self.due() > now {
            return 0;
        }
        self.pacer.ready(
            now,
            (self.timing.burst - self.in_burst) as usize,
            (self.timing.burst as usize, most),
        )
    }

    /// Take the datagrams that are due by and with `now`, at most `most`, and write their marks, those of a stream that
    /// began at `zero` and has number `first`; how many. `turn` is told those with which a flow begins or ends.
    #[inline]
    pub fn take_all(
        &mut self,
        (now, most): (Time, usize),
        (zero, first): (u64, u32),
        marks: &mut Marks,
        mut turn: impl FnMut(&Departure),
    ) -> usize {
        let most = most.min(ROWS);
        let mut taken = 0;
        if self.flows.is_none() && self.timing.burst == 1 && self.pacer.is_even() {
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

    /// As [`Schedule::take_all`] with `most` from [`Schedule::ready`], for frames that show nothing of their marks: of one
    /// stream under way only the first and the last time are written.
    #[inline]
    pub fn take_unmarked(
        &mut self,
        (now, most): (Time, usize),
        (zero, first): (u64, u32),
        marks: &mut Marks,
        turn: impl FnMut(&Departure),
    ) -> usize {
        let constant = self.flows.is_none() && self.timing.burst == 1 && self.pacer.is_even();
        match &mut *self.sequences {
            [one] if constant && *one > 0 && (1..=ROWS).contains(&most) => {
                let last = self.pacer.at + self.pacer.rate.0 * (most as u128 - 1);
                let due = |at: u128| ((at >> FRACTION) as u64).saturating_add(zero);
                marks.sent_ns[0] = due(self.pacer.at);
                marks.sent_ns[most - 1] = due(last);
                *one += most as u64;
                self.pacer.at = last + self.pacer.rate.0;
                most
            }
            _ => self.take_all((now, most), (zero, first), marks, turn),
        }
    }

    /// As [`Schedule::take_all`], as long as nothing begins, and nothing ends or bursts: all that there is to do for most
    /// streams.
    #[inline]
    fn take_plain(&mut self, now: Time, most: usize, marks: &mut Marks) -> usize {
        let (mut at, step) = (self.pacer.at, self.pacer.rate.0);
        let rows = marks.sent_ns[..most].iter_mut().zip(&mut marks.sequences).zip(&mut marks.devices);
        let mut taken = 0;
        if let [next] = &mut *self.sequences {
            if *next > 0 {
                for ((sent, sequence), device) in rows {
                    let due = (at >> FRACTION) as u64;
                    if due > now.0 {
                        break;
                    }
                    (*sent, *sequence, *device) = (due, *next + taken as u64, 0);
                    at += step;
                    taken += 1;
                }
                *next += taken as u64;
            }
        } else {
            let mut next = self.device;
            for ((sent, sequence), device) in rows {
                let due = (at >> FRACTION) as u64;
                let Some(number) = self.sequences.get_mut(next as usize) else { break };
                if due > now.0 || *number == 0 {
                    break;
                }
                (*sent, *sequence, *device) = (due, *number, next);
                *number += 1;
                next = if next + 1 == self.timing.devices { 0 } else { next + 1 };
                at += step;
                taken += 1;
            }
            self.device = next;
        }
        self.pacer.at = at;
        taken
    }

    /// Take the next datagram. Only to be called when [`Schedule::due`] is a time.
    #[inline]
    pub fn take(&mut self) -> Departure {
        let due = self.due();
        if let Some(flows) = &mut self.flows {
            flows.wake(due);
        }
        let departure = self.step();
        if let Some(flows) = &mut self.flows {
            flows.follow(&departure);
        }
        self.pass(&departure, Time::NEVER);
        if self.flows.is_some() && self.all_woke() {
            self.woken = self.flows.take();
        }
        departure
    }

    /// Whether no device will rest any more.
    #[inline]
    fn all_woke(&self) -> bool {
        self.timing.count == 0 && self.due() >= flows::ramp_end(&self.timing)
    }

    /// The next datagram is sent; what rests is to be told.
    #[inline]
    fn step(&mut self) -> Departure {
        let (due, device) = (self.due(), self.device);
        let next = &mut self.sequences[device as usize];
        let sequence = *next;
        *next += 1;
        match &mut self.flows {
            None => Departure { device, sequence, due, begins: sequence == 0, ends: false, begun: due },
            Some(flows) => {
                let departure = flows.step(&self.timing, (device, sequence), due);
                self.alive -= u32::from(departure.ends && flows.is_over(device));
                departure
            }
        }
    }

    /// Go on to the next datagram, or at least until `end`.
    #[inline]
    fn pass(&mut self, departure: &Departure, end: Time) {
        self.in_burst += 1;
        if self.in_burst >= self.timing.burst || departure.ends {
            self.next_slot();
            self.skip(end);
        }
    }

    #[inline]
    fn next_slot(&mut self) {
        self.in_burst = 0;
        self.pacer.advance();
        self.device += 1;
        if self.device == self.timing.devices {
            self.device = 0;
        }
    }

    /// Pass over the slots of devices that do not send then, as far as they are due before `end`.
    #[inline]
    fn skip(&mut self, end: Time) {
        if self.flows.is_none() || self.alive == 0 {
            return;
        }
        let mut passed = 0;
        while let Some(flows) = &self.flows
            && flows.is_resting(self.device, self.due())
            && self.due() < end
        {
            if passed < self.timing.devices {
                self.next_slot();
                passed += 1;
                continue;
            }
            // All rest.
            let wakes = flows.since.iter().min().copied().unwrap_or(0);
            self.pacer.pass(self.timing.devices, Time(wakes));
            passed = 0;
        }
    }

    /// How many datagrams would fall due before `end`: the load that is intended but not sent yet. Costs as much as there
    /// are of them, up to a limit, however many devices there are. Beyond it, of devices that rest, how many are to be expected.
    pub fn pending(&mut self, end: Time) -> u64 {
        if self.alive == 0 || self.due() >= end {
            return 0;
        }
        if self.flows.is_none() {
            return self.due_before(end);
        }
        // Sent on trial, and taken back.
        let before = (self.pacer.clone(), self.device, self.in_burst, self.alive);
        let far = self.pacer.at.saturating_add(self.pacer.rate.0.saturating_mul(SLOTS));
        let near = end.min(fine_time::time(far));
        let mut taken = Vec::new();
        while self.due() < near && taken.len() < DRAWN && !self.all_woke() {
            taken.push((self.device, self.flows.as_ref().map(|flows| flows.state(self.device))));
            let departure = self.step();
            self.pass(&departure, near);
        }
        let rest = match self.due() >= end {
            true => 0,
            false if self.all_woke() => self.due_before(end),
            false => self.expected_before(end),
        };
        for (device, state) in taken.iter().rev() {
            self.sequences[*device as usize] -= 1;
            if let (Some(flows), Some(state)) = (&mut self.flows, state) {
                flows.restore(*device, *state);
            }
        }
        (self.pacer, self.device, self.in_burst, self.alive) = before;
        rest.saturating_add(taken.len() as u64)
    }

    /// How many datagrams fall due before `end` where no device rests.
    fn due_before(&self, end: Time) -> u64 {
        let slots = self.pacer.events_before(end);
        slots.saturating_mul(self.timing.burst.into()).saturating_sub(self.in_burst.into())
    }

    /// How many are to be expected before `end` of devices that wake one after the other, and rest between flows.
    fn expected_before(&self, end: Time) -> u64 {
        let Timing { burst, count, flows, rest_ns, devices, .. } = self.timing;
        let slots = self.pacer.events_before(end) as f64 * flows::awake_share(&self.timing, self.due(), end);
        if count == 0 {
            return (slots * f64::from(burst)) as u64;
        }
        // Turns of a device from one flow to the next: those that send, and those that it rests.
        let turn = self.pacer.rate.0.saturating_mul(devices.into()).max(1);
        let turns = fine_time::of_ns(rest_ns.saturating_add(1)).div_ceil(turn);
        let turns = turns.saturating_add(u128::from(count.div_ceil(burst.into()) - 1));
        let expected = (slots * count as f64 / turns as f64) as u64;
        if flows == 0 {
            return expected;
        }
        let sent = self.sequences.iter().fold(0, |sum: u64, sent| sum.saturating_add(*sent));
        let all = count.saturating_mul(flows.into()).saturating_mul(devices.into());
        expected.min(all.saturating_sub(sent))
    }

    /// Devices with a flow under way at `now`, which goes on from one asking to the next.
    pub fn active(&mut self, now: Time) -> u32 {
        let over = self.timing.devices - self.alive;
        match &mut self.flows {
            None => flows::devices_started(&self.timing, now),
            Some(flows) => flows.awake(&self.timing, now).saturating_sub(over),
        }
    }

    /// How many datagrams a device has sent, and how many flows it has begun.
    pub fn sent(&self, device: u32) -> Option<(u64, u32)> {
        let sent = *self.sequences.get(device as usize)?;
        let begun = match &self.flows {
            Some(flows) if self.timing.count > 0 => flows.flows_started(&self.timing, device, sent),
            _ => u32::from(sent > 0),
        };
        Some((sent, begun))
    }

    /// Bytes that it holds.
    #[cfg(test)]
    pub fn memory(&self) -> usize {
        let flows = self.flows.as_ref().or(self.woken.as_ref()).map_or(0, Flows::memory);
        size_of::<Self>() + self.sequences.capacity() * size_of::<u64>() + flows
    }
}

#[cfg(test)]
mod tests;
