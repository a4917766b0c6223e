//! What a NAT knows, record by record.

use super::{KeptMapping, KeptPorts, KeptSession, KeptSubscriber, Record};
use crate::binding::{Hop, Mac};
use crate::explicit::FILTERS;
use crate::key::Endpoint;
use crate::nat::Nat;
use crate::session::{Session, tick, ticks};
use crate::subscriber::{BLOCKS, Subscriber};

impl Nat {
    /// All that is to outlive it, subscribers first. `mac` says where a next hop leads to. What is over, fragments and SYNs that
    /// wait are not among it.
    pub fn export(&self, now: u64, mac: impl Fn(Hop) -> Option<Mac>) -> impl Iterator<Item = Record> {
        let ports = self.pool.resting_ports(now).map(ports_record);
        let subscribers =
            self.subscribers.iter().map(move |(_, line)| self.subscriber_record(line, now, &mac));
        let sessions =
            self.sessions.alive().flat_map(move |(index, session)| self.session_records(index, session, now));
        subscribers.chain(ports).chain(sessions)
    }

    /// A subscriber and its port blocks.
    pub(super) fn subscriber_record(
        &self,
        line: &Subscriber,
        now: u64,
        mac: &impl Fn(Hop) -> Option<Mac>,
    ) -> Record {
        let mut kept = KeptSubscriber {
            inside: line.inside,
            realm: line.realm,
            mac: mac(line.down_hop).unwrap_or_default(),
            outside: 0,
            first: [0; BLOCKS],
            blocks: line.blocks().len() as u8,
            size: self.config.ports_per_block,
            idle: if line.sessions > 0 { 0 } else { since(line.idle_since, now) },
        };
        for (place, (outside, (first, _))) in kept.first.iter_mut().zip(self.blocks_of(line)) {
            (*place, kept.outside) = (first, outside.to_bits());
        }
        Record::Subscriber(kept)
    }

    /// A session, and what was asked for if it is a mapping of that kind.
    pub(super) fn session_records(
        &self,
        index: u32,
        session: &Session,
        now: u64,
    ) -> impl Iterator<Item = Record> {
        let until = self.asked_until(index, session).filter(|until| *until > now);
        let left = until.map_or(0, |until| ticks(until - now));
        let asked = self.asked_for(index, session, left).map(Record::Mapping);
        std::iter::once(Record::Session(kept(session, left, now))).chain(asked)
    }

    /// The mapping that was asked for by a session without a remote side.
    fn asked_for(&self, index: u32, session: &Session, left: u32) -> Option<KeptMapping> {
        let explicit = self.asked.mapping(index)?;
        let mut kept = KeptMapping {
            inside: session.inside(),
            realm: session.realm(),
            protocol: session.protocol(),
            left,
            nonce: explicit.nonce,
            lets_in: [(0, 0, 0); FILTERS],
            filters: explicit.filters.len().min(FILTERS) as u8,
        };
        for (to, filter) in kept.lets_in.iter_mut().zip(&explicit.filters) {
            *to = (filter.network.address.to_bits(), filter.network.bits.min(32), filter.port);
        }
        Some(kept)
    }
}

/// Ports that rest, as the pool tells of them.
pub(super) fn ports_record((outside, protocol, left, ports): (Endpoint, u8, u64, u64)) -> Record {
    Record::Ports(KeptPorts { outside, protocol, left: ticks(left), ports })
}

fn kept(session: &Session, asked: u32, now: u64) -> KeptSession {
    KeptSession {
        inside: session.inside(),
        realm: session.realm(),
        outside: session.outside(),
        remote: session.remote(),
        protocol: session.protocol(),
        state: session.state(),
        forward: session.has(Session::STATIC),
        idle: since(session.last_seen, now),
        asked,
        up: session.up.to_bits(),
        down: session.down.to_bits(),
    }
}

/// Ticks since then; what was stamped after `now` was read is no long time ago.
fn since(then: u32, now: u64) -> u32 {
    let since = tick(now).wrapping_sub(then);
    if since > u32::MAX / 2 { 0 } else { since }
}
