//! What a frame is made of, from the outside in.

use super::address::MacAddress;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr};

/// One header, or the payload. What follows it, its length and its checksum are filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Layer {
    /// Ethernet II.
    Ethernet(EthernetLayer),
    /// An 802.1Q tag; two in a row are QinQ (802.1ad): the first then is the service tag.
    Vlan(VlanLayer),
    /// An MPLS label (RFC 3032); several may follow each other.
    Mpls(MplsLayer),
    /// ARP for IPv4 (RFC 826).
    Arp(ArpLayer),
    /// IPv4 (RFC 791).
    Ipv4(Ipv4Layer),
    /// IPv6 (RFC 8200).
    Ipv6(Ipv6Layer),
    /// UDP (RFC 768).
    Udp(UdpLayer),
    /// TCP (RFC 9293), without a connection.
    Tcp(TcpLayer),
    /// ICMP (RFC 792), or ICMPv6 (RFC 4443) after IPv6.
    Icmp(IcmpLayer),
    /// GRE (RFC 2784, RFC 2890).
    Gre(GreLayer),
    /// VXLAN (RFC 7348); comes after UDP and carries an Ethernet frame.
    Vxlan(VxlanLayer),
    /// What the last header carries; fills the frame up to its size.
    Payload(PayloadLayer),
}

impl Layer {
    /// UDP over IP over Ethernet, with nothing said.
    pub fn udp(v6: bool) -> [Self; 3] {
        let ip = if v6 { Self::Ipv6(Ipv6Layer::default()) } else { Self::Ipv4(Ipv4Layer::default()) };
        [Self::Ethernet(EthernetLayer::default()), ip, Self::Udp(UdpLayer::default())]
    }

    /// Its name in profiles.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ethernet(_) => "ethernet",
            Self::Vlan(_) => "vlan",
            Self::Mpls(_) => "mpls",
            Self::Arp(_) => "arp",
            Self::Ipv4(_) => "ipv4",
            Self::Ipv6(_) => "ipv6",
            Self::Udp(_) => "udp",
            Self::Tcp(_) => "tcp",
            Self::Icmp(_) => "icmp",
            Self::Gre(_) => "gre",
            Self::Vxlan(_) => "vxlan",
            Self::Payload(_) => "payload",
        }
    }
}

/// An Ethernet header.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EthernetLayer {
    /// From whom. Default: the port's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<MacAddress>,
    /// To whom. Default: the next hop's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<MacAddress>,
    /// The EtherType. Default: that of the next layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ethertype: Option<u16>,
}

/// A VLAN tag.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VlanLayer {
    /// VLAN identifier, 0–4095.
    #[schemars(range(max = 4095))]
    pub id: u16,
    /// Priority code point, 0–7. Default 0.
    #[schemars(range(max = 7))]
    pub priority: u8,
    /// Drop eligible. Default false.
    pub drop_eligible: bool,
    /// Tag protocol identifier. Default 0x88a8 when another tag follows, else 0x8100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpid: Option<u16>,
}

/// An MPLS label stack entry. The bottom of the stack is marked by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MplsLayer {
    /// Label, 0–1048575.
    #[schemars(range(max = 1_048_575))]
    pub label: u32,
    /// Traffic class, 0–7. Default 0.
    #[serde(default)]
    #[schemars(range(max = 7))]
    pub traffic_class: u8,
    /// Time to live. Default 64.
    #[serde(default = "ttl")]
    pub ttl: u8,
}

fn ttl() -> u8 {
    64
}

/// An ARP message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArpLayer {
    /// 1 request, 2 reply. Default 1.
    #[serde(default = "request")]
    pub operation: u16,
    /// The sender's Ethernet address. Default: the source of the frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_mac: Option<MacAddress>,
    /// The sender's IPv4 address.
    pub sender: Ipv4Addr,
    /// The target's Ethernet address. Default: zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_mac: Option<MacAddress>,
    /// The target's IPv4 address.
    pub target: Ipv4Addr,
}

fn request() -> u16 {
    1
}

