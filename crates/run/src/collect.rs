//! From samples to the series and the trial's result. Sums counts, merges histograms, judges validity.

use crate::control::Control;
use crate::flows::Flows;
use crate::graph::PortFacts;
use crate::group_sum::{GroupSum, histograms_by_name};
use crate::interfaces::{self, Interfaces};
use crate::pauses::Pauses;
use crate::plan::Plan;
use crate::result::{GroupPoint, PhaseLengths, SeriesPoint, TrialResult, WorkerUsage, by_kind, counts};
use crate::sample::{ElementCounts, Sample};
use crate::setup_error::SetupError;
use crate::validity::{self, Evidence};
use protocol::meter::{Phase, Tally};
use protocol::time::Time;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What does not come from samples.
#[derive(Debug, Clone)]
pub struct TrialHeader {
    /// The run's id.
    pub run: String,
    /// `sockets` or `dpdk`.
    pub transport: &'static str,
    /// When it began, UTC, RFC 3339.
    pub started: String,
    /// Why it ended before its time, if it did.
    pub stopped: Option<&'static str>,
    /// What the transport's ports are.
    pub ports: Vec<PortFacts>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Cpu {
    ran: u64,
    waited: u64,
    took: u64,
    pauses: Option<(Pauses, Pauses)>,
}

impl Cpu {
    fn add(&mut self, s: &Sample) {
        self.ran += s.ran;
        self.waited += s.waited;
        self.took += s.took;
        if let Some((pauses, long_turns)) = &s.pauses {
            let sums = self.pauses.get_or_insert_default();
            sums.0.add(pauses);
            sums.1.add(long_turns);
        }
    }

    fn usage(&self, worker: usize, core: u16) -> WorkerUsage {
        let share = |part: u64| if self.took == 0 { 0.0 } else { part as f64 / self.took as f64 };
        let (pauses, long_turns) = self.pauses.unzip();
        WorkerUsage {
            worker,
            core,
            cpu: share(self.ran).min(1.0),
            starved: share(self.waited).min(1.0),
            pauses,
            long_turns,
        }
    }
}

/// Gathers the samples of all workers.
pub struct Collector {
    plan: Arc<Plan>,
    control: Arc<Control>,
    cores: Vec<u16>,
    groups: Vec<GroupSum>,
    cpu: Vec<Cpu>,
    measured_for: u64,
    waiting: BTreeMap<Time, Vec<Sample>>,
    left: Vec<bool>,
    /// How far each worker has reported.
    ends: Vec<Time>,
    series: Vec<SeriesPoint>,
    /// How far the series goes.
    shown: Time,
    flows: Flows,
    error: Option<SetupError>,
    interfaces_first: Interfaces,
    interfaces_last: Interfaces,
    ports: Interfaces,
    /// What each worker's stack on a port counted.
    stacks: BTreeMap<String, BTreeMap<usize, BTreeMap<String, u64>>>,
    ports_then: Interfaces,
    elements: BTreeMap<String, ElementCounts>,
}

impl Collector {
    /// For a plan that workers on `cores` are about to carry.
    pub fn new(plan: Arc<Plan>, control: Arc<Control>, cores: Vec<u16>) -> Self {
        let groups = plan.groups.iter().map(|group| GroupSum::new(group, cores.len())).collect();
        let seen = interfaces::read().unwrap_or_default();
        Self {
            groups,
            cpu: vec![Cpu::default(); cores.len()],
            measured_for: 0,
            waiting: BTreeMap::new(),
            left: vec![false; cores.len()],
            ends: vec![Time::ZERO; cores.len()],
            series: Vec::new(),
            shown: Time::ZERO,
            flows: Flows::default(),
            error: None,
            interfaces_first: seen.clone(),
            interfaces_last: seen,
            ports: Interfaces::new(),
            stacks: BTreeMap::new(),
            ports_then: Interfaces::new(),
            elements: BTreeMap::new(),
            plan,
            control,
            cores,
        }
    }

