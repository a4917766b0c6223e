//! By which next hops subscribers and their sessions are reached.

use super::Nat;
use crate::headers::Headers;
use crate::key::Realm;
use crate::reason::Reason;
use crate::verdict::Side;
use std::net::Ipv4Addr;

/// Next hops of subscribers for which nothing else was said: one towards them, one away from them.
pub(super) const HOP: u16 = 0;

impl Nat {
    /// By which next hops a subscriber is reached, and reaches the world; sessions that begin from now on use them. Whether they are
    /// others than before.
    pub fn set_hops(
        &mut self,
        inside: Ipv4Addr,
        realm: Realm,
        up: u16,
        down: u16,
        now: u64,
    ) -> Result<bool, Reason> {
        let number = self.admit(inside.to_bits(), realm, now)?;
        Ok(self.reach_line(number, up, down))
    }

    /// The same of one that is a subscriber already; whoever is none becomes none by this.
    pub fn reach(&mut self, inside: Ipv4Addr, realm: Realm, up: u16, down: u16) {
        if let Some(number) = self.subscribers.find(&self.hasher, inside.to_bits(), realm) {
            self.reach_line(number, up, down);
        }
    }

    fn reach_line(&mut self, number: u32, up: u16, down: u16) -> bool {
        let line = self.subscribers.at_mut(number);
        let Some(line) = line.filter(|line| (line.up_hop, line.down_hop) != (up, down)) else { return false };
        (line.up_hop, line.down_hop) = (up, down);
        self.changes.subscriber(number);
        true
    }

    /// A subscriber is not reached by this next hop any more. If it was, it is by none that is known, until [`Nat::set_hops`] says
    /// another.
    pub fn forget_hop(&mut self, inside: Ipv4Addr, realm: Realm, down: u16) {
        let found = self.subscribers.find(&self.hasher, inside.to_bits(), realm);
        let line = found.and_then(|number| self.subscribers.at_mut(number));
        if let Some(line) = line.filter(|line| line.down_hop == down) {
            (line.up_hop, line.down_hop) = (HOP, HOP);
        }
    }

    /// A packet with these headers when it came goes to a subscriber by this next hop: so does its session from now on, if it began
    /// when none was known.
    pub fn give_hop(&mut self, side: Side, headers: &Headers, down: u16) {
        let Headers { protocol, realm, .. } = *headers;
        let (source, destination) = (headers.source(), headers.destination());
        let found = match side {
            Side::Outside => self.find_down(source, destination, protocol),
            // It goes back in, by the session of who is spoken to.
            Side::Inside => self
                .find_up(source, destination, protocol, realm)
                .and_then(|index| self.sessions.at(index))
                .map(|session| session.outside())
                .and_then(|outside| self.find_down(outside, destination, protocol)),
        };
        let Some(index) = found else { return };
        let session = self.sessions.at_mut(index);
        if let Some(session) = session.filter(|session| session.down_hop == HOP && down != HOP) {
            session.down_hop = down;
            self.changes.session(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, PoolAddress, SECOND, StaticForward};
    use crate::verdict::{Frame, Verdict};
    use packet::frame::{Flow, Program};
    use packet::signature::Signature;

    const POOL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);
    const REMOTE: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 9), 7000);

    /// A datagram, and by which next hop it goes in.
    fn hop_in(nat: &mut Nat, side: Side, from: (Ipv4Addr, u16)) -> (Headers, u16) {
        let flow = Flow {
            source_mac: [2; 6],
            destination_mac: [4; 6],
            source: from.into(),
            destination: (POOL, 8080).into(),
        };
        let (mut bytes, mark) = (vec![0; 80], Signature { stream: 1, sequence: 2, sent_ns: 3 });
        let _written = Program::udp(&flow, 80).unwrap().write(&mut bytes, 0, &mark);
        let mut frames = [Frame::new(&mut bytes)];
        nat.process(side, &mut frames, SECOND);
        match frames[0].verdict {
            Verdict::Forward(forward) if forward.to == Side::Inside => (frames[0].headers, forward.hop),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_session_that_began_from_outside_gets_its_next_hop_when_that_is_known() {
        let forward = StaticForward { protocol: 17, outside: (POOL, 8080), inside: (SERVER, 80), realm: 0 };
        let mut nat = Nat::new(Config {
            pool: vec![PoolAddress::all_ports(POOL)],
            static_forwards: vec![forward],
            sessions: 64,
            ..Config::default()
        })
        .unwrap();
        nat.reserve_changes(64);
        let subscriber = (Ipv4Addr::new(10, 0, 0, 8), 5000);
        for (side, from) in [(Side::Outside, REMOTE), (Side::Inside, subscriber)] {
            let (headers, none) = hop_in(&mut nat, side, from);
            nat.note_changes(true);
            nat.give_hop(side, &headers, 5);
            nat.give_hop(side, &headers, 5);
            assert_eq!(nat.changes().0, 1, "a standby is told of its next hop");
            assert_eq!((none, hop_in(&mut nat, side, from).1), (HOP, 5), "{side:?}");
            // It stays there until it ends.
            nat.give_hop(side, &headers, 6);
            assert_eq!(hop_in(&mut nat, side, from).1, 5);
        }
        nat.note_changes(true);
        nat.reach(SERVER, 0, 1, 6);
        nat.reach(SERVER, 0, 1, 6);
        assert_eq!(nat.changes().0, 1);
        let mut set = |host| nat.set_hops(host, 0, 1, 6, SECOND);
        assert_eq!(set(SERVER), Ok(false), "as before");
        assert_eq!(set(Ipv4Addr::new(10, 0, 0, 9)), Ok(true));
        assert_eq!(set(Ipv4Addr::new(198, 51, 100, 9)), Err(Reason::NotInside));
        assert_eq!(hop_in(&mut nat, Side::Outside, (REMOTE.0, 7001)).1, 6);
        // With its next hop it ends: nobody else gets what was for the subscriber.
        nat.end_hop(5);
        while nat.advance(SECOND, 100) {}
        assert_eq!((nat.pop_ended_hop(), hop_in(&mut nat, Side::Outside, REMOTE).1), (Some(5), 6));
    }
}
