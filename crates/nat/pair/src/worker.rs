//! A worker's end of a pair: of the active NAT it tells what changes and, sweep after sweep, all that there is; of the standby it takes
//! that in. Nothing here waits, and no buffer is made: those that are under way come back.

use super::duty::Duty;
use super::view::Counters;
use nat_core::state::{AgingCursor, KeptSubscriber, LONGEST, Record, SkipReason, Sweep, Update};
use nat_core::{Hop, Mac, Nat};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Bytes of a chunk: what the sockets take as one packet, with room for its header.
pub const CHUNK: usize = 64 << 10;
/// Chunks of a worker under way.
const CHUNKS: usize = 16;
/// Changes that wait to be told, 32 bytes each.
const WAITING: usize = 1 << 16;
/// Changes that are told of in a turn, and lines that a sweep looks at; the first one is in a hurry.
const CHANGES: usize = 512;
const LINES: u32 = 64;
const FIRST_LINES: u32 = 256;
/// Port blocks that it looks at for ports that rest: of most there is nothing to tell.
const BLOCKS: usize = 512;
/// Bytes of a block's ports at most: 64 of a protocol, resting since two periods, are 20.
const BLOCK: usize = 16_384 / 64 * 3 * 2 * 20;
/// The least time between the beginnings of two sweeps, ns.
const PERIOD: u64 = 2_000_000_000;
/// Chunks that a standby takes in a turn, and lines that it looks at for what has aged.
const TAKEN: usize = 4;
const AGED: u32 = 1_024;
/// A NAT that ends has so long to tell the last of it.
const PATIENCE: Duration = Duration::from_millis(200);
const WAIT: Duration = Duration::from_millis(1);

/// What a worker tells.
#[derive(Debug)]
pub struct Chunk {
    /// The number of the standby that it is for; of what is heard, 0.
    pub standby: u32,
    /// Updates.
    pub bytes: Vec<u8>,
    /// Whether a sweep ends with it.
    pub swept: bool,
    /// Whether changes before it found no room.
    pub gap: bool,
    /// When, on this NAT's clock.
    pub at: u64,
}

/// The thread's ends of a worker's channels.
#[derive(Debug)]
pub struct Ends {
    /// What it tells.
    pub told: Receiver<Chunk>,
    /// Buffers on their way back.
    pub spare: SyncSender<Vec<u8>>,
    /// What it hears.
    pub heard: SyncSender<Chunk>,
    /// Buffers on their way back.
    pub used: Receiver<Vec<u8>>,
    /// Whether it took in all of the last sweep, and of the changes beside it.
    pub whole: Arc<AtomicBool>,
    /// When it had its last turn, ns on the engine's clock; 0 is not yet.
    pub turned: Arc<AtomicU64>,
}

/// A worker's end.
#[derive(Debug)]
pub struct SessionSync {
    duty: Arc<Duty>,
    counters: Arc<Counters>,
    told: SyncSender<Chunk>,
    spare: Receiver<Vec<u8>>,
    /// One that was of no use in the last turn.
    kept: Option<Vec<u8>>,
    heard: Receiver<Chunk>,
    used: SyncSender<Vec<u8>>,
    /// Which standby is told, and whether it has been told of everything once.
    standby: u32,
    complete: bool,
    sweep: Option<Sweep>,
    next_sweep: u64,
    /// Whether the sweep tells of ports that rest: the first does, and one after changes found no room, by their count when it began.
    resting: bool,
    mended: u64,
    aging: Option<AgingCursor>,
    /// Something that was told since the last sweep is not known here.
    torn: bool,
    whole: Arc<AtomicBool>,
    turned: Arc<AtomicU64>,
    /// Changes that found no room, as far as they are counted.
    lost: u64,
    /// The standby is to know that changes before what it is told next are missing.
    gap: bool,
    /// It translated, and changes were not noted since.
    lapsed: bool,
    was_active: bool,
    flushed: bool,
}