/// An IPv4 header without options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ipv4Layer {
    /// From whom. Default: the port's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Ipv4Addr>,
    /// To whom. Default: the target's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<Ipv4Addr>,
    /// Time to live. Default 64.
    #[serde(default = "ttl")]
    pub ttl: u8,
    /// Differentiated services code point, 0–63. Default 0.
    #[serde(default)]
    #[schemars(range(max = 63))]
    pub dscp: u8,
    /// Explicit congestion notification, 0–3. Default 0.
    #[serde(default)]
    #[schemars(range(max = 3))]
    pub ecn: u8,
    /// Identification. Default 0.
    #[serde(default)]
    pub identification: u16,
    /// May not be fragmented. Default true.
    #[serde(default = "yes")]
    pub dont_fragment: bool,
    /// Protocol number. Default: that of the next layer, else 253 (for experiments, RFC 3692).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
}

fn yes() -> bool {
    true
}

impl Default for Ipv4Layer {
    fn default() -> Self {
        Self {
            source: None,
            destination: None,
            ttl: ttl(),
            dscp: 0,
            ecn: 0,
            identification: 0,
            dont_fragment: true,
            protocol: None,
        }
    }
}

/// An IPv6 header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ipv6Layer {
    /// From whom. Default: the port's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Ipv6Addr>,
    /// To whom. Default: the target's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<Ipv6Addr>,
    /// Hop limit. Default 64.
    #[serde(default = "ttl")]
    pub hop_limit: u8,
    /// Differentiated services code point, 0–63. Default 0.
    #[serde(default)]
    #[schemars(range(max = 63))]
    pub dscp: u8,
    /// Explicit congestion notification, 0–3. Default 0.
    #[serde(default)]
    #[schemars(range(max = 3))]
    pub ecn: u8,
    /// Flow label, 0–1048575. Default 0.
    #[serde(default)]
    #[schemars(range(max = 1_048_575))]
    pub flow_label: u32,
    /// Next header. Default: that of the next layer, else 253.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u8>,
}

impl Default for Ipv6Layer {
    fn default() -> Self {
        Self { source: None, destination: None, hop_limit: ttl(), dscp: 0, ecn: 0, flow_label: 0, next: None }
    }
}

/// A UDP header.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UdpLayer {
    /// From which port. Default: one for each device, from 10000 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// To which port. Default: 4789 before VXLAN, else the target's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// Whether there is a checksum. Default: no before VXLAN (RFC 7348 section 4.1), else yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<bool>,
}

/// A TCP header without options.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TcpLayer {
    /// From which port. Default: one for each device, from 10000 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// To which port. Default: the target's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// Sequence number. Default 0.
    pub sequence: u32,
    /// Acknowledgment number. Default 0.
    pub acknowledgment: u32,
    /// Flags, as letters of `FSRPAUEC`. Default none.
    pub flags: String,
    /// Window. Default 0.
    pub window: u16,
    /// Most payload of a packet, 64–16000 bytes: a frame, then up to 65,000 bytes long, leaves as several packets, segmented
    /// by the port (TCP segmentation offload) or in software. Needs `measured: false` and one size of frames.
    /// Default: a frame is a packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 64, max = 16_000))]
    pub segment: Option<u16>,
}

/// An ICMP header. The identifier and sequence number are those of an echo.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IcmpLayer {
    /// Type. Default: echo request, 8, or 128 after IPv6.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<u8>,
    /// Code. Default 0.
    pub code: u8,
    /// Identifier. Default 0.
    pub identifier: u16,
    /// Sequence number. Default 0.
    pub sequence: u16,
}

/// A GRE header.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GreLayer {
    /// The key. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<u32>,
    /// The sequence number. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u32>,
}

/// A VXLAN header.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VxlanLayer {
    /// VXLAN network identifier, 0–16777215.
    #[schemars(range(max = 16_777_215))]
    pub vni: u32,
}

/// What is carried. At most one of `text` and `hex`; the rest of the frame is filled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PayloadLayer {
    /// It begins with this text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// It begins with these bytes, two digits each; blanks are passed over.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hex: String,
    /// What fills the rest. Default zero.
    pub fill: Fill,
}

/// What fills a payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// Zeros.
    #[default]
    Zero,
    /// 0, 1, …, 255, 0, …
    Increment,
    /// Seeded random bytes, the same in every frame.
    Random,
}
