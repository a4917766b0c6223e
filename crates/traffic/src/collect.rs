//! From samples to the series and the trial's result. Sums counts, merges histograms, judges validity.

use crate::dpdk::observe::PortFacts;
use crate::interfaces::{self, Interfaces};
use crate::order;
use crate::plan::{GroupPlan, Plan};
use crate::result::{
    Distribution, Failures, GroupPoint, GroupResult, PhaseLengths, Point, Rates, Reason, StallResult,
    TrialResult, Validity, WorkerPoint, counts, indices,
};
use crate::stalls::Stalls;
use crate::transport::{Control, ElementCounts, Sample, Unready};
use hdrhistogram::Histogram;
use protocol::describe::Delay;
use protocol::meter::{Counts, DeviceTally, Failure, Phase, Tally};
use protocol::time::Time;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What one device delivered, as `run.flows` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Number of the group in the plan.
    pub group: u16,
    /// Number of the device in the group.
    pub device: u32,
    /// Its summary.
    pub tally: DeviceTally,
}

/// What does not come from samples.
#[derive(Debug, Clone)]
pub struct Header {
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
}

impl Cpu {
    fn add(&mut self, s: &Sample) {
        self.ran += s.ran;
        self.waited += s.waited;
        self.took += s.took;
    }

    fn point(&self, worker: usize, core: u16) -> WorkerPoint {
        let share = |part: u64| if self.took == 0 { 0.0 } else { part as f64 / self.took as f64 };
        WorkerPoint { worker, core, cpu: share(self.ran).min(1.0), starved: share(self.waited).min(1.0) }
    }
}

/// One group so far.
struct GroupSum {
    /// Over all phases.
    total: Counts,
    /// The same of what the model counts of its own.
    total_own: Box<[u64]>,
    /// Meant for the measure phase; failures: happened in it.
    measured: Tally,
    /// Happened in the measure phase.
    happened: Counts,
    examples: [Option<String>; Failure::ALL.len()],
    /// Time in stalls and the longest wait; none where the transport does not tell.
    stalled: Option<Stalls>,
    /// Points of the measure phase, and those in which every device had a flow under way.
    points: (u32, u32),
    /// Devices of each worker that were stalled when the measure phase ended.
    waiting: Vec<u32>,
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
    series: Vec<Point>,
    /// How far the series goes.
    shown: Time,
    flows: Vec<Flow>,
    error: Option<Unready>,
    interfaces_first: Interfaces,
    interfaces_last: Interfaces,
    ports: Interfaces,
    ports_then: Interfaces,
    elements: BTreeMap<String, ElementCounts>,
}

