//! The templates of RFC 8158, and records by them. Template and record are written from one list of fields, so that they agree.

use crate::event::{Endpoint, Event, EventKind, Quota, Tags, Volume};
use std::net::Ipv4Addr;

/// Values of `natEvent` (element 230).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum NatEvent {
    /// No address of a pool has anything left.
    AddressesExhausted = 3,
    /// A session began.
    Nat44SessionCreate = 4,
    /// A session is over.
    Nat44SessionDelete = 5,
    /// A mapping began.
    Nat44BibCreate = 8,
    /// A mapping is over.
    Nat44BibDelete = 9,
    /// An address has no port left.
    PortsExhausted = 12,
    /// A limit was met.
    QuotaExceeded = 13,
    /// A port block was given.
    PortBlockAllocation = 16,
    /// A port block is free again.
    PortBlockDeallocation = 17,
}

/// Values of `natQuotaExceededEvent` (element 466).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum QuotaEvent {
    /// Sessions of the NAT.
    Sessions = 1,
    /// Mappings of the NAT.
    Bib = 2,
    /// Of one subscriber.
    PerUser = 3,
    /// Subscribers of the NAT.
    Subscribers = 4,
    /// Fragments that wait.
    Fragments = 5,
}

/// Information elements, with number and length in the IANA registry "IPFIX Information Elements".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    ObservationTimeMilliseconds,
    NatInstanceId,
    NatEvent,
    ProtocolIdentifier,
    SourceIpv4Address,
    PostNatSourceIpv4Address,
    SourceTransportPort,
    PostNaptSourceTransportPort,
    DestinationIpv4Address,
    DestinationTransportPort,
    InitiatorPackets,
    InitiatorOctets,
    ResponderPackets,
    ResponderOctets,
    PortRangeStart,
    PortRangeEnd,
    NatPoolId,
    NatQuotaExceededEvent,
    MaxSessionEntries,
    MaxBibEntries,
    MaxEntriesPerUser,
    MaxSubscribers,
    MaxFragmentsPendingReassembly,
    Dot1qVlanId,
    Dot1qCustomerVlanId,
    ExportingProcessId,
    NotSentFlowTotalCount,
}

impl Field {
    const fn element(self) -> (u16, u16) {
        match self {
            Self::ProtocolIdentifier => (4, 1),
            Self::SourceTransportPort => (7, 2),
            Self::SourceIpv4Address => (8, 4),
            Self::DestinationTransportPort => (11, 2),
            Self::DestinationIpv4Address => (12, 4),
            Self::ExportingProcessId => (144, 4),
            Self::NotSentFlowTotalCount => (166, 8),
            Self::PostNatSourceIpv4Address => (225, 4),
            Self::PostNaptSourceTransportPort => (227, 2),
            Self::NatEvent => (230, 1),
            Self::InitiatorOctets => (231, 8),
            Self::ResponderOctets => (232, 8),
            Self::Dot1qVlanId => (243, 2),
            Self::Dot1qCustomerVlanId => (245, 2),
            Self::NatPoolId => (283, 4),
            Self::InitiatorPackets => (298, 8),
            Self::ResponderPackets => (299, 8),
            Self::ObservationTimeMilliseconds => (323, 8),
            Self::PortRangeStart => (361, 2),
            Self::PortRangeEnd => (362, 2),
            Self::NatInstanceId => (463, 4),
            Self::NatQuotaExceededEvent => (466, 4),
            Self::MaxSessionEntries => (471, 4),
            Self::MaxBibEntries => (472, 4),
            Self::MaxEntriesPerUser => (473, 4),
            Self::MaxSubscribers => (474, 4),
            Self::MaxFragmentsPendingReassembly => (475, 4),
        }
    }
}

use Field as F;

