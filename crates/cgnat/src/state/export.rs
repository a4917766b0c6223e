//! What a NAT knows, record by record.

use super::{KeptAsked, KeptPorts, KeptSession, KeptSubscriber, Record};
use crate::binding::{Hop, Mac};
use crate::explicit::FILTERS;
use crate::nat::Nat;
use crate::session::{Session, tick};
use crate::subscriber::{BLOCKS, Subscriber};

impl Nat {
    /// All that is to outlive it, subscribers first. `mac` says where a next hop leads to. What is over, fragments and SYNs that
    /// wait are not among it.
    pub fn export(&self, now: u64, mac: impl Fn(Hop) -> Option<Mac>) -> impl Iterator<Item = Record> {
        let size = self.config.ports_per_block;
        let subscriber = move |line: &Subscriber| {
            let mut kept = KeptSubscriber {
                inside: line.inside,
                realm: line.realm,
                mac: mac(line.down_hop).unwrap_or_default(),
                outside: 0,
                first: [0; BLOCKS],
                blocks: line.blocks().len() as u8,
                size,
                idle: if line.sessions > 0 { 0 } else { since(line.idle_since, now) },
            };
            for (place, (outside, (first, _))) in kept.first.iter_mut().zip(self.blocks_of(line)) {
                (*place, kept.outside) = (first, outside.to_bits());
            }
            Record::Subscriber(kept)
        };
        let ports = self.pool.resting(now).map(|(outside, protocol, left, ports)| {
            Record::Ports(KeptPorts { outside, protocol, left: crate::session::ticks(left), ports })
        });
        let subscribers = self.subscribers.iter().map(move |(_, line)| subscriber(line));
        let sessions = self.sessions.alive().flat_map(move |(index, session)| {
            let until = self.asked_until(index, session).filter(|until| *until > now);
            let left = until.map_or(0, |until| crate::session::ticks(until - now));
            let asked = self.asked_for(index, session, left).map(Record::Asked);
            std::iter::once(Record::Session(kept(session, left, now))).chain(asked)
        });
        subscribers.chain(ports).chain(sessions)
    }

    /// The mapping that was asked for by a session without a remote side.
    fn asked_for(&self, index: u32, session: &Session, left: u32) -> Option<KeptAsked> {
        let explicit = self.asked.mapping(index)?;
        let mut kept = KeptAsked {
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
