//! A bounded channel for copies of frames, from one worker to one thread beside the packets' way.
//!
//! A circle of words, each an atomic of its own, written by one thread and read by another: no lock, no
//! allocation, no `unsafe`. What has been written is the reader's once the writer has moved `written` past it
//! (release, acquire), and a place is the writer's again once the reader has moved `read` past it.
//!
//! A frame is two words — the time stamp, then how much is kept and how long it was — and its bytes.

use dpdk::{BURST, Batch};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Words before a frame's bytes.
const HEAD: u64 = 2;

#[derive(Debug)]
struct Tape {
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
pub struct TapeTx {
    tape: Arc<Tape>,
    at: u64,
    /// Where the reader was when last looked at.
    read: u64,
}

/// The end that reads.
#[derive(Debug)]
pub struct TapeRx {
    tape: Arc<Tape>,
    at: u64,
    written: u64,
}

/// Frames that were written and are not yet the reader's: how far the first n of them reach.
#[derive(Debug)]
pub struct Staged {
    /// After the first n frames, where the tape ends, and how many did not fit.
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

/// A tape of at least `bytes`.
pub fn tape(bytes: usize) -> (TapeTx, TapeRx) {
    let words = (bytes / 8).next_power_of_two().max(64);
    let tape = Arc::new(Tape {
        words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        written: Position::default(),
        read: Position::default(),
        missed: AtomicU64::new(0),
        closed: AtomicBool::new(false),
    });
    (TapeTx { tape: Arc::clone(&tape), at: 0, read: 0 }, TapeRx { tape, at: 0, written: 0 })
}

impl Tape {
    #[inline]
    fn word(&self, at: u64) -> &AtomicU64 {
        // The number of words is a power of two.
        &self.words[(at & (self.words.len() as u64 - 1)) as usize]
    }
}

impl TapeTx {
    /// Copy at most `snap` bytes of each frame in `batch` that `wanted` says yes to. The reader sees nothing of
    /// it before [`TapeTx::commit`].
    #[inline]
    pub fn stage(
        &mut self,
        batch: &Batch,
        stamp: u64,
        snap: usize,
        mut wanted: impl FnMut(&[u8]) -> bool,
    ) -> Staged {
        let mut staged = Staged { after: [(self.at, 0); BURST + 1] };
        let mut end = (self.at, 0);
        for (frame, after) in batch.frames().iter().zip(&mut staged.after[1..]) {
            let data = frame.data();
            if wanted(data) {
                match self.write(end.0, stamp, frame.len(), &data[..data.len().min(snap)]) {
                    Some(at) => end.0 = at,
                    None => end.1 += 1,
                }
            }
            *after = end;
        }
        staged
    }

    /// Let the reader have the first `frames` of what was staged; the others never happened.
    #[inline]
    pub fn commit(&mut self, staged: &Staged, frames: usize) {
        let (at, missed) = staged.after[frames.min(BURST)];
        self.at = at;
        self.tape.written.0.store(at, Ordering::Release);
        if missed > 0 {
            // We are the only writer of it.
            let before = self.tape.missed.load(Ordering::Relaxed);
            self.tape.missed.store(before + u64::from(missed), Ordering::Relaxed);
        }
    }

