//! Another pool for workers at work: which of them gets what comes. No address changes hands: both ways of its sessions go on meeting where
//! they did.

use crate::address_removal::{AddressRemoval, AddressRemovals};
use crate::addresses;
use crate::division::steered;
use crate::options::{Options, Steering};
use crate::refusal::Refusal;
use engine::Request;
use nat_core::config::PoolAddress;
use nat_core::{Ownership, PoolChange};
use packet::rss;
use std::collections::{BTreeSet, HashSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock};

/// Ask a tracker for what it has of the pool.
#[derive(Debug, Clone)]
pub struct AskPool {
    /// Whether it has these, or parts of them, also while they drain.
    pub about: Arc<[Ipv4Addr]>,
}

/// What a tracker has of the pool.
#[derive(Debug, Clone, Default)]
pub struct PoolState {
    /// Who owns what, the same for all trackers of a NAT.
    pub ownership: Option<Arc<OnceLock<(u16, Ownership)>>>,
    /// How many addresses it may get that it does not have.
    pub vacancies: usize,
    /// Whether it has those that it was asked about.
    pub there: Vec<bool>,
}

impl Request for AskPool {
    type Reply = PoolState;
}

/// Another pool for trackers at work.
#[derive(Debug)]
pub struct Redivision {
    /// What each has then, without what drains.
    pub pools: Vec<Vec<PoolAddress>>,
    /// What each is told.
    pub changes: Vec<PoolChange>,
    /// Addresses that go, in order.
    pub leaving: AddressRemovals,
    /// Addresses that come to a worker, each whole.
    dealt: Vec<(Ipv4Addr, usize)>,
    /// Addresses that came later, and are gone.
    gone: Vec<Ipv4Addr>,
}

impl Redivision {
    /// Let packets to what comes find their worker. Before any of them is told; only one thread at a time may call this.
    pub fn steer(&self, ownership: Option<&Ownership>) {
        let Some(owners) = ownership.and_then(Ownership::address_owners) else { return };
        self.gone.iter().for_each(|address| owners.remove(address.to_bits()));
        for (address, worker) in &self.dealt {
            if !owners.set(address.to_bits(), *worker) {
                tracing::error!("{address} finds no room: packets to it go astray");
            }
        }
    }
}

/// Addresses that trackers are asked about before a pool is divided anew: those that come and may be there, and those that drain.
pub fn asked_about(old: &Options, new: &Options, ownership: Option<&Ownership>) -> Vec<Ipv4Addr> {
    let was: HashSet<Ipv4Addr> = addresses::all(&old.pool).collect();
    let later = ownership.and_then(Ownership::address_owners);
    let later =
        later.into_iter().flat_map(|owners| owners.entries()).map(|(bits, _)| Ipv4Addr::from_bits(bits));
    let all: BTreeSet<Ipv4Addr> =
        addresses::all(&new.pool).chain(later).filter(|address| !was.contains(address)).collect();
    all.into_iter().collect()
}

