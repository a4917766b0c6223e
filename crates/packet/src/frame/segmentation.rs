//! TCP segmentation: frames that carry more than a packet may leave as several, as ports with TSO send them.
//!
//! Every packet has the frame's headers, brought up to date: lengths, checksums, the sequence number of its first byte, an
//! IPv4 identification of its own; FIN and PSH are the last one's.

use super::carried::Carried;
use super::error::FrameError;
use super::headers::{self, Placed};
use super::layer::Layer;
use super::recipe::Recipe;
use super::select::Selected;
use crate::bytes::take_mut;
use crate::checksum;
use crate::ipv6;
use crate::layers::protocol;
use std::ops::RangeInclusive;

/// What a packet may carry at least and at most, bytes.
pub(super) const SEGMENT: RangeInclusive<u16> = 64..=16_000;
/// The longest frame that is segmented, without FCS: with tags it still fits IP's length and a driver's.
pub(super) const LONGEST: usize = 65_000;
/// The smallest packet, without FCS.
const SHORTEST: usize = 60;
const TCP: usize = 20;

/// Places in the TCP header, and its flags (RFC 9293 section 3.1).
const SEQUENCE: usize = 4;
const FLAGS: usize = 13;
const CHECKSUM: usize = 16;
const FIN_PSH: u8 = 0x09;

/// How frames are segmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segmentation {
    /// Where the headers are.
    pub carried: Carried,
    /// Most payload of a packet, bytes.
    pub segment: u16,
    /// Bytes of a frame, without FCS.
    len: usize,
}

/// The layer that says how much a packet may carry, and how much that is.
pub(super) fn segmenting_layer<'a, 'b>(placed: &'b [Placed<'a>]) -> Option<(&'b Placed<'a>, u16)> {
    placed.iter().find_map(|one| match one.layer {
        Layer::Tcp(tcp) => Some((one, tcp.segment?)),
        _ => None,
    })
}

/// Bytes of the longest packet that leaves of frames with `size` bytes, both without FCS.
pub fn longest_packet(layers: &[Layer], size: usize) -> usize {
    let placed = headers::place(layers).unwrap_or_default();
    segmenting_layer(&placed).map_or(size, |(tcp, segment)| size.min(tcp.at + TCP + usize::from(segment)))
}