/// Each list begins with time and event.
const START: [Field; 3] = [F::ObservationTimeMilliseconds, F::NatEvent, F::NatInstanceId];
/// RFC 8158, NAT44 BIB create and delete events.
const MAPPING: [Field; 5] = [
    F::SourceIpv4Address,
    F::PostNatSourceIpv4Address,
    F::ProtocolIdentifier,
    F::SourceTransportPort,
    F::PostNaptSourceTransportPort,
];
/// What a NAT44 session create event has beside that: the destination, which the NAT leaves as it is.
const DESTINATION: [Field; 2] = [F::DestinationIpv4Address, F::DestinationTransportPort];
/// What we add to a NAT44 session delete event.
const VOLUME: [Field; 4] = [F::InitiatorPackets, F::InitiatorOctets, F::ResponderPackets, F::ResponderOctets];
/// RFC 8158, port block allocation and de-allocation events.
const BLOCK: [Field; 4] =
    [F::SourceIpv4Address, F::PostNatSourceIpv4Address, F::PortRangeStart, F::PortRangeEnd];
const TAGS: [Field; 2] = [F::Dot1qVlanId, F::Dot1qCustomerVlanId];
/// RFC 7011 section 4.3; the first is the scope.
const LOST: [Field; 3] = [F::ExportingProcessId, F::ObservationTimeMilliseconds, F::NotSentFlowTotalCount];

/// What a record's fields are, tags apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    SessionCreate,
    SessionDelete,
    Mapping,
    Block,
    Addresses,
    Ports,
    QuotaSessions,
    QuotaMappings,
    QuotaPerUser,
    QuotaSubscribers,
    QuotaFragments,
    Lost,
    SessionInterim,
}

const KINDS: [Kind; 13] = [
    Kind::SessionCreate,
    Kind::SessionDelete,
    Kind::Mapping,
    Kind::Block,
    Kind::Addresses,
    Kind::Ports,
    Kind::QuotaSessions,
    Kind::QuotaMappings,
    Kind::QuotaPerUser,
    Kind::QuotaSubscribers,
    Kind::QuotaFragments,
    Kind::Lost,
    Kind::SessionInterim,
];

/// A template: a kind of record, with as many tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Template {
    kind: Kind,
    tags: usize,
}

impl Template {
    pub const LOST: Self = Self { kind: Kind::Lost, tags: 0 };

    pub fn all() -> impl Iterator<Item = Self> {
        KINDS.into_iter().flat_map(|kind| (0..3).map(move |tags| Self { kind, tags }))
    }

    pub fn of(event: &Event) -> Self {
        let (kind, tags) = match event.what {
            EventKind::SessionCreated(session) => (Kind::SessionCreate, session.tags),
            EventKind::SessionDeleted(session, _) => (Kind::SessionDelete, session.tags),
            EventKind::SessionInterim(session, _) => (Kind::SessionInterim, session.tags),
            EventKind::MappingCreated(mapping) | EventKind::MappingDeleted(mapping) => {
                (Kind::Mapping, mapping.tags)
            }
            EventKind::BlockAllocated(block) | EventKind::BlockReleased(block) => (Kind::Block, block.tags),
            EventKind::AddressesExhausted { .. } => (Kind::Addresses, Tags::default()),
            EventKind::PortsExhausted { .. } => (Kind::Ports, Tags::default()),
            EventKind::QuotaExceeded(quota) => match quota {
                Quota::Sessions { .. } => (Kind::QuotaSessions, Tags::default()),
                Quota::Mappings { .. } => (Kind::QuotaMappings, Tags::default()),
                Quota::Subscribers { .. } => (Kind::QuotaSubscribers, Tags::default()),
                Quota::PerSubscriber { tags, .. } => (Kind::QuotaPerUser, tags),
                Quota::Fragments { tags, .. } => (Kind::QuotaFragments, tags),
            },
        };
        // An inner tag alone is a customer's tag without a service tag.
        let tags = if tags.inner != 0 { 2 } else { tags.count() };
        Self { kind, tags }
    }

    fn index(self) -> u16 {
        self.kind as u16 * 3 + self.tags as u16
    }

    /// Ids of templates begin at 256 (RFC 7011 section 3.4.3).
    pub fn id(self) -> u16 {
        256 + self.index()
    }

    pub fn bit(self) -> u64 {
        1 << self.index()
    }

    /// The set it is described in: 3 for options, 2 for others (RFC 7011 section 3.3.2).
    pub fn set(self) -> u16 {
        if self.kind == Kind::Lost { 3 } else { 2 }
    }

