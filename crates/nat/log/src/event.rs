//! What is logged, and its form in the queue.

use std::net::Ipv4Addr;

/// VLAN ids of a subscriber; 0 where there is no such tag.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tags {
    /// The only tag, or the outer one (S-VLAN).
    pub outer: u16,
    /// The inner tag (C-VLAN).
    pub inner: u16,
}

impl Tags {
    /// How many there are.
    pub fn count(self) -> usize {
        usize::from(self.outer != 0) + usize::from(self.inner != 0)
    }
}

/// An address and a port; of an ICMP query its identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// IPv4 address.
    pub address: Ipv4Addr,
    /// Port or identifier.
    pub port: u16,
}

/// A session: one flow through a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// The subscriber's endpoint.
    pub inside: Endpoint,
    /// The subscriber's tags.
    pub tags: Tags,
    /// What stands for it outside.
    pub outside: Endpoint,
    /// The other end.
    pub remote: Endpoint,
    /// IP protocol: 1, 6 or 17.
    pub protocol: u8,
}

/// What passed in a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Volume {
    /// Packets from the subscriber.
    pub packets_up: u64,
    /// Bytes from the subscriber.
    pub bytes_up: u64,
    /// Packets to the subscriber.
    pub packets_down: u64,
    /// Bytes to the subscriber.
    pub bytes_down: u64,
}

/// A mapping, which RFC 6146 and RFC 8158 call an entry of the binding information base (BIB).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// The subscriber's endpoint.
    pub inside: Endpoint,
    /// The subscriber's tags.
    pub tags: Tags,
    /// What stands for it outside.
    pub outside: Endpoint,
    /// IP protocol: 1, 6 or 17.
    pub protocol: u8,
}

/// Consecutive ports of an address that belong to one subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The subscriber's address.
    pub inside: Ipv4Addr,
    /// The subscriber's tags.
    pub tags: Tags,
    /// The address outside.
    pub outside: Ipv4Addr,
    /// The first port.
    pub first: u16,
    /// The last port.
    pub last: u16,
}

/// A limit that a new flow would have exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quota {
    /// Sessions of the whole NAT.
    Sessions {
        /// The limit.
        limit: u32,
    },
    /// Mappings of the whole NAT.
    Mappings {
        /// The limit.
        limit: u32,
    },
    /// Sessions or ports of one subscriber.
    PerSubscriber {
        /// The limit.
        limit: u32,
        /// The subscriber's address.
        inside: Ipv4Addr,
        /// The subscriber's tags.
        tags: Tags,
    },
    /// Subscribers of the whole NAT.
    Subscribers {
        /// The limit.
        limit: u32,
    },
    /// Fragments that wait for their first.
    Fragments {
        /// The limit.
        limit: u32,
        /// Whose fragment was refused.
        inside: Ipv4Addr,
        /// The subscriber's tags.
        tags: Tags,
    },
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// A session began.
    SessionCreated(Session),
    /// A session is over.
    SessionDeleted(Session, Volume),
    /// A session goes on; its counters begin anew.
    SessionInterim(Session, Volume),
    /// A mapping began.
    MappingCreated(Mapping),
    /// A mapping is over.
    MappingDeleted(Mapping),
    /// A subscriber got a port block.
    BlockAllocated(Block),
    /// A subscriber's port block is free again.
    BlockReleased(Block),
    /// No address of a pool has anything left.
    AddressesExhausted {
        /// The pool.
        pool: u32,
    },
    /// An address has no port left.
    PortsExhausted {
        /// The address outside.
        outside: Ipv4Addr,
        /// IP protocol.
        protocol: u8,
    },
    /// A new flow was refused by a limit.
    QuotaExceeded(Quota),
}

/// What happened, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Milliseconds since 1970-01-01 UTC.
    pub at_ms: u64,
    /// What.
    pub what: EventKind,
}