    /// Take a sample. Gives the points of the series that it completes: for each interval that all workers have
    /// reported now, or have left before its end.
    pub fn take(&mut self, mut sample: Sample) -> &[SeriesPoint] {
        for (sum, tallies) in self.groups.iter_mut().zip(&sample.groups) {
            for tally in tallies {
                sum.total += &tally.counts;
                if let Some(causes) = tally.causes() {
                    sum.causes.merge(causes);
                }
                sum.total_own.iter_mut().zip(&tally.own).for_each(|(sum, more)| *sum += more);
            }
            sum.measured.merge(&tallies[Phase::Measure as usize]);
            if sample.phase == Phase::Measure {
                tallies.iter().for_each(|t| sum.happened += &t.counts);
            }
        }
        for (sum, stalls) in self.groups.iter_mut().zip(&sample.stalls) {
            let stalled = sum.stalled.get_or_insert_default();
            stalled.time += stalls.time;
            stalled.longest = stalled.longest.max(stalls.longest);
            stalled.waited += stalls.waited;
            stalled.answers.add(&stalls.answers);
            if sample.phase == Phase::Measure {
                sum.waiting[sample.worker] = stalls.waiting;
            }
        }
        if sample.phase == Phase::Measure {
            self.cpu[sample.worker].add(&sample);
            self.measured_for = self.measured_for.max(sample.until.0);
        }
        for example in sample.examples.drain(..) {
            let name = &self.plan.groups[example.group].name;
            // a server's own words, on their way to a terminal
            let text = self.plan.secrets.hide_cut(&example.text);
            let text = profile::printable(&text).into_owned();
            let cause = example.cause;
            tracing::warn!(group = %name, kind = cause.kind.name(), cause = %cause.detail, "{text}");
            self.groups[example.group].keep_example(cause, text);
        }
        for tally in sample.addresses.drain(..) {
            self.groups[tally.group].add_address(tally);
        }
        self.take_ports(sample.worker, std::mem::take(&mut sample.ports));
        for element in sample.elements.drain(..) {
            self.elements.insert(element.name.clone(), element);
        }
        if let Some(devices) = sample.devices.take() {
            self.flows.add(devices);
        }
        self.ends[sample.worker] = sample.until;
        if let Some(how) = sample.last.take() {
            self.left[sample.worker] = true;
            if let Err(e) = how {
                self.error.get_or_insert(e);
            }
        }
        self.waiting.entry(sample.until).or_default().push(sample);
        let before = self.series.len();
        self.close_intervals();
        &self.series[before..]
    }

    /// Each worker tells of the whole port, and of its own stack on it: these are added up.
    fn take_ports(&mut self, worker: usize, ports: Interfaces) {
        for (name, mut port) in ports {
            let stacks = self.stacks.entry(name.clone()).or_default();
            stacks.insert(worker, std::mem::take(&mut port.stack));
            for (what, n) in stacks.values().flatten() {
                *port.stack.entry(what.clone()).or_default() += n;
            }
            self.ports.insert(name, port);
        }
    }

    /// Make points of the intervals that are whole.
    fn close_intervals(&mut self) {
        while let Some(until) = self.next_boundary() {
            let rest = self.waiting.split_off(&Time(until.0 + 1));
            let samples =
                std::mem::replace(&mut self.waiting, rest).into_values().flatten().collect::<Vec<_>>();
            let point = self.point(until, &samples);
            self.series.push(point);
            self.shown = until;
        }
    }

    /// The end of the next interval that is whole. What a worker reports when it leaves, somewhere in an interval
    /// of the others, goes with that interval.
    fn next_boundary(&self) -> Option<Time> {
        let whole = self.left.iter().zip(&self.ends).filter(|(left, _)| !*left).map(|(_, end)| *end).min();
        let mut ends = self.waiting.keys().copied().filter(|end| whole.is_none_or(|whole| *end <= whole));
        let is_boundary = |end: &Time| self.waiting[end].iter().any(|sample| !self.is_last(sample));
        ends.find(is_boundary)
            .or_else(|| self.waiting.keys().next_back().copied().filter(|_| whole.is_none()))
    }

    fn is_last(&self, sample: &Sample) -> bool {
        self.left[sample.worker] && self.ends[sample.worker] == sample.until
    }

    /// Whether every worker has left.
    pub fn is_done(&self) -> bool {
        self.left.iter().all(|l| *l)
    }

