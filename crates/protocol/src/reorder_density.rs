//! How far datagrams came from their places, and how many wait for those before them: reorder density and reorder
//! buffer-occupancy density (RFC 5236), by its own algorithms of sections 7.1 and 7.2.
//!
//! Both run from a gap in the numbers until what it disturbed is settled. All that came in order otherwise is at its
//! place and waits for nothing, so it is not looked at: the result adds it from the number that came in all.

/// The displacement threshold DT and the buffer-occupancy threshold BT: what is later is taken for lost.
pub const THRESHOLD: usize = 64;

/// Frequencies, of all streams of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Densities {
    /// FD\[-1\], FD\[-2\], …: that came so many places too early.
    pub early: [u64; THRESHOLD],
    /// FD\[1\], FD\[2\], …: that came so many places too late.
    pub late: [u64; THRESHOLD],
    /// Too far from their places, or too late: in no displacement.
    pub displaced_beyond: u64,
    /// FB\[1\], FB\[2\], …: arrivals after which so many waited.
    pub waiting: [u64; THRESHOLD],
    /// That came when their buffer had been given up: in no occupancy.
    pub waited_beyond: u64,
}

impl Default for Densities {
    fn default() -> Self {
        let none = [0; THRESHOLD];
        Self { early: none, late: none, displaced_beyond: 0, waiting: none, waited_beyond: 0 }
    }
}

impl Densities {
    /// Add all of `other`.
    pub fn merge(&mut self, other: &Self) {
        let add = |mine: &mut [u64], theirs: &[u64]| mine.iter_mut().zip(theirs).for_each(|(m, t)| *m += t);
        add(&mut self.early, &other.early);
        add(&mut self.late, &other.late);
        add(&mut self.waiting, &other.waiting);
        self.displaced_beyond += other.displaced_beyond;
        self.waited_beyond += other.waited_beyond;
    }
}

/// The arrivals of one stream, as far as they are not settled. Numbers are told once each.
#[derive(Debug, Clone)]
pub struct Density {
    places: ExpectedNumbers,
    buffer: Buffer,
    /// One past the highest number that came.
    next: u64,
    /// How many arrivals were told, or came in order and needed no telling.
    told: u64,
}

impl Default for Density {
    fn default() -> Self {
        Self::new(THRESHOLD)
    }
}

impl Density {
    /// With this for DT and BT.
    fn new(threshold: usize) -> Self {
        Self { places: ExpectedNumbers::new(threshold), buffer: Buffer::new(threshold), next: 0, told: 0 }
    }

    /// As if nothing had come yet.
    pub fn clear(&mut self) {
        self.places.len = 0;
        self.buffer.len = 0;
        (self.places.furthest, self.buffer.most) = (0, 0);
        (self.next, self.told) = (0, 0);
    }

    /// Arrival `index` is this number, which is not the one after the highest. All arrivals since the last one told
    /// came in order.
    pub fn disturbed(&mut self, number: u64, index: u64, into: &mut Densities) {
        self.catch_up(index, into);
        self.places.arrived(number, self.next, true, into);
        self.buffer.arrived(number, self.next, into);
        self.next = self.next.max(number + 1);
        self.told += 1;
    }

    /// Nothing comes after `index` arrivals. Gives the largest displacement, and the most that waited.
    pub fn finish(&mut self, index: u64, into: &mut Densities) -> (u32, u32) {
        self.catch_up(index, into);
        while self.places.len > 0 {
            self.places.step(into);
        }
        // the missing numbers of what waits will not come
        self.buffer.len = 0;
        (self.places.furthest, self.buffer.most)
    }

    /// What came in order since: no more than the first of it, about twice the threshold, meets what came before.
    fn catch_up(&mut self, index: u64, into: &mut Densities) {
        let upto = self.next + index.saturating_sub(self.told);
        for number in self.next..upto {
            let (places, buffer) = (self.places.len > 0, self.buffer.len > 0);
            if !places && !buffer {
                break;
            }
            if places {
                self.places.arrived(number, number, false, into);
            }
            if buffer {
                self.buffer.arrived(number, number, into);
            }
        }
        self.next = upto;
        self.told = self.told.max(index);
    }
}

