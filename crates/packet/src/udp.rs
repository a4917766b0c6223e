//! UDP (RFC 768).
//!
//! ```text
//!  0             2                  4        6          8
//!  | source port | destination port | length | checksum |
//! ```

use crate::layers::{Fault, Layers, protocol};
use crate::{checksum, take, take_mut};

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
    /// The datagram in `frame`, whose headers `layers` were found before. Length and checksum are checked;
    /// over IPv4 a checksum of zero means that there is none.
    #[inline]
    pub fn parse(frame: &'a [u8], layers: &Layers) -> Result<Self, Fault> {
        if layers.protocol != protocol::UDP {
            return Err(Fault::NotUdp);
        }
        let segment = layers.segment(frame);
        let [s0, s1, d0, d1, l0, l1, c0, c1] = *take::<LEN>(segment, 0).ok_or(Fault::Truncated)?;
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let datagram = match segment.get(..length) {
            Some(datagram) if length >= LEN => datagram,
            _ => return Err(Fault::BadLength),
        };
        if [c0, c1] == [0, 0] {
            // RFC 8200 section 8.1: receivers discard such datagrams.
            if layers.is_v6() {
                return Err(Fault::BadChecksum);
            }
        } else {
            let pseudo = checksum::pseudo_header(layers.addresses(frame), protocol::UDP, length as u32);
            if pseudo.plus(checksum::Sum::ZERO.bytes(datagram)).checksum() != 0 {
                return Err(Fault::BadChecksum);
            }
        }
        let (source, destination) = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
        Ok(Self { source, destination, payload: &datagram[LEN..] })
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
