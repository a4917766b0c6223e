//! The profile: everything that fixes a run's traffic, as JSON with a published schema.
//!
//! [`load`] reads one strictly and says precisely what is wrong with a bad one; [`Profile`] is what the
//! transports build from.

mod address;
mod advice;
mod bounded;
pub mod ceiling;
mod census;
mod check;
mod clash;
pub mod data;
mod error;
pub mod file;
pub mod frame;
pub mod graph;
pub mod impairment;
mod load;
mod metric;
mod model;
mod named_files;
mod offload;
mod placement;
mod resolve;
mod rss;
mod schema;
pub mod secret;
pub mod source;
mod target;
mod text;
mod threshold;
mod transport;

pub use address::{Address, OneOrMany};
pub use advice::{advise, advise_here};
pub use census::count as count_json;
pub use check::{check_capture, check_port};
pub use error::Error;
pub use frame::Frame;
pub use impairment::{DirectionTimeline, Impairment};
pub use load::{load, load_resolved, read, read_value};
pub use metric::{Metric, MetricKind, Stat};
pub use model::that as models_that;
pub use offload::{Offload, Offloads, Rule};
pub use placement::check_worker;
pub use resolve::Resolve;
pub use rss::Rss;
pub use schema::schema;
pub use target::Target;
pub use text::printable;
pub use transport::{Dpdk, Forward, Port, Role, Sockets, Threads, Transport, Vlans, Worker};

use ceiling::{GROUPS, SOURCES, STAGES, TARGETS, THRESHOLDS};
use models::Params;
use packet::frame::MacAddress;
use protocol::unit::{Interval, Rate, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Six hexadecimal bytes with colons or hyphens.
pub fn parse_mac(text: &str) -> Option<[u8; 6]> {
    text.parse().ok().map(|MacAddress(mac)| mac)
}

/// A netdyno profile: which devices speak what to whom, how the load is shaped, and what is good enough.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Where this format's schema is; for editors, not read.
    #[serde(rename = "$schema", default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// A short name: letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// What the profile is for, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Seed of everything random, so that a run can be repeated. Default 1.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// How long each part of the trial takes.
    #[serde(default)]
    pub phases: Phases,
    /// Named addresses under test, like `{"broker": "mqtt://10.0.0.2:1883"}`. A group names one of them,
    /// and `--target NAME=URL` replaces it without a change to the profile.
    #[serde(default, deserialize_with = "bounded::map::<_, _, TARGETS>")]
    #[schemars(extend("x-netdyno-secret" = "query"))]
    pub targets: BTreeMap<String, Target>,
    /// Tables of values for templates: a CSV file as `"users.csv"`, of which `{users.name}` is a cell, or tables by name
    /// as `{"users": "users.csv", "items": {"file": "items.csv", "rows": "random"}}`. Each device keeps one row unless
    /// `rows` says otherwise. Default: none.
    #[serde(default, skip_serializing_if = "data::Tables::is_empty")]
    pub data: data::Tables,
    /// What carries the traffic. Default: kernel sockets.
    #[serde(default)]
    pub transport: Transport,
    /// Groups of like devices, at most 1000; all run at the same time.
    #[serde(default, deserialize_with = "bounded::list::<_, _, GROUPS>")]
    #[schemars(length(max = 1000))]
    pub groups: Vec<Group>,
    /// When the measurement itself cannot be trusted.
    #[serde(default)]
    pub validity: Limits,
    /// Conditions on the results, at most 1000: all must hold for the verdict `pass`.
    #[serde(default, deserialize_with = "bounded::list::<_, _, THRESHOLDS>")]
    #[schemars(length(max = 1000))]
    pub thresholds: Vec<Threshold>,
    /// Packets to keep for Wireshark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<Capture>,
}

fn default_seed() -> u64 {
    1
}

/// The parts of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Phases {
    /// Load is on but does not count yet. Default 2s.
    pub warmup: Interval,
    /// What the result is made of. Default 10s.
    pub measure: Interval,
    /// Longest wait for answers still on their way, and for devices to end in good order; ends early
    /// when nothing is left to wait for. Default 3s.
    pub drain: Interval,
    /// Spacing of the points in series and live views; in a long run a multiple of it, so that a series has at most
    /// 10000 points, or 50000 over all groups. Default 1s.
    pub sample: Interval,
}

