//! Super-segments: many packets that the kernel handed over in one piece, and how part of one is made.
//!
//! A frame comes behind a virtio-net header (virtio 1.2 section 5.1.6), which says where its checksum is
//! still to be put and, if it stands for several packets, how much payload each has. A part of it is the same
//! headers, brought up to date, before a slice of the same payload; nothing of the payload is copied or
//! summed.

use packet::checksum;
use packet::ethernet::{self, kind};

/// Bytes of the virtio-net header as the kernel has it by default, without the field for merged buffers.
pub(crate) const VNET: usize = 10;
/// Longest Ethernet, IP and transport headers that are taken apart.
pub(crate) const HEADERS_MAX: usize = 256;

const NEEDS_CSUM: u8 = 1;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Places in the TCP header, and its flags (RFC 9293 section 3.1).
mod tcp {
    pub(super) const SEQUENCE: usize = 4;
    pub(super) const OFFSET: usize = 12;
    pub(super) const FLAGS: usize = 13;
    pub(super) const FIN: u8 = 0x01;
    pub(super) const PSH: u8 = 0x08;
    pub(super) const CWR: u8 = 0x80;
    pub(super) const LEN: usize = 20;
}

/// What carries the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    Tcp,
    Udp,
}

/// Lengths and header offsets of a frame, segmented or not. Made from its bytes; to be used with the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameLayout {
    /// Bytes of the frame, without the virtio-net header.
    pub(crate) len: u32,
    /// Packets on the wire.
    pub(crate) packets: u16,
    /// Bytes of headers, and of payload per packet but the last; of super-segments only.
    pub(crate) headers: u16,
    pub(crate) mss: u16,
    /// Where IP and transport headers begin, behind the virtio-net header.
    ip: u16,
    l4: u16,
    v6: bool,
    carrier: Carrier,
}

fn field(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|field| u16::from_be_bytes(*field))
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

/// A field of the virtio-net header, which is in the machine's byte order.
fn native(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|field| u16::from_ne_bytes(*field))
}