    fn fields(self) -> impl Iterator<Item = Field> {
        let (start, a, b): (&[Field], &[Field], &[Field]) = match self.kind {
            Kind::SessionCreate => (&START, &MAPPING, &DESTINATION),
            Kind::SessionDelete => (&START, const { &join(MAPPING, DESTINATION) }, &VOLUME),
            Kind::Mapping => (&START, &MAPPING, &[]),
            Kind::Block => (&START, &BLOCK, &[]),
            Kind::Addresses => (&START, &[F::NatPoolId], &[]),
            Kind::Ports => (&START, &[F::PostNatSourceIpv4Address, F::ProtocolIdentifier], &[]),
            Kind::QuotaSessions => (&START, &[F::NatQuotaExceededEvent, F::MaxSessionEntries], &[]),
            Kind::QuotaMappings => (&START, &[F::NatQuotaExceededEvent, F::MaxBibEntries], &[]),
            Kind::QuotaSubscribers => (&START, &[F::NatQuotaExceededEvent, F::MaxSubscribers], &[]),
            Kind::QuotaPerUser => {
                (&START, &[F::NatQuotaExceededEvent, F::MaxEntriesPerUser, F::SourceIpv4Address], &[])
            }
            Kind::QuotaFragments => (
                &START,
                &[F::NatQuotaExceededEvent, F::MaxFragmentsPendingReassembly, F::SourceIpv4Address],
                &[],
            ),
            Kind::Lost => (&LOST, &[], &[]),
            // RFC 8158 has no such event: a flow record with what passed, without `natEvent`.
            Kind::SessionInterim => (
                &[F::ObservationTimeMilliseconds, F::NatInstanceId],
                const { &join(MAPPING, DESTINATION) },
                &VOLUME,
            ),
        };
        start.iter().chain(a).chain(b).chain(&TAGS[..self.tags]).copied()
    }

    pub fn record_len(self) -> usize {
        self.fields().map(|field| usize::from(field.element().1)).sum()
    }
}

const fn join(a: [Field; 5], b: [Field; 2]) -> [Field; 7] {
    [a[0], a[1], a[2], a[3], a[4], b[0], b[1]]
}

/// Write the template (RFC 7011 sections 3.4.1 and 3.4.2.2).
pub(super) fn describe(to: &mut Vec<u8>, template: Template) {
    let mut put = |value: u16| to.extend_from_slice(&value.to_be_bytes());
    put(template.id());
    put(template.fields().count() as u16);
    if template.kind == Kind::Lost {
        put(1); // fields of the scope
    }
    for (number, len) in template.fields().map(Field::element) {
        put(number);
        put(len);
    }
}

/// What fields are read from.
struct Values {
    event: NatEvent,
    protocol: u8,
    inside: Endpoint,
    outside: Endpoint,
    remote: Endpoint,
    tags: Tags,
    volume: Volume,
    /// Limit or pool.
    number: u32,
    quota: u8,
}

