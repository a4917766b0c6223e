//! Which worker a packet is for: those from the inside by subscriber, those from the outside by who owns the port they go to. Both directions
//! of a session meet on one worker, so nothing is shared.
//!
//! Subscribers are divided by a keyed hash, or, where RSS steers packets by one address, as that does ([`packet::rss`]): then few packets have
//! to be handed from worker to worker.
//!
//! Where each site has an address of its own, a site is one worker's with all of its subscribers, and so is the address that it has. Addresses
//! that come to the pool later are whole, and one worker's as well.

use crate::address_owners::AddressOwners;
use crate::config::{PoolAddress, SiteConfig, StaticForward};
use crate::hash::Hasher;
use crate::headers::Headers;
use crate::key::{Endpoint, Key, Realm};
use crate::nat::{BURST, Quote};
use crate::sites::Site;
use crate::untranslated::{RealmLookup, Untranslated};
use crate::verdict::Side;
use packet::layers::protocol;
use packet::rss;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

#[derive(Debug, Clone, Copy)]
struct Range {
    address: u32,
    first: u16,
    last: u16,
    worker: usize,
}

/// How subscribers are divided.
#[derive(Debug, Clone)]
enum Division {
    /// By address and realm: nobody can choose who is together.
    Hash(Hasher),
    /// By address, as RSS steers packets: the worker of each bucket.
    Rss([u8; rss::BUCKETS]),
}

/// Who owns what, the same for all who ask.
#[derive(Debug, Clone)]
pub struct Ownership {
    ranges: Vec<Range>,
    workers: usize,
    division: Division,
    /// Subscribers that are elsewhere than their hash says.
    pinned: HashMap<(u32, Realm), usize>,
    /// The bits of a private address by which its worker is drawn: with sites those that tell one from another.
    mask: u32,
    /// Whose the addresses are that come and go: those of sites, and those that came to the pool later.
    later: Option<Arc<AddressOwners>>,
    /// Where subscribers are that are spoken to without translation.
    untranslated: Option<Arc<Untranslated>>,
}

impl Ownership {
    /// Of the pool of each worker. Where an address is split among workers, pieces of packets that name no port go to the first of them
    /// unless their first piece is known ([`PieceOwners`](crate::PieceOwners)): give whole addresses to workers wherever there are enough.
    pub fn new(pools: &[Vec<PoolAddress>], seed: [u8; 32]) -> Self {
        Self::divided(pools, Division::Hash(Hasher::new(seed)))
    }

    /// The same, where a port towards subscribers spreads what it receives by source addresses.
    pub fn by_rss(pools: &[Vec<PoolAddress>]) -> Self {
        Self::divided(pools, Division::Rss(rss::queues(pools.len().max(1))))
    }

    fn divided(pools: &[Vec<PoolAddress>], division: Division) -> Self {
        let mut ranges: Vec<Range> = Vec::new();
        for (worker, pool) in pools.iter().enumerate() {
            ranges.extend(pool.iter().map(|pool| Range {
                address: pool.address.to_bits(),
                first: *pool.ports.start(),
                last: *pool.ports.end(),
                worker,
            }));
        }
        ranges.sort_by_key(|range| (range.address, range.first));
        Self {
            ranges,
            workers: pools.len().max(1),
            division,
            pinned: HashMap::new(),
            mask: u32::MAX,
            later: None,
            untranslated: None,
        }
    }

    /// Of so many workers where sites have addresses of their own, none yet.
    pub fn of_sites(sites: SiteConfig, workers: usize, seed: [u8; 32]) -> Self {
        let mut own = Self::new(&[], seed);
        (own.workers, own.mask) = (workers.max(1), sites.by.mask());
        own.later = Some(Arc::new(AddressOwners::new(sites.most, seed)));
        own
    }

    /// With room for so many whole addresses that come to the pool later.
    #[must_use]
    pub fn with_room(mut self, most: usize, seed: [u8; 32]) -> Self {
        self.later = Some(Arc::new(AddressOwners::new(most, seed)));
        self
    }

