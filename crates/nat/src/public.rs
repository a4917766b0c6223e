//! The public addresses of sites as a connection tracker has them: told by `nat-sites`, and used when nothing of what was there
//! before is left.

use crate::sites::leasing::Public;
use cgnat::{Hop, Mac, Nat, Reason, Site, sites};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::mpsc::Receiver;

/// What is done in a turn.
const TOLD: usize = 64;

/// What a slot is to have.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    site: Site,
    mac: Mac,
    address: Ipv4Addr,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    wanted: Option<Wanted>,
    /// The source address of what leaves by it, while it has what it is to have.
    mac: Option<Mac>,
    /// Whether it is among those that wait for their address.
    waits: bool,
}

/// The slots of all sites.
#[derive(Debug)]
pub struct PublicAddresses {
    told: Receiver<Public>,
    slots: Vec<Slot>,
    /// Slots that are to get an address when they can.
    waiting: VecDeque<u32>,
}

impl PublicAddresses {
    /// None yet, of so many.
    pub fn new(most: usize, told: Receiver<Public>) -> Self {
        Self { told, slots: vec![Slot::default(); most], waiting: VecDeque::with_capacity(most) }
    }

    /// The source MAC address of what goes by a next hop. An error is a reason to drop it: its site has no address now.
    #[inline]
    pub fn mac(&self, hop: Hop, own: Mac) -> Result<Mac, usize> {
        // What the NAT sends by itself, and what goes untranslated, is the box's own.
        let Some(slot) = sites::slot(hop) else { return Ok(own) };
        self.slots.get(slot as usize).and_then(|slot| slot.mac).ok_or(Reason::NoPublicAddress as usize)
    }

    /// Do what was told, some of it at a time.
    pub fn advance(&mut self, nat: &mut Nat) {
        for _ in 0..TOLD {
            let Ok(public) = self.told.try_recv() else { break };
            self.tell(&public, nat);
        }
        for _ in 0..self.waiting.len().min(TOLD) {
            let Some(number) = self.waiting.pop_front() else { break };
            let Some(slot) = self.slots.get_mut(number as usize) else { continue };
            slot.waits = slot.wanted.is_some();
            let Some(wanted) = slot.wanted else { continue };
            if nat.assign_public(wanted.site, number, wanted.address) {
                (slot.mac, slot.waits) = (Some(wanted.mac), false);
            } else {
                self.waiting.push_back(number);
            }
        }
    }

    fn tell(&mut self, public: &Public, nat: &mut Nat) {
        let Public { site, number, mac, address } = *public;
        let Some(slot) = self.slots.get_mut(number as usize) else { return };
        slot.wanted = address.map(|address| Wanted { site, mac, address });
        // From now on nothing leaves with what it had.
        slot.mac = None;
        nat.vacate_public(number);
        if address.is_some() && !slot.waits {
            slot.waits = true;
            self.waiting.push_back(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgnat::{Config, SiteBy, SiteConfig};
    use std::sync::mpsc::{SyncSender, sync_channel};

    const OWN: Mac = [2, 0, 0, 0, 0, 9];

    fn made() -> (PublicAddresses, Nat, SyncSender<Public>) {
        let (tell, told) = sync_channel(16);
        let sites = Some(SiteConfig { most: 2, by: SiteBy::Tags });
        let nat = Nat::new(Config { sites, sessions: 64, subscribers: 8, ..Config::default() }).unwrap();
        (PublicAddresses::new(2, told), nat, tell)
    }

    fn public(number: u32, last: Option<u8>) -> Public {
        Public {
            site: Site { inside: 0, realm: number << 12 },
            number,
            mac: [2, 0, 0, 0, 1, number as u8],
            address: last.map(|last| Ipv4Addr::new(203, 0, 113, last)),
        }
    }

    #[test]
    fn a_slot_is_used_from_when_its_address_is_assigned_until_it_is_gone() {
        let (mut public_addresses, mut nat, tell) = made();
        let mac = |all: &PublicAddresses, slot| all.mac(sites::hop(slot), OWN);
        assert_eq!(
            (mac(&public_addresses, 0), public_addresses.mac(0, OWN)),
            (Err(Reason::NoPublicAddress as usize), Ok(OWN))
        );
        tell.send(public(0, Some(7))).unwrap();
        public_addresses.advance(&mut nat);
        assert_eq!(
            (mac(&public_addresses, 0), mac(&public_addresses, 1).is_err()),
            (Ok([2, 0, 0, 0, 1, 0]), true)
        );
        // it goes to the other one: which has it only when the first is through
        tell.send(public(0, None)).unwrap();
        tell.send(public(1, Some(7))).unwrap();
        public_addresses.advance(&mut nat);
        assert!(mac(&public_addresses, 0).is_err() && mac(&public_addresses, 1).is_err());
        while nat.advance(0, 10) {}
        public_addresses.advance(&mut nat);
        assert!(mac(&public_addresses, 0).is_err() && mac(&public_addresses, 1).is_ok());
        // told twice before it can be, and taken back before it can be
        for last in [Some(8), Some(9), None, Some(7), Some(6)] {
            tell.send(public(1, last)).unwrap();
        }
        public_addresses.advance(&mut nat);
        assert!(mac(&public_addresses, 1).is_err() && public_addresses.waiting.len() == 1);
        while nat.advance(0, 10) {}
        public_addresses.advance(&mut nat);
        assert_eq!(nat.public_address(1), Some(Ipv4Addr::new(203, 0, 113, 6)));
        assert!(mac(&public_addresses, 1).is_ok() && public_addresses.waiting.is_empty());
    }
}