impl Values {
    fn of(what: EventKind) -> Self {
        let nowhere = Endpoint { address: Ipv4Addr::UNSPECIFIED, port: 0 };
        let nothing = Self {
            event: NatEvent::QuotaExceeded,
            protocol: 0,
            inside: nowhere,
            outside: nowhere,
            remote: nowhere,
            tags: Tags::default(),
            volume: Volume::default(),
            number: 0,
            quota: 0,
        };
        let session = |event, session: crate::Session, volume| Self {
            event,
            protocol: session.protocol,
            inside: session.inside,
            outside: session.outside,
            remote: session.remote,
            tags: session.tags,
            volume,
            number: 0,
            quota: 0,
        };
        let mapping = |event, mapping: crate::Mapping| Self {
            event,
            protocol: mapping.protocol,
            inside: mapping.inside,
            outside: mapping.outside,
            tags: mapping.tags,
            ..nothing
        };
        let block = |event, block: crate::Block| Self {
            event,
            inside: Endpoint { address: block.inside, port: block.first },
            outside: Endpoint { address: block.outside, port: block.last },
            tags: block.tags,
            ..nothing
        };
        let quota = |quota: QuotaEvent, number, inside, tags| Self {
            inside: Endpoint { address: inside, port: 0 },
            tags,
            number,
            quota: quota as u8,
            ..nothing
        };
        let (nobody, untagged) = (Ipv4Addr::UNSPECIFIED, Tags::default());
        match what {
            EventKind::SessionCreated(it) => session(NatEvent::Nat44SessionCreate, it, Volume::default()),
            EventKind::SessionDeleted(it, volume) | EventKind::SessionInterim(it, volume) => {
                session(NatEvent::Nat44SessionDelete, it, volume)
            }
            EventKind::MappingCreated(it) => mapping(NatEvent::Nat44BibCreate, it),
            EventKind::MappingDeleted(it) => mapping(NatEvent::Nat44BibDelete, it),
            EventKind::BlockAllocated(it) => block(NatEvent::PortBlockAllocation, it),
            EventKind::BlockReleased(it) => block(NatEvent::PortBlockDeallocation, it),
            EventKind::AddressesExhausted { pool } => {
                Self { event: NatEvent::AddressesExhausted, number: pool, ..nothing }
            }
            EventKind::PortsExhausted { outside, protocol } => Self {
                event: NatEvent::PortsExhausted,
                outside: Endpoint { address: outside, port: 0 },
                protocol,
                ..nothing
            },
            EventKind::QuotaExceeded(it) => match it {
                Quota::Sessions { limit } => quota(QuotaEvent::Sessions, limit, nobody, untagged),
                Quota::Mappings { limit } => quota(QuotaEvent::Bib, limit, nobody, untagged),
                Quota::Subscribers { limit } => quota(QuotaEvent::Subscribers, limit, nobody, untagged),
                Quota::PerSubscriber { limit, inside, tags } => {
                    quota(QuotaEvent::PerUser, limit, inside, tags)
                }
                Quota::Fragments { limit, inside, tags } => quota(QuotaEvent::Fragments, limit, inside, tags),
            },
        }
    }
}

/// Write the record of an event by its template.
pub(super) fn record(to: &mut Vec<u8>, template: Template, event: &Event, instance: u32) {
    let values = Values::of(event.what);
    for field in template.fields() {
        let value = match field {
            F::ObservationTimeMilliseconds => event.at_ms,
            F::NatInstanceId => instance.into(),
            F::NatEvent => values.event as u64,
            F::ProtocolIdentifier => values.protocol.into(),
            F::SourceIpv4Address => values.inside.address.to_bits().into(),
            F::PostNatSourceIpv4Address => values.outside.address.to_bits().into(),
            F::SourceTransportPort | F::PortRangeStart => values.inside.port.into(),
            F::PostNaptSourceTransportPort | F::PortRangeEnd => values.outside.port.into(),
            F::DestinationIpv4Address => values.remote.address.to_bits().into(),
            F::DestinationTransportPort => values.remote.port.into(),
            F::InitiatorPackets => values.volume.packets_up,
            F::InitiatorOctets => values.volume.bytes_up,
            F::ResponderPackets => values.volume.packets_down,
            F::ResponderOctets => values.volume.bytes_down,
            F::NatQuotaExceededEvent => values.quota.into(),
            F::NatPoolId
            | F::MaxSessionEntries
            | F::MaxBibEntries
            | F::MaxEntriesPerUser
            | F::MaxSubscribers
            | F::MaxFragmentsPendingReassembly => values.number.into(),
            F::Dot1qVlanId => values.tags.outer.into(),
            F::Dot1qCustomerVlanId => values.tags.inner.into(),
            F::ExportingProcessId | F::NotSentFlowTotalCount => 0, // in the record of losses only
        };
        put(to, field, value);
    }
}

/// Write the record of losses.
pub(super) fn lost(to: &mut Vec<u8>, process: u32, at_ms: u64, total: u64) {
    for (field, value) in LOST.into_iter().zip([process.into(), at_ms, total]) {
        put(to, field, value);
    }
}

/// The last bytes of `value`, as many as the element has.
fn put(to: &mut Vec<u8>, field: Field, value: u64) {
    let len = usize::from(field.element().1);
    to.extend_from_slice(&value.to_be_bytes()[8 - len..]);
}
