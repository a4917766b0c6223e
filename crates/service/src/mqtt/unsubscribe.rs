//! UNSUBSCRIBE and UNSUBACK (sections 3.10 and 3.11), read and written.

use protocol::mqtt::Version;
use protocol::mqtt::wire::{Frame, MalformedPacket, begin, end};

/// Packet type.
pub(super) const UNSUBSCRIBE: u8 = 10;
const UNSUBACK: u8 = 11;

/// Its number and filters.
pub(super) fn unsubscribe<'a>(
    version: Version,
    frame: &Frame<'a>,
) -> Result<(u16, Vec<&'a str>), MalformedPacket> {
    let short = || MalformedPacket::Size("UNSUBSCRIBE");
    if frame.first & 15 != 2 {
        return Err(MalformedPacket::Flags("UNSUBSCRIBE"));
    }
    let (number, mut rest) = frame.body.split_first_chunk::<2>().ok_or_else(short)?;
    let number = u16::from_be_bytes(*number);
    if number == 0 {
        return Err(MalformedPacket::Id);
    }
    if version == Version::V5 {
        // user properties only, which say nothing to a broker
        let (mut length, mut shift) = (0usize, 0);
        loop {
            let (byte, after) = rest.split_first().ok_or_else(short)?;
            length |= usize::from(byte & 127) << shift;
            (rest, shift) = (after, shift + 7);
            match byte {
                0..=127 => break,
                _ if shift > 21 => return Err(MalformedPacket::Length),
                _ => {}
            }
        }
        rest = rest.get(length..).ok_or_else(short)?;
    }
    let mut filters = Vec::new();
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<2>().ok_or_else(short)?;
        let (text, after) = after.split_at_checked(u16::from_be_bytes(*length).into()).ok_or_else(short)?;
        filters.push(std::str::from_utf8(text).map_err(|_| MalformedPacket::Text)?);
        rest = after;
    }
    // section 3.10.3: at least one
    if filters.is_empty() { Err(short()) } else { Ok((number, filters)) }
}

/// Append UNSUBACK.
pub(super) fn acknowledge(version: Version, number: u16, codes: &[u8], out: &mut Vec<u8>) {
    let start = begin(out, UNSUBACK << 4);
    out.extend_from_slice(&number.to_be_bytes());
    if version == Version::V5 {
        out.push(0);
        out.extend_from_slice(codes);
    }
    end(out, start);
}
