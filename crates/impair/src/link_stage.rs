//! What happens to packets on their way: some are lost, damaged, doubled, held back; all take their time.

use crate::delay::Delays;
use crate::delay_queue::DelayQueue;
use crate::loss_model::{Bernoulli, LossModel, PacketDraws};
use crate::packet_store::PacketStore;
use crate::spec::{BEHIND_MAX, Impairment, Reorder, ReorderBy};
use crate::stats::Counters;
use protocol::unit::Share;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::VecDeque;

/// How long a packet waits to be overtaken when nothing comes.
const OVERTAKEN_WITHIN: u64 = 100_000_000;

/// Parameters in the form in which they are used; cheap to copy.
#[derive(Debug, Clone)]
pub(crate) struct Parameters {
    delays: Delays,
    overtaking: bool,
    losses: LossModel,
    duplicate: Option<Share>,
    corrupt: Option<Share>,
    reorder: Option<Reorder>,
}

impl Parameters {
    pub(crate) fn new(spec: &Impairment) -> Self {
        Self {
            delays: Delays::new(&spec.delay),
            overtaking: spec.overtaking,
            losses: LossModel::new(spec.loss.as_ref()),
            duplicate: spec.duplicate,
            corrupt: spec.corrupt,
            reorder: spec.reorder,
        }
    }
}

/// A packet that waits for others to overtake it.
#[derive(Debug)]
struct OvertakenPacket<L> {
    /// It goes on after the packet of this number has.
    after: u64,
    /// How many are to overtake it.
    behind: u64,
    /// But no later than then.
    until: u64,
    load: L,
}

/// The state of a direction behind its bottleneck.
#[derive(Debug)]
pub(crate) struct LinkStage<L> {
    parameters: Parameters,
    /// Packets that came so far; the number of the latest.
    seen: u64,
    /// The number of the next packet to which something happens.
    next: u64,
    loss: PacketDraws,
    duplicate: Bernoulli,
    corrupt: Bernoulli,
    reorder: Bernoulli,
    aside: VecDeque<OvertakenPacket<L>>,
    /// For delays and bits.
    rng: SmallRng,
    /// When the latest packet leaves, where order is kept.
    last: u64,
    held: DelayQueue<L>,
}

/// A generator for one purpose: turning one impairment on does not change what another does.
pub(crate) fn generator(seed: u64, purpose: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(purpose))
}

impl<L> LinkStage<L> {
    /// Nothing happens yet. Room for `capacity` loads.
    pub(crate) fn new(capacity: usize, seed: u64) -> Self {
        let mut stage = Self {
            parameters: Parameters::new(&Impairment::default()),
            seen: 0,
            next: 0,
            loss: PacketDraws::new(generator(seed, 1)),
            duplicate: Bernoulli::new(generator(seed, 2)),
            corrupt: Bernoulli::new(generator(seed, 3)),
            reorder: Bernoulli::new(generator(seed, 4)),
            aside: VecDeque::with_capacity(BEHIND_MAX as usize),
            rng: generator(seed, 5),
            last: 0,
            held: DelayQueue::new(capacity),
        };
        stage.schedule_next();
        stage
    }

    /// All draws begin anew; [`set`](Self::set) follows.
    pub(crate) fn draw_anew(&mut self, seed: u64) {
        self.loss = PacketDraws::new(generator(seed, 1));
        self.duplicate = Bernoulli::new(generator(seed, 2));
        self.corrupt = Bernoulli::new(generator(seed, 3));
        self.reorder = Bernoulli::new(generator(seed, 4));
        self.rng = generator(seed, 5);
    }

    /// From the next packet on so.
    pub(crate) fn set(&mut self, parameters: &Parameters) {
        self.parameters = parameters.clone();
        self.loss.set(&parameters.losses, self.seen);
        self.duplicate.set(parameters.duplicate, self.seen);
        self.corrupt.set(parameters.corrupt, self.seen);
        self.reorder.set(parameters.reorder.map(|reorder| reorder.share), self.seen);
        self.schedule_next();
    }

    fn schedule_next(&mut self) {
        let next = self.duplicate.at.min(self.corrupt.at).min(self.reorder.at);
        self.next = self.loss.at.min(next);
    }

    /// `load` begins its way at `at`.
    #[inline]
    pub(crate) fn take<C: PacketStore<Load = L>>(
        &mut self,
        at: u64,
        mut load: L,
        store: &mut C,
        stats: &Counters,
    ) {
        loop {
            let packets = u64::from(store.burst(&load).packets);
            let quiet = self.next - self.seen - 1;
            let free = self.aside.front().map_or(u64::MAX, |aside| aside.after.saturating_sub(self.seen));
            let run = packets.min(quiet).min(free.max(1));
            let whole = run.max(1) == packets;
            let part = if whole { None } else { store.split(&mut load, run.max(1) as u32) };
            let (first, rest) = match part {
                Some(part) => (part, Some(load)),
                None => (load, None),
            };
            if run > 0 {
                self.seen += run;
                self.hold(at, first, store, stats);
            } else {
                self.event(at, first, store, stats);
            }
            self.rejoin(at, store, stats);
            match rest {
                Some(rest) => load = rest,
                None => return,
            }
        }
    }

