//! The ring with real threads; `tests/capture_ring.rs` has it in every order.

use super::capture_ring::*;

/// Stage frames.
fn stage(tx: &mut CaptureRingTx, stamp: u64, frames: &[&[u8]]) -> Staged {
    tx.stage(frames.iter().map(|data| (*data, data.len())), stamp, usize::MAX, |_| true)
}

/// Write a frame and let the reader have it. Says whether there was room.
fn put(tx: &mut CaptureRingTx, stamp: u64, data: &[u8]) -> bool {
    let staged = stage(tx, stamp, &[data]);
    tx.commit(&staged, 1) == 0
}

#[test]
fn what_does_not_fit_is_counted_and_the_rest_comes_whole() {
    let (mut tx, mut rx) = capture_ring(512);
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
    let (mut tx, mut rx) = capture_ring(512);
    let staged = stage(&mut tx, 7, &[&[1; 4], &[2; 4]]);
    assert_eq!(rx.peek(), None);
    assert_eq!(tx.commit(&staged, 1), 0);
    assert_eq!((rx.peek(), rx.missed()), (Some(7), 0));
    // The second had no room, but never happened.
    let staged = stage(&mut tx, 8, &[&[3; 4], &[4; 512]]);
    assert_eq!((tx.commit(&staged, 1), rx.missed()), (0, 0));
    let staged = stage(&mut tx, 8, &[&[4; 512], &[5; 4]]);
    assert_eq!((tx.commit(&staged, 1), rx.missed()), (1, 1));
    assert!(put(&mut tx, 9, &[3; 4]));
    let mut data = Vec::new();
    assert_eq!(rx.take(&mut data).map(|head| head.stamp), Some(7));
    assert_eq!((rx.take(&mut data).map(|head| head.stamp), &data[..]), (Some(8), &[3; 4][..]));
    assert_eq!((rx.take(&mut data).map(|head| head.stamp), &data[..]), (Some(9), &[3; 4][..]));
    assert_eq!(rx.take(&mut data), None);
}

#[test]
fn two_threads_agree_on_every_byte() {
    let (mut tx, mut rx) = capture_ring(4096);
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