/// Divide a pool that was `old` among trackers of which each has said its state, about these addresses.
pub fn redivide(
    old: &Options,
    new: &Options,
    about: &[Ipv4Addr],
    states: &[PoolState],
) -> Result<Redivision, Refusal> {
    let count = states.len();
    let ownership = states.first().and_then(|state| state.ownership.as_ref()?.get()).map(|(_, all)| all);
    // Here, so that no worker takes it between packets.
    if !new.exempt.is_empty() {
        ownership.and_then(Ownership::untranslated).inspect(|untranslated| untranslated.make_room());
    }
    let parts = |address: Ipv4Addr| match ownership {
        Some(ownership) => ownership.parts(address),
        None => vec![(0, PoolAddress::all_ports(address))],
    };
    let is_there = |address: Ipv4Addr, worker: usize| {
        let at = about.binary_search(&address).ok();
        at.and_then(|at| states.get(worker)?.there.get(at).copied()).unwrap_or(false)
    };
    let (was, is): (Vec<Ipv4Addr>, Vec<Ipv4Addr>) =
        (addresses::all(&old.pool).collect(), addresses::all(&new.pool).collect());
    let (before, after): (HashSet<Ipv4Addr>, HashSet<Ipv4Addr>) =
        (was.iter().copied().collect(), is.iter().copied().collect());
    let mut made = Pools::new(count, states);
    let mut leaving = Vec::new();
    for address in &was {
        let its = parts(*address);
        if !after.contains(address) {
            leaving.push(AddressRemoval::new(*address, its.len() as u32));
        }
        for (worker, part) in its {
            made.keep(worker, part, after.contains(address));
        }
    }
    // An address that drains, or that a worker had in the beginning, comes back to it; one that is gone is dealt anew.
    let mut new_ones = Vec::new();
    for address in is.iter().filter(|address| !before.contains(address)) {
        let its = parts(*address);
        let first = ownership.is_some_and(|ownership| ownership.had_first(*address));
        if first || its.iter().any(|(worker, _)| is_there(*address, *worker)) {
            for (worker, part) in its {
                made.bring(worker, part, is_there(*address, worker))?;
            }
        } else {
            new_ones.push(*address);
        }
    }
    let by_rss = new.steering == Steering::Rss && count > 1 && {
        let at_home = |address: &Ipv4Addr| {
            let home = rss::queue(address.to_bits(), count);
            parts(*address)
                .iter()
                .all(|(worker, part)| *worker == home && *part == PoolAddress::all_ports(*address))
        };
        was.iter().all(at_home)
    };
    if by_rss {
        let pool: Vec<_> = is.iter().copied().map(PoolAddress::all_ports).collect();
        if steered(&pool, count).is_none() {
            let what = format!(
                "its addresses cannot be divided evenly among {count} workers as the outside port steers packets"
            );
            return Err(refusal(what));
        }
    }
    let mut dealt = Vec::new();
    for address in new_ones {
        let worker = if by_rss { Some(rss::queue(address.to_bits(), count)) } else { made.least() };
        let worker = worker.ok_or_else(no_room)?;
        made.bring(worker, PoolAddress::all_ports(address), false)?;
        dealt.push((address, worker));
    }
    if let Some(worker) = made.pools.iter().position(Vec::is_empty) {
        let what = format!("worker {worker} of {count} would have no address; no address changes its worker");
        return Err(refusal(what));
    }
    let later = ownership.and_then(Ownership::address_owners);
    let later = later.into_iter().flat_map(|owners| owners.entries());
    let gone = later.map(|(bits, worker)| (Ipv4Addr::from_bits(bits), worker)).filter(|(address, worker)| {
        !before.contains(address) && !after.contains(address) && !is_there(*address, *worker)
    });
    let gone = gone.map(|(address, _)| address).collect();
    leaving.sort_unstable_by_key(AddressRemoval::address);
    Ok(Redivision { pools: made.pools, changes: made.changes, leaving: leaving.into(), dealt, gone })
}

fn refusal(what: String) -> Refusal {
    Refusal { key: "pool".into(), what, restart: true }
}

fn no_room() -> Refusal {
    refusal("there is no room for so many addresses more".into())
}

/// Pools in the making.
struct Pools {
    pools: Vec<Vec<PoolAddress>>,
    changes: Vec<PoolChange>,
    vacancies: Vec<usize>,
    /// Ports of each.
    ports: Vec<u64>,
}

impl Pools {
    fn new(count: usize, states: &[PoolState]) -> Self {
        Self {
            pools: vec![Vec::new(); count],
            changes: vec![PoolChange::default(); count],
            vacancies: states.iter().map(|state| state.vacancies).collect(),
            ports: vec![0; count],
        }
    }

    fn has(&mut self, worker: usize, part: PoolAddress) {
        self.ports[worker] += part.ports.len() as u64;
        self.pools[worker].push(part);
    }

    /// What was there stays, or goes.
    fn keep(&mut self, worker: usize, part: PoolAddress, stays: bool) {
        if worker >= self.pools.len() {
            return;
        }
        if stays { self.has(worker, part) } else { self.changes[worker].removed.push(part) }
    }

    /// What was not there comes, or comes back while it drains.
    fn bring(&mut self, worker: usize, part: PoolAddress, drains: bool) -> Result<(), Refusal> {
        let vacancies = self.vacancies.get_mut(worker).ok_or_else(no_room)?;
        if !drains {
            *vacancies = vacancies.checked_sub(1).ok_or_else(no_room)?;
        }
        self.changes[worker].added.push(part.clone());
        self.has(worker, part);
        Ok(())
    }

    /// Who has the fewest ports, and room for more.
    fn least(&self) -> Option<usize> {
        let with_room = (0..self.pools.len()).filter(|worker| self.vacancies[*worker] > 0);
        with_room.min_by_key(|worker| self.ports[*worker])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pool: &[&str], steering: &str) -> Options {
        let all = serde_json::json!({"inside": "a", "outside": "b", "pool": pool, "steering": steering});
        serde_json::from_value(all).unwrap()
    }

