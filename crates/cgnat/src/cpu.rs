//! What only the CPU can say: prefetches, AES rounds, ten tags compared at once. The crate's only `unsafe`.
#![allow(unsafe_code)]

use crate::key::Key;

/// Tags of a bucket.
pub const SLOTS: usize = 10;

/// Ask for the cache line of `what`, without waiting for it.
#[inline(always)]
pub fn prefetch<T: ?Sized>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program sees and faults at no address; this one is that of a reference.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(what).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _nothing_to_ask = what;
}

/// Which of a bucket's tags are `tag`: a bit each.
#[inline(always)]
pub fn matches(tags: &[u16; SLOTS], tag: u16) -> u32 {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    {
        use std::arch::x86_64::{_mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16};
        use std::arch::x86_64::{_mm_set1_epi16, _mm_setzero_si128};
        // SAFETY: this is only compiled for CPUs with SSE2, and of the 20 bytes of `tags` the first 16 are read.
        let first = unsafe {
            let equal =
                _mm_cmpeq_epi16(_mm_loadu_si128(tags.as_ptr().cast()), _mm_set1_epi16(tag.cast_signed()));
            _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128()))
        };
        first.cast_unsigned() | u32::from(tags[8] == tag) << 8 | u32::from(tags[9] == tag) << 9
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
    tags.iter().enumerate().fold(0, |mask, (at, this)| mask | u32::from(*this == tag) << at)
}

/// Whether the CPU has AES rounds; only [`Aes::new`] asks.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Four rounds of AES under a secret key. Only made where the CPU has them.
#[derive(Debug, Clone, Copy)]
pub struct Aes([u128; 5]);

impl Aes {
    /// `None`: this CPU has no AES rounds.
    pub fn new(secret: [u128; 5]) -> Option<Self> {
        has_aes().then_some(Self(secret))
    }

    /// The hash of each key, into the place of the same number.
    #[inline]
    pub fn hash(&self, keys: &[Key], hashes: &mut [u64]) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Self` is only made by `new`, which saw that this CPU has AES.
        unsafe {
            rounds(&self.0, keys, hashes);
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _never_made = (keys, hashes);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "aes")]
fn rounds(secret: &[u128; 5], keys: &[Key], hashes: &mut [u64]) {
    use std::arch::x86_64::{__m128i, _mm_aesenc_si128, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_xor_si128};
    let wide = |value: u128| -> __m128i { _mm_set_epi64x((value >> 64) as i64, value as i64) };
    // One by one: an array of them would go through memory for each key.
    let [white, first, second, third, fourth] = *secret;
    let (white, first, second) = (wide(white), wide(first), wide(second));
    let (third, fourth) = (wide(third), wide(fourth));
    for (key, hash) in keys.iter().zip(hashes) {
        let state = _mm_aesenc_si128(_mm_xor_si128(wide(key.0), white), first);
        let state = _mm_aesenc_si128(_mm_aesenc_si128(state, second), third);
        *hash = _mm_cvtsi128_si64(_mm_aesenc_si128(state, fourth)).cast_unsigned();
    }
}
