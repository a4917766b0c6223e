//! Public addresses of sites: assigned, and taken away with all that went by them.

use super::Nat;
use crate::config::SiteConfig;
use crate::reason::Reason;
use crate::session::Session;
use crate::sites::{Site, hop};
use std::net::Ipv4Addr;

impl Nat {
    /// Let a site have an address, by a slot of its own. `false`: not now, since the slot or the address still has what ends.
    pub fn assign_public(&mut self, site: Site, slot: u32, address: Ipv4Addr) -> bool {
        let Some(sites) = &mut self.sites else { return false };
        let address = address.to_bits();
        if sites.slot(site.inside, site.realm) == Some(slot) && sites.address(slot) == Some(address) {
            return true;
        }
        let used = self.pool.has(address);
        sites.assign(site, slot, address, used) && self.pool.assign(slot, address)
    }

    /// Take a slot's address away: nothing begins on it any more, and [`Nat::advance`] ends what there is.
    pub fn vacate_public(&mut self, slot: u32) {
        if let Some(sites) = &mut self.sites {
            sites.release_slot(slot);
        }
    }

    /// The next slot that [`Nat::vacate_public`] was said of and by which nothing goes any more: all of it has ended and is in the
    /// log, so that the address may be used elsewhere.
    pub fn pop_vacated_public(&mut self) -> Option<u32> {
        self.sites.as_mut()?.pop_vacated()
    }

    /// The address of a slot, unless it is being taken away.
    pub fn public_address(&self, slot: u32) -> Option<Ipv4Addr> {
        self.sites.as_ref()?.address(slot).map(Ipv4Addr::from_bits)
    }

    /// How sites are told apart, if there are any.
    pub fn sites(&self) -> Option<SiteConfig> {
        self.config.sites
    }

    /// Whether a subscriber may begin something: its site has an address, or there are no sites.
    pub(crate) fn has_public(&self, subscriber: u32) -> Result<(), Reason> {
        let (Some(sites), Some(line)) = (&self.sites, self.subscribers.at(subscriber)) else { return Ok(()) };
        sites.slot(line.inside, line.realm).map(|_| ()).ok_or(Reason::NoPublicAddress)
    }

    /// The address that a subscriber's first block is of.
    pub(crate) fn pick_address(&mut self, subscriber: u32) -> Result<u32, Reason> {
        if let (Some(sites), Some(line)) = (&self.sites, self.subscribers.at(subscriber)) {
            return sites.slot(line.inside, line.realm).ok_or(Reason::NoPublicAddress);
        }
        // All mappings of a subscriber have one address (RFC 6888 REQ-2): where it has a forward, that one's.
        if let Some(line) = self.subscribers.at(subscriber)
            && let Some(number) = self.forwarded_to.get(&(line.inside, line.realm))
            && let Some(forward) = self.forwards.get(*number as usize)
            && let Some(number) = self.pool.open_number(forward.outside_endpoint())
        {
            return Ok(number);
        }
        let random = self.draw();
        self.pool.pick_address(random).ok_or(Reason::PoolExhausted)
    }

    /// By which next hop a subscriber reaches the world.
    pub(crate) fn up_hop(&self, address: u32, said: u16) -> u16 {
        if self.sites.is_some() { hop(address) } else { said }
    }

    /// End what goes by addresses that are taken away, in the next `budget` lines; whether there is more.
    pub(crate) fn advance_sites(&mut self, now: u64, budget: usize) -> bool {
        let Some(sites) = &mut self.sites else { return false };
        if !sites.is_searching() {
            return false;
        }
        // It is put back below: what ends does not look at it.
        let mut search = std::mem::take(&mut sites.search);
        let mut left = budget as u32;
        let mut last = search.session.saturating_add(left).min(self.sessions.used());
        for index in search.session..last {
            let goes = |session: &Session| {
                let by = crate::sites::slot(session.up_hop);
                by.is_some_and(|slot| search.slots.binary_search(&slot).is_ok())
                    // Of another site, to one that had the address.
                    || session.has(Session::HAIRPIN) && search.addresses.binary_search(&session.remote).is_ok()
            };
            let goes = |session: &Session| session.is_alive() && goes(session);
            if self.sessions.at(index).is_some_and(goes) && !self.end_in_turn(index, now) {
                last = index;
                break;
            }
        }
        left -= last - search.session;
        search.session = last;
        let mut done = false;
        if last >= self.sessions.used() {
            let (from, most) = (search.subscriber, self.subscribers.used());
            let last = from.saturating_add(left).min(most);
            for number in from..last {
                self.take_blocks(number, &search.slots, now);
            }
            search.subscriber = last;
            done = last >= most;
        }
        let Some(sites) = &mut self.sites else { return false };
        sites.search = search;
        if !done {
            return true;
        }
        let vacated = sites.end_search();
        self.pool.release_slots(&vacated);
        sites.is_searching()
    }

    /// A subscriber whose address is taken away has no port blocks any more.
    fn take_blocks(&mut self, number: u32, slots: &[u32], now: u64) {
        let Some(line) = self.subscribers.at(number).copied().filter(|line| !line.blocks().is_empty()) else {
            return;
        };
        if slots.binary_search(&line.address).is_err() {
            return;
        }
        for block in line.blocks() {
            self.give_back(&line, line.address, *block, now);
        }
        self.pool.leave(line.address);
        if let Some(line) = self.subscribers.at_mut(number) {
            line.address = crate::session::NONE;
            line.blocks = [crate::session::NONE; crate::subscriber::BLOCKS];
            line.block_count = 0;
        }
    }
}
