//! A ring in shared memory. The other end may write any of it at any time: all of it is read and written by atomic
//! instructions, and nothing read is believed.

use crate::protocol::COOKIE;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Largest ring, as a power of two.
pub(crate) const MOST_LOG2: u8 = 14;
/// Of a descriptor: the frame goes on in the next slot.
pub(crate) const NEXT: u16 = 1;
/// Of a ring: who receives from it polls.
pub(crate) const MASK_INT: u16 = 1;

const FLAGS: usize = 4;
const HEAD: usize = 6;
const TAIL: usize = 64;
const SLOTS: usize = 128;
/// Bytes of a descriptor.
const SLOT: usize = 16;

/// Bytes of a ring of so many slots.
pub(crate) fn bytes(size_log2: u8) -> u64 {
    SLOTS as u64 + ((SLOT as u64) << size_log2)
}

/// What a slot tells, as it was when read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub flags: u16,
    pub region: u16,
    pub length: u32,
    pub offset: u32,
}

impl Descriptor {
    /// In region 0, and a frame by itself, without a flag.
    #[inline]
    pub(crate) fn is_plain(self) -> bool {
        (u32::from(self.flags) | u32::from(self.region)) == 0
    }
}

/// The address of a ring; it is as good as the region it is in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ring {
    base: NonNull<u8>,
    size_log2: u8,
}

impl Ring {
    /// # Safety
    /// `base` is aligned to 8 bytes at least, with [`bytes`] of mapped memory there, and this is not used when those are
    /// unmapped.
    pub(crate) unsafe fn new(base: NonNull<u8>, size_log2: u8) -> Self {
        Self { base, size_log2 }
    }

    /// Slots.
    #[inline]
    pub(crate) fn size(self) -> u16 {
        1 << self.size_log2
    }

    #[inline]
    fn half(&self, at: usize) -> &AtomicU16 {
        // SAFETY: within the ring and aligned, as promised to `new`.
        unsafe { AtomicU16::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    #[inline]
    fn cookie(&self) -> &AtomicU32 {
        // SAFETY: as promised to `new`.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().cast()) }
    }

    #[inline]
    fn slot(&self, at: u16) -> *mut u8 {
        let at = usize::from(at & (self.size() - 1));
        // SAFETY: masked, it is one of the ring's slots.
        unsafe { self.base.as_ptr().add(SLOTS + at * SLOT) }
    }

    /// Make memory of zeros a ring.
    pub(crate) fn begin(self, flags: u16) {
        self.half(HEAD).store(0, Ordering::Relaxed);
        self.half(TAIL).store(0, Ordering::Relaxed);
        self.set_flags(flags);
        self.cookie().store(COOKIE, Ordering::Release);
    }

    pub(crate) fn is_ring(self) -> bool {
        self.cookie().load(Ordering::Acquire) == COOKIE
    }

    #[inline]
    pub(crate) fn flags(self) -> u16 {
        self.half(FLAGS).load(Ordering::Relaxed)
    }

    pub(crate) fn set_flags(self, flags: u16) {
        self.half(FLAGS).store(flags, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn head(self) -> u16 {
        self.half(HEAD).load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_head(self, head: u16) {
        self.half(HEAD).store(head, Ordering::Release);
    }

    #[inline]
    pub(crate) fn tail(self) -> u16 {
        self.half(TAIL).load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_tail(self, tail: u16) {
        self.half(TAIL).store(tail, Ordering::Release);
    }

    /// The two halves of a descriptor.
    #[inline]
    fn halves(&self, at: u16) -> [&AtomicU64; 2] {
        let slot = self.slot(at);
        // SAFETY: a slot is 16 bytes and, like the ring, aligned.
        unsafe { [AtomicU64::from_ptr(slot.cast()), AtomicU64::from_ptr(slot.add(8).cast())] }
    }

    /// What a slot tells; read once.
    #[inline]
    pub(crate) fn descriptor(self, at: u16) -> Descriptor {
        let [first, second] = self.halves(at).map(|half| half.load(Ordering::Relaxed));
        Descriptor {
            flags: first as u16,
            region: (first >> 16) as u16,
            length: (first >> 32) as u32,
            offset: second as u32,
        }
    }

    /// Write what of a descriptor changes from frame to frame.
    #[inline]
    pub(crate) fn set_descriptor(self, at: u16, flags: u16, region: u16, length: u32) {
        let first = u64::from(flags) | u64::from(region) << 16 | u64::from(length) << 32;
        self.halves(at)[0].store(first, Ordering::Relaxed);
    }

    /// Write where a descriptor's buffer is.
    pub(crate) fn set_offset(self, at: u16, offset: u32) {
        self.halves(at)[1].store(u64::from(offset), Ordering::Relaxed);
    }

    /// Prefetch the descriptors of `count` slots, to read them.
    #[inline]
    pub(crate) fn prefetch(self, at: u16, count: u16) {
        let mut ahead = 0;
        while ahead < count {
            crate::copy::prefetch(self.slot(at.wrapping_add(ahead)));
            ahead += 64 / SLOT as u16;
        }
    }

    /// Prefetch the descriptor of a slot, to write it.
    #[inline]
    pub(crate) fn prefetch_write(self, at: u16) {
        crate::copy::prefetch_write(self.slot(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_protocol_has_them() {
        let mut memory = vec![0u64; 128 / 8 + 4 * 2];
        let base = NonNull::new(memory.as_mut_ptr().cast()).unwrap();
        // SAFETY: 128 bytes and four descriptors, aligned to eight bytes, that live as long as the test.
        let ring = unsafe { Ring::new(base, 2) };
        assert!(!ring.is_ring());
        ring.begin(MASK_INT);
        assert!(ring.is_ring());
        ring.set_head(0x0102);
        ring.set_tail(0x0304);
        ring.set_descriptor(5, NEXT, 2, 0x0506_0708);
        ring.set_offset(5, 0x090a_0b0c);
        let told = Descriptor { flags: NEXT, region: 2, length: 0x0506_0708, offset: 0x090a_0b0c };
        assert_eq!(ring.descriptor(1), told);
        assert_eq!((ring.head(), ring.tail(), ring.flags()), (0x0102, 0x0304, MASK_INT));
        let bytes: Vec<u8> = memory.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(bytes[..8], [0x20, 0x1f, 0xe3, 0x03, 1, 0, 2, 1]);
        assert_eq!(bytes[64..66], [4, 3]);
        assert_eq!(bytes[144..160], [1, 0, 2, 0, 8, 7, 6, 5, 0xc, 0xb, 0xa, 9, 0, 0, 0, 0]);
    }
}
