//! Memory for frames on their way, there before it is needed.
//!
//! The kernel finds memory when it is first written to. That takes 2 µs for a small page, and in a virtual machine
//! whose host has to find it too 2.7 ms for a huge one, for which all packets of a link would wait. So a thread of its
//! own gets pieces ready, some ahead of what is in use.

use memmap2::{Advice, MmapMut};
use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Bytes of a piece: one huge page, where there are such.
const PIECE: usize = 2 << 20;
/// Pieces ready ahead of what is in use, of each pool. While one is made a link takes in about as much at 6 Gbit/s.
const AHEAD: usize = 3;
/// Orders that can wait: of both pools of both directions.
const ORDERS: usize = 4 * AHEAD;

/// Gets memory ready; ends when the last pool that orders from it is gone.
#[derive(Debug, Clone)]
pub(crate) struct Supplier(SyncSender<SyncSender<MmapMut>>);

impl Supplier {
    pub(crate) fn start() -> io::Result<Self> {
        let (orders, waiting) = sync_channel::<SyncSender<MmapMut>>(ORDERS);
        let work = move || {
            for to in waiting {
                let _gone = ready().map(|piece| to.try_send(piece));
            }
        };
        std::thread::Builder::new().name("impair-memory".into()).spawn(work)?;
        Ok(Self(orders))
    }
}

/// A piece that can be written to without waiting.
fn ready() -> io::Result<MmapMut> {
    let piece = MmapMut::map_anon(PIECE)?;
    // Where the kernel has no huge pages, small ones do; where it does not know how to get them ready (before
    // Linux 5.14) they come as they are written to.
    let _small_pages = piece.advise(Advice::HugePage);
    let _later = piece.advise(Advice::PopulateWrite);
    Ok(piece)
}

/// Places of one size, used again last in, first out, so that as little memory as possible is warm. They become more
/// as they are needed.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Bytes of a place.
    size: usize,
    /// Places in a piece.
    each: usize,
    /// How many places there may be.
    most: usize,
    pieces: Vec<MmapMut>,
    free: Vec<u32>,
    supplier: Supplier,
    reply: SyncSender<MmapMut>,
    supplied: Receiver<MmapMut>,
    /// Pieces asked for that have not come.
    ordered: usize,
}

impl Pool {
    /// Up to `most` places of `size` bytes.
    pub(crate) fn new(size: usize, most: usize, supplier: Supplier) -> io::Result<Self> {
        let (reply, supplied) = sync_channel(AHEAD);
        let each = PIECE / size;
        let pieces = Vec::with_capacity(most.div_ceil(each));
        let free = Vec::with_capacity(most);
        let mut pool = Self { size, each, most, pieces, free, supplier, reply, supplied, ordered: 0 };
        if most > 0 {
            pool.add(ready()?);
            pool.order();
        }
        Ok(pool)
    }

    /// The place to be taken next, if there is room.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<u32> {
        if self.free.is_empty() {
            self.grow();
        }
        self.free.last().copied()
    }

    /// It is taken.
    #[inline]
    pub(crate) fn take(&mut self) {
        self.free.pop();
    }

    /// It can be taken again. There is room for it: each is free at most once.
    #[inline]
    pub(crate) fn give(&mut self, place: u32) {
        self.free.push(place);
    }

    #[inline]
    pub(crate) fn get(&self, place: u32) -> &[u8] {
        let (piece, bytes) = self.at(place);
        self.pieces.get(piece).and_then(|piece| piece.get(bytes)).unwrap_or(&[])
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, place: u32) -> &mut [u8] {
        let (piece, bytes) = self.at(place);
        self.pieces.get_mut(piece).and_then(|piece| piece.get_mut(bytes)).unwrap_or(&mut [])
    }

    /// The piece of a place, and where in it that is.
    #[inline]
    fn at(&self, place: u32) -> (usize, Range<usize>) {
        let (piece, number) = (place as usize / self.each, place as usize % self.each);
        (piece, number * self.size..(number + 1) * self.size)
    }

    /// Once per piece: the only lock and allocation there are on the way of a frame.
    #[cold]
    fn grow(&mut self) {
        if self.pieces.len() * self.each >= self.most {
            return;
        }
        let piece = match self.supplied.try_recv() {
            Ok(piece) => {
                self.ordered -= 1;
                piece
            }
            // It does not keep up. Small pages then, so that it is a little wait each time and not a long one at once.
            Err(_) => match MmapMut::map_anon(PIECE) {
                Ok(piece) => piece,
                Err(_) => return,
            },
        };
        self.add(piece);
        self.order();
    }

    fn add(&mut self, piece: MmapMut) {
        let first = self.pieces.len() * self.each;
        let end = (first + self.each).min(self.most);
        self.pieces.push(piece);
        self.free.extend((first as u32..end as u32).rev());
    }

    fn order(&mut self) {
        while self.ordered < AHEAD && (self.pieces.len() + self.ordered) * self.each < self.most {
            if self.supplier.0.try_send(self.reply.clone()).is_err() {
                return;
            }
            self.ordered += 1;
        }
    }

    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn it_grows_to_its_most_and_every_place_is_its_own() {
        let (size, most) = (60_000, 150);
        let mut pool = Pool::new(size, most, Supplier::start().expect("a thread")).expect("memory");
        let mut taken = HashSet::new();
        while let Some(place) = pool.next() {
            pool.take();
            assert_eq!(pool.get(place), vec![0; size]);
            pool.get_mut(place).fill(1);
            assert!(taken.insert(place));
        }
        assert_eq!(taken.len(), most);
        pool.give(7);
        pool.give(140);
        assert_eq!(pool.next(), Some(140));
    }

    #[test]
    fn who_is_not_supplied_in_time_helps_himself() {
        // Orders that no supplier takes.
        let (orders, _waiting) = sync_channel(ORDERS);
        let mut pool = Pool::new(PIECE / 2, 9, Supplier(orders)).expect("memory");
        let mut count = 0;
        while pool.next().is_some() {
            pool.take();
            count += 1;
        }
        assert_eq!((count, pool.ordered), (9, AHEAD));
    }

    #[test]
    fn no_place_at_all() {
        let mut pool = Pool::new(100, 0, Supplier::start().expect("a thread")).expect("memory");
        assert_eq!(pool.next(), None);
        assert!(pool.get(0).is_empty() && pool.get_mut(0).is_empty());
    }
}