    /// With what goes without translation, of so many subscribers.
    #[must_use]
    pub fn with_untranslated(mut self, most: usize, seed: [u8; 32]) -> Self {
        self.untranslated = Some(Arc::new(Untranslated::new(most, seed)));
        self
    }

    /// Where subscribers are that are spoken to without translation.
    pub fn untranslated(&self) -> Option<&Arc<Untranslated>> {
        self.untranslated.as_ref()
    }

    /// Whose the addresses are that come and go, for the one who says it.
    pub fn address_owners(&self) -> Option<&AddressOwners> {
        self.later.as_deref()
    }

    /// Whether an address was there from the beginning: whoever had it then is who it is for.
    pub fn had_first(&self, address: Ipv4Addr) -> bool {
        self.ranges.binary_search_by_key(&address.to_bits(), |range| range.address).is_ok()
    }

    /// Who has an address, or which parts of it.
    pub fn parts(&self, address: Ipv4Addr) -> Vec<(usize, PoolAddress)> {
        let bits = address.to_bits();
        let from = self.ranges.partition_point(|range| range.address < bits);
        let its = self.ranges.iter().skip(from).take_while(|range| range.address == bits);
        let parts: Vec<_> = its
            .map(|range| (range.worker, PoolAddress { address, ports: range.first..=range.last }))
            .collect();
        if !parts.is_empty() {
            return parts;
        }
        let later = self.of_later(bits).map(|worker| (worker, PoolAddress::all_ports(address)));
        later.into_iter().collect()
    }

    /// The worker of a site.
    pub fn site(&self, site: Site) -> usize {
        self.subscriber(site.inside, site.realm)
    }

    /// Who is reached from the outside by a static forward is with the worker that has the forward's endpoint. The forward
    /// that cannot be: its subscriber is with another worker, by another forward, or its address is nobody's.
    pub fn assign_forwards(&mut self, forwards: &[StaticForward]) -> Result<(), StaticForward> {
        for forward in forwards {
            let worker = self.endpoint(forward.outside_endpoint()).ok_or(*forward)?;
            let subscriber = (forward.inside_endpoint().address, forward.realm);
            if *self.pinned.entry(subscriber).or_insert(worker) != worker {
                return Err(*forward);
            }
        }
        Ok(())
    }

    /// A subscriber that is there already is with this worker, unless a forward says another.
    pub fn settle(&mut self, address: u32, realm: Realm, worker: usize) {
        if worker < self.workers && self.subscriber(address, realm) != worker {
            self.pinned.entry((address, realm)).or_insert(worker);
        }
    }

    /// The worker of a subscriber.
    #[inline]
    pub fn subscriber(&self, address: u32, realm: Realm) -> usize {
        if !self.pinned.is_empty()
            && let Some(worker) = self.pinned.get(&(address, realm))
        {
            return *worker;
        }
        match &self.division {
            Division::Hash(hasher) => {
                let hash = hasher.hash(Key::subscriber(address & self.mask, realm)) >> 32;
                ((hash * self.workers as u64) >> 32) as usize
            }
            Division::Rss(workers) => workers[rss::bucket(address)].into(),
        }
    }

    /// Where the address alone decides: the worker of each of its buckets.
    #[inline]
    pub fn by_address(&self) -> Option<&[u8; rss::BUCKETS]> {
        match &self.division {
            Division::Rss(workers) if self.pinned.is_empty() => Some(workers),
            _ => None,
        }
    }

    /// The worker of each of many subscribers.
    #[inline]
    pub fn subscribers(&self, who: &[(u32, Realm)], workers: &mut [u8]) {
        if !self.pinned.is_empty() {
            for ((address, realm), worker) in who.iter().zip(workers) {
                *worker = self.subscriber(*address, *realm) as u8;
            }
            return;
        }
        let hasher = match &self.division {
            Division::Hash(hasher) => hasher,
            Division::Rss(of) => {
                let buckets = who.iter().map(|(address, _)| rss::bucket(*address));
                workers.iter_mut().zip(buckets).for_each(|(worker, bucket)| *worker = of[bucket]);
                return;
            }
        };
        for (who, workers) in who.chunks(BURST).zip(workers.chunks_mut(BURST)) {
            let (mut keys, mut hashes) = ([Key::default(); BURST], [0; BURST]);
            for ((address, realm), key) in who.iter().zip(&mut keys) {
                *key = Key::subscriber(*address & self.mask, *realm);
            }
            hasher.hash_all(&keys[..who.len()], &mut hashes);
            for (hash, worker) in hashes.iter().zip(workers) {
                *worker = (((hash >> 32) * self.workers as u64) >> 32) as u8;
            }
        }
    }