impl Default for Phases {
    fn default() -> Self {
        Self {
            warmup: Interval::secs(2),
            measure: Interval::secs(10),
            drain: Interval::secs(3),
            sample: Interval::secs(1),
        }
    }
}

/// Like devices: one protocol model, one target, one load shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Name of the group, used in metrics (`sensors.delay.publish.p99`).
    pub name: String,
    /// The protocol and its parameters.
    pub model: Params,
    /// Name of a target of this profile, or a URL.
    #[schemars(extend("x-netdyno-secret" = "query"))]
    pub target: String,
    /// Which addresses of the target's name are used. `first`: the first that works, in the order of RFC 6724 with IPv6 and
    /// IPv4 in turn (RFC 8305); a device that cannot connect tries the next. `v4`, `v6`: the same, one family alone. `all`:
    /// devices are spread over all of them. Default `first`.
    #[serde(default, skip_serializing_if = "Resolve::is_default")]
    pub resolve: Resolve,
    /// How many virtual devices, at most 10,000,000. Default 1.
    #[serde(default = "one")]
    pub devices: u32,
    /// When flows begin. Default: closed loop, every device starts again when it is done.
    #[serde(default)]
    pub load: Load,
    /// Messages to send over all devices, exactly; the run ends when those of every group are sent and answered. A flow that
    /// fails before it sends one counts as one. `phases.measure` is the longest that it may take. There can be no warm-up.
    /// Default: no total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Local addresses to send from, used in turn: `"10.0.0.1"`, `"10.0.0.0/28"` (its hosts) or
    /// `"10.0.0.1-10.0.0.9"`. One address has about 28,000 ports towards one server; more devices need
    /// more addresses. Default: the kernel chooses.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list::<_, _, SOURCES>"
    )]
    #[schemars(length(max = 1000))]
    pub source: Vec<String>,
    /// Longest wait for a connection to come up. Default 5s.
    #[serde(default = "five_seconds")]
    pub connect_timeout: Interval,
    /// A device that waits longer than this for an answer, or for a connection, is stalled. Default 2s.
    #[serde(default = "two_seconds")]
    pub stall: Interval,
    /// TLS settings, for targets with a TLS scheme.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// DPDK only: what the frames are made of, and how fast they come. Default: UDP as the model has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<Frame>,
    /// DPDK only: the port that sends and receives. Default: the first with the role `generator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
}

fn one() -> u32 {
    1
}

fn two_seconds() -> Interval {
    Interval::secs(2)
}

fn five_seconds() -> Interval {
    Interval::secs(5)
}

/// Whom a TLS client trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// File with the CA certificates to trust (PEM). Default: the web's public authorities.
    #[schemars(extend("format" = "file"))]
    pub ca: Option<String>,
    /// Accept any server: neither its certificate nor its signature is checked. For test beds only. Default false.
    pub insecure: bool,
    /// Name to ask for and to check, when it is not the target's host.
    pub server_name: Option<String>,
    /// File with the client's certificate and those of the CAs between (PEM), for servers that ask for one. Default: none.
    #[schemars(extend("format" = "file"))]
    pub cert: Option<String>,
    /// File with the key of `cert` (PEM, without a passphrase). Default: the file of `cert`.
    #[schemars(extend("format" = "file"))]
    pub key: Option<String>,
}

/// When flows begin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Load {
    /// Flows begin at given times, whether or not earlier ones are done. When every device is busy a
    /// flow waits for one, and its delay counts from when it should have begun.
    Open(Open),
    /// Each device begins its next flow when the last one is done.
    Closed(Closed),
}

impl Default for Load {
    fn default() -> Self {
        Load::Closed(Closed::default())
    }
}

