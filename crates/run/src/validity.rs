//! Validity of a result, judged by what the generator did: each reason why a result cannot be trusted, with its code, value and
//! limit.

use crate::distribution::Quantiles;
use crate::group_sum::GroupSum;
use crate::interfaces::Interfaces;
use crate::plan::{GroupPlan, Plan};
use crate::result::{Reason, Validity, WorkerUsage};
use crate::sample::ElementCounts;
use crate::setup_error::SetupError;
use profile::{Load, Role, Transport};
use protocol::meter::{Failure, Tally};
use protocol::time::Time;
use std::collections::BTreeMap;

/// Evidence that validity is judged by.
pub(crate) struct Evidence<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// How long the measure phase was, ns.
    pub measured_ns: u64,
    /// The sums per group, in the plan's order.
    pub groups: &'a [GroupSum],
    /// CPU time of each worker over the measure phase.
    pub workers: &'a [WorkerUsage],
    /// The ports' counters.
    pub ports: &'a Interfaces,
    /// The elements' counters.
    pub elements: &'a BTreeMap<String, ElementCounts>,
    /// What broke the run.
    pub error: Option<&'a SetupError>,
    /// Workers that ended without a last sample, and until when they reported.
    pub lost: Vec<(usize, Time)>,
    /// Whether the run ended because every total was sent and answered.
    pub done: bool,
    /// If the measure phase was cut short: how long it was and should have been, seconds.
    pub cut: Option<(f64, f64)>,
}

/// All reasons, worst evidence first: what the generator offered, then what it lost, then what ended it.
pub(crate) fn judge(evidence: &Evidence<'_>) -> Validity {
    let mut reasons = Vec::new();
    let groups = || evidence.groups.iter().zip(&evidence.plan.groups);
    for (sum, plan) in groups() {
        offered(evidence, sum, plan, &mut reasons);
        short_of_total(evidence, sum, plan, &mut reasons);
        lateness(evidence.plan, sum, plan, &mut reasons);
        let local = sum.measured.counts.failures[Failure::Local as usize];
        let what = || format!("{local} failures of the generator's own{}", own_causes(&sum.measured));
        check_generator_loss(Some(plan), local, what, &mut reasons);
    }
    for (sum, plan) in groups() {
        let drops = sum.measured.counts.receive_drops;
        let what = || {
            format!(
                "{drops} datagrams dropped by our own receive queue: raise sysctl net.core.rmem_max, or use more cores or \
                 devices"
            )
        };
        check_generator_loss(Some(plan), drops, what, &mut reasons);
    }
    for (port, counters) in evidence.ports.iter().filter(|(name, _)| measures(evidence.plan, name)) {
        let drops = counters.rx_dropped;
        let what = || {
            format!(
                "{drops} frames dropped by the receive queue of port {port}: give its receiver a worker of its own, or the \
                 port more queues"
            )
        };
        check_generator_loss(None, drops, what, &mut reasons);
    }
    starved(evidence, &mut reasons);
    for (port, counters) in evidence.ports {
        let drops = counters.tx_dropped;
        let what = || format!("{drops} frames refused by the driver of port {port}, and not sent");
        check_generator_loss(None, drops, what, &mut reasons);
    }
    for element in evidence.elements.values() {
        // An impaired port: its other drops are configured.
        let Some(&full) = element.drops.get("queue_full") else { continue };
        let what = format!("{}: no memory to delay {full} more packets", element.name);
        reasons.push(Reason { code: "ND-90-07", group: None, what, value: full as f64, limit: 0.0 });
    }
    check_duration(evidence, &mut reasons);
    Validity { valid: reasons.is_empty(), reasons }
}

