//! One group of a run, summed up over samples and workers, and its result.

use crate::addresses::address_text;
use crate::answer_times::Slowdown;
use crate::distribution::Distribution;
use crate::plan::GroupPlan;
use crate::reordering;
use crate::result::{
    CauseCount, FailureCount, GroupResult, Rates, SlowdownResult, StallResult, TargetAddress, count, counts,
    indices,
};
use crate::sample::AddressTally;
use crate::stalls::Stalls;
use hdrhistogram::Histogram;
use protocol::cause::{CAUSES_MAX, Cause, Causes};
use protocol::describe::{Delay, LoadUnit};
use protocol::meter::{Counts, Failure, Tally};
use protocol::target::Carrier;
use protocol::time::Time;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A part of the measure phase in which a group had one rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RatePart {
    /// How many changes came before it.
    pub changes: usize,
    /// Where it begins, and how far it goes by now; a point of the series with two rates is in none.
    pub from: Time,
    /// Its end.
    pub until: Time,
    /// Flows and messages intended.
    pub intended: (u64, u64),
    /// Flows and messages offered.
    pub offered: (u64, u64),
}

/// One group so far.
pub(crate) struct GroupSum {
    /// Over all phases.
    pub total: Counts,
    /// The same of what the model counts of its own.
    pub total_own: Box<[u64]>,
    /// Meant for the measure phase; failures: happened in it.
    pub measured: Tally,
    /// Happened in the measure phase.
    pub happened: Counts,
    /// Why what failed did, over all phases.
    pub causes: Causes,
    /// What the first failure of each cause looked like, in the order in which they came.
    examples: Vec<(Cause, String)>,
    /// Time in stalls and the longest wait; none where the transport does not tell.
    pub stalled: Option<Stalls>,
    /// Points of the measure phase, and those in which every device had a flow under way.
    pub points: (u32, u32),
    /// Parts of the measure phase, each with one rate.
    pub parts: Vec<RatePart>,
    /// Devices of each worker that were stalled when the measure phase ended.
    pub waiting: Vec<u32>,
    /// What became of the addresses of its target.
    addresses: Vec<TargetAddress>,
}

impl GroupSum {
    /// Nothing yet, of a group whose devices so many workers drive.
    pub fn new(plan: &GroupPlan, workers: usize) -> Self {
        Self {
            total: Counts::default(),
            total_own: vec![0; plan.about.counters.len()].into(),
            measured: Tally::of(plan.about),
            happened: Counts::default(),
            causes: Causes::default(),
            examples: Vec::new(),
            stalled: None,
            points: (0, 0),
            parts: Vec::new(),
            waiting: vec![0; workers],
            addresses: plan.addresses.iter().map(TargetAddress::unused).collect(),
        }
    }

    /// An interval of the measure phase is over in which so much happened.
    pub fn add_interval(&mut self, plan: &GroupPlan, (from, until): (Time, Time), counts: &Counts) {
        let changes = plan.rate_changes(from);
        if plan.rate_changes(Time(until.0.saturating_sub(1))) != changes {
            return;
        }
        if self.parts.last().is_none_or(|part| part.changes != changes) {
            self.parts.push(RatePart { changes, from, until, intended: (0, 0), offered: (0, 0) });
        }
        let Some(part) = self.parts.last_mut() else { return };
        part.until = until;
        part.intended.0 += counts.flows_intended;
        part.intended.1 += counts.messages_intended;
        part.offered.0 += counts.flows_started;
        part.offered.1 += counts.messages_sent;
    }

    /// Keep what a failure looked like, if it is the first of its cause.
    pub fn keep_example(&mut self, cause: Cause, text: String) {
        let known = self.examples.iter().any(|(known, _)| *known == cause);
        let of_kind = self.examples.iter().filter(|(known, _)| known.kind == cause.kind).count();
        if !known && of_kind <= CAUSES_MAX {
            self.examples.push((cause, text));
        }
    }

    /// What the first failure of a kind looked like.
    pub fn example(&self, kind: Failure) -> Option<String> {
        self.examples.iter().find(|(cause, _)| cause.kind == kind).map(|(_, text)| text.clone())
    }

    fn failures(&self, kind: Failure) -> FailureCount {
        let measured = self.measured.causes();
        let mut causes: Vec<CauseCount> = self
            .causes
            .of(kind)
            .map(|(detail, total)| {
                let cause = Cause { kind, detail };
                let example = self.examples.iter().find(|(known, _)| *known == cause);
                CauseCount {
                    cause: detail.to_string(),
                    count: measured.map_or(0, |measured| measured.count_of(cause)),
                    total,
                    example: example.map(|(_, text)| text.clone()),
                }
            })
            .collect();
        causes.sort_by_key(|one| std::cmp::Reverse((one.count, one.total)));
        FailureCount {
            kind: kind.name(),
            count: self.measured.counts.failures[kind as usize],
            total: self.total.failures[kind as usize],
            example: self.example(kind),
            causes,
            other: measured.map_or(0, |measured| measured.other(kind)),
        }
    }

