//! Which site has which virtual MAC address and which public address: pure logic around the DHCP clients.
//!
//! A site gets a number with its first subscriber, by that a virtual MAC address, and a client asks for an address. Its number stays
//! its own when its subscribers are gone, until there is none left for another site.

use super::options::Macs;
use nat_core::config::Prefix;
use nat_core::{Mac, Site, SiteBy};
use nat_dhcp::Clients;
use nat_dhcp::client::{Config, Event, KnownAddress, LossReason, State};
use packet::ethernet::Tags;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

const SECOND: u64 = nat_core::config::SECOND;
/// A site begins to ask within this time, so that many do not begin together. RFC 2131 section 4.4.1 says 1 to 10 s for hosts that are
/// switched on together; here somebody waits.
const START: u64 = SECOND;
/// An address that somebody else says to have is defended so often at most (RFC 5227 section 2.4).
const DEFEND: u64 = 10 * SECOND;
/// An address that has come is announced so often, and so long after each other (RFC 5227 section 2.3: ANNOUNCE_NUM, ANNOUNCE_INTERVAL).
const ANNOUNCEMENTS: u32 = 2;
const ANNOUNCE_AGAIN: u64 = 2 * SECOND;
/// Of servers that offer what no site may have is warned so often at most, and so often of others that have a site's address: there
/// may be very many sites.
const WARN: u64 = 60 * SECOND;
const WARN_OF_CONFLICT: u64 = SECOND;

/// What sites are to be.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How many at a time.
    pub most: usize,
    /// What a site is.
    pub by: SiteBy,
    /// Their virtual MAC addresses.
    pub macs: Macs,
    /// An address is given back so long after the last subscriber is gone, ns.
    pub release_after: u64,
    /// Leases shorter than this are refused, s.
    pub least_lease: u32,
    /// Tags of the outside.
    pub tags: Tags,
    /// What no site may have: subscribers' addresses, the box's own, and the router's.
    pub never: Vec<Prefix>,
}

/// A site has an address from now on, or none any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Public {
    /// Which.
    pub site: Site,
    /// Its number.
    pub number: u32,
    /// Its virtual MAC address.
    pub mac: Mac,
    /// Its address.
    pub address: Option<Ipv4Addr>,
}

/// A site that had an address, as it is kept over a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownSite {
    /// The private address, or the first of the prefix; 0.0.0.0 where sites are VLANs.
    pub inside: Ipv4Addr,
    /// The tags: twelve bits of the outer one's id, and twelve of the inner one's.
    pub realm: u32,
    /// Its virtual MAC address.
    #[serde(with = "nat_dhcp::mac")]
    pub mac: Mac,
    /// The address that it had.
    pub address: Ipv4Addr,
    /// Whether it may still have it.
    pub bound: bool,
}

/// What is known at a virtual MAC address now, if anything is.
pub type Change = (Mac, Option<KnownSite>);

/// A site.
#[derive(Debug, Clone, Copy)]
struct Entry {
    number: Option<u32>,
    subscribers: u32,
    /// When its last subscriber went, while its address is kept for it.
    left: Option<u64>,
    /// Its place among those that wait for a number.
    waits: Option<u64>,
}

impl Entry {
    const NEW: Self = Self { number: None, subscribers: 0, left: None, waits: None };
}

/// What a number is used for.
#[derive(Debug, Clone, Copy, Default)]
struct Number {
    site: Option<Site>,
    address: Option<Ipv4Addr>,
    /// When the lease ends; none: never.
    until: Option<u64>,
    server: Option<Ipv4Addr>,
    defended: u64,
    /// Its place among those whose site has nobody.
    idle: Option<u64>,
}

/// What is to be announced by ARP, and how often yet.
#[derive(Debug, Clone, Copy)]
struct Announcement {
    number: u32,
    address: Ipv4Addr,
    left: u32,
}

