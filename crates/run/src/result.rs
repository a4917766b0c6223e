//! The trial result and the points of its series, as they leave the daemon (docs/reference/rpc.md).

use crate::graph::{PortFacts, PortImpairment};
use crate::interfaces::Interfaces;
use crate::pauses::Pauses;
use crate::plan::Verified;
use crate::sample::ElementCounts;
use base64::Engine as _;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer as _, V2DeflateSerializer};
use protocol::cause::Causes;
use protocol::describe::Description;
use protocol::meter::{Counts, Failure, Phase};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A distribution of times, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Distribution {
    /// How many values.
    pub count: u64,
    /// Smallest.
    pub min: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Largest.
    pub max: u64,
    /// 99.9th percentile less the smallest (RFC 5481 PDV); in results, for delays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pdv: Option<u64>,
    /// Standard deviation; in results, not in points of a series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sd: Option<f64>,
    /// Mean change from one message of a device to its next (RFC 5481 IPDV, magnitude); in results, for delays
    /// of confirmed messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<f64>,
    /// All of it: HdrHistogram V2, deflated, base64; in results, not in points of a series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hdr: Option<String>,
    /// Values by upper bound, ns, of [`BUCKETS`] that have any, the smallest bound first; beyond the last bound they
    /// are in `count` alone. In points of a series, for delays.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<(u64, u64)>,
}

/// Upper bounds of the buckets in points of a series, ns: 1, 2.5 and 5 in each decade from 10 µs to 100 s.
pub const BUCKETS: [u64; 22] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    25_000_000_000,
    50_000_000_000,
    100_000_000_000,
];

impl Distribution {
    /// The numbers a live view shows.
    pub fn brief(h: &Histogram<u64>) -> Self {
        let at = |q| if h.is_empty() { 0 } else { h.value_at_quantile(q) };
        Self {
            count: h.len(),
            min: if h.is_empty() { 0 } else { h.min() },
            mean: if h.is_empty() { 0.0 } else { h.mean() },
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: if h.is_empty() { 0 } else { h.max() },
            sd: None,
            pdv: None,
            jitter: None,
            hdr: None,
            buckets: Vec::new(),
        }
    }

    /// With the buckets, as points of a series have it.
    pub fn bucketed(h: &Histogram<u64>) -> Self {
        let mut counts = [0; BUCKETS.len()];
        for recorded in h.iter_recorded() {
            let value = h.lowest_equivalent(recorded.value_iterated_to());
            let at = BUCKETS.partition_point(|bound| *bound < value);
            if let Some(count) = counts.get_mut(at) {
                *count += recorded.count_at_value();
            }
        }
        let buckets = BUCKETS.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect();
        Self { buckets, ..Self::brief(h) }
    }

    /// With the whole histogram.
    pub fn full(h: &Histogram<u64>) -> Self {
        let mut bytes = Vec::new();
        let packed = V2DeflateSerializer::new().serialize(h, &mut bytes).is_ok();
        Self {
            sd: Some(if h.is_empty() { 0.0 } else { h.stdev() }),
            hdr: packed.then(|| base64::engine::general_purpose::STANDARD.encode(&bytes)),
            ..Self::brief(h)
        }
    }
}

/// Counters by name, the model's own among them, and failures by kind (only those that occurred).
pub fn counts(c: &Counts, own: &[u64], model: &Description) -> Value {
    let own = model.counters.iter().map(|counter| counter.name).zip(own.iter().copied());
    let mut map: Map<String, Value> =
        c.named().into_iter().chain(own).map(|(k, v)| (k.to_owned(), json!(v))).collect();
    let failures: Map<String, Value> = Failure::ALL
        .iter()
        .zip(c.failures)
        .filter(|(_, n)| *n > 0)
        .map(|(f, n)| (f.name().to_owned(), json!(n)))
        .collect();
    map.insert("failures".to_owned(), failures.into());
    map.into()
}

/// Failures by kind and cause, where there is more to tell than the kind.
pub fn by_kind(causes: &Causes) -> BTreeMap<&'static str, BTreeMap<String, u64>> {
    let of = |kind: &Failure| {
        let told: BTreeMap<String, u64> =
            causes.of(*kind).map(|(detail, count)| (detail.to_string(), count)).collect();
        (!told.is_empty()).then(|| (kind.name(), told))
    };
    Failure::ALL.iter().filter_map(of).collect()
}

/// The model's indices by name; null where one is not defined: nothing was counted that it is a share of.
pub fn indices(c: &Counts, own: &[u64], model: &'static Description) -> BTreeMap<&'static str, Option<f64>> {
    let fixed = c.named();
    let count = |name: &str| {
        let of_all = fixed.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let at = || model.counters.iter().position(|counter| counter.name == name);
        of_all.or_else(|| own.get(at()?).copied()).unwrap_or(0)
    };
    model.indices.iter().map(|index| (index.name, index.of(count))).collect()
}

/// One point of the series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// End of the interval, seconds since the start.
    pub t: f64,
    /// Its length, seconds: each point begins where the one before ended.
    pub dt: f64,
    /// The phase it lies in.
    pub phase: Phase,
    /// Seconds since the start.
    pub elapsed: f64,
    /// Seconds until the end of draining, at most.
    pub left: f64,
    /// Per group.
    pub groups: BTreeMap<String, GroupPoint>,
    /// Per worker.
    pub workers: Vec<WorkerPoint>,
    /// Counters of this interval, per interface.
    pub interfaces: Interfaces,
}

