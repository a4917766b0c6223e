//! From the records of a NAT worker to events of the log.

use crate::event::{Block, Endpoint, Event, EventKind, Mapping, Quota, Session, Tags, Volume};
use crate::queue::Producer;
use nat_core::event::{BlockRecord, MappingRecord, SessionRecord};
use nat_core::{Nat, Realm, Reason};
use std::net::Ipv4Addr;

/// One worker's records, for as many collectors as there are queues. It belongs to the worker, beside its [`Nat`].
#[derive(Debug)]
pub struct Source {
    queues: Vec<Producer>,
    clock: Clock,
    /// Of what the NAT says that it lost.
    counted: u64,
}

/// What the NAT's time 0 is by the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// Milliseconds since 1970-01-01 UTC.
    pub zero_ms: u64,
}

impl Source {
    /// Each queue gets all records.
    pub fn new(queues: Vec<Producer>, clock: Clock) -> Self {
        Self { queues, clock, counted: 0 }
    }

    /// Say anew what the NAT's time 0 is: the two clocks drift apart, and the system's may be set.
    pub fn set_clock(&mut self, clock: Clock) {
        self.clock = clock;
    }

    /// Hand over what the NAT recorded, `most` records at most, and count what it had no room for. Whether there may be more. Neither
    /// waits nor allocates: called by the worker between two bursts.
    pub fn drain(&mut self, nat: &mut Nat, most: usize) -> bool {
        let mut more = true;
        for _ in 0..most {
            let Some(event) = nat.pop_event() else {
                more = false;
                break;
            };
            if let Some(event) = self.event(&event, nat.config()) {
                self.queues.iter_mut().for_each(|queue| _ = queue.push(event));
            }
        }
        let lost = nat.events_lost().saturating_sub(self.counted);
        self.queues.iter_mut().for_each(|queue| queue.lose(lost));
        self.counted += lost;
        more
    }

    /// How many events each queue has room for.
    pub fn room(&mut self) -> u64 {
        self.queues.iter_mut().map(Producer::room).min().unwrap_or(u64::MAX)
    }

    /// `None` for a refusal that is not for the want of anything.
    fn event(&self, event: &nat_core::Event, config: &nat_core::Config) -> Option<Event> {
        let what = match event.what {
            nat_core::EventKind::SessionCreated(record) => EventKind::SessionCreated(session(record)),
            nat_core::EventKind::SessionEnded(record, passed) => {
                EventKind::SessionDeleted(session(record), volume(passed))
            }
            nat_core::EventKind::SessionInterim(record, passed) => {
                EventKind::SessionInterim(session(record), volume(passed))
            }
            nat_core::EventKind::BlockAllocated(record) => EventKind::BlockAllocated(block(record)),
            nat_core::EventKind::BlockReleased(record) => EventKind::BlockReleased(block(record)),
            nat_core::EventKind::MappingCreated(record) => EventKind::MappingCreated(mapping(record)),
            nat_core::EventKind::MappingDeleted(record) => EventKind::MappingDeleted(mapping(record)),
            nat_core::EventKind::Refused(reason, inside, realm) => {
                refusal(reason, inside, tags(realm), config)?
            }
        };
        Some(Event { at_ms: self.clock.zero_ms.saturating_add(event.at / 1_000_000), what })
    }
}

/// By the limits as they are now: a reload may change them.
fn refusal(reason: Reason, inside: Ipv4Addr, tags: Tags, config: &nat_core::Config) -> Option<EventKind> {
    let bounded = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
    let of_one = |limit| Quota::PerSubscriber { limit, inside, tags };
    let ports = u32::from(config.ports_per_block) * u32::from(config.blocks_per_subscriber);
    Some(EventKind::QuotaExceeded(match reason {
        Reason::PoolExhausted => return Some(EventKind::AddressesExhausted { pool: 0 }),
        Reason::SessionsFull => Quota::Sessions { limit: bounded(config.sessions) },
        Reason::SubscribersFull => Quota::Subscribers { limit: bounded(config.subscribers) },
        Reason::SubscriberSessions => of_one(config.sessions_per_subscriber),
        Reason::SubscriberPorts => of_one(ports),
        Reason::FragmentsFull => Quota::Fragments { limit: bounded(config.held_fragments), inside, tags },
        _ => return None,
    }))
}

