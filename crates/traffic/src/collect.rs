//! From samples to the series and the trial's result. Sums counts, merges histograms, judges validity.

use crate::dpdk::observe::PortFacts;
use crate::interfaces::{self, Interfaces};
use crate::order;
use crate::plan::Plan;
use crate::result::{
    Distribution, Failures, GroupPoint, GroupResult, PhaseLengths, Point, Rates, Reason, StallResult,
    TrialResult, Validity, WorkerPoint, counts,
};
use crate::stalls::Stalls;
use crate::transport::{Control, ElementCounts, Sample, Unready};
use hdrhistogram::Histogram;
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
                measured: Tally::new(g.delays.len()),
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
            let mut all = Tally::new(plan.delays.len());
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
                counts: counts(&all.counts),
                devices_active: active,
                waiting,
                delays: named(plan.delays, &all.delays, Distribution::brief),
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
                protocol: plan.protocol,
                target: plan.target.clone(),
                devices: plan.devices,
                measured: counts(measured),
                total: counts(&sum.total),
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
                delays: full(plan.delays, &sum.measured),
                ipdv: variation(plan.delays, &sum.measured),
                reordering: order::disorder(&sum.measured, plan.protocol),
                losses: order::losses(&sum.measured, plan.protocol),
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
                    // with a device free, it was the generator that had no time
                    let busy = what == "flows"
                        && matches!(plan.load, profile::Load::Open(_))
                        && sum.points.1 > 0
                        && 2 * sum.points.1 >= sum.points.0;
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
                            if busy {
                                format!(
                                    "; all {} devices were waiting for answers: more `devices`, or the server is too slow",
                                    plan.devices
                                )
                            } else {
                                String::new()
                            }
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

/// Share of the sent messages that were not delivered, without those that our own receive queue dropped. `None` for one-way traffic: nothing confirms it, and
/// nothing measured it at the far end.
fn loss(c: &Counts, confirmed: bool) -> Option<f64> {
    (c.messages_sent > 0 && (confirmed || c.messages_delivered > 0))
        .then(|| c.messages_sent.saturating_sub(c.messages_delivered + c.receive_drops))
        .map(|lost| lost as f64 / c.messages_sent as f64)
}

/// The delays as results give them: whole, and with their variation.
fn full(names: &'static [&'static str], tally: &Tally) -> BTreeMap<&'static str, Distribution> {
    let mut all = named(names, &tally.delays, Distribution::full);
    for (name, variation) in names.iter().zip(&tally.variation) {
        if let Some(delay) = all.get_mut(name) {
            delay.jitter = variation.mean();
            delay.pdv = (delay.count > 0).then_some(delay.p999 - delay.min);
        }
    }
    all
}

/// How they changed from message to message, where they did.
fn variation(names: &'static [&'static str], tally: &Tally) -> BTreeMap<&'static str, Distribution> {
    let seen = names.iter().zip(&tally.variation).filter(|(_, variation)| variation.mean().is_some());
    seen.map(|(name, variation)| (*name, Distribution::full(&variation.spread()))).collect()
}

