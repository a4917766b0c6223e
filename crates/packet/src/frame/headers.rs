//! Layers as bytes: where each begins, what it says, and what its checksum covers.

use super::carried::Carried;
use super::error::FrameError;
use super::flow::Flow;
use super::layer::{Fill, Ipv4Layer, Ipv6Layer, Layer, PayloadLayer};
use crate::checksum::{self, Sum};
use crate::ethernet::{self, Tags, kind};
use crate::layers::protocol;
use crate::{arp, ipv4, ipv6, udp};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::net::IpAddr;
use std::ops::Range;

/// Bytes in headers that have no module of their own.
const MPLS: usize = 4;
const TCP: usize = 20;
const ICMP: usize = 8;
const VXLAN: usize = 8;

/// EtherTypes of what no other module reads.
const KIND_MPLS: u16 = 0x8847;
/// Ethernet over GRE (RFC 7637).
const KIND_ETHERNET: u16 = 0x6558;
/// IEEE 802 local experimental EtherType 1.
const KIND_OTHER: u16 = 0x88b5;

const PROTOCOL_IPV4: u8 = 4;
const PROTOCOL_IPV6: u8 = 41;
const PROTOCOL_GRE: u8 = 47;
/// For experiments (RFC 3692).
const PROTOCOL_OTHER: u8 = 253;

/// A layer and where it begins.
#[derive(Debug, Clone)]
pub(super) struct Placed<'a> {
    pub layer: &'a Layer,
    /// What follows it.
    pub next: Option<&'a Layer>,
    /// The layer before it, and where that begins.
    pub before: Option<(&'a Layer, usize)>,
    pub at: usize,
    /// In errors: `layers[2].udp`.
    pub name: String,
}

/// Bytes in a layer's header.
fn len(layer: &Layer) -> usize {
    match layer {
        Layer::Ethernet(_) => ethernet::LEN,
        Layer::Vlan(_) => ethernet::TAG,
        Layer::Mpls(_) => MPLS,
        Layer::Arp(_) => arp::FRAME - ethernet::LEN,
        Layer::Ipv4(_) => ipv4::LEN,
        Layer::Ipv6(_) => ipv6::LEN,
        Layer::Udp(_) => udp::LEN,
        Layer::Tcp(_) => TCP,
        Layer::Icmp(_) => ICMP,
        Layer::Gre(gre) => 4 + 4 * (usize::from(gre.key.is_some()) + usize::from(gre.sequence.is_some())),
        Layer::Vxlan(_) => VXLAN,
        Layer::Payload(_) => 0,
    }
}

/// Whether `next` may follow `layer`.
fn may_follow(layer: &Layer, next: &Layer) -> bool {
    use Layer::*;
    match layer {
        Ethernet(_) | Vlan(_) => {
            matches!(next, Vlan(_) | Mpls(_) | Arp(_) | Ipv4(_) | Ipv6(_) | Payload(_))
        }
        Mpls(_) => matches!(next, Mpls(_) | Ipv4(_) | Ipv6(_) | Ethernet(_) | Payload(_)),
        Ipv4(_) | Ipv6(_) => {
            matches!(next, Udp(_) | Tcp(_) | Icmp(_) | Gre(_) | Ipv4(_) | Ipv6(_) | Payload(_))
        }
        Gre(_) => matches!(next, Ipv4(_) | Ipv6(_) | Ethernet(_) | Mpls(_) | Payload(_)),
        Udp(_) => matches!(next, Vxlan(_) | Payload(_)),
        Tcp(_) | Icmp(_) => matches!(next, Payload(_)),
        Vxlan(_) => matches!(next, Ethernet(_)),
        Arp(_) | Payload(_) => false,
    }
}

/// Where each layer begins, if they may follow each other so.
pub(super) fn place(layers: &[Layer]) -> Result<Vec<Placed<'_>>, FrameError> {
    let mut placed: Vec<Placed<'_>> = Vec::new();
    let mut at = 0;
    for (i, layer) in layers.iter().enumerate() {
        let name = format!("layers[{i}].{}", layer.name());
        let before = placed.last().map(|before| (before.layer, before.at));
        let fits = match before {
            None => matches!(layer, Layer::Ethernet(_)),
            Some((before, _)) => may_follow(before, layer),
        };
        if !fits {
            let what = match before {
                None => "a frame begins with ethernet".to_owned(),
                Some((before, _)) => format!("{} cannot follow {}", layer.name(), before.name()),
            };
            return Err(FrameError::new(name, what, "Order the layers from the outside in"));
        }
        placed.push(Placed { layer, next: layers.get(i + 1), before, at, name });
        at += len(layer);
    }
    match placed.last() {
        None => Err(FrameError::new("layers", "there is none", "Begin with {\"ethernet\": {}}")),
        Some(last) if matches!(last.layer, Layer::Vxlan(_)) => {
            Err(FrameError::new(&last.name, "nothing follows", "Add the Ethernet frame that it carries"))
        }
        Some(_) => Ok(placed),
    }
}

