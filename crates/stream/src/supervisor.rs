//! Watches a running graph and reports on it, beside the packets' way.

use crate::report::{Report, RunContext};
use crate::summaries::Summaries;
use capture::Capture;
use dataplane::impaired::Impaired;
use dataplane::interfaces::interfaces;
use dataplane::link_watch::Watch;
use dataplane::observe::{counts, pauses};
use dpdk::Port;
use engine::{ElementStats, Engine};
use protocol::meter::{Failure, Phase, Tally, Window};
use protocol::time::Time;
use run::cpu::{CpuTime, ThreadCpu};
use run::flows::DeviceSummaries;
use run::interfaces::Interfaces;
use run::pauses::Pauses;
use run::plan::Plan;
use run::{FailureExample, Sample, SetupError};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// How often the supervisor looks.
const TURN: Duration = Duration::from_millis(1);
/// How long elements may take to report: many of their ticks.
const PATIENCE: Duration = Duration::from_millis(500);
/// While draining: how often to look whether all came.
const LOOK: Duration = Duration::from_millis(20);
/// How often to look whether all ports are there.
const WATCH: Duration = Duration::from_millis(50);

/// What became of a group's datagrams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Balance {
    /// Sent, by the phase they were meant for.
    sent: [u64; 3],
    /// Came back, by the phase they were meant for.
    delivered: [u64; 3],
    /// Failed for a reason that is known, by the phase in which that was seen.
    failed: [u64; 3],
    /// Of these, what ICMP said.
    refused: u64,
    unreachable: u64,
}

impl Balance {
    fn add(&mut self, phases: &[Tally; 3]) {
        for (phase, Tally { counts, .. }) in phases.iter().enumerate() {
            self.sent[phase] += counts.messages_sent;
            self.delivered[phase] += counts.messages_delivered;
            self.failed[phase] += counts.failures.iter().sum::<u64>();
            self.refused += counts.failures[Failure::Refused as usize];
            self.unreachable += counts.failures[Failure::Unreachable as usize];
        }
    }

    /// Those that neither came back nor failed, by the phase they were meant for. What failed is as a rule of the phase in
    /// which that was seen; what is more than was lost in it is of another.
    fn unanswered(&self) -> [u64; 3] {
        let mut missing = [0, 1, 2].map(|phase| self.sent[phase].saturating_sub(self.delivered[phase]));
        let mut over = 0;
        for (missing, failed) in missing.iter_mut().zip(self.failed) {
            over += failed.saturating_sub(*missing);
            *missing = missing.saturating_sub(failed);
        }
        for missing in &mut missing {
            let taken = over.min(*missing);
            *missing -= taken;
            over -= taken;
        }
        missing
    }

    /// Whether nothing that was sent is on its way. Frames that go one way are waited for as answers are, for some of them may
    /// be in a queue, or a delay, when the load ends. Where none has come by then nobody receives them here.
    fn is_settled(&self, echo: bool) -> bool {
        self.unanswered() == [0; 3] || (!echo && self.delivered == [0; 3])
    }
}

/// One run's supervisor.
pub(super) struct Supervisor {
    plan: Arc<Plan>,
    run: Arc<RunContext>,
    /// Gone once stopped.
    engine: Option<Engine>,
    ports: Vec<(String, Port)>,
    impaired: Vec<Impaired>,
    /// Files that elements write packets to: they end when the elements have.
    captures: Vec<Capture>,
    watches: Vec<Watch>,
    /// A port that was lost, which ended the run.
    lost: Option<SetupError>,
    /// The worker of each element that reports.
    workers_of: Vec<usize>,
    reports: Receiver<Report>,
    samples: Sender<Sample>,
    /// Tallies since the last sample, by worker and group.
    tallies: Vec<Vec<[Tally; 3]>>,
    /// Devices with a flow under way, by reporting element and group.
    active: Vec<Vec<u32>>,
    /// What elements kept of each stream, once they are gone.
    summaries: Summaries,
    /// What became of datagrams since the start, by group.
    balance: Vec<Balance>,
    /// Of each worker's thread.
    cpu: Vec<ThreadCpu>,
    cpu_then: Vec<CpuTime>,
    /// Pauses and long turns of each worker, up to the last sample.
    pauses_then: Vec<(Pauses, Pauses)>,
    wall_then: Instant,
    /// The ports' counters before the run.
    ports_before: Interfaces,
    sampled: Time,
    last_elements: Vec<ElementStats>,
}