    /// What a worker says of an address.
    pub fn add_address(&mut self, tally: AddressTally) {
        if let Some(address) = self.addresses.get_mut(tally.address) {
            address.opened += tally.opened;
            address.failed += tally.failed;
            address.delivered += tally.delivered;
            address.error = tally.cause.or(address.error.take());
        }
    }

    /// The addresses, and which of them load went to: to the first, where the transport opens nothing.
    fn addresses(&self, is_datagram: bool) -> Vec<TargetAddress> {
        let mut addresses = self.addresses.clone();
        for address in &mut addresses {
            // a socket is opened for datagrams before anybody can know whether they arrive
            let failed = if is_datagram { address.failed } else { 0 };
            address.used = address.opened > failed || address.delivered > 0;
        }
        if let Some(first) = addresses.first_mut()
            && self.addresses.iter().all(|one| one.opened == 0 && one.failed == 0)
        {
            first.used = true;
        }
        addresses
    }

    /// How much longer answers took with all devices waiting than with few.
    pub fn slowdown(&self, plan: &GroupPlan) -> Option<Slowdown> {
        let workers = self.waiting.len().max(1) as u32;
        self.stalled.filter(|_| plan.waits)?.answers.slowdown(plan.devices / workers)
    }

    /// The group's result; `measured_ns` is how long the measure phase was.
    pub fn result(&self, plan: &GroupPlan, measured_ns: u64) -> GroupResult {
        let measured = &self.measured.counts;
        let per_second = |n: u64| if measured_ns == 0 { 0.0 } else { n as f64 * 1e9 / measured_ns as f64 };
        let happened = &self.happened;
        let unit = plan.unit;
        // by when they were due: a call is over long after it began
        let due = |name: &str| per_second(count(measured, &self.measured.own, plan.about, name));
        let is_messages = unit == LoadUnit::MESSAGES;
        GroupResult {
            name: plan.name.clone(),
            protocol: plan.about.name,
            target: plan.target.clone(),
            addresses: self.addresses(plan.scheme.carrier != Carrier::Stream),
            devices: plan.devices,
            tokens: vec![plan.shown_token()],
            measured: counts(measured, &self.measured.own, plan.about),
            total: counts(&self.total, &self.total_own, plan.about),
            indices: indices(measured, &self.measured.own, plan.about),
            rates: Rates {
                // a generator that is behind gets to them late: what counts is when they were due
                flows_intended: per_second(measured.flows_intended),
                messages_intended: per_second(measured.messages_intended),
                messages_sent: per_second(happened.messages_sent),
                messages_delivered: per_second(happened.messages_delivered),
                bits_sent: per_second(happened.bytes_sent) * 8.0,
                bits_received: per_second(happened.bytes_received) * 8.0,
                intended: unit.intended.map_or(0.0, due),
                offered: if is_messages { per_second(happened.messages_sent) } else { due(unit.offered) },
                delivered: if is_messages {
                    per_second(happened.messages_delivered)
                } else {
                    due(unit.delivered)
                },
            },
            unit,
            loss: loss(measured, plan.confirmed),
            verified: plan.verified,
            delays: full(plan.about.delays, &self.measured),
            values: plan
                .about
                .values
                .iter()
                .map(|value| value.name)
                .zip(self.measured.values.iter().map(Distribution::from))
                .filter(|(_, distribution)| distribution.count > 0)
                .collect(),
            ipdv: variation(plan.about.delays, &self.measured),
            reordering: reordering::reordering(&self.measured, plan.about),
            losses: reordering::loss_pattern(&self.measured, plan.about),
            lateness: (&self.measured.lateness).into(),
            confirmed: plan.confirmed,
            stalls: self.stalled.filter(|_| plan.waits).map(|stalled| {
                let devices = f64::from(plan.devices.max(1));
                let device_time = devices * measured_ns as f64;
                StallResult {
                    limit: plan.stall,
                    time: stalled.time as f64 / 1e9,
                    share: if measured_ns == 0 { 0.0 } else { stalled.time as f64 / device_time },
                    longest: stalled.longest,
                    busy: if measured_ns == 0 { 0.0 } else { (stalled.waited as f64 / device_time).min(1.0) },
                    waiting: f64::from(self.waiting.iter().sum::<u32>()) / devices,
                }
            }),
            slowdown: self
                .slowdown(plan)
                .map(|slowdown| SlowdownResult { few: slowdown.few as u64, busy: slowdown.busy as u64 }),
            errors: Failure::ALL
                .iter()
                .filter(|f| self.total.failures[**f as usize] > 0)
                .map(|f| self.failures(*f))
                .collect(),
        }
    }
}

impl TargetAddress {
    fn unused(address: SocketAddr) -> Self {
        Self { address: address_text(address), used: false, opened: 0, failed: 0, delivered: 0, error: None }
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
    let mut all = histograms_by_name::<Distribution>(delays, &tally.delays);
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
    seen.map(|(delay, variation)| (delay.name, (&variation.distribution()).into())).collect()
}

/// The histograms by the names of their delays.
pub(crate) fn histograms_by_name<'a, D: From<&'a Histogram<u64>>>(
    delays: &'static [Delay],
    histograms: &'a [Histogram<u64>],
) -> BTreeMap<&'static str, D> {
    delays.iter().map(|delay| delay.name).zip(histograms.iter().map(D::from)).collect()
}
