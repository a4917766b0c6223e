//! Which worker has which outside address, where addresses come and go while packets pass.
//!
//! One thread writes, all that steer packets read, and nobody waits. An entry is one word and never moves, so that whoever looks for
//! an address always finds it while others come and go.

use crate::hash::Hasher;
use crate::key::Key;
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries of a bucket: a cache line.
const ENTRIES: usize = 8;
const EMPTY: u64 = 0;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU64; ENTRIES]);

impl Bucket {
    /// The first place with such an entry. An entry says all there is to know, so it does not matter in which order others are seen.
    #[inline]
    fn find(&self, is_it: impl Fn(u64) -> bool) -> Option<(&AtomicU64, u64)> {
        let mut entries = self.0.iter().map(|place| (place, place.load(Ordering::Relaxed)));
        entries.find(|(_, entry)| is_it(*entry))
    }

    fn room(&self) -> usize {
        self.0.iter().filter(|place| place.load(Ordering::Relaxed) == EMPTY).count()
    }
}

/// Outside addresses and their workers.
#[derive(Debug)]
pub struct AddressOwners {
    buckets: Box<[Bucket]>,
    hasher: Hasher,
}

/// An address and its worker in a word, which is never [`EMPTY`].
fn entry(address: u32, worker: usize) -> u64 {
    u64::from(address) << 32 | (1 + (worker as u64 & 0x7fff_ffff))
}

fn is_of(entry: u64, address: u32) -> bool {
    entry != EMPTY && (entry >> 32) as u32 == address
}

impl AddressOwners {
    /// None yet, of at most so many. Who does not know the seed cannot choose addresses that crowd a bucket.
    pub fn new(most: usize, seed: [u8; 32]) -> Self {
        // A quarter full at most, with two buckets for each address: one that finds no room is not to be expected.
        let count = most.div_ceil(2).next_power_of_two();
        Self { buckets: (0..count).map(|_| Bucket::default()).collect(), hasher: Hasher::new(seed) }
    }

    #[inline]
    fn buckets(&self, address: u32) -> impl Iterator<Item = &Bucket> {
        let hash = self.hasher.hash(Key(address.into()));
        let mask = self.buckets.len() - 1;
        [hash as usize & mask, (hash >> 32) as usize & mask].into_iter().filter_map(|at| self.buckets.get(at))
    }

    /// The worker of an address.
    #[inline]
    pub fn worker(&self, address: u32) -> Option<usize> {
        let found = self.buckets(address).find_map(|bucket| bucket.find(|entry| is_of(entry, address)))?;
        Some((found.1 as u32 - 1) as usize)
    }

    /// An address is this worker's from now on. `false`: there is no room for it. Only one thread may call this and
    /// [`AddressOwners::remove`].
    pub fn set(&self, address: u32, worker: usize) -> bool {
        let known = self.buckets(address).find_map(|bucket| bucket.find(|entry| is_of(entry, address)));
        let place = known.or_else(|| {
            let emptier = self.buckets(address).max_by_key(|bucket| bucket.room())?;
            emptier.find(|entry| entry == EMPTY)
        });
        if let Some((place, _)) = place {
            place.store(entry(address, worker), Ordering::Relaxed);
        }
        place.is_some()
    }

    /// All addresses, with their workers.
    pub fn entries(&self) -> impl Iterator<Item = (u32, usize)> {
        let all = self.buckets.iter().flat_map(|bucket| &bucket.0).map(|place| place.load(Ordering::Relaxed));
        all.filter(|entry| *entry != EMPTY).map(|entry| ((entry >> 32) as u32, (entry as u32 - 1) as usize))
    }

    /// An address is nobody's.
    pub fn remove(&self, address: u32) {
        for (place, _) in
            self.buckets(address).filter_map(|bucket| bucket.find(|entry| is_of(entry, address)))
        {
            place.store(EMPTY, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::sync::atomic::AtomicBool;

    const MOST: usize = 64;

    proptest! {
        /// However addresses come, go and change hands, it says what a map says.
        #[test]
        fn it_does_what_a_map_does(steps in proptest::collection::vec((0u32..200, 0usize..9), 1..600)) {
            let (owners, mut map) = (AddressOwners::new(MOST, [7; 32]), HashMap::new());
            for (address, worker) in steps {
                // 0.0.0.0 too: that a place is empty is not told by its address.
                if worker == 8 {
                    owners.remove(address);
                    map.remove(&address);
                } else if map.len() < MOST || map.contains_key(&address) {
                    prop_assert!(owners.set(address, worker));
                    map.insert(address, worker);
                }
                prop_assert_eq!(owners.worker(address), map.get(&address).copied());
            }
            let all: HashMap<u32, usize> = owners.entries().collect();
            prop_assert_eq!(&all, &map);
            for address in 0..200 {
                prop_assert_eq!(owners.worker(address), map.get(&address).copied());
            }
        }
    }

    #[test]
    fn there_is_room_for_as_many_as_there_may_be() {
        for most in [1, 2, 3, 16, 1000, 65_534] {
            for seed in 0..3 {
                let owners = AddressOwners::new(most, [seed; 32]);
                let address = |i: usize| 0xcb00_7100 + i as u32;
                assert!((0..most).all(|i| owners.set(address(i), i % 32)), "{most}");
                assert!((0..most).all(|i| owners.worker(address(i)) == Some(i % 32)), "{most}");
            }
        }
    }

    #[test]
    fn who_stays_is_found_while_others_come_and_go() {
        let (owners, done) = (AddressOwners::new(MOST, [7; 32]), AtomicBool::new(false));
        let stays = |address: u32| address.is_multiple_of(4);
        for address in (0..MOST as u32).filter(|address| stays(*address)) {
            assert!(owners.set(address, address as usize));
        }
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        for address in (0..MOST as u32).filter(|address| stays(*address)) {
                            assert_eq!(owners.worker(address), Some(address as usize));
                        }
                    }
                });
            }
            for round in 0..2_000 {
                for address in (0..MOST as u32).filter(|address| !stays(*address)) {
                    if round % 2 == 0 { assert!(owners.set(address, round)) } else { owners.remove(address) }
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