/// Whether each datagram of a group is to come back.
fn echoes(plan: &Plan, group: usize) -> bool {
    plan.profile.groups[group].model.stateless().is_some_and(|stream| stream.echo)
}

fn none(plan: &Plan) -> Vec<[Tally; 3]> {
    plan.groups.iter().map(|group| [(); 3].map(|()| Tally::of(group.about))).collect()
}

impl Supervisor {
    #[expect(clippy::too_many_arguments, reason = "made in one place, from what was just built")]
    pub fn new(
        plan: Arc<Plan>,
        run: Arc<RunContext>,
        engine: Engine,
        ports: Vec<(String, Port)>,
        (impaired, captures): (Vec<Impaired>, Vec<Capture>),
        reporters: &[String],
        reports: Receiver<Report>,
        samples: Sender<Sample>,
        workers: usize,
    ) -> Self {
        let elements = engine.elements();
        let before = interfaces(&ports, &elements);
        let worker = |name: &String| elements.iter().find(|e| e.name == *name).map_or(0, |e| e.worker);
        Self {
            workers_of: reporters.iter().map(worker).collect(),
            tallies: (0..workers).map(|_| none(&plan)).collect(),
            active: vec![vec![0; plan.groups.len()]; reporters.len()],
            summaries: Summaries::new(
                plan.groups.iter().enumerate().map(|(i, group)| (group.devices, echoes(&plan, i))),
            ),
            balance: vec![Balance::default(); plan.groups.len()],
            cpu: engine.workers().iter().map(|worker| ThreadCpu::of(worker.thread)).collect(),
            cpu_then: vec![CpuTime::default(); workers],
            pauses_then: vec![Default::default(); workers],
            wall_then: Instant::now(),
            ports_before: before,
            sampled: Time::ZERO,
            last_elements: Vec::new(),
            plan,
            run,
            engine: Some(engine),
            watches: ports.iter().map(|(_, port)| Watch::new(port)).collect(),
            lost: None,
            ports,
            impaired,
            captures,
            reports,
            samples,
        }
    }

