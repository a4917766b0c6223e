//! The trial result and the points of its series, as they leave the daemon (docs/reference/rpc.md).

use crate::distribution::{BucketedQuantiles, Distribution, Quantiles};
use crate::graph::{PortFacts, PortImpairment};
use crate::interfaces::Interfaces;
use crate::pauses::Pauses;
use crate::plan::ReplyCheck;
use crate::rates::RateChange;
use crate::sample::ElementCounts;
use protocol::cause::Causes;
use protocol::describe::{Description, LoadUnit};
use protocol::meter::{Counts, Failure, Phase};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Counters by name, the model's own among them, and failures by kind (only those that occurred).
pub fn counts(c: &Counts, own: &[u64], model: &Description) -> Value {
    let own = model.counters.iter().map(|counter| counter.name).zip(own.iter().copied());
    let mut map: Map<String, Value> =
        c.named_counters().into_iter().chain(own).map(|(k, v)| (k.to_owned(), json!(v))).collect();
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
    model.indices.iter().map(|index| (index.name, index.of(|name| count(c, own, model, name)))).collect()
}

/// A counter by its name: one that every group has, or one of the model's own.
pub(crate) fn count(c: &Counts, own: &[u64], model: &Description, name: &str) -> u64 {
    let of_all = c.named_counters().iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    let at = || model.counters.iter().position(|counter| counter.name == name);
    of_all.or_else(|| own.get(at()?).copied()).unwrap_or(0)
}

/// One point of the series; counts are of the interval that ends at `t`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SeriesPoint {
    /// End of the interval, seconds since the start.
    pub t: f64,
    /// Its length, seconds: each point begins where the one before ended.
    #[schemars(extend("default" = 1.0))]
    pub dt: f64,
    /// The phase it lies in.
    pub phase: Phase,
    /// Seconds since the start.
    pub elapsed: f64,
    /// Seconds until the end of draining, at most.
    pub left: f64,
    /// Groups by name.
    pub groups: BTreeMap<String, GroupPoint>,
    /// Workers of the generator.
    pub workers: Vec<WorkerUsage>,
    /// Counters by interface, of this interval, as in the result.
    #[schemars(with = "BTreeMap<String, BTreeMap<String, u64>>")]
    pub interfaces: Interfaces,
}

/// One group within one point of the series.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct GroupPoint {
    /// Counts of this interval, whichever phase a message was meant for.
    #[schemars(with = "Counts")]
    pub counts: Value,
    /// Failures of this interval by kind and cause, where more is known than the kind.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub causes: BTreeMap<&'static str, BTreeMap<String, u64>>,
    /// Devices with a flow under way at its end.
    pub devices_active: u32,
    /// Devices that had been waiting for an answer longer than `stall` then; null where none is waited for.
    pub waiting: Option<u32>,
    /// Delays by name, of messages answered in it.
    pub delays: BTreeMap<&'static str, BucketedQuantiles>,
    /// Generator lateness: actual minus intended send time.
    pub lateness: Quantiles,
}

/// CPU time of one worker, in one interval or over the measure phase.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct WorkerUsage {
    /// Its number.
    pub worker: usize,
    /// The core it is pinned to.
    #[schemars(extend("default" = null))]
    pub core: u16,
    /// Share of the time that it ran.
    pub cpu: f64,
    /// Share of the time that it waited for its CPU.
    pub starved: f64,
    /// DPDK: times of 0.1 ms and more in which it wanted a CPU and had none.
    pub pauses: Option<Pauses>,
    /// DPDK: turns that took 1 ms and more by its own work, or by a host that does not tell what it takes.
    pub long_turns: Option<Pauses>,
}

/// Why a trial cannot be trusted.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Reason {
    /// Stable code, `ND-90-…`.
    pub code: &'static str,
    /// The group it is about; null: the whole run.
    pub group: Option<String>,
    /// In words, with the numbers.
    pub what: String,
    /// The value that was measured.
    #[schemars(extend("default" = null))]
    pub value: f64,
    /// The limit of that value.
    #[schemars(extend("default" = null))]
    pub limit: f64,
}

/// Whether the generator offered the load that the profile asks for.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Validity {
    /// Whether the measurement can be trusted.
    #[schemars(extend("default" = true))]
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
    /// The load in the group's `unit`: what was asked for.
    pub intended: f64,
    /// What was begun of it; of another unit than messages by when it was due.
    pub offered: f64,
    /// What of that ended well; likewise.
    pub delivered: f64,
}

