//! Mappings that somebody asked for, as by PCP's MAP (RFC 6887 section 11): they stay without sessions until their time is over, and whoever
//! passes their filters is let in.
//!
//! Such a mapping has a member without a remote side, which no packet finds.

use super::Nat;
use super::lifecycle::Flow;
use super::mapping::Mapped;
use crate::explicit::{Explicit, ExplicitMapping, MappingError, MappingRequest, Nonce};
use crate::key::{Endpoint, Realm};
use crate::pool::{PortRequest, class};
use crate::reason::Reason;
use crate::session::{Session, State, tick};
use crate::subscriber::Subscriber;
use packet::layers::protocol;

impl Nat {
    /// Let an inside endpoint have a mapping: the one that it has, or a new one, at the outside endpoint that is wished for if that can be
    /// had. What stands for it outside. A mapping that was asked for before lives on, with this nonce.
    pub fn map(&mut self, wanted: &MappingRequest<'_>, now: u64) -> Result<Endpoint, MappingError> {
        let MappingRequest { inside, protocol, realm, until, nonce, .. } = *wanted;
        self.is_mappable(protocol)?;
        let mapped = self.mapped_inside(inside, protocol, realm);
        let there = match mapped {
            Some(Mapped::Static(number)) => {
                let forward = self.forwards.get(number as usize).ok_or(Reason::NoMapping)?;
                return Ok(forward.outside_endpoint());
            }
            Some(Mapped::Session(of)) => Some((of, *self.sessions.at(of).ok_or(Reason::NoMapping)?)),
            None => None,
        };
        let pinned = there.filter(|(_, session)| session.state() == State::Pinned).map(|(of, _)| of);
        let filters = self.asked.filters(pinned, wanted)?;
        if wanted.exact && there.is_some_and(|(_, session)| !wanted.is_satisfied_by(session.outside())) {
            return Err(MappingError::Taken);
        }
        let flow = Flow {
            inside,
            remote: Endpoint::default(),
            protocol,
            realm,
            state: State::Pinned,
            last_seen: tick(now),
        };
        let index = match (pinned, there) {
            (Some(of), _) => of,
            (None, Some((of, session))) => {
                let index = self.open_on(&flow, Mapped::Session(of), now)?;
                // From now on the mapping is found by the one that stays.
                for hash in self.hashes_of(&session).mapping {
                    self.mappings.replace(hash, of, index);
                }
                index
            }
            (None, None) => self.open_at(&flow, wanted, now)?,
        };
        let line = self.sessions.at_mut(index).ok_or(Reason::NoMapping)?;
        line.last_seen = tick(now);
        // Its owner may be reached by another next hop since.
        if let Some(subscriber) = self.subscribers.at(line.subscriber) {
            line.down_hop = subscriber.down_hop;
        }
        let (outside, subscriber) = (line.outside(), line.subscriber);
        self.has_public(subscriber)?;
        self.asked.keep(index, subscriber, Explicit { until, nonce, filters });
        self.changes.session(index);
        Ok(outside)
    }

    /// Let a session with `remote` be there, and live until the time that is wanted if that is longer than it would (RFC 6887 section 12). Its outside
    /// endpoint, and how long it lives now without packets, ns. None begins that would be over by now.
    pub fn peer(
        &mut self,
        wanted: &MappingRequest<'_>,
        remote: Endpoint,
        now: u64,
    ) -> Result<(Endpoint, u64), MappingError> {
        let MappingRequest { inside, protocol, realm, .. } = *wanted;
        self.is_mappable(protocol)?;
        let there = self.find_up(inside, remote, protocol, realm);
        let mapped = there.map(Mapped::Session).or_else(|| self.mapped_inside(inside, protocol, realm));
        if wanted.exact && mapped.is_some_and(|mapped| !wanted.is_satisfied_by(self.outside_of(mapped))) {
            return Err(MappingError::Taken);
        }
        let index = match there {
            Some(index) => index,
            None if wanted.until <= now => return Err(MappingError::NotThere),
            None if self.is_exempt(remote) => return Err(Reason::NoMapping.into()),
            None => {
                let state = if protocol == protocol::TCP { State::SynUp } else { State::Open };
                let flow = Flow { inside, remote, protocol, realm, state, last_seen: tick(now) };
                self.may_begin(&flow)?;
                match mapped {
                    Some(_) => self.open(&flow, now)?,
                    None => self.open_at(&flow, wanted, now)?,
                }
            }
        };
        let session = *self.sessions.at(index).ok_or(Reason::NoMapping)?;
        let idle = u64::from(self.idle.of(&session)) << 20;
        let mut until = now + idle.saturating_sub(session.idle(now));
        // Both sides know that it is over, so it ends in time.
        let ends = matches!(session.state(), State::FinBoth | State::Reset);
        if wanted.until > until && !ends {
            until = self.asked.extend(index, wanted.until);
            self.changes.session(index);
            if let Some(line) = self.sessions.at_mut(index) {
                line.flags |= Session::EXTENDED;
            }
        }
        Ok((session.outside(), until))
    }

    /// A mapping is as any other from now on: it ends with its last session. `false`: nobody asked for one.
    pub fn unmap(&mut self, inside: Endpoint, carried: u8, realm: Realm, now: u64) -> bool {
        match self.mapped_inside(inside, carried, realm) {
            Some(Mapped::Session(index)) if self.is_pinned(index) => {
                self.end(index, now);
                true
            }
            _ => false,
        }
    }

