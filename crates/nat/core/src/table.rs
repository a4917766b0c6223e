//! From hashes to indices: buckets of one cache line with ten entries each.
//!
//! ```text
//!  | ten tags of 16 bits | how many went further | ten indices of 32 bits |
//!  0                     20                      24                       64
//! ```
//! An entry lies in the first bucket from its own on that had room. Each full bucket that it passed counts it, so a search
//! ends where no count says that something went further: nothing is left behind where an entry goes, and no rehash is ever due.
//! A tag is 16 bits of the hash; whether an index is the right one, the caller sees at what it stands for.
//!
//! Who adds many at once does not wait for the bucket of each: an entry may be put off until its bucket has come. It is found all
//! the same.

use crate::cpu::{self, SLOTS, Slots};
use crate::memory::{Memory, Pages};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// One cache line. A tag of 0 is an empty place.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
pub struct Bucket {
    tags: [u16; SLOTS],
    overflow: u32,
    indices: [u32; SLOTS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    /// The slots with this tag.
    #[inline(always)]
    fn tagged(&self, tag: u16) -> Slots {
        cpu::matches(zerocopy::transmute_ref!(self), tag)
    }
}

/// What a hash says: where a search begins, and the tag there.
#[inline(always)]
fn place(hash: u64, buckets: usize) -> (usize, u16) {
    // The high half chooses the bucket without a division, the low 16 bits are the tag.
    let bucket = ((hash >> 32) * buckets as u64) >> 32;
    (bucket as usize, (hash as u16).max(1))
}

/// Entries that may be put off: a bucket that is asked for has come when as many more were.
const LATE: usize = 8;

/// The table. Its size is fixed.
#[derive(Debug)]
pub struct Table {
    buckets: Pages<Bucket>,
    /// Those that were put off too.
    len: usize,
    capacity: usize,
    /// Hashes and indices of those, `late_len` from `late_from` on. The hashes lie together, so that a search compares all of them at once.
    late: [u64; LATE],
    late_indices: [u32; LATE],
    late_from: usize,
    late_len: usize,
}

impl Table {
    /// For `capacity` entries, at which buckets are full by `load` percent.
    pub fn new(capacity: usize, load: usize) -> std::io::Result<Self> {
        let buckets = capacity.saturating_mul(100).div_ceil(SLOTS * load.clamp(1, 95)).max(1);
        Ok(Self {
            buckets: Pages::new(buckets)?,
            len: 0,
            capacity,
            late: [0; LATE],
            late_indices: [0; LATE],
            late_from: 0,
            late_len: 0,
        })
    }

    /// Entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes it takes when all is touched.
    pub fn size(&self) -> usize {
        self.buckets.size()
    }

    /// Its memory.
    pub fn memory(&self) -> &dyn Memory {
        &self.buckets
    }

    /// To look up many without asking where the buckets are each time. What was put off is not in them before [`Table::settle`].
    #[inline]
    pub fn view(&self) -> View<'_> {
        View(self.buckets.get())
    }

    /// Of the indices under `hash`, the first of which `is_it`.
    #[inline]
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let found = self.view().find(hash, &mut is_it);
        // Without a branch for each; those that are settled are among them, and hardly ever found.
        let is_late = || self.late.iter().fold(false, |any, late| any | (*late == hash));
        if found.is_none() && is_late() { self.find_late(hash, is_it) } else { found }
    }

    #[cold]
    fn find_late(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let places = (0..self.late_len).map(|at| (self.late_from + at) % LATE);
        places.filter(|at| self.late[*at] == hash).map(|at| self.late_indices[at]).find(|index| is_it(*index))
    }

    /// Add an entry. `false`: as many as there may be are there.
    pub fn insert(&mut self, hash: u64, index: u32) -> bool {
        let has_room = self.len < self.capacity;
        if has_room {
            self.len += 1;
            self.put(hash, index);
        }
        has_room
    }

    /// The same, without waiting for its bucket.
    pub fn insert_late(&mut self, hash: u64, index: u32) -> bool {
        let has_room = self.len < self.capacity;
        if has_room {
            self.len += 1;
            self.view().prefetch(hash);
            if self.late_len == LATE {
                self.settle_one();
            }
            let at = (self.late_from + self.late_len) % LATE;
            (self.late[at], self.late_indices[at]) = (hash, index);
            self.late_len += 1;
        }
        has_room
    }

    /// Put what was put off where it belongs.
    #[inline]
    pub fn settle(&mut self) {
        while self.late_len > 0 {
            self.settle_one();
        }
    }

    fn settle_one(&mut self) {
        let (hash, index) = (self.late[self.late_from], self.late_indices[self.late_from]);
        self.late_from = (self.late_from + 1) % LATE;
        self.late_len -= 1;
        self.put(hash, index);
    }

    /// Put an entry, for which there is room, where it belongs.
    fn put(&mut self, hash: u64, index: u32) {
        let buckets = self.buckets.get_mut();
        let (mut at, tag) = place(hash, buckets.len());
        // There is room: more places than `capacity`.
        for _ in 0..buckets.len() {
            let bucket = &mut buckets[at];
            if let Some(slot) = bucket.tagged(0).first() {
                (bucket.tags[slot], bucket.indices[slot]) = (tag, index);
                return;
            }
            bucket.overflow += 1;
            at = next(at, buckets.len());
        }
    }

    /// Remove the entry of `index` under `hash`. `false`: there is none.
    pub fn remove(&mut self, hash: u64, index: u32) -> bool {
        self.settle();
        let Some((home, at, slot)) = self.locate(hash, index) else { return false };
        let buckets = self.buckets.get_mut();
        buckets[at].tags[slot] = 0;
        let mut passed = home;
        while passed != at {
            buckets[passed].overflow -= 1;
            passed = next(passed, buckets.len());
        }
        self.len -= 1;
        true
    }

    /// Let the entry of `old` under `hash` stand for `new`. `false`: there is none.
    pub fn replace(&mut self, hash: u64, old: u32, new: u32) -> bool {
        self.settle();
        let Some((_, at, slot)) = self.locate(hash, old) else { return false };
        self.buckets.get_mut()[at].indices[slot] = new;
        true
    }

    /// Where a search begins, and the bucket and slot in which `index` is.
    fn locate(&self, hash: u64, index: u32) -> Option<(usize, usize, usize)> {
        let buckets = self.buckets.get();
        let (home, tag) = place(hash, buckets.len());
        let mut at = home;
        for _ in 0..buckets.len() {
            let bucket = &buckets[at];
            if let Some(slot) = bucket.tagged(tag).find(|slot| bucket.indices.get(*slot) == Some(&index)) {
                return Some((home, at, slot));
            }
            if bucket.overflow == 0 {
                return None;
            }
            at = next(at, buckets.len());
        }
        None
    }
}