impl SessionSync {
    /// One, and the thread's ends of it.
    pub fn new(duty: Arc<Duty>, counters: Arc<Counters>) -> (Self, Ends) {
        let ((tell, told), (give_back, spare)) = (sync_channel(CHUNKS), sync_channel(CHUNKS));
        let ((hear, heard), (use_again, used)) = (sync_channel(CHUNKS), sync_channel(CHUNKS));
        for _ in 0..CHUNKS {
            let _there_is_room = give_back.try_send(Vec::with_capacity(CHUNK));
        }
        let whole = Arc::<AtomicBool>::default();
        let turned = Arc::<AtomicU64>::default();
        let (whole_too, turned_too) = (Arc::clone(&whole), Arc::clone(&turned));
        let ends = Ends { told, spare: give_back, heard: hear, used, whole: whole_too, turned: turned_too };
        let own = Self {
            was_active: duty.is_active(0),
            duty,
            counters,
            told: tell,
            spare,
            kept: None,
            heard,
            used: use_again,
            standby: 0,
            complete: false,
            sweep: None,
            next_sweep: 0,
            resting: false,
            mended: 0,
            aging: None,
            torn: false,
            whole,
            turned,
            lost: 0,
            gap: false,
            lapsed: false,
            flushed: false,
        };
        (own, ends)
    }

    /// Let a NAT note what changes when somebody is to be told.
    pub fn prepare(nat: &mut Nat) {
        nat.reserve_changes(WAITING);
    }

    /// Whether this NAT translates.
    #[inline]
    pub fn is_active(&self, now: u64) -> bool {
        self.duty.is_active(now)
    }

    /// Whether it did, and does not any more: once. Who translates says when sessions are over.
    pub fn has_stopped(&mut self, nat: &mut Nat, now: u64) -> bool {
        let active = self.duty.is_active(now);
        self.turned.store(now, Ordering::Relaxed);
        nat.set_standby(!active);
        let stopped = self.was_active && !active;
        if stopped && !self.duty.is_flushing() {
            // What it takes in from now on is no news to the other.
            nat.note_changes(false);
            self.lapsed = true;
        }
        if active && !self.was_active {
            self.duty.note_work(now);
            self.drop_heard();
        }
        self.was_active = active;
        stopped
    }

    /// What was heard of the other and not taken in by now is old.
    fn drop_heard(&mut self) {
        (self.torn, self.aging) = (false, None);
        while let Ok(Chunk { bytes, .. }) = self.heard.try_recv() {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
            self.duty.note_taken();
            let _gone = self.used.try_send(bytes);
        }
    }

    /// The active NAT's turn: tell what changed, and go on with the sweep.
    pub fn send_updates(&mut self, nat: &mut Nat, now: u64, mac: impl Fn(Hop) -> Option<Mac>) {
        self.flushed = false;
        let standby = self.duty.standby();
        self.count_lost(nat);
        if standby != self.standby || self.lapsed {
            // A new one is told of everything; who was told before lacks what changed meanwhile.
            self.gap = standby == self.standby;
            self.lapsed = false;
            (self.standby, self.complete) = (standby, false);
            self.sweep = (standby != 0).then_some(Sweep::START);
            (self.resting, self.mended) = (true, nat.changes().1);
            self.next_sweep = now + PERIOD;
            nat.note_changes(standby != 0);
        }
        if standby == 0 {
            return;
        }
        if self.sweep.is_none() && now >= self.next_sweep {
            (self.sweep, self.next_sweep) = (Some(Sweep::START), now + PERIOD);
            let (_, lost) = nat.changes();
            // What a standby did not take in of the first sweep it gets with another.
            (self.resting, self.mended) = (lost != self.mended || !self.duty.is_synced(), lost);
        }
        let Some(mut bytes) = self.buffer() else { return };
        let swept = self.fill(&mut bytes, nat, now, mac);
        self.send(bytes, swept, now);
    }

    /// What was lost until now is a gap in what the standby is told.
    fn count_lost(&mut self, nat: &Nat) {
        let (_, lost) = nat.changes();
        self.gap |= lost != self.lost;
        self.counters.lost.fetch_add(lost - self.lost, Ordering::Relaxed);
        self.lost = lost;
    }

    fn buffer(&mut self) -> Option<Vec<u8>> {
        self.kept.take().or_else(|| self.spare.try_recv().ok())
    }

    /// Changes first. Whether a sweep ends here.
    fn fill(
        &mut self,
        bytes: &mut Vec<u8>,
        nat: &mut Nat,
        now: u64,
        mac: impl Fn(Hop) -> Option<Mac>,
    ) -> bool {
        let lines = if self.complete { LINES } else { FIRST_LINES };
        let costs = |at| match at {
            Sweep::Ports(..) => (BLOCKS, BLOCK),
            _ => (1, lines as usize * 2 * LONGEST),
        };
        // The first sweep goes on under however many changes.
        let kept = self.sweep.filter(|_| !self.complete).map_or(0, |at| costs(at).1);
        let mut count = 0;
        bytes.clear();
        for _ in 0..CHANGES {
            let mut tell = |update: &Update| {
                update.encode(bytes);
                count += 1;
            };
            if !nat.next_change(now, &mac, &mut tell) || bytes.len() + 2 * LONGEST + kept > CHUNK {
                break;
            }
        }
        let mut looks = 0;
        while let Some(at) = self.sweep {
            let (most, cost) = costs(at);
            if looks >= most || bytes.len() + cost > CHUNK {
                break;
            }
            looks += 1;
            self.sweep = nat.sweep(at, (lines, self.resting), now, &mac, |update| {
                update.encode(bytes);
                count += 1;
            });
            if self.sweep.is_none() {
                self.complete = true;
                self.counters.told.fetch_add(count, Ordering::Relaxed);
                return true;
            }
        }
        self.counters.told.fetch_add(count, Ordering::Relaxed);
        false
    }

