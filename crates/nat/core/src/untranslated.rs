//! In which VLAN an inside address is that is spoken to without translation: where translation is turned off the address alone says whose
//! a packet from the outside is, and subscribers may have the same in different VLANs.
//!
//! All workers write and read, and nobody waits: an entry is one word. A write that is lost is made good by the next packet.

use crate::config::SECOND;
use crate::hash::Hasher;
use crate::key::{Key, Realm};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries of a bucket: a cache line.
const ENTRIES: usize = 8;
const EMPTY: u64 = 0;

/// Unit of an entry's time, ns, and how many there are until it begins anew: more than an hour.
const UNIT: u64 = 32 * SECOND;
const UNITS: u64 = 127;
/// An address that several realms sent from is one's again when only that one has for so many units.
const KEPT: u64 = 10;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU64; ENTRIES]);

/// What is known of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    address: u32,
    realm: Realm,
    /// Several realms send from it.
    contested: bool,
    /// When it was last written: 0 to [`UNITS`] - 1.
    unit: u64,
}

impl Entry {
    /// Address, realm, contested, time from 1 on: never [`EMPTY`].
    fn word(self) -> u64 {
        u64::from(self.address) << 32
            | u64::from(self.realm & 0xff_ffff) << 8
            | u64::from(self.contested) << 7
            | (1 + self.unit % UNITS)
    }

    fn of(word: u64) -> Option<Self> {
        (word != EMPTY).then_some(Self {
            address: (word >> 32) as u32,
            realm: (word >> 8) as u32 & 0xff_ffff,
            contested: word & 0x80 != 0,
            unit: (word & 0x7f).saturating_sub(1),
        })
    }

    fn age(self, unit: u64) -> u64 {
        (unit + UNITS - self.unit) % UNITS
    }
}

/// Where an inside address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RealmLookup {
    /// It has sent nothing without translation.
    Unknown,
    /// In this realm.
    In(Realm),
    /// Several realms send from it: nobody can say whose a packet is.
    Contested,
}

/// Inside addresses that send without translation, and their realms.
#[derive(Debug)]
pub struct Untranslated {
    /// Made when translation is turned off for the first time.
    buckets: OnceLock<Box<[Bucket]>>,
    most: usize,
    hasher: Hasher,
}

impl Untranslated {
    /// None yet, of about so many. Who does not know the seed cannot choose addresses that crowd a bucket.
    pub fn new(most: usize, seed: [u8; 32]) -> Self {
        Self { buckets: OnceLock::new(), most, hasher: Hasher::new(seed) }
    }

    /// Take the memory: 16 to 32 bytes for each.
    pub fn make_room(&self) {
        self.buckets.get_or_init(|| {
            // Half full at most, with two buckets for each address.
            let count = self.most.div_ceil(ENTRIES / 2).next_power_of_two();
            (0..count).map(|_| Bucket::default()).collect()
        });
    }

    fn places(&self, address: u32) -> impl Iterator<Item = &AtomicU64> {
        let buckets: &[Bucket] = self.buckets.get().map_or(&[], |buckets| buckets);
        let (hash, mask) = (self.hasher.hash(Key(address.into())), buckets.len().wrapping_sub(1));
        let both = [hash as usize & mask, (hash >> 32) as usize & mask];
        both.into_iter().filter_map(|at| buckets.get(at)).flat_map(|bucket| &bucket.0)
    }

    fn find(&self, address: u32) -> Option<(&AtomicU64, Entry)> {
        self.places(address).find_map(|place| {
            let entry = Entry::of(place.load(Ordering::Relaxed)).filter(|entry| entry.address == address)?;
            Some((place, entry))
        })
    }

    /// Where an address is.
    pub fn realm_of(&self, address: u32) -> RealmLookup {
        match self.find(address) {
            None => RealmLookup::Unknown,
            Some((_, Entry { contested: true, .. })) => RealmLookup::Contested,
            Some((_, Entry { realm, .. })) => RealmLookup::In(realm),
        }
    }

