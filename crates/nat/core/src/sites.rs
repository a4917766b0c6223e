//! Sites: subscribers that share one public address, which is assigned and taken away while packets pass.
//!
//! A site owns a *slot* of the pool: the port blocks of one address, whichever that is now. While an address is taken away nothing
//! new begins on it, and neither the slot nor the address is used for anything else until all that went by it is over.

use crate::key::Realm;
use std::collections::{HashMap, VecDeque};

/// What a site is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiteBy {
    /// The subscribers with the same tags.
    Tags,
    /// One subscriber.
    Subscriber,
    /// The subscribers of one prefix of this length with the same tags.
    Prefix(u8),
}

/// A site. What does not tell it from others is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// The private address, or the first of the prefix.
    pub inside: u32,
    /// The tags.
    pub realm: Realm,
}

impl SiteBy {
    /// The bits of a private address that tell its site from others.
    pub(crate) fn mask(self) -> u32 {
        match self {
            Self::Tags => 0,
            Self::Subscriber => u32::MAX,
            Self::Prefix(bits) => u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0),
        }
    }

    /// The site of a subscriber.
    #[inline]
    pub fn site(self, inside: u32, realm: Realm) -> Site {
        Site { inside: inside & self.mask(), realm }
    }
}

/// Public addresses that come and go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiteConfig {
    /// Sites that may have an address at a time.
    pub most: usize,
    /// What a site is.
    pub by: SiteBy,
}

impl SiteConfig {
    /// As many as sessions can name.
    pub const MOST: usize = u16::MAX as usize + 1 - FIRST_HOP as usize;
}

/// The next hop of slot 0 away from the inside; those of the others follow. Smaller ones are no site's.
pub const FIRST_HOP: u16 = 2;

/// The next hop of a slot.
#[inline]
pub fn hop(slot: u32) -> u16 {
    u16::try_from(slot + u32::from(FIRST_HOP)).unwrap_or(0)
}

/// The slot of a next hop. `None`: it is no site's.
#[inline]
pub fn slot(hop: u16) -> Option<u32> {
    hop.checked_sub(FIRST_HOP).map(u32::from)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Empty,
    /// It has this address.
    Assigned(Site, u32),
    /// It had this address, and what went by it ends.
    Vacating(Site, u32),
}

/// Which site has which slot.
#[derive(Debug)]
pub(crate) struct Sites {
    pub by: SiteBy,
    slots: Vec<Slot>,
    of: HashMap<Site, u32>,
    /// Slots that wait for the next search.
    waiting: Vec<u32>,
    /// Slots that are empty since nobody was told.
    vacated: VecDeque<u32>,
    pub search: Search,
}

/// A search for what goes by slots whose address is taken away: first through sessions, then through subscribers.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// The slots, in order, and the addresses that they had, in order.
    pub slots: Vec<u32>,
    pub addresses: Vec<u32>,
    /// The next line of sessions, then of subscribers.
    pub session: u32,
    pub subscriber: u32,
}

impl Sites {
    pub fn new(config: SiteConfig) -> Self {
        Self {
            by: config.by,
            slots: vec![Slot::Empty; config.most],
            of: HashMap::with_capacity(config.most),
            waiting: Vec::new(),
            vacated: VecDeque::with_capacity(config.most),
            search: Search::default(),
        }
    }

    /// The slot of a subscriber's site, if it has an address.
    pub fn slot(&self, inside: u32, realm: Realm) -> Option<u32> {
        let slot = *self.of.get(&self.by.site(inside, realm))?;
        matches!(self.slots.get(slot as usize)?, Slot::Assigned(..)).then_some(slot)
    }

    /// Give a slot that is empty to a site. `false`: it is not empty, the site has another slot, or the address is in use.
    pub fn assign(&mut self, site: Site, slot: u32, address: u32, address_is_used: bool) -> bool {
        let elsewhere = self.of.get(&site).is_some_and(|at| *at != slot);
        match self.slots.get_mut(slot as usize) {
            Some(empty @ Slot::Empty) if !elsewhere && !address_is_used => {
                *empty = Slot::Assigned(site, address);
                self.of.insert(site, slot);
                true
            }
            _ => false,
        }
    }

