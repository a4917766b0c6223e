//! One direction: what goes in comes out later, or not, or twice, as its parameters say.

use crate::bottleneck::Bottleneck;
use crate::link_stage::{LinkStage, generator};
use crate::live::{DirectionControl, Follower};
use crate::packet_store::{Burst, PacketStore};

/// One direction of a link, without input and output: loads and times in, loads out.
///
/// Nothing allocates after it was made. Times are nanoseconds on any clock that goes forward.
#[derive(Debug)]
pub struct Path<L> {
    follower: Follower,
    bottleneck: Bottleneck<L>,
    stage: LinkStage<L>,
}

impl<L> Path<L> {
    /// A path with room for `capacity` loads, and as many waiting at its bottleneck.
    pub fn new(live: DirectionControl, capacity: usize) -> Self {
        let seed = live.seed;
        Self {
            follower: Follower::new(live),
            bottleneck: Bottleneck::new(capacity, generator(seed, 6)),
            stage: LinkStage::new(capacity, seed),
        }
    }

    /// Its live parameters and counters.
    pub fn live(&self) -> &DirectionControl {
        self.follower.live()
    }

    /// Advance to `now`: parameters of the timeline, and service of the bottleneck. Once before loads are
    /// [offered](Self::offer) or [taken](Self::pop_due).
    #[inline]
    pub fn advance<C: PacketStore<Load = L>>(&mut self, now: u64, store: &mut C) {
        while let Some((entry, seed)) = self.follower.follow(now) {
            if let Some(seed) = seed {
                self.stage.draw_anew(seed);
                self.bottleneck.draw_anew(generator(seed, 6));
            }
            self.stage.set(&entry.parameters);
            self.bottleneck.set(entry.bottleneck.as_ref());
        }
        if !self.bottleneck.is_open() {
            self.serve(now, store);
        }
    }

    /// `load` goes in.
    #[inline]
    pub fn offer<C: PacketStore<Load = L>>(&mut self, now: u64, load: L, store: &mut C) {
        let stats = self.follower.live().counters();
        let burst = store.burst(&load);
        stats.packets_in.add(burst.packets.into());
        stats.bytes_in.add(burst.total());
        if self.bottleneck.is_open() {
            return self.stage.take(now, load, store, stats);
        }
        // What began to leave the bottleneck before this packet came has made room for it.
        self.serve(now, store);
        self.bottleneck.offer(now, load, store, self.follower.live().counters());
        self.serve(now, store);
    }

    fn serve<C: PacketStore<Load = L>>(&mut self, now: u64, store: &mut C) {
        let stats = self.follower.live().counters();
        while let Some((at, piece)) = self.bottleneck.serve(now, store, stats) {
            self.stage.take(at, piece, store, stats);
        }
    }

    /// The next load that comes out at `now` or before. It is the caller's from here on.
    #[inline]
    pub fn pop_due<C: PacketStore<Load = L>>(&mut self, now: u64, store: &mut C) -> Option<L> {
        let stats = self.follower.live().counters();
        let (at, load) = self.stage.pop_due(now, store, stats)?;
        let burst = store.burst(&load);
        stats.packets_out.add(burst.packets.into());
        stats.bytes_out.add(burst.total());
        stats.late(now - at.min(now), burst.packets.into());
        Some(load)
    }

    /// `packets` that came out were refused by the next stage.
    pub fn not_taken(&mut self, packets: u64, bytes: u64) {
        let stats = self.follower.live().counters();
        stats.packets_out.add(packets.wrapping_neg());
        stats.bytes_out.add(bytes.wrapping_neg());
        stats.not_taken.add(packets);
    }

    /// Packets came that there was no memory for.
    pub fn no_room(&mut self, burst: Burst) {
        let stats = self.follower.live().counters();
        stats.packets_in.add(burst.packets.into());
        stats.bytes_in.add(burst.total());
        stats.queue_full.add(burst.packets.into());
    }

    /// When to come back: nothing happens before.
    #[inline]
    pub fn next_at(&self) -> u64 {
        self.stage.next_at().min(self.bottleneck.next_at()).min(self.follower.next_at())
    }
}

#[cfg(test)]
mod tests;