    /// What `samples` say of the interval that ends at `until`.
    fn point(&mut self, until: Time, samples: &[Sample]) -> SeriesPoint {
        let mut groups = BTreeMap::new();
        for (g, plan) in self.plan.groups.iter().enumerate() {
            let mut all = Tally::of(plan.about);
            let mut active = 0;
            let mut waiting = None;
            for sample in samples {
                if let Some(stalls) = sample.stalls.get(g).filter(|_| plan.waits) {
                    *waiting.get_or_insert(0) += stalls.waiting;
                }
                sample.groups[g].iter().for_each(|t| all.merge(t));
                active += sample.active[g];
            }
            if self.control.window().phase(self.shown) == Phase::Measure {
                let (points, busy) = &mut self.groups[g].points;
                *points += 1;
                *busy += u32::from(active >= plan.devices);
                self.groups[g].add_interval(plan, (self.shown, until), &all.counts);
            }
            let point = GroupPoint {
                counts: counts(&all.counts, &all.own, plan.about),
                causes: all.causes().map(by_kind).unwrap_or_default(),
                devices_active: active,
                waiting,
                delays: histograms_by_name(plan.about.delays, &all.delays),
                lateness: (&all.lateness).into(),
            };
            groups.insert(plan.name.clone(), point);
        }
        let mut cpu: BTreeMap<usize, Cpu> = BTreeMap::new();
        samples.iter().for_each(|s| cpu.entry(s.worker).or_default().add(s));
        let now = interfaces::read().unwrap_or_default();
        let mut moved = interfaces::between(&self.interfaces_last, &now);
        self.interfaces_last = now;
        moved.extend(interfaces::between(&self.ports_then, &self.ports));
        self.ports_then = self.ports.clone();
        let seconds = |t: Time| t.0 as f64 / 1e9;
        SeriesPoint {
            t: seconds(until),
            dt: until.since(self.shown) as f64 / 1e9,
            phase: self.control.window().phase(self.shown),
            elapsed: seconds(until),
            left: self.control.end().since(until) as f64 / 1e9,
            groups,
            workers: cpu.iter().map(|(w, c)| c.usage(*w, self.cores[*w])).collect(),
            interfaces: moved,
        }
    }

    /// The trial's result, and each device's summary. Call when all workers have left.
    pub fn finish(mut self, header: TrialHeader) -> (TrialResult, Flows) {
        // from one that ended without a word nothing more will come
        let lost: Vec<usize> = (0..self.left.len()).filter(|worker| !self.left[*worker]).collect();
        self.left.fill(true);
        self.close_intervals();
        let window = self.control.window();
        let measured_ns = self.measured_for.saturating_sub(window.measure.0);
        let end = self.ends.iter().max().copied().unwrap_or_default();
        let phases = PhaseLengths {
            warmup: window.measure.0 as f64 / 1e9,
            measure: measured_ns as f64 / 1e9,
            drain: end.since(window.drain) as f64 / 1e9,
        };
        let workers: Vec<WorkerUsage> =
            self.cpu.iter().enumerate().map(|(w, c)| c.usage(w, self.cores[w])).collect();
        let planned = self.plan.profile.phases.measure.ns();
        // a load that has a total ends with it
        let has_total = !self.plan.groups.is_empty() && self.plan.groups.iter().all(|g| g.total.is_some());
        let done = has_total && header.stopped.is_none() && end < window.drain;
        let cut = !done && measured_ns.saturating_add(planned / 100) < planned;
        let validity = validity::judge(&Evidence {
            plan: &self.plan,
            measured_ns,
            groups: &self.groups,
            workers: &workers,
            ports: &self.ports,
            elements: &self.elements,
            error: self.error.as_ref(),
            lost: lost.iter().map(|worker| (*worker, self.ends[*worker])).collect(),
            done,
            cut: cut.then_some((phases.measure, planned as f64 / 1e9)),
        });
        let groups =
            self.groups.iter().zip(&self.plan.groups).map(|(sum, plan)| sum.result(plan, measured_ns));
        let mut moved = interfaces::between(&self.interfaces_first, &interfaces::read().unwrap_or_default());
        moved.extend(self.ports.clone());
        let result = TrialResult {
            run: header.run,
            profile: self.plan.secrets.redacted(serde_json::to_value(&self.plan.profile).unwrap_or_default()),
            transport: header.transport,
            version: env!("CARGO_PKG_VERSION"),
            started: header.started,
            phases,
            stopped: header.stopped.or(self.error.as_ref().map(|_| "failed")),
            validity,
            groups: groups.collect(),
            workers,
            interfaces: moved,
            ports: header.ports,
            elements: self.elements.values().cloned().collect(),
            series: self.series,
            error: self.error,
            changes: Vec::new(),
            paused: Vec::new(),
            rates: Vec::new(),
        };
        (result, self.flows)
    }
}

#[cfg(test)]
mod tests;
