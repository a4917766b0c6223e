//! Mappings: which outside endpoint stands for an inside one. A mapping is the ring of its sessions, so it costs two entries that find it
//! and no memory of its own.

use super::Nat;
use crate::config::{Filtering, Mapping, PerProtocol, StaticForward};
use crate::key::{Endpoint, Key};
use crate::session::Session;
use packet::layers::protocol;

/// In an index: that of a static forward.
const STATIC: u32 = 1 << 31;

/// What stands for an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mapped {
    /// The mapping that this session has.
    Session(u32),
    /// The static forward of this number.
    Static(u32),
}

impl<T: Copy> PerProtocol<T> {
    /// The one for this protocol.
    pub fn of(&self, protocol: u8) -> T {
        match protocol {
            protocol::TCP => self.tcp,
            protocol::UDP => self.udp,
            _ => self.icmp,
        }
    }
}

impl Nat {
    pub(crate) fn shares_mappings(&self, protocol: u8) -> bool {
        self.config.mapping.of(protocol) == Mapping::EndpointIndependent
    }

    pub(crate) fn filters(&self, protocol: u8) -> bool {
        self.config.filtering.of(protocol) == Filtering::AddressAndPortDependent
    }

    fn mapped(&self, key: Key, is_it: impl Fn(Endpoint, Endpoint, u8, u32) -> bool) -> Option<Mapped> {
        let sessions = self.sessions.get();
        let found = self.mappings.find(self.hash(key), |index| {
            if index & STATIC != 0 {
                self.forwards.get((index & !STATIC) as usize).is_some_and(|forward| {
                    let (inside, outside) = (forward.inside_endpoint(), forward.outside_endpoint());
                    is_it(inside, outside, forward.protocol, forward.realm)
                })
            } else {
                sessions.get(index as usize).is_some_and(|session| {
                    is_it(session.inside(), session.outside(), session.protocol(), session.realm())
                })
            }
        })?;
        Some(if found & STATIC != 0 { Mapped::Static(found & !STATIC) } else { Mapped::Session(found) })
    }

    /// What stands for an inside endpoint.
    pub(crate) fn mapped_inside(&self, endpoint: Endpoint, protocol: u8, realm: u32) -> Option<Mapped> {
        self.mapped(Key::inside(endpoint, protocol, realm), |inside, _, carried, tags| {
            inside == endpoint && carried == protocol && tags == realm
        })
    }

    /// What an outside endpoint stands for.
    pub(crate) fn mapped_outside(&self, endpoint: Endpoint, protocol: u8) -> Option<Mapped> {
        self.mapped(Key::outside(endpoint, protocol), |_, outside, carried, _| {
            outside == endpoint && carried == protocol
        })
    }

    /// Let `index`, a new session, be the first of its mapping, or join that of `of`.
    pub(crate) fn join_mapping(&mut self, index: u32, [inside, outside]: [u64; 2], of: Option<u32>) -> bool {
        let sessions = self.sessions.get_mut();
        match of.and_then(|of| sessions.get(of as usize).map(|other| (of, other.next))) {
            Some((previous, next)) => {
                let link = [
                    (previous, Some(index), None),
                    (index, Some(next), Some(previous)),
                    (next, None, Some(index)),
                ];
                for (at, next, previous) in link {
                    if let Some(session) = sessions.get_mut(at as usize) {
                        session.next = next.unwrap_or(session.next);
                        session.previous = previous.unwrap_or(session.previous);
                    }
                }
                true
            }
            None => {
                let Some(session) = sessions.get_mut(index as usize) else { return false };
                (session.next, session.previous) = (index, index);
                if !self.mappings.insert(inside, index) {
                    return false;
                }
                if !self.mappings.insert_late(outside, index) {
                    self.mappings.remove(inside, index);
                    return false;
                }
                true
            }
        }
    }

    /// Take a session out of its mapping. Whether it was the last: then there is no mapping any more.
    pub(crate) fn leave_mapping(&mut self, index: u32, session: &Session, hashes: [u64; 2]) -> bool {
        if session.next == index {
            for hash in hashes {
                self.mappings.remove(hash, index);
            }
            return true;
        }
        // Where the mapping is found by this session it is found by the next one from now on.
        for hash in hashes {
            self.mappings.replace(hash, index, session.next);
        }
        let sessions = self.sessions.get_mut();
        if let Some(previous) = sessions.get_mut(session.previous as usize) {
            previous.next = session.next;
        }
        if let Some(next) = sessions.get_mut(session.next as usize) {
            next.previous = session.previous;
        }
        false
    }

    fn forward_hashes(&self, number: usize) -> Option<[u64; 2]> {
        let forward = self.forwards.get(number)?;
        let keys = [
            Key::inside(forward.inside_endpoint(), forward.protocol, forward.realm),
            Key::outside(forward.outside_endpoint(), forward.protocol),
        ];
        Some(keys.map(|key| self.hasher.hash(key)))
    }

    /// Let a static forward be found.
    pub(crate) fn index_forward(&mut self, number: usize) {
        for hash in self.forward_hashes(number).into_iter().flatten() {
            self.mappings.insert(hash, number as u32 | STATIC);
        }
        // No block gives its port away, whoever gets the block.
        if let Some(forward) = self.forwards.get(number) {
            let subscriber = (forward.inside_endpoint().address, forward.realm);
            self.forwarded_to.entry(subscriber).or_insert(number as u32);
            self.pool.reserve(forward.outside_endpoint(), crate::pool::class(forward.protocol));
        }
    }

    /// Let a static forward be found no more.
    pub(crate) fn unindex_forward(&mut self, number: usize) {
        for hash in self.forward_hashes(number).into_iter().flatten() {
            self.mappings.remove(hash, number as u32 | STATIC);
        }
        let Some(gone) = self.forwards.get(number) else { return };
        let subscriber = (gone.inside_endpoint().address, gone.realm);
        if self.forwarded_to.get(&subscriber) == Some(&(number as u32)) {
            let is_next = |(at, other): (usize, &StaticForward)| {
                let its = (other.inside_endpoint().address, other.realm);
                at != number && its == subscriber && other.protocol != super::change::FREE
            };
            match self.forwards.iter().enumerate().position(is_next) {
                Some(next) => self.forwarded_to.insert(subscriber, next as u32),
                None => self.forwarded_to.remove(&subscriber),
            };
        }
    }
}

impl StaticForward {
    /// Where it leads to.
    pub fn inside_endpoint(&self) -> Endpoint {
        Endpoint::new(self.inside.0.to_bits(), self.inside.1)
    }

    /// Where it is reached.
    pub fn outside_endpoint(&self) -> Endpoint {
        Endpoint::new(self.outside.0.to_bits(), self.outside.1)
    }
}
