//! To which Ethernet addresses packets go: the router outside, and the subscribers inside.

use packet::Mac;
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// A number of a next hop, as sessions keep it.
pub type Hop = u16;

/// Not known yet.
pub const UNKNOWN: Hop = 0;
/// The router outside.
pub const GATEWAY: Hop = 1;

/// The next hops. Those inside are learned from what subscribers send.
#[derive(Debug)]
pub struct NextHops {
    /// By number; of the gateway only once it answered.
    macs: Vec<Option<Mac>>,
    numbers: HashMap<Mac, Hop>,
    /// Who answers to an inside address, for packets of no session.
    hosts: HashMap<(u32, u32), Hop>,
    /// Hosts that are remembered.
    room: usize,
}

impl NextHops {
    /// With room for so many hosts inside, all of it from the beginning.
    pub fn new(room: usize) -> Self {
        let mut macs = Vec::with_capacity(room);
        macs.extend([None, None]);
        let (numbers, hosts) = (HashMap::with_capacity(room), HashMap::with_capacity(room));
        Self { macs, numbers, hosts, room }
    }

    /// The router's address, unless no single host can have it.
    pub fn set_gateway(&mut self, mac: Mac) {
        if is_of_one(mac) {
            self.macs[usize::from(GATEWAY)] = Some(mac);
        }
    }

    /// Whether the router's address is known.
    pub fn has_gateway(&self) -> bool {
        self.mac(GATEWAY).is_some()
    }

    /// The Ethernet address of a next hop.
    #[inline]
    pub fn mac(&self, hop: Hop) -> Option<Mac> {
        *self.macs.get(usize::from(hop))?
    }

    /// The next hop of an inside host, which has this Ethernet address. `None`: there are too many, or no single host
    /// can have it.
    pub fn learn(&mut self, host: u32, realm: u32, mac: Mac) -> Option<Hop> {
        if !is_of_one(mac) {
            return None;
        }
        let hop = match self.numbers.get(&mac) {
            Some(hop) => *hop,
            None => {
                let hop = Hop::try_from(self.macs.len()).ok()?;
                self.macs.push(Some(mac));
                self.numbers.insert(mac, hop);
                hop
            }
        };
        if self.hosts.len() < self.room || self.hosts.contains_key(&(host, realm)) {
            self.hosts.insert((host, realm), hop);
        }
        Some(hop)
    }

    /// The next hop of an inside host that was heard of.
    pub fn host(&self, host: Ipv4Addr, realm: u32) -> Option<Hop> {
        self.hosts.get(&(host.to_bits(), realm)).copied()
    }
}

/// Whether it is the address of one host. What is sent to a group every subscriber would read.
fn is_of_one(mac: Mac) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_learned_and_a_new_card_replaces_the_old() {
        let mut hops = NextHops::new(2);
        assert!(!hops.has_gateway() && hops.mac(UNKNOWN).is_none());
        hops.set_gateway([8; 6]);
        assert_eq!(hops.mac(GATEWAY), Some([8; 6]));
        let host = Ipv4Addr::new(10, 0, 0, 1);
        let first = hops.learn(host.to_bits(), 0, [2; 6]).unwrap();
        assert_eq!((hops.host(host, 0), hops.host(host, 1 << 12)), (Some(first), None));
        let second = hops.learn(host.to_bits(), 0, [6; 6]).unwrap();
        assert_eq!((hops.host(host, 0), hops.mac(second)), (Some(second), Some([6; 6])));
        assert_eq!(hops.learn(7, 0, [2; 6]), Some(first), "the same card");
        // more than are remembered are still told apart
        assert!(hops.learn(8, 0, [4; 6]).is_some() && hops.host(Ipv4Addr::from_bits(8), 0).is_none());
    }

    #[test]
    fn nobody_has_everybody_elses_packets_sent_to_a_group() {
        let mut hops = NextHops::new(2);
        for mac in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0; 6]] {
            hops.set_gateway(mac);
            assert!(!hops.has_gateway() && hops.learn(7, 0, mac).is_none(), "{mac:?}");
        }
        assert!(hops.host(Ipv4Addr::from_bits(7), 0).is_none());
    }

    #[test]
    fn there_are_as_many_as_sessions_can_name() {
        let mut hops = NextHops::new(1);
        let mac = |i: u32| [2, 0, (i >> 24) as u8, (i >> 16) as u8, (i >> 8) as u8, i as u8];
        let learned = (0..70_000).filter(|i| hops.learn(*i, 0, mac(*i)).is_some()).count();
        assert_eq!(learned, 65_534);
    }
}
