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
mod failover;
pub mod file;
pub mod frame;
pub mod graph;
pub mod impairment;
mod load;
mod metric;
mod model;
mod named_files;
mod offered_load;
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

pub use address::{Address, OneOrMany};
pub use advice::{advise, advise_here};
pub use census::count as count_json;
pub use check::{check_capture, check_port};
pub use error::Error;
pub use failover::{Failover, Server};
pub use frame::Frame;
pub use impairment::{DirectionTimeline, Impairment};
pub use load::{load, load_resolved, read, read_value};
pub use metric::{Metric, MetricKind, PORT_COUNTERS, Stat};
pub use model::models_where;
pub use offered_load::{Arrival, Closed, DeviceStage, Load, Open, RateStage, Turns};
pub use offload::{Offload, Offloads, Rule};
pub use placement::check_worker;
pub use resolve::Resolve;
pub use rss::Rss;
pub use schema::schema;
pub use target::Target;
pub use text::printable;

use ceiling::{CORES, ELEMENTS, GROUPS, PORTS, SOURCES, TARGETS, THRESHOLDS, WORKERS};
use graph::{ElementSpec, Replicas};
use models::Params;
use packet::frame::MacAddress;
use protocol::unit::{BitRate, Interval, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

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
    /// Servers in place of the addresses of the target's name: a device whose server is silent, refuses or says that it is
    /// unavailable goes on with the next. For models that can (`sip`). Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,
    /// How many virtual devices, at most 10,000,000. Default 1.
    #[serde(default = "one")]
    pub devices: u32,
    /// Number of the first device, at most 4,000,000,000: `{device}`, rows of tables and SIP users count from it. A fleet sets it, so
    /// that the devices of all its hosts have numbers of their own. Default 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(max = 4_000_000_000u32))]
    pub first_device: u32,
    /// Which other hosts share the group: constant arrivals and devices of a ramp come in turn with theirs. A fleet sets it.
    /// Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<Turns>,
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
    /// DPDK only: the port that sends and receives. Default: the first with the role `generator`; for devices with connections the
    /// one whose network has the target, else one with a gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
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

/// What carries the traffic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Transport {
    /// Kernel TCP, UDP, TLS and ICMP.
    Sockets(Sockets),
    /// Our own endpoints over DPDK ports.
    Dpdk(Dpdk),
}

impl Default for Transport {
    fn default() -> Self {
        Transport::Sockets(Sockets::default())
    }
}

/// Kernel sockets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sockets {
    /// Cores to work on, one pinned worker each. Default: one worker, on the last core.
    #[serde(deserialize_with = "bounded::list::<_, _, CORES>")]
    #[schemars(length(max = 1024))]
    pub cores: Vec<u16>,
}

/// DPDK ports and what runs on them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dpdk {
    /// The ports, at most 32.
    #[serde(deserialize_with = "bounded::list::<_, _, PORTS>")]
    #[schemars(length(max = 32))]
    pub ports: Vec<Port>,
    /// Use huge pages. Default false: slower on real NICs, works everywhere.
    #[serde(default)]
    pub huge_pages: bool,
    /// Memory for packets. Default 256MiB.
    #[serde(default = "default_memory")]
    pub memory: Size,
    /// Which worker runs which elements. Default: one worker runs all.
    #[serde(default, deserialize_with = "bounded::list::<_, _, WORKERS>")]
    #[schemars(length(max = 1024))]
    pub placement: Vec<Worker>,
    /// The elements by name, in place of those that the ports' roles stand for, which `netdyno graph PROFILE --expand` shows. A
    /// name may begin with a port's: `a.generator`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub elements: BTreeMap<String, ElementSpec>,
    /// With `elements`: what leads where, as in a graph's file: `a.rx -> a.receiver`.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list::<_, _, ELEMENTS>"
    )]
    #[schemars(length(max = 2048))]
    pub edges: Vec<String>,
    /// With `elements`: those of which there are several, each with its share of the packets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replicas: BTreeMap<String, Replicas>,
}

