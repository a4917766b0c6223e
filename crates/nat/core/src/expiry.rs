//! When a session is looked at next: a wheel of one round, whose places hold numbers of sessions in chunks of one cache line.
//!
//! A packet only writes the time into its session. When a session's place comes up, what is there says whether it is over or when to
//! look again, at most a round later: so a session whose timeout becomes shorter is seen in time as well, and nothing is ever
//! searched for or taken out. A chunk names its sessions, so they can be asked for from memory together.

use crate::cpu;
use crate::memory::{Memory, Pages};
use crate::session::{NONE, Tick};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Sessions of a chunk.
pub const CHUNK: usize = 14;
/// A place is 2^6 ticks: 67 ms.
const SHIFT: u32 = 6;
const PLACES: usize = 1024;

/// The longest time in ticks after which a session is looked at: 67 s.
pub const LONGEST: u32 = (PLACES as u32 - 2) << SHIFT;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
struct Chunk {
    next: u32,
    len: u32,
    sessions: [u32; CHUNK],
}

/// The wheel.
#[derive(Debug)]
pub struct Wheel {
    chunks: Pages<Chunk>,
    free: u32,
    fresh: u32,
    places: Box<[u32; PLACES]>,
    /// Sessions of each place.
    counts: Box<[u32; PLACES]>,
    /// The place that is up, counted from the start of time.
    now: u32,
    /// Whether a time was told yet.
    begun: bool,
}

impl Wheel {
    /// For so many sessions.
    pub fn new(capacity: usize) -> std::io::Result<Self> {
        // Each place may have one chunk that is not full, and a chunk is free before what was in it is put back.
        let chunks = Pages::new(capacity.div_ceil(CHUNK) + PLACES + 1)?;
        Ok(Self {
            chunks,
            free: NONE,
            fresh: 0,
            places: Box::new([NONE; PLACES]),
            counts: Box::new([0; PLACES]),
            now: 0,
            begun: false,
        })
    }

    /// Bytes it takes when all is touched.
    pub fn size(&self) -> usize {
        self.chunks.size() + size_of_val(&*self.places) + size_of_val(&*self.counts)
    }

    /// Its memory.
    pub fn memory(&self) -> &dyn Memory {
        &self.chunks
    }

    /// Look at `session` when `at` has come, or a round from `now` on if that is earlier. `false`: there is no room, which
    /// cannot be while each session is put here once.
    pub fn push(&mut self, session: u32, now: Tick, at: Tick) -> bool {
        self.begin(now);
        // Not before it has come: the next place after it.
        let wait = at.wrapping_sub(now);
        // What is due already does not wait for a round.
        let wait = if wait > u32::MAX / 2 { 0 } else { wait.min(LONGEST) };
        let due = (now.wrapping_add(wait) >> SHIFT).wrapping_add(1);
        let ahead = (due.wrapping_sub(self.now) & (u32::MAX >> SHIFT)).min(PLACES as u32 - 1);
        let place = self.now.wrapping_add(ahead) as usize % PLACES;
        let head = self.places[place];
        let chunks = self.chunks.get_mut();
        if let Some(chunk) = chunks.get_mut(head as usize).filter(|chunk| (chunk.len as usize) < CHUNK) {
            chunk.sessions[chunk.len as usize] = session;
            chunk.len += 1;
            self.counts[place] += 1;
            return true;
        }
        let reused = self.free != NONE;
        let index = if reused { self.free } else { self.fresh };
        let Some(chunk) = chunks.get_mut(index as usize) else { return false };
        if reused {
            self.free = chunk.next;
        } else {
            self.fresh += 1;
        }
        (chunk.next, chunk.len, chunk.sessions[0]) = (head, 1, session);
        self.places[place] = index;
        self.counts[place] += 1;
        true
    }

    /// How many sessions are to be looked at by now.
    pub fn due_count(&self, now: Tick) -> usize {
        let behind = (now >> SHIFT).wrapping_sub(self.now) & (u32::MAX >> SHIFT);
        if !self.begun || behind > u32::MAX >> (SHIFT + 1) {
            return 0;
        }
        let places = (0..=behind.min(PLACES as u32 - 1)).map(|ahead| self.now.wrapping_add(ahead) as usize);
        places.map(|place| self.counts[place % PLACES] as usize).sum()
    }

    /// Those of this place that come next, to be asked for while others end. The chunk after theirs is asked for here.
    pub fn upcoming(&self) -> &[u32] {
        let chunks = self.chunks.get();
        let Some(chunk) = chunks.get(self.places[self.now as usize % PLACES] as usize) else { return &[] };
        if let Some(next) = chunks.get(chunk.next as usize) {
            cpu::prefetch(next);
        }
        &chunk.sessions[..(chunk.len as usize).min(CHUNK)]
    }