    /// Something happens to the next packet.
    #[cold]
    fn event<C: PacketStore<Load = L>>(&mut self, at: u64, mut one: L, store: &mut C, stats: &Counters) {
        self.seen += 1;
        let seen = self.seen;
        let hit = |draws: &mut Bernoulli| {
            let hit = draws.at == seen;
            if hit {
                draws.next(seen);
            }
            hit
        };
        let lost = self.loss.at == seen && self.loss.draw();
        let (double, damage, late) =
            (hit(&mut self.duplicate), hit(&mut self.corrupt), hit(&mut self.reorder));
        self.schedule_next();
        if lost {
            self.release_unpassed();
            stats.lost.add(1);
            return store.free(one);
        }
        if damage {
            store.corrupt(&mut one, self.rng.random());
            stats.corrupted.add(1);
        }
        let twin = if double { store.copy(&one) } else { None };
        match (double, &twin) {
            (true, Some(_)) => stats.duplicated.add(1),
            (true, None) => stats.no_copy.add(1),
            (false, _) => {}
        }
        match self.parameters.reorder.filter(|_| late).map(|reorder| reorder.by) {
            Some(ReorderBy::Packets(behind)) if self.aside.len() < self.aside.capacity() => {
                self.release_unpassed();
                let until = at.saturating_add(OVERTAKEN_WITHIN);
                let after = seen.saturating_add(behind.into());
                let after = self.aside.back().map_or(after, |last| last.after.max(after));
                self.aside.push_back(OvertakenPacket { after, behind: behind.into(), until, load: one });
            }
            Some(ReorderBy::Time(more)) => {
                stats.reordered.add(1);
                let leaves = at + self.parameters.delays.draw(&mut self.rng) + more.ns();
                let refused = self.held.push_detour(leaves, one);
                Self::refuse(refused, store, stats);
            }
            _ => self.hold(at, one, store, stats),
        }
        if let Some(twin) = twin {
            self.hold(at, twin, store, stats);
        }
    }

    /// The latest packet overtook no other: it was lost, or waits itself.
    fn release_unpassed(&mut self) {
        self.aside.iter_mut().for_each(|aside| aside.after += 1);
    }

    /// Packets that enough others have overtaken go on, after those.
    #[inline]
    fn rejoin<C: PacketStore<Load = L>>(&mut self, at: u64, store: &mut C, stats: &Counters) {
        while self.aside.front().is_some_and(|aside| aside.after <= self.seen) {
            let Some(aside) = self.aside.pop_front() else { return };
            stats.reordered.add(1);
            self.hold(at, aside.load, store, stats);
        }
    }

    /// Packets that waited long enough to be overtaken go on.
    fn give_up<C: PacketStore<Load = L>>(&mut self, now: u64, store: &mut C, stats: &Counters) {
        while self.aside.front().is_some_and(|aside| aside.until <= now) {
            let Some(aside) = self.aside.pop_front() else { return };
            let overtaken = aside.after.saturating_sub(self.seen) < aside.behind;
            stats.reordered.add(overtaken.into());
            self.hold(aside.until, aside.load, store, stats);
        }
    }

    /// Put a load on its way: as a whole where all its packets take the same time, in parts where they do
    /// not.
    #[inline]
    fn hold<C: PacketStore<Load = L>>(&mut self, at: u64, mut load: L, store: &mut C, stats: &Counters) {
        let Parameters { delays, overtaking, .. } = &self.parameters;
        if let Some(delay) = delays.constant() {
            let mut leaves = at + delay;
            if !overtaking {
                leaves = leaves.max(self.last);
                self.last = leaves;
            }
            return Self::refuse(self.held.push(leaves, load), store, stats);
        }
        let mut left = store.burst(&load).packets;
        let mut first = at + delays.draw(&mut self.rng);
        while left > 0 {
            let mut same = 1;
            let mut next = first;
            if *overtaking && left > 1 {
                next = at + delays.draw(&mut self.rng);
            } else if !overtaking {
                // A packet that would overtake leaves together with the one before.
                first = first.max(self.last);
                self.last = first;
                while same < left {
                    next = at + delays.draw(&mut self.rng);
                    if next > first {
                        break;
                    }
                    same += 1;
                }
            }
            if same == left {
                return Self::refuse(self.held.push(first, load), store, stats);
            }
            let Some(part) = store.split(&mut load, same) else {
                return Self::refuse(self.held.push(first, load), store, stats);
            };
            Self::refuse(self.held.push(first, part), store, stats);
            left -= same;
            first = next;
        }
    }

    /// No room for these.
    #[inline]
    fn refuse<C: PacketStore<Load = L>>(held: Result<(), L>, store: &mut C, stats: &Counters) {
        if let Err(load) = held {
            stats.queue_full.add(store.burst(&load).packets.into());
            store.free(load);
        }
    }

    /// The next load to arrive at `now` or before, and when it was to arrive.
    #[inline]
    pub(crate) fn pop_due<C: PacketStore<Load = L>>(
        &mut self,
        now: u64,
        store: &mut C,
        stats: &Counters,
    ) -> Option<(u64, L)> {
        if !self.aside.is_empty() {
            self.give_up(now, store, stats);
        }
        self.held.pop(now)
    }

    /// A time before which nothing arrives.
    #[inline]
    pub(crate) fn next_at(&self) -> u64 {
        self.held.next_at().min(self.aside.front().map_or(u64::MAX, |aside| aside.until))
    }
}