impl FrameLayout {
    /// The layout of a frame behind its virtio-net header. What cannot be taken apart counts as one packet.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let len = bytes.len().saturating_sub(VNET) as u32;
        let one =
            Self { len, packets: 1, headers: 0, mss: 0, ip: 0, l4: 0, v6: false, carrier: Carrier::Tcp };
        if bytes.get(1).is_none_or(|kind| *kind == 0) {
            return one;
        }
        Self::burst(bytes, len).unwrap_or(one)
    }

    fn burst(bytes: &[u8], len: u32) -> Option<Self> {
        let frame = bytes.get(VNET..)?;
        let (flags, gso) = (*bytes.first()?, *bytes.get(1)? & !GSO_ECN);
        let (mss, l4) = (native(bytes, 4)?, native(bytes, 6)?);
        let (mut ip, mut found) = (ethernet::LEN, field(frame, ethernet::LEN - 2)?);
        while (found == kind::VLAN || found == kind::QINQ) && ip <= ethernet::LEN + ethernet::TAG {
            found = field(frame, ip + 2)?;
            ip += ethernet::TAG;
        }
        let v6 = found == kind::IPV6;
        let (carrier, place) = match gso {
            GSO_TCP4 | GSO_TCP6 => (Carrier::Tcp, 16),
            GSO_UDP => (Carrier::Udp, 6),
            _ => return None,
        };
        let ours = match gso {
            GSO_TCP4 => found == kind::IPV4,
            GSO_TCP6 => v6,
            _ => v6 || found == kind::IPV4,
        };
        if !ours || flags & NEEDS_CSUM == 0 || native(bytes, 8)? != place || mss == 0 {
            return None;
        }
        let least = ip + if v6 { packet::ipv6::LEN } else { usize::from(*frame.get(ip)? & 0x0f) * 4 };
        let own = match carrier {
            Carrier::Tcp => usize::from(*frame.get(usize::from(l4) + tcp::OFFSET)? >> 4) * 4,
            Carrier::Udp => packet::udp::LEN,
        };
        let short = carrier == Carrier::Tcp && own < tcp::LEN;
        let headers = usize::from(l4) + own;
        if least > l4.into() || least < ip + 20 || short || headers > HEADERS_MAX || headers >= frame.len() {
            return None;
        }
        let packets = (frame.len() - headers).div_ceil(mss.into());
        Some(Self {
            len,
            packets: packets.try_into().ok()?,
            headers: headers as u16,
            mss,
            ip: ip as u16,
            l4,
            v6,
            carrier,
        })
    }

    /// Bytes of the frame of packet `at`.
    #[inline]
    pub(crate) fn frame_len(&self, at: u16) -> u32 {
        if self.packets == 1 {
            return self.len;
        }
        let before = u32::from(self.headers) + u32::from(at) * u32::from(self.mss);
        u32::from(self.headers) + u32::from(self.mss).min(self.len.saturating_sub(before))
    }

    /// Headers for `count` packets from `first` on, written to `out` with their virtio-net header: how many
    /// bytes that took, and where in `bytes` the payload is that follows. `None` for what is not to be taken
    /// apart.
    pub(crate) fn part(
        &self,
        bytes: &[u8],
        first: u16,
        count: u16,
        out: &mut [u8; VNET + HEADERS_MAX],
    ) -> Option<(usize, std::ops::Range<usize>)> {
        let (ip, l4, headers) = (usize::from(self.ip), usize::from(self.l4), usize::from(self.headers));
        let len = VNET + headers;
        if self.packets == 1 || first.checked_add(count)? > self.packets || count == 0 {
            return None;
        }
        let head = out.get_mut(..len)?;
        head.copy_from_slice(bytes.get(..len)?);
        let from = len + usize::from(first) * usize::from(self.mss);
        let to = (from + usize::from(count) * usize::from(self.mss)).min(bytes.len());
        let payload = to.checked_sub(from)?;
        if count == 1 {
            // One packet is no burst: gso_type none, gso_size 0.
            head.get_mut(1..2)?.fill(0);
            head.get_mut(4..6)?.fill(0);
        }
        let frame = head.get_mut(VNET..)?;
        let last = first + count == self.packets;
        if self.v6 {
            put(frame, ip + 4, (headers - ip - packet::ipv6::LEN + payload) as u16);
        } else {
            put(frame, ip + 2, (headers - ip + payload) as u16);
            let id = field(frame, ip + 4)?.wrapping_add(first);
            put(frame, ip + 4, id);
            put(frame, ip + 10, 0);
            let header = frame.get(ip..ip + usize::from(*frame.get(ip)? & 0x0f) * 4)?;
            let sum = checksum::of(header);
            put(frame, ip + 10, sum);
        }
        let place = match self.carrier {
            Carrier::Tcp => {
                let sequence = frame.get_mut(l4 + tcp::SEQUENCE..)?.first_chunk_mut()?;
                let skipped = u32::from(first) * u32::from(self.mss);
                *sequence = u32::from_be_bytes(*sequence).wrapping_add(skipped).to_be_bytes();
                let flags = frame.get_mut(l4 + tcp::FLAGS)?;
                // The first packet says that the window was reduced (RFC 3168 section 6.1.2), the last that
                // it is the last.
                *flags &= if first == 0 { !0 } else { !tcp::CWR };
                *flags &= if last { !0 } else { !(tcp::FIN | tcp::PSH) };
                l4 + 16
            }
            Carrier::Udp => {
                put(frame, l4 + 4, (packet::udp::LEN + payload) as u16);
                l4 + 6
            }
        };
        // Where the checksum will be is now the sum of the pseudo-header, in which the length changes.
        let old = (bytes.len() - VNET - l4) as u16;
        let new = (headers - l4 + payload) as u16;
        let sum = !checksum::update(!field(frame, place)?, old, new);
        put(frame, place, sum);
        Some((len, from..to))
    }
}

/// Put the checksum where the virtio-net header says, and say there that it is put. For single packets.
pub(crate) fn complete(bytes: &mut [u8]) {
    let Some((vnet, frame)) = bytes.split_first_chunk_mut::<VNET>() else { return };
    let wanted = vnet[0] & NEEDS_CSUM != 0;
    let (start, place) = (u16::from_ne_bytes([vnet[6], vnet[7]]), u16::from_ne_bytes([vnet[8], vnet[9]]));
    *vnet = [0; VNET];
    let (start, place) = (usize::from(start), usize::from(place));
    if !wanted || start + place + 2 > frame.len() {
        return;
    }
    // The sum of the pseudo-header stands in the field, so it is part of what is summed. A UDP checksum of
    // zero would mean that there is none (RFC 768).
    let sum = checksum::of(&frame[start..]);
    put(frame, start + place, if sum == 0 && place == 6 { 0xffff } else { sum });
}

#[cfg(test)]
pub(super) mod tests;
