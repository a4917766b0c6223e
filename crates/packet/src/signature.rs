//! The mark every measured datagram carries: over sockets in the first 18 bytes of its payload, in frames of our
//! own in the last 18, see [`place`].
//!
//! 18 bytes is all a 64-byte Ethernet frame leaves for the payload of UDP over IPv4
//! (64 − 14 Ethernet − 20 IPv4 − 8 UDP − 4 FCS), so the smallest frame can still be measured.
//!
//! ```text
//!  0       2       4                       10                              18
//!  | magic | stream| sequence (48 bits)    | intended send time, ns        |     big endian
//! ```
//! It sits in the payload, not in a header, so it survives NAT and routers; at the end of a frame it also stays
//! where it is when tunnels are added or taken away on the way.

use crate::checksum::{Sum, halves};

/// Bytes a signature takes.
pub const LEN: usize = 18;

/// Where the signature begins in a frame whose innermost packet ends at `end`: as late as it fits at an even
/// place, as checksums see pairs.
#[inline]
pub fn place(end: usize) -> Option<usize> {
    end.checked_sub(LEN).map(|at| at & !1)
}

const MAGIC: u16 = 0x6e64; // "nd"

/// Highest sequence number before it wraps.
pub const SEQUENCE_MAX: u64 = (1 << 48) - 1;

/// Which stream a datagram belongs to, where in it, and when it was meant to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// Stream (or device) number within the run.
    pub stream: u16,
    /// Position in the stream, counted from 0; 48 bits.
    pub sequence: u64,
    /// Intended send time in nanoseconds on the sender's clock.
    pub sent_ns: u64,
}

impl Signature {
    /// Read a signature from the start of `payload`; `None` when it is too short or not ours.
    #[inline]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = payload.first_chunk()?;
        let [m0, m1, s0, s1, sequence @ .., t0, t1, t2, t3, t4, t5, t6, t7] = bytes;
        if u16::from_be_bytes([*m0, *m1]) != MAGIC {
            return None;
        }
        let mut wide = [0u8; 8];
        wide[2..].copy_from_slice(sequence);
        Some(Self {
            stream: u16::from_be_bytes([*s0, *s1]),
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
        let first = u64::from(MAGIC) << 48 | u64::from(self.stream) << 32 | sequence >> 16;
        let second = sequence << 48 | self.sent_ns >> 16;
        let last = self.sent_ns as u16;
        out[0..8].copy_from_slice(&first.to_be_bytes());
        out[8..16].copy_from_slice(&second.to_be_bytes());
        out[16..18].copy_from_slice(&last.to_be_bytes());
        Sum::ZERO.wide(first).plus(Sum::ZERO.wide(second)).field(last)
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
    streams: &[u16; N],
    sequences: &[u64; N],
    sent_ns: &[u64; N],
) -> ([Row; N], [u64; N]) {
    let (mut rows, mut sums) = ([Row { first: 0, second: 0, last: 0 }; N], [0; N]);
    for ((((row, sum), stream), sequence), sent) in
        rows.iter_mut().zip(&mut sums).zip(streams).zip(sequences).zip(sent_ns)
    {
        let sequence = sequence & SEQUENCE_MAX;
        let first = (u64::from(MAGIC) << 48 | u64::from(*stream) << 32 | sequence >> 16).to_be();
        let second = (sequence << 48 | sent >> 16).to_be();
        let last = u64::from((*sent as u16).to_be());
        *row = Row { first, second, last };
        *sum = halves(first) + halves(second) + last;
    }
    (rows, sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let signature = Signature { stream: 0xabcd, sequence: SEQUENCE_MAX - 1, sent_ns: u64::MAX - 7 };
        let mut bytes = [0u8; LEN];
        signature.emit(&mut bytes);
        assert_eq!(&bytes[..4], &[0x6e, 0x64, 0xab, 0xcd]);
        assert_eq!(Signature::parse(&bytes), Some(signature));
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