    /// The worker of an outside endpoint. `None`: it is nobody's.
    pub fn outside(&self, endpoint: Endpoint) -> Option<usize> {
        self.of_pool(endpoint).or_else(|| self.of_later(endpoint.address))
    }

    /// The worker of an outside endpoint of the pool.
    #[inline]
    fn of_pool(&self, endpoint: Endpoint) -> Option<usize> {
        let after = self
            .ranges
            .partition_point(|range| (range.address, range.first) <= (endpoint.address, endpoint.port));
        let range = self.ranges.get(after.checked_sub(1)?)?;
        (range.address == endpoint.address && endpoint.port <= range.last).then_some(range.worker)
    }

    /// The worker of an address that came later.
    #[inline(never)] // What is for the addresses of the beginning does not come here.
    fn of_later(&self, address: u32) -> Option<usize> {
        self.later.as_ref()?.worker(address)
    }

    /// The worker that has an outside endpoint; ports that clients do not use are with the address.
    pub fn endpoint(&self, endpoint: Endpoint) -> Option<usize> {
        self.of_pool(endpoint).or_else(|| self.address(endpoint.address))
    }

    /// The worker of an outside address, by its first port.
    #[inline(never)] // Of a pool, only what names no port of it.
    fn address(&self, address: u32) -> Option<usize> {
        let at = self.ranges.partition_point(|range| range.address < address);
        let range = self.ranges.get(at).filter(|range| range.address == address);
        range.map(|range| range.worker).or_else(|| self.of_later(address))
    }

    /// The worker of an inside address that the outside speaks to without translation.
    #[inline(never)] // Few packets have such a destination.
    fn inside(&self, address: u32) -> Option<usize> {
        match self.untranslated.as_ref()?.realm_of(address) {
            RealmLookup::In(realm) => Some(self.subscriber(address, realm)),
            // Whoever has not sent anything is asked for without tags.
            RealmLookup::Unknown => Some(self.subscriber(address, 0)),
            RealmLookup::Contested => None,
        }
    }