/// One group in one interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupPoint {
    /// What was counted, whichever phase it was meant for.
    pub counts: Value,
    /// Failures of this interval by kind and cause.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub causes: BTreeMap<&'static str, BTreeMap<String, u64>>,
    /// Devices with a flow under way at the end of the interval.
    pub devices_active: u32,
    /// Devices that had been waiting for an answer for longer than `stall` then; null where none is waited for.
    pub waiting: Option<u32>,
    /// Delays by name.
    pub delays: BTreeMap<&'static str, Distribution>,
    /// The generator's own lateness.
    pub lateness: Distribution,
}

/// One worker in one interval, or over the measure phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerPoint {
    /// Its number.
    pub worker: usize,
    /// Its core.
    pub core: u16,
    /// Share of the time that it ran.
    pub cpu: f64,
    /// Share of the time that it could have run but had no CPU.
    pub starved: f64,
    /// Times in a row in which it had none, long enough for rings to overflow (dpdk).
    pub pauses: Option<Pauses>,
    /// Turns that took long by its own work (dpdk).
    pub long_turns: Option<Pauses>,
}

/// Why a result cannot be trusted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reason {
    /// Stable code, `ND-90-…`.
    pub code: &'static str,
    /// The group it is about, if one.
    pub group: Option<String>,
    /// In words, with the numbers.
    pub what: String,
    /// The value.
    pub value: f64,
    /// What it should have kept to.
    pub limit: f64,
}

/// Validity: whether the generator offered what the profile asks for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Validity {
    /// It did.
    pub valid: bool,
    /// Why not.
    pub reasons: Vec<Reason>,
}

/// Per second of the measure phase, by when it happened; what was intended, by when it was due.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Flows that the open loop intended.
    pub flows_intended: f64,
    /// Messages that fell due.
    pub messages_intended: f64,
    /// Messages sent.
    pub messages_sent: f64,
    /// Messages confirmed.
    pub messages_delivered: f64,
    /// Payload bits sent.
    pub bits_sent: f64,
    /// Payload bits received.
    pub bits_received: f64,
}

/// What came out of order (RFC 4737).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Disorder {
    /// Share of the delivered messages that came after a later one (section 4.1).
    pub ratio: f64,
    /// Share of them that came after three later ones at least, one right after the other: what TCP takes for lost
    /// (section 5, 3-reordering).
    pub by_three: f64,
    /// How many arrivals too late: reordering extents (section 4.2).
    pub extent: Distribution,
    /// How much time too late: late time offsets (section 4.3).
    pub late: Distribution,
    /// Share of them that did not come at their place (RFC 5236).
    pub displaced: f64,
    /// How far from their places they came, early or late.
    pub displacement: Distribution,
    /// How many waited for one expected when each had come.
    pub waiting: Distribution,
    /// The densities themselves.
    pub density: Density,
}

/// Reorder density and reorder buffer-occupancy density (RFC 5236), as frequencies.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Density {
    /// DT and BT: what is later is taken for lost.
    pub threshold: usize,
    /// FD: how many came so many places late; early is negative.
    pub displaced: BTreeMap<i64, u64>,
    /// How many came farther from their place than the threshold, or after it was given up.
    pub displaced_beyond: u64,
    /// FB: after how many arrivals so many waited.
    pub waiting: BTreeMap<u64, u64>,
    /// How many came after the buffer was given up that waited for them.
    pub waited_beyond: u64,
}

/// What was lost (RFC 3357).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LossPattern {
    /// The loss constraint: a loss is noticeable that comes no more than so many messages after the one before.
    pub delta: u64,
    /// Share of the losses that are noticeable (section 6.1); null when nothing was lost.
    pub noticeable: Option<f64>,
    /// How many were lost in a row, by loss period (section 6.3).
    pub length: Distribution,
    /// From each loss to the one before (section 5.4.1).
    pub distance: Distribution,
    /// From the first loss of a period to the last of the one before (section 6.4).
    pub between: Distribution,
}

/// Waits for answers that were longer than the group's `stall`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StallResult {
    /// What a wait must be longer than, ns.
    pub limit: u64,
    /// Device time of the measure phase spent in such waits, seconds.
    pub time: f64,
    /// The same as share of all device time.
    pub share: f64,
    /// The longest wait that reached into the measure phase, answered or not, ns.
    pub longest: u64,
    /// Share of the devices that were in such a wait when the measure phase ended.
    pub waiting: f64,
}

