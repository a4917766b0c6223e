//! One direction: what goes in comes out later, or not, or twice, as its parameters say.

use crate::bottleneck::Bottleneck;
use crate::cargo::{Cargo, Train};
use crate::live::{Follower, Live};
use crate::medium::{Medium, generator};

/// One direction of a link, without input and output: loads and times in, loads out.
///
/// Nothing allocates after it was made. Times are nanoseconds on any clock that goes forward.
#[derive(Debug)]
pub struct Path<L> {
    follower: Follower,
    bottleneck: Bottleneck<L>,
    medium: Medium<L>,
}

impl<L> Path<L> {
    /// A path with room for `capacity` loads, and as many waiting at its bottleneck.
    pub fn new(live: Live, capacity: usize) -> Self {
        let seed = live.seed;
        Self {
            follower: Follower::new(live),
            bottleneck: Bottleneck::new(capacity, generator(seed, 6)),
            medium: Medium::new(capacity, seed),
        }
    }

    /// Its live parameters and counters.
    pub fn live(&self) -> &Live {
        self.follower.live()
    }

    /// Bring it up to `now`: parameters, and what begins to leave the bottleneck. Once before loads are
    /// [offered](Self::offer) or [taken](Self::due).
    #[inline]
    pub fn turn<C: Cargo<Load = L>>(&mut self, now: u64, cargo: &mut C) {
        while let Some(entry) = self.follower.follow(now) {
            self.medium.set(&entry.parameters);
            self.bottleneck.set(entry.bottleneck.as_ref());
        }
        if !self.bottleneck.is_open() {
            self.serve(now, cargo);
        }
    }

    /// `load` goes in.
    #[inline]
    pub fn offer<C: Cargo<Load = L>>(&mut self, now: u64, load: L, cargo: &mut C) {
        let stats = self.follower.live().counters();
        let train = cargo.train(&load);
        stats.packets_in.add(train.packets.into());
        stats.bytes_in.add(train.total());
        if self.bottleneck.is_open() {
            return self.medium.take(now, load, cargo, stats);
        }
        // Whoever begins to leave before this one came makes room for it.
        self.serve(now, cargo);
        self.bottleneck.offer(now, load, cargo, self.follower.live().counters());
        self.serve(now, cargo);
    }

    fn serve<C: Cargo<Load = L>>(&mut self, now: u64, cargo: &mut C) {
        let stats = self.follower.live().counters();
        while let Some((at, piece)) = self.bottleneck.serve(now, cargo, stats) {
            self.medium.take(at, piece, cargo, stats);
        }
    }

    /// The next load that comes out at `now` or before. It is the caller's from here on.
    #[inline]
    pub fn due<C: Cargo<Load = L>>(&mut self, now: u64, cargo: &mut C) -> Option<L> {
        let stats = self.follower.live().counters();
        let (at, load) = self.medium.due(now, cargo, stats)?;
        let train = cargo.train(&load);
        stats.packets_out.add(train.packets.into());
        stats.bytes_out.add(train.total());
        stats.late(now - at.min(now), train.packets.into());
        Some(load)
    }

    /// `packets` that came out were not taken by whoever is next.
    pub fn not_taken(&mut self, packets: u64, bytes: u64) {
        let stats = self.follower.live().counters();
        stats.packets_out.add(packets.wrapping_neg());
        stats.bytes_out.add(bytes.wrapping_neg());
        stats.not_taken.add(packets);
    }

    /// Packets came that there was no memory for.
    pub fn no_room(&mut self, train: Train) {
        let stats = self.follower.live().counters();
        stats.packets_in.add(train.packets.into());
        stats.bytes_in.add(train.total());
        stats.queue_full.add(train.packets.into());
    }

    /// When to come back: nothing happens before.
    #[inline]
    pub fn next_at(&self) -> u64 {
        self.medium.next_at().min(self.bottleneck.next_at()).min(self.follower.next_at())
    }
}

#[cfg(test)]
mod tests;
