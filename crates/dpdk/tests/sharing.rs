//! Packets grow and shrink at both ends, and packets that share their bytes never write them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::common::{eal, frames, numbers};
use dpdk::{BURST, Batch, Mbuf, Mempool};

fn one(pool: &Mempool, bytes: &[u8]) -> Mbuf {
    pool.packet(bytes).unwrap()
}

#[test]
fn a_packet_grows_and_shrinks_at_both_ends() {
    let pool = Mempool::new(eal(), 63, 256).unwrap();
    let mut mbuf = one(&pool, b"abcdefgh");
    let head = mbuf.headroom();
    assert_eq!(head, 128, "DPDK's own");
    mbuf.prepend(3).unwrap().copy_from_slice(b"xyz");
    assert_eq!((mbuf.data(), mbuf.len(), mbuf.headroom()), (&b"xyzabcdefgh"[..], 11, head - 3));
    assert!(mbuf.adjust(5) && mbuf.trim(2));
    assert_eq!((mbuf.data(), mbuf.len(), mbuf.headroom()), (&b"cdef"[..], 4, head + 2));
    assert!(!mbuf.adjust(5) && !mbuf.trim(5) && !mbuf.adjust(70_000) && !mbuf.trim(70_000));
    assert_eq!(mbuf.data(), b"cdef");
    let room = mbuf.headroom();
    assert!(mbuf.prepend(room + 1).is_none() && mbuf.prepend(70_000).is_none());
    assert_eq!((mbuf.data(), mbuf.len()), (&b"cdef"[..], 4));
    mbuf.prepend(room).unwrap().fill(0);
    assert_eq!((mbuf.len(), mbuf.headroom()), (4 + room, 0));
    assert!(mbuf.adjust(room + 4) && mbuf.data().is_empty() && mbuf.trim(0));
    drop(mbuf);
    assert_eq!(pool.available(), 63);
}

#[test]
fn a_packet_of_segments_shrinks_within_its_first_and_its_last() {
    let pool = Mempool::new(eal(), 63, 100).unwrap();
    let bytes: Vec<u8> = (0..250).collect();
    let mut mbuf = one(&pool, &bytes);
    assert!(!mbuf.is_whole() && !mbuf.adjust(101) && !mbuf.trim(51));
    assert!(mbuf.adjust(10) && mbuf.trim(50));
    assert_eq!((mbuf.len(), mbuf.data()), (190, &bytes[10..100]));
    mbuf.prepend(2).unwrap().copy_from_slice(&[1, 2]);
    assert_eq!(mbuf.len(), 192);
}

#[test]
fn a_clone_is_the_same_bytes_and_both_write_to_their_own() {
    let pool = Mempool::new(eal(), 63, 256).unwrap();
    let mut first = one(&pool, b"abcdefgh");
    let mut clone = pool.clone_of(&first).unwrap();
    assert!(first.is_shared() && clone.is_shared());
    assert_eq!(first.data().as_ptr(), clone.data().as_ptr(), "no copy was made");
    // Where the bytes are is not what they are: each moves its own ends.
    assert!(clone.adjust(2) && clone.trim(1) && first.trim(3));
    assert_eq!((first.data(), clone.data()), (&b"abcde"[..], &b"cdefg"[..]));
    clone.data_mut().fill(b'!');
    assert_eq!((first.data(), clone.data()), (&b"abcde"[..], &b"!!!!!"[..]));
    assert!(!first.is_shared() && !clone.is_shared());
    let bytes = first.data().as_ptr();
    first.data_mut()[0] = b'?';
    assert_eq!((first.data().as_ptr(), first.data()), (bytes, &b"?bcde"[..]), "its own again: no copy");
    drop((first, clone));
    assert_eq!(pool.available(), 63);
}

#[test]
fn whoever_writes_first_copies_and_the_others_keep_what_was() {
    let pool = Mempool::new(eal(), 63, 256).unwrap();
    let writes: [fn(&mut Mbuf); 3] = [
        |mbuf| mbuf.data_mut().fill(0),
        |mbuf| mbuf.prepend(4).unwrap().fill(0),
        |mbuf| mbuf.set_len(200).unwrap().fill(0),
    ];
    for write in writes {
        let mut first = one(&pool, b"abcdefgh");
        let second = pool.clone_of(&first).unwrap();
        // A clone of a clone is one of the first.
        let third = pool.clone_of(&second).unwrap();
        write(&mut first);
        assert_ne!(first.data(), b"abcdefgh");
        assert_eq!((second.data(), third.data()), (&b"abcdefgh"[..], &b"abcdefgh"[..]));
        drop((first, second));
        let mut third = third;
        assert!(third.is_shared(), "its bytes are another packet's, if of one that is gone");
        write(&mut third);
        drop(third);
        assert_eq!(pool.available(), 63);
    }
}

#[test]
fn without_memory_for_a_copy_nothing_is_written() {
    let pool = Mempool::new(eal(), 3, 256).unwrap();
    let mut first = one(&pool, b"abcdefgh");
    let mut clone = pool.clone_of(&first).unwrap();
    let last = one(&pool, b"last");
    assert!(pool.clone_of(&first).is_none() && pool.copy_of(&first).is_none());
    for shared in [&mut first, &mut clone] {
        assert!(!shared.unshare() && shared.data_mut().is_empty());
        assert!(shared.prepend(1).is_none() && shared.set_len(4).is_none());
        assert_eq!((shared.data(), shared.len()), (&b"abcdefgh"[..], 8));
    }
    drop(last);
    assert!(clone.unshare());
    assert_eq!((first.data(), clone.data()), (&b"abcdefgh"[..], &b"abcdefgh"[..]));
}

#[test]
fn bursts_are_cloned_and_copied_as_far_as_memory_goes() {
    let (pool, few) = (Mempool::new(eal(), 511, 128).unwrap(), Mempool::new(eal(), 7, 64).unwrap());
    let from = frames(&pool, 0, BURST);
    for make in [Mempool::clones_of, Mempool::copies_of] {
        let mut to = frames(&pool, 900, 3);
        assert_eq!(make(&few, &from, &mut to), 7);
        assert_eq!(numbers(&to), [900, 901, 902, 0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(to.bytes(), 600);
        assert_eq!(make(&pool, &from, &mut to), BURST - 10, "the rest of the batch");
        drop(to);
        assert_eq!((few.available(), pool.available()), (7, 511 - BURST as u32));
    }
    let mut copies = Batch::new();
    few.copies_of(&from, &mut copies);
    copies.data_mut().for_each(|data| data.fill(0));
    assert_eq!(numbers(&from), (0..BURST as u32).collect::<Vec<_>>());
    assert!(copies.frames().iter().all(|mbuf| !mbuf.is_shared()));
}

#[test]
fn a_copy_of_a_long_packet_is_as_long() {
    let (pool, small) = (Mempool::new(eal(), 31, 300).unwrap(), Mempool::new(eal(), 31, 100).unwrap());
    let bytes: Vec<u8> = (0..250).collect();
    let long = one(&pool, &bytes);
    let copy = small.copy_of(&long).unwrap();
    assert!(!copy.is_whole());
    assert_eq!((copy.len(), copy.data()), (250, &bytes[..100]));
    let clone = small.clone_of(&long).unwrap();
    assert_eq!((clone.len(), clone.data()), (250, &bytes[..]), "a clone needs no room of its own");
    let mut empty = one(&pool, b"a");
    assert!(empty.trim(1) && empty.data().is_empty());
    assert_eq!(pool.copy_of(&empty).unwrap().len(), 0);
    assert_eq!(pool.clone_of(&empty).unwrap().len(), 0);
}
