//! What the worker reports: a sample at each boundary, and one when it leaves.

use super::{Slot, State, Worker};
use crate::endpoint::Endpoint;
use protocol::meter::Phase;
use protocol::model::Model;
use protocol::time::Time;
use run::flows::{DeviceSummaries, Flow};
use run::{Sample, SetupError};

impl<E: Endpoint, D: Model> Worker<E, D> {
    pub(super) fn leave(mut self, how: Result<(), SetupError>) {
        self.sample(Some(how));
    }

    /// What fell due before `end` was intended, whether or not there was time to send it; and who has been waiting
    /// too long then.
    fn survey(&mut self, end: Time) {
        let (measure, drain) = (end.min(self.window.measure), end.min(self.window.drain));
        let mut behind = vec![[0; 2]; self.groups.len()];
        for slot in self.slots.iter().filter(|slot| slot.state == State::Active) {
            let (warmup, all) = (slot.device.behind(measure), slot.device.behind(drain));
            let [of_warmup, of_measure] = &mut behind[usize::from(slot.group)];
            *of_warmup += warmup;
            *of_measure += all - warmup;
            let group = &mut self.groups[usize::from(slot.group)];
            group.stalls.waiting += u32::from(slot.wait.is_stalled(end, group.stall));
        }
        for (group, behind) in self.groups.iter_mut().zip(behind) {
            group.count_behind(behind);
        }
    }

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
        self.survey(until);
        let flow =
            |slot: &Slot<E::Conn, D>| Flow { group: slot.group, device: slot.index, tally: slot.tally };
        let devices = last.is_some().then(|| {
            let flows: Vec<Flow> = self.slots.iter().map(flow).collect();
            Box::new(flows) as Box<dyn DeviceSummaries>
        });
        let sample = Sample {
            worker: self.number,
            from: self.sampled,
            until,
            phase,
            groups: self.groups.iter_mut().map(|group| group.take_meter(until, self.window)).collect(),
            active: self.groups.iter().map(|g| g.active).collect(),
            stalls: self.groups.iter_mut().map(|g| std::mem::take(&mut g.stalls)).collect(),
            ran: cpu.ran.saturating_sub(self.cpu_then.ran),
            waited: cpu.waited.saturating_sub(self.cpu_then.waited),
            took: self.now.since(self.wall_then),
            complaints: std::mem::take(&mut self.complaints),
            ports: Default::default(),
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
