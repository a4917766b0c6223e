//! The public addresses of sites as a connection tracker has them: told by `nat-sites`, which hears when one of them is not used
//! here any more.

use crate::shared::SlotEnd;
use crate::sites::assigning::{SlotRelease, SlotUpdate};
use nat_core::{Hop, Mac, Nat, Reason, sites};
use std::sync::mpsc::TrySendError;

/// What is done in a turn.
const TOLD: usize = 64;

/// The slots of a worker.
#[derive(Debug)]
pub struct PublicAddresses {
    worker: usize,
    end: SlotEnd,
    /// The source addresses of what leaves by each, while it has a public address.
    macs: Vec<Option<Mac>>,
    /// A slot that is empty, which could not be told yet.
    untold: Option<u32>,
}

impl PublicAddresses {
    /// None yet, of so many, at this worker.
    pub fn new(most: usize, worker: usize, end: SlotEnd) -> Self {
        Self { worker, end, macs: vec![None; most], untold: None }
    }

    /// The source MAC address of what goes by a next hop. An error is a reason to drop it: its site has no address now.
    #[inline]
    pub fn mac(&self, hop: Hop, own: Mac) -> Result<Mac, usize> {
        // What the NAT sends by itself, and what goes untranslated, is the box's own.
        let Some(slot) = sites::slot(hop) else { return Ok(own) };
        self.macs.get(slot as usize).copied().flatten().ok_or(Reason::NoPublicAddress as usize)
    }

    /// Do what was told, some of it at a time, and tell of what has ended.
    pub fn advance(&mut self, nat: &mut Nat) {
        for _ in 0..TOLD {
            let Ok(update) = self.end.told.try_recv() else { break };
            self.update(&update, nat);
        }
        while let Some(slot) = self.untold.take().or_else(|| nat.pop_vacated_public()) {
            let vacated = SlotRelease { worker: self.worker, slot };
            if let Err(TrySendError::Full(_)) = self.end.vacated.try_send(vacated) {
                self.untold = Some(slot);
                break;
            }
        }
    }

    fn update(&mut self, update: &SlotUpdate, nat: &mut Nat) {
        let SlotUpdate { slot, assigned } = *update;
        let Some(mac) = self.macs.get_mut(slot as usize) else { return };
        let Some(assigned) = assigned else {
            // From now on nothing leaves with what it had.
            *mac = None;
            nat.vacate_public(slot);
            return;
        };
        if nat.assign_public(assigned.site, slot, assigned.address) {
            *mac = Some(assigned.mac);
        } else {
            // It is told only of what is free.
            tracing::error!("{} cannot be used: its slot or the address is", assigned.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sites::assigning::SlotAssignment;
    use nat_core::{Config, Site, SiteBy, SiteConfig};
    use std::net::Ipv4Addr;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    const OWN: Mac = [2, 0, 0, 0, 0, 9];

    fn made() -> (PublicAddresses, Nat, SyncSender<SlotUpdate>, Receiver<SlotRelease>) {
        let ((tell, told), (vacated, heard)) = (sync_channel(16), sync_channel(1));
        let sites = Some(SiteConfig { most: 3, by: SiteBy::Tags });
        let nat = Nat::new(Config { sites, sessions: 64, subscribers: 8, ..Config::default() }).unwrap();
        (PublicAddresses::new(3, 1, SlotEnd { told, vacated }), nat, tell, heard)
    }

    fn update(slot: u32, last: Option<u8>) -> SlotUpdate {
        let assigned = last.map(|last| SlotAssignment {
            site: Site { inside: 0, realm: slot << 12 },
            mac: [2, 0, 0, 0, 1, slot as u8],
            address: Ipv4Addr::new(203, 0, 113, last),
        });
        SlotUpdate { slot, assigned }
    }

    #[test]
    fn a_slot_is_used_from_when_its_address_is_assigned_until_it_is_gone() {
        let (mut public_addresses, mut nat, tell, heard) = made();
        let mac = |all: &PublicAddresses, slot| all.mac(sites::hop(slot), OWN);
        assert_eq!(
            (mac(&public_addresses, 0), public_addresses.mac(0, OWN)),
            (Err(Reason::NoPublicAddress as usize), Ok(OWN))
        );
        for slot in 0..3 {
            tell.send(update(slot, Some(7 + slot as u8))).unwrap();
        }
        public_addresses.advance(&mut nat);
        assert_eq!(mac(&public_addresses, 1), Ok([2, 0, 0, 0, 1, 1]));
        for slot in 0..3 {
            tell.send(update(slot, None)).unwrap();
        }
        public_addresses.advance(&mut nat);
        assert!((0..3).all(|slot| mac(&public_addresses, slot).is_err()) && heard.try_recv().is_err());
        while nat.advance(0, 10) {}
        // There is room to tell of one at a time.
        for slot in 0..3 {
            public_addresses.advance(&mut nat);
            assert_eq!(heard.try_recv(), Ok(SlotRelease { worker: 1, slot }));
        }
        // What there never was is gone at once.
        tell.send(update(1, None)).unwrap();
        public_addresses.advance(&mut nat);
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [SlotRelease { worker: 1, slot: 1 }]);
    }
}
