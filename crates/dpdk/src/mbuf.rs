//! One packet in DPDK's memory.

use crate::meta::{self, Meta};
use crate::offload::{Checked, Stamps, TxWork};
use dpdk_sys::{nd_mbuf, rte_mbuf};
use std::cell::Cell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

thread_local! {
    /// See [`moved_to`].
    static MOVED: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Where this thread put the packet of this [buffer](Mbuf::buffer) when it gave it [bytes of its own](Mbuf::unshare) since
/// [`forget_moved`]; if more than one was moved, only of the last one it is known. For those who follow single packets.
pub fn moved_to(buffer: usize) -> Option<usize> {
    let (from, to) = MOVED.get();
    (from == buffer && from != 0).then_some(to)
}

/// Forget what was moved.
pub fn forget_moved() {
    MOVED.set((0, 0));
}

/// Ask for a cache line to write to, without waiting for it. Asked for to read, a line that another core wrote last would come as one
/// that both have, and the first write would have to wait for that core again.
#[inline(always)]
fn prefetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads and writes nothing that the program sees, and faults at no address; CPUs that do not know this one do
    // nothing.
    unsafe {
        std::arch::asm!("prefetchw [{line}]", line = in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _nothing_to_ask = line;
}

/// A packet, owned: dropping it gives its memory back to the pool it came from.
///
/// Only the first segment can be read and written; [`Mbuf::is_whole`] says whether that is all of it.
///
/// A packet's bytes are its own, or shared with its [clones](crate::Mempool::clone_of). Shared bytes are never written:
/// who asks to write gets a copy of them first, made by [`Mbuf::unshare`].
#[repr(transparent)]
pub struct Mbuf(NonNull<rte_mbuf>);

// SAFETY: an Mbuf is the only owner of its packet, and DPDK's packets may be used and freed by any thread.
unsafe impl Send for Mbuf {}

impl Mbuf {
    /// Take ownership of a packet.
    ///
    /// # Safety
    /// `raw` is a valid packet that nobody else will use or free.
    #[inline]
    pub(crate) unsafe fn from_raw(raw: NonNull<rte_mbuf>) -> Self {
        Self(raw)
    }

    /// Give up ownership.
    #[inline]
    pub(crate) fn into_raw(self) -> NonNull<rte_mbuf> {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }

    /// A field of the packet's header.
    #[inline]
    fn field<T: Copy>(&self, offset: nd_mbuf::Type) -> T {
        // SAFETY: `offset` is an `nd_mbuf` constant, the C compiler's offsetof for a field that every
        // caller reads with that field's own type; the packet is valid and ours.
        unsafe { self.0.as_ptr().byte_add(offset as usize).cast::<T>().read() }
    }

    #[inline]
    fn set_field<T: Copy>(&mut self, offset: nd_mbuf::Type, value: T) {
        // SAFETY: as in `field`; we hold the packet mutably.
        unsafe { self.0.as_ptr().byte_add(offset as usize).cast::<T>().write(value) }
    }

    /// Bytes in the whole packet, from the Ethernet header, without FCS.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "an empty packet means nothing")]
    pub fn len(&self) -> usize {
        self.field::<u32>(nd_mbuf::ND_MBUF_PKT_LEN) as usize
    }

    /// Whether [`Mbuf::data`] is the whole packet (it came in one segment).
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.field::<u16>(nd_mbuf::ND_MBUF_NB_SEGS) == 1
    }

    /// Which buffer it is: no two packets have the same at a time.
    #[inline]
    pub fn buffer(&self) -> usize {
        self.0.as_ptr() as usize
    }

    #[inline]
    fn start(&self) -> *mut u8 {
        let buffer: *mut u8 = self.field(nd_mbuf::ND_MBUF_BUF_ADDR);
        let offset: u16 = self.field(nd_mbuf::ND_MBUF_DATA_OFF);
        // SAFETY: DPDK keeps data_off within the buffer; `set_len` never moves it.
        unsafe { buffer.add(offset.into()) }
    }

    /// The bytes of the first segment.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let len: u16 = self.field(nd_mbuf::ND_MBUF_DATA_LEN);
        // SAFETY: DPDK and `set_len` keep data_off + data_len within the buffer, whose memory is never
        // unmapped and was initialised (zeroed pages) when mapped; we own the packet.
        unsafe { std::slice::from_raw_parts(self.start(), len.into()) }
    }

    /// Prefetch the header: its first cache line, in which all lies that most elements look at.
    #[inline(always)]
    pub fn prefetch_header(&self) {
        prefetch(self.0.as_ptr().cast());
    }

    /// Prefetch [`Mbuf::meta`], which lies in the second. To be left to who writes it: it takes the line away from other cores.
    #[inline(always)]
    pub fn prefetch_meta(&self) {
        prefetch(meta::place(self.0).cast());
    }

    /// Ask for the first bytes of the packet, without waiting for them; where they are its header says.
    #[inline(always)]
    pub fn prefetch_data(&self) {
        prefetch(self.start());
    }

    /// The bytes of the first segment, to change. Of a packet that shares them they are copied first; with no memory for
    /// that they are not given: the slice is empty, which parsers count as a truncated frame.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        if self.may_share() && !self.unshare() {
            return &mut [];
        }
        // SAFETY: no other packet has its bytes, nor can one get them but through this one.
        unsafe { self.own_bytes() }
    }

    /// The bytes of the first segment, to change, of a packet that shares them with none.
    ///
    /// # Safety
    /// No other packet has its bytes.
    #[inline]
    pub(crate) unsafe fn own_bytes(&mut self) -> &mut [u8] {
        let len: u16 = self.field(nd_mbuf::ND_MBUF_DATA_LEN);
        // SAFETY: as in `data`; we hold the packet mutably, and no other packet has its bytes.
        unsafe { std::slice::from_raw_parts_mut(self.start(), len.into()) }
    }

    /// Whether another packet may have the same bytes, from the packet's first cache line alone.
    #[inline]
    fn may_share(&self) -> bool {
        // SAFETY: the count of references is a 16-bit number, aligned, in the header of a valid packet; threads that own
        // clones of it change it by atomic instructions.
        let references =
            unsafe { AtomicU16::from_ptr(self.0.as_ptr().byte_add(nd_mbuf::ND_MBUF_REFCNT as usize).cast()) };
        // Acquire: what other owners did with the bytes was done before they gave up their reference.
        let attached = self.field::<u64>(nd_mbuf::ND_MBUF_OL_FLAGS) & dpdk_sys::ND_ATTACHED != 0;
        attached || references.load(Ordering::Acquire) != 1
    }

    /// Whether its bytes are those of other packets, too: it or they are clones. They can be read by all.
    #[inline]
    pub fn is_shared(&self) -> bool {
        // SAFETY: the packet is valid and ours.
        self.may_share() && unsafe { dpdk_sys::nd_is_shared(self.0.as_ptr()) } != 0
    }

    /// Give a packet that shares its bytes a copy of them, from the pool that it came from. `false`: there was no memory,
    /// and nothing changed. A packet whose bytes are its own stays as it is.
    #[cold]
    pub fn unshare(&mut self) -> bool {
        if !self.is_shared() {
            return true;
        }
        let mut raw = self.0.as_ptr();
        // SAFETY: the packet is valid and ours; the call puts another one in its place, ours too, and drops our hold on
        // this one, or changes nothing.
        let code = unsafe { dpdk_sys::nd_unshare(&raw mut raw) };
        match NonNull::new(raw) {
            Some(own) if code == 0 => {
                MOVED.set((self.buffer(), own.as_ptr() as usize));
                self.0 = own;
                true
            }
            _ => false,
        }
    }

    /// Bytes that [`Mbuf::prepend`] can put before the packet.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.field::<u16>(nd_mbuf::ND_MBUF_DATA_OFF).into()
    }

    /// Make the packet longer by `n` bytes at its front, and return these to be written; they are whatever was there
    /// before. `None`, and nothing changed: there is no such room, or the bytes are shared and there is no memory for a copy.
    #[inline]
    pub fn prepend(&mut self, n: usize) -> Option<&mut [u8]> {
        if self.may_share() && !self.unshare() {
            return None;
        }
        let offset: u16 = self.field(nd_mbuf::ND_MBUF_DATA_OFF);
        let more = u16::try_from(n).ok().filter(|n| *n <= offset)?;
        let len = self.field::<u16>(nd_mbuf::ND_MBUF_DATA_LEN).checked_add(more)?;
        let all = self.field::<u32>(nd_mbuf::ND_MBUF_PKT_LEN).checked_add(more.into())?;
        self.set_field(nd_mbuf::ND_MBUF_DATA_OFF, offset - more);
        self.set_field(nd_mbuf::ND_MBUF_DATA_LEN, len);
        self.set_field(nd_mbuf::ND_MBUF_PKT_LEN, all);
        self.clear_meta();
        self.data_mut().get_mut(..n)
    }

    /// Take `n` bytes off the front. `false`, and nothing changed: the first segment has fewer.
    #[inline]
    pub fn adjust(&mut self, n: usize) -> bool {
        let (offset, len): (u16, u16) =
            (self.field(nd_mbuf::ND_MBUF_DATA_OFF), self.field(nd_mbuf::ND_MBUF_DATA_LEN));
        let Some(less) = u16::try_from(n).ok().filter(|n| *n <= len) else { return false };
        let all: u32 = self.field(nd_mbuf::ND_MBUF_PKT_LEN);
        // Both stay within the buffer: the end of the bytes is where it was.
        self.set_field(nd_mbuf::ND_MBUF_DATA_OFF, offset + less);
        self.set_field(nd_mbuf::ND_MBUF_DATA_LEN, len - less);
        self.set_field(nd_mbuf::ND_MBUF_PKT_LEN, all - u32::from(less));
        self.clear_meta();
        true
    }

    /// Take `n` bytes off the end, such as padding. `false`, and nothing changed: the last segment has fewer.
    #[inline]
    pub fn trim(&mut self, n: usize) -> bool {
        let Ok(less) = u16::try_from(n) else { return false };
        // SAFETY: the packet is valid and ours; lengths are changed only if all goes from the last segment.
        let trimmed = unsafe { dpdk_sys::nd_trim(self.0.as_ptr(), less) == 0 };
        self.check_meta();
        trimmed
    }

    /// What is known of the packet, if a parser told and it still holds.
    #[inline]
    pub fn meta(&self) -> Option<Meta> {
        let valid = self.field::<u64>(nd_mbuf::ND_MBUF_OL_FLAGS) & meta::flag() != 0;
        // SAFETY: a dynamic field of the packet's header, of that size and alignment; the flag says that it was written.
        valid.then(|| unsafe { meta::place(self.0).read() })
    }

    /// The same, to change some of it.
    #[inline]
    pub fn meta_mut(&mut self) -> Option<&mut Meta> {
        let valid = self.field::<u64>(nd_mbuf::ND_MBUF_OL_FLAGS) & meta::flag() != 0;
        // SAFETY: as in `meta`; we hold the packet mutably, and nobody else uses this field.
        valid.then(|| unsafe { &mut *meta::place(self.0) })
    }

    /// Tell what is known of the packet, in place of what was known before.
    #[inline]
    pub fn set_meta(&mut self, meta: Meta) {
        // SAFETY: as in `meta`; we hold the packet mutably, and nobody else uses this field.
        unsafe { meta::place(self.0).write(meta) };
        let flags: u64 = self.field(nd_mbuf::ND_MBUF_OL_FLAGS);
        self.set_field(nd_mbuf::ND_MBUF_OL_FLAGS, flags | meta::flag());
    }

    /// Nothing is known of the packet any more.
    #[inline]
    pub fn clear_meta(&mut self) {
        let flags: u64 = self.field(nd_mbuf::ND_MBUF_OL_FLAGS);
        if flags & meta::flag() != 0 {
            self.set_field(nd_mbuf::ND_MBUF_OL_FLAGS, flags & !meta::flag());
        }
    }

    /// The packet has another length: what is known of it holds if it ends after what that is about.
    #[inline]
    fn check_meta(&mut self) {
        if self.meta().is_some_and(|meta| usize::from(meta.end) > self.len()) {
            self.clear_meta();
        }
    }

    /// Copy the whole packet, all of its segments, to `to`, which has its length. `false`: it has another.
    pub fn copy_to(&self, to: &mut [u8]) -> bool {
        let fits = to.len() == self.len();
        if fits {
            // SAFETY: the packet is ours, and has as many bytes as `to` has room for.
            unsafe { dpdk_sys::nd_read(self.0.as_ptr(), to.as_mut_ptr().cast(), to.len() as u32) };
        }
        fits
    }

    /// Most bytes that [`Mbuf::set_len`] takes.
    #[inline]
    pub fn capacity(&self) -> usize {
        let buffer: u16 = self.field(nd_mbuf::ND_MBUF_BUF_LEN);
        let offset: u16 = self.field(nd_mbuf::ND_MBUF_DATA_OFF);
        usize::from(buffer.saturating_sub(offset))
    }

    /// Make the packet `len` bytes long and return them all to be written. `None` when the packet has
    /// no room for it, came in several segments, or shares its bytes while there is no memory for a copy; its bytes are
    /// then unchanged. Bytes past the former end are whatever the buffer held before.
    #[inline]
    pub fn set_len(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.may_share() && !self.unshare() || len > self.capacity() || !self.is_whole() {
            return None;
        }
        self.set_field(nd_mbuf::ND_MBUF_PKT_LEN, len as u32);
        self.set_field(nd_mbuf::ND_MBUF_DATA_LEN, len as u16);
        self.check_meta();
        Some(self.data_mut())
    }

    /// Leave work to the port that sends the packet, which was started to do such.
    #[inline]
    pub fn request_tx_offload(&mut self, work: &TxWork) {
        // Whose memory its bytes are in, and whether something is known of them, stays as it is.
        let kept = self.field::<u64>(nd_mbuf::ND_MBUF_OL_FLAGS) & (dpdk_sys::ND_ATTACHED | meta::flag());
        self.set_field(nd_mbuf::ND_MBUF_OL_FLAGS, kept | work.flags);
        self.set_field(nd_mbuf::ND_MBUF_TX_OFFLOAD, work.lengths);
    }

    /// What the port says of the packet's checksum, if it was started to look at such.
    #[inline]
    pub fn checksum(&self) -> Checked {
        Checked::of(self.field(nd_mbuf::ND_MBUF_OL_FLAGS))
    }

    /// When the port received the packet, in ticks of [its clock](crate::Port::clock).
    #[inline]
    pub fn stamp(&self, stamps: &Stamps) -> Option<u64> {
        let stamped = self.field::<u64>(nd_mbuf::ND_MBUF_OL_FLAGS) & stamps.flag != 0;
        // SAFETY: DPDK gave the offset of a 64-bit field in the packet's header; the packet is valid and ours.
        stamped.then(|| unsafe { self.0.as_ptr().byte_add(stamps.offset).cast::<u64>().read() })
    }

    /// Make `tail` the end of this packet, which then has several segments. It is given back when they are too
    /// many for one packet.
    pub fn chain(&mut self, tail: Mbuf) -> Result<(), Mbuf> {
        let tail = tail.into_raw();
        // SAFETY: both packets are valid and were ours alone; the call links the second to the first, which owns
        // it from then on, or changes nothing.
        match unsafe { dpdk_sys::nd_chain(self.0.as_ptr(), tail.as_ptr()) } {
            0 => Ok(()),
            // SAFETY: it was not taken, and nobody else has it.
            _ => Err(unsafe { Self::from_raw(tail) }),
        }
    }
}

impl Drop for Mbuf {
    fn drop(&mut self) {
        let mut raw = self.0.as_ptr();
        // SAFETY: we own the packet and nobody uses it after this.
        unsafe { dpdk_sys::nd_free_burst(&raw mut raw, 1) };
    }
}

impl fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mbuf({} bytes)", self.len())
    }
}