impl Collector {
    /// For a plan that workers on `cores` are about to carry.
    pub fn new(plan: Arc<Plan>, control: Arc<Control>, cores: Vec<u16>) -> Self {
        let groups = plan
            .groups
            .iter()
            .map(|g| GroupSum {
                total: Counts::default(),
                measured: Tally::of(g.about),
                total_own: vec![0; g.about.counters.len()].into(),
                happened: Counts::default(),
                examples: Default::default(),
                stalled: None,
                points: (0, 0),
                waiting: vec![0; cores.len()],
            })
            .collect();
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
            flows: Vec::new(),
            error: None,
            interfaces_first: seen.clone(),
            interfaces_last: seen,
            ports: Interfaces::new(),
            ports_then: Interfaces::new(),
            elements: BTreeMap::new(),
            plan,
            control,
            cores,
        }
    }

    /// Take a sample. Gives the points of the series that it completes: for each interval that all workers have
    /// reported now, or have left before its end.
    pub fn take(&mut self, mut sample: Sample) -> &[Point] {
        for (sum, tallies) in self.groups.iter_mut().zip(&sample.groups) {
            for tally in tallies {
                sum.total += &tally.counts;
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
            if sample.phase == Phase::Measure {
                sum.waiting[sample.worker] = stalls.waiting;
            }
        }
        if sample.phase == Phase::Measure {
            self.cpu[sample.worker].add(&sample);
            self.measured_for = self.measured_for.max(sample.until.0);
        }
        for complaint in sample.complaints.drain(..) {
            let name = &self.plan.groups[complaint.group].name;
            // a server's own words, on their way to a terminal
            let text = profile::printable(&self.plan.secrets.hide(complaint.text)).into_owned();
            tracing::warn!(group = %name, kind = complaint.kind.name(), "{text}");
            self.groups[complaint.group].examples[complaint.kind as usize].get_or_insert(text);
        }
        self.ports.append(&mut sample.ports);
        for element in sample.elements.drain(..) {
            self.elements.insert(element.name.clone(), element);
        }
        let flows = sample.devices.drain(..).map(|(group, device, tally)| Flow { group, device, tally });
        self.flows.extend(flows);
        self.ends[sample.worker] = sample.until;
        if let Some(how) = sample.last.take() {
            self.left[sample.worker] = true;
            if let Err(e) = how {
                self.error.get_or_insert(e);
            }
        }
        self.waiting.entry(sample.until).or_default().push(sample);
        let before = self.series.len();
        self.cut();
        &self.series[before..]
    }

    /// Make points of the intervals that are whole.
    fn cut(&mut self) {
        while let Some(until) = self.next_cut() {
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
    fn next_cut(&self) -> Option<Time> {
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
    fn point(&mut self, until: Time, samples: &[Sample]) -> Point {
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
            }
            let point = GroupPoint {
                counts: counts(&all.counts, &all.own, plan.about),
                devices_active: active,
                waiting,
                delays: named(plan.about.delays, &all.delays, Distribution::brief),
                lateness: Distribution::brief(&all.lateness),
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
        Point {
            t: seconds(until),
            dt: until.since(self.shown) as f64 / 1e9,
            phase: self.control.window().phase(self.shown),
            elapsed: seconds(until),
            left: self.control.end().since(until) as f64 / 1e9,
            groups,
            workers: cpu.iter().map(|(w, c)| c.point(*w, self.cores[*w])).collect(),
            interfaces: moved,
        }
    }

    /// The trial's result, and each device's summary. Call when all workers have left.
    pub fn finish(mut self, header: Header) -> (TrialResult, Vec<Flow>) {
        // from one that ended without a word nothing more will come
        let lost: Vec<usize> = (0..self.left.len()).filter(|worker| !self.left[*worker]).collect();
        self.left.fill(true);
        self.cut();
        let window = self.control.window();
        let measured_ns = self.measured_for.saturating_sub(window.measure.0);
        let end = self.ends.iter().max().copied().unwrap_or_default();
        let phases = PhaseLengths {
            warmup: window.measure.0 as f64 / 1e9,
            measure: measured_ns as f64 / 1e9,
            drain: end.since(window.drain) as f64 / 1e9,
        };
        let workers: Vec<WorkerPoint> =
            self.cpu.iter().enumerate().map(|(w, c)| c.point(w, self.cores[w])).collect();
        let planned = self.plan.profile.phases.measure.ns();
        let cut = measured_ns.saturating_add(planned / 100) < planned;
        let validity = self.validity(&workers, &lost, cut.then_some((phases.measure, planned as f64 / 1e9)));
        let groups = self.groups.iter().zip(&self.plan.groups).map(|(sum, plan)| {
            let measured = &sum.measured.counts;
            let per_second =
                |n: u64| if measured_ns == 0 { 0.0 } else { n as f64 * 1e9 / measured_ns as f64 };
            let happened = &sum.happened;
            GroupResult {
                name: plan.name.clone(),
                protocol: plan.about.name,
                target: plan.target.clone(),
                devices: plan.devices,
                measured: counts(measured, &sum.measured.own, plan.about),
                total: counts(&sum.total, &sum.total_own, plan.about),
                indices: indices(measured, &sum.measured.own, plan.about),
                rates: Rates {
                    // a generator that is behind gets to them late: what counts is when they were due
                    flows_intended: per_second(measured.flows_intended),
                    messages_intended: per_second(measured.messages_intended),
                    messages_sent: per_second(happened.messages_sent),
                    messages_delivered: per_second(happened.messages_delivered),
                    bits_sent: per_second(happened.bytes_sent) * 8.0,
                    bits_received: per_second(happened.bytes_received) * 8.0,
                },
                loss: loss(measured, plan.confirmed),
                verified: plan.verified,
                delays: full(plan.about.delays, &sum.measured),
                ipdv: variation(plan.about.delays, &sum.measured),
                reordering: order::disorder(&sum.measured, plan.about),
                losses: order::losses(&sum.measured, plan.about),
                lateness: Distribution::full(&sum.measured.lateness),
                confirmed: plan.confirmed,
                stalls: sum.stalled.filter(|_| plan.waits).map(|stalled| {
                    let devices = f64::from(plan.devices.max(1));
                    let device_time = devices * measured_ns as f64;
                    StallResult {
                        limit: plan.stall,
                        time: stalled.time as f64 / 1e9,
                        share: if measured_ns == 0 { 0.0 } else { stalled.time as f64 / device_time },
                        longest: stalled.longest,
                        waiting: f64::from(sum.waiting.iter().sum::<u32>()) / devices,
                    }
                }),
                errors: Failure::ALL
                    .iter()
                    .filter(|f| sum.total.failures[**f as usize] > 0)
                    .map(|f| Failures {
                        kind: f.name(),
                        count: measured.failures[*f as usize],
                        total: sum.total.failures[*f as usize],
                        example: sum.examples[*f as usize].clone(),
                    })
                    .collect(),
            }
        });
        let mut moved = interfaces::between(&self.interfaces_first, &interfaces::read().unwrap_or_default());
        moved.extend(self.ports.clone());
        let result = TrialResult {
            run: header.run,
            profile: self.plan.secrets.kept(serde_json::to_value(&self.plan.profile).unwrap_or_default()),
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
        };
        (result, self.flows)
    }

    /// Ports that measure and lost frames for want of room, and how many.
    fn full_ports(&self) -> impl Iterator<Item = (&str, u64)> {
        let measures = |name: &&String| match &self.plan.profile.transport {
            profile::Transport::Dpdk(dpdk) => {
                dpdk.ports.iter().any(|port| port.name == **name && port.role == profile::Role::Generator)
            }
            profile::Transport::Sockets(_) => false,
        };
        let full = self.ports.iter().filter(move |(name, port)| port.rx_dropped > 0 && measures(name));
        full.map(|(name, port)| (name.as_str(), port.rx_dropped))
    }

    fn validity(&self, workers: &[WorkerPoint], lost: &[usize], cut: Option<(f64, f64)>) -> Validity {
        let limits = &self.plan.profile.validity;
        let mut reasons = Vec::new();
        for (sum, plan) in self.groups.iter().zip(&self.plan.groups) {
            let c = &sum.measured.counts;
            let h = &sum.happened;
            let pairs = [
                (c.flows_intended, c.flows_started, h.flows_started, "flows"),
                (c.messages_intended, c.messages_sent, h.messages_sent, "messages"),
            ];
            for (intended, offered, left, what) in pairs {
                let share = if intended == 0 { 1.0 } else { offered as f64 / intended as f64 };
                if share < limits.offered {
                    reasons.push(Reason {
                        code: "ND-90-01",
                        group: Some(plan.name.clone()),
                        what: format!(
                            "{offered} of {intended} intended {what} {}: {:.1} % short{}{}",
                            if what == "flows" { "were begun" } else { "were offered" },
                            (1.0 - share) * 100.0,
                            // a backlog from before: what is meant for the phase hardly gets its turn
                            if left > offered {
                                format!(" ({left} left in that time, with those that were due before)")
                            } else {
                                String::new()
                            },
                            held_back(sum, plan, what == "flows")
                        ),
                        value: share,
                        limit: limits.offered,
                    });
                }
            }
            let late = Distribution::brief(&sum.measured.lateness).p99;
            if late > limits.lateness_p99.ns() {
                reasons.push(Reason {
                    code: "ND-90-02",
                    group: Some(plan.name.clone()),
                    what: format!(
                        "the generator was late by {:.1} ms or more with 1 % of what it had to do (limit {})",
                        late as f64 / 1e6,
                        limits.lateness_p99
                    ),
                    value: late as f64,
                    limit: limits.lateness_p99.ns() as f64,
                });
            }
            let lost = c.failures[Failure::Local as usize];
            if lost > 0 {
                reasons.push(Reason {
                    code: "ND-90-04",
                    group: Some(plan.name.clone()),
                    what: format!("{lost} failures were the generator's own (ports, descriptors, buffers)"),
                    value: lost as f64,
                    limit: 0.0,
                });
            }
        }
        for (sum, plan) in self.groups.iter().zip(&self.plan.groups) {
            let full = sum.measured.counts.receive_drops;
            if full > 0 {
                reasons.push(Reason {
                    code: "ND-90-04",
                    group: Some(plan.name.clone()),
                    what: format!(
                        "{full} datagrams were dropped by our own receive queue: raise sysctl net.core.rmem_max, or use more \
                         cores or devices"
                    ),
                    value: full as f64,
                    limit: 0.0,
                });
            }
        }
        for (port, full) in self.full_ports() {
            let what = format!(
                "{full} frames were dropped by the receive queue of port {port}: give its receiver a worker of its own, or \
                 the port more queues"
            );
            reasons.push(Reason { code: "ND-90-04", group: None, what, value: full as f64, limit: 0.0 });
        }
        for w in workers.iter().filter(|w| w.starved > limits.starved) {
            reasons.push(Reason {
                code: "ND-90-03",
                group: None,
                what: format!(
                    "worker {} waited for core {} during {:.0} % of the measure phase",
                    w.worker,
                    w.core,
                    w.starved * 100.0
                ),
                value: w.starved,
                limit: limits.starved,
            });
        }
        for (port, unfit) in self.ports.iter().map(|(name, port)| (name, port.tx_dropped)) {
            if unfit > 0 {
                let what =
                    format!("the driver of port {port} found {unfit} frames unfit, and did not send them");
                reasons.push(Reason { code: "ND-90-04", group: None, what, value: unfit as f64, limit: 0.0 });
            }
        }
        for element in self.elements.values() {
            // Of an impaired port: all else that it drops it was asked to.
            let Some(&full) = element.drops.get("queue_full") else { continue };
            reasons.push(Reason {
                code: "ND-90-07",
                group: None,
                what: format!("{} had no memory for {full} more packets on their way", element.name),
                value: full as f64,
                limit: 0.0,
            });
        }
        if let Some(error) = &self.error {
            reasons.push(Reason {
                code: "ND-90-06",
                group: None,
                what: error.what.clone(),
                value: 1.0,
                limit: 0.0,
            });
        }
        for &worker in lost {
            reasons.push(Reason {
                code: "ND-90-06",
                group: None,
                what: format!(
                    "worker {worker} was lost {:.1} s into the run",
                    self.ends[worker].0 as f64 / 1e9
                ),
                value: 1.0,
                limit: 0.0,
            });
        }
        if let Some((took, planned)) = cut {
            reasons.push(Reason {
                code: "ND-90-05",
                group: None,
                what: format!("the measure phase lasted {took:.1} s of {planned:.1} s"),
                value: took,
                limit: planned,
            });
        }
        Validity { valid: reasons.is_empty(), reasons }
    }
}

/// That it was the server, and not the generator, which kept devices from offering what was intended.
fn held_back(sum: &GroupSum, plan: &GroupPlan, flows: bool) -> String {
    // with a device free, it was the generator that had no time
    let busy = flows
        && matches!(plan.load, profile::Load::Open(_))
        && sum.points.1 > 0
        && 2 * sum.points.1 >= sum.points.0;
    if busy {
        let devices = plan.devices;
        return format!(
            "; all {devices} devices were waiting for answers: more `devices`, or the server is too slow"
        );
    }
    match sum.stalled.filter(|stalled| !flows && plan.waits && stalled.time > 0) {
        Some(stalled) => format!(
            "; devices were stalled for {:.1} s together: the server is too slow, or stopped answering",
            stalled.time as f64 / 1e9
        ),
        None => String::new(),
    }
}

/// Share of the sent messages that were not delivered, without those that our own receive queue dropped. `None` for
/// one-way traffic: nothing confirms it, and nothing measured it at the far end.
fn loss(c: &Counts, confirmed: bool) -> Option<f64> {
    (c.messages_sent > 0 && (confirmed || c.messages_delivered > 0))
        .then(|| c.messages_sent.saturating_sub(c.messages_delivered + c.receive_drops))
        .map(|lost| lost as f64 / c.messages_sent as f64)
}

/// The delays as results give them: whole, and with their variation.
fn full(delays: &'static [Delay], tally: &Tally) -> BTreeMap<&'static str, Distribution> {
    let mut all = named(delays, &tally.delays, Distribution::full);
    for (described, variation) in delays.iter().zip(&tally.variation) {
        if let Some(delay) = all.get_mut(described.name) {
            delay.jitter = variation.mean();
            delay.pdv = (delay.count > 0).then_some(delay.p999 - delay.min);
        }
    }
    all
}

/// How they changed from message to message, where they did.
fn variation(delays: &'static [Delay], tally: &Tally) -> BTreeMap<&'static str, Distribution> {
    let seen = delays.iter().zip(&tally.variation).filter(|(_, variation)| variation.mean().is_some());
    seen.map(|(delay, variation)| (delay.name, Distribution::full(&variation.spread()))).collect()
}

fn named(
    delays: &'static [Delay],
    histograms: &[Histogram<u64>],
    f: impl Fn(&Histogram<u64>) -> Distribution,
) -> BTreeMap<&'static str, Distribution> {
    delays.iter().map(|delay| delay.name).zip(histograms.iter().map(f)).collect()
}

#[cfg(test)]
mod tests;
