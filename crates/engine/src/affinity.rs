//! Which replica of a stage a packet goes to: packets with the same key go to the same one, in order.

use crate::mailbox::Mail;
use crate::parser;
use dpdk::{Mbuf, Meta, MetaFlags};
use packet::icmp_error::IcmpError;
use packet::layers::protocol;
use packet::{FlowKey, Parsed};
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// The name of [`SymmetricFlow`] in placements.
pub const FLOW: &str = "flow";
/// The name of [`RoundRobin`] in placements.
pub const ROUND_ROBIN: &str = "round_robin";
/// In placements: each replica with the one of the same number before it.
pub const UPSTREAM: &str = "upstream";

/// A rule that picks one of a stage's replicas for each packet. It is made once for each edge that leads to the stage, and
/// runs on the worker that hands packets on.
///
/// It goes by the packet's [`Meta`] where a parser wrote it, and reads headers only where there is none.
pub trait Affinity: Send {
    /// The replica for this packet, below `replicas`; a higher one is taken as the last.
    fn replica(&mut self, mbuf: &Mbuf, replicas: usize) -> usize;

    /// Answer a request, such as to take a new owner of a range into account: see
    /// [`Element::control`](crate::Element::control).
    fn control(&mut self, mail: Mail, now: u64) {
        let _not_understood = (mail, now);
    }
}

/// Makes a rule, once for each edge that leads to the stage.
pub type MakeAffinity = Box<dyn Fn() -> Box<dyn Affinity> + Send>;

/// A share of `0..replicas` for a hash, without a division.
#[inline]
fn share(hash: u32, replicas: usize) -> usize {
    ((u64::from(hash) * replicas as u64) >> 32) as usize
}

/// What is known of a packet, whether or not a parser saw it. `None`: it is broken.
#[inline]
fn known(mbuf: &Mbuf, key: &FlowKey) -> Option<Meta> {
    mbuf.meta().or_else(|| {
        let frame = mbuf.data();
        let parsed = Parsed::of(frame).ok()?;
        Some(parser::meta(frame, &parsed, key.hash(frame, &parsed), u16::MAX))
    })
}

/// An address as a number, IPv4 ones as mapped into IPv6 (RFC 4291 section 2.5.5.2).
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Source or destination, for addresses and ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AddressSide {
    Source,
    Destination,
}

/// The source or destination address, as a number.
#[inline]
fn address(frame: &[u8], meta: &Meta, end: AddressSide) -> Option<u128> {
    if !meta.flags.has(MetaFlags::IP) {
        return None;
    }
    let ip = frame.get(usize::from(meta.l3)..)?;
    let second = usize::from(end == AddressSide::Destination);
    if meta.flags.has(MetaFlags::V6) {
        ip.get(8 + 16 * second..)?.first_chunk().map(|octets| u128::from_be_bytes(*octets))
    } else {
        let octets = ip.get(12 + 4 * second..)?.first_chunk::<4>()?;
        Some(number(IpAddr::from(*octets)))
    }
}

/// The source or destination port; of an ICMP query its identifier.
#[inline]
fn port(frame: &[u8], meta: &Meta, end: AddressSide) -> Option<u16> {
    if !meta.flags.has(MetaFlags::L4) {
        return None;
    }
    let transport = frame.get(usize::from(meta.l4)..)?;
    let at = match (meta.protocol, end) {
        (
            protocol::TCP | protocol::UDP | protocol::UDP_LITE | protocol::SCTP | protocol::DCCP,
            AddressSide::Source,
        ) => 0,
        (protocol::TCP | protocol::UDP | protocol::UDP_LITE | protocol::SCTP | protocol::DCCP, _) => 2,
        (protocol::ICMP, _) if matches!(transport.first()?, 0 | 8 | 13 | 14) => 4,
        (protocol::ICMPV6, _) if matches!(transport.first()?, 128 | 129) => 4,
        _ => return None,
    };
    transport.get(at..)?.first_chunk().map(|port| u16::from_be_bytes(*port))
}

/// Both directions of a flow (protocol, addresses, ports) on one replica.
#[derive(Debug, Clone, Copy)]
pub struct SymmetricFlow {
    key: FlowKey,
}

impl SymmetricFlow {
    /// By the hash that parsers of this process write.
    pub fn new() -> Self {
        Self { key: FlowKey::shared() }
    }
}

impl Default for SymmetricFlow {
    fn default() -> Self {
        Self::new()
    }
}

impl Affinity for SymmetricFlow {
    #[inline]
    fn replica(&mut self, mbuf: &Mbuf, replicas: usize) -> usize {
        known(mbuf, &self.key).map_or(0, |meta| share(meta.hash, replicas))
    }
}

/// One after the other, whatever packets are: for stages that keep no state, where order does not matter.
#[derive(Debug, Clone, Copy, Default)]
pub struct RoundRobin {
    next: usize,
}

impl Affinity for RoundRobin {
    #[inline]
    fn replica(&mut self, _: &Mbuf, replicas: usize) -> usize {
        let this = if self.next < replicas { self.next } else { 0 };
        self.next = this + 1;
        this
    }
}

/// Everything of one subscriber on one replica: by the source address of what comes in by an inside port, the destination
/// address of the rest, with the VLAN tags, as subscribers in different VLANs may have the same address.
#[derive(Debug, Clone)]
pub struct InsideAddress {
    key: FlowKey,
    inside: Vec<u16>,
}

