//! The NAT table: {private address, tags} → Ethernet address and next hop. It is what links know of a subscriber, and what
//! says whether there is such a subscriber at all; sessions are another table's.
//!
//! Bindings are learned from what subscribers send, or given, as by leases: then only who is in the table gets through, from
//! the Ethernet address that it has there. A line is half a cache line; lines lie in a table with linear probing that is never
//! more than a quarter full.

use crate::config::SECOND;
use crate::cpu;
use crate::hash::Hasher;
use crate::key::{Key, Realm};
use crate::memory::Pages;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An Ethernet address.
pub type Mac = [u8; 6];
/// The number of a next hop, as sessions keep it; 0 is none.
pub type Hop = u16;

/// One subscriber, as the links know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(32))]
pub struct Binding {
    inside: u32,
    realm: u32,
    mac: Mac,
    /// 0: the line is free.
    hop: Hop,
    /// When it was last heard, in s.
    seen: u32,
    flags: u32,
    spare: u64,
}

const _: () = assert!(size_of::<Binding>() == 32);

impl Binding {
    /// Given, not learned: it neither moves nor ends by itself.
    const GIVEN: u32 = 1;
    const FREE: Self = Self { inside: 0, realm: 0, mac: [0; 6], hop: 0, seen: 0, flags: 0, spare: 0 };

    /// Its private address.
    pub fn inside(&self) -> u32 {
        self.inside
    }

    /// Its tags.
    pub fn realm(&self) -> Realm {
        self.realm
    }

    /// Its Ethernet address.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// The next hop towards it.
    pub fn hop(&self) -> Hop {
        self.hop
    }

    /// Whether it was given.
    pub fn is_given(&self) -> bool {
        self.flags & Self::GIVEN != 0
    }

    /// Whose it is, if it is somebody's.
    #[inline]
    fn subscriber(&self) -> (u32, Realm) {
        (self.inside, self.realm)
    }

    #[inline]
    fn is(&self, inside: u32, realm: Realm) -> bool {
        self.hop != 0 && self.subscriber() == (inside, realm)
    }
}

/// What the table says of the sender of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// It is bound, and sent from its Ethernet address.
    Bound(Hop),
    /// It is bound, and sent from another one.
    Elsewhere,
    /// It is not bound.
    Unknown,
}

/// The place of a binding that belongs at `home`, or the free one at which it would be.
#[inline]
fn at(lines: &[Binding], home: usize, inside: u32, realm: Realm) -> Result<usize, usize> {
    let mut at = home;
    // It ends: not all lines are taken.
    loop {
        match lines.get(at) {
            Some(line) if line.is(inside, realm) => return Ok(at),
            Some(line) if line.hop == 0 => return Err(at),
            _ => at = (at + 1) & (lines.len() - 1),
        }
    }
}

/// The table while many senders are looked up.
#[derive(Debug)]
pub struct Lookup<'a> {
    lines: &'a mut [Binding],
    /// In s.
    now: u32,
}

impl Lookup<'_> {
    /// Ask for the line in which a sender is looked for.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some(line) = self.lines.get(hash as usize & (self.lines.len() - 1)) {
            cpu::prefetch(line);
        }
    }

    /// Who sent a packet, and note that it did.
    #[inline]
    pub fn source(&mut self, hash: u64, inside: u32, realm: Realm, mac: Mac) -> Source {
        let mask = self.lines.len() - 1;
        let home = hash as usize & mask;
        let next = (home + 1) & mask;
        // In its own place or the next are nearly all: which of them is a choice, not a branch that is guessed.
        let is = |at: usize| self.lines.get(at).is_some_and(|line| line.subscriber() == (inside, realm));
        let (here, there) = (is(home), is(next));
        let place = match here | there {
            true => std::hint::select_unpredictable(here, home, next),
            false => match at(self.lines, home, inside, realm) {
                Ok(at) => at,
                Err(_) => return Source::Unknown,
            },
        };
        let Some(line) = self.lines.get_mut(place).filter(|line| line.hop != 0) else {
            return Source::Unknown;
        };
        if line.mac != mac {
            return Source::Elsewhere;
        }
        // Not to write what is there.
        if line.seen != self.now {
            line.seen = self.now;
        }
        Source::Bound(line.hop)
    }
}