/// ND-90-01 and ND-90-08: less was offered than intended, by the generator or for want of connections. What the server kept from being
/// offered, by stalls or as it slowed down, is no reason: it is a result, which fails.
fn offered(evidence: &Evidence<'_>, sum: &GroupSum, group: &GroupPlan, reasons: &mut Vec<Reason>) {
    let before = reasons.len();
    offered_in_parts(evidence, sum, group, reasons);
    if reasons.len() > before {
        return;
    }
    let (measured, happened) = (&sum.measured.counts, &sum.happened);
    let flows = (measured.flows_intended, measured.flows_started, happened.flows_started);
    let messages = (measured.messages_intended, measured.messages_sent, happened.messages_sent);
    let limit = evidence.plan.profile.validity.offered;
    for ((intended, offered, left), is_flows) in [(flows, true), (messages, false)] {
        let share = if intended == 0 { 1.0 } else { offered as f64 / intended as f64 };
        if share >= limit {
            continue;
        }
        let load = MeasuredLoad { is_flows, intended, left, ns: evidence.measured_ns };
        let (code, why) = match held_back(evidence, sum, group, load) {
            ShortfallCause::Server => continue,
            ShortfallCause::Connections => ("ND-90-08", busy(group, load)),
            ShortfallCause::Generator => ("ND-90-01", String::new()),
        };
        let what = if is_flows { "flows started" } else { "messages sent" };
        // What is meant for the phase hardly gets its turn behind a backlog from before it.
        let backlog = match left > offered {
            true => format!("; with the backlog from before, {left}"),
            false => String::new(),
        };
        let short = (1.0 - share) * 100.0;
        let what = format!("{offered} of {intended} intended {what} (−{short:.1} %){backlog}{why}");
        reasons.push(Reason { code, group: Some(group.name.clone()), what, value: share, limit });
    }
}

/// The same of each part of the measure phase that had a rate of its own.
fn offered_in_parts(evidence: &Evidence<'_>, sum: &GroupSum, group: &GroupPlan, reasons: &mut Vec<Reason>) {
    let validity = &evidence.plan.profile.validity;
    for part in sum.parts.iter().filter(|_| sum.parts.len() > 1) {
        let ns = part.until.since(part.from);
        let flows = (part.intended.0, part.offered.0, true);
        let messages = (part.intended.1, part.offered.1, false);
        for (intended, left, is_flows) in [flows, messages] {
            let load = MeasuredLoad { is_flows, intended, left, ns };
            // what falls due as a part ends may leave in the next one, as long as that is not late
            let slack = 1.0 + intended as f64 * validity.lateness_p99.ns() as f64 / ns.max(1) as f64;
            if left as f64 + slack >= validity.offered * intended as f64 {
                continue;
            }
            let (code, why) = match held_back(evidence, sum, group, load) {
                ShortfallCause::Server => continue,
                ShortfallCause::Connections => ("ND-90-08", busy(group, load)),
                ShortfallCause::Generator => ("ND-90-01", String::new()),
            };
            let value = left as f64 / intended as f64;
            let what = format!(
                "{left} of {intended} intended {} from {:.1} s to {:.1} s (−{:.1} %){why}",
                if is_flows { "flows started" } else { "messages sent" },
                part.from.0 as f64 / 1e9,
                part.until.0 as f64 / 1e9,
                (1.0 - value) * 100.0
            );
            let group = Some(group.name.clone());
            reasons.push(Reason { code, group, what, value, limit: validity.offered });
        }
    }
}

/// ND-90-01: the time was over before the total was sent.
fn short_of_total(evidence: &Evidence<'_>, sum: &GroupSum, group: &GroupPlan, reasons: &mut Vec<Reason>) {
    let Some(total) = group.total else { return };
    let sent = sum.total.messages_sent;
    // one that was stopped before has ND-90-05
    if evidence.done || evidence.cut.is_some() || sent >= total {
        return;
    }
    let what =
        format!("{sent} of {total} messages sent before the time was over: allow more, or ask for fewer");
    let value = sent as f64 / total as f64;
    reasons.push(Reason { code: "ND-90-01", group: Some(group.name.clone()), what, value, limit: 1.0 });
}

