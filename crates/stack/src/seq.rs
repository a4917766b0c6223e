//! Sequence numbers, modulo 2^32 (RFC 9293 section 3.4).

use std::ops::{Add, AddAssign, Sub};

/// A sequence number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seq(pub u32);

impl Seq {
    /// Whether it comes before `other`.
    #[inline]
    pub fn before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether it comes before `other`, or is the same.
    #[inline]
    pub fn until(self, other: Self) -> bool {
        !other.before(self)
    }

    /// How many come from `earlier` to here.
    #[inline]
    pub fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// The later of the two.
    #[inline]
    pub fn later(self, other: Self) -> Self {
        if self.before(other) { other } else { self }
    }

    /// The earlier of the two.
    #[inline]
    pub fn earlier(self, other: Self) -> Self {
        if self.before(other) { self } else { other }
    }
}

impl Add<u32> for Seq {
    type Output = Self;

    #[inline]
    fn add(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }
}

impl AddAssign<u32> for Seq {
    #[inline]
    fn add_assign(&mut self, n: u32) {
        *self = *self + n;
    }
}

impl Sub<u32> for Seq {
    type Output = Self;

    #[inline]
    fn sub(self, n: u32) -> Self {
        Self(self.0.wrapping_sub(n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_goes_round() {
        let high = Seq(u32::MAX - 1);
        assert!(high.before(high + 3) && !(high + 3).before(high) && high.until(high));
        assert_eq!((high + 3).since(high), 3);
        assert_eq!((high.later(high + 3), high.earlier(high + 3), (high + 3) - 3), (high + 3, high, high));
    }
}