    /// Watch until the run is over.
    pub fn run(mut self) {
        let run = Arc::clone(&self.run);
        let control = &run.control;
        while control.now().is_none() && !control.aborted() {
            std::thread::sleep(TURN);
        }
        self.impaired.iter().for_each(Impaired::begin);
        self.cpu_then = self.cpu();
        self.pauses();
        self.wall_then = Instant::now();
        let mut boundary = control.boundary(Time::ZERO);
        let mut looked = Instant::now();
        let mut watched = Instant::now();
        while !control.aborted() {
            std::thread::sleep(TURN);
            if self.lost.is_none() && watched.elapsed() >= WATCH {
                watched = Instant::now();
                self.watch();
            }
            let now = control.now().unwrap_or_default();
            if control.is_paused() {
                continue;
            }
            let window = control.window();
            boundary = boundary.min(self.end_of_phase(window));
            if now >= boundary {
                self.gather();
                self.sample(boundary, false);
                boundary = control.boundary(boundary);
            }
            // Intervals with load that a supervisor without CPU missed: the drain's last sample has no part of them.
            while now >= window.drain && self.sampled < window.drain {
                boundary = boundary.min(self.end_of_phase(window));
                self.sample(boundary, false);
                boundary = control.boundary(boundary);
            }
            // Of a port that was lost nothing comes back.
            let patience = self.lost.as_ref().map(|_| window.drain + LOOK);
            if now >= patience.unwrap_or(Time::NEVER).min(control.end()) {
                break;
            }
            if now >= window.drain && looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.gather();
                if self.all_came() {
                    break;
                }
            }
        }
        self.finish();
    }

    /// The end of the phase that the present sample is of, which a stop may have brought forward.
    fn end_of_phase(&self, window: Window) -> Time {
        match window.phase(self.sampled) {
            Phase::Warmup => window.measure,
            Phase::Measure => window.drain,
            Phase::Drain => Time::NEVER,
        }
    }

    /// When a port was lost, the load ends.
    fn watch(&mut self) {
        // Without groups nothing is measured here: a reflector waits for who comes next.
        let patient = self.plan.groups.is_empty();
        let found =
            self.watches.iter_mut().enumerate().find_map(|(i, watch)| Some((i, watch.loss_reason(patient)?)));
        let Some((index, what)) = found else { return };
        let (name, port) = &self.ports[index];
        let lost = SetupError::new(
            "ND-91-01",
            format!("transport.dpdk.ports[{index}]"),
            format!("port {name} ({}) was lost: {what}", port.device()),
            "See what ended it; what was measured until then is kept",
        );
        tracing::error!("{lost}");
        self.lost = Some(lost);
        self.run.control.stop();
    }

    /// Ask all elements what they did, and add it up.
    fn gather(&mut self) {
        let asked = self.run.ask();
        let begun = Instant::now();
        let mut missing = self.workers_of.len();
        while missing > 0 {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            let Ok(report) = self.reports.recv_timeout(left) else {
                tracing::warn!(missing, "elements did not report in time");
                return;
            };
            missing -= usize::from(report.asked == asked);
            self.add(report);
        }
    }

    fn add(&mut self, report: Report) {
        let worker = self.workers_of[report.element];
        for (group, tallies) in report.groups {
            self.balance[group].add(&tallies);
            self.tallies[worker][group]
                .iter_mut()
                .zip(&tallies)
                .for_each(|(mine, theirs)| mine.merge(theirs));
        }
        for (group, active) in report.active {
            self.active[report.element][group] = active;
        }
        if let Some(kept) = report.kept {
            self.summaries.add(kept);
        }
    }

    fn echoes(&self, group: usize) -> bool {
        echoes(&self.plan, group)
    }

    /// Whether nothing is to be waited for.
    fn all_came(&self) -> bool {
        self.balance.iter().enumerate().all(|(group, balance)| balance.is_settled(self.echoes(group)))
    }

    fn finish(mut self) {
        self.run.end();
        if let Some(engine) = self.engine.take() {
            // The threads are gone afterwards, so this is the last chance to ask the kernel about them.
            let cpu = self.cpu();
            let pauses = pauses_since(&engine, &mut self.pauses_then);
            self.last_elements = engine.stop();
            for capture in &mut self.captures {
                capture.stop();
            }
            while let Ok(report) = self.reports.try_recv() {
                self.add(report);
            }
            self.count_lost();
            let now = self.run.control.now().unwrap_or_default();
            self.send(now.max(self.sampled), true, cpu, pauses);
        }
    }

    /// What did not come back in time is unanswered.
    fn count_lost(&mut self) {
        for group in 0..self.balance.len() {
            if !self.echoes(group) {
                continue;
            }
            for (phase, lost) in self.balance[group].unanswered().into_iter().enumerate() {
                self.tallies[0][group][phase].counts.failures[Failure::Unanswered as usize] += lost;
            }
        }
    }

    /// Devices of each group with a flow under way, of those that a worker drives.
    fn active(&self, worker: usize) -> Vec<u32> {
        let mut sum = vec![0; self.plan.groups.len()];
        let mine = self.active.iter().zip(&self.workers_of).filter(|(_, of)| **of == worker);
        mine.flat_map(|(active, _)| active.iter().enumerate()).for_each(|(group, n)| sum[group] += n);
        sum
    }

    fn sample(&mut self, until: Time, last: bool) {
        let (cpu, pauses) = (self.cpu(), self.pauses());
        self.send(until, last, cpu, pauses);
    }

    fn send(&mut self, until: Time, last: bool, cpu: Vec<CpuTime>, pauses: Vec<(Pauses, Pauses)>) {
        let phase = self.run.control.window().phase(self.sampled);
        let took = u64::try_from(self.wall_then.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let elements = self.engine.as_ref().map_or_else(|| self.last_elements.clone(), Engine::elements);
        let mut devices =
            last.then(|| Box::new(std::mem::take(&mut self.summaries)) as Box<dyn DeviceSummaries>);
        let mut ports = run::interfaces::between(&self.ports_before, &interfaces(&self.ports, &elements));
        let mut examples = if last { self.examples() } else { Vec::new() };
        for (worker, cpu) in cpu.iter().enumerate() {
            let then = self.cpu_then.get(worker).copied().unwrap_or_default();
            let mine = |e: &&ElementStats| e.worker == worker;
            let sample = Sample {
                worker,
                from: self.sampled,
                until,
                phase,
                groups: std::mem::replace(&mut self.tallies[worker], none(&self.plan)),
                active: self.active(worker),
                stalls: Vec::new(),
                ran: cpu.ran.saturating_sub(then.ran),
                waited: cpu.waited.saturating_sub(then.waited),
                took,
                pauses: pauses.get(worker).copied(),
                addresses: Vec::new(),
                // All that belongs to no worker goes with the first.
                examples: std::mem::take(&mut examples),
                ports: std::mem::take(&mut ports),
                elements: elements.iter().filter(mine).map(counts).collect(),
                last: last.then(|| self.lost.clone().map_or(Ok(()), Err)),
                devices: devices.take(),
            };
            // The collector may be gone already: then nobody wants it.
            let _nobody = self.samples.send(sample);
        }
        self.sampled = until;
        self.wall_then = Instant::now();
        self.cpu_then = cpu;
    }

    fn examples(&self) -> Vec<FailureExample> {
        let of = |(group, balance): (usize, &Balance)| {
            let lost = if self.echoes(group) { balance.unanswered().iter().sum() } else { 0 };
            let told = [
                (Failure::Unanswered, lost, "did not come back"),
                (Failure::Refused, balance.refused, "were answered by ICMP: nobody listens at the port"),
                (Failure::Unreachable, balance.unreachable, "were answered by ICMP: they did not get there"),
            ];
            told.into_iter().filter(|(_, count, _)| *count > 0).map(move |(kind, count, what)| {
                FailureExample { group, cause: kind.into(), text: format!("{count} datagrams {what}") }
            })
        };
        self.balance.iter().enumerate().flat_map(of).collect()
    }

    fn pauses(&mut self) -> Vec<(Pauses, Pauses)> {
        self.engine.as_ref().map_or_else(Vec::new, |engine| pauses_since(engine, &mut self.pauses_then))
    }

    fn cpu(&self) -> Vec<CpuTime> {
        self.cpu.iter().map(ThreadCpu::now).collect()
    }
}