/// How a site stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SiteStatus {
    /// Which.
    pub site: Site,
    /// Its virtual MAC address.
    pub mac: Mac,
    /// Its address.
    pub address: Option<Ipv4Addr>,
    /// Who gave it.
    pub server: Option<Ipv4Addr>,
    /// Where its client is; none: it was released.
    pub state: Option<State>,
    /// What is left of the lease, ns; none: there is none, or it never ends.
    pub left: Option<u64>,
    /// How many of its subscribers there are.
    pub subscribers: u32,
}

/// All sites.
#[derive(Debug)]
pub struct Leasing {
    settings: Settings,
    clients: Clients,
    sites: HashMap<Site, Entry>,
    numbers: Vec<Number>,
    /// The first number that was never used, and those whose site has nobody, the longest first.
    fresh: u32,
    idle: BTreeSet<(u64, u32)>,
    /// Sites for which there was no number, the first first.
    waiting: BTreeSet<(u64, Site)>,
    /// Sites whose last subscriber went, and when.
    leaving: BTreeSet<(u64, Site)>,
    /// Numbers places in these.
    place: u64,
    publics: VecDeque<Public>,
    /// To be announced now, and again later, the next first.
    announce: VecDeque<Announcement>,
    announce_again: VecDeque<(u64, Announcement)>,
    /// When it is warned again of what servers offer, and of who has a site's address.
    warn: u64,
    warn_of_conflict: u64,
    /// Numbers of which something else is known since that was asked for.
    changed: BTreeSet<u32>,
}

impl Leasing {
    /// No site yet. Nobody else may know the seed.
    pub fn new(settings: Settings, seed: u64) -> Self {
        let config = Config {
            most: settings.most,
            start_delay: [0, START],
            least_lease: settings.least_lease,
            never: settings.never.iter().map(range).collect(),
            tags: settings.tags,
            ..Config::default()
        };
        Self {
            clients: Clients::new(config, seed),
            sites: HashMap::new(),
            numbers: vec![Number::default(); settings.most],
            fresh: 0,
            idle: BTreeSet::new(),
            waiting: BTreeSet::new(),
            leaving: BTreeSet::new(),
            place: 0,
            publics: VecDeque::new(),
            announce: VecDeque::new(),
            announce_again: VecDeque::new(),
            warn: 0,
            warn_of_conflict: 0,
            changed: BTreeSet::new(),
            settings,
        }
    }

    /// What sites had before, as it was kept: each gets its number again, and asks for its address. What does not fit to how sites are
    /// told apart now is left out; those that are taken.
    pub fn remember(&mut self, known: &[KnownSite]) -> Vec<KnownSite> {
        let mut taken = Vec::new();
        for one in known {
            let site = Site { inside: one.inside.to_bits(), realm: one.realm };
            let KnownSite { mac, address, bound, .. } = *one;
            let number = self.settings.macs.number(mac);
            let Some((number, line)) = number.and_then(|n| Some((n, self.numbers.get_mut(n as usize)?)))
            else {
                continue;
            };
            let fits = self.settings.by.site(site.inside, site.realm) == site;
            if !fits || line.site.is_some() || self.sites.contains_key(&site) {
                continue;
            }
            line.site = Some(site);
            self.sites.insert(site, Entry { number: Some(number), ..Entry::NEW });
            self.rest_number(number);
            self.clients.remember([KnownAddress { mac, address, bound }]);
            taken.push(*one);
        }
        taken
    }

    /// What sites have and had, of those of which something else is known since this was asked last.
    pub fn changes(&mut self) -> Vec<Change> {
        let numbers = std::mem::take(&mut self.changed);
        numbers.into_iter().map(|number| (self.settings.macs.of(number), self.known_of(number))).collect()
    }

    fn known_of(&self, number: u32) -> Option<KnownSite> {
        let site = self.numbers.get(number as usize)?.site?;
        let KnownAddress { mac, address, bound } = *self.clients.known_of(self.settings.macs.of(number))?;
        Some(KnownSite { inside: Ipv4Addr::from_bits(site.inside), realm: site.realm, mac, address, bound })
    }

    /// These could not be kept: they are told again.
    pub fn change_again(&mut self, changes: &[Change]) {
        self.changed.extend(changes.iter().filter_map(|(mac, _)| self.settings.macs.number(*mac)));
    }