/// Cause of a load that was offered short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShortfallCause {
    /// The generator had no time.
    Generator,
    /// Every connection was waiting for an answer, none for very long: more of them would carry the load.
    Connections,
    /// Connections were stalled, as answers took longer than the profile allows; or they would carry the load at the answer
    /// times that the server has with few of them waiting.
    Server,
}

/// Share of its time from which on a worker may be what limits the load.
const FULL: f64 = 0.9;
/// Share of the load that was not offered which stalls must account for to be its cause.
const MOST: f64 = 0.5;
/// By how much a mean taken from counts may exceed the longest wait.
const ROUNDING: f64 = 1.05;

/// Flows or messages of some time.
#[derive(Debug, Clone, Copy)]
struct MeasuredLoad {
    is_flows: bool,
    intended: u64,
    /// How many left in that time, those from before it included.
    left: u64,
    /// The time, ns.
    ns: u64,
}

fn held_back(
    evidence: &Evidence<'_>,
    sum: &GroupSum,
    group: &GroupPlan,
    load: MeasuredLoad,
) -> ShortfallCause {
    let happened = &sum.happened;
    let MeasuredLoad { is_flows, intended, left, ns } = load;
    // A worker without time reads answers late: connections seem to wait for the server.
    let validity = &evidence.plan.profile.validity;
    let pressed = |worker: &WorkerUsage| worker.cpu >= FULL || worker.starved > validity.starved;
    let late = Quantiles::from(&sum.measured.lateness).p99 > validity.lateness_p99.ns();
    if late || evidence.workers.iter().any(pressed) {
        return ShortfallCause::Generator;
    }
    let device_time = f64::from(group.devices) * evidence.measured_ns as f64;
    let stalled = sum.stalled.filter(|_| group.waits);
    let missing = (1.0 - left as f64 / intended as f64) * f64::from(group.devices) * ns as f64;
    if stalled.is_some_and(|stalled| stalled.time as f64 >= MOST * missing && stalled.time > 0) {
        return ShortfallCause::Server;
    }
    let busy = match is_flows {
        // with a device free, it was the generator that had no time
        true => matches!(group.load, Load::Open(_)) && sum.points.1 > 0 && 2 * sum.points.1 >= sum.points.0,
        // Little's law: a connection that never rests takes as long per message as its answers
        false => stalled.is_some_and(|stalled| {
            happened.messages_delivered > 0
                && device_time / happened.messages_delivered as f64 <= ROUNDING * stalled.longest as f64
        }),
    };
    // as if it had been intended all the time
    let scaled = (intended as f64 * evidence.measured_ns as f64 / ns.max(1) as f64) as u64;
    match busy {
        false => ShortfallCause::Generator,
        true if is_slowed_down(sum, group, device_time, scaled, is_flows) => ShortfallCause::Server,
        true => ShortfallCause::Connections,
    }
}

/// Load that connections must be able to carry beyond the intended one, as answers do not all take as long.
const ROOM: f64 = 1.1;

/// Whether so many connections would carry the load, by Little's law, if answers took no longer with all of them waiting than
/// with few.
fn is_slowed_down(
    sum: &GroupSum,
    group: &GroupPlan,
    device_time: f64,
    intended: u64,
    is_flows: bool,
) -> bool {
    let happened = &sum.happened;
    let Some(slowdown) = sum.slowdown(group).filter(|_| happened.messages_delivered > 0) else {
        return false;
    };
    let each = device_time / happened.messages_delivered as f64;
    // the rest of the time a flow connects, or rests between two messages
    let unloaded = (each - (slowdown.busy - slowdown.few)).max(slowdown.few);
    let messages = match is_flows {
        true => intended as f64 * happened.messages_sent as f64 / happened.flows_started.max(1) as f64,
        false => intended as f64,
    };
    device_time / unloaded >= ROOM * messages
}