/// An event in the queue: one cache line.
///
/// ```text
///  0  time in ms
///  1  kind 8 | protocol 8 | outer tag 16 | inner tag 16 | remote port 16
///  2  inside address 32 | inside or first port 16 | outside or last port 16
///  3  outside address 32 | remote address, limit or pool 32
///  4  packets up, bytes up, packets down, bytes down
/// ```
pub(crate) type Words = [u64; 8];

const SESSION_CREATED: u8 = 1;
const SESSION_DELETED: u8 = 2;
const MAPPING_CREATED: u8 = 3;
const MAPPING_DELETED: u8 = 4;
const BLOCK_ALLOCATED: u8 = 5;
const BLOCK_RELEASED: u8 = 6;
const ADDRESSES: u8 = 7;
const PORTS: u8 = 8;
const QUOTA_SESSIONS: u8 = 9;
const QUOTA_MAPPINGS: u8 = 10;
const QUOTA_SUBSCRIBER: u8 = 11;
const QUOTA_SUBSCRIBERS: u8 = 12;
const QUOTA_FRAGMENTS: u8 = 13;
const SESSION_INTERIM: u8 = 14;

/// Everything that any event has.
struct EventFields {
    kind: u8,
    protocol: u8,
    tags: Tags,
    inside: Endpoint,
    outside: Endpoint,
    remote: Endpoint,
    volume: Volume,
}

const NOWHERE: Endpoint = Endpoint { address: Ipv4Addr::UNSPECIFIED, port: 0 };

impl EventFields {
    const fn new(kind: u8) -> Self {
        let volume = Volume { packets_up: 0, bytes_up: 0, packets_down: 0, bytes_down: 0 };
        let tags = Tags { outer: 0, inner: 0 };
        Self { kind, protocol: 0, tags, inside: NOWHERE, outside: NOWHERE, remote: NOWHERE, volume }
    }

    fn session(
        kind: u8,
        Session { inside, tags, outside, remote, protocol }: Session,
        volume: Volume,
    ) -> Self {
        Self { kind, protocol, tags, inside, outside, remote, volume }
    }

    fn mapping(kind: u8, Mapping { inside, tags, outside, protocol }: Mapping) -> Self {
        Self { protocol, tags, inside, outside, ..Self::new(kind) }
    }

    fn block(kind: u8, block: Block) -> Self {
        let inside = Endpoint { address: block.inside, port: block.first };
        let outside = Endpoint { address: block.outside, port: block.last };
        Self { tags: block.tags, inside, outside, ..Self::new(kind) }
    }

    fn limit(kind: u8, limit: u32, inside: Ipv4Addr, tags: Tags) -> Self {
        let remote = Endpoint { address: Ipv4Addr::from_bits(limit), port: 0 };
        Self { tags, inside: Endpoint { address: inside, port: 0 }, remote, ..Self::new(kind) }
    }

    fn of(what: EventKind) -> Self {
        let nobody = (Ipv4Addr::UNSPECIFIED, Tags::default());
        match what {
            EventKind::SessionCreated(session) => Self::session(SESSION_CREATED, session, Volume::default()),
            EventKind::SessionDeleted(session, volume) => Self::session(SESSION_DELETED, session, volume),
            EventKind::SessionInterim(session, volume) => Self::session(SESSION_INTERIM, session, volume),
            EventKind::MappingCreated(mapping) => Self::mapping(MAPPING_CREATED, mapping),
            EventKind::MappingDeleted(mapping) => Self::mapping(MAPPING_DELETED, mapping),
            EventKind::BlockAllocated(block) => Self::block(BLOCK_ALLOCATED, block),
            EventKind::BlockReleased(block) => Self::block(BLOCK_RELEASED, block),
            EventKind::AddressesExhausted { pool } => Self::limit(ADDRESSES, pool, nobody.0, nobody.1),
            EventKind::PortsExhausted { outside, protocol } => {
                Self { protocol, outside: Endpoint { address: outside, port: 0 }, ..Self::new(PORTS) }
            }
            EventKind::QuotaExceeded(quota) => match quota {
                Quota::Sessions { limit } => Self::limit(QUOTA_SESSIONS, limit, nobody.0, nobody.1),
                Quota::Mappings { limit } => Self::limit(QUOTA_MAPPINGS, limit, nobody.0, nobody.1),
                Quota::Subscribers { limit } => Self::limit(QUOTA_SUBSCRIBERS, limit, nobody.0, nobody.1),
                Quota::PerSubscriber { limit, inside, tags } => {
                    Self::limit(QUOTA_SUBSCRIBER, limit, inside, tags)
                }
                Quota::Fragments { limit, inside, tags } => Self::limit(QUOTA_FRAGMENTS, limit, inside, tags),
            },
        }
    }

