//! A bounded channel for copies of frames, from one worker to one thread beside the packets' way.
//!
//! A circle of words, each an atomic of its own, written by one thread and read by another: no lock, no
//! allocation, no `unsafe`. What has been written is the reader's once the writer has moved `written` past it
//! (release, acquire), and a place is the writer's again once the reader has moved `read` past it.
//!
//! A frame is two words — the time stamp, then how much is kept and how long it was — and its bytes.
//!
//! `tests/capture_ring.rs` compiles this file with the types of loom, and has every order tried in which the two threads
//! can see each other's writes.

use super::sync::{Arc, AtomicBool, AtomicU64, Ordering};
use dpdk::BURST;

/// Words before a frame's bytes.
const HEAD: u64 = 2;

#[derive(Debug)]
struct CaptureRing {
    words: Box<[AtomicU64]>,
    written: Position,
    read: Position,
    /// Frames for which there was no room.
    missed: AtomicU64,
    /// The writer is gone.
    closed: AtomicBool,
}

/// On a cache line of its own: each side writes its own and reads the other's.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Position(AtomicU64);

/// The end that writes.
#[derive(Debug)]
pub struct CaptureRingTx {
    ring: Arc<CaptureRing>,
    at: u64,
    /// Where the reader was when last looked at.
    read: u64,
}

/// The end that reads.
#[derive(Debug)]
pub struct CaptureRingRx {
    ring: Arc<CaptureRing>,
    at: u64,
    written: u64,
}

/// Frames that were written and are not yet the reader's: how far the first n of them reach.
#[derive(Debug)]
pub struct Staged {
    /// After the first n frames, where the ring ends, and how many did not fit.
    after: [(u64, u32); BURST + 1],
}

/// What is known of a frame beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Its time stamp.
    pub stamp: u64,
    /// How long it was.
    pub len: u32,
}

/// A ring of at least `bytes`.
pub fn capture_ring(bytes: usize) -> (CaptureRingTx, CaptureRingRx) {
    let words = (bytes / 8).next_power_of_two().max(8);
    let ring = Arc::new(CaptureRing {
        words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        written: Position::default(),
        read: Position::default(),
        missed: AtomicU64::new(0),
        closed: AtomicBool::new(false),
    });
    (CaptureRingTx { ring: Arc::clone(&ring), at: 0, read: 0 }, CaptureRingRx { ring, at: 0, written: 0 })
}

impl CaptureRing {
    #[inline]
    fn word(&self, at: u64) -> &AtomicU64 {
        // The number of words is a power of two.
        &self.words[(at & (self.words.len() as u64 - 1)) as usize]
    }
}

impl CaptureRingTx {
    /// Copy at most `snap` bytes of each frame, given with its whole length, that `wanted` says yes to. The reader
    /// sees nothing of it before [`CaptureRingTx::commit`].
    #[inline]
    pub fn stage<'a>(
        &mut self,
        frames: impl Iterator<Item = (&'a [u8], usize)>,
        stamp: u64,
        snap: usize,
        mut wanted: impl FnMut(&[u8]) -> bool,
    ) -> Staged {
        let mut staged = Staged { after: [(self.at, 0); BURST + 1] };
        let mut end = (self.at, 0);
        for ((data, len), after) in frames.zip(&mut staged.after[1..]) {
            if wanted(data) {
                match self.write(end.0, stamp, len, &data[..data.len().min(snap)]) {
                    Some(at) => end.0 = at,
                    None => end.1 += 1,
                }
            }
            *after = end;
        }
        staged
    }

    /// Let the reader have the first `frames` of what was staged; the others never happened. Says for how many of
    /// them there was no room.
    #[inline]
    pub fn commit(&mut self, staged: &Staged, frames: usize) -> u32 {
        let (at, missed) = staged.after[frames.min(BURST)];
        self.at = at;
        self.ring.written.0.store(at, Ordering::Release);
        if missed > 0 {
            // We are the only writer of it.
            let before = self.ring.missed.load(Ordering::Relaxed);
            self.ring.missed.store(before + u64::from(missed), Ordering::Relaxed);
        }
        missed
    }

    /// Write a frame at `at`, and say where it ends; `None` when there is no room.
    #[inline]
    fn write(&mut self, at: u64, stamp: u64, len: usize, data: &[u8]) -> Option<u64> {
        let end = at + HEAD + data.len().div_ceil(8) as u64;
        let size = self.ring.words.len() as u64;
        if end - self.read > size {
            self.read = self.ring.read.0.load(Ordering::Acquire);
            if end - self.read > size {
                return None;
            }
        }
        let put = |at: u64, word: u64| self.ring.word(at).store(word, Ordering::Relaxed);
        put(at, stamp);
        put(at + 1, (data.len() as u64) << 32 | u64::from(len as u32));
        let (whole, rest) = data.as_chunks::<8>();
        let mut next = at + HEAD;
        for chunk in whole {
            put(next, u64::from_le_bytes(*chunk));
            next += 1;
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            put(next, u64::from_le_bytes(last));
        }
        Some(end)
    }
}

impl Drop for CaptureRingTx {
    fn drop(&mut self) {
        self.ring.closed.store(true, Ordering::Release);
    }
}

impl CaptureRingRx {
    /// The next frame's time stamp, if there is a frame.
    pub fn peek(&mut self) -> Option<u64> {
        if self.at == self.written {
            self.written = self.ring.written.0.load(Ordering::Acquire);
        }
        (self.at < self.written).then(|| self.ring.word(self.at).load(Ordering::Relaxed))
    }

    /// Take the next frame; its bytes replace what is in `data`.
    pub fn take(&mut self, data: &mut Vec<u8>) -> Option<Head> {
        let stamp = self.peek()?;
        let word = self.ring.word(self.at + 1).load(Ordering::Relaxed);
        let (kept, len) = ((word >> 32) as usize, word as u32);
        let words = kept.div_ceil(8) as u64;
        data.clear();
        for at in self.at + HEAD..self.at + HEAD + words {
            data.extend_from_slice(&self.ring.word(at).load(Ordering::Relaxed).to_le_bytes());
        }
        data.truncate(kept);
        self.at += HEAD + words;
        self.ring.read.0.store(self.at, Ordering::Release);
        Some(Head { stamp, len })
    }

    /// Whether nothing is there and nothing will come.
    pub fn is_over(&mut self) -> bool {
        // In this order: what was written before the end is seen after it.
        self.ring.closed.load(Ordering::Acquire) && self.peek().is_none()
    }

    /// Frames for which there was no room.
    pub fn missed(&self) -> u64 {
        self.ring.missed.load(Ordering::Relaxed)
    }
}