/// Reordered messages (RFC 4737, RFC 5236).
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Reordering {
    /// Share of the delivered messages that came after a later one (RFC 4737 §4.1).
    pub ratio: f64,
    /// Share of them that came after three later ones at least, one right after the other: TCP takes them for lost
    /// (RFC 4737 §5, 3-reordering).
    pub by_three: f64,
    /// By how many arrivals they were late (RFC 4737 §4.2, reordering extent); messages, not nanoseconds.
    pub extent: Distribution,
    /// By how much time they were late (RFC 4737 §4.3, late time offset).
    pub late: Distribution,
    /// Share of the delivered messages that did not come at their place (RFC 5236 §3.2).
    pub displaced: f64,
    /// How far from their places all came, early or late (RFC 5236 §3.3); messages.
    pub displacement: Distribution,
    /// How many waited for one expected when each had come (RFC 5236 §3.8); messages.
    pub waiting: Distribution,
    /// The densities themselves.
    pub density: ReorderDensity,
}

/// Reorder density and reorder buffer-occupancy density (RFC 5236), as frequencies.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ReorderDensity {
    /// DT and BT: later messages count as lost (§3.4, §3.9).
    pub threshold: usize,
    /// FD (§3.5): how many came so many places late; early is negative.
    pub displaced: BTreeMap<i64, u64>,
    /// How many came farther from their place than the threshold, or after it was given up.
    pub displaced_beyond: u64,
    /// FB (§3.10): after how many arrivals so many waited for one expected.
    pub waiting: BTreeMap<u64, u64>,
    /// How many came after the buffer that waited for them was given up.
    pub waited_beyond: u64,
}

/// Pattern of the lost messages in their streams (RFC 3357).
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LossPattern {
    /// The loss constraint: a loss is noticeable if it comes no more messages after the one before.
    pub delta: u64,
    /// Share of the losses that are noticeable (§6.1); null when nothing was lost.
    pub noticeable: Option<f64>,
    /// How many were lost in a row, by loss period (§6.3).
    pub length: Distribution,
    /// Messages from each loss to the one before (§5.4.1); a stream's first has none.
    pub distance: Distribution,
    /// Messages from the first loss of a period to the last of the one before (§6.4).
    pub between: Distribution,
}

/// Waits for answers, or for connections, that were longer than the group's `stall`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct StallResult {
    /// A longer wait is a stall, ns.
    pub limit: u64,
    /// Device time of the measure phase spent in stalls, seconds.
    pub time: f64,
    /// The same as share of all device time.
    pub share: f64,
    /// The longest wait that reached into the measure phase, answered or not, ns; maybe within the limit.
    pub longest: u64,
    /// Share of all device time in waits of any length: near 1, every connection is busy.
    pub busy: f64,
    /// Share of the devices that were stalled when the measure phase ended.
    pub waiting: f64,
}

/// Mean answer times, from when a request was sent, of a server that answers later the more devices wait.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct SlowdownResult {
    /// With few devices waiting, ns.
    pub few: u64,
    /// With all, or nearly all, of them waiting, ns.
    pub busy: u64,
}

/// One kind of failure, how often, and an example.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FailureCount {
    /// `refused`, `timeout`, `unanswered`, `protocol`, ….
    pub kind: &'static str,
    /// How often in the measure phase, draining included: what thresholds judge.
    pub count: u64,
    /// How often in the whole run; null in results of a former version, whose `count` is that.
    #[schemars(extend("default" = null))]
    pub total: u64,
    /// What the first one looked like.
    pub example: Option<String>,
    /// By cause, the most frequent first, up to 16; failures of which nothing more is known are in none.
    pub causes: Vec<CauseCount>,
    /// In the measure phase: those for whose causes there was no room.
    pub other: u64,
}

/// One cause of failures of a kind.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CauseCount {
    /// A status of HTTP (`404`) or CoAP (`4.04`), a packet of MQTT with its reason code (`CONNACK 0x05 not authorized`), a fault
    /// of TLS (`certificate expired`, `alert handshake_failure`), another by its name.
    pub cause: String,
    /// How often in the measure phase.
    pub count: u64,
    /// How often in the whole run.
    #[schemars(extend("default" = null))]
    pub total: u64,
    /// What the first one looked like: the server's own words among it, up to 300 characters.
    pub example: Option<String>,
}

/// One address of a group's target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TargetAddress {
    /// With its port.
    pub address: String,
    /// Whether load went to it.
    pub used: bool,
    /// Connections that came up, or sockets of datagrams opened to it; 0 where the transport opens none.
    pub opened: u64,
    /// Times that it could not be reached, or failed a device that went on with another server.
    pub failed: u64,
    /// Messages of the whole run that it confirmed.
    #[schemars(extend("default" = 0))]
    pub delivered: u64,
    /// Why, the last time.
    pub error: Option<String>,
}

