//! TCP headers and their options (RFC 9293 section 3.1, RFC 7323, RFC 2018).
//!
//! ```text
//!  0             2                  4          8                12             14       16         18      20
//!  | source port | destination port | sequence | acknowledgment | offset,flags | window | checksum | urgent | options
//! ```

use crate::bytes::take;

/// Large frames of TCP that a port segments (TSO).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TsoLimits {
    /// Whether it segments those over IPv6, too.
    pub v6: bool,
    /// The longest frame that it takes, bytes without FCS.
    pub longest: usize,
    /// The longest frame that it makes of one.
    pub longest_segment: usize,
}

/// Bytes in the header without options.
pub const LEN: usize = 20;
/// Most bytes of options.
pub const OPTIONS_MAX: usize = 40;
/// Most SACK blocks that one header has room for.
pub const SACKS: usize = 4;

/// Control bits.
pub mod flag {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronize sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment field is significant.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer is significant.
    pub const URG: u8 = 0x20;
}

/// Numbers of options.
mod option {
    pub const END: u8 = 0;
    pub const NOP: u8 = 1;
    pub const MSS: u8 = 2;
    pub const WINDOW_SCALE: u8 = 3;
    pub const SACK_PERMITTED: u8 = 4;
    pub const SACK: u8 = 5;
    pub const TIMESTAMPS: u8 = 8;
}

/// Options of a header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size; in a SYN.
    pub mss: Option<u16>,
    /// Shift of the window field; in a SYN.
    pub window_scale: Option<u8>,
    /// Whether selective acknowledgments may be sent; in a SYN.
    pub sack_permitted: bool,
    /// Timestamp value and echo reply.
    pub timestamps: Option<(u32, u32)>,
    /// Left and right edges of blocks that were received out of order; the first [`sacks`](Self::sacks) count.
    pub sack: [(u32, u32); SACKS],
    /// How many SACK blocks there are.
    pub sacks: u8,
}

impl Options {
    /// The SACK blocks.
    #[inline]
    pub fn blocks(&self) -> &[(u32, u32)] {
        &self.sack[..usize::from(self.sacks).min(SACKS)]
    }

    /// Bytes that they take, padded to words.
    #[inline]
    pub fn len(&self) -> usize {
        let sacks = self.blocks().len();
        let mss = if self.mss.is_some() { 4 } else { 0 };
        let scale = if self.window_scale.is_some() { 4 } else { 0 };
        let permitted = if self.sack_permitted { 4 } else { 0 };
        let timestamps = if self.timestamps.is_some() { 12 } else { 0 };
        mss + scale + permitted + timestamps + if sacks > 0 { 4 + 8 * sacks } else { 0 }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Options that stand in `bytes`. One that is malformed ends them; those that are not known here are passed over.
    pub fn parse(mut bytes: &[u8]) -> Self {
        let mut options = Self::default();
        while let Some((kind, rest)) = bytes.split_first() {
            match *kind {
                option::END => break,
                option::NOP => bytes = rest,
                kind => {
                    let len = rest.first().map_or(0, |len| usize::from(*len));
                    let Some((whole, rest)) = bytes.split_at_checked(len).filter(|_| len >= 2) else { break };
                    options.take(kind, &whole[2..]);
                    bytes = rest;
                }
            }
        }
        options
    }

    fn take(&mut self, kind: u8, value: &[u8]) {
        let long = |at: usize| take::<4>(value, at).map(|four| u32::from_be_bytes(*four));
        match (kind, value.len()) {
            (option::MSS, 2) => self.mss = take::<2>(value, 0).map(|two| u16::from_be_bytes(*two)),
            // RFC 7323 section 2.3: more than 14 is taken as 14
            (option::WINDOW_SCALE, 1) => self.window_scale = value.first().map(|shift| (*shift).min(14)),
            (option::SACK_PERMITTED, 0) => self.sack_permitted = true,
            (option::TIMESTAMPS, 8) => self.timestamps = long(0).zip(long(4)),
            (option::SACK, len) if len.is_multiple_of(8) => {
                for at in (0..len).step_by(8).take(SACKS) {
                    if let Some(block) = long(at).zip(long(at + 4)) {
                        self.sack[usize::from(self.sacks) % SACKS] = block;
                        self.sacks = (self.sacks + 1).min(SACKS as u8);
                    }
                }
            }
            _ => {}
        }
    }

    /// Write them to the start of `out`, which has room for [`len`](Self::len).
    #[inline]
    fn emit(&self, out: &mut [u8]) {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            if let Some(place) = out.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
            at += bytes.len();
        };
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            put(&[option::MSS, 4, high, low]);
        }
        if self.sack_permitted {
            put(&[option::NOP, option::NOP, option::SACK_PERMITTED, 2]);
        }
        if let Some((value, echo)) = self.timestamps {
            put(&[option::NOP, option::NOP, option::TIMESTAMPS, 10]);
            put(&value.to_be_bytes());
            put(&echo.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            put(&[option::NOP, option::WINDOW_SCALE, 3, shift]);
        }
        let blocks = self.blocks();
        if !blocks.is_empty() {
            put(&[option::NOP, option::NOP, option::SACK, 2 + 8 * blocks.len() as u8]);
            for (left, right) in blocks {
                put(&left.to_be_bytes());
                put(&right.to_be_bytes());
            }
        }
    }
}

