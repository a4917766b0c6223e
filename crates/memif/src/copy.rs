//! Bytes copied in whole lines, and lines prefetched.

/// `length` rounded up to whole lines.
#[inline]
pub(crate) fn round_up_to_line(length: usize) -> usize {
    (length + 63) & !63
}

/// Copy whole lines, as many as hold `length` bytes; at least one.
///
/// # Safety
/// `from` and `to` have that many bytes, and do not overlap.
#[inline]
pub(crate) unsafe fn lines(from: *const u8, to: *mut u8, length: usize) {
    let mut at = 0;
    loop {
        // SAFETY: within `length` rounded up, as promised by the caller.
        unsafe { std::ptr::copy_nonoverlapping(from.add(at), to.add(at), 64) };
        at += 64;
        if at >= length {
            break;
        }
    }
}

/// Prefetch the line at `at`, to read it.
#[inline]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; no address is a wrong one.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Prefetch the line at `at`, to write it.
#[inline]
pub(crate) fn prefetch_write(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; no address is a wrong one, and a processor that does not know it does nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
