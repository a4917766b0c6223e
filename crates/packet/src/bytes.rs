//! Pieces of fixed size out of a slice.

/// `N` bytes of `bytes` from `at` on.
#[inline]
pub(crate) fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk()
}

/// `N` bytes of `bytes` from `at` on, to change.
#[inline]
pub(crate) fn take_mut<const N: usize>(bytes: &mut [u8], at: usize) -> Option<&mut [u8; N]> {
    bytes.get_mut(at..)?.first_chunk_mut()
}