/// One DPDK port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Name within the profile.
    pub name: String,
    /// A PCI address (`0000:01:00.0`), a DPDK virtual device in full (`net_memif0,role=server`) or short
    /// (`af_packet:veth0`, `af_xdp:veth0`, `tap:tap0`, `virtio:/run/socket`, `null`), or `pair:NAME` — used by two
    /// ports, the two ends of a cable.
    pub device: String,
    /// The port's own address, or an IPv4 and an IPv6 address in a list, with the prefix length of its network if there
    /// is a `gateway`: `10.0.0.1/24`. Default: none.
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    pub ip: OneOrMany<Address>,
    /// The router that leads to targets outside the port's network; one for each kind of address.
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    pub gateway: OneOrMany<IpAddr>,
    /// The VLAN of the port, or two of them for QinQ (802.1ad), the service VLAN first. Questions, answers and
    /// frames without layers of their own get these tags. Default: none is sent, and any is answered.
    #[serde(default, skip_serializing_if = "Vlans::is_empty")]
    pub vlan: Vlans,
    /// The port's MAC address. Default: the device's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Where frames are sent. Default: asked for by ARP or neighbour discovery, or the other end of a `pair:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_mac: Option<String>,
    /// The largest IP packet on its link, bytes, 576 to 9,600: the maximum segment size of TCP follows from it. The device is
    /// raised to it where it takes less. Default: what the device takes, at most 1500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 576, max = 9_600))]
    pub mtu: Option<u16>,
    /// TCP of devices and servers on the port.
    #[serde(default, skip_serializing_if = "Tcp::is_default")]
    pub tcp: Tcp,
    /// The port's speed, for rates that are a share of it. Default: what the port says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<BitRate>,
    /// What the port is for: a preset of elements and edges. Default generator; with `transport.dpdk.elements` what those say.
    #[serde(default)]
    pub role: Role,
    /// Queues in each direction, 1 to 16, each with elements of its own (`a.generator0`, `a.receiver1`) that can be
    /// placed on workers of their own. Where the port cannot spread what it receives, an element does. Of devices with
    /// connections each worker has a queue of every port. Default 1.
    #[serde(default = "one_queue")]
    #[schemars(range(min = 1, max = 16))]
    pub queues: u16,
    /// How a port with several queues spreads what it receives, if it can (RSS). Default flow.
    #[serde(default, skip_serializing_if = "Rss::is_default")]
    pub rss: Rss,
    /// Packets that are received or sent at once, 1 to 128. Default 128.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub burst: Option<u16>,
    /// Work that the port does by itself: `auto`, `none`, or a list of some of `checksum`, `vlan`, `segment` and
    /// `timestamp`, each of which it must offer. What it does not do is done in software. Default auto: what it offers and
    /// what helps, which are RX checksum validation and TSO on NICs, and time
    /// stamps, and of what devices and servers send all checksums; `netdyno graph` and the result say what came of it.
    #[serde(default, skip_serializing_if = "Offloads::is_auto")]
    pub offloads: Offloads,
    /// With the role l2fwd: the port that frames go on to, one of the same role. Default: the port itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// With the role l2fwd: what is done with frames on their way. Default io.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<Forward>,
    /// What happens to frames that come in at the port, before anything else is done with them: as if the path to it
    /// were so. Default: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub impair: Option<Impairment>,
    /// How that changes while the run goes on. Default: it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub impair_timeline: Option<DirectionTimeline>,
}

/// TCP over a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tcp {
    /// Congestion control. Default newreno.
    pub congestion: Congestion,
    /// A peer that was silent for so long is asked whether it is still there, and again every 75 s or as often; the connection ends
    /// (`timeout`) when nine questions remain without an answer (RFC 9293 §3.8.4). From 1s on. Default: it is never asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<Interval>,
    /// Maximum segment size: most bytes of payload and options behind the TCP header, of segments sent and of those that the peer
    /// is asked to send. 88 to 9,560. Default: what the MTU leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 88, max = 9_560))]
    pub mss: Option<u16>,
    /// Bytes of each connection that may be under way each way: the receive window, and what is sent and not yet acknowledged.
    /// 2KiB to 64MiB. Default 256KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Size>,
}

impl Tcp {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How TCP finds out how much a path takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    /// RFC 5681 and RFC 6582.
    #[default]
    NewReno,
    /// RFC 9438, as Linux has it.
    Cubic,
}

/// VLANs of a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a VLAN is a number like 100, or for QinQ two like [200, 100]")]
pub enum Vlans {
    /// One.
    One(u16),
    /// Several, the outer one first.
    OneOrMany(Vec<u16>),
}

impl Default for Vlans {
    fn default() -> Self {
        Self::OneOrMany(Vec::new())
    }
}

impl Vlans {
    /// Their numbers, the outer one first.
    pub fn ids(&self) -> &[u16] {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::OneOrMany(ids) => ids,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids().is_empty()
    }
}

/// What a DPDK port is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Sends streams and measures what comes back.
    #[default]
    Generator,
    /// Sends every frame back where it came from: something to point load at.
    Reflector,
    /// Hands every frame on to another port, whatever it is.
    L2fwd,
}

/// What a port with the role l2fwd does with frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Forward {
    /// Nothing: they go on as they came.
    #[default]
    Io,
    /// It swaps their Ethernet addresses.
    Macswap,
}

/// One worker and its elements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Worker {
    /// The core it is pinned to. Default: the next free one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u16>,
    /// In place of `core`: a free one of this NUMA node. Default: of any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// In place of `core`: what else may run on the hyper-threads of the same physical core. Default: what is left
    /// over when no physical core is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<Threads>,
    /// Elements, as `PORT.ELEMENT`: `a.generator`, `a.receiver`, `b.reflector`, `c.l2fwd`, `c.impair`; all but the
    /// last with a number where the port has several queues: `a.generator0`. A port's queues may be named, too: `a.rx`, `a.tx1`;
    /// those that are not go with the elements they serve.
    #[serde(deserialize_with = "bounded::list::<_, _, ELEMENTS>")]
    #[schemars(length(max = 2048))]
    pub elements: Vec<String>,
}

/// What a worker wants of the hyper-threads of its physical core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Threads {
    /// No other worker runs on them.
    Own,
    /// It runs on one of them itself, beside the worker before it in the list.
    Shared,
}

fn default_memory() -> Size {
    Size(256 << 20)
}

fn one_queue() -> u16 {
    1
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
    /// `GROUP.COUNTER.rate` (per second), `GROUP.lateness.STAT`, `PORT.port.COUNTER` of a DPDK port (count).
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
