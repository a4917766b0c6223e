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
//! a constant: any single changed bit makes it invalid, also where the datagram's checksum was updated for the change.

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
    #[inline(always)] // A signature goes in registers, if it need not be handed on.
    pub fn find(frame: &[u8], end: usize) -> Option<Self> {
        Self::read(frame.get(..end)?.get(place(end)?..)?.first_chunk()?)
    }

    /// Read a signature from the start of `payload`; `None` when it is too short or not ours.
    #[inline]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        Self::read(payload.first_chunk()?)
    }

    #[inline(always)]
    fn read(bytes: &[u8; LEN]) -> Option<Self> {
        let [first @ .., _, _, _, _, _, _, _, _, _, _] = bytes;
        let [_, _, _, _, _, _, _, _, second @ .., _, _] = bytes;
        let [.., l0, l1] = bytes;
        let (first, second) = (u64::from_be_bytes(*first), u64::from_be_bytes(*second));
        let last = u16::from_be_bytes([*l0, *l1]);
        let (wire, unchecked) = ((first >> 48) as u16, first & (u64::MAX >> 16));
        let rest = Sum::ZERO.wide(unchecked).wide(second).field(last);
        // What `check` makes of the rest: the one's complement of its sum. Of the two zeros that has, the one that is made.
        let zeros = wire ^ MAGIC;
        if !rest.field(zeros).is_right() || zeros == 0xffff && rest != Sum::ZERO {
            return None;
        }
        Some(Self {
            stream: (unchecked >> 24) as u32,
            sequence: (unchecked & 0xff_ffff) << 16 | second >> 48,
            sent_ns: second << 16 | u64::from(last),
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

/// Several signatures as they are written, part by part: each is computed for all of them, and written from where it was
/// computed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<const N: usize> {
    first: [u64; N],
    second: [u64; N],
    last: [u64; N],
    /// The sum of each, in few enough bits for [`complement`](crate::checksum::complement).
    pub sums: [u64; N],
}

impl<const N: usize> Rows<N> {
    pub(crate) const NONE: Self = Self { first: [0; N], second: [0; N], last: [0; N], sums: [0; N] };

    /// Make of each what [`Signature::emit`] does.
    #[inline]
    pub(crate) fn fill(&mut self, streams: &[u32; N], sequences: &[u64; N], sent_ns: &[u64; N]) {
        let parts = self.first.iter_mut().zip(&mut self.second).zip(&mut self.last).zip(&mut self.sums);
        for ((((first, second), last), sum), ((stream, sequence), sent)) in
            parts.zip(streams.iter().zip(sequences).zip(sent_ns))
        {
            let sequence = sequence & SEQUENCE_MAX;
            *first = (u64::from(stream & STREAM_MAX) << 24 | sequence >> 16).to_be();
            *second = (sequence << 48 | sent >> 16).to_be();
            *last = u64::from((*sent as u16).to_be());
            let rest = halves(*first) + halves(*second) + *last;
            let check = check(rest as u32);
            *first |= (u64::from(u16::from_be(check)) << 48).to_be();
            *sum = rest + u64::from(check);
        }
    }

    /// Each of them, with its sum.
    #[inline]
    pub(crate) fn iter(&mut self) -> impl Iterator<Item = (Row, &mut u64)> {
        let parts = self.first.iter().zip(&self.second).zip(&self.last).zip(&mut self.sums);
        parts.map(|(((first, second), last), sum)| {
            (Row { first: *first, second: *second, last: *last as u16 }, sum)
        })
    }
}

/// A signature in the parts in which it is written: put together before, it would be read back in others.
pub(crate) struct Row {
    first: u64,
    second: u64,
    last: u16,
}

impl Row {
    #[inline]
    pub(crate) fn write(&self, out: &mut [u8; LEN]) {
        out[0..8].copy_from_slice(&self.first.to_ne_bytes());
        out[8..16].copy_from_slice(&self.second.to_ne_bytes());
        out[16..18].copy_from_slice(&self.last.to_ne_bytes());
    }
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
        /// A changed bit is found even where the datagram's checksum was updated for it.
        #[test]
        fn no_bit_of_it_can_change_unseen(
            stream in 0..=STREAM_MAX, sequence in 0..=SEQUENCE_MAX, sent_ns: u64, bit in 0..8 * LEN,
        ) {
            let mut bytes = [0u8; LEN];
            let sum = Signature { stream, sequence, sent_ns }.emit(&mut bytes);
            prop_assert_eq!(sum.checksum(), crate::checksum::of(&bytes), "the sum that checksums go by");
            let mut rows = Rows::NONE;
            rows.fill(&[stream], &[sequence], &[sent_ns]);
            let mut written = [0u8; LEN];
            rows.iter().for_each(|(row, _)| row.write(&mut written));
            prop_assert_eq!(written, bytes);
            prop_assert_eq!(complement(rows.sums[0] as u32).to_ne_bytes(), sum.checksum().to_be_bytes());
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