    fn kind(self) -> Option<EventKind> {
        let Self { kind, protocol, tags, inside, outside, remote, volume } = self;
        let limit = remote.address.to_bits();
        let session = Session { inside, tags, outside, remote, protocol };
        let mapping = Mapping { inside, tags, outside, protocol };
        let block = Block {
            inside: inside.address,
            tags,
            outside: outside.address,
            first: inside.port,
            last: outside.port,
        };
        Some(match kind {
            SESSION_CREATED => EventKind::SessionCreated(session),
            SESSION_DELETED => EventKind::SessionDeleted(session, volume),
            SESSION_INTERIM => EventKind::SessionInterim(session, volume),
            MAPPING_CREATED => EventKind::MappingCreated(mapping),
            MAPPING_DELETED => EventKind::MappingDeleted(mapping),
            BLOCK_ALLOCATED => EventKind::BlockAllocated(block),
            BLOCK_RELEASED => EventKind::BlockReleased(block),
            ADDRESSES => EventKind::AddressesExhausted { pool: limit },
            PORTS => EventKind::PortsExhausted { outside: outside.address, protocol },
            QUOTA_SESSIONS => EventKind::QuotaExceeded(Quota::Sessions { limit }),
            QUOTA_MAPPINGS => EventKind::QuotaExceeded(Quota::Mappings { limit }),
            QUOTA_SUBSCRIBERS => EventKind::QuotaExceeded(Quota::Subscribers { limit }),
            QUOTA_SUBSCRIBER => {
                EventKind::QuotaExceeded(Quota::PerSubscriber { limit, inside: inside.address, tags })
            }
            QUOTA_FRAGMENTS => {
                EventKind::QuotaExceeded(Quota::Fragments { limit, inside: inside.address, tags })
            }
            _ => return None,
        })
    }
}

impl Event {
    pub(crate) fn to_words(self) -> Words {
        let EventFields { kind, protocol, tags, inside, outside, remote, volume } =
            EventFields::of(self.what);
        let high = |word: u32| u64::from(word) << 32;
        [
            self.at_ms,
            u64::from(kind) << 56
                | u64::from(protocol) << 48
                | high(u32::from(tags.outer))
                | u64::from(tags.inner) << 16
                | u64::from(remote.port),
            high(inside.address.to_bits()) | u64::from(inside.port) << 16 | u64::from(outside.port),
            high(outside.address.to_bits()) | u64::from(remote.address.to_bits()),
            volume.packets_up,
            volume.bytes_up,
            volume.packets_down,
            volume.bytes_down,
        ]
    }

    /// `None` for words that no event has.
    pub(crate) fn from_words(words: Words) -> Option<Self> {
        let [at_ms, head, ports, addresses, packets_up, bytes_up, packets_down, bytes_down] = words;
        let endpoint = |address: u64, port: u64| Endpoint {
            address: Ipv4Addr::from_bits(address as u32),
            port: port as u16,
        };
        let flat = EventFields {
            kind: (head >> 56) as u8,
            protocol: (head >> 48) as u8,
            tags: Tags { outer: (head >> 32) as u16, inner: (head >> 16) as u16 },
            inside: endpoint(ports >> 32, ports >> 16),
            outside: endpoint(addresses >> 32, ports),
            remote: endpoint(addresses, head),
            volume: Volume { packets_up, bytes_up, packets_down, bytes_down },
        };
        Some(Self { at_ms, what: flat.kind()? })
    }
}