impl InsideAddress {
    /// The numbers of the inside ports.
    pub fn new(inside: impl IntoIterator<Item = u16>) -> Self {
        Self { key: FlowKey::shared(), inside: inside.into_iter().collect() }
    }

    /// The replica for a subscriber's address and VLANs: what allocates outside ports must know.
    pub fn owner(&self, address: IpAddr, vlans: [u16; 2], replicas: usize) -> usize {
        self.pick(number(address), vlans, replicas)
    }

    #[inline]
    fn pick(&self, address: u128, [outer, inner]: [u16; 2], replicas: usize) -> usize {
        // VLAN numbers without priorities, over bits of an address that differ least.
        let vlans = u128::from(outer & 0x0fff) << 12 | u128::from(inner & 0x0fff);
        share(self.key.hash_value(address ^ vlans << 96), replicas)
    }
}

impl Affinity for InsideAddress {
    #[inline]
    fn replica(&mut self, mbuf: &Mbuf, replicas: usize) -> usize {
        let Some(meta) = known(mbuf, &self.key) else { return 0 };
        let end =
            if self.inside.contains(&meta.in_port) { AddressSide::Source } else { AddressSide::Destination };
        match address(mbuf.data(), &meta, end) {
            Some(address) => self.pick(address, meta.tags, replicas),
            // ARP and the like.
            None => 0,
        }
    }
}

/// Outside ports of one address that one replica owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortBlock {
    /// The outside address.
    pub address: IpAddr,
    /// Its ports, of all protocols.
    pub ports: RangeInclusive<u16>,
    /// The replica.
    pub owner: usize,
}

/// Two owners for one port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{address}: ports {} to {} and {} to {} have owners each", first.start(), first.end(), second.start(), second.end())]
pub struct Overlap {
    /// The address.
    pub address: IpAddr,
    /// A range.
    pub first: RangeInclusive<u16>,
    /// Another one, which begins within it.
    pub second: RangeInclusive<u16>,
}

/// What comes for an outside address and port to the replica that owns it. ICMP errors go by the packet that they quote;
/// later fragments and ports without an owner go by their address, all of one address to one replica.
#[derive(Debug, Clone)]
pub struct PortBlocks {
    key: FlowKey,
    /// By address and first port: last port, owner.
    blocks: Vec<((u128, u16), u16, usize)>,
}

impl PortBlocks {
    /// These, in any order.
    pub fn new(blocks: impl IntoIterator<Item = PortBlock>) -> Result<Self, Overlap> {
        let mut all: Vec<PortBlock> = blocks.into_iter().filter(|block| !block.ports.is_empty()).collect();
        all.sort_by_key(|block| (number(block.address), *block.ports.start()));
        for pair in all.windows(2) {
            if number(pair[0].address) == number(pair[1].address)
                && pair[0].ports.end() >= pair[1].ports.start()
            {
                let [first, second] = [&pair[0], &pair[1]].map(|block| block.ports.clone());
                return Err(Overlap { address: pair[0].address, first, second });
            }
        }
        let entry = |block: &PortBlock| {
            ((number(block.address), *block.ports.start()), *block.ports.end(), block.owner)
        };
        Ok(Self { key: FlowKey::shared(), blocks: all.iter().map(entry).collect() })
    }

    fn owner(&self, address: u128, port: u16) -> Option<usize> {
        let after = self.blocks.partition_point(|(first, ..)| *first <= (address, port));
        let ((of, _), last, owner) = *self.blocks.get(after.checked_sub(1)?)?;
        (of == address && port <= last).then_some(owner)
    }
}

impl Affinity for PortBlocks {
    fn replica(&mut self, mbuf: &Mbuf, replicas: usize) -> usize {
        let (frame, Some(meta)) = (mbuf.data(), known(mbuf, &self.key)) else { return 0 };
        let Some(to) = address(frame, &meta, AddressSide::Destination) else { return 0 };
        let owner = match port(frame, &meta, AddressSide::Destination) {
            Some(port) => self.owner(to, port),
            None => quoted(frame, &meta).and_then(|(address, port)| self.owner(address, port)),
        };
        owner.unwrap_or_else(|| share(self.key.hash_value(to), replicas))
    }
}

/// The sender of the packet that an ICMP error quotes.
fn quoted(frame: &[u8], meta: &Meta) -> Option<(u128, u16)> {
    if !matches!(meta.protocol, protocol::ICMP | protocol::ICMPV6) {
        return None;
    }
    let layers = Parsed::of(frame).ok()?.layers()?;
    let sender = IcmpError::parse(frame, &layers)?.quoted?.source;
    Some((number(sender.ip()), sender.port()))
}

/// One rule for what comes in by inside ports, another for the rest: a NAT's two sides.
#[derive(Debug, Clone)]
pub struct BySide<I, O> {
    inside: Vec<u16>,
    from_inside: I,
    from_outside: O,
}

impl<I, O> BySide<I, O> {
    /// The numbers of the inside ports, and the rules.
    pub fn new(inside: impl IntoIterator<Item = u16>, from_inside: I, from_outside: O) -> Self {
        Self { inside: inside.into_iter().collect(), from_inside, from_outside }
    }
}

impl<I: Affinity, O: Affinity> Affinity for BySide<I, O> {
    #[inline]
    fn replica(&mut self, mbuf: &Mbuf, replicas: usize) -> usize {
        match mbuf.meta() {
            Some(meta) if self.inside.contains(&meta.in_port) => self.from_inside.replica(mbuf, replicas),
            _ => self.from_outside.replica(mbuf, replicas),
        }
    }
}