    fn send(&mut self, bytes: Vec<u8>, swept: bool, at: u64) {
        if bytes.is_empty() && !swept && !self.gap {
            self.kept = Some(bytes);
            return;
        }
        let gap = std::mem::take(&mut self.gap);
        // There are as many buffers as places; a thread that is gone needs none.
        let _gone = self.told.try_send(Chunk { standby: self.standby, bytes, swept, gap, at });
    }

    /// The last turn of a NAT that hands over: tell what is left.
    pub fn flush(&mut self, nat: &mut Nat, now: u64, mac: impl Fn(Hop) -> Option<Mac>) {
        if self.flushed || !self.duty.is_flushing() {
            return;
        }
        self.count_lost(nat);
        let Some(mut bytes) = self.buffer() else { return };
        bytes.clear();
        while bytes.len() + 2 * LONGEST <= CHUNK
            && nat.next_change(now, &mac, |update| update.encode(&mut bytes))
        {}
        self.send(bytes, false, now);
        if nat.changes().0 == 0 {
            nat.note_changes(false);
            (self.flushed, self.standby) = (true, 0);
            self.duty.note_flushed();
        }
    }

    /// The NAT ends. Whether somebody goes on with what it knows, who is told the last of it.
    pub fn end(&mut self, nat: &mut Nat, now: u64, mac: impl Fn(Hop) -> Option<Mac>) -> bool {
        if !self.duty.is_active(now) {
            return true;
        }
        if self.standby == 0 || self.duty.standby() != self.standby {
            return false;
        }
        let began = Instant::now();
        while (nat.changes().0 > 0 || !self.complete) && began.elapsed() < PATIENCE {
            let Some(mut bytes) = self.buffer() else {
                std::thread::sleep(WAIT);
                continue;
            };
            let swept = self.fill(&mut bytes, nat, now, &mac);
            self.send(bytes, swept, now);
        }
        self.complete
    }

    /// The standby's turn: take in what came. `hop` says by which next hop a subscriber is reached.
    pub fn apply_updates(
        &mut self,
        nat: &mut Nat,
        now: u64,
        mut hop: impl FnMut(&KeptSubscriber) -> (Hop, Hop),
    ) {
        for _ in 0..TAKEN {
            let Ok(Chunk { bytes, swept, at, .. }) = self.heard.try_recv() else { break };
            let (mut rest, mut applied) = (&bytes[..], 0);
            while let Ok((update, len)) = Update::decode(rest) {
                rest = rest.get(len..).unwrap_or(&[]);
                let hops = match &update {
                    Update::There(Record::Subscriber(kept)) => hop(kept),
                    _ => (0, 0),
                };
                match nat.apply(&update, now, hops) {
                    Ok(()) => applied += 1,
                    Err(why) => {
                        self.torn |=
                            matches!(why, SkipReason::Pool | SkipReason::Full | SkipReason::Conflict);
                        self.counters.leave_out(why);
                    }
                }
            }
            self.torn |= !rest.is_empty();
            self.counters.broken.fetch_add(u64::from(!rest.is_empty()), Ordering::Relaxed);
            self.counters.applied.fetch_add(applied, Ordering::Relaxed);
            self.counters.lag.store(now.saturating_sub(at), Ordering::Relaxed);
            if swept {
                self.aging = Some(AgingCursor::START);
                self.whole.store(!std::mem::take(&mut self.torn), Ordering::Release);
                self.counters.sweeps.fetch_add(1, Ordering::Relaxed);
            }
            self.duty.note_taken();
            let _gone = self.used.try_send(bytes);
        }
        if let Some(at) = self.aging {
            self.aging = nat.age(at, AGED, now);
        }
    }
}

impl Drop for SessionSync {
    /// Nobody waits for its turns any more.
    fn drop(&mut self) {
        self.turned.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