/// A NAT keeps an outer and an inner id in twelve bits each.
fn tags(realm: Realm) -> Tags {
    Tags { outer: (realm >> 12 & 0xfff) as u16, inner: (realm & 0xfff) as u16 }
}

fn endpoint(endpoint: nat_core::Endpoint) -> Endpoint {
    Endpoint { address: Ipv4Addr::from_bits(endpoint.address), port: endpoint.port }
}

fn session(record: SessionRecord) -> Session {
    Session {
        inside: endpoint(record.inside),
        tags: tags(record.realm),
        outside: endpoint(record.outside),
        remote: endpoint(record.remote),
        protocol: record.protocol,
    }
}

fn mapping(record: MappingRecord) -> Mapping {
    Mapping {
        inside: endpoint(record.inside),
        tags: tags(record.realm),
        outside: endpoint(record.outside),
        protocol: record.protocol,
    }
}

fn block(record: BlockRecord) -> Block {
    let (first, last) = record.ports;
    Block { inside: record.inside, tags: tags(record.realm), outside: record.outside, first, last }
}

fn volume(passed: nat_core::event::Volume) -> Volume {
    let nat_core::event::Volume { packets_up, bytes_up, packets_down, bytes_down } = passed;
    Volume { packets_up, bytes_up, packets_down, bytes_down }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue;

    #[test]
    fn records_keep_their_meaning() {
        let config =
            nat_core::Config { sessions: 9, sessions_per_subscriber: 5, ..nat_core::Config::default() };
        let (producer, _consumer) = queue(4);
        let source = Source::new(vec![producer], Clock { zero_ms: 1_700_000_000_000 });
        let inside = Ipv4Addr::new(10, 0, 0, 7);
        let realm = 100 << 12 | 7;
        let tags = Tags { outer: 100, inner: 7 };
        let event = |what| source.event(&nat_core::Event { at: 250_999_999, what }, &config);
        let of = |last_of_address, port| {
            nat_core::Endpoint::new(Ipv4Addr::new(10, 0, 0, last_of_address).to_bits(), port)
        };
        let record =
            SessionRecord { inside: of(7, 1), realm, outside: of(8, 2), remote: of(9, 3), protocol: 17 };
        let at = |last_of_address, port| Endpoint { address: Ipv4Addr::new(10, 0, 0, last_of_address), port };
        let want = Session { inside: at(7, 1), tags, outside: at(8, 2), remote: at(9, 3), protocol: 17 };
        let at_ms = 1_700_000_000_250;
        assert_eq!(
            event(nat_core::EventKind::SessionCreated(record)),
            Some(Event { at_ms, what: EventKind::SessionCreated(want) })
        );
        let forward =
            nat_core::event::MappingRecord { inside: of(7, 1), realm, outside: of(8, 2), protocol: 17 };
        let want = Mapping { inside: at(7, 1), tags, outside: at(8, 2), protocol: 17 };
        for (what, told) in [
            (nat_core::EventKind::MappingCreated(forward), EventKind::MappingCreated(want)),
            (nat_core::EventKind::MappingDeleted(forward), EventKind::MappingDeleted(want)),
        ] {
            assert_eq!(event(what), Some(Event { at_ms, what: told }));
        }
        let refused =
            |reason| event(nat_core::EventKind::Refused(reason, inside, realm)).map(|event| event.what);
        assert_eq!(
            refused(Reason::SessionsFull),
            Some(EventKind::QuotaExceeded(Quota::Sessions { limit: 9 }))
        );
        assert_eq!(
            refused(Reason::SubscriberSessions),
            Some(EventKind::QuotaExceeded(Quota::PerSubscriber { limit: 5, inside, tags }))
        );
        assert_eq!(refused(Reason::PoolExhausted), Some(EventKind::AddressesExhausted { pool: 0 }));
        assert_eq!(refused(Reason::Filtered), None);
    }
}