/// Each worker's pauses and long turns since `then`, which becomes now.
fn pauses_since(engine: &Engine, then: &mut Vec<(Pauses, Pauses)>) -> Vec<(Pauses, Pauses)> {
    let now: Vec<(Pauses, Pauses)> = engine.workers().iter().map(pauses).collect();
    let both = now.iter().zip(then.iter()).zip(engine.take_longest());
    let since = both
        .map(|((now, then), longest)| (now.0.since(&then.0, longest.0), now.1.since(&then.1, longest.1)))
        .collect();
    *then = now;
    since
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_datagram_is_delivered_failed_or_unanswered() {
        let unanswered =
            |sent, delivered, failed| Balance { sent, delivered, failed, ..Balance::default() }.unanswered();
        assert_eq!(unanswered([10, 100, 0], [10, 100, 0], [0; 3]), [0; 3]);
        assert_eq!(unanswered([10, 100, 0], [7, 90, 0], [1, 4, 0]), [2, 6, 0]);
        // what was refused just after the warm-up had been sent just before its end
        assert_eq!(unanswered([10, 100, 0], [0, 100, 0], [9, 1, 0]), [0; 3]);
        assert_eq!(unanswered([10, 100, 0], [8, 0, 0], [5, 90, 0]), [0, 7, 0]);
        // more errors than datagrams: somebody makes them up
        assert_eq!(unanswered([0, 5, 0], [0; 3], [0, 50, 0]), [0; 3]);
    }
    #[test]
    fn what_goes_one_way_is_waited_for_where_some_of_it_came() {
        let settled =
            |echo, sent, delivered| Balance { sent, delivered, ..Balance::default() }.is_settled(echo);
        let came = [[10, 100, 0], [10, 99, 0], [0; 3]];
        assert_eq!(came.map(|delivered| settled(true, [10, 100, 0], delivered)), [true, false, false]);
        assert_eq!(came.map(|delivered| settled(false, [10, 100, 0], delivered)), [true, false, true]);
    }
}