/// One kind of failure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Failures {
    /// Its kind.
    pub kind: &'static str,
    /// How often in the measure phase, draining included: what thresholds judge.
    pub count: u64,
    /// How often in the whole run.
    pub total: u64,
    /// What the first one looked like.
    pub example: Option<String>,
    /// By cause, as far as it is known: the most frequent first.
    pub causes: Vec<CauseCount>,
    /// In the measure phase: those for whose causes the table had no room.
    pub other: u64,
}

/// One cause of failures of a kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CauseCount {
    /// What it was: `404`, `CONNACK 0x05 not authorized`, `certificate expired`.
    pub cause: String,
    /// How often in the measure phase.
    pub count: u64,
    /// How often in the whole run.
    pub total: u64,
    /// What the first one looked like.
    pub example: Option<String>,
}

/// One address of a group's target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AddressResult {
    /// With its port.
    pub address: String,
    /// Whether load went to it.
    pub used: bool,
    /// Connections that came up, or sockets of datagrams opened to it; 0 where the transport opens none.
    pub opened: u64,
    /// Times that it could not be reached.
    pub failed: u64,
    /// Why, the last time.
    pub error: Option<String>,
}

/// One group over the trial.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupResult {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: &'static str,
    /// Where its load went.
    pub target: String,
    /// The addresses that its target's name stands for, in the order in which they are tried.
    pub addresses: Vec<AddressResult>,
    /// How many devices.
    pub devices: u32,
    /// Messages meant for the measure phase, and what failed in it.
    pub measured: Value,
    /// Messages of all phases: what the system under test should have seen.
    pub total: Value,
    /// Figures that follow from the measured counters, by the names that the model gives them.
    pub indices: BTreeMap<&'static str, Option<f64>>,
    /// Rates.
    pub rates: Rates,
    /// Share of the measured messages that were sent and never delivered; null where nothing confirms them.
    pub loss: Option<f64>,
    /// How much of a reply was compared with what was sent: every byte of its `payload`, only the `signature`; null where
    /// replies are not what was sent, or there are none.
    pub verified: Option<Verified>,
    /// Delays by name.
    pub delays: BTreeMap<&'static str, Distribution>,
    /// How the delays of confirmed messages changed from one message of a device to its next, by name (RFC 5481
    /// IPDV, magnitude).
    pub ipdv: BTreeMap<&'static str, Distribution>,
    /// What came out of order; null where messages have no order, or none was delivered.
    pub reordering: Option<Disorder>,
    /// How what was lost lay; null likewise.
    pub losses: Option<LossPattern>,
    /// The generator's own lateness.
    pub lateness: Distribution,
    /// Whether every message asks for an answer, so that silence is loss.
    pub confirmed: bool,
    /// Stalls; null where nothing is waited for, or the transport does not know.
    pub stalls: Option<StallResult>,
    /// Failures by kind.
    pub errors: Vec<Failures>,
}

/// The phases as they took place, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PhaseLengths {
    /// Warm-up.
    pub warmup: f64,
    /// Measure phase.
    pub measure: f64,
    /// Drain.
    pub drain: f64,
}

/// A change of a port's impairment by `run.impair`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Seconds since the start.
    pub t: f64,
    /// The port.
    pub port: String,
    /// What held from then on.
    #[serde(flatten)]
    pub impairment: PortImpairment,
}

/// The result of one trial.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrialResult {
    /// The run's id.
    pub run: String,
    /// The profile as run, targets filled in.
    pub profile: Value,
    /// `sockets` or `dpdk`.
    pub transport: &'static str,
    /// The daemon's version.
    pub version: &'static str,
    /// When it began, UTC, RFC 3339.
    pub started: String,
    /// How long each phase was.
    pub phases: PhaseLengths,
    /// Why it ended before its time, if it did: `stopped`, `lease`, `failed`.
    pub stopped: Option<&'static str>,
    /// What broke it, if something did.
    pub error: Option<crate::SetupError>,
    /// Changes of impairment by `run.impair` while it ran, in order (dpdk).
    pub changes: Vec<Change>,
    /// Whether it can be trusted.
    pub validity: Validity,
    /// Per group.
    pub groups: Vec<GroupResult>,
    /// Per worker, over the measure phase.
    pub workers: Vec<WorkerPoint>,
    /// Per interface, over the whole run.
    pub interfaces: Interfaces,
    /// Each port's driver and offloads, and where which work is done (dpdk).
    pub ports: Vec<PortFacts>,
    /// Per element (dpdk).
    pub elements: Vec<ElementCounts>,
    /// The series.
    pub series: Vec<Point>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_in_the_bucket_that_holds_it() {
        let mut h = Histogram::<u64>::new(3).expect("three digits");
        // at a bound, just above one, below the first and beyond the last
        for value in [1_000_000, 1_010_000, 5, 200_000_000_000] {
            h.record(value).expect("within range");
        }
        let found = Distribution::bucketed(&h);
        assert_eq!(found.buckets, [(10_000, 1), (1_000_000, 1), (2_500_000, 1)]);
        assert_eq!(found.count, 4);
    }
}
