//! What only the CPU can say: prefetches, AES rounds, ten tags compared at once; and mapped memory as an array without a look at its
//! size and alignment each time. The crate's only `unsafe`.
#![allow(unsafe_code)]

use crate::key::Key;
use memmap2::MmapMut;
use std::marker::PhantomData;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What a [`MappedMemory`] may hold: plain data of which zeros are a value.
pub trait Plain: FromBytes + IntoBytes + KnownLayout + Immutable {}
impl<T: FromBytes + IntoBytes + KnownLayout + Immutable> Plain for T {}

/// Memory of its own, zeroed at first, that holds a fixed number of `T`s.
#[derive(Debug)]
pub struct MappedMemory<T> {
    map: MmapMut,
    len: usize,
    of: PhantomData<T>,
}

impl<T: Plain> MappedMemory<T> {
    /// Room for `len` of them.
    pub fn new(len: usize) -> std::io::Result<Self> {
        const { assert!(align_of::<T>() <= 4096, "pages are aligned to no more") };
        let bytes = len.checked_mul(size_of::<T>()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Self { map: MmapMut::map_anon(bytes.max(1))?, len, of: PhantomData })
    }

    /// The memory.
    pub fn map(&self) -> &MmapMut {
        &self.map
    }

    /// All of them.
    #[inline(always)]
    pub fn get(&self) -> &[T] {
        // SAFETY: `new` mapped memory for `len` of them, which nobody else has and which begins at a page, so it is aligned; zeros and all
        // else that was written there are values of a plain `T`.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.len) }
    }

    /// All of them, to be changed.
    #[inline(always)]
    pub fn get_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed by who has them.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().cast(), self.len) }
    }
}

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

/// A bucket: its tags first, as much else as one comparison reads on after them.
pub type Words = [u16; 32];

/// Which of a bucket's tags are `tag`.
#[inline(always)]
pub fn matches(bucket: &Words, tag: u16) -> Slots {
    #[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
    let found = {
        use std::arch::x86_64::{
            _mm256_cmpeq_epi16, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_set1_epi16,
        };
        // SAFETY: this is only compiled for CPUs with AVX2, and of the 64 bytes the first 32 are read.
        unsafe {
            let equal = _mm256_cmpeq_epi16(
                _mm256_loadu_si256(bucket.as_ptr().cast()),
                _mm256_set1_epi16(tag.cast_signed()),
            );
            _mm256_movemask_epi8(equal).cast_unsigned()
        }
    };
    #[cfg(not(all(target_arch = "x86_64", target_feature = "avx2")))]
    let found = bucket
        .iter()
        .take(SLOTS)
        .enumerate()
        .fold(0, |mask, (at, this)| mask | u32::from(*this == tag) << (2 * at));
    Slots(found & SLOTS_MASK)
}

/// Of a comparison there are two bits for each slot: the lower ones of all.
const SLOTS_MASK: u32 = 0x5555_5555 & ((1 << (2 * SLOTS)) - 1);

/// Slots of a bucket, first to last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots(u32);

impl Slots {
    /// The first of them.
    #[inline(always)]
    pub fn first(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize / 2)
    }
}

impl Iterator for Slots {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let slot = self.first()?;
        self.0 &= self.0 - 1;
        Some(slot)
    }
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