    /// There is a subscriber more.
    pub fn add(&mut self, inside: u32, realm: u32, now: u64) {
        let site = self.settings.by.site(inside, realm);
        let entry = self.sites.entry(site).or_insert(Entry::NEW);
        entry.subscribers += 1;
        if entry.subscribers > 1 {
            return;
        }
        match entry.left.take() {
            Some(left) => drop(self.leaving.remove(&(left, site))),
            None => self.begin(site, now),
        }
    }

    /// A subscriber is gone.
    pub fn remove(&mut self, inside: u32, realm: u32, now: u64) {
        let site = self.settings.by.site(inside, realm);
        let Some(entry) = self.sites.get_mut(&site).filter(|entry| entry.subscribers > 0) else { return };
        entry.subscribers -= 1;
        if entry.subscribers > 0 {
            return;
        }
        match entry.number {
            Some(_) => {
                entry.left = Some(now);
                self.leaving.insert((now, site));
            }
            None => {
                if let Some(place) = self.sites.remove(&site).and_then(|entry| entry.waits) {
                    self.waiting.remove(&(place, site));
                }
            }
        }
    }

    /// Let a site ask for an address, once there is a number for it.
    fn begin(&mut self, site: Site, now: u64) {
        let Some(number) = self.number_for(site) else {
            tracing::warn!("there is no room for site {}: raise sites.most", text(site, self.settings.by));
            self.place += 1;
            self.waiting.insert((self.place, site));
            if let Some(entry) = self.sites.get_mut(&site) {
                entry.waits = Some(self.place);
            }
            return;
        };
        // It had none yet, or it was released: there is room.
        if let Err(why) = self.clients.add(self.settings.macs.of(number), now) {
            tracing::warn!("no DHCP client for site {}: {why}", text(site, self.settings.by));
        }
    }

    /// The number of a site that has somebody: its own, one that was never used, or that of the site that has had nobody for longest.
    fn number_for(&mut self, site: Site) -> Option<u32> {
        if let Some(number) = self.sites.get(&site)?.number {
            if let Some(place) = self.numbers.get_mut(number as usize).and_then(|line| line.idle.take()) {
                self.idle.remove(&(place, number));
            }
            return Some(number);
        }
        while self.numbers.get(self.fresh as usize).is_some_and(|line| line.site.is_some()) {
            self.fresh += 1;
        }
        let number = if (self.fresh as usize) < self.numbers.len() {
            self.fresh
        } else {
            let (_, number) = self.idle.pop_first()?;
            if let Some(before) = self.numbers.get(number as usize).and_then(|line| line.site) {
                self.sites.remove(&before);
            }
            // What another site had is not asked for.
            self.clients.forget(self.settings.macs.of(number));
            self.changed.insert(number);
            number
        };
        *self.numbers.get_mut(number as usize)? = Number { site: Some(site), ..Number::default() };
        self.sites.get_mut(&site)?.number = Some(number);
        Some(number)
    }

    /// A number's site has nobody any more.
    fn rest_number(&mut self, number: u32) {
        self.place += 1;
        if let Some(line) = self.numbers.get_mut(number as usize) {
            line.idle = Some(self.place);
            self.idle.insert((self.place, number));
        }
    }

    /// A frame came; what the clients make of it.
    pub fn receive(&mut self, frame: &[u8], now: u64) -> nat_dhcp::client::Verdict {
        let verdict = self.clients.receive(frame, now);
        self.follow(now);
        verdict
    }

    /// The virtual MAC address of the site that has an address.
    pub fn holder(&self, address: Ipv4Addr) -> Option<Mac> {
        self.clients.holder(address)
    }

