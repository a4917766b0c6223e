//! A graph of packet elements on ports, as a file says it: which ports and elements there are, how they are connected, how often
//! each is there, and which worker runs it.
//!
//! What kinds of elements there are is known to those who run graphs; here an element's options are JSON still.

use crate::ceiling::{ELEMENTS, PORTS, WORKERS};
use crate::error::CONFLICT;
use crate::{Address, Dpdk, Error, Offloads, OneOrMany, Port, Role, Rss, Tcp, Vlans, Worker, bounded};
use protocol::unit::Size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Packet elements on ports, and the edges between them: `netdyno graph run FILE`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphFile {
    /// Where this format's schema is; for editors, not read.
    #[serde(rename = "$schema", default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// What the graph is for, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The ports by name, at most 32. Their queues are elements: `NAME.rx` and `NAME.tx`, with a number where a port has several:
    /// `NAME.rx0`.
    pub ports: BTreeMap<String, GraphPort>,
    /// The elements by name.
    #[serde(default)]
    pub elements: BTreeMap<String, ElementSpec>,
    /// What leads where: `parse -> acl`, `acl.pass -> outside.tx`, also several in a row: `inside.rx -> parse -> acl`. `A.OUTPUT`
    /// is an output of A; without it the output `out` is meant, or the only one.
    #[serde(default, deserialize_with = "bounded::list::<_, _, ELEMENTS>")]
    #[schemars(length(max = 2048))]
    pub edges: Vec<String>,
    /// Elements of which there are several, each with its share of the packets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replicas: BTreeMap<String, Replicas>,
    /// Which worker runs which elements. What is named nowhere runs on the first. Default: one worker runs all.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::list::<_, _, WORKERS>"
    )]
    #[schemars(length(max = 1024))]
    pub placement: Vec<Worker>,
    /// Use huge pages. Default false: slower on real NICs, works everywhere.
    #[serde(default)]
    pub huge_pages: bool,
    /// Memory for packets. Default 256MiB.
    #[serde(default = "crate::default_memory")]
    pub memory: Size,
}

/// A direction of a port, by the name of its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// `rx`.
    Receive,
    /// `tx`.
    Transmit,
}

impl Direction {
    /// In names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Receive => "rx",
            Self::Transmit => "tx",
        }
    }
}

/// The port, direction and queue that `inside.rx` or `inside.rx1` names.
pub fn queue(name: &str) -> Option<(&str, Direction, Option<u16>)> {
    let (port, queue) = name.rsplit_once('.')?;
    let (direction, number) = match (queue.strip_prefix("rx"), queue.strip_prefix("tx")) {
        (Some(number), _) => (Direction::Receive, number),
        (_, Some(number)) => (Direction::Transmit, number),
        _ => return None,
    };
    let digits =
        || number.bytes().all(|digit| digit.is_ascii_digit()) && (number == "0" || !number.starts_with('0'));
    match number {
        "" => Some((port, direction, None)),
        number if digits() => Some((port, direction, Some(number.parse().ok()?))),
        _ => None,
    }
}

impl Dpdk {
    /// Whether the elements are named, and the ports' roles say nothing.
    pub fn has_graph(&self) -> bool {
        !self.elements.is_empty() || !self.edges.is_empty() || !self.replicas.is_empty()
    }

    /// As a graph's file, with what its elements, edges and workers are if they are named here.
    pub fn graph_file(&self) -> GraphFile {
        let port = |port: &Port| (port.name.clone(), GraphPort::of(port));
        GraphFile {
            schema: None,
            description: String::new(),
            ports: self.ports.iter().map(port).collect(),
            elements: self.elements.clone(),
            edges: self.edges.clone(),
            replicas: self.replicas.clone(),
            placement: self.placement.clone(),
            huge_pages: self.huge_pages,
            memory: self.memory,
        }
    }

    /// What each port is for, if its elements are named: those say it. A role that says something else is a fault.
    pub(crate) fn settle_roles(&mut self) -> Vec<Error> {
        if !self.has_graph() {
            return Vec::new();
        }
        let mut errors = Vec::new();
        for (i, port) in self.ports.iter_mut().enumerate() {
            let names = |element: &&ElementSpec| {
                element.options.get("port").and_then(Value::as_str) == Some(&port.name)
            };
            let kinds: Vec<&str> =
                self.elements.values().filter(names).map(|element| element.kind.as_str()).collect();
            let role = match &kinds[..] {
                kinds if kinds.iter().any(|kind| matches!(*kind, "generator" | "receiver")) => {
                    Role::Generator
                }
                kinds if kinds.contains(&"reflector") => Role::Reflector,
                _ => Role::L2fwd,
            };
            let mut conflict = |key: &str, what: &str| {
                let at = format!("transport.dpdk.ports[{i}].{key}");
                errors.push(Error::new(CONFLICT, at, what, "Leave it out, or leave out elements and edges"));
            };
            if port.role != Role::default() && port.role != role {
                conflict(
                    "role",
                    "the graph's elements say what the port is for, and they say something else",
                );
            }
            let others = [
                ("to", port.to.is_some()),
                ("forward", port.forward.is_some()),
                ("impair", port.impair.is_some()),
            ];
            for (key, _) in others.into_iter().filter(|(_, given)| *given) {
                conflict(key, "a graph's elements say what is done with frames");
            }
            port.role = role;
        }
        errors
    }
}