#[inline]
fn next(at: usize, buckets: usize) -> usize {
    if at + 1 == buckets { 0 } else { at + 1 }
}

/// The buckets, to look up in.
#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a [Bucket]);

impl View<'_> {
    /// Ask for the bucket where a search for `hash` begins.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        if let Some(bucket) = self.0.get(place(hash, self.0.len()).0) {
            cpu::prefetch(bucket);
        }
    }

    /// The index that is probably the right one: the first of the same tag in the bucket where a search begins.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Option<u32> {
        let (at, tag) = place(hash, self.0.len());
        let bucket = self.0.get(at)?;
        bucket.indices.get(bucket.tagged(tag).first()?).copied()
    }

    /// Of the indices under `hash`, the first of which `is_it`.
    #[inline]
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let (mut at, tag) = place(hash, self.0.len());
        for _ in 0..self.0.len() {
            let bucket = self.0.get(at)?;
            for slot in bucket.tagged(tag) {
                let index = *bucket.indices.get(slot)?;
                if is_it(index) {
                    return Some(index);
                }
            }
            if bucket.overflow == 0 {
                return None;
            }
            at = next(at, self.0.len());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn it_holds_its_capacity_and_no_more() {
        let mut table = Table::new(1000, 60).unwrap();
        let hash = |i: u32| u64::from(i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for i in 0..1000 {
            assert!(table.insert(hash(i), i));
        }
        assert!(!table.insert(1, 1) && table.len() == 1000);
        for i in 0..1000 {
            assert_eq!(table.find(hash(i), |index| index == i), Some(i));
        }
    }

    proptest! {
        /// Few buckets and few hashes, so that entries go far and round the end.
        #[test]
        fn it_agrees_with_a_map(steps in proptest::collection::vec((0u64..12, 0u32..12, any::<bool>(), any::<bool>()), 1..400)) {
            let mut table = Table::new(40, 60).unwrap();
            let mut model = HashMap::<(u64, u32), u32>::new();
            for (i, (bucket, index, insert, late)) in steps.into_iter().enumerate() {
                let hash = (bucket << 60) | (bucket + 1);
                let held = model.values().sum::<u32>();
                if insert {
                    let inserted = if late { table.insert_late(hash, index) } else { table.insert(hash, index) };
                    prop_assert_eq!(inserted, held < 40);
                    if held < 40 {
                        *model.entry((hash, index)).or_default() += 1;
                    }
                } else if i % 3 == 0 {
                    let there = model.get(&(hash, index)).is_some_and(|count| *count > 0);
                    prop_assert_eq!(table.replace(hash, index, index + 100), there);
                    if there {
                        prop_assert!(table.replace(hash, index + 100, index));
                    }
                } else {
                    let count = model.entry((hash, index)).or_default();
                    prop_assert_eq!(table.remove(hash, index), *count > 0);
                    *count = count.saturating_sub(1);
                }
                for index in 0..12 {
                    let there = model.get(&(hash, index)).is_some_and(|count| *count > 0);
                    prop_assert_eq!(table.find(hash, |found| found == index).is_some(), there);
                }
                prop_assert_eq!(table.len() as u32, model.values().sum::<u32>());
            }
            // When all went, no bucket says that something is further on.
            for ((hash, index), count) in model {
                for _ in 0..count {
                    prop_assert!(table.remove(hash, index));
                }
            }
            prop_assert!(table.buckets.get().iter().all(|bucket| bucket.overflow == 0 && bucket.tags == [0; SLOTS]));
        }
    }
}