    /// Trackers of a NAT, as far as they know its pool.
    struct Trackers {
        options: Options,
        ownership: Arc<OnceLock<(u16, Ownership)>>,
        /// What each has, and whether it drains.
        has: Vec<Vec<(PoolAddress, bool)>>,
        slots: Vec<usize>,
    }

    impl Trackers {
        fn new(pool: &[&str], steering: &str, count: usize) -> Self {
            let options = options(pool, steering);
            let made: Vec<_> =
                (0..count).map(|i| options.config_of(i, count, [7; 32], [8; 32]).unwrap()).collect();
            let ownership = OnceLock::new();
            ownership.set((0, made[0].1.clone())).unwrap();
            let has =
                |config: &nat_core::Config| config.pool.iter().map(|one| (one.clone(), false)).collect();
            Self {
                options,
                ownership: Arc::new(ownership),
                has: made.iter().map(|(config, _)| has(config)).collect(),
                slots: made.iter().map(|(config, _)| config.pool.len() + config.pool_room).collect(),
            }
        }

        fn owners(&self) -> &Ownership {
            &self.ownership.get().unwrap().1
        }

        fn reload(&mut self, pool: &[&str]) -> Result<(), String> {
            let steering = if self.options.steering == Steering::Rss { "rss" } else { "hash" };
            let new = options(pool, steering);
            let about = asked_about(&self.options, &new, Some(self.owners()));
            let state = |(has, slots): (&Vec<(PoolAddress, bool)>, &usize)| PoolState {
                ownership: Some(Arc::clone(&self.ownership)),
                vacancies: slots - has.len(),
                there: about.iter().map(|one| has.iter().any(|(its, _)| its.address == *one)).collect(),
            };
            let states: Vec<_> = self.has.iter().zip(&self.slots).map(state).collect();
            let made = redivide(&self.options, &new, &about, &states).map_err(|refusal| refusal.what)?;
            made.steer(Some(self.owners()));
            for ((has, change), slots) in self.has.iter_mut().zip(&made.changes).zip(&self.slots) {
                for part in &change.removed {
                    has.iter_mut().find(|(its, drains)| its == part && !drains).unwrap().1 = true;
                }
                for part in &change.added {
                    match has.iter_mut().find(|(its, _)| its == part) {
                        Some((_, drains)) => assert!(std::mem::take(drains), "it was there"),
                        None => has.push((part.clone(), false)),
                    }
                }
                assert!(has.len() <= *slots);
            }
            for (has, pool) in self.has.iter().zip(&made.pools) {
                let name = |its: &PoolAddress| (its.address, *its.ports.start());
                let live: HashSet<_> =
                    has.iter().filter(|(_, drains)| !drains).map(|(its, _)| name(its)).collect();
                assert_eq!(live, pool.iter().map(name).collect());
            }
            self.options = new;
            self.check();
            Ok(())
        }

        /// Every port of what a worker has leads to it, also while it drains.
        fn check(&self) {
            for (worker, has) in self.has.iter().enumerate() {
                for (part, _) in has {
                    for port in [*part.ports.start(), *part.ports.end()] {
                        let endpoint = nat_core::Endpoint::new(part.address.to_bits(), port);
                        assert_eq!(self.owners().endpoint(endpoint), Some(worker), "{endpoint}");
                    }
                }
            }
        }

        fn sizes(&self) -> Vec<usize> {
            self.has.iter().map(|has| has.iter().filter(|(_, drains)| !drains).count()).collect()
        }

        fn give_up(&mut self) {
            self.has.iter_mut().for_each(|has| has.retain(|(_, drains)| !drains));
        }
    }

    #[test]
    fn who_has_fewest_gets_what_comes_and_nothing_changes_hands() {
        let mut all = Trackers::new(&["203.0.113.16/30"], "hash", 2);
        assert_eq!(all.sizes(), [2, 2]);
        let before = all.has.clone();
        all.reload(&["203.0.113.16/30", "198.51.100.7"]).unwrap();
        all.reload(&["203.0.113.16/30", "198.51.100.7", "198.51.100.9", "198.51.100.11"]).unwrap();
        assert_eq!(all.sizes().iter().sum::<usize>(), 7);
        assert!(all.sizes().iter().all(|size| (3..=4).contains(size)));
        assert!(before.iter().zip(&all.has).all(|(before, after)| after.starts_with(before)));
        // What drains comes back to whom it was, and what is gone is dealt anew.
        all.reload(&["203.0.113.18/31", "198.51.100.9", "198.51.100.11"]).unwrap();
        all.reload(&["203.0.113.16/30", "198.51.100.7", "198.51.100.9", "198.51.100.11"]).unwrap();
        assert_eq!(all.sizes().iter().sum::<usize>(), 7);
        all.reload(&["203.0.113.18/31"]).unwrap();
        all.give_up();
        all.reload(&["203.0.113.16/30", "192.0.2.0/28"]).unwrap();
        assert_eq!(all.sizes(), [10, 10]);
        let gone = nat_core::Endpoint::new(Ipv4Addr::new(198, 51, 100, 7).to_bits(), 2000);
        assert_eq!(all.owners().endpoint(gone), None, "its place is free");
    }