/// Numbers in the order in which they are to go.
#[derive(Debug, Clone)]
struct Ring {
    numbers: Box<[u64]>,
    head: usize,
}

impl Ring {
    fn new(size: usize) -> Self {
        Self { numbers: vec![0; size].into(), head: 0 }
    }

    /// Where the one that is number `i` from the first stands.
    #[inline]
    fn place(&self, i: usize) -> usize {
        let (place, size) = (self.head + i, self.numbers.len());
        if place < size { place } else { place - size }
    }

    #[inline]
    fn at(&self, i: usize) -> u64 {
        self.numbers[self.place(i)]
    }

    #[inline]
    fn set(&mut self, i: usize, number: u64) {
        self.numbers[self.place(i)] = number;
    }

    #[inline]
    fn pop(&mut self) {
        self.head = self.place(1);
    }
}

/// The number expected when one comes: section 7.1, looking ahead by DT arrivals.
#[derive(Debug, Clone)]
struct ExpectedNumbers {
    /// DT + 1 arrivals that have no place yet.
    window: Ring,
    len: usize,
    /// How many of them there are up to the last that did not come in order.
    disturbed: usize,
    /// The receive index, RI.
    expected: u64,
    /// Bit k: number `expected` + k came early, and has its place.
    early: u64,
    /// The largest displacement.
    furthest: u32,
}

impl ExpectedNumbers {
    fn new(threshold: usize) -> Self {
        Self { window: Ring::new(threshold + 1), len: 0, disturbed: 0, expected: 0, early: 0, furthest: 0 }
    }

    /// With `next` for the highest number that came before and one more.
    fn arrived(&mut self, number: u64, next: u64, disturbs: bool, into: &mut Densities) {
        let size = self.window.numbers.len();
        if self.len == size {
            self.step(into);
        }
        if self.len == 0 {
            if !disturbs {
                return;
            }
            (self.expected, self.early) = (next, 0);
        }
        if number < self.expected {
            into.displaced_beyond += 1;
            return;
        }
        self.window.set(self.len, number);
        self.len += 1;
        if disturbs {
            self.disturbed = self.len;
        }
    }

    /// Give the first in the window its place.
    fn step(&mut self, into: &mut Densities) {
        let threshold = self.window.numbers.len() as u64 - 1;
        let number = self.window.at(0);
        let came = number == self.expected || self.early & 1 != 0;
        if !came {
            let waiting = (0..self.len).map(|i| self.window.at(i)).filter(|other| *other >= self.expected);
            let early = (self.early != 0).then(|| self.expected + u64::from(self.early.trailing_zeros()));
            // those between are lost
            let expected = waiting.chain(early).min().unwrap_or(self.expected);
            self.early = u32::try_from(expected - self.expected)
                .ok()
                .and_then(|by| self.early.checked_shr(by))
                .unwrap_or(0);
            self.expected = expected;
        }
        self.window.pop();
        self.len -= 1;
        self.disturbed = self.disturbed.saturating_sub(1);
        let (early, late) = (number.saturating_sub(self.expected), self.expected.saturating_sub(number));
        if early.max(late) <= threshold {
            self.expected += 1;
            self.early >>= 1;
            self.furthest = self.furthest.max(early.max(late) as u32);
            if early > 0 {
                into.early[early as usize - 1] += 1;
                self.early |= 1 << (early - 1);
            } else if late > 0 {
                into.late[late as usize - 1] += 1;
            }
        } else {
            into.displaced_beyond += 1;
        }
        // The rest came in order. Nothing is left before it, but where a late one was too late for a place that it was
        // given: that place would stay empty, and displace by one all that follows.
        if self.disturbed == 0 && (self.window.at(0) == self.expected || self.early != 0) {
            self.len = 0;
        }
    }
}

/// What waits for the number expected: section 7.2.
#[derive(Debug, Clone)]
struct Buffer {
    /// BT numbers at most, the lowest first.
    waiting: Ring,
    len: usize,
    expected: u64,
    /// The most that waited.
    most: u32,
}

impl Buffer {
    fn new(threshold: usize) -> Self {
        Self { waiting: Ring::new(threshold), len: 0, expected: 0, most: 0 }
    }