/// The NAT table of one worker.
#[derive(Debug)]
pub struct Bindings {
    lines: Pages<Binding>,
    hasher: Hasher,
    len: usize,
    most: usize,
    /// Next hops that are free again, and the first that was never used.
    free: Vec<Hop>,
    fresh: u32,
    /// Where the search for idle ones goes on.
    cursor: usize,
}

/// Lines for each binding: fewer cost a packet more looks.
const SPARE: usize = 4;
/// Next hops from here on are subscribers'.
const FIRST: u32 = 2;

impl Bindings {
    /// Room for `most` bindings, as many as there are next hops at most.
    pub fn new(most: usize, seed: [u8; 32]) -> std::io::Result<Self> {
        let most = most.min(usize::from(Hop::MAX) + 1 - FIRST as usize);
        let lines = Pages::new((SPARE * most).next_power_of_two().max(2))?;
        Ok(Self {
            lines,
            hasher: Hasher::new(seed),
            len: 0,
            most,
            free: Vec::with_capacity(most),
            fresh: FIRST,
            cursor: 0,
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many there may be.
    pub fn capacity(&self) -> usize {
        self.most
    }

    /// Bytes it takes when full.
    pub fn size(&self) -> usize {
        self.lines.size() + self.free.capacity() * size_of::<Hop>()
    }

    /// Under which hash a subscriber is looked for.
    #[inline]
    pub fn hash(&self, inside: u32, realm: Realm) -> u64 {
        self.hasher.hash(Key::subscriber(inside, realm))
    }

    /// The same of many, by [`Key::subscriber`].
    #[inline]
    pub fn hash_all(&self, keys: &[Key], hashes: &mut [u64]) {
        self.hasher.hash_all(keys, hashes);
    }

    #[inline]
    fn place(&self, hash: u64) -> usize {
        hash as usize & (self.lines.get().len() - 1)
    }

    /// The place of a binding, or the free one at which it would be.
    #[inline]
    fn at(&self, hash: u64, inside: u32, realm: Realm) -> Result<usize, usize> {
        at(self.lines.get(), self.place(hash), inside, realm)
    }

    /// To look many senders up.
    #[inline]
    pub fn lookup(&mut self, now: u64) -> Lookup<'_> {
        Lookup { lines: self.lines.get_mut(), now: seconds(now) }
    }

    /// Who sent a packet, and note that it did.
    #[inline]
    pub fn source(&mut self, hash: u64, inside: u32, realm: Realm, mac: Mac, now: u64) -> Source {
        self.lookup(now).source(hash, inside, realm, mac)
    }

    /// The binding of a subscriber.
    pub fn find(&self, inside: u32, realm: Realm) -> Option<&Binding> {
        let at = self.at(self.hash(inside, realm), inside, realm).ok()?;
        self.lines.get().get(at)
    }

    /// Bind a subscriber to an Ethernet address. One that is bound moves there, and keeps its next hop; unless it was given,
    /// and this is learned. `None`: that, or there is no room.
    pub fn bind(&mut self, inside: u32, realm: Realm, mac: Mac, given: bool, now: u64) -> Option<Hop> {
        let flags = if given { Binding::GIVEN } else { 0 };
        match self.at(self.hash(inside, realm), inside, realm) {
            Ok(at) => {
                let line = &mut self.lines.get_mut()[at];
                if line.is_given() && !given {
                    return None;
                }
                (line.mac, line.seen, line.flags) = (mac, seconds(now), line.flags | flags);
                Some(line.hop)
            }
            Err(_) if self.len >= self.most => None,
            Err(at) => {
                let hop = self.take_hop()?;
                self.lines.get_mut()[at] =
                    Binding { inside, realm, mac, hop, seen: seconds(now), flags, spare: 0 };
                self.len += 1;
                Some(hop)
            }
        }
    }

    /// Bind a subscriber again that was bound before a restart, with a next hop that was used by none yet. Whether there was room
    /// for it; if not, its next hop is nobody else's all the same, since sessions may name it.
    pub fn restore(&mut self, inside: u32, realm: Realm, mac: Mac, hop: Hop, given: bool, now: u64) -> bool {
        let unused = u32::from(hop) >= self.fresh;
        self.fresh = self.fresh.max(u32::from(hop) + 1);
        let at = self.at(self.hash(inside, realm), inside, realm);
        let (Err(at), true) = (at, self.len < self.most && unused) else { return false };
        let flags = if given { Binding::GIVEN } else { 0 };
        self.lines.get_mut()[at] = Binding { inside, realm, mac, hop, seen: seconds(now), flags, spare: 0 };
        self.len += 1;
        true
    }

    fn take_hop(&mut self) -> Option<Hop> {
        self.free.pop().or_else(|| {
            let hop = Hop::try_from(self.fresh).ok()?;
            self.fresh += 1;
            Some(hop)
        })
    }

    /// End a binding. Its next hop is used again only once [`Bindings::release_hop`] says that nothing goes by it any more.
    pub fn unbind(&mut self, inside: u32, realm: Realm) -> Option<Binding> {
        let mut hole = self.at(self.hash(inside, realm), inside, realm).ok()?;
        let mask = self.lines.get().len() - 1;
        let ended = self.lines.get()[hole];
        self.len -= 1;
        // What lies behind the hole and was pushed there by it moves up.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let line = self.lines.get()[at];
            if line.hop == 0 {
                break;
            }
            let home = self.place(self.hash(line.inside, line.realm));
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.lines.get_mut()[hole] = line;
                hole = at;
            }
        }
        self.lines.get_mut()[hole] = Binding::FREE;
        Some(ended)
    }