impl Segmentation {
    /// As the layers ask for; or why that cannot be. `carried`: the headers, where a port can offload their checksums.
    pub(super) fn of(
        recipe: &Recipe<'_>,
        placed: &[Placed<'_>],
        selected: &[Selected],
        carried: Option<Carried>,
    ) -> Result<Option<Self>, FrameError> {
        let Some((layer, segment)) = segmenting_layer(placed) else { return Ok(None) };
        let at = format!("{}.segment", layer.name);
        let error = |what: String, fix| Err(FrameError::new(&at, what, fix));
        let Some(carried) = carried else {
            let what =
                "only TCP in the outermost IP, right behind Ethernet and its tags, is segmented".to_owned();
            return error(what, "Leave segment out, or what is around and what overrides the headers");
        };
        if !SEGMENT.contains(&segment) {
            return error(format!("no segment carries {segment} bytes"), "Use 64 to 16000, such as 1460");
        }
        if recipe.measured {
            let what = "not every packet of a segmented frame would have a signature".to_owned();
            return error(what, "Write \"measured\": false beside layers, or leave segment out");
        }
        let Layer::Tcp(tcp) = layer.layer else { return Ok(None) };
        // What a SYN, a reset, urgent data or CWR become when they are segmented, ports do not agree on.
        if tcp.flags.contains(['S', 'R', 'U', 'C']) || selected.iter().any(|one| one.field.name == "flags") {
            let what = "a frame with these flags is not segmented, nor one whose flags vary".to_owned();
            return error(what, "Use flags of FPAE, such as \"PA\"");
        }
        let [len] = recipe.sizes.distinct()[..] else {
            return error("frames of several sizes are not segmented".to_owned(), "Give one size");
        };
        let segmentation = Self { carried, segment, len };
        if segmentation.packets() < 2 {
            let what = format!("a frame of {len} bytes (without FCS) fits into one segment");
            return error(what, "Choose larger frames, a smaller segment, or none");
        }
        Ok(Some(segmentation))
    }

    /// The same with everything from Ethernet's type on so many bytes further.
    pub(super) fn shifted(self, more: usize) -> Self {
        let carried = Carried { ip: self.carried.ip + more, l4: self.carried.l4 + more, ..self.carried };
        Self { carried, len: self.len + more, ..self }
    }

    /// Bytes before the payload.
    pub fn headers(&self) -> usize {
        self.carried.l4 + TCP
    }

    /// Bytes of a frame before it is segmented, without FCS.
    pub fn frame_bytes(&self) -> usize {
        self.len
    }

    /// How many packets a frame becomes.
    pub fn packets(&self) -> usize {
        self.len.saturating_sub(self.headers()).div_ceil(self.segment.into())
    }

    /// Where the payload of a packet is in the frame.
    #[inline]
    fn payload(&self, number: usize) -> std::ops::Range<usize> {
        let segment = usize::from(self.segment);
        let from = self.headers().saturating_add(number.saturating_mul(segment)).min(self.len);
        from..from.saturating_add(segment).min(self.len)
    }

    /// Bytes of a packet, without FCS: padded as Ethernet asks for.
    #[inline]
    pub fn packet_len(&self, number: usize) -> usize {
        (self.headers() + self.payload(number).len()).max(SHORTEST)
    }

    /// Bytes of all packets of a frame, without FCS.
    pub fn bytes(&self) -> usize {
        let packets = self.packets();
        packets.saturating_sub(1) * self.packet_len(0) + self.packet_len(packets.saturating_sub(1))
    }

    /// Write the packet of that number, of [`Segmentation::packets`], over `out`, which has [`Segmentation::packet_len`] bytes. `frame` is the
    /// whole one, whatever its checksums are.
    pub fn write(&self, frame: &[u8], number: usize, out: &mut [u8]) {
        let (headers, Carried { ip, l4, v6, .. }) = (self.headers(), self.carried);
        let (Some(head), Some(payload)) = (frame.get(..headers), frame.get(self.payload(number))) else {
            return;
        };
        let len = headers + payload.len();
        let Some((packet, padding)) = out.split_at_mut_checked(len) else { return };
        packet[..headers].copy_from_slice(head);
        packet[headers..].copy_from_slice(payload);
        padding.fill(0);
        let put = |packet: &mut [u8], at: usize, value: u16| {
            take_mut(packet, at).into_iter().for_each(|field| *field = value.to_be_bytes());
        };
        let change = |packet: &mut [u8], at: usize, by: u32| {
            take_mut(packet, at).into_iter().for_each(|field| {
                *field = u32::from_be_bytes(*field).wrapping_add(by).to_be_bytes();
            });
        };
        if v6 {
            put(packet, ip + 4, (len - ip - ipv6::LEN) as u16);
        } else {
            put(packet, ip + 2, (len - ip) as u16);
            if let Some(id) = take_mut(packet, ip + 4) {
                *id = u16::from_be_bytes(*id).wrapping_add(number as u16).to_be_bytes();
            }
            put(packet, ip + 10, 0);
            let sum = checksum::of(&packet[ip..l4]);
            put(packet, ip + 10, sum);
        }
        change(packet, l4 + SEQUENCE, (number * usize::from(self.segment)) as u32);
        if number + 1 < self.packets() {
            packet[l4 + FLAGS] &= !FIN_PSH;
        }
        put(packet, l4 + CHECKSUM, 0);
        let addresses = if v6 { ip + 8..l4 } else { ip + 12..l4 };
        let pseudo = checksum::pseudo_header(&packet[addresses], protocol::TCP, (len - l4) as u32);
        let sum = pseudo.bytes(&packet[l4..]).checksum();
        put(packet, l4 + CHECKSUM, sum);
    }
}

#[cfg(test)]
mod tests;
