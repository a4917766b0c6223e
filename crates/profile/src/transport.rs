//! What carries the traffic: kernel sockets, or DPDK ports and their workers.

use crate::ceiling::{CORES, ELEMENTS, PORTS, WORKERS};
use crate::graph::{ElementSpec, Replicas};
use crate::{Address, DirectionTimeline, Impairment, Offloads, OneOrMany, Rss, bounded};
use protocol::unit::{BitRate, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

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

pub(crate) fn default_memory() -> Size {
    Size(256 << 20)
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
    /// The port's speed, for rates that are a share of it. Default: what the port says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<BitRate>,
    /// What the port is for: a preset of elements and edges. Default generator; with `transport.dpdk.elements` what those say.
    #[serde(default)]
    pub role: Role,
    /// Queues in each direction, 1 to 16, each with elements of its own (`a.generator0`, `a.receiver1`) that can be
    /// placed on workers of their own. Where the port cannot spread what it receives, an element does. Default 1.
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
    /// stamps; `netdyno graph` and the result say what came of it.
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

pub(crate) fn one_queue() -> u16 {
    1
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
