//! UDP (RFC 768).
//!
//! ```text
//!  0             2                  4        6          8
//!  | source port | destination port | length | checksum |
//! ```

use crate::bytes::{take, take_mut};
use crate::layers::{Fault, Layers, protocol};
use crate::{checksum, ethernet, ipv4};

/// Bytes in the header.
pub const LEN: usize = 8;

/// A UDP datagram that was found to be whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// From which port.
    pub source: u16,
    /// To which port.
    pub destination: u16,
    /// What it carries.
    pub payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// What [`Layers::find`] and [`Datagram::parse`] say of a frame that is what nearly all are: without tags and
    /// options, its IPv4 packet one datagram with right checksums. `None`: ask those two.
    #[inline(always)] // Returned through memory, what it found would cost as much again as finding it.
    pub fn plain(frame: &'a [u8]) -> Option<(Self, Layers)> {
        const UDP: usize = ethernet::LEN + ipv4::LEN;
        let head: &[u8; UDP + LEN] = frame.first_chunk()?;
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let double = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        // Ethernet's type; version and header length.
        if double(12) & 0xffff_ff00 != 0x0800_4500 {
            return None;
        }
        // Fragments; protocol.
        if double(20) & 0x3fff_00ff != u32::from(protocol::UDP) {
            return None;
        }
        let (length, checksum) = (word(38), word(40));
        let end = ethernet::LEN + usize::from(word(16));
        let datagram = frame.get(UDP..end)?;
        let payload = datagram.get(LEN..)?;
        if datagram.len() != usize::from(length) || checksum == 0 {
            return None;
        }
        let header = checksum::Sum::ZERO.bytes(&head[ethernet::LEN..UDP]);
        let pseudo = checksum::pseudo_header(&head[26..34], protocol::UDP, u32::from(length));
        if !header.is_right() || !pseudo.bytes(datagram).is_right() {
            return None;
        }
        let layers = Layers::plain(ethernet::LEN, UDP, end);
        Some((Self { source: word(34), destination: word(36), payload }, layers))
    }

    /// The datagram in `frame`, whose headers `layers` were found before. Length and checksum are checked;
    /// over IPv4 a checksum of zero means that there is none.
    #[inline]
    pub fn parse(frame: &'a [u8], layers: &Layers) -> Result<Self, Fault> {
        let datagram = Self::trusted(frame, layers)?;
        let checksum = take::<2>(frame, layers.l4 + 6).ok_or(Fault::Truncated)?;
        if *checksum == [0, 0] {
            // RFC 8200 section 8.1: receivers discard such datagrams.
            if layers.is_v6() {
                return Err(Fault::BadChecksum);
            }
        } else {
            let length = LEN + datagram.payload.len();
            let pseudo = checksum::pseudo_header(layers.addresses(frame), protocol::UDP, length as u32);
            let whole = frame.get(layers.l4..layers.l4 + length).unwrap_or(&[]);
            if pseudo.plus(checksum::Sum::ZERO.bytes(whole)).checksum() != 0 {
                return Err(Fault::BadChecksum);
            }
        }
        Ok(datagram)
    }

    /// The same where the port validated the checksum: only the length is checked.
    #[inline]
    pub fn trusted(frame: &'a [u8], layers: &Layers) -> Result<Self, Fault> {
        if layers.protocol != protocol::UDP {
            return Err(Fault::NotUdp);
        }
        let segment = layers.segment(frame);
        let [s0, s1, d0, d1, l0, l1, _, _] = *take::<LEN>(segment, 0).ok_or(Fault::Truncated)?;
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let payload = segment.get(LEN..length).ok_or(Fault::BadLength)?;
        Ok(Self { source: u16::from_be_bytes([s0, s1]), destination: u16::from_be_bytes([d0, d1]), payload })
    }
}

/// Swap source and destination port of the header at `at`; the checksum stays right.
#[inline]
pub fn swap(frame: &mut [u8], at: usize) {
    if let Some([s0, s1, d0, d1]) = take_mut::<4>(frame, at) {
        std::mem::swap(s0, d0);
        std::mem::swap(s1, d1);
    }
}