    /// Somebody else says to have the address of the site at `mac`: it is announced once more and told, now and then (RFC 5227 section
    /// 2.4 c).
    pub fn defend(&mut self, mac: Mac, other: Mac, now: u64) {
        let number = self.settings.macs.number(mac);
        if let Some((number, line)) = number.and_then(|n| Some((n, self.numbers.get_mut(n as usize)?)))
            && let (Some(site), Some(address)) = (line.site, line.address)
            && (line.defended == 0 || now.saturating_sub(line.defended) >= DEFEND)
        {
            line.defended = now.max(1);
            self.announce.push_back(Announcement { number, address, left: 1 });
            if now >= self.warn_of_conflict {
                self.warn_of_conflict = now.saturating_add(WARN_OF_CONFLICT);
                tracing::warn!(
                    "{} says to have {address}, which site {} has at {}: it is announced again",
                    nat_dhcp::mac::text(&other),
                    text(site, self.settings.by),
                    nat_dhcp::mac::text(&mac)
                );
            }
        }
    }

    /// Do what is due by now, of at most so many sites; whether there may be more.
    pub fn advance(&mut self, now: u64, most: usize) -> bool {
        for _ in 0..most {
            let due = |left: u64| now.saturating_sub(left) >= self.settings.release_after;
            let Some((left, site)) = self.leaving.first().copied().filter(|(left, _)| due(*left)) else {
                break;
            };
            self.leaving.remove(&(left, site));
            let Some(entry) = self.sites.get_mut(&site) else { continue };
            entry.left = None;
            if let Some(number) = entry.number {
                self.clients.release(self.settings.macs.of(number), now);
                self.rest_number(number);
            }
        }
        let more = self.clients.advance_some(now, most);
        self.follow(now);
        self.admit_waiting(now, most);
        more
    }

    /// Sites that wait for a number, while there are some.
    fn admit_waiting(&mut self, now: u64, most: usize) {
        for _ in 0..most {
            let Some((place, site)) = self.waiting.first().copied() else { return };
            let Some(number) = self.number_for(site) else { return };
            self.waiting.remove(&(place, site));
            if let Some(entry) = self.sites.get_mut(&site) {
                entry.waits = None;
            }
            let _it_was_released = self.clients.add(self.settings.macs.of(number), now);
        }
    }

    /// What happened to the clients.
    fn follow(&mut self, now: u64) {
        while let Some(event) = self.clients.event() {
            let (mac, address) = match event {
                Event::Acquired { mac, lease } | Event::Renewed { mac, lease } => {
                    let until = lease.seconds.map(|seconds| now + u64::from(seconds) * SECOND);
                    self.note(mac, |line| (line.until, line.server) = (until, Some(lease.server)));
                    (mac, Some(lease.address))
                }
                Event::Lost { mac, .. } => {
                    self.note(mac, |line| (line.until, line.server) = (None, None));
                    (mac, None)
                }
                Event::Refused { mac, address } => {
                    self.changed.extend(self.settings.macs.number(mac));
                    tracing::warn!(
                        "{} asked for {address}, and a DHCP server refused it",
                        nat_dhcp::mac::text(&mac)
                    );
                    continue;
                }
                Event::Unfit { mac, address, server } => {
                    if now >= self.warn {
                        self.warn = now.saturating_add(WARN);
                        tracing::warn!(
                            "the DHCP server {server} offers {address} to {}, which is no public address: it is not taken",
                            nat_dhcp::mac::text(&mac)
                        );
                    }
                    continue;
                }
            };
            let Some((number, line)) =
                self.settings.macs.number(mac).and_then(|n| Some((n, self.numbers.get_mut(n as usize)?)))
            else {
                continue;
            };
            // A renewal of what it has changes nothing.
            let Some(site) = line.site.filter(|_| line.address != address) else { continue };
            self.changed.insert(number);
            let name = text(site, self.settings.by);
            match (event, address, line.address) {
                (Event::Lost { why, .. }, _, Some(had)) => {
                    tracing::info!("site {name} has {had} no more: {}", reason(why));
                }
                (_, Some(has), _) => {
                    tracing::info!("site {name} has {has}, at {}", nat_dhcp::mac::text(&mac));
                    self.announce.push_back(Announcement { number, address: has, left: ANNOUNCEMENTS });
                }
                _ => {}
            }
            line.address = address;
            self.publics.push_back(Public { site, number, mac, address });
        }
    }

    fn note(&mut self, mac: Mac, what: impl FnOnce(&mut Number)) {
        let number = self.settings.macs.number(mac);
        if let Some(line) = number.and_then(|number| self.numbers.get_mut(number as usize)) {
            what(line);
        }
    }