fn named(
    names: &'static [&'static str],
    histograms: &[Histogram<u64>],
    f: impl Fn(&Histogram<u64>) -> Distribution,
) -> BTreeMap<&'static str, Distribution> {
    names.iter().copied().zip(histograms.iter().map(f)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Trial;
    use crate::transport::Complaint;

    /// For workers that begin a run of 2 s in the measure phase and 1 s of draining.
    fn collector(workers: u16) -> Collector {
        let text = r#"{"name": "t", "phases": {"warmup": "0s", "measure": "2s", "drain": "1s"}, "groups": [
            {"name": "g", "target": "udp://127.0.0.1:9", "model": {"stream": {"echo": false}}}]}"#;
        let plan = Plan::new(profile::load(text).expect("good"), &Trial::default()).expect("a plan");
        let control = Control::new(0, 2_000_000_000, 1_000_000_000, 1_000_000_000);
        Collector::new(Arc::new(plan), Arc::new(control), (0..workers).collect())
    }

    /// One message, sent by `worker` between these, milliseconds.
    fn sample(worker: usize, from: u64, until: u64) -> Sample {
        let time = |ms: u64| Time(ms * 1_000_000);
        let mut tallies = [(); 3].map(|()| Tally::new(1));
        tallies[Phase::Measure as usize].counts.messages_sent = 1;
        Sample {
            worker,
            from: time(from),
            until: time(until),
            phase: if from < 2000 { Phase::Measure } else { Phase::Drain },
            groups: vec![tallies],
            active: vec![0],
            stalls: vec![Stalls { time: 500_000_000, longest: until * 1_000_000, waiting: 1 }],
            ran: 0,
            waited: 0,
            took: time(until - from).0,
            complaints: Vec::new(),
            ports: Interfaces::new(),
            elements: Vec::new(),
            last: None,
            devices: Vec::new(),
        }
    }

    fn last(worker: usize, from: u64, until: u64) -> Sample {
        Sample { last: Some(Ok(())), ..sample(worker, from, until) }
    }

    fn after(samples: impl IntoIterator<Item = Sample>) -> Collector {
        let mut collector = collector(2);
        for sample in samples {
            collector.take(sample);
        }
        collector
    }

    fn finish(collector: Collector) -> TrialResult {
        let header = Header {
            run: String::new(),
            transport: "",
            started: String::new(),
            stopped: None,
            ports: vec![],
        };
        collector.finish(header).0
    }

    /// End, length and messages sent of each point.
    fn series(samples: impl IntoIterator<Item = Sample>) -> Vec<(f64, f64, u64)> {
        let mut collector = collector(2);
        let mut given = 0;
        for sample in samples {
            given += collector.take(sample).len();
        }
        let result = finish(collector);
        assert_eq!(given, result.series.len(), "every point is given once");
        let point = |p: &Point| (p.t, p.dt, p.groups["g"].counts["messages_sent"].as_u64().unwrap_or(0));
        result.series.iter().map(point).collect()
    }

    #[test]
    fn a_servers_words_are_shown_and_not_done() {
        let text = "\x1b[2Jgone".to_owned();
        let told = vec![Complaint { group: 0, kind: Failure::Timeout, text }];
        let collector = after([Sample { complaints: told, ..sample(0, 0, 1000) }]);
        let example = &collector.groups[0].examples[Failure::Timeout as usize];
        assert_eq!(example.as_deref(), Some("\\u{1b}[2Jgone"));
    }

    #[test]
    fn a_point_is_there_when_the_slowest_has_reported() {
        let samples = [sample(0, 0, 1000), sample(0, 1000, 2000), sample(1, 0, 1000), sample(1, 1000, 2000)];
        assert_eq!(series(samples), [(1.0, 1.0, 2), (2.0, 1.0, 2)]);
    }

    #[test]
    fn one_that_leaves_early_strands_no_sample_of_the_others() {
        let one = || vec![sample(0, 0, 1000), sample(0, 1000, 2000), last(0, 2000, 2400)];
        let other = || vec![sample(1, 0, 1000), last(1, 1000, 1300)];
        let expected = [(1.0, 1.0, 2), (2.0, 1.0, 2), (2.4, 2.4 - 2.0, 1)];
        for samples in [one().into_iter().chain(other()), other().into_iter().chain(one())] {
            let seen = series(samples);
            assert_eq!(seen.len(), expected.len(), "{seen:?}");
            for (seen, expected) in seen.iter().zip(&expected) {
                assert!((seen.0 - expected.0).abs() + (seen.1 - expected.1).abs() < 1e-9, "{seen:?}");
                assert_eq!(seen.2, expected.2);
            }
        }
    }

    #[test]
    fn an_open_loop_out_of_devices_says_so() {
        let reason = |active: u32| {
            let text = r#"{"name": "t", "phases": {"warmup": "0s", "measure": "2s", "drain": "1s"}, "groups": [
                {"name": "g", "target": "http://127.0.0.1:9", "devices": 4, "model": {"http": {"requests": 1}},
                 "load": {"open": {"rate": "10/s"}}}]}"#;
            let plan = Plan::new(profile::load(text).expect("good"), &Trial::default()).expect("a plan");
            let control = Control::new(0, 2_000_000_000, 1_000_000_000, 1_000_000_000);
            let mut collector = Collector::new(Arc::new(plan), Arc::new(control), vec![0, 1]);
            for mut sample in
                [sample(0, 0, 2000), sample(1, 0, 2000), last(0, 2000, 2100), last(1, 2000, 2100)]
            {
                let counts = &mut sample.groups[0][Phase::Measure as usize].counts;
                (counts.flows_intended, counts.flows_started) = (10, 5);
                sample.active = vec![active];
                collector.take(sample);
            }
            let reasons = finish(collector).validity.reasons;
            reasons.into_iter().find(|r| r.code == "ND-90-01").expect("short of flows").what
        };
        assert!(reason(2).ends_with(
            "; all 4 devices were waiting for answers: more `devices`, or the server is too slow"
        ));
        assert!(!reason(1).contains("devices"), "two were free: the generator had no time");
    }

    #[test]
    fn stalls_add_up_over_workers() {
        let of = |model: &str| {
            let text = format!(
                r#"{{"name": "t", "phases": {{"warmup": "0s", "measure": "2s", "drain": "1s"}}, "groups": [
                {{"name": "g", "target": "udp://127.0.0.1:9", "devices": 4, "stall": "300ms", "model": {model}}}]}}"#
            );
            let plan = Plan::new(profile::load(&text).expect("good"), &Trial::default()).expect("a plan");
            let control = Control::new(0, 2_000_000_000, 1_000_000_000, 1_000_000_000);
            let mut collector = Collector::new(Arc::new(plan), Arc::new(control), vec![0, 1]);
            for sample in [sample(0, 0, 2000), sample(1, 0, 2000), last(0, 2000, 2100), last(1, 2000, 2400)] {
                collector.take(sample);
            }
            let result = finish(collector);
            (result.groups[0].stalls, result.series.iter().map(|p| p.groups["g"].waiting).collect::<Vec<_>>())
        };
        let (stalls, waiting) = of(r#"{"stream": {"echo": true}}"#);
        // four times 0.5 s of the 8 s that four devices had; two of them waited when the measure phase ended
        let expected =
            StallResult { limit: 300_000_000, time: 2.0, share: 0.25, longest: 2_400_000_000, waiting: 0.5 };
        assert_eq!((stalls, &waiting[..]), (Some(expected), &[Some(2), Some(2)][..]));
        let (stalls, waiting) = of(r#"{"stream": {"echo": false}}"#);
        assert_eq!((stalls, &waiting[..]), (None, &[None, None][..]), "nothing to wait for");
    }

    #[test]
    fn what_a_port_did_not_send_makes_the_result_invalid() {
        let mut collector =
            after([sample(0, 0, 2000), sample(1, 0, 2000), last(0, 2000, 2100), last(1, 2000, 2100)]);
        collector
            .ports
            .insert("a".into(), interfaces::Interface { tx_dropped: 3, tx_errors: 9, ..Default::default() });
        let result = finish(collector);
        let reason = &result.validity.reasons[0];
        assert_eq!((reason.code, reason.value), ("ND-90-04", 3.0));
        assert!(reason.what.contains("port a found 3 frames unfit"), "{}", reason.what);
    }

    #[test]
    fn a_lost_worker_makes_the_result_invalid() {
        let reasons =
            |result: &TrialResult| result.validity.reasons.iter().map(|r| r.code).collect::<Vec<_>>();
        let whole = || [sample(0, 0, 2000), last(0, 2000, 2100), sample(1, 0, 2000)];
        let good = after(whole().into_iter().chain([last(1, 2000, 2100)]));
        assert!(good.is_done());
        assert_eq!(reasons(&finish(good)), [""; 0]);

        // with a reason
        let why = Unready::new("ND-92-05", "epoll", "bad file descriptor", "Say so");
        let told = Sample { last: Some(Err(why.clone())), ..last(1, 2000, 2100) };
        let result = finish(after(whole().into_iter().chain([told])));
        assert_eq!((reasons(&result), result.stopped), (vec!["ND-90-06"], Some("failed")));
        assert_eq!(result.error, Some(why));

        // without a word
        let silent = after(whole());
        assert!(!silent.is_done());
        let result = finish(silent);
        assert_eq!(reasons(&result), ["ND-90-06"]);
        assert!(result.validity.reasons[0].what.starts_with("worker 1 was lost 2.0 s into the run"));
        assert_eq!(result.series.len(), 2, "what the other told after it is shown");
        assert_eq!(result.groups[0].total["messages_sent"], 3, "what it told before counts");
    }
}
