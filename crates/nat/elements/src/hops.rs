//! By which next hop a worker's subscribers are reached, and when that of one who is gone may be another's.

use crate::shared::{BindingEnd, SessionEnd};
use crate::state::Bound;
use nat_core::neighbours::Host;
use nat_core::{Hop, Nat};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::Ipv4Addr;
use std::sync::mpsc::TrySendError;

/// After so many looks what the NAT table had handed on before a binding ended is through, and can begin no session more.
const SETTLE: u64 = 2_000;

/// The next hops of a worker's subscribers.
#[derive(Debug)]
pub struct Hops {
    /// By which a subscriber is reached that has no session.
    hosts: HashMap<Host, Hop>,
    most: usize,
    /// Looks so far.
    turns: u64,
    /// Next hops that end, and whose they were.
    gone: HashMap<Hop, Host>,
    /// Those by which no session went, and the look at which that is looked at again; and all of them since the first time.
    settling: VecDeque<(u64, Hop)>,
    settled: HashSet<Hop>,
}

impl Hops {
    /// None yet, for so many subscribers.
    pub fn new(most: usize) -> Self {
        Self {
            hosts: HashMap::with_capacity(most),
            most,
            turns: 0,
            gone: HashMap::new(),
            settling: VecDeque::new(),
            settled: HashSet::new(),
        }
    }

    /// Those of before a restart.
    pub fn restore(&mut self, bound: &[Bound]) {
        self.hosts.extend(bound.iter().take(self.most).map(|one| ((one.inside, one.realm), one.hop)));
    }

    /// A subscriber is reached by this one from now on.
    pub fn learn(&mut self, host: Host, hop: Hop) {
        if self.hosts.len() < self.most || self.hosts.contains_key(&host) {
            self.hosts.insert(host, hop);
        }
    }

    /// By which one a subscriber is reached.
    pub fn of(&self, host: Host) -> Option<Hop> {
        self.hosts.get(&host).copied()
    }

    /// A subscriber's binding is over: its sessions end.
    pub fn end(&mut self, ended: BindingEnd, nat: &mut Nat) {
        let host = (ended.inside, ended.realm);
        nat.end_hop(ended.hop);
        nat.forget_untranslated(ended.inside, ended.realm);
        self.gone.insert(ended.hop, host);
        self.forget(host, ended.hop, nat);
    }

    fn forget(&mut self, host: Host, hop: Hop, nat: &mut Nat) {
        if self.hosts.get(&host) == Some(&hop) {
            self.hosts.remove(&host);
        }
        nat.forget_hop(Ipv4Addr::from_bits(host.0), host.1, hop);
    }

    /// Have next hops by which no session goes any more looked at again, and then released.
    pub fn advance(&mut self, nat: &mut Nat, end: &SessionEnd) {
        self.turns += 1;
        while let Some(hop) = nat.pop_ended_hop() {
            if self.settled.insert(hop) {
                self.settling.push_back((self.turns + SETTLE, hop));
            } else if let Err(TrySendError::Full(hop)) = end.released.try_send(hop) {
                // It takes no more now: it is told after the next search.
                nat.end_hop(hop);
                break;
            } else {
                self.settled.remove(&hop);
                self.gone.remove(&hop);
            }
        }
        while let Some((_, hop)) = self.settling.front().copied().filter(|(due, _)| *due <= self.turns) {
            self.settling.pop_front();
            // What was on its way when the binding ended may have said it again.
            if let Some(host) = self.gone.get(&hop).copied() {
                self.forget(host, hop, nat);
            }
            nat.end_hop(hop);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nat_core::testing::{NOW, REMOTE, config, hop_in, inside, send};
    use std::sync::mpsc::sync_channel;

    const HOST: Host = (0x0a00_0001, 0);
    const HOP: Hop = 5;

    /// What is on its way when a binding ends says its next hop once more, and begins a session by it.
    #[test]
    fn a_next_hop_is_released_when_nothing_names_it_any_more() {
        let (mut hops, mut nat) = (Hops::new(8), Nat::new(config()).unwrap());
        let ((_tell, told), (released, free), (ask, _asked)) =
            (sync_channel(8), sync_channel(8), sync_channel(8));
        let end = SessionEnd { told, released, ask };
        let from = inside(1, 5000);
        let say = |hops: &mut Hops, nat: &mut Nat, port| {
            hops.learn(HOST, HOP);
            nat.set_hops(*from.ip(), 0, 1, HOP, NOW).unwrap();
            send(nat, inside(1, port), REMOTE);
        };
        say(&mut hops, &mut nat, 5000);
        hops.end(BindingEnd { inside: HOST.0, realm: HOST.1, hop: HOP }, &mut nat);
        assert_eq!(hops.of(HOST), None);
        for turn in 0..SETTLE {
            if turn == 10 {
                say(&mut hops, &mut nat, 5001);
                assert_eq!(hops.of(HOST), Some(HOP));
            }
            nat.advance(NOW, 1_000);
            hops.advance(&mut nat, &end);
        }
        assert!(free.try_recv().is_err());
        for _ in 0..4 {
            nat.advance(NOW, 1_000);
            hops.advance(&mut nat, &end);
        }
        assert_eq!((free.try_recv(), hops.of(HOST), nat.session_count()), (Ok(HOP), None, 0));
        assert!(hops.gone.is_empty() && hops.settled.is_empty());
        // Who comes back is not reached by it.
        send(&mut nat, from, REMOTE);
        let outside = nat.sessions().next().map(|(_, session)| session.outside()).unwrap();
        assert_eq!(hop_in(&mut nat, REMOTE, outside), Some(0));
    }
}