    /// What a slot has.
    pub fn address(&self, slot: u32) -> Option<u32> {
        match self.slots.get(slot as usize)? {
            Slot::Assigned(_, address) => Some(*address),
            _ => None,
        }
    }

    /// Nothing begins by a slot any more. One that has no address is empty already.
    pub fn release_slot(&mut self, slot: u32) {
        match self.slots.get_mut(slot as usize) {
            Some(this @ Slot::Assigned(..)) => {
                let Slot::Assigned(site, address) = *this else { return };
                *this = Slot::Vacating(site, address);
                self.waiting.push(slot);
            }
            Some(Slot::Empty) => self.vacated.push_back(slot),
            _ => {}
        }
    }

    /// The next slot that was to be vacated and has nothing any more.
    pub fn pop_vacated(&mut self) -> Option<u32> {
        self.vacated.pop_front()
    }

    /// Whether an address is being taken away.
    pub fn is_leaving(&self, address: u32) -> bool {
        let waits = |slot: &u32| matches!(self.slots.get(*slot as usize), Some(Slot::Vacating(_, its)) if *its == address);
        self.search.addresses.binary_search(&address).is_ok() || self.waiting.iter().any(waits)
    }

    /// Whether there is something to search for; those that wait are taken into a new search.
    pub fn is_searching(&mut self) -> bool {
        if self.search.slots.is_empty() && !self.waiting.is_empty() {
            self.search = Search { slots: std::mem::take(&mut self.waiting), ..Search::default() };
            self.search.slots.sort_unstable();
            for slot in &self.search.slots {
                if let Some(Slot::Vacating(_, address)) = self.slots.get(*slot as usize) {
                    self.search.addresses.push(*address);
                }
            }
            self.search.addresses.sort_unstable();
        }
        !self.search.slots.is_empty()
    }

    /// The search is over: its slots are empty now. Which they are, in order.
    pub fn end_search(&mut self) -> Vec<u32> {
        let vacated = std::mem::take(&mut self.search.slots);
        self.search.addresses.clear();
        for slot in &vacated {
            let Some(this) = self.slots.get_mut(*slot as usize) else { continue };
            if let Slot::Vacating(site, _) = *this {
                self.of.remove(&site);
            }
            *this = Slot::Empty;
        }
        self.vacated.extend(&vacated);
        vacated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_tags_or_an_address_or_a_prefix() {
        let (host, tags) = (0x0a01_02ff, 7 << 12);
        let site = |by: SiteBy| by.site(host, tags);
        assert_eq!(site(SiteBy::Tags), Site { inside: 0, realm: tags });
        assert_eq!(site(SiteBy::Subscriber), Site { inside: host, realm: tags });
        assert_eq!(site(SiteBy::Prefix(28)), Site { inside: 0x0a01_02f0, realm: tags });
        assert_eq!((site(SiteBy::Prefix(0)).inside, site(SiteBy::Prefix(32)).inside), (0, host));
    }

    #[test]
    fn an_address_leaves_until_its_search_is_over() {
        let config = SiteConfig { most: 4, by: SiteBy::Subscriber };
        let (mut sites, site) = (Sites::new(config), Site { inside: 7, realm: 0 });
        assert!(sites.assign(site, 2, 99, false) && !sites.is_leaving(99));
        sites.release_slot(2);
        assert!(sites.is_leaving(99) && !sites.is_leaving(98), "before the search");
        assert!(sites.is_searching() && sites.is_leaving(99));
        assert_eq!((sites.end_search(), sites.is_leaving(99)), (vec![2], false));
    }

    #[test]
    fn every_slot_has_a_next_hop_of_its_own() {
        for number in [0, 1, SiteConfig::MOST as u32 - 1] {
            assert_eq!(slot(hop(number)), Some(number));
        }
        assert_eq!((slot(0), slot(1), hop(SiteConfig::MOST as u32)), (None, None, 0));
    }
}