    /// An address has sent something without translation from this realm.
    pub fn learn(&self, address: u32, realm: Realm, now: u64) {
        let unit = now / UNIT % UNITS;
        let fresh = Entry { address, realm, contested: false, unit };
        let (place, entry) = match self.find(address) {
            Some((place, known)) => {
                let entry = match (known.realm == realm, known.contested) {
                    // Nobody else for as long: it is this one's.
                    (true, true) if known.age(unit) < KEPT => return,
                    (true, _) => fresh,
                    // The other one may only be listening.
                    (false, _) => Entry { contested: true, ..fresh },
                };
                if entry == known {
                    return;
                }
                (place, entry)
            }
            None => {
                // An empty place, or that of the one that was silent for longest.
                let age = |word| Entry::of(word).map_or(UNITS, |entry| entry.age(unit));
                let stalest = self.places(address).max_by_key(|place| age(place.load(Ordering::Relaxed)));
                let Some(place) = stalest else { return };
                (place, fresh)
            }
        };
        place.store(entry.word(), Ordering::Relaxed);
    }

    /// A subscriber is no more: its address may be another's.
    pub fn forget(&self, address: u32, realm: Realm) {
        if let Some((place, known)) = self.find(address)
            && known.realm == realm
        {
            place.store(EMPTY, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Untranslated {
        let table = Untranslated::new(64, [7; 32]);
        table.learn(1, 5, 0);
        assert_eq!(table.realm_of(1), RealmLookup::Unknown, "there is no room yet");
        table.make_room();
        table
    }

    #[test]
    fn an_address_is_where_it_sent_from() {
        let table = table();
        table.learn(1, 0x123_456, 0);
        table.learn(2, 0, 0);
        assert_eq!(table.realm_of(1), RealmLookup::In(0x123_456));
        assert_eq!(table.realm_of(2), RealmLookup::In(0));
        assert_eq!(table.realm_of(3), RealmLookup::Unknown);
        // However long it is silent: it may be listening. When it is gone it may be somewhere else.
        table.forget(1, 9);
        assert_eq!(table.realm_of(1), RealmLookup::In(0x123_456));
        table.forget(1, 0x123_456);
        table.learn(1, 9, KEPT * UNIT);
        assert_eq!(table.realm_of(1), RealmLookup::In(9));
        table.learn(1, 10, 10_000 * UNIT);
        assert_eq!(table.realm_of(1), RealmLookup::Contested);
    }

    #[test]
    fn an_address_of_two_realms_is_non_host_address_until_one_is_silent() {
        let table = table();
        for second in 0..1_000 {
            table.learn(1, 5 + second as u32 % 2, second * SECOND);
            assert_eq!(table.realm_of(1) == RealmLookup::Contested, second > 0, "{second} s");
        }
        // The other one sends on alone.
        let alone = (1_000..2_000).find(|second| {
            table.learn(1, 5, second * SECOND);
            table.realm_of(1) == RealmLookup::In(5)
        });
        let least = (KEPT - 1) * UNIT / SECOND;
        assert!(alone.is_some_and(|second| second >= 1_000 + least), "{alone:?}");
    }

    #[test]
    fn those_that_were_silent_for_longest_make_room() {
        let table = table();
        for address in 0..10_000 {
            table.learn(address, address, u64::from(address) * UNIT / 16);
            assert_eq!(table.realm_of(address), RealmLookup::In(address));
        }
        let known = (0..10_000).filter(|address| table.realm_of(*address) != RealmLookup::Unknown).count();
        assert!((64..=128).contains(&known), "{known}");
        let last = (10_000 - 48..10_000).filter(|address| table.realm_of(*address) != RealmLookup::Unknown);
        assert_eq!(last.count(), 48, "none of those that sent last");
    }
}