    /// Write a frame at `at`, and say where it ends; `None` when there is no room.
    #[inline]
    fn write(&mut self, at: u64, stamp: u64, len: usize, data: &[u8]) -> Option<u64> {
        let end = at + HEAD + data.len().div_ceil(8) as u64;
        let size = self.tape.words.len() as u64;
        if end - self.read > size {
            self.read = self.tape.read.0.load(Ordering::Acquire);
            if end - self.read > size {
                return None;
            }
        }
        let put = |at: u64, word: u64| self.tape.word(at).store(word, Ordering::Relaxed);
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

impl Drop for TapeTx {
    fn drop(&mut self) {
        self.tape.closed.store(true, Ordering::Release);
    }
}

impl TapeRx {
    /// The next frame's time stamp, if there is a frame.
    pub fn next(&mut self) -> Option<u64> {
        if self.at == self.written {
            self.written = self.tape.written.0.load(Ordering::Acquire);
        }
        (self.at < self.written).then(|| self.tape.word(self.at).load(Ordering::Relaxed))
    }

    /// Take the next frame; its bytes replace what is in `data`.
    pub fn take(&mut self, data: &mut Vec<u8>) -> Option<Head> {
        let stamp = self.next()?;
        let word = self.tape.word(self.at + 1).load(Ordering::Relaxed);
        let (kept, len) = ((word >> 32) as usize, word as u32);
        let words = kept.div_ceil(8) as u64;
        data.clear();
        for at in self.at + HEAD..self.at + HEAD + words {
            data.extend_from_slice(&self.tape.word(at).load(Ordering::Relaxed).to_le_bytes());
        }
        data.truncate(kept);
        self.at += HEAD + words;
        self.tape.read.0.store(self.at, Ordering::Release);
        Some(Head { stamp, len })
    }

    /// Whether nothing is there and nothing will come.
    pub fn is_over(&mut self) -> bool {
        // In this order: what was written before the end is seen after it.
        self.tape.closed.load(Ordering::Acquire) && self.next().is_none()
    }

    /// Frames for which there was no room.
    pub fn missed(&self) -> u64 {
        self.tape.missed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Write a frame and let the reader have it.
    fn put(tx: &mut TapeTx, stamp: u64, data: &[u8]) -> bool {
        let end = tx.write(tx.at, stamp, data.len(), data);
        let staged = Staged { after: [end.map_or((tx.at, 1), |at| (at, 0)); BURST + 1] };
        tx.commit(&staged, 1);
        end.is_some()
    }

    #[test]
    fn what_does_not_fit_is_counted_and_the_rest_comes_whole() {
        let (mut tx, mut rx) = tape(512);
        // 2 + 2 words each: 16 of them fill 64 words.
        let fits = (0..17).filter(|i| put(&mut tx, *i, &[*i as u8; 9])).count();
        assert_eq!((fits, rx.missed()), (16, 1));
        let mut data = Vec::new();
        for i in 0..16 {
            assert_eq!(rx.take(&mut data), Some(Head { stamp: i, len: 9 }));
            assert_eq!(data, [i as u8; 9]);
        }
        assert_eq!((rx.take(&mut data), rx.is_over()), (None, false));
        assert!(put(&mut tx, 1, &[]));
        drop(tx);
        assert!(!rx.is_over() && rx.take(&mut data).is_some() && rx.is_over());
        assert!(data.is_empty());
    }

    #[test]
    fn what_is_not_committed_never_happened() {
        let (mut tx, mut rx) = tape(512);
        let one = tx.write(0, 7, 4, &[1; 4]).expect("room");
        let two = tx.write(one, 8, 4, &[2; 4]).expect("room");
        let mut staged = Staged { after: [(0, 0); BURST + 1] };
        staged.after[1..].copy_from_slice(&[(two, 3); BURST]);
        staged.after[1] = (one, 0);
        assert_eq!(rx.next(), None);
        tx.commit(&staged, 1);
        assert_eq!((rx.next(), rx.missed()), (Some(7), 0));
        assert!(put(&mut tx, 9, &[3; 4]));
        let mut data = Vec::new();
        assert_eq!(rx.take(&mut data).map(|head| head.stamp), Some(7));
        assert_eq!(rx.take(&mut data).map(|head| head.stamp), Some(9));
        assert_eq!(data, [3; 4]);
    }

    #[test]
    fn two_threads_agree_on_every_byte() {
        let (mut tx, mut rx) = tape(4096);
        let frame = |i: u64| vec![i as u8; (i % 300) as usize];
        let writer = std::thread::spawn(move || {
            for i in 0..50_000 {
                while !put(&mut tx, i, &frame(i)) {
                    std::thread::yield_now();
                }
            }
        });
        let (mut data, mut next) = (Vec::new(), 0);
        while !rx.is_over() {
            match rx.take(&mut data) {
                Some(head) => {
                    assert_eq!((head.stamp, &data), (next, &frame(next)));
                    next += 1;
                }
                None => std::thread::yield_now(),
            }
        }
        writer.join().expect("the writer is done");
        assert_eq!(next, 50_000);
    }
}
