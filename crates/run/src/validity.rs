//! Validity of a result, judged by what the generator did: each reason why a result cannot be trusted, with its code, value and
//! limit.

use crate::group_sum::GroupSum;
use crate::interfaces::Interfaces;
use crate::plan::{GroupPlan, Plan};
use crate::result::{Distribution, Reason, Validity, WorkerPoint};
use crate::sample::ElementCounts;
use crate::setup_error::SetupError;
use profile::{Load, Role, Transport};
use protocol::meter::Failure;
use protocol::time::Time;
use std::collections::BTreeMap;

/// What the verdict rests on.
pub(crate) struct Evidence<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The sums per group, in the plan's order.
    pub groups: &'a [GroupSum],
    /// CPU time of each worker over the measure phase.
    pub workers: &'a [WorkerPoint],
    /// The ports' counters.
    pub ports: &'a Interfaces,
    /// The elements' counters.
    pub elements: &'a BTreeMap<String, ElementCounts>,
    /// What broke the run.
    pub error: Option<&'a SetupError>,
    /// Workers that ended without a last sample, and until when they reported.
    pub lost: Vec<(usize, Time)>,
    /// If the measure phase was cut short: how long it was and should have been, seconds.
    pub cut: Option<(f64, f64)>,
}

/// All reasons, worst evidence first: what the generator offered, then what it lost, then what ended it.
pub(crate) fn judge(evidence: &Evidence<'_>) -> Validity {
    let mut reasons = Vec::new();
    let groups = || evidence.groups.iter().zip(&evidence.plan.groups);
    for (sum, plan) in groups() {
        offered(evidence.plan, sum, plan, &mut reasons);
        lateness(evidence.plan, sum, plan, &mut reasons);
        let local = sum.measured.counts.failures[Failure::Local as usize];
        let what = || format!("{local} failures of the generator's own (ports, descriptors, buffers)");
        lost(Some(plan), local, what, &mut reasons);
    }
    for (sum, plan) in groups() {
        let drops = sum.measured.counts.receive_drops;
        let what = || {
            format!(
                "{drops} datagrams dropped by our own receive queue: raise sysctl net.core.rmem_max, or use more cores or \
                 devices"
            )
        };
        lost(Some(plan), drops, what, &mut reasons);
    }
    for (port, counters) in evidence.ports.iter().filter(|(name, _)| measures(evidence.plan, name)) {
        let drops = counters.rx_dropped;
        let what = || {
            format!(
                "{drops} frames dropped by the receive queue of port {port}: give its receiver a worker of its own, or the \
                 port more queues"
            )
        };
        lost(None, drops, what, &mut reasons);
    }
    starved(evidence, &mut reasons);
    for (port, counters) in evidence.ports {
        let drops = counters.tx_dropped;
        let what = || format!("{drops} frames refused by the driver of port {port}, and not sent");
        lost(None, drops, what, &mut reasons);
    }
    for element in evidence.elements.values() {
        // An impaired port: its other drops are configured.
        let Some(&full) = element.drops.get("queue_full") else { continue };
        let what = format!("{}: no memory to delay {full} more packets", element.name);
        reasons.push(Reason { code: "ND-90-07", group: None, what, value: full as f64, limit: 0.0 });
    }
    ended(evidence, &mut reasons);
    Validity { valid: reasons.is_empty(), reasons }
}

/// ND-90-01: less was offered than intended.
fn offered(plan: &Plan, sum: &GroupSum, group: &GroupPlan, reasons: &mut Vec<Reason>) {
    let (measured, happened) = (&sum.measured.counts, &sum.happened);
    let flows = (measured.flows_intended, measured.flows_started, happened.flows_started);
    let messages = (measured.messages_intended, measured.messages_sent, happened.messages_sent);
    let limit = plan.profile.validity.offered;
    for ((intended, offered, left), is_flows) in [(flows, true), (messages, false)] {
        let share = if intended == 0 { 1.0 } else { offered as f64 / intended as f64 };
        if share >= limit {
            continue;
        }
        let what = if is_flows { "flows started" } else { "messages sent" };
        // What is meant for the phase hardly gets its turn behind a backlog from before it.
        let backlog = match left > offered {
            true => format!("; with the backlog from before, {left}"),
            false => String::new(),
        };
        let short = (1.0 - share) * 100.0;
        let held = held_back(sum, group, is_flows);
        let what = format!("{offered} of {intended} intended {what} (−{short:.1} %){backlog}{held}");
        reasons.push(Reason { code: "ND-90-01", group: Some(group.name.clone()), what, value: share, limit });
    }
}

/// That it was the server, and not the generator, which kept devices from offering what was intended.
fn held_back(sum: &GroupSum, plan: &GroupPlan, flows: bool) -> String {
    // with a device free, it was the generator that had no time
    let busy =
        flows && matches!(plan.load, Load::Open(_)) && sum.points.1 > 0 && 2 * sum.points.1 >= sum.points.0;
    if busy {
        let devices = plan.devices;
        return format!(
            "; all {devices} devices were waiting for replies: more `devices`, or the server is too slow"
        );
    }
    match sum.stalled.filter(|stalled| !flows && plan.waits && stalled.time > 0) {
        Some(stalled) => format!(
            "; devices were stalled for {:.1} s of device time: the server is too slow, or stopped answering",
            stalled.time as f64 / 1e9
        ),
        None => String::new(),
    }
}

/// ND-90-02: the generator was late.
fn lateness(plan: &Plan, sum: &GroupSum, group: &GroupPlan, reasons: &mut Vec<Reason>) {
    let limit = plan.profile.validity.lateness_p99;
    let late = Distribution::brief(&sum.measured.lateness).p99;
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
fn lost(group: Option<&GroupPlan>, count: u64, what: impl FnOnce() -> String, reasons: &mut Vec<Reason>) {
    if count > 0 {
        let group = group.map(|group| group.name.clone());
        reasons.push(Reason { code: "ND-90-04", group, what: what(), value: count as f64, limit: 0.0 });
    }
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
fn ended(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
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