    /// The next frame to send.
    pub fn transmit(&mut self) -> Option<Vec<u8>> {
        self.clients.transmit()
    }

    /// The next address to announce by ARP, and at which MAC address it is.
    pub fn announce(&mut self, now: u64) -> Option<(Mac, Ipv4Addr)> {
        loop {
            let again = self.announce_again.front().is_some_and(|(due, _)| *due <= now);
            let due = if again { self.announce_again.pop_front().map(|(_, due)| due) } else { None };
            let Announcement { number, address, left } = due.or_else(|| self.announce.pop_front())?;
            // What it has lost meanwhile is announced no more.
            if self.numbers.get(number as usize).is_none_or(|line| line.address != Some(address)) {
                continue;
            }
            if left > 1 {
                let again = Announcement { number, address, left: left - 1 };
                self.announce_again.push_back((now.saturating_add(ANNOUNCE_AGAIN), again));
            }
            return Some((self.settings.macs.of(number), address));
        }
    }

    /// The next address that came or went. It is not told again.
    pub fn public(&mut self) -> Option<Public> {
        self.publics.pop_front()
    }

    /// How many sites there may be at a time.
    pub fn max_sites(&self) -> usize {
        self.settings.most
    }

    /// Sites for which there is no number.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// What a site is.
    pub fn site_kind(&self) -> SiteBy {
        self.settings.by
    }

    /// The sites with `lines` numbers from `from` on, and the number to go on from if there are more.
    pub fn site_views(&self, from: u32, lines: u32, now: u64) -> (Vec<(u32, SiteStatus)>, Option<u32>) {
        let end = from.saturating_add(lines).min(self.numbers.len() as u32);
        let page = self.numbers.get(from as usize..end as usize).unwrap_or(&[]);
        let standing = |(line, number): (&Number, u32)| {
            let (site, mac) = (line.site?, self.settings.macs.of(number));
            let standing = SiteStatus {
                site,
                mac,
                address: line.address,
                server: line.server,
                state: self.clients.state(mac),
                left: line.until.map(|until| until.saturating_sub(now)),
                subscribers: self.sites.get(&site).map_or(0, |entry| entry.subscribers),
            };
            Some((number, standing))
        };
        let found = page.iter().zip(from..).filter_map(standing).collect();
        (found, (end < self.numbers.len() as u32).then_some(end))
    }

    /// Messages of servers that nothing was done about, by reason.
    #[cfg(test)]
    pub fn ignored(&self) -> Vec<(&'static str, u64)> {
        self.clients.ignored().filter(|(_, count)| *count > 0).collect()
    }
}

/// From the first address of a prefix to its last.
fn range(prefix: &Prefix) -> RangeInclusive<Ipv4Addr> {
    let hosts = (prefix.size() - 1) as u32;
    let first = prefix.address.to_bits() & !hosts;
    Ipv4Addr::from_bits(first)..=Ipv4Addr::from_bits(first | hosts)
}

/// A site as an operator knows it: tags, an address, or a prefix, with the tags before these.
pub fn text(site: Site, by: SiteBy) -> String {
    let tags: Vec<String> =
        crate::control::Vlans::of(site.realm).ids().iter().map(ToString::to_string).collect();
    let address = Ipv4Addr::from_bits(site.inside);
    let inside = match by {
        SiteBy::Tags => {
            return format!("VLAN {}", if tags.is_empty() { "none".into() } else { tags.join(".") });
        }
        SiteBy::Subscriber => address.to_string(),
        SiteBy::Prefix(bits) => format!("{address}/{bits}"),
    };
    if tags.is_empty() { inside } else { format!("{inside} of VLAN {}", tags.join(".")) }
}

fn reason(why: LossReason) -> &'static str {
    match why {
        LossReason::Expired => "the lease is over",
        LossReason::Refused => "the DHCP server refused to renew it",
        LossReason::Conflict => "it was declined",
        LossReason::Released => "it was released, as the site has no subscriber any more",
    }
}

#[cfg(test)]
#[path = "leasing_tests.rs"]
mod tests;
