//! What rules can ask of a packet.

use crate::classify::expression::{Expression, Network, Test};
use dpdk::{Meta, MetaFlags};
use packet::Parsed;
use packet::layers::protocol;

/// The fields of one packet that rules test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// IPv4 or IPv6, the flags of a fragment and of a transport header.
    pub flags: MetaFlags,
    /// The IP protocol.
    pub protocol: u8,
    /// EtherType behind the tags.
    pub kind: u16,
    /// VLAN numbers, the outer one first.
    pub vlans: [u16; 2],
    /// How many tags there are.
    pub tagged: u8,
    /// Source address; an IPv4 address is the low 32 bits.
    pub source: u128,
    /// Destination address.
    pub destination: u128,
    /// Source and destination port, if it has any.
    pub ports: Option<[u16; 2]>,
}

/// What must be read from the packet's bytes beside its metadata.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// The addresses.
    pub addresses: bool,
    /// The ports.
    pub ports: bool,
}

impl Facts {
    /// Of a packet, with what a parser told of it; without, it is parsed here. A packet that cannot be parsed meets no test
    /// but that of its tags.
    #[inline]
    pub fn of(frame: &[u8], meta: Option<Meta>, needs: Needs) -> Self {
        let meta = meta.unwrap_or_else(|| parse(frame));
        let mut facts = Self {
            flags: meta.flags,
            protocol: meta.protocol,
            kind: meta.kind,
            vlans: meta.tags.map(|tag| tag & 0x0fff),
            tagged: meta.tagged,
            ..Self::default()
        };
        if !meta.flags.has(MetaFlags::IP) {
            return facts;
        }
        if needs.addresses
            && let Some(ip) = frame.get(usize::from(meta.l3)..)
        {
            (facts.source, facts.destination) =
                addresses(ip, meta.flags.has(MetaFlags::V6)).unwrap_or_default();
        }
        if needs.ports
            && meta.flags.has(MetaFlags::L4)
            && matches!(
                meta.protocol,
                protocol::TCP | protocol::UDP | protocol::UDP_LITE | protocol::SCTP | protocol::DCCP
            )
        {
            let transport = frame.get(usize::from(meta.l4)..).and_then(|rest| rest.first_chunk::<4>());
            facts.ports =
                transport.map(|[a, b, c, d]| [u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])]);
        }
        facts
    }

    /// Whether the packet is what a rule's words say: the meaning that compiled rules must have.
    pub fn satisfies(&self, expression: &Expression) -> bool {
        match expression {
            Expression::Any => true,
            Expression::Not(inner) => !self.satisfies(inner),
            Expression::And(a, b) => self.satisfies(a) && self.satisfies(b),
            Expression::Or(a, b) => self.satisfies(a) || self.satisfies(b),
            Expression::Test(test) => self.passes(test),
        }
    }

    /// Whether the packet meets a test.
    #[inline]
    pub fn passes(&self, test: &Test) -> bool {
        match test {
            Test::Ip => self.flags.has(MetaFlags::IP),
            Test::Ip4 => self.flags.has(MetaFlags::IP) && !self.flags.has(MetaFlags::V6),
            Test::Ip6 => self.flags.has(MetaFlags::V6),
            Test::Fragment => self.flags.has(MetaFlags::FRAGMENT),
            Test::Protocol(protocol) => self.flags.has(MetaFlags::IP) && self.protocol == *protocol,
            Test::EtherType(kind) => self.kind == *kind,
            Test::Tagged => self.tagged > 0,
            Test::Vlan(which, id) => self.tagged > *which && self.vlans[usize::from(*which & 1)] == *id,
            Test::Source(network) => self.is_of(network, self.source),
            Test::Destination(network) => self.is_of(network, self.destination),
            Test::SourcePort(first, last) => {
                self.ports.is_some_and(|[port, _]| (*first..=*last).contains(&port))
            }
            Test::DestinationPort(first, last) => {
                self.ports.is_some_and(|[_, port]| (*first..=*last).contains(&port))
            }
        }
    }

    #[inline]
    fn is_of(&self, network: &Network, address: u128) -> bool {
        self.flags.has(MetaFlags::IP)
            && self.flags.has(MetaFlags::V6) == network.v6
            && address & network.mask == network.bits
    }
}

#[inline]
fn addresses(ip: &[u8], v6: bool) -> Option<(u128, u128)> {
    if v6 {
        let read = |at: usize| ip.get(at..)?.first_chunk().map(|bytes| u128::from_be_bytes(*bytes));
        Some((read(8)?, read(24)?))
    } else {
        let read =
            |at: usize| ip.get(at..)?.first_chunk().map(|bytes| u128::from(u32::from_be_bytes(*bytes)));
        Some((read(12)?, read(16)?))
    }
}

/// What a parser would tell of the packet, but for its port and the hash of its flow.
#[cold]
fn parse(frame: &[u8]) -> Meta {
    let Ok(Parsed { tags, tagged, kind, l3, ip }) = Parsed::of(frame) else { return Meta::default() };
    let plain = Meta { tags, tagged, kind, l3, ..Meta::default() };
    let Some(ip) = ip else { return plain };
    let flags = MetaFlags::IP
        .with_if(ip.v6, MetaFlags::V6)
        .with_if(ip.fragment, MetaFlags::FRAGMENT)
        .with_if(ip.later, MetaFlags::LATER_FRAGMENT)
        .with_if(ip.l4_whole, MetaFlags::L4);
    Meta { flags, l4: ip.l4, end: ip.end, protocol: ip.protocol, ..plain }
}