    /// The same of all mappings of a subscriber that were asked for with this nonce, of one protocol or of all.
    pub fn unmap_all(&mut self, inside: u32, realm: Realm, carried: Option<u8>, nonce: &Nonce, now: u64) {
        let its = self.asked_by(inside, realm).to_vec();
        for index in its {
            let meant = self.sessions.at(index).is_some_and(|session| {
                carried.is_none_or(|carried| carried == session.protocol())
                    && self.asked.mapping(index).is_some_and(|explicit| explicit.nonce == *nonce)
            });
            if meant {
                self.end(index, now);
            }
        }
    }

    /// What was asked for, or is set up, for an inside endpoint.
    pub fn explicit(&self, inside: Endpoint, carried: u8, realm: Realm) -> Option<ExplicitMapping<'_>> {
        match self.mapped_inside(inside, carried, realm)? {
            Mapped::Static(number) => self
                .forwards
                .get(number as usize)
                .map(|forward| ExplicitMapping::Static(forward.outside_endpoint())),
            Mapped::Session(index) => {
                let outside = self.sessions.at(index)?.outside();
                self.asked.mapping(index).map(|explicit| ExplicitMapping::Requested(outside, explicit))
            }
        }
    }

    /// How many mappings a subscriber asked for.
    pub fn explicit_count(&self, inside: u32, realm: Realm) -> usize {
        self.asked_by(inside, realm).len()
    }

    fn asked_by(&self, inside: u32, realm: Realm) -> &[u32] {
        let subscriber = self.subscribers.find(&self.hasher, inside, realm);
        subscriber.map_or(&[], |number| self.asked.of(number))
    }

    pub(crate) fn is_pinned(&self, index: u32) -> bool {
        self.sessions.at(index).is_some_and(|session| session.state() == State::Pinned)
    }

    /// Until when a session is there though nobody uses it, because somebody asked for that.
    pub(crate) fn asked_until(&self, index: u32, session: &Session) -> Option<u64> {
        match session.state() {
            State::Pinned => Some(self.asked.expires_at(index).unwrap_or(0)),
            // Both sides know that it is over.
            State::FinBoth | State::Reset => None,
            _ if session.has(Session::EXTENDED) => self.asked.expires_at(index),
            _ => None,
        }
    }

    /// What stands outside for whom a mapping leads to.
    fn outside_of(&self, mapped: Mapped) -> Endpoint {
        match mapped {
            Mapped::Session(of) => self.sessions.at(of).map(Session::outside),
            Mapped::Static(number) => {
                self.forwards.get(number as usize).map(|forward| forward.outside_endpoint())
            }
        }
        .unwrap_or_default()
    }

    fn is_mappable(&self, carried: u8) -> Result<(), Reason> {
        let known = matches!(carried, protocol::TCP | protocol::UDP) && self.shares_mappings(carried);
        known.then_some(()).ok_or(Reason::Protocol)
    }

    /// Begin a mapping, at the outside endpoint that is wished for if it can be had.
    fn open_at(&mut self, flow: &Flow, wanted: &MappingRequest<'_>, now: u64) -> Result<u32, MappingError> {
        let subscriber = self.admit(flow.inside.address, flow.realm, now)?;
        self.allows(subscriber)?;
        self.leave_draining(subscriber, now);
        if let Some(outside) = self.take_wished(subscriber, flow.protocol, wanted, now) {
            return Ok(self.open_with(flow, outside, subscriber, now)?);
        }
        let line = *self.subscribers.at(subscriber).ok_or(Reason::SubscribersFull)?;
        let address = || (line.block_count > 0).then(|| self.pool.address(line.address));
        if wanted.exact
            && (wanted.port.is_some() || wanted.address.is_some_and(|wish| address() != Some(wish)))
        {
            return Err(MappingError::Taken);
        }
        Ok(self.open(flow, now)?)
    }

    /// The port that is wished for: in a block of the subscriber, or in a free one of its address that it may have. So whoever had a port before the
    /// NAT was restarted gets it again if it asks in time.
    fn take_wished(
        &mut self,
        subscriber: u32,
        carried: u8,
        wanted: &MappingRequest<'_>,
        now: u64,
    ) -> Option<Endpoint> {
        let (line, port) = (*self.subscribers.at(subscriber)?, wanted.port?);
        let own = (line.block_count > 0).then(|| self.pool.address(line.address));
        // An address may be a site's, and ports of one address may be several workers'.
        let site = self.sites.as_ref().map(|sites| sites.slot(line.inside, line.realm));
        let of_site = || site.flatten().map(|number| self.pool.address(number));
        let its = own.or_else(of_site);
        // A new subscriber may have any address: the port that is wished for is looked for at the one that it would get.
        let its = match (its, site, wanted.address) {
            (None, None, None) => {
                let picked = self.pick_address(subscriber).ok()?;
                Some(self.pool.address(picked))
            }
            _ => its,
        };
        let address = wanted.address.or(its).filter(|wish| its.is_none_or(|its| its == *wish))?;
        let (number, block) = self.pool.block_of(address, port)?;
        if own.is_some() && number != line.address || site.is_some_and(|slot| slot != Some(number)) {
            return None;
        }
        if self.pool.drains(number) {
            return None;
        }
        let has = line.blocks().contains(&block);
        let more = line.block_count < u16::from(self.config.blocks_per_subscriber)
            && !line.has(Subscriber::FIXED)
            && self.config.deterministic.is_none();
        if !(has || more && self.pool.claim_block(number, block)) {
            return None;
        }
        let taken = self.pool.take_port(number, block, class(carried), PortRequest::Exactly(port), 0, now);
        match taken {
            None if !has => self.pool.release_block(number, block),
            Some(_) if !has => self.give_block(subscriber, number, block, now),
            _ => {}
        }
        Some(Endpoint::new(address, taken?))
    }
}

#[cfg(test)]
#[path = "pcp_mapping_tests.rs"]
mod tests;