    /// The worker of a packet. `None`: it goes to an address of nobody's, or of several.
    #[inline]
    pub fn worker(&self, side: Side, frame: &[u8], headers: &Headers) -> Option<usize> {
        let (source, destination, realm) = (headers.source(), headers.destination(), headers.realm);
        let quote = (headers.protocol == protocol::ICMP)
            .then(|| Quote::of(frame, headers.l4.into(), headers.end.into()).ok())
            .flatten()
            .filter(|_| matches!(frame.get(usize::from(headers.l4)), Some(3 | 11 | 12)));
        match (side, quote) {
            // What an error quotes says whose it is: a router between may report it.
            (Side::Inside, Some(quote)) => Some(self.subscriber(quote.destination.address, realm)),
            (Side::Inside, None) => Some(self.subscriber(source.address, realm)),
            (Side::Outside, quote) => {
                let owner = match quote {
                    Some(quote) => self.endpoint(quote.source),
                    None if headers.is(Headers::LATER) => self.address(destination.address),
                    // The identifier of an answer is its receiver's.
                    None if headers.protocol == protocol::ICMP => {
                        self.endpoint(Endpoint::new(destination.address, source.port))
                    }
                    None => self.endpoint(destination),
                };
                owner.or_else(|| self.inside(destination.address))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sites::SiteBy;

    fn ownership() -> Ownership {
        let range = |last, ports| PoolAddress { address: Ipv4Addr::new(203, 0, 113, last), ports };
        let pools = [vec![range(1, 1024..=9999), range(2, 1024..=65535)], vec![range(1, 10_000..=65535)]];
        Ownership::new(&pools, [1; 32])
    }

    #[test]
    fn endpoints_lead_to_their_owners() {
        let ownership = ownership();
        let at = |last: u32, port| ownership.outside(Endpoint::new(0xcb00_7100 + last, port));
        assert_eq!([at(1, 1023), at(1, 1024), at(1, 9999)], [None, Some(0), Some(0)]);
        assert_eq!(
            [at(1, 10_000), at(1, 65535), at(2, 2000), at(3, 2000)],
            [Some(1), Some(1), Some(0), None]
        );
    }

    #[test]
    fn addresses_that_come_later_are_whole_and_the_first_stay_where_they_are() {
        let ownership = ownership().with_room(4, [2; 32]);
        let address = |last| Ipv4Addr::new(203, 0, 113, last);
        let owners = ownership.address_owners().unwrap();
        assert!(owners.set(address(3).to_bits(), 1) && owners.set(address(1).to_bits(), 0));
        let at = |last, port| ownership.endpoint(Endpoint::new(address(last).to_bits(), port));
        assert_eq!([at(3, 80), at(3, 1024), at(3, 65535), at(4, 80)], [Some(1), Some(1), Some(1), None]);
        assert_eq!([at(1, 2000), at(1, 20_000)], [Some(0), Some(1)], "what it was in the beginning");
        assert_eq!(ownership.parts(address(3)), [(1, PoolAddress::all_ports(address(3)))]);
        assert!(ownership.had_first(address(1)) && !ownership.had_first(address(3)));
        let parts: Vec<_> =
            ownership.parts(address(1)).into_iter().map(|(of, part)| (of, part.ports)).collect();
        assert_eq!(parts, [(0, 1024..=9999), (1, 10_000..=65535)]);
        owners.remove(address(3).to_bits());
        assert_eq!((at(3, 1024), ownership.parts(address(3)).len()), (None, 0));
    }

    #[test]
    fn who_has_a_static_forward_is_with_its_endpoint() {
        let mut ownership = ownership();
        let forward = |outside: (u8, u16), inside| StaticForward {
            protocol: 6,
            outside: (Ipv4Addr::new(203, 0, 113, outside.0), outside.1),
            inside: (Ipv4Addr::new(10, 0, 0, inside), 80),
            realm: 0,
        };
        for inside in 1..20 {
            // A port below those of clients is with the address, whose first ports are worker 0's.
            ownership
                .assign_forwards(&[forward((1, 80), inside), forward((1, 20_000), inside + 100)])
                .unwrap();
            assert_eq!(ownership.subscriber(0x0a00_0000 + u32::from(inside), 0), 0);
            assert_eq!(ownership.subscriber(0x0a00_0064 + u32::from(inside), 0), 1);
        }
        assert_eq!(ownership.endpoint(Endpoint::new(0xcb00_7101, 80)), Some(0));
        let elsewhere = forward((1, 20_001), 1);
        assert_eq!(ownership.assign_forwards(&[elsewhere]), Err(elsewhere));
        assert!(ownership.assign_forwards(&[forward((9, 80), 1)]).is_err(), "nobody's address");
    }

    #[test]
    fn subscribers_spread_and_stay() {
        let ownership = ownership();
        let first = (0..10_000).filter(|i| ownership.subscriber(0x0a00_0000 + i, 7) == 0).count();
        assert!((4_700..5_300).contains(&first), "{first}");
        assert_eq!(ownership.subscriber(1, 2), ownership.subscriber(1, 2));
        let many: Vec<(u32, Realm)> = (0..200).map(|i| (0x0a00_0000 + i, i % 3)).collect();
        let mut pinned = ownership.clone();
        pinned.settle(0x0a00_0007, 1, 1 - ownership.subscriber(0x0a00_0007, 1));
        let by_site = SiteConfig { most: 16, by: SiteBy::Prefix(29) };
        let steered = Ownership::by_rss(&[Vec::new(), Vec::new(), Vec::new()]);
        for ownership in [ownership, pinned, steered, Ownership::of_sites(by_site, 2, [1; 32])] {
            let mut workers = [0; 200];
            ownership.subscribers(&many, &mut workers);
            let alone = many.iter().map(|(address, realm)| ownership.subscriber(*address, *realm) as u8);
            assert!(alone.eq(workers));
        }
    }

    #[test]
    fn what_is_not_translated_meets_its_subscriber() {
        let ownership =
            Ownership::new(&[Vec::new(), Vec::new(), Vec::new()], [1; 32]).with_untranslated(64, [3; 32]);
        let untranslated = ownership.untranslated().unwrap();
        untranslated.make_room();
        for inside in 0x0a00_0000..0x0a00_0020 {
            untranslated.learn(inside, inside % 5, 0);
        }
        let worker = |destination: u32| {
            let [from, to] = [0xc000_0209, destination].map(|address| Endpoint::new(address, 53));
            let headers = Headers { protocol: protocol::UDP, ..Headers::default() }.between(from, to);
            ownership.worker(Side::Outside, &[], &headers)
        };
        for inside in 0x0a00_0000..0x0a00_0020 {
            assert_eq!(worker(inside), Some(ownership.subscriber(inside, inside % 5)));
        }
        assert_eq!(worker(0x0a00_0100), Some(ownership.subscriber(0x0a00_0100, 0)), "it has sent nothing");
        untranslated.learn(0x0a00_0001, 9, 0);
        assert_eq!(worker(0x0a00_0001), None, "it is in two VLANs");
    }

    #[test]
    fn both_directions_and_their_errors_meet() {
        use packet::frame::{Flow, Program};
        use packet::signature::Signature;
        let ownership = ownership();
        let flow = Flow {
            source_mac: [2; 6],
            destination_mac: [4; 6],
            source: ([198, 51, 100, 9], 53).into(),
            destination: ([203, 0, 113, 1], 20_000).into(),
        };
        let mut frame = vec![0; 80];
        let mark = Signature { stream: 1, sequence: 2, sent_ns: 3 };
        let _written = Program::udp(&flow, 80).unwrap().write(&mut frame, 0, &mark);
        let headers = Headers::of(&frame).unwrap();
        assert_eq!(ownership.worker(Side::Outside, &frame, &headers), Some(1));
        // An error from the outside quotes a packet from the owned endpoint.
        let mut quoted = frame[14..].to_vec();
        packet::ipv4::swap(&mut quoted, 0);
        packet::udp::swap(&mut quoted, 20);
        let mut error = frame.clone();
        error.truncate(34);
        error.extend([3, 3, 0, 0, 0, 0, 0, 0]);
        error.extend(&quoted[..28]);
        let headers = Headers { protocol: 1, end: error.len() as u16, ..headers };
        assert_eq!(ownership.worker(Side::Outside, &error, &headers), Some(1));
        // A forward's port may be one that clients do not use: it is with the address.
        let ownership = ownership.with_untranslated(64, [3; 32]);
        for (low, worker) in [([203, 0, 113, 1], 0), ([203, 0, 113, 4], 1)] {
            let ownership = match worker {
                0 => ownership.clone(),
                _ => {
                    let whole = PoolAddress::all_ports(Ipv4Addr::from(low));
                    Ownership::new(&[Vec::new(), vec![whole]], [1; 32]).with_untranslated(64, [3; 32])
                }
            };
            let mut error = error.clone();
            error[42 + 12..42 + 16].copy_from_slice(&low);
            error[42 + 20..42 + 22].copy_from_slice(&443u16.to_be_bytes());
            error[42 + 10..42 + 12].fill(0);
            let sum = packet::checksum::of(&error[42..62]).to_be_bytes();
            error[42 + 10..42 + 12].copy_from_slice(&sum);
            let to = Endpoint::new(u32::from_be_bytes(low), 0);
            let headers = headers.between(headers.source(), to);
            assert_eq!(ownership.worker(Side::Outside, &error, &headers), Some(worker), "{low:?}");
        }
    }
}