/// Bytes up to where the frame is only filled.
pub(super) fn header_bytes(placed: &[Placed<'_>]) -> Result<usize, FrameError> {
    let Some(last) = placed.last() else { return Ok(0) };
    let own = match last.layer {
        Layer::Payload(payload) => payload_prefix(payload, &last.name)?.len(),
        layer => len(layer),
    };
    Ok(last.at + own)
}

/// The bytes that a payload begins with.
fn payload_prefix(payload: &PayloadLayer, name: &str) -> Result<Vec<u8>, FrameError> {
    if !payload.text.is_empty() && !payload.hex.is_empty() {
        return Err(FrameError::new(name, "both text and hex are given", "Give one of them"));
    }
    if !payload.text.is_empty() {
        return Ok(payload.text.clone().into_bytes());
    }
    let digits: Option<Vec<u8>> = payload
        .hex
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).map(|digit| digit as u8))
        .collect();
    let pairs = digits.filter(|digits| digits.len().is_multiple_of(2));
    let pairs = pairs.ok_or_else(|| {
        let what = format!("{:?} is no row of bytes", payload.hex);
        FrameError::new(format!("{name}.hex"), what, "Write two hexadecimal digits a byte, like \"00 ff\"")
    })?;
    Ok(pairs.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// The tags that frames of these layers begin with. `None`: they are more than two.
pub fn tags(layers: &[Layer]) -> Option<Tags> {
    let mut tags = Tags::NONE;
    let mut rest = layers.get(1..).unwrap_or(&[]);
    while let [tag @ Layer::Vlan(vlan), after @ ..] = rest {
        let control = vlan.priority.min(7) << 5 | u8::from(vlan.drop_eligible) << 4;
        tags = tags.and(ethertype(Some(tag), after.first()), u16::from(control) << 8 | vlan.id & 0xfff)?;
        rest = after;
    }
    Some(tags)
}

/// The EtherType that announces `next`.
fn ethertype(next: Option<&Layer>, after_next: Option<&Layer>) -> u16 {
    match next {
        Some(Layer::Vlan(vlan)) => {
            let inner = matches!(after_next, Some(Layer::Vlan(_)));
            vlan.tpid.unwrap_or(if inner { kind::QINQ } else { kind::VLAN })
        }
        Some(Layer::Mpls(_)) => KIND_MPLS,
        Some(Layer::Arp(_)) => kind::ARP,
        Some(Layer::Ipv4(_)) => kind::IPV4,
        Some(Layer::Ipv6(_)) => kind::IPV6,
        Some(Layer::Ethernet(_)) => KIND_ETHERNET,
        _ => KIND_OTHER,
    }
}

/// The IP protocol number that announces `next`.
fn ip_protocol(next: Option<&Layer>, v6: bool) -> u8 {
    match next {
        Some(Layer::Udp(_)) => protocol::UDP,
        Some(Layer::Tcp(_)) => protocol::TCP,
        Some(Layer::Icmp(_)) if v6 => protocol::ICMPV6,
        Some(Layer::Icmp(_)) => protocol::ICMP,
        Some(Layer::Gre(_)) => PROTOCOL_GRE,
        Some(Layer::Ipv4(_)) => PROTOCOL_IPV4,
        Some(Layer::Ipv6(_)) => PROTOCOL_IPV6,
        _ => PROTOCOL_OTHER,
    }
}

/// The frame of `size` bytes, with zeros for checksums.
pub(super) fn build_frame(
    placed: &[Placed<'_>],
    size: usize,
    flow: &Flow,
    seed: u64,
) -> Result<Vec<u8>, FrameError> {
    let taken = header_bytes(placed)?;
    if taken > size {
        let what =
            format!("a frame of {size} bytes is too short for what it is made of: {taken} (without FCS)");
        return Err(FrameError::new("size", what, "Choose larger frames or fewer layers"));
    }
    let mut bytes = Vec::with_capacity(size);
    for (i, one) in placed.iter().enumerate() {
        let after_next = placed.get(i + 2).map(|placed| placed.layer);
        let rest = size - one.at;
        append_header(&mut bytes, one, after_next, rest, flow)?;
        if let Layer::Payload(payload) = one.layer {
            fill(&mut bytes, payload.fill, size, seed);
        }
    }
    bytes.resize(size, 0);
    Ok(bytes)
}

fn fill(bytes: &mut Vec<u8>, fill: Fill, size: usize, seed: u64) {
    let room = size.saturating_sub(bytes.len());
    match fill {
        Fill::Zero => bytes.extend(std::iter::repeat_n(0, room)),
        Fill::Increment => bytes.extend((0..room).map(|i| i as u8)),
        Fill::Random => {
            let mut rng = SmallRng::seed_from_u64(seed ^ 0xf111);
            bytes.extend((0..room).map(|_| rng.random::<u8>()));
        }
    }
}

/// Append the header of one layer; `rest` bytes are left from its begin to the frame's end.
fn append_header(
    bytes: &mut Vec<u8>,
    one: &Placed<'_>,
    after_next: Option<&Layer>,
    rest: usize,
    flow: &Flow,
) -> Result<(), FrameError> {
    let next = one.next;
    let at_most = |key: &str, value: u32, most: u32| {
        if value <= most {
            return Ok(value);
        }
        let what = format!("{value} is more than {most}");
        Err(FrameError::new(format!("{}.{key}", one.name), what, "Give a value that fits the field"))
    };
    let source_port = |given: Option<u16>| given.unwrap_or(flow.source.port()).to_be_bytes();
    match one.layer {
        Layer::Ethernet(ethernet) => {
            bytes.extend(ethernet.destination.map_or(flow.destination_mac, |mac| mac.0));
            bytes.extend(ethernet.source.map_or(flow.source_mac, |mac| mac.0));
            bytes.extend(ethernet.ethertype.unwrap_or(ethertype(next, after_next)).to_be_bytes());
        }
        Layer::Vlan(vlan) => {
            let id = at_most("id", vlan.id.into(), 0xfff)? as u16;
            let priority = at_most("priority", vlan.priority.into(), 7)? as u16;
            bytes.extend((priority << 13 | u16::from(vlan.drop_eligible) << 12 | id).to_be_bytes());
            bytes.extend(ethertype(next, after_next).to_be_bytes());
        }
        Layer::Mpls(mpls) => {
            let label = at_most("label", mpls.label, 0xf_ffff)?;
            let class = at_most("traffic_class", mpls.traffic_class.into(), 7)?;
            let bottom = u32::from(!matches!(next, Some(Layer::Mpls(_))));
            bytes.extend((label << 12 | class << 9 | bottom << 8 | u32::from(mpls.ttl)).to_be_bytes());
        }
        Layer::Arp(arp) => {
            bytes.extend([0, 1, 8, 0, 6, 4]);
            bytes.extend(arp.operation.to_be_bytes());
            bytes.extend(arp.sender_mac.map_or(flow.source_mac, |mac| mac.0));
            bytes.extend(arp.sender.octets());
            bytes.extend(arp.target_mac.map_or([0; 6], |mac| mac.0));
            bytes.extend(arp.target.octets());
        }
        Layer::Ipv4(ip) => put_ipv4(bytes, one, ip, rest, flow)?,
        Layer::Ipv6(ip) => put_ipv6(bytes, one, ip, rest, flow)?,
        Layer::Udp(udp) => {
            let vxlan = matches!(next, Some(Layer::Vxlan(_)));
            let default = if vxlan { 4789 } else { flow.destination.port() };
            bytes.extend(source_port(udp.source_port));
            bytes.extend(udp.destination_port.unwrap_or(default).to_be_bytes());
            bytes.extend((rest as u16).to_be_bytes());
            bytes.extend([0, 0]);
        }
        Layer::Tcp(tcp) => {
            bytes.extend(source_port(tcp.source_port));
            bytes.extend(tcp.destination_port.unwrap_or(flow.destination.port()).to_be_bytes());
            bytes.extend(tcp.sequence.to_be_bytes());
            bytes.extend(tcp.acknowledgment.to_be_bytes());
            bytes.extend([0x50, flags(&tcp.flags, &one.name)?]);
            bytes.extend(tcp.window.to_be_bytes());
            bytes.extend([0; 4]);
        }
        Layer::Icmp(icmp) => {
            let v6 = matches!(one.before, Some((Layer::Ipv6(_), _)));
            bytes.extend([icmp.kind.unwrap_or(if v6 { 128 } else { 8 }), icmp.code, 0, 0]);
            bytes.extend(icmp.identifier.to_be_bytes());
            bytes.extend(icmp.sequence.to_be_bytes());
        }
        Layer::Gre(gre) => {
            // RFC 2890: bit 2 key present, bit 3 sequence number present.
            let present = u8::from(gre.key.is_some()) << 5 | u8::from(gre.sequence.is_some()) << 4;
            bytes.extend([present, 0]);
            bytes.extend(ethertype(next, after_next).to_be_bytes());
            bytes.extend(gre.key.into_iter().chain(gre.sequence).flat_map(u32::to_be_bytes));
        }
        Layer::Vxlan(vxlan) => {
            let vni = at_most("vni", vxlan.vni, 0xff_ffff)?;
            bytes.extend([8, 0, 0, 0]); // RFC 7348 section 5: the I flag
            bytes.extend((vni << 8).to_be_bytes());
        }
        Layer::Payload(payload) => bytes.extend(payload_prefix(payload, &one.name)?),
    }
    Ok(())
}

fn no_address(one: &Placed<'_>, key: &str) -> FrameError {
    let what = "neither the port nor the target has an address of this IP version".to_owned();
    FrameError::new(format!("{}.{key}", one.name), what, "Give the address")
}

fn put_ipv4(
    bytes: &mut Vec<u8>,
    one: &Placed<'_>,
    ip: &Ipv4Layer,
    rest: usize,
    flow: &Flow,
) -> Result<(), FrameError> {
    let address = |given: Option<_>, other: IpAddr, key| match (given, other) {
        (Some(ip), _) | (None, IpAddr::V4(ip)) => Ok(ip),
        _ => Err(no_address(one, key)),
    };
    let (dscp, ecn) = classes(one, ip.dscp, ip.ecn)?;
    bytes.extend([0x45, dscp << 2 | ecn]);
    bytes.extend((rest as u16).to_be_bytes());
    bytes.extend(ip.identification.to_be_bytes());
    bytes.extend([u8::from(ip.dont_fragment) << 6, 0]);
    bytes.extend([ip.ttl, ip.protocol.unwrap_or(ip_protocol(one.next, false)), 0, 0]);
    bytes.extend(address(ip.source, flow.source.ip(), "source")?.octets());
    bytes.extend(address(ip.destination, flow.destination.ip(), "destination")?.octets());
    Ok(())
}

fn put_ipv6(
    bytes: &mut Vec<u8>,
    one: &Placed<'_>,
    ip: &Ipv6Layer,
    rest: usize,
    flow: &Flow,
) -> Result<(), FrameError> {
    let address = |given: Option<_>, other: IpAddr, key| match (given, other) {
        (Some(ip), _) | (None, IpAddr::V6(ip)) => Ok(ip),
        _ => Err(no_address(one, key)),
    };
    let (dscp, ecn) = classes(one, ip.dscp, ip.ecn)?;
    if ip.flow_label > 0xf_ffff {
        let what = format!("{} is more than {}", ip.flow_label, 0xf_ffff);
        return Err(FrameError::new(
            format!("{}.flow_label", one.name),
            what,
            "Give a value that fits the field",
        ));
    }
    bytes.extend((6 << 28 | u32::from(dscp) << 22 | u32::from(ecn) << 20 | ip.flow_label).to_be_bytes());
    bytes.extend(((rest - ipv6::LEN) as u16).to_be_bytes());
    bytes.extend([ip.next.unwrap_or(ip_protocol(one.next, true)), ip.hop_limit]);
    bytes.extend(address(ip.source, flow.source.ip(), "source")?.octets());
    bytes.extend(address(ip.destination, flow.destination.ip(), "destination")?.octets());
    Ok(())
}

fn classes(one: &Placed<'_>, dscp: u8, ecn: u8) -> Result<(u8, u8), FrameError> {
    for (key, value, most) in [("dscp", dscp, 63), ("ecn", ecn, 3)] {
        if value > most {
            let what = format!("{value} is more than {most}");
            return Err(FrameError::new(
                format!("{}.{key}", one.name),
                what,
                "Give a value that fits the field",
            ));
        }
    }
    Ok((dscp, ecn))
}

/// RFC 9293 section 3.1, from the lowest bit on; E and C are ECE and CWR.
fn flags(letters: &str, name: &str) -> Result<u8, FrameError> {
    letters.chars().try_fold(0, |flags, letter| match "FSRPAUEC".find(letter) {
        Some(bit) => Ok(flags | 1 << bit),
        None => {
            let what = format!("{letter:?} is no TCP flag");
            Err(FrameError::new(format!("{name}.flags"), what, "Use letters of FSRPAUEC, like \"SA\""))
        }
    })
}

/// A checksum: where it stands, and what it covers.
#[derive(Debug, Clone)]
pub(super) struct Site {
    pub at: usize,
    /// Zero would mean that there is none.
    pub zero_is_none: bool,
    covers: Range<usize>,
    /// The addresses of the pseudo-header.
    addresses: Range<usize>,
    /// What else is in the pseudo-header.
    pseudo: Sum,
}

impl Site {
    /// Whether the byte at `at` is covered.
    pub fn covers(&self, at: usize) -> bool {
        self.covers.contains(&at) || self.addresses.contains(&at)
    }

    /// The sum of what it covers.
    pub fn sum(&self, bytes: &[u8]) -> Sum {
        let of = |range: &Range<usize>| Sum::ZERO.bytes(bytes.get(range.clone()).unwrap_or(&[]));
        self.pseudo.plus(of(&self.covers)).plus(of(&self.addresses))
    }

    /// Write the checksum of `sum`.
    pub fn write(&self, bytes: &mut [u8], sum: Sum) {
        let checksum = match sum.checksum() {
            0 if self.zero_is_none => 0xffff,
            checksum => checksum,
        };
        if let Some(place) = crate::bytes::take_mut(bytes, self.at) {
            *place = checksum.to_be_bytes();
        }
    }
}

/// The checksums of a frame of `size` bytes, from the outside in.
pub(super) fn sites(placed: &[Placed<'_>], size: usize) -> Vec<Site> {
    placed.iter().filter_map(|one| site(one, size)).collect()
}

/// The headers whose checksums a port could make: of UDP or TCP in the outermost IP, right behind Ethernet and its tags.
pub(super) fn checksummed_headers(placed: &[Placed<'_>]) -> Option<Carried> {
    let outer = |one: &&Placed<'_>| !matches!(one.layer, Layer::Ethernet(_) | Layer::Vlan(_));
    let ip = placed.iter().find(outer)?;
    let l4 = placed.iter().find(|one| one.at > ip.at)?;
    let v6 = match ip.layer {
        Layer::Ipv4(ip) if ip.protocol.is_none() => false,
        Layer::Ipv6(ip) if ip.next.is_none() => true,
        _ => return None,
    };
    let tcp = match l4.layer {
        Layer::Udp(_) => site(l4, usize::from(u16::MAX)).map(|_| false)?,
        Layer::Tcp(_) => true,
        _ => return None,
    };
    let announced = placed.iter().take_while(|one| one.at < ip.at);
    let as_usual = |one: &Placed<'_>| !matches!(one.layer, Layer::Ethernet(e) if e.ethertype.is_some());
    announced.into_iter().all(as_usual).then_some(Carried { ip: ip.at, l4: l4.at, v6, tcp })
}

fn site(one: &Placed<'_>, size: usize) -> Option<Site> {
    let at = one.at;
    let segment = |checksum: usize, number: u8, zero_is_none: bool| {
        let (before, ip) = one.before?;
        let addresses = match before {
            Layer::Ipv4(_) if number == protocol::ICMP => 0..0,
            Layer::Ipv4(_) => ip + 12..ip + ipv4::LEN,
            _ => ip + 8..ip + ipv6::LEN,
        };
        let pseudo = match number {
            protocol::ICMP => Sum::ZERO,
            number => checksum::pseudo_header(&[], number, (size - at) as u32),
        };
        Some(Site { at: at + checksum, zero_is_none, covers: at..size, addresses, pseudo })
    };
    match one.layer {
        Layer::Ipv4(_) => {
            let covers = at..at + ipv4::LEN;
            Some(Site { at: at + 10, zero_is_none: false, covers, addresses: 0..0, pseudo: Sum::ZERO })
        }
        Layer::Udp(udp) => {
            let default = !matches!(one.next, Some(Layer::Vxlan(_)));
            udp.checksum.unwrap_or(default).then(|| segment(6, protocol::UDP, true))?
        }
        Layer::Tcp(_) => segment(16, protocol::TCP, false),
        Layer::Icmp(_) if matches!(one.before, Some((Layer::Ipv6(_), _))) => {
            segment(2, protocol::ICMPV6, false)
        }
        Layer::Icmp(_) => segment(2, protocol::ICMP, false),
        _ => None,
    }
}
