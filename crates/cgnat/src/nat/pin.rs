//! Mappings that somebody asked for, as by PCP's MAP (RFC 6887 section 11): they stay without sessions, and whoever sends to them is let in.
//!
//! Such a mapping has a member without a remote side, which no packet finds and no time ends.

use super::Nat;
use super::lifecycle::Flow;
use super::mapping::Mapped;
use crate::key::{Endpoint, Realm};
use crate::pool::{Wish, class};
use crate::reason::Reason;
use crate::session::{Session, State};
use packet::layers::protocol;

impl Nat {
    /// Let an inside endpoint have a mapping until [`Nat::unmap`]: the one that it has, or a new one, at port `wish` if that is a free
    /// port of the subscriber's. What stands for it outside.
    pub fn map(
        &mut self,
        inside: Endpoint,
        carried: u8,
        realm: Realm,
        wish: Option<u16>,
        now: u64,
    ) -> Result<Endpoint, Reason> {
        if !matches!(carried, protocol::TCP | protocol::UDP) || !self.shares_mappings(carried) {
            return Err(Reason::Protocol);
        }
        let flow =
            Flow { inside, remote: Endpoint::default(), protocol: carried, realm, state: State::Pinned };
        let index = match self.mapped_inside(inside, carried, realm) {
            Some(Mapped::Static(number)) => {
                let forward = self.forwards.get(number as usize).ok_or(Reason::NoMapping)?;
                return Ok(forward.outside_endpoint());
            }
            Some(mapped @ Mapped::Session(of)) => {
                let there = self.sessions.at(of).copied().ok_or(Reason::NoMapping)?;
                if there.state() == State::Pinned {
                    return Ok(there.outside());
                }
                let index = self.open_on(&flow, mapped, now)?;
                // From now on the mapping is found by the one that stays.
                for hash in self.mapping_hashes(&there) {
                    self.mappings.replace(hash, of, index);
                }
                index
            }
            None => self.open_at(&flow, wish, now)?,
        };
        self.sessions.at(index).map(Session::outside).ok_or(Reason::NoMapping)
    }

    /// The mapping is as any other from now on: it ends with its last session. `false`: nobody asked for one.
    pub fn unmap(&mut self, inside: Endpoint, carried: u8, realm: Realm, now: u64) -> bool {
        match self.mapped_inside(inside, carried, realm) {
            Some(Mapped::Session(index)) if self.is_pinned(index) => {
                self.end(index, now);
                true
            }
            _ => false,
        }
    }

    pub(crate) fn is_pinned(&self, index: u32) -> bool {
        self.sessions.at(index).is_some_and(|session| session.state() == State::Pinned)
    }

    /// Begin a mapping, at a certain port if it can be had.
    fn open_at(&mut self, flow: &Flow, wish: Option<u16>, now: u64) -> Result<u32, Reason> {
        let subscriber = self.admit(flow.inside.address, flow.realm, now)?;
        self.allows(subscriber)?;
        let line = *self.subscribers.at(subscriber).ok_or(Reason::SubscribersFull)?;
        let wished = wish.and_then(|port| {
            let take = |block: &u32| {
                let port = self.pool.take_port(
                    line.address,
                    *block,
                    class(flow.protocol),
                    Wish::Exactly(port),
                    0,
                    now,
                )?;
                Some(Endpoint::new(self.pool.address(line.address), port))
            };
            line.blocks().iter().find_map(take)
        });
        match wished {
            Some(outside) => self.open_with(flow, outside, subscriber, now),
            None => self.open(flow, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Filtering, PoolAddress, SECOND};
    use crate::verdict::{Frame, Side, Verdict};
    use packet::frame::{Flow, Program};
    use packet::signature::Signature;
    use std::net::{Ipv4Addr, SocketAddr};

    const INSIDE: Endpoint = Endpoint::new(0x0a00_0002, 5060);
    const REMOTE: Endpoint = Endpoint::new(0xc633_6409, 7000);

    fn send(nat: &mut Nat, side: Side, from: Endpoint, to: Endpoint, now: u64) -> Verdict {
        let address = |end: Endpoint| SocketAddr::from((Ipv4Addr::from_bits(end.address), end.port));
        let flow = Flow {
            source_mac: [2; 6],
            destination_mac: [4; 6],
            source: address(from),
            destination: address(to),
        };
        let mut bytes = vec![0; 80];
        let _written = Program::udp(&flow, 80).unwrap().write(
            &mut bytes,
            0,
            &Signature { stream: 1, sequence: 2, sent_ns: 3 },
        );
        let mut frames = [Frame::new(&mut bytes)];
        nat.process(side, &mut frames, now);
        frames[0].verdict
    }

    fn nat() -> Nat {
        let mut config = Config {
            pool: vec![PoolAddress::whole(Ipv4Addr::new(203, 0, 113, 1))],
            sessions: 64,
            ..Config::default()
        };
        config.filtering.udp = Filtering::AddressAndPortDependent;
        Nat::new(config).unwrap()
    }

    fn pass(nat: &mut Nat, from: u64, to: u64) {
        for second in from..to {
            nat.advance(second * SECOND, 1_000);
        }
    }

    #[test]
    fn a_mapping_stays_until_it_is_given_up_and_lets_everybody_in() {
        let mut nat = nat();
        let outside = nat.map(INSIDE, 17, 0, None, SECOND).unwrap();
        assert_eq!(nat.map(INSIDE, 17, 0, None, SECOND), Ok(outside));
        pass(&mut nat, 1, 2_000);
        let now = 2_000 * SECOND;
        assert!(matches!(send(&mut nat, Side::Outside, REMOTE, outside, now), Verdict::Forward(_)));
        assert_eq!(nat.session_count(), 1);
        assert!(nat.unmap(INSIDE, 17, 0, now) && !nat.unmap(INSIDE, 17, 0, now));
        // What is there goes on, what is new does not come in.
        assert!(matches!(send(&mut nat, Side::Outside, REMOTE, outside, now), Verdict::Forward(_)));
        let other = Endpoint::new(REMOTE.address, 7001);
        assert_eq!(send(&mut nat, Side::Outside, other, outside, now), Verdict::Drop(Reason::Filtered));
        pass(&mut nat, 2_000, 3_000);
        assert_eq!((nat.session_count(), nat.subscribers().count(), nat.sessions().count()), (0, 0, 0));
        assert_eq!(nat.pool().blocks(), (126, 126));
    }

    #[test]
    fn a_mapping_that_is_there_is_taken_over() {
        let mut nat = nat();
        assert!(matches!(send(&mut nat, Side::Inside, INSIDE, REMOTE, SECOND), Verdict::Forward(_)));
        let outside = nat.sessions().next().unwrap().1.outside();
        assert_eq!(nat.map(INSIDE, 17, 0, None, SECOND), Ok(outside));
        pass(&mut nat, 1, 1_000);
        assert_eq!(nat.session_count(), 0);
        let now = 1_000 * SECOND;
        assert!(matches!(send(&mut nat, Side::Outside, REMOTE, outside, now), Verdict::Forward(_)));
        // A wish is granted within the subscriber's block.
        let near = outside.port ^ 2;
        let second = Endpoint::new(INSIDE.address, 80);
        assert_eq!(nat.map(second, 17, 0, Some(near), now), Ok(Endpoint::new(outside.address, near)));
        assert!(nat.map(Endpoint::new(INSIDE.address, 81), 17, 0, Some(near), now).unwrap().port != near);
        assert_eq!(nat.map(INSIDE, 1, 0, None, now), Err(Reason::Protocol));
    }
}