    fn arrived(&mut self, number: u64, next: u64, into: &mut Densities) {
        if self.len == 0 {
            self.expected = next;
        }
        if number < self.expected {
            into.waited_beyond += 1;
            return;
        }
        if number > self.expected {
            if self.len == self.waiting.numbers.len() {
                // the expected one is given up, and those after it up to the first that came
                self.expected = self.waiting.at(0).min(number);
                self.release();
            }
            // The pseudocode forgets one that is still early then; section 3.8 counts it.
            if number > self.expected {
                self.insert(number);
            }
        }
        if number == self.expected {
            self.expected += 1;
            self.release();
        }
        if self.len > 0 {
            into.waiting[self.len - 1] += 1;
            self.most = self.most.max(self.len as u32);
        }
    }

    /// Those that need wait no longer.
    fn release(&mut self) {
        while self.len > 0 && self.waiting.at(0) == self.expected {
            self.waiting.pop();
            self.len -= 1;
            self.expected += 1;
        }
    }

    fn insert(&mut self, number: u64) {
        let mut at = self.len;
        while at > 0 && self.waiting.at(at - 1) > number {
            let other = self.waiting.at(at - 1);
            self.waiting.set(at, other);
            at -= 1;
        }
        self.waiting.set(at, number);
        self.len += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, HashSet, VecDeque};

    /// Without copies.
    fn unique(numbers: &[u64]) -> Vec<u64> {
        let mut seen = HashSet::new();
        numbers.iter().copied().filter(|number| seen.insert(*number)).collect()
    }

    /// Frequencies of displacements and of occupancies, zeros among them.
    type Frequencies = (BTreeMap<i64, u64>, BTreeMap<u64, u64>);

    /// Only what does not come in order is told.
    fn ours(numbers: &[u64], threshold: usize) -> (Frequencies, Densities) {
        let (mut density, mut into, mut next) = (Density::new(threshold), Densities::default(), 1);
        density.next = 1;
        let arrivals = unique(numbers);
        for (index, number) in (0..).zip(&arrivals) {
            if *number != next {
                density.disturbed(*number, index, &mut into);
            }
            next = next.max(number + 1);
        }
        density.finish(arrivals.len() as u64, &mut into);
        let mut displaced: BTreeMap<i64, u64> = BTreeMap::new();
        for (at, i) in (1..).zip(0..THRESHOLD) {
            displaced.insert(-at, into.early[i]);
            displaced.insert(at, into.late[i]);
        }
        let mut waiting: BTreeMap<u64, u64> = (1..).zip(into.waiting).collect();
        let all = arrivals.len() as u64;
        displaced.insert(0, all - displaced.values().sum::<u64>() - into.displaced_beyond);
        waiting.insert(0, all - waiting.values().sum::<u64>() - into.waited_beyond);
        displaced.retain(|_, n| *n > 0);
        waiting.retain(|_, n| *n > 0);
        ((displaced, waiting), into)
    }

    /// Section 7.1 to the letter. `None` where a late one came farther than DT from a place that it was given: that
    /// place stays empty there, and all that follows is displaced by one for good.
    fn rd(numbers: &[u64], dt: usize) -> Option<BTreeMap<i64, u64>> {
        let mut stream: VecDeque<u64> = unique(numbers).into();
        let mut window: VecDeque<u64> = (0..=dt).filter_map(|_| stream.pop_front()).collect();
        let (mut buffer, mut ri, mut fd) = (HashSet::new(), 1, BTreeMap::new());
        while !window.is_empty() {
            if !window.contains(&ri) && !buffer.contains(&ri) {
                let m = window.iter().chain(&buffer).copied().min()?;
                ri = if ri < m { m } else { ri + 1 };
                continue;
            }
            let s = window.pop_front()?;
            let d = ri as i64 - s as i64;
            if d.unsigned_abs() as usize <= dt {
                *fd.entry(d).or_default() += 1;
                buffer.remove(&ri);
                if d < 0 {
                    buffer.insert(s);
                }
                ri += 1;
            } else if d > 0 {
                return None;
            }
            while let Some(new) = stream.pop_front() {
                if new >= ri {
                    window.push_back(new);
                    break;
                }
            }
        }
        Some(fd)
    }

