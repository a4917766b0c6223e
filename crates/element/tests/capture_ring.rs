//! The capture's ring in every order in which its two threads can see each other's writes.
//!
//! But one: loom never lets a read see what is written later, which is what the release in `CaptureRingRx::take` forbids.

#[path = "../src/capture_ring.rs"]
mod capture_ring;

/// What the ring shares between threads: here what loom watches.
mod sync {
    pub use loom::sync::Arc;
    pub use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
}

use capture_ring::{CaptureRingTx, Head, capture_ring};
use loom::thread;

/// Bytes of the smallest ring: 8 words, so that the third frame of 3 words goes round its end.
const SMALLEST: usize = 0;

/// Write frames; how many had no room.
fn put(tx: &mut CaptureRingTx, stamp: u64, frames: &[&[u8]]) -> u32 {
    let staged = tx.stage(frames.iter().map(|data| (*data, 60)), stamp, 8, |_| true);
    tx.commit(&staged, frames.len())
}

/// Frame number n says so in stamp and bytes.
fn bytes(n: u64) -> [u8; 8] {
    [n as u8 + 1; 8]
}

/// The model that goes through all orders, with at most `preemptions` switches that nobody asked for.
fn in_every_order(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(test);
}

#[test]
fn frames_come_whole_and_in_order_or_are_counted_as_missed() {
    in_every_order(3, || {
        let (mut tx, mut rx) = capture_ring(SMALLEST);
        let writer = thread::spawn(move || {
            let missed: u32 = (0..4).map(|n| put(&mut tx, n, &[&bytes(n)])).sum();
            u64::from(missed)
        });
        let (mut data, mut seen, mut next) = (Vec::new(), 0, 0);
        while !rx.is_over() {
            match rx.take(&mut data) {
                Some(Head { stamp, len }) => {
                    assert!(stamp >= next && len == 60);
                    assert_eq!(data, bytes(stamp));
                    (seen, next) = (seen + 1, stamp + 1);
                }
                None => thread::yield_now(),
            }
        }
        let missed = writer.join().unwrap();
        assert_eq!((seen + missed, rx.missed()), (4, missed));
    });
}

#[test]
fn of_what_was_staged_only_what_was_committed_is_seen() {
    in_every_order(3, || {
        let (mut tx, mut rx) = capture_ring(SMALLEST);
        let writer = thread::spawn(move || {
            let frames: [&[u8]; 2] = [&bytes(0), &bytes(9)];
            let staged = tx.stage(frames.into_iter().map(|data| (data, 8)), 0, 8, |_| true);
            tx.commit(&staged, 1);
            // Over what was staged and did not happen.
            put(&mut tx, 1, &[&bytes(1)]);
        });
        let (mut data, mut seen) = (Vec::new(), 0);
        while !rx.is_over() {
            match rx.peek() {
                Some(stamp) => {
                    assert_eq!((stamp, rx.take(&mut data).unwrap().stamp), (seen, seen));
                    assert_eq!(data, bytes(seen));
                    seen += 1;
                }
                None => thread::yield_now(),
            }
        }
        writer.join().unwrap();
        assert_eq!((seen, rx.missed()), (2, 0));
    });
}
