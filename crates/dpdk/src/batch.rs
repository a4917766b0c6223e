//! Up to [`BURST`] packets that travel together.

use crate::mbuf::Mbuf;
use dpdk_sys::rte_mbuf;
use std::cell::Cell;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Most packets in a batch. What is done once for each batch is shared by as many, and the headers and first lines of so
/// many packets (24 KiB) still fit the first-level cache together: with 32, or 256, a worker sends a fifth less.
pub const BURST: usize = 128;

/// In place of [`Batch::bytes`], when they must be counted.
const UNKNOWN: u64 = u64::MAX;

/// A batch of packets, owned; dropping it frees them. Never allocates.
pub struct Batch {
    len: usize,
    /// Sum of the packets' lengths, or [`UNKNOWN`]: who passes a batch on as it is need not look into each packet again.
    bytes: Cell<u64>,
    /// The first `len` are packets that we own.
    mbufs: [MaybeUninit<NonNull<rte_mbuf>>; BURST],
}

// SAFETY: a batch is the only owner of its packets, which any thread may use and free.
unsafe impl Send for Batch {}

impl Batch {
    /// An empty batch.
    #[inline]
    pub const fn new() -> Self {
        Self { len: 0, bytes: Cell::new(0), mbufs: [MaybeUninit::uninit(); BURST] }
    }

    /// Packets in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Packets that it can still take.
    #[inline]
    pub fn room(&self) -> usize {
        BURST - self.len
    }

    /// The packets.
    #[inline]
    pub fn frames(&self) -> &[Mbuf] {
        // SAFETY: the first `len` are initialised; Mbuf is a transparent NonNull<rte_mbuf>; the packets
        // stay owned by the batch, borrowed through `self`.
        unsafe { std::slice::from_raw_parts(self.mbufs.as_ptr().cast::<Mbuf>(), self.len) }
    }

    /// The packets, to change or swap.
    #[inline]
    pub fn frames_mut(&mut self) -> &mut [Mbuf] {
        self.bytes.set(UNKNOWN);
        self.packets()
    }

    /// The bytes of the packets' first segments, to change.
    #[inline]
    pub fn data_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [u8]> {
        // Whatever becomes of the bytes, they are as many.
        self.packets().iter_mut().map(Mbuf::data_mut)
    }

    /// The bytes of the packets from `from` on, to change; each has its packet's length.
    ///
    /// # Safety
    /// No other packet has their bytes: they came from their pool as they are, and nobody was handed any of them since.
    #[inline]
    pub(crate) unsafe fn own_bytes(&mut self, from: usize) -> impl ExactSizeIterator<Item = &mut [u8]> {
        // SAFETY: by the caller's word.
        self.packets().iter_mut().skip(from).map(|mbuf| unsafe { mbuf.own_bytes() })
    }

    #[inline]
    fn packets(&mut self) -> &mut [Mbuf] {
        // SAFETY: as in `frames`, borrowed mutably. Whatever safe code does to the slice leaves each place
        // holding a packet that is owned once.
        unsafe { std::slice::from_raw_parts_mut(self.mbufs.as_mut_ptr().cast::<Mbuf>(), self.len) }
    }

    /// Add a packet at the end; a full batch gives it back.
    #[inline]
    pub fn push(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        match self.mbufs.get_mut(self.len) {
            Some(place) => {
                place.write(mbuf.into_raw());
                self.set_len(self.len + 1);
                Ok(())
            }
            None => Err(mbuf),
        }
    }

    /// Move as many packets as fit to the end of `other`, in order, and keep the rest.
    #[inline]
    pub fn move_to(&mut self, other: &mut Batch) {
        let n = self.len.min(other.room());
        other.mbufs[other.len..other.len + n].copy_from_slice(&self.mbufs[..n]);
        other.set_len(other.len + n);
        self.forget_first(n);
    }

    /// Sum of the packets' lengths, bytes without FCS.
    #[inline]
    pub fn bytes(&self) -> u64 {
        if self.bytes.get() == UNKNOWN {
            self.bytes.set(self.frames().iter().map(|mbuf| mbuf.len() as u64).sum::<u64>());
        }
        self.bytes.get()
    }

    /// Prefetch the headers of the packets from `from` on: of those that another core wrote last each would be waited for.
    #[inline]
    pub fn prefetch_headers(&self, from: usize) {
        self.frames().iter().skip(from).for_each(Mbuf::prefetch_header);
    }

    /// Give each packet to `look`, with its number, which writes its [`Meta`](crate::Meta). The bytes of those behind it are prefetched
    /// meanwhile: for a first look at packets that another core or a NIC wrote last.
    #[inline]
    pub fn walk(&mut self, mut look: impl FnMut(usize, &mut Mbuf)) {
        let mbufs = self.frames_mut();
        mbufs.iter().take(AHEAD).for_each(Mbuf::prefetch_meta);
        mbufs.iter().take(AHEAD).for_each(Mbuf::prefetch_data);
        for i in 0..mbufs.len() {
            if let Some(later) = mbufs.get(i + AHEAD) {
                later.prefetch_meta();
                later.prefetch_data();
            }
            look(i, &mut mbufs[i]);
        }
    }