/// One group over the trial.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct GroupResult {
    /// Name in the profile.
    pub name: String,
    /// Its model.
    pub protocol: &'static str,
    /// The URL it was pointed at.
    pub target: String,
    /// The addresses that the name in the target stands for, in the order in which they are tried.
    pub addresses: Vec<TargetAddress>,
    /// Virtual devices.
    pub devices: u32,
    /// What tells its sessions from those of other runs, 16 hexadecimal digits for each host: Call-IDs of SIP have one in them.
    pub tokens: Vec<String>,
    /// Messages meant for the measure phase, and failures in it.
    #[schemars(with = "Counts")]
    pub measured: Value,
    /// Messages of all phases: what the system under test should have seen.
    #[schemars(with = "Counts")]
    pub total: Value,
    /// Figures that follow from the measured counters, by the names that the model gives them; null where nothing was counted
    /// that one is a share of.
    pub indices: BTreeMap<&'static str, Option<f64>>,
    /// Per second of the measure phase.
    #[schemars(with = "BTreeMap<String, f64>")]
    pub rates: Rates,
    /// What its load is counted in; null in older results: messages.
    #[schemars(extend("default" = null))]
    pub unit: LoadUnit,
    /// Share of sent messages that were not delivered, without those that our own receive queue dropped; null when none was sent,
    /// or none is ever confirmed.
    pub loss: Option<f64>,
    /// How much of a reply was compared with what was sent: every byte of its `payload`, or the `signature` alone, of frames that
    /// are the user's own. Null: replies are not what was sent, or there are none.
    pub verified: Option<ReplyCheck>,
    /// By name, of messages meant for the measure phase.
    pub delays: BTreeMap<&'static str, Distribution>,
    /// What the model measures that is no time, by name, in thousandths: a MOS of 4.41 is 4410.
    pub values: BTreeMap<&'static str, Distribution>,
    /// Magnitude of the change in delay from one message of a device to its next, by name (RFC 5481 §4.1).
    pub ipdv: BTreeMap<&'static str, Distribution>,
    /// Reordered messages; null where messages have no order, or none was delivered.
    pub reordering: Option<Reordering>,
    /// Pattern of the lost messages; null likewise.
    pub losses: Option<LossPattern>,
    /// Generator lateness: actual minus intended send time.
    pub lateness: Distribution,
    /// Whether every message asks for an answer, so that silence is loss; null in older results.
    #[schemars(extend("default" = null))]
    pub confirmed: bool,
    /// Waits that were too long; null where nothing is waited for, or the transport does not know (DPDK).
    pub stalls: Option<StallResult>,
    /// How much longer answers took with all devices waiting; null where they did not, or nothing is known of it.
    pub slowdown: Option<SlowdownResult>,
    /// Failures by kind, with an example.
    pub errors: Vec<FailureCount>,
}

/// How long each phase really took, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct PhaseLengths {
    /// Load on, not counted.
    pub warmup: f64,
    /// What the result is made of.
    pub measure: f64,
    /// Nothing new; answers awaited.
    pub drain: f64,
}

/// A change of a port's impairment by `run.impair`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ImpairmentChange {
    /// Seconds since the start.
    pub t: f64,
    /// The port.
    pub port: String,
    /// The impairment from then on.
    #[serde(flatten)]
    pub impairment: PortImpairment,
}

/// A time in which the run's clock stood still, by `run.pause`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct PausedInterval {
    /// Where the run's clock stood, in seconds since its start.
    pub t: f64,
    /// How long, in seconds.
    pub seconds: f64,
}

/// The result of one trial, as `run.result` gives it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TrialResult {
    /// The core's name for it.
    pub run: String,
    /// The profile as it was run, with targets filled in.
    #[schemars(with = "Map<String, Value>")]
    pub profile: Value,
    /// `sockets` or `dpdk`.
    #[schemars(extend("default" = "sockets"))]
    pub transport: &'static str,
    /// Version of the core.
    pub version: &'static str,
    /// UTC, RFC 3339.
    pub started: String,
    /// How long each phase really took.
    pub phases: PhaseLengths,
    /// Why it ended early: `stopped`, `lease` or `failed`.
    pub stopped: Option<&'static str>,
    /// {code, at, what, fix} when it failed.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub error: Option<crate::SetupError>,
    /// DPDK: paths changed by hand, `{t, port, impair, impair_timeline?}`: from `t` seconds on.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub changes: Vec<ImpairmentChange>,
    /// When the run was paused by hand, and for how long.
    pub paused: Vec<PausedInterval>,
    /// Rates of groups that were changed while the run went on.
    pub rates: Vec<RateChange>,
    /// Whether the generator did what was asked.
    pub validity: Validity,
    /// In the order of the profile.
    pub groups: Vec<GroupResult>,
    /// Workers of the generator, over the measure phase.
    pub workers: Vec<WorkerUsage>,
    /// Counters by interface, over the run. A DPDK port with connections has its TCP/IP stack's, too.
    #[schemars(with = "BTreeMap<String, BTreeMap<String, u64>>")]
    pub interfaces: Interfaces,
    /// DPDK: each port's driver and offloads, and who does which work, as `graph.describe` has it.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub ports: Vec<PortFacts>,
    /// DPDK: packets in and out, cycles, drops by reason of each element.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub elements: Vec<ElementCounts>,
    /// A point for each interval.
    pub series: Vec<SeriesPoint>,
}