    /// Nothing goes by this next hop any more.
    pub fn release_hop(&mut self, hop: Hop) {
        if self.free.len() < self.free.capacity() {
            self.free.push(hop);
        }
    }

    /// A learned binding that was not heard for `idle` ns, of the next `budget` lines. The search goes on where it ended.
    pub fn next_idle(&mut self, idle: u64, now: u64, budget: usize) -> Option<Binding> {
        let lines = self.lines.get();
        for _ in 0..budget.min(lines.len()) {
            let line = lines[self.cursor & (lines.len() - 1)];
            self.cursor = (self.cursor + 1) & (lines.len() - 1);
            let silent = u64::from(seconds(now).saturating_sub(line.seen)) * SECOND;
            if line.hop != 0 && !line.is_given() && silent >= idle {
                return Some(line);
            }
        }
        None
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Binding> {
        self.lines.get().iter().filter(|line| line.hop != 0)
    }
}

/// Time as lines have it. They last for 136 years.
fn seconds(now: u64) -> u32 {
    (now / SECOND) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{HashMap, HashSet};

    const MAC: Mac = [2, 0, 0, 0, 0, 1];
    const OTHER: Mac = [2, 0, 0, 0, 0, 2];

    fn table(most: usize) -> Bindings {
        Bindings::new(most, [3; 32]).unwrap()
    }

    fn source(table: &mut Bindings, inside: u32, realm: Realm, mac: Mac) -> Source {
        let hash = table.hash(inside, realm);
        table.source(hash, inside, realm, mac, 0)
    }

    #[test]
    fn senders_are_known_by_address_tags_and_ethernet_address() {
        let mut table = table(8);
        assert_eq!(source(&mut table, 7, 0, MAC), Source::Unknown);
        let hop = table.bind(7, 0, MAC, false, 0).unwrap();
        assert!(hop >= 2);
        assert_eq!(source(&mut table, 7, 0, MAC), Source::Bound(hop));
        assert_eq!(source(&mut table, 7, 0, OTHER), Source::Elsewhere);
        assert_eq!(source(&mut table, 7, 1 << 12, MAC), Source::Unknown, "other tags");
        // it moves, and what goes to it goes there
        assert_eq!(table.bind(7, 0, OTHER, false, 0), Some(hop));
        assert_eq!(source(&mut table, 7, 0, OTHER), Source::Bound(hop));
        // what was given is not learned otherwise
        assert_eq!(table.bind(7, 0, MAC, true, 0), Some(hop));
        assert_eq!(table.bind(7, 0, OTHER, false, 0), None);
        assert_eq!(table.find(7, 0).map(|line| (line.mac(), line.is_given())), Some((MAC, true)));
    }

    #[test]
    fn it_fills_up_to_what_it_may_hold() {
        let mut table = table(3);
        let hops: HashSet<Hop> = (0..3).filter_map(|i| table.bind(i, 0, MAC, false, 0)).collect();
        assert_eq!((hops.len(), table.len()), (3, 3));
        assert_eq!(table.bind(9, 0, MAC, true, 0), None);
        // a next hop comes back only when it is said so
        let ended = table.unbind(1, 0).unwrap();
        let next = table.bind(9, 0, MAC, false, 0).unwrap();
        assert!(!hops.contains(&next));
        table.unbind(9, 0).unwrap();
        table.release_hop(ended.hop());
        assert_eq!(table.bind(10, 0, MAC, false, 0), Some(ended.hop()));
        // never more than sessions can name
        let mut large = self::table(1 << 20);
        let bound = (0..70_000).filter(|i| large.bind(*i, 0, MAC, false, 0).is_some()).count();
        assert_eq!((bound, large.capacity()), (65_534, 65_534));
    }

    #[test]
    fn a_restored_next_hop_is_nobody_elses_even_without_room() {
        let mut table = table(2);
        assert!(table.restore(1, 0, MAC, 2, false, 0) && table.restore(2, 0, MAC, 3, false, 0));
        assert!(!table.restore(3, 0, MAC, 4, false, 0), "full");
        assert!(!table.restore(1, 0, OTHER, 5, false, 0), "bound already");
        table.unbind(1, 0).unwrap();
        assert_eq!(table.bind(9, 0, MAC, false, 0), Some(6));
    }

    #[test]
    fn who_is_silent_is_found_and_who_was_given_stays() {
        let mut table = table(64);
        for inside in 0..32 {
            table.bind(inside, 0, MAC, inside % 2 == 0, 0).unwrap();
        }
        let hash = table.hash(5, 0);
        assert!(matches!(table.source(hash, 5, 0, MAC, 50 * SECOND), Source::Bound(_)));
        let mut idle = HashSet::new();
        while let Some(line) = table.next_idle(60 * SECOND, 70 * SECOND, 4_096) {
            assert!(table.unbind(line.inside(), line.realm()).is_some());
            idle.insert(line.inside());
        }
        assert_eq!(idle, (0..32).filter(|i| i % 2 == 1 && *i != 5).collect());
    }

    proptest! {
        /// Against a map: nothing is lost when lines move up.
        #[test]
        fn it_does_what_a_map_does(steps in proptest::collection::vec((0u32..40, any::<bool>()), 0..400)) {
            let (mut table, mut model) = (table(24), HashMap::new());
            for (inside, adds) in steps {
                if adds {
                    if let Some(hop) = table.bind(inside, inside % 3, MAC, false, 0) {
                        prop_assert_eq!(*model.entry(inside).or_insert(hop), hop);
                    } else {
                        prop_assert_eq!(model.len(), 24);
                    }
                } else {
                    let ended = table.unbind(inside, inside % 3).map(|line| line.hop());
                    prop_assert_eq!(ended, model.remove(&inside));
                    if let Some(hop) = ended {
                        table.release_hop(hop);
                    }
                }
                prop_assert_eq!(table.len(), model.len());
                for (inside, hop) in &model {
                    prop_assert_eq!(table.find(*inside, inside % 3).map(Binding::hop), Some(*hop));
                }
            }
        }
    }
}