    /// Keep the packets for which `keep` says yes, in order, and free the others. The bytes of those behind are prefetched meanwhile, as
    /// by [`Batch::walk`].
    #[inline]
    pub fn retain(&mut self, mut keep: impl FnMut(&mut Mbuf) -> bool) {
        let mut kept = 0;
        self.frames_mut().iter().take(AHEAD).for_each(Mbuf::prefetch_data);
        for i in 0..self.len {
            if let Some(later) = self.frames().get(i + AHEAD) {
                later.prefetch_data();
            }
            if keep(&mut self.packets()[i]) {
                // A swap, so that each place holds one owned packet at all times, also if `keep` panics.
                self.mbufs.swap(kept, i);
                kept += 1;
            }
        }
        self.truncate(kept);
    }

    /// Give each packet to `keep`; what it gives back stays, in order.
    #[inline]
    pub fn filter_map(&mut self, mut keep: impl FnMut(Mbuf) -> Option<Mbuf>) {
        // From here on no packet is the batch's: if `keep` panics they are lost, and none is freed twice.
        let len = self.len;
        self.set_len(0);
        let mut kept = 0;
        for i in 0..len {
            // SAFETY: places 0..len were packets that the batch owned; this one is now `keep`'s.
            let mbuf = unsafe { Mbuf::from_raw(self.mbufs[i].assume_init()) };
            if let Some(mbuf) = keep(mbuf) {
                self.mbufs[kept].write(mbuf.into_raw());
                kept += 1;
            }
        }
        self.set_len(kept);
    }

    /// Free the packets after the first `len`.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            let gone = self.len - len;
            self.set_len(len);
            // SAFETY: places len..len + gone are initialised packets that we owned until the line above.
            unsafe { dpdk_sys::nd_free_burst(self.mbufs[len..].as_mut_ptr().cast(), gone as u32) };
        }
    }

    /// Free all packets.
    #[inline]
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Let `fill` write packets into the free places; it returns how many it wrote.
    ///
    /// # Safety
    /// `fill` is given a pointer to `room` places and writes, from the first on, as many valid packets as it
    /// returns, at most `room`, each now owned by the batch.
    #[inline]
    pub(crate) unsafe fn fill(&mut self, fill: impl FnOnce(*mut *mut rte_mbuf, usize) -> usize) -> usize {
        let room = self.room();
        let n = fill(self.mbufs[self.len..].as_mut_ptr().cast(), room);
        debug_assert!(n <= room);
        if n > 0 {
            self.set_len(self.len + n.min(room));
        }
        n
    }

    /// Tell the sum of the packets' lengths to a batch of which it is known.
    #[inline]
    pub(crate) fn set_bytes(&mut self, bytes: u64) {
        debug_assert_eq!(bytes, self.frames().iter().map(|mbuf| mbuf.len() as u64).sum::<u64>());
        self.bytes.set(bytes);
    }

    /// Let `take` have the packets; it returns how many of the first ones it took.
    ///
    /// # Safety
    /// `take` is given a pointer to `len` packets and becomes the owner of as many of the first ones as it
    /// returns, at most `len`; the others it leaves alone.
    #[inline]
    pub(crate) unsafe fn take(&mut self, take: impl FnOnce(*mut *mut rte_mbuf, usize) -> usize) -> usize {
        let n = take(self.mbufs.as_mut_ptr().cast(), self.len);
        debug_assert!(n <= self.len);
        self.forget_first(n.min(self.len));
        n
    }

    /// Put the tags that the port took out of the last `n` packets back.
    #[inline]
    pub(crate) fn restore_tags(&mut self, n: usize) {
        let from = self.len - n.min(self.len);
        self.bytes.set(UNKNOWN);
        // SAFETY: places from..len are packets that we own, and nobody else uses.
        unsafe {
            dpdk_sys::nd_restore_tags(self.mbufs[from..].as_mut_ptr().cast(), (self.len - from) as u32)
        };
    }

    #[inline]
    fn forget_first(&mut self, n: usize) {
        if n > 0 {
            self.mbufs.copy_within(n..self.len, 0);
            self.set_len(self.len - n);
        }
    }

    /// The packets are others: so many.
    #[inline]
    fn set_len(&mut self, len: usize) {
        self.len = len;
        self.bytes.set(if len == 0 { 0 } else { UNKNOWN });
    }
}

/// Packets ahead of which bytes are prefetched.
const AHEAD: usize = 8;

/// The packets of a batch, one by one.
#[derive(Debug)]
pub struct IntoIter {
    batch: Batch,
    next: usize,
}

impl IntoIterator for Batch {
    type Item = Mbuf;
    type IntoIter = IntoIter;

    #[inline]
    fn into_iter(self) -> IntoIter {
        IntoIter { batch: self, next: 0 }
    }
}

impl Iterator for IntoIter {
    type Item = Mbuf;

    #[inline]
    fn next(&mut self) -> Option<Mbuf> {
        let place = self.batch.mbufs[..self.batch.len].get(self.next)?;
        self.next += 1;
        // SAFETY: places next..len are packets that the batch owns; this one is now the caller's, and
        // neither `next` nor `drop` looks at it again.
        Some(unsafe { Mbuf::from_raw(place.assume_init()) })
    }
}

impl Drop for IntoIter {
    fn drop(&mut self) {
        self.batch.forget_first(self.next);
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.clear();
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.frames()).finish()
    }
}