    fn begin(&mut self, now: Tick) {
        if !self.begun {
            (self.begun, self.now) = (true, now >> SHIFT);
        }
    }

    /// The next sessions to look at, at most [`CHUNK`]; 0: none at this time.
    pub fn pop(&mut self, now: Tick, sessions: &mut [u32; CHUNK]) -> usize {
        self.begin(now);
        let until = now >> SHIFT;
        loop {
            let head = self.places[self.now as usize % PLACES];
            if let Some(chunk) = self.chunks.get_mut().get_mut(head as usize) {
                *sessions = chunk.sessions;
                let len = chunk.len as usize;
                let place = self.now as usize % PLACES;
                self.places[place] = chunk.next;
                self.counts[place] -= chunk.len.min(self.counts[place]);
                (chunk.next, chunk.len) = (self.free, 0);
                self.free = head;
                return len;
            }
            let behind = until.wrapping_sub(self.now) & (u32::MAX >> SHIFT);
            // Half the range and more is a time before that of the wheel.
            if behind == 0 || behind > u32::MAX >> (SHIFT + 1) {
                return 0;
            }
            // After a long time without a call one round says all.
            let step = if behind > PLACES as u32 { behind - PLACES as u32 } else { 1 };
            self.now = self.now.wrapping_add(step) & (u32::MAX >> SHIFT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn drain(wheel: &mut Wheel, now: Tick) -> Vec<u32> {
        let mut all = Vec::new();
        let mut some = [0; CHUNK];
        loop {
            match wheel.pop(now, &mut some) {
                0 => return all,
                len => all.extend_from_slice(&some[..len]),
            }
        }
    }

    #[test]
    fn not_before_its_time_and_at_most_two_places_after() {
        let mut wheel = Wheel::new(10).unwrap();
        assert!(wheel.push(1, 1000, 5000) && wheel.push(2, 1000, 6000));
        assert!(drain(&mut wheel, 4999).is_empty());
        assert_eq!(drain(&mut wheel, 5000 + (2 << SHIFT)), [1]);
        assert_eq!(drain(&mut wheel, 6000 + (2 << SHIFT)), [2]);
        assert!(drain(&mut wheel, 1_000_000).is_empty());
    }

    #[test]
    fn what_is_told_to_come_next_does() {
        let mut wheel = Wheel::new(100).unwrap();
        (0..3 * CHUNK as u32 - 5).for_each(|session| assert!(wheel.push(session, 1000, 5000)));
        let (now, mut some) = (5000 + (2 << SHIFT), [0; CHUNK]);
        let mut upcoming = None;
        loop {
            let len = wheel.pop(now, &mut some);
            assert!(upcoming.is_none_or(|told: Vec<u32>| told == some[..len]));
            if len == 0 {
                break;
            }
            upcoming = Some(wheel.upcoming().to_vec());
        }
    }

    #[test]
    fn what_is_due_already_comes_next() {
        let mut wheel = Wheel::new(10).unwrap();
        assert!(wheel.push(1, 200_000, 100_000) && wheel.push(2, 200_000, 200_000));
        assert_eq!(drain(&mut wheel, 200_000 + (2 << SHIFT)).len(), 2);
    }

    #[test]
    fn a_round_is_the_longest() {
        let mut wheel = Wheel::new(10).unwrap();
        assert!(wheel.push(1, 0, u32::MAX / 4));
        assert_eq!(drain(&mut wheel, LONGEST + (2 << SHIFT)), [1]);
    }

    #[test]
    fn time_that_wraps_is_time() {
        let mut wheel = Wheel::new(10).unwrap();
        let now = u32::MAX - 100;
        assert!(wheel.push(1, now, now.wrapping_add(5000)));
        assert!(drain(&mut wheel, now.wrapping_add(4000)).is_empty());
        assert_eq!(drain(&mut wheel, now.wrapping_add(5000 + (2 << SHIFT))), [1]);
    }

    proptest! {
        #[test]
        fn each_session_comes_once_and_in_time(steps in proptest::collection::vec((0u32..5_000, 0u32..90_000), 1..200)) {
            let mut wheel = Wheel::new(200).unwrap();
            let mut due = HashMap::new();
            let mut now = 12_345;
            for (session, (later, wait)) in steps.into_iter().enumerate() {
                now += later;
                for came in drain(&mut wheel, now) {
                    let at: u32 = due.remove(&came).expect("once");
                    prop_assert!(at <= now);
                }
                prop_assert!(due.values().all(|at| *at + (3 << SHIFT) > now));
                prop_assert_eq!(wheel.due_count(now), 0);
                prop_assert!(wheel.push(session as u32, now, now + wait));
                due.insert(session as u32, now + wait.min(LONGEST));
            }
            prop_assert_eq!(wheel.due_count(now + 100_000), due.len());
            prop_assert_eq!(drain(&mut wheel, now + 100_000).len(), due.len());
        }
    }
}