/// What so many connections carry, by Little's law: number = rate × time.
fn busy(group: &GroupPlan, MeasuredLoad { intended, left, ns, .. }: MeasuredLoad) -> String {
    let devices = group.devices;
    let who = if devices == 1 { "the device was" } else { &format!("all {devices} devices were") };
    let waiting = format!("; {who} waiting for replies");
    let seconds = ns as f64 / 1e9;
    if left == 0 || seconds <= 0.0 {
        return waiting;
    }
    let per_second = |count: u64| count as f64 / seconds;
    let each = f64::from(devices) / per_second(left) * 1e3;
    format!(
        "{waiting}: {devices} × {each:.3} ms = {:.4}/s of {:.4}/s",
        SignificantDigits(per_second(left)),
        SignificantDigits(per_second(intended)),
        each = SignificantDigits(each),
    )
}

/// A number with so many significant digits, and no more.
struct SignificantDigits(f64);

impl std::fmt::Display for SignificantDigits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = f.precision().unwrap_or(3) as i32;
        let whole = self.0.abs().max(f64::MIN_POSITIVE).log10().floor() as i32 + 1;
        let factor = 10f64.powi(digits - whole);
        write!(f, "{}", (self.0 * factor).round() / factor)
    }
}

/// ND-90-02: the generator was late.
fn lateness(plan: &Plan, sum: &GroupSum, group: &GroupPlan, reasons: &mut Vec<Reason>) {
    let limit = plan.profile.validity.lateness_p99;
    let late = Quantiles::from(&sum.measured.lateness).p99;
    if late > limit.ns() {
        let what = format!("generator lateness p99 {:.1} ms (limit {limit})", late as f64 / 1e6);
        let (value, limit) = (late as f64, limit.ns() as f64);
        reasons.push(Reason { code: "ND-90-02", group: Some(group.name.clone()), what, value, limit });
    }
}

/// ND-90-03: a worker had no CPU.
fn starved(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    let limit = evidence.plan.profile.validity.starved;
    for worker in evidence.workers.iter().filter(|worker| worker.starved > limit) {
        let share = worker.starved * 100.0;
        let what = format!(
            "worker {} waited for core {} in {share:.0} % of the measure phase",
            worker.worker, worker.core
        );
        reasons.push(Reason { code: "ND-90-03", group: None, what, value: worker.starved, limit });
    }
}

/// ND-90-04: the generator lost something itself.
fn check_generator_loss(
    group: Option<&GroupPlan>,
    count: u64,
    what: impl FnOnce() -> String,
    reasons: &mut Vec<Reason>,
) {
    if count > 0 {
        let group = group.map(|group| group.name.clone());
        reasons.push(Reason { code: "ND-90-04", group, what: what(), value: count as f64, limit: 0.0 });
    }
}

/// The causes of failures of the generator's own, for a sentence to end with; what they mostly are where none is known.
fn own_causes(measured: &Tally) -> String {
    let causes = measured.causes().into_iter().flat_map(|causes| causes.of(Failure::Local));
    let named: Vec<_> = causes.map(|(cause, count)| format!("{cause} × {count}")).collect();
    if named.is_empty() { " (ports, descriptors, buffers)".into() } else { format!(": {}", named.join(", ")) }
}

/// Whether the port receives what is measured.
fn measures(plan: &Plan, name: &str) -> bool {
    match &plan.profile.transport {
        Transport::Dpdk(dpdk) => {
            dpdk.ports.iter().any(|port| port.name == name && port.role == Role::Generator)
        }
        Transport::Sockets(_) => false,
    }
}

/// ND-90-05 and ND-90-06: the run did not last as long as it should.
fn check_duration(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    let mut broken = |what| {
        reasons.push(Reason { code: "ND-90-06", group: None, what, value: 1.0, limit: 0.0 });
    };
    if let Some(error) = evidence.error {
        broken(error.what.clone());
    }
    for (worker, end) in &evidence.lost {
        broken(format!("worker {worker} was lost {:.1} s into the run", end.0 as f64 / 1e9));
    }
    if let Some((value, limit)) = evidence.cut {
        let what = format!("the measure phase lasted {value:.1} s of {limit:.1} s");
        reasons.push(Reason { code: "ND-90-05", group: None, what, value, limit });
    }
}