/// Arrivals that do not wait for the system under test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// Flows per second, over the whole group, at most `1000M/s`; each stage may change it.
    pub rate: Rate,
    /// How the gaps between arrivals are spread. Default constant.
    #[serde(default)]
    pub arrival: Arrival,
    /// Ramps and steps, one after the other from the start of the run. After the last, its rate stays.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list::<_, _, STAGES>"
    )]
    #[schemars(length(max = 10000))]
    pub stages: Vec<RateStage>,
}

/// How arrivals are spread in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// Equal gaps.
    #[default]
    Constant,
    /// Exponential gaps: independent devices.
    Poisson,
    /// Gaps uniform between 0 and twice the mean.
    Uniform,
}

/// A stretch of time over which the rate goes, in a straight line, to `rate`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateStage {
    /// How long the change takes; `"0s"` is a step.
    pub over: Interval,
    /// Flows per second at its end.
    pub rate: Rate,
}

/// Devices that go round and round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Closed {
    /// Rest between the end of a device's flow and the start of its next. Default 0s.
    pub flow_interval: Interval,
    /// Time over which the devices come alive, evenly. Default 0s.
    pub ramp: Interval,
    /// Flows per device; 0 = until the load ends. Default 0.
    pub flows: u32,
    /// How many devices are at work: goes in a straight line to `devices` over each stage, one after the
    /// other. Where it goes down, devices end their flow when the message on its way is answered. Replaces `ramp`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "bounded::list::<_, _, STAGES>")]
    #[schemars(length(max = 10000))]
    pub stages: Vec<DeviceStage>,
    /// Whether a trial's load factor changes the number of devices. `false` for devices that others call, and that are
    /// to be there at any load. Default `true`.
    pub scales: bool,
}

impl Default for Closed {
    fn default() -> Self {
        Self {
            flow_interval: Interval::secs(0),
            ramp: Interval::secs(0),
            flows: 0,
            stages: Vec::new(),
            scales: true,
        }
    }
}

/// A stretch of time over which the number of devices at work goes to `devices`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceStage {
    /// How long the change takes.
    pub over: Interval,
    /// Devices at work at its end; at most the group's `devices`.
    pub devices: u32,
}

/// When a result cannot be trusted, whatever it says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The generator's own lateness, 99th percentile. Default 10ms.
    pub lateness_p99: Interval,
    /// Least share of the intended load that was offered. Default 0.99.
    pub offered: f64,
    /// Largest share of the time that a worker waited for its CPU. Default 0.2.
    pub starved: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { lateness_p99: Interval::ms(10), offered: 0.99, starved: 0.2 }
    }
}

/// A condition on a metric. Exactly one of `max` and `min`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    /// What is judged: `GROUP.delay.NAME.STAT` (min, mean, max, or a percentile like p50, p95, p99.9; nanoseconds),
    /// `GROUP.loss` (ratio), `GROUP.errors` or `GROUP.errors.KIND` (count), `GROUP.COUNTER` (count) or
    /// `GROUP.COUNTER.rate` (per second), `GROUP.lateness.STAT`.
    pub metric: Metric,
    /// Largest value that passes: a number, or a quantity such as `"50ms"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Bound>,
    /// Smallest value that passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Bound>,
    /// Whether the bound itself fails too: less than `max`, more than `min`. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// Confidence with which the condition must hold over the repetitions. Default 0.95.
    #[serde(default = "default_confidence")]
    pub confidence: f64,
}

fn default_confidence() -> f64 {
    0.95
}

/// A limit: a plain number, or a quantity with its unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Bound {
    /// A count, a share, or per second. A time has a unit, unless it is 0.
    Number(f64),
    /// `"50ms"` for delays, `"1000/s"` for rates.
    Quantity(String),
}

/// Packets to keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Capture {
    /// Which packets, in the language of pcap-filter(7), like `tcp port 1883`. Default: all.
    pub filter: String,
    /// Interface to capture on; for DPDK the port's name. Default: the one that leads to the first target.
    pub interface: Option<String>,
    /// Stop after this much. Default 16MiB.
    pub limit: Size,
    /// Bytes kept of each packet. Default 65535.
    pub snap: u32,
}

impl Default for Capture {
    fn default() -> Self {
        Self { filter: String::new(), interface: None, limit: Size(16 << 20), snap: 65_535 }
    }
}
