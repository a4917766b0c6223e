//! What the worker reports: a sample at each boundary, and one when it leaves.

use super::{Slot, State, Worker};
use crate::endpoint::Endpoint;
use protocol::meter::{Phase, Window};
use protocol::model::Model;
use protocol::time::Time;
use run::flows::{DeviceSummaries, Flow};
use run::stalls::Stalls;
use run::{Sample, SetupError};

/// Timers that a sample looks at, at most: fewer than a millisecond's work.
const LOOKS: usize = 4096;

impl<E: Endpoint, D: Model> Worker<E, D> {
    pub(super) fn finish(&mut self, how: Result<(), SetupError>) {
        self.sample(Some(how));
    }

    /// Send the sample whose end has come.
    #[inline]
    pub(super) fn report(&mut self) {
        if self.cleanup.is_some() {
            return;
        }
        if self.now >= self.boundary {
            self.sample(None);
        }
        // the end of the load, which a stop may have brought forward, and all that a worker that had no CPU missed before
        // it: what comes later is of no interval with load
        while self.now >= self.window.drain && self.sampled < self.window.drain {
            self.sample(None);
        }
    }

    /// Whether a phase with load ends at `end`, where the present sample does: what is told then is in the result.
    fn ends_phase(&self, end: Time) -> bool {
        [self.window.measure, self.window.drain].into_iter().any(|at| self.sampled < at && at <= end)
    }

    /// What fell due before `end` was intended, whether or not there was time to send it. A device with such messages has
    /// a timer that is late, waits for its socket, or holds them back until an answer comes: no others are looked at, and
    /// of many only the first. What is missed like this is counted when it is sent, or where the phase ends.
    fn count_behind(&mut self, end: Time) {
        let mut behind = vec![[0; 2]; self.groups.len()];
        if !self.draining {
            let window = self.window;
            let mut look = |slot: &Slot<E::Conn, D>| count_overdue(slot, end, window, &mut behind);
            if self.ends_phase(end) {
                self.slots.iter().for_each(&mut look);
            } else {
                // who sent something after the end wants to go on by now at the latest
                let late = self.timers.overdue(self.now.max(self.retry_until), LOOKS);
                let slots = &self.slots;
                // those that hold messages back are looked at below
                late.map(|i| &slots[i as usize]).filter(|slot| !slot.device.holds_back()).for_each(&mut look);
                for group in &self.groups {
                    let devices = &slots[group.slots.start as usize..group.slots.end as usize];
                    if devices.first().is_some_and(|slot| slot.device.holds_back()) {
                        devices.iter().take(LOOKS).for_each(&mut look);
                    }
                }
            }
        }
        for (group, behind) in self.groups.iter_mut().zip(behind) {
            group.count_behind(behind);
        }
    }

    /// What devices waited for answers.
    fn take_stalls(&mut self, end: Time) -> Vec<Stalls> {
        let window = self.window;
        let waits = self.groups.iter_mut().map(|group| group.waits.as_mut());
        let mut stalls: Vec<Stalls> =
            waits.map(|waits| waits.map_or_else(Stalls::default, |waits| waits.take(end, window))).collect();
        if self.ends_phase(end) {
            stalls.iter_mut().for_each(|stalls| stalls.waiting = 0);
            for slot in &self.slots {
                let g = usize::from(slot.group);
                let waits = self.groups[g].waits.as_ref();
                let stalled = waits.is_some_and(|waits| slot.wait.is_stalled(end, waits.limit()));
                stalls[g].waiting += u32::from(stalled);
            }
        }
        stalls
    }

    #[cold]
    pub(super) fn sample(&mut self, last: Option<Result<(), SetupError>>) {
        let cpu = self.cpu.now();
        // a stop may have brought the phase's end forward
        let phase = self.window.phase(self.sampled);
        let until = match last {
            Some(_) => self.now.max(self.sampled),
            None => self.boundary.min(match phase {
                Phase::Warmup => self.window.measure,
                Phase::Measure => self.window.drain,
                Phase::Drain => Time::NEVER,
            }),
        };
        self.count_behind(until);
        let stalls = self.take_stalls(until);
        let flow = |slot: &Slot<E::Conn, D>| Flow {
            group: slot.group,
            device: self.plan.groups[usize::from(slot.group)].device_number(slot.index),
            tally: slot.tally,
        };
        let devices = last.is_some().then(|| {
            let flows: Vec<Flow> = self.slots.iter().map(flow).collect();
            Box::new(flows) as Box<dyn DeviceSummaries>
        });
        let mut addresses = Vec::new();
        for (g, group) in self.groups.iter_mut().enumerate() {
            group.reach.take(g, &mut addresses);
        }
        let sample = Sample {
            worker: self.number,
            from: self.sampled,
            until,
            phase,
            groups: self.groups.iter_mut().map(|group| group.take_meter(until, self.window)).collect(),
            active: self.groups.iter().map(|g| g.active).collect(),
            stalls,
            ran: cpu.ran.saturating_sub(self.cpu_then.ran),
            waited: cpu.waited.saturating_sub(self.cpu_then.waited),
            took: self.now.since(self.wall_then),
            pauses: None,
            addresses,
            examples: std::mem::take(&mut self.examples),
            ports: self.endpoint.interfaces(),
            elements: Vec::new(),
            last,
            devices,
        };
        self.sampled = until;
        self.wall_then = self.now;
        self.cpu_then = cpu;
        self.boundary = self.control.boundary(until);
        // the collector may be gone already: then nobody wants it
        let _nobody = self.samples.send(sample);
    }
}

/// Add what device `slot` has yet to send of what fell due before `end`, by phase.
fn count_overdue<C, D: Model>(slot: &Slot<C, D>, end: Time, window: Window, behind: &mut [[u64; 2]]) {
    if slot.state != State::Active {
        return;
    }
    let warmup = slot.device.overdue(end.min(window.measure));
    let all = slot.device.overdue(end.min(window.drain));
    let [of_warmup, of_measure] = &mut behind[usize::from(slot.group)];
    *of_warmup += warmup;
    *of_measure += all - warmup;
}