    #[test]
    fn parts_of_an_address_stay_where_they_are() {
        let mut all = Trackers::new(&["203.0.113.1"], "hash", 2);
        let why = all.reload(&["203.0.113.2"]).unwrap_err();
        assert!(why.contains("worker 1 of 2 would have no address"), "{why}");
        all.reload(&["203.0.113.2/31"]).unwrap();
        assert_eq!(all.sizes(), [1, 1]);
        all.reload(&["203.0.113.1", "203.0.113.2"]).unwrap();
        all.give_up();
        all.reload(&["203.0.113.2/31"]).unwrap();
        all.give_up();
        all.reload(&["203.0.113.1"]).unwrap();
        assert_eq!(all.sizes(), [1, 1], "both have their parts again");
    }

    #[test]
    fn there_is_room_for_so_many_more() {
        let mut all = Trackers::new(&["203.0.113.1", "203.0.113.2"], "hash", 2);
        assert_eq!(all.slots, [1 + 128, 1 + 128]);
        let why = all.reload(&["203.0.113.1", "203.0.113.2", "192.0.2.0/24", "192.0.3.0"]).unwrap_err();
        assert!(why.contains("no room"), "{why}");
        all.reload(&["203.0.113.1", "203.0.113.2", "192.0.2.0/24"]).unwrap();
        assert_eq!(all.sizes(), [129, 129]);
        // What drains takes its room until it is given up.
        assert!(all.reload(&["192.0.2.0/24", "192.0.3.0/31"]).is_err());
        all.reload(&["192.0.2.0/24"]).unwrap();
        all.give_up();
        all.reload(&["192.0.2.0/24", "192.0.3.0/31"]).unwrap();
        all.reload(&["192.0.3.0/31"]).unwrap();
        all.give_up();
        // All of it again and again.
        for round in 0..20 {
            all.reload(&[&format!("10.{round}.0.0/31"), "192.0.3.0/31"]).unwrap();
            all.give_up();
        }
        assert_eq!(all.sizes(), [2, 2]);
    }

    #[test]
    fn what_a_port_steers_stays_with_the_worker_that_it_is_steered_to() {
        let mut all = Trackers::new(&["203.0.113.16/28"], "rss", 2);
        all.reload(&["203.0.113.16/28", "198.51.100.0/29"]).unwrap();
        for (worker, has) in all.has.iter().enumerate() {
            assert!(has.iter().all(|(one, _)| rss::queue_of(one.address, 2) == worker));
        }
        let one_sided = ["203.0.113.17", "203.0.113.19", "203.0.113.21", "203.0.113.23"];
        let why = all.reload(&one_sided).unwrap_err();
        assert!(why.contains("evenly"), "{why}");
        // Where it was not steered from the beginning it need not be.
        let mut uneven = Trackers::new(&one_sided, "rss", 2);
        uneven
            .reload(&["203.0.113.17", "203.0.113.19", "203.0.113.21", "203.0.113.23", "203.0.113.25"])
            .unwrap();
        assert_eq!(uneven.sizes().iter().sum::<usize>(), 5);
    }

    #[test]
    fn one_worker_has_all_of_it() {
        let mut all = Trackers::new(&["203.0.113.1"], "hash", 1);
        all.reload(&["203.0.113.2", "203.0.113.3"]).unwrap();
        all.reload(&["203.0.113.1"]).unwrap();
        assert_eq!(all.sizes(), [1]);
        let (old, new) = (options(&["203.0.113.1"], "hash"), options(&["203.0.113.9"], "hash"));
        let alone = PoolState { vacancies: 1, ..PoolState::default() };
        let made = redivide(&old, &new, &[Ipv4Addr::new(203, 0, 113, 9)], &[alone]).unwrap();
        assert_eq!((made.changes[0].added.len(), made.leaving.len()), (1, 1));
    }
}
