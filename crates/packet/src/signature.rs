//! The mark every measured datagram carries: over sockets in the first 18 bytes of its payload, in frames of our
//! own in the last 18, see [`place`].
//!
//! 18 bytes is all a 64-byte Ethernet frame leaves for the payload of UDP over IPv4
//! (64 − 14 Ethernet − 20 IPv4 − 8 UDP − 4 FCS), so the smallest frame can still be measured.
//!
//! ```text
//!  0       2           5                   10                              18
//!  | check | stream 24 | sequence (40 bits)| intended send time, ns        |     big endian
//! ```
//! It sits in the payload, not in a header, so it survives NAT and routers; at the end of a frame it also stays
//! where it is when tunnels are added or taken away on the way. The check is the internet checksum of the rest, against
//! a constant: whatever one bit is changed to, even by who makes the datagram's checksum anew, it is no signature then.

use crate::checksum::{Sum, complement, halves};

/// Bytes a signature takes.
pub const LEN: usize = 18;

/// Where the signature begins in a frame whose innermost packet ends at `end`: as late as it fits at an even
/// place, as checksums see pairs.
#[inline]
pub fn place(end: usize) -> Option<usize> {
    end.checked_sub(LEN).map(|at| at & !1)
}

/// What the check is against: a row of zeros is no signature.
const MAGIC: u16 = 0x6e64;

/// The check over `rest`, the sum of all that follows it as [`Sum::folded`] or [`halves`] give it; in the machine's own
/// byte order.
#[inline]
fn check(rest: u32) -> u16 {
    complement(rest) ^ MAGIC.to_be()
}

/// Bits of a stream number.
const STREAM_BITS: u32 = 24;
/// Highest stream number.
pub const STREAM_MAX: u32 = (1 << STREAM_BITS) - 1;

/// Bits of a sequence number.
const SEQUENCE_BITS: u32 = 40;
/// Highest sequence number before it wraps.
pub const SEQUENCE_MAX: u64 = (1 << SEQUENCE_BITS) - 1;

/// The sequence number that a stream's datagram has which shows `wire`, when `next` is expected: of all that
/// end in these bits the nearest. As QUIC's packet numbers (RFC 9000 appendix A.3), so that a stream may go on past
/// [`SEQUENCE_MAX`].
#[inline]
pub fn sequence_near(next: u64, wire: u64) -> u64 {
    const REST: u32 = u64::BITS - SEQUENCE_BITS;
    let ahead = (wire.wrapping_sub(next) << REST) as i64 >> REST;
    // Nothing is before the first.
    next.checked_add_signed(ahead).unwrap_or(wire)
}

/// Which stream a datagram belongs to, where in it, and when it was meant to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// Stream (or device) number within the run; 24 bits.
    pub stream: u32,
    /// Position in the stream, counted from 0; 40 bits of it are carried.
    pub sequence: u64,
    /// Intended send time in nanoseconds on the sender's clock.
    pub sent_ns: u64,
}

impl Signature {
    /// The signature of the frame whose innermost packet ends at `end`.
    #[inline]
    pub fn find(frame: &[u8], end: usize) -> Option<Self> {
        Self::parse(frame.get(place(end)?..end)?)
    }

    /// Read a signature from the start of `payload`; `None` when it is too short or not ours.
    #[inline]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = payload.first_chunk()?;
        let [c0, c1, s0, s1, s2, sequence @ .., t0, t1, t2, t3, t4, t5, t6, t7] = bytes;
        let (first, rest) = bytes.split_first_chunk::<8>()?;
        let (second, last) = rest.split_first_chunk::<8>()?;
        let unchecked = u64::from_be_bytes(*first) & (u64::MAX >> 16);
        let last = last.first_chunk().map_or(0, |last| u16::from_be_bytes(*last));
        let rest = Sum::ZERO.wide(unchecked).wide(u64::from_be_bytes(*second)).field(last);
        if u16::from_ne_bytes([*c0, *c1]) != check(rest.folded()) {
            return None;
        }
        let mut wide = [0u8; 8];
        wide[3..].copy_from_slice(sequence);
        Some(Self {
            stream: u32::from_be_bytes([0, *s0, *s1, *s2]),
            sequence: u64::from_be_bytes(wide),
            sent_ns: u64::from_be_bytes([*t0, *t1, *t2, *t3, *t4, *t5, *t6, *t7]),
        })
    }

    /// Write the signature over the first [`LEN`] bytes; its sum, for checksums that cover it.
    #[inline]
    pub fn emit(&self, out: &mut [u8; LEN]) -> Sum {
        // In as few and wide writes as it fits, and summed before it is written: reading back what was just
        // written in other pieces makes a CPU wait.
        let sequence = self.sequence & SEQUENCE_MAX;
        let first = u64::from(self.stream & STREAM_MAX) << 24 | sequence >> 16;
        let second = sequence << 48 | self.sent_ns >> 16;
        let last = self.sent_ns as u16;
        let rest = Sum::ZERO.wide(first).wide(second).field(last);
        let check = u16::from_be(check(rest.folded()));
        out[0..8].copy_from_slice(&(u64::from(check) << 48 | first).to_be_bytes());
        out[8..16].copy_from_slice(&second.to_be_bytes());
        out[16..18].copy_from_slice(&last.to_be_bytes());
        rest.field(check)
    }
}

