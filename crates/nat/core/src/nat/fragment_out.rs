//! Packets longer than the next link takes, without DF: sent in fragments (RFC 791 section 3.2, RFC 4787 REQ-13 a), all or none.

use super::Nat;
use super::icmp_reply::Error;
use super::slow_path_packet::SlowPathPacket;
use crate::headers::Headers;
use crate::outbox::{Outbox, Slot};
use crate::reason::Reason;
use crate::verdict::{Forward, Side, StopReason};
use packet::checksum;

/// Bytes of an IP header with all options.
const MOST_HEADER: usize = 60;
const BARE: usize = 20;
/// Flags and offset of a piece, in units of 8 bytes.
const MORE: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// A header, and how long it is.
#[derive(Debug, Clone, Copy)]
struct Head {
    bytes: [u8; MOST_HEADER],
    len: usize,
}

impl Head {
    /// That of a packet.
    fn of(packet: &[u8]) -> Option<Self> {
        let len = usize::from(packet.first()? & 0x0f) * 4;
        let mut bytes = [0; MOST_HEADER];
        bytes.get_mut(..len).filter(|_| len >= BARE)?.copy_from_slice(packet.get(..len)?);
        Some(Self { bytes, len })
    }

    /// That of pieces after the first: with those options only that are copied.
    fn later(&self) -> Option<Self> {
        const COPIED: u8 = 0x80;
        let mut head = Self { bytes: [0; MOST_HEADER], len: BARE };
        head.bytes[..BARE].copy_from_slice(&self.bytes[..BARE]);
        let mut options = self.bytes.get(BARE..self.len)?;
        while let Some(kind) = options.first().filter(|kind| **kind != 0) {
            let length = if *kind == 1 { 1 } else { usize::from(*options.get(1)?) };
            let option = options.get(..length).filter(|option| !option.is_empty())?;
            if kind & COPIED != 0 {
                head.bytes.get_mut(head.len..head.len + length)?.copy_from_slice(option);
                head.len += length;
            }
            options = options.get(length..)?;
        }
        // What fills up the last word ends the list.
        head.len = head.len.next_multiple_of(4);
        head.bytes[0] = 0x40 | (head.len / 4) as u8;
        Some(head)
    }

    /// With the length, flags and offset of a piece.
    fn piece(&self, payload: usize, place: u16) -> Self {
        let mut piece = *self;
        let bytes = &mut piece.bytes;
        bytes[2..4].copy_from_slice(&((self.len + payload) as u16).to_be_bytes());
        bytes[6..8].copy_from_slice(&place.to_be_bytes());
        bytes[10..12].fill(0);
        let sum = checksum::of(&bytes[..self.len]).to_be_bytes();
        bytes[10..12].copy_from_slice(&sum);
        piece
    }
}

/// Send a packet, from its IP header on, in pieces of at most `mtu` bytes.
pub(super) fn fragment(
    packet: &[u8],
    mtu: usize,
    forward: Forward,
    outbox: &mut Outbox,
) -> Result<(), Reason> {
    let first = Head::of(packet).ok_or(Reason::Malformed)?;
    let later = first.later().ok_or(Reason::Malformed)?;
    let payload = packet.get(first.len..).ok_or(Reason::Truncated)?;
    let place = u16::from_be_bytes([first.bytes[6], first.bytes[7]]);
    // All but the last end at a multiple of 8 bytes.
    let room = |head: &Head| mtu.min(outbox.longest()).saturating_sub(head.len) & !7;
    let (of_first, of_later) = (room(&first), room(&later));
    if of_first == 0 || of_later == 0 {
        return Err(Reason::TooBig);
    }
    let (here, rest) = payload.split_at_checked(of_first).unwrap_or((payload, &[]));
    let count = 1 + rest.len().div_ceil(of_later);
    if outbox.room() < count {
        return Err(Reason::FragmentsFull);
    }
    let mut offset = usize::from(place & OFFSET);
    let pieces = std::iter::once((&first, here)).chain(rest.chunks(of_later).map(|part| (&later, part)));
    for (number, (head, part)) in pieces.enumerate() {
        let more = if number + 1 < count { MORE } else { place & MORE };
        let piece = head.piece(part.len(), more | offset as u16 & OFFSET);
        if let Some(slot) = outbox.keep_parts(&[&piece.bytes[..piece.len], part]) {
            outbox.send(slot, forward);
        }
        offset += part.len() / 8;
    }
    Ok(())
}

impl Nat {
    /// The largest IP packet that a side's link takes.
    #[inline]
    pub(crate) fn mtu(&self, to: Side) -> u16 {
        match to {
            Side::Inside => self.config.mtu.inside,
            Side::Outside => self.config.mtu.outside,
        }
    }

    /// Whether the link that a packet goes to takes it as it is; if not, and it may not be cut, its sender is told (RFC 4787 REQ-13,
    /// RFC 1191 section 4).
    pub(crate) fn check_mtu(
        &mut self,
        side: Side,
        to: Side,
        frame: &[u8],
        way: &SlowPathPacket,
    ) -> Result<(), StopReason> {
        let mtu = self.mtu(to);
        if way.headers.len() > u64::from(mtu) && is_whole(frame, &way.headers) {
            if way.hop {
                self.report(side, frame, &way.headers, Error::TooBig(mtu), way.now);
            }
            return Err(Reason::TooBig.into());
        }
        Ok(())
    }

    /// A translated packet goes on: as it is, or in pieces.
    pub(crate) fn send_on(
        &mut self,
        frame: &[u8],
        headers: &Headers,
        forward: Forward,
    ) -> Result<Forward, StopReason> {
        let mtu = self.mtu(forward.to);
        if headers.len() <= u64::from(mtu) {
            return Ok(forward);
        }
        if is_whole(frame, headers) {
            return Err(Reason::TooBig.into());
        }
        let packet = frame.get(headers.l3.into()..headers.end.into()).ok_or(Reason::Truncated)?;
        fragment(packet, mtu.into(), forward, &mut self.outbox)?;
        Err(StopReason::Sent(forward))
    }

    /// The same of a piece that was held.
    pub(super) fn send_held(&mut self, slot: Slot, forward: Forward) -> Result<(), Reason> {
        let mtu = usize::from(self.mtu(forward.to));
        if self.outbox.get_mut(slot).len() <= mtu {
            self.outbox.send(slot, forward);
            return Ok(());
        }
        let mut packet = self.outbox.take_out(slot);
        let whole = packet.get(6).is_some_and(|flags| flags & 0x40 != 0);
        let sent =
            if whole { Err(Reason::TooBig) } else { fragment(&packet, mtu, forward, &mut self.outbox) };
        packet.clear();
        self.outbox.give_scratch(packet);
        sent
    }
}

/// Whether a packet must not be cut: its DF is set.
fn is_whole(frame: &[u8], headers: &Headers) -> bool {
    frame.get(usize::from(headers.l3) + 6).is_some_and(|flags| flags & 0x40 != 0)
}

#[cfg(test)]
#[path = "fragment_out_tests.rs"]
mod tests;
