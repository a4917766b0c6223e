//! The internet checksum (RFC 1071) and how to follow a change without summing again (RFC 1624).
//!
//! Sums are kept in the machine's own byte order: the one's complement sum does not depend on it
//! (RFC 1071 section 2 (B)), as long as the sum is stored in that order too.

/// A one's complement sum under way, in 64 bits: a carry out of the highest comes in again at the lowest, and it folds
/// to the same 16 bits as if words of 16 had been added (RFC 1071 section 2 (C)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// Nothing summed yet.
    pub const ZERO: Sum = Sum(0);

    /// Add `bytes`, which begin at an even offset of what is summed; an odd last byte is padded with zero.
    #[inline]
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Sum {
        /// Bytes from which on many lanes at a time are worth their beginning and end.
        const LONG: usize = 128;
        let (words, rest) = bytes.as_chunks::<8>();
        let sum = if bytes.len() < LONG {
            words.iter().fold(self.0, |sum, word| add(sum, u64::from_ne_bytes(*word)))
        } else {
            add(self.0, long(words))
        };
        Sum(match (rest.len(), bytes.last_chunk::<8>()) {
            (0, _) => sum,
            // Of the last eight bytes those that are not summed yet, as if zeros followed: no loop for a rest.
            (left, Some(last)) => add(sum, (u64::from_le_bytes(*last) >> (64 - 8 * left)).to_le()),
            (_, None) => add(sum, short(rest)),
        })
    }

    /// Add one 64-bit field.
    #[inline]
    #[must_use]
    pub fn wide(self, value: u64) -> Sum {
        Sum(add(self.0, value.to_be()))
    }

    /// Add one 16-bit field.
    #[inline]
    #[must_use]
    pub fn field(self, value: u16) -> Sum {
        Sum(add(self.0, value.to_be().into()))
    }

    /// Add another sum.
    #[inline]
    #[must_use]
    pub fn plus(self, other: Sum) -> Sum {
        Sum(add(self.0, other.0))
    }

    /// The same in 18 bits, of which some more can be added up in 32.
    #[inline]
    pub fn folded(self) -> u32 {
        let sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        ((sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32)) as u32
    }

    /// The checksum: the complement of the sum.
    #[inline]
    pub fn checksum(self) -> u16 {
        u16::from_be_bytes(complement(self.folded()).to_ne_bytes())
    }

    /// Whether [`Sum::checksum`] is 0, as it is over what contains a right checksum: that is so for all multiples of
    /// 65,535 but 0, and one multiplication tells those where folding takes a dozen instructions.
    #[inline]
    pub fn is_right(self) -> bool {
        /// Times 65,535 it is 1, modulo 2^64: so that it divides multiples of 65,535, and makes all others larger than these become.
        const INVERSE: u64 = 0xfffe_fffe_fffe_ffff;
        const _: () = assert!(INVERSE.wrapping_mul(0xffff) == 1);
        self.0.wrapping_mul(INVERSE).wrapping_sub(1) < u64::MAX / 0xffff
    }
}

/// The checksum of what [`Sum::folded`] gave, or several of these added up, in the machine's own byte order: its
/// bytes in memory are those of the packet.
#[inline]
pub fn complement(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

/// The 16-bit words of `value`, added up.
#[inline]
pub fn halves(value: u64) -> u64 {
    let pairs = (value & 0xffff_0000_ffff) + ((value >> 16) & 0xffff_0000_ffff);
    (pairs & 0xffff_ffff) + (pairs >> 32)
}

/// The sum of many words. It is for itself, so that what sums few is small enough to be inlined.
#[inline(never)]
fn long(words: &[[u8; 8]]) -> u64 {
    // Four bytes at a time: 2^32 such words fit before the sum could overflow.
    let (fours, _) = words.as_flattened().as_chunks::<4>();
    fours.iter().map(|four| u64::from(u32::from_ne_bytes(*four))).sum()
}

/// Fewer than eight bytes, as if zeros followed.
#[inline(never)]
fn short(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
    u64::from_ne_bytes(word)
}

/// Their one's complement sum.
#[inline]
fn add(sum: u64, word: u64) -> u64 {
    let (sum, carry) = sum.overflowing_add(word);
    sum + u64::from(carry)
}

/// The checksum of `bytes`; 0 when they contain a right checksum.
#[inline]
pub fn of(bytes: &[u8]) -> u16 {
    Sum::ZERO.bytes(bytes).checksum()
}

/// The sum of the pseudo-header of TCP, UDP and ICMPv6 (RFC 768, RFC 8200 section 8.1). `addresses` are
/// source and destination as they stand in the IP header.
#[inline]
pub fn pseudo_header(addresses: &[u8], protocol: u8, length: u32) -> Sum {
    let length = length.to_be_bytes();
    let high = u16::from_be_bytes([length[0], length[1]]);
    let low = u16::from_be_bytes([length[2], length[3]]);
    Sum::ZERO.bytes(addresses).field(high).field(low).field(protocol.into())
}

/// The checksum after a 16-bit field under it changed: RFC 1624 section 3, equation 3.
#[inline]
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

/// The checksum after an address under it changed; both of the same, even length.
#[inline]
pub fn update_bytes(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    let (old, new) = (old.as_chunks::<2>().0, new.as_chunks::<2>().0);
    old.iter().zip(new).fold(checksum, |checksum, (old, new)| {
        update(checksum, u16::from_be_bytes(*old), u16::from_be_bytes(*new))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, word by word.
    fn plain(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn the_example_of_rfc_1071() {
        // Section 3: the sum of these is ddf2, its complement 220d.
        assert_eq!(of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0x220d);
    }

    #[test]
    fn the_example_of_rfc_1624() {
        // Section 4: 0xdd2f, a field 0x5555 becomes 0x3285: 0x0000, not 0xffff as RFC 1141 would have it.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    proptest! {
        #[test]
        fn fast_equals_plain(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert_eq!(of(&bytes), plain(&bytes));
        }

        #[test]
        fn a_sum_is_right_where_the_checksum_is_zero(sum: u64, some in 0..=u64::MAX / 0xffff) {
            for sum in [sum, sum & 0xffff, some * 0xffff, some * 0xffff + 1, 0, 0xffff, u64::MAX] {
                prop_assert_eq!(Sum(sum).is_right(), Sum(sum).checksum() == 0, "{}", sum);
            }
        }

        #[test]
        fn all_ones_do_not_overflow(len in 0usize..9000) {
            let bytes = vec![0xff; len];
            prop_assert_eq!(of(&bytes), plain(&bytes));
        }

        #[test]
        fn parts_sum_to_the_whole(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..100) {
            let (head, tail) = bytes.split_at((at * 2).min(bytes.len() / 2 * 2));
            prop_assert_eq!(Sum::ZERO.bytes(head).plus(Sum::ZERO.bytes(tail)).checksum(), plain(&bytes));
        }

        #[test]
        fn following_a_change_equals_summing_again(
            mut bytes in proptest::collection::vec(any::<u8>(), 8..64),
            at in 0usize..28,
            new in any::<[u8; 4]>(),
        ) {
            let at = (at * 2).min((bytes.len() - 4) / 2 * 2);
            // A header that is nothing but zeros has two checksums; no real header is.
            bytes[0] = 0x45;
            let at = at.max(2);
            let before = of(&bytes);
            let old = bytes[at..at + 4].to_vec();
            bytes[at..at + 4].copy_from_slice(&new);
            prop_assert_eq!(update_bytes(before, &old, &new), of(&bytes));
        }
    }
}