/// A TCP header. The checksum is checked and made by whoever has the IP header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    /// From which port.
    pub source: u16,
    /// To which port.
    pub destination: u16,
    /// Sequence number of the first byte, or of SYN.
    pub sequence: u32,
    /// The next sequence number that the sender expects.
    pub acknowledgment: u32,
    /// Control bits, see [`flag`].
    pub flags: u8,
    /// Receive window, not shifted.
    pub window: u16,
    /// Options.
    pub options: Options,
}

impl Header {
    /// Header and payload of a segment. `None`: it ends within the header, or its offset cannot be.
    #[inline]
    pub fn parse(segment: &[u8]) -> Option<(Self, &[u8])> {
        let fixed: &[u8; LEN] = take(segment, 0)?;
        let word = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let long = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let offset = usize::from(fixed[12] >> 4) * 4;
        let options = segment.get(LEN..offset)?;
        let header = Self {
            source: word(0),
            destination: word(2),
            sequence: long(4),
            acknowledgment: long(8),
            flags: fixed[13],
            window: word(14),
            options: if options.is_empty() { Options::default() } else { Options::parse(options) },
        };
        Some((header, &segment[offset..]))
    }

    /// Whether a control bit is set.
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Bytes that it takes.
    #[inline]
    pub fn size(&self) -> usize {
        LEN + self.options.len()
    }

    /// Write it to the start of `out`, its checksum zero. False, and nothing changed, without room.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> bool {
        let len = self.size();
        let Some(out) = out.get_mut(..len).filter(|_| len <= LEN + OPTIONS_MAX) else { return false };
        out[0..2].copy_from_slice(&self.source.to_be_bytes());
        out[2..4].copy_from_slice(&self.destination.to_be_bytes());
        out[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        out[8..12].copy_from_slice(&self.acknowledgment.to_be_bytes());
        out[12] = (len as u8 / 4) << 4;
        out[13] = self.flags;
        out[14..16].copy_from_slice(&self.window.to_be_bytes());
        out[16..20].fill(0);
        self.options.emit(&mut out[LEN..]);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{TcpHeader, TcpOptionElement};
    use proptest::prelude::*;

    #[test]
    fn others_read_what_is_written() {
        let options = Options {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some((5, 6)),
            ..Options::default()
        };
        let header = Header {
            source: 1,
            destination: 2,
            sequence: 3,
            acknowledgment: 4,
            flags: flag::SYN | flag::ACK,
            window: 512,
            options,
        };
        let mut bytes = [0xaa; 64];
        assert!(header.emit(&mut bytes));
        let (judge, rest) = TcpHeader::from_slice(&bytes).expect("a header");
        assert_eq!(rest.len(), 64 - header.size());
        assert_eq!((judge.source_port, judge.destination_port), (1, 2));
        assert_eq!((judge.sequence_number, judge.acknowledgment_number, judge.window_size), (3, 4, 512));
        assert!(judge.syn && judge.ack && !judge.fin && !judge.rst);
        let elements: Vec<_> = judge.options_iterator().map(|one| one.expect("an option")).collect();
        assert!(elements.contains(&TcpOptionElement::MaximumSegmentSize(1460)));
        assert!(elements.contains(&TcpOptionElement::WindowScale(7)));
        assert!(elements.contains(&TcpOptionElement::SelectiveAcknowledgementPermitted));
        assert!(elements.contains(&TcpOptionElement::Timestamp(5, 6)));
        for len in 0..header.size() {
            assert!(!header.emit(&mut [0; 64][..len]));
        }
    }

    #[test]
    fn malformed_options_end_the_list() {
        let of = |bytes: &[u8]| Options::parse(bytes);
        assert_eq!(of(&[2, 4, 5, 180, 3, 0, 4, 2]), Options { mss: Some(1460), ..Options::default() });
        assert_eq!(of(&[2, 4, 5]), Options::default());
        assert_eq!(of(&[2, 3, 5, 4, 2]), Options { sack_permitted: true, ..Options::default() });
        assert_eq!(of(&[0, 4, 2]), Options::default());
        assert_eq!(of(&[30, 3, 9, 3, 3, 200]).window_scale, Some(14));
        assert_eq!(of(&[1, 1, 5]), Options::default());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            fields in any::<(u16, u16, u32, u32, u8, u16)>(),
            timestamps in any::<Option<(u32, u32)>>(),
            sacks in proptest::collection::vec(any::<(u32, u32)>(), 0..=3),
            payload in proptest::collection::vec(any::<u8>(), 0..9),
        ) {
            let mut options = Options { timestamps, sacks: sacks.len() as u8, ..Options::default() };
            options.sack[..sacks.len()].copy_from_slice(&sacks);
            let (source, destination, sequence, acknowledgment, flags, window) = fields;
            let header = Header { source, destination, sequence, acknowledgment, flags, window, options };
            let mut bytes = vec![0xaa; header.size()];
            prop_assert!(header.emit(&mut bytes));
            bytes.extend_from_slice(&payload);
            prop_assert_eq!(Header::parse(&bytes), Some((header, &payload[..])));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _any = Header::parse(&bytes);
        }
    }
}
