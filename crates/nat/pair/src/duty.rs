//! Who of the two translates, as the packet path asks it: one word that is read for each burst.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Without a time at which it ends.
const ALWAYS: u64 = u64::MAX;

/// Whether this NAT translates. A NAT that is none of a pair always does.
#[derive(Debug)]
pub struct Duty {
    /// Until when, ns on the engine's clock; 0 is not at all.
    until: AtomicU64,
    /// How often it has begun to.
    begun: AtomicU32,
    /// When a worker did the first time since; 0 is not yet.
    worked: AtomicU64,
    /// The number of the standby that is told; 0 is none.
    standby: AtomicU32,
    /// The one that has said that it knows everything.
    synced: AtomicU32,
    /// It hands over, and so many workers have told all.
    flushing: AtomicBool,
    flushed: AtomicUsize,
    /// Chunks on their way to workers.
    queued: AtomicUsize,
}

impl Default for Duty {
    fn default() -> Self {
        Self {
            until: ALWAYS.into(),
            begun: AtomicU32::new(0),
            worked: AtomicU64::new(0),
            standby: AtomicU32::new(0),
            synced: AtomicU32::new(0),
            flushing: AtomicBool::new(false),
            flushed: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
        }
    }
}

impl Duty {
    /// Whether it translates at this time.
    #[inline]
    pub fn is_active(&self, now: u64) -> bool {
        now < self.until.load(Ordering::Relaxed)
    }

    /// It begins to translate, for as long as nobody could take over.
    pub fn begin(&self) {
        self.flushing.store(false, Ordering::Relaxed);
        self.flushed.store(0, Ordering::Relaxed);
        self.worked.store(0, Ordering::Relaxed);
        self.until.store(ALWAYS, Ordering::Release);
        self.begun.fetch_add(1, Ordering::Release);
    }

    /// It translates until then, or without an end.
    pub fn hold(&self, until: Option<u64>) {
        self.until.store(until.unwrap_or(ALWAYS), Ordering::Release);
    }

    /// It translates no more.
    pub fn stop(&self) {
        self.until.store(0, Ordering::Release);
        self.standby.store(0, Ordering::Release);
    }

    /// It translates no more, and workers tell the standby what is left.
    pub fn hand_over(&self) {
        self.flushed.store(0, Ordering::Relaxed);
        self.flushing.store(true, Ordering::Relaxed);
        self.until.store(0, Ordering::Release);
    }

    /// How often it has begun to translate.
    pub fn start_count(&self) -> u32 {
        self.begun.load(Ordering::Acquire)
    }

    /// A worker has work since it began.
    pub fn note_work(&self, now: u64) {
        let _another_did = self.worked.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// When the first one had.
    pub fn first_start(&self) -> Option<u64> {
        Some(self.worked.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    /// The number of the standby that is told; 0 is none.
    pub fn standby(&self) -> u32 {
        self.standby.load(Ordering::Acquire)
    }

    /// A standby is there; or none, by 0.
    pub fn set_standby(&self, standby: u32) {
        self.standby.store(standby, Ordering::Release);
    }

    /// A standby knows everything.
    pub fn note_synced(&self, standby: u32) {
        self.synced.store(standby, Ordering::Release);
    }

    /// Whether the standby that is told knows everything.
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire) == self.standby()
    }

    /// Whether workers are to tell what is left.
    pub fn is_flushing(&self) -> bool {
        self.flushing.load(Ordering::Relaxed)
    }

    /// A worker has.
    pub fn note_flushed(&self) {
        self.flushed.fetch_add(1, Ordering::Release);
    }

    /// How many have.
    pub fn flushed(&self) -> usize {
        self.flushed.load(Ordering::Acquire)
    }

    /// A chunk goes to a worker.
    pub fn note_queued(&self) {
        self.queued.fetch_add(1, Ordering::Relaxed);
    }

    /// And was taken in.
    pub fn note_taken(&self) {
        self.queued.fetch_sub(1, Ordering::Release);
    }

    /// Whether all of them were.
    pub fn is_caught_up(&self) -> bool {
        self.queued.load(Ordering::Acquire) == 0
    }
}