/// Most ports.
pub const MOST_PORTS: usize = PORTS;

/// A port of a graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphPort {
    /// A PCI address (`0000:01:00.0`), a DPDK virtual device in full (`net_memif0,role=server`) or short
    /// (`af_packet:veth0`, `af_xdp:veth0`, `tap:tap0`, `virtio:/run/socket`, `null`), or `pair:NAME` — used by two
    /// ports, the two ends of a cable.
    pub device: String,
    /// Queues in each direction, 1 to 16. Default 1. Flows are spread over receive queues by the port, if it can; if it cannot,
    /// there is one receive queue.
    #[serde(default = "crate::one_queue")]
    #[schemars(range(min = 1, max = 16))]
    pub queues: u16,
    /// How a port with several queues spreads what it receives, if it can (RSS). Default flow.
    #[serde(default, skip_serializing_if = "Rss::is_default")]
    pub rss: Rss,
    /// Packets that are received or sent at once, 1 to 128. Default 128.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub burst: Option<u16>,
    /// Addresses that elements such as `reflector` and `arp-nd` answer for. Default: none.
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    pub ip: OneOrMany<Address>,
    /// The VLAN in which they answer, or two of them for QinQ (802.1ad), the service VLAN first. Default: any.
    #[serde(default, skip_serializing_if = "Vlans::is_empty")]
    pub vlan: Vlans,
    /// The port's MAC address. Default: the device's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The largest IP packet that its link takes, bytes: 576 to 9,600. Above 1,500 the device must offer it, and each packet takes as much
    /// memory. Default: the device's, at most 1500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 576, max = 9_600))]
    pub mtu: Option<u16>,
    /// Go on without the port when it is lost: what is for it is dropped then, and that it was lost is told. Default false: the
    /// graph ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

impl GraphPort {
    /// What a graph's file says of a profile's port.
    pub fn of(port: &Port) -> Self {
        Self {
            device: port.device.clone(),
            queues: port.queues,
            rss: port.rss,
            burst: port.burst,
            ip: port.ip.clone(),
            vlan: port.vlan.clone(),
            mac: port.mac.clone(),
            mtu: port.mtu,
            optional: false,
        }
    }

    /// As a port that nothing but the graph uses.
    pub fn port(&self, name: &str) -> Port {
        Port {
            name: name.to_owned(),
            device: self.device.clone(),
            ip: self.ip.clone(),
            gateway: OneOrMany::default(),
            vlan: self.vlan.clone(),
            mac: self.mac.clone(),
            mtu: self.mtu,
            peer_mac: None,
            speed: None,
            role: Role::L2fwd,
            queues: self.queues,
            rss: self.rss,
            burst: self.burst,
            offloads: Offloads::default(),
            to: None,
            forward: None,
            impair: None,
            impair_timeline: None,
            tcp: Tcp::default(),
        }
    }
}

/// An element: its kind, and the options of that kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ElementSpec {
    /// The kind, as listed in docs/reference/elements.md.
    pub kind: String,
    /// Its options.
    #[serde(flatten)]
    pub options: Map<String, Value>,
}

/// Several of one element.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replicas {
    /// How many, 1 to 32. They are called `NAME#0`, `NAME#1` and so on, and can be placed one by one.
    #[schemars(range(min = 1, max = 32))]
    pub count: usize,
    /// What decides which of them a packet goes to: `flow` (both directions of a flow to one), `round_robin`, `upstream`:
    /// each goes on with the packets of the replica, or the receive queue, of its own number; or `owner`, for kinds that divide
    /// what they keep, such as the subscribers of a NAT. Default flow.
    #[serde(default)]
    pub affinity: Affinity,
}

/// What decides which replica a packet goes to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Affinity {
    /// Both directions of a flow to one.
    #[default]
    Flow,
    /// One after the other.
    RoundRobin,
    /// The one before with the same number.
    Upstream,
    /// The one that has the subscriber, as the kind of element knows.
    Owner,
}

impl Affinity {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flow => "flow",
            Self::RoundRobin => "round_robin",
            Self::Upstream => "upstream",
            Self::Owner => "owner",
        }
    }
}
