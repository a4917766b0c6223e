//! The element: one direction of a link between two DPDK ports.

use crate::live::DirectionControl;
use crate::packet_store::{Burst, PacketStore, flip};
use crate::path::Path;
use dpdk::{Batch, Mbuf, Mempool};
use engine::{Cx, Element, ElementInfo};

/// Reasons to drop; the numbers are places in the list.
const DROPS: [&str; 5] = ["lost", "tail_drop", "red", "codel", "queue_full"];

/// DPDK packets, each a burst of one.
#[derive(Debug)]
struct Mbufs {
    /// Where copies come from.
    pool: Mempool,
    copies: Batch,
}

impl PacketStore for Mbufs {
    type Load = Mbuf;

    #[inline]
    fn burst(&self, load: &Mbuf) -> Burst {
        Burst::single(load.len() as u32)
    }

    fn split(&mut self, _: &mut Mbuf, _: u32) -> Option<Mbuf> {
        None
    }

    fn copy(&mut self, load: &Mbuf) -> Option<Mbuf> {
        if !load.is_whole() || !self.pool.fill(&mut self.copies, 1) {
            return None;
        }
        let mut copy = std::mem::take(&mut self.copies).into_iter().next()?;
        copy.set_len(load.len())?.copy_from_slice(load.data());
        Some(copy)
    }

    fn corrupt(&mut self, load: &mut Mbuf, dice: u64) {
        flip(load.data_mut(), dice);
    }

    #[inline]
    fn free(&mut self, load: Mbuf) {
        drop(load);
    }
}

/// Element: what comes in leaves as its path's parameters say.
#[derive(Debug)]
pub struct Impair {
    path: Path<Mbuf>,
    store: Mbufs,
    /// What the next element had no room for: it goes first, and nothing passes it.
    back: Batch,
    /// Drops that are counted with the engine already.
    counted: [u64; DROPS.len()],
}

impl Impair {
    /// Its reasons to drop.
    pub const DROPS: &'static [&'static str] = &DROPS;

    /// Room for `capacity` packets on their way; duplicates come from `pool`.
    pub fn new(live: DirectionControl, pool: Mempool, capacity: usize) -> Self {
        let store = Mbufs { pool, copies: Batch::new() };
        Self { path: Path::new(live, capacity), store, back: Batch::new(), counted: [0; DROPS.len()] }
    }

    /// Hand on what is due, and say when to come back.
    #[inline]
    fn emit_due(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        self.back.move_to(batch);
        while batch.room() > 0
            && let Some(mbuf) = self.path.pop_due(cx.now(), &mut self.store)
        {
            // There is room.
            let _taken = batch.push(mbuf);
        }
        cx.wake_at(self.path.next_at());
        let counters = self.path.live().counters();
        let now = [
            &counters.lost,
            &counters.tail_dropped,
            &counters.red_dropped,
            &counters.codel_dropped,
            &counters.queue_full,
        ];
        for (reason, (now, counted)) in now.into_iter().zip(&mut self.counted).enumerate() {
            let now = now.get();
            if now != *counted {
                cx.count(reason, now - *counted);
                *counted = now;
            }
        }
    }
}

impl Element for Impair {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: "impair", takes: true, outputs: &["out"], drops: &DROPS, polled: true }
    }

    #[inline]
    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        self.path.advance(cx.now(), &mut self.store);
        batch.filter_map(|mbuf| {
            self.path.offer(cx.now(), mbuf, &mut self.store);
            None
        });
        self.emit_due(batch, cx);
    }

    #[inline]
    fn poll(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        self.path.advance(cx.now(), &mut self.store);
        self.emit_due(batch, cx);
    }

    fn refused(&mut self, _: usize, batch: &mut Batch, cx: &mut Cx<'_>) {
        batch.move_to(&mut self.back);
        // At once.
        cx.wake_at(0);
        // A second batch that is refused before the first went on is dropped, and counted there.
        let bytes = batch.frames().iter().map(|mbuf| self.store.burst(mbuf).total()).sum();
        self.path.not_taken(batch.len() as u64, bytes);
    }
}