    /// Section 7.2, but that an early one that fills a full buffer waits in it as well.
    fn rbd(numbers: &[u64], bt: usize) -> BTreeMap<u64, u64> {
        let (mut buffer, mut e, mut fb) = (HashSet::new(), 1, BTreeMap::new());
        for s in unique(numbers).into_iter().filter(|s| *s > 0) {
            if s < e {
                continue;
            }
            buffer.insert(s);
            if s > e && buffer.len() > bt {
                while !buffer.contains(&e) {
                    e += 1;
                }
            }
            while buffer.remove(&e) {
                e += 1;
            }
            *fb.entry(buffer.len() as u64).or_default() += 1;
        }
        fb
    }

    fn map<K: Ord + Copy, const N: usize>(of: [(K, u64); N]) -> BTreeMap<K, u64> {
        of.into()
    }

    #[test]
    fn the_examples_of_rfc_5236_come_out() {
        // section 8: a, tables 2 and 4; b, tables 5 and 6; c, tables 7 and 8
        let a = (map([(-2, 1), (-1, 1), (0, 4), (1, 1), (2, 1)]), map([(0, 5), (1, 2), (2, 1)]));
        assert_eq!(ours(&[1, 4, 2, 5, 3, 6, 7, 8], 4).0, a);
        assert_eq!(ours(&[1, 4, 2, 5, 3, 6, 7, 8], THRESHOLD).0, a, "whatever the threshold");
        let b = (map([(0, 6)]), map([(0, 3), (1, 1), (2, 1), (3, 1)]));
        assert_eq!(ours(&[1, 2, 4, 5, 6, 7], 3).0, b);
        let c = (map([(-1, 1), (0, 3), (1, 1)]), map([(0, 4), (1, 1)]));
        assert_eq!(ours(&[1, 3, 2, 3, 4, 5], 2).0, c);
        // section 3.3, example 3: 2 is lost, 3 comes twice
        assert_eq!(ours(&[1, 4, 3, 5, 3, 8, 7, 6], 4).0.0, map([(-2, 1), (-1, 1), (0, 3), (1, 1), (2, 1)]));
        // section 4, example 5: 4 is lost, 2 comes twice
        assert_eq!(ours(&[1, 2, 5, 3, 6, 2], 3).0.0, map([(-2, 1), (0, 3), (2, 1)]));
        // section 6: one from nowhere is left out, and disturbs no other
        let (rogue, into) = ours(&[1, 5430, 2, 3, 4, 5], 4);
        assert_eq!((rogue.0, into.displaced_beyond), (map([(0, 5)]), 1));
    }

    #[test]
    fn what_comes_in_turn_long_after_a_gap_is_not_looked_at() {
        let mut into = Densities::default();
        let mut density = Density::default();
        density.disturbed(11, 10, &mut into);
        // a thousand million in order; then one is late by one
        let much = 1_000_000_000;
        density.disturbed(much + 1, much - 1, &mut into);
        density.disturbed(much, much, &mut into);
        assert_eq!(density.finish(much + 1, &mut into), (1, THRESHOLD as u32));
        assert_eq!((into.early[0], into.late[0], into.displaced_beyond), (1, 1, 0));
        let lost: Vec<u64> = [2; 1].into_iter().chain([1; THRESHOLD - 1]).collect();
        assert_eq!((into.waiting.to_vec(), into.waited_beyond), (lost, 0));
    }

    proptest! {
        /// Numbers that wander: lost, late, doubled, far too early, in any mix.
        #[test]
        fn the_algorithms_of_rfc_5236_agree(
            steps in prop::collection::vec((0u64..24, 0u64..60), 1..300), threshold in 1usize..=12,
        ) {
            let mut base = 10u64;
            let step = |(step, kind): (u64, u64)| {
                base += 1 + if kind == 0 { 30 } else { kind / 50 };
                match kind { 1..20 => base + step % 7, 20 => base + 1000, _ => base }.saturating_sub(9)
            };
            let numbers: Vec<u64> = steps.into_iter().map(step).collect();
            let ((displaced, waiting), _) = ours(&numbers, threshold);
            prop_assert_eq!(waiting, rbd(&numbers, threshold));
            if let Some(expected) = rd(&numbers, threshold) {
                prop_assert_eq!(displaced, expected);
            }
        }
    }
}