/// A signature as it is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    first: u64,
    second: u64,
    last: u64,
}

impl Row {
    #[inline]
    pub(crate) fn bytes(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[0..8].copy_from_slice(&self.first.to_ne_bytes());
        out[8..16].copy_from_slice(&self.second.to_ne_bytes());
        out[16..18].copy_from_slice(&(self.last as u16).to_ne_bytes());
        out
    }
}

/// What [`Signature::emit`] makes, for several at once: the rows, and the sum of each in few enough bits for
/// [`complement`](crate::checksum::complement).
#[inline]
pub(crate) fn rows<const N: usize>(
    streams: &[u32; N],
    sequences: &[u64; N],
    sent_ns: &[u64; N],
) -> ([Row; N], [u64; N]) {
    let (mut rows, mut sums) = ([Row { first: 0, second: 0, last: 0 }; N], [0; N]);
    for ((((row, sum), stream), sequence), sent) in
        rows.iter_mut().zip(&mut sums).zip(streams).zip(sequences).zip(sent_ns)
    {
        let sequence = sequence & SEQUENCE_MAX;
        let first = (u64::from(stream & STREAM_MAX) << 24 | sequence >> 16).to_be();
        let second = (sequence << 48 | sent >> 16).to_be();
        let last = u64::from((*sent as u16).to_be());
        let rest = halves(first) + halves(second) + last;
        let check = check(rest as u32);
        *row = Row { first: first | (u64::from(u16::from_be(check)) << 48).to_be(), second, last };
        *sum = rest + u64::from(check);
    }
    (rows, sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read_back() {
        let signature = Signature { stream: 0xab_cdef, sequence: SEQUENCE_MAX - 1, sent_ns: u64::MAX - 7 };
        let mut bytes = [0u8; LEN];
        signature.emit(&mut bytes);
        assert_eq!(
            bytes[2..],
            [
                [0xab, 0xcd, 0xef].as_slice(),
                &[0xff, 0xff, 0xff, 0xff, 0xfe],
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf8],
            ]
            .concat()
        );
        assert_eq!(Signature::parse(&bytes), Some(signature));
    }

    #[test]
    fn a_stream_goes_on_past_the_bits_that_are_carried() {
        let wrap = SEQUENCE_MAX + 1;
        for next in [0, 5, wrap - 2, wrap, wrap + 1, 7 * wrap + 3] {
            for number in next.saturating_sub(2000)..next + 2000 {
                assert_eq!(sequence_near(next, number & SEQUENCE_MAX), number, "{next}");
            }
        }
        assert_eq!(sequence_near(5, SEQUENCE_MAX), SEQUENCE_MAX, "nothing is before the first");
    }

    #[test]
    fn all_zeros_and_all_ones_are_no_signature() {
        assert_eq!(Signature::parse(&[0; LEN]), None);
        assert_eq!(Signature::parse(&[0xff; LEN]), None);
        let mut bytes = [0u8; LEN];
        Signature { stream: 0, sequence: 0, sent_ns: 0 }.emit(&mut bytes);
        assert_eq!(bytes[..2], (!MAGIC).to_be_bytes());
        assert_eq!(Signature::parse(&bytes), Some(Signature { stream: 0, sequence: 0, sent_ns: 0 }));
    }

    proptest! {
        /// Whoever changes a bit may make the datagram's checksum right again: the signature is still none.
        #[test]
        fn no_bit_of_it_can_change_unseen(
            stream in 0..=STREAM_MAX, sequence in 0..=SEQUENCE_MAX, sent_ns: u64, bit in 0..8 * LEN,
        ) {
            let mut bytes = [0u8; LEN];
            let sum = Signature { stream, sequence, sent_ns }.emit(&mut bytes);
            prop_assert_eq!(sum.checksum(), crate::checksum::of(&bytes), "the sum that checksums go by");
            let (rows, sums) = rows(&[stream], &[sequence], &[sent_ns]);
            prop_assert_eq!(rows[0].bytes(), bytes);
            prop_assert_eq!(complement(sums[0] as u32).to_ne_bytes(), sum.checksum().to_be_bytes());
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Signature::parse(&bytes), None);
        }
    }

    #[test]
    fn short_or_foreign_payloads_are_not_ours() {
        let mut bytes = [0u8; LEN];
        assert_eq!(Signature::parse(&bytes), None);
        Signature { stream: 1, sequence: 2, sent_ns: 3 }.emit(&mut bytes);
        assert_eq!(Signature::parse(&bytes[..LEN - 1]), None);
        assert_eq!(Signature::parse(&[]), None);
    }
}
