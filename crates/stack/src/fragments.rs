//! Fragments of IP packets (RFC 791 section 3.2, RFC 8200 section 4.5): packets cut to the link's MTU, and pieces put together
//! again. Pieces that overlap spoil their packet (RFC 5722).

use crate::config::SECOND;
use crate::counters::DropReason;
use crate::wire::Transmit;
use packet::ethernet::{self, kind};
use packet::{checksum, ipv4, ipv6};
use std::collections::VecDeque;

/// Most packets that are incomplete at a time: the oldest make room.
const PACKETS: usize = 256;
/// How long pieces are waited for, ns (RFC 8200 section 4.5).
const PATIENCE: u64 = 60 * SECOND;
/// Most pieces of one packet.
const PIECES: usize = 256;
/// Bytes of the fragment header of IPv6, and what stands for it in the header before.
pub(crate) const HEADER: usize = 8;
pub(crate) const FRAGMENT: u8 = 44;

/// A piece as it was found in a frame.
struct Piece<'a> {
    key: Key,
    offset: usize,
    more: bool,
    /// Ethernet and IP header; of IPv6 without the fragment header.
    head: &'a [u8],
    ip: usize,
    data: &'a [u8],
}

/// What pieces of one packet have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    /// Source and destination; of IPv4 the first four bytes of each.
    addresses: [[u8; 16]; 2],
    identification: u32,
    protocol: u8,
    v6: bool,
}

#[derive(Debug)]
struct Partial {
    key: Key,
    since: u64,
    head: Vec<u8>,
    ip: usize,
    data: Vec<u8>,
    /// Where pieces begin and end, in their order.
    pieces: Vec<(usize, usize)>,
    /// Bytes of the whole, once the last piece is here.
    total: Option<usize>,
}

/// Packets of which pieces are missing, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    partial: VecDeque<Partial>,
    spare: Vec<Partial>,
    given_up: u64,
}

impl Fragments {
    /// A fragment arrived. With the last that was missing the packet is put into `whole`, a frame: `true`.
    pub fn take(&mut self, frame: &[u8], now: u64, whole: &mut Vec<u8>) -> Result<bool, DropReason> {
        while self.partial.front().is_some_and(|oldest| oldest.since + PATIENCE <= now) {
            self.give_up();
        }
        let piece = Piece::parse(frame).ok_or(DropReason::Malformed)?;
        let (begin, end) = (piece.offset, piece.offset + piece.data.len());
        let most = usize::from(u16::MAX) - if piece.key.v6 { 0 } else { piece.head.len() - piece.ip };
        // all but the last are of multiples of eight bytes
        if piece.data.is_empty() || end > most || (piece.more && !piece.data.len().is_multiple_of(8)) {
            return Err(DropReason::Malformed);
        }
        let place = match self.partial.iter().position(|partial| partial.key == piece.key) {
            Some(place) => place,
            None => self.begin(piece.key, now),
        };
        let Some(partial) = self.partial.get_mut(place) else { return Err(DropReason::Fragment) };
        if partial.add(&piece, begin, end).is_none() {
            self.spare.extend(self.partial.remove(place));
            return Err(DropReason::Fragment);
        }
        if !partial.is_complete() {
            return Ok(false);
        }
        let done = self.partial.remove(place);
        let is_right = done.as_ref().is_some_and(|done| done.write(whole).is_some());
        self.spare.extend(done);
        if is_right { Ok(true) } else { Err(DropReason::Malformed) }
    }

    /// The oldest is not completed.
    fn give_up(&mut self) {
        self.given_up += 1;
        self.spare.extend(self.partial.pop_front());
    }

    /// Packets that were never completed, since the last time that this was asked.
    pub fn given_up(&mut self) -> u64 {
        std::mem::take(&mut self.given_up)
    }

    fn begin(&mut self, key: Key, since: u64) -> usize {
        if self.partial.len() >= PACKETS {
            self.give_up();
        }
        let mut fresh = self.spare.pop().unwrap_or_else(|| Partial {
            key,
            since,
            head: Vec::new(),
            ip: 0,
            data: Vec::new(),
            pieces: Vec::new(),
            total: None,
        });
        (fresh.key, fresh.since, fresh.total) = (key, since, None);
        fresh.head.clear();
        fresh.data.clear();
        fresh.pieces.clear();
        self.partial.push_back(fresh);
        self.partial.len() - 1
    }
}

impl<'a> Piece<'a> {
    fn parse(frame: &'a [u8]) -> Option<Self> {
        let (carried, ip) = ethernet::payload(frame)?;
        let packet = frame.get(ip..)?;
        let mut addresses = [[0; 16]; 2];
        if carried == kind::IPV4 {
            let head: &[u8; ipv4::LEN] = packet.first_chunk()?;
            let header = usize::from(head[0] & 0x0f) * 4;
            let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
            let field = u16::from_be_bytes([head[6], head[7]]);
            addresses[0][..4].copy_from_slice(&head[12..16]);
            addresses[1][..4].copy_from_slice(&head[16..20]);
            let identification = u16::from_be_bytes([head[4], head[5]]).into();
            return Some(Self {
                key: Key { addresses, identification, protocol: head[9], v6: false },
                offset: usize::from(field & 0x1fff) * 8,
                more: field & 0x2000 != 0,
                head: frame.get(..ip + header)?,
                ip,
                data: packet.get(header..total)?,
            });
        }
        // other headers before the fragment header, which hosts do not send, are not put together
        let head: &[u8; ipv6::LEN + HEADER] = packet.first_chunk()?;
        let total = ipv6::LEN + usize::from(u16::from_be_bytes([head[4], head[5]]));
        let [protocol, _, high, low, identification @ ..] = *head.last_chunk::<HEADER>()?;
        if carried != kind::IPV6 || head[6] != FRAGMENT {
            return None;
        }
        addresses[0].copy_from_slice(&head[8..24]);
        addresses[1].copy_from_slice(&head[24..40]);
        let field = u16::from_be_bytes([high, low]);
        Some(Self {
            key: Key { addresses, identification: u32::from_be_bytes(identification), protocol, v6: true },
            offset: usize::from(field & !7),
            more: field & 1 != 0,
            head: frame.get(..ip + ipv6::LEN)?,
            ip,
            data: packet.get(ipv6::LEN + HEADER..total)?,
        })
    }
}

impl Partial {
    /// Add a piece; `None`: it does not fit those that are here.
    fn add(&mut self, piece: &Piece<'_>, begin: usize, end: usize) -> Option<()> {
        let place = self.pieces.partition_point(|(from, _)| *from < begin);
        if self.pieces.get(place) == Some(&(begin, end)) {
            return Some(()); // it came twice
        }
        let overlaps = self.pieces[..place].last().is_some_and(|(_, to)| *to > begin)
            || self.pieces.get(place).is_some_and(|(from, _)| *from < end);
        let is_beyond = self.total.is_some_and(|total| end > total || !piece.more);
        let is_short = !piece.more && self.pieces.last().is_some_and(|(_, to)| *to > end);
        if overlaps || is_beyond || is_short || self.pieces.len() >= PIECES {
            return None;
        }
        self.pieces.insert(place, (begin, end));
        if !piece.more {
            self.total = Some(end);
        }
        if begin == 0 {
            self.head.clear();
            self.head.extend_from_slice(piece.head);
            self.ip = piece.ip;
        }
        if self.data.len() < end {
            self.data.resize(end, 0);
        }
        self.data[begin..end].copy_from_slice(piece.data);
        Some(())
    }

    fn is_complete(&self) -> bool {
        let mut reached = 0;
        for (begin, end) in &self.pieces {
            if *begin != reached {
                return false;
            }
            reached = *end;
        }
        self.total == Some(reached)
    }

    /// The packet as one frame.
    fn write(&self, whole: &mut Vec<u8>) -> Option<()> {
        whole.clear();
        whole.extend_from_slice(&self.head);
        whole.extend_from_slice(&self.data);
        let header = whole.get_mut(self.ip..self.head.len())?;
        if self.key.v6 {
            header.get_mut(4..6)?.copy_from_slice(&(self.data.len() as u16).to_be_bytes());
            *header.get_mut(6)? = self.key.protocol;
        } else {
            let total = (header.len() + self.data.len()) as u16;
            header.get_mut(2..4)?.copy_from_slice(&total.to_be_bytes());
            header.get_mut(6..8)?.fill(0);
            seal(header);
        }
        Some(())
    }
}

/// Set the checksum of an IPv4 header.
fn seal(header: &mut [u8]) {
    if header.len() >= ipv4::LEN {
        header[10..12].fill(0);
        let sum = checksum::of(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// How many frames a packet takes that has `body` bytes behind its IP header.
pub(crate) fn pieces(body: usize, v6: bool, mtu: u16) -> usize {
    body.div_ceil(step(v6, mtu))
}

/// Bytes in all pieces but the last.
fn step(v6: bool, mtu: u16) -> usize {
    let headers = if v6 { ipv6::LEN + HEADER } else { ipv4::LEN };
    (usize::from(mtu).saturating_sub(headers) & !7).max(8)
}

/// Cut `whole`, a frame whose IP header at `ip` has neither options nor extensions, into packets of `mtu` bytes at most. `false`:
/// there was no room for all.
pub(crate) fn cut(
    whole: &[u8],
    ip: usize,
    v6: bool,
    mtu: u16,
    identification: u32,
    to: &mut impl Transmit,
) -> bool {
    let header = if v6 { ipv6::LEN } else { ipv4::LEN };
    let Some((head, body)) = whole.split_at_checked(ip + header) else { return false };
    let step = step(v6, mtu);
    for (n, data) in body.chunks(step).enumerate() {
        let more = (n + 1) * step < body.len();
        let extra = if v6 { HEADER } else { 0 };
        let Some(frame) = to.frame(head.len() + extra + data.len()) else { return false };
        let (start, rest) = frame.split_at_mut(head.len());
        start.copy_from_slice(head);
        rest[extra..].copy_from_slice(data);
        let packet = &mut start[ip..];
        if v6 {
            let length = (HEADER + data.len()) as u16;
            packet[4..6].copy_from_slice(&length.to_be_bytes());
            let field = (n * step) as u16 | u16::from(more);
            rest[0] = std::mem::replace(&mut packet[6], FRAGMENT);
            rest[1] = 0;
            rest[2..4].copy_from_slice(&field.to_be_bytes());
            rest[4..HEADER].copy_from_slice(&identification.to_be_bytes());
        } else {
            let length = (header + data.len()) as u16;
            packet[2..4].copy_from_slice(&length.to_be_bytes());
            packet[4..6].copy_from_slice(&(identification as u16).to_be_bytes());
            let field = (n * step / 8) as u16 | if more { 0x2000 } else { 0 };
            packet[6..8].copy_from_slice(&field.to_be_bytes());
            seal(packet);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::ethernet::Ethernet;
    use packet::layers::Layers;
    use proptest::prelude::*;

    struct Frames(Vec<Vec<u8>>);

    impl Transmit for Frames {
        fn frame(&mut self, len: usize) -> Option<&mut [u8]> {
            self.0.push(vec![0; len]);
            self.0.last_mut().map(Vec::as_mut_slice)
        }
    }

    /// A frame with so many bytes behind its IP header.
    fn whole(v6: bool, body: usize) -> Vec<u8> {
        let header = if v6 { ipv6::LEN } else { ipv4::LEN };
        let mut frame = vec![0; ethernet::LEN + header];
        let kind = if v6 { kind::IPV6 } else { kind::IPV4 };
        let ethernet = Ethernet { destination: [2; 6], source: [4; 6], kind };
        ethernet.emit(frame.first_chunk_mut().expect("room"));
        let (out, payload) = (&mut frame[ethernet::LEN..], body as u16);
        if v6 {
            let (source, destination) = ([1; 16].into(), [2; 16].into());
            let header = ipv6::Ipv6 { source, destination, next: 17, hops: 64, dscp: 0, payload };
            header.emit(out.first_chunk_mut().expect("room"));
        } else {
            let (source, destination) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
            let header = ipv4::Ipv4 { source, destination, protocol: 17, ttl: 64, dscp: 0, payload };
            header.emit(out.first_chunk_mut().expect("room"));
        }
        frame.extend((0..body).map(|i| (i * 7) as u8));
        frame
    }

    fn cut_up(v6: bool, body: usize, mtu: u16, identification: u32) -> (Vec<u8>, Vec<Vec<u8>>) {
        let (whole, mut frames) = (whole(v6, body), Frames(Vec::new()));
        assert!(cut(&whole, ethernet::LEN, v6, mtu, identification, &mut frames));
        assert_eq!(frames.0.len(), pieces(body, v6, mtu));
        assert!(frames.0.iter().all(|frame| frame.len() <= ethernet::LEN + usize::from(mtu)));
        (whole, frames.0)
    }

    proptest! {
        #[test]
        fn what_is_cut_is_put_together_in_any_order(
            v6: bool, body in 1usize..20_000, mtu in 1280u16..9000, seed: u64, twice: bool,
        ) {
            use rand::{SeedableRng, rngs::SmallRng, seq::SliceRandom};
            let (whole, mut frames) = cut_up(v6, body, mtu, 77);
            frames.shuffle(&mut SmallRng::seed_from_u64(seed));
            let (mut all, mut out) = (Fragments::default(), Vec::new());
            let last = frames.pop().expect("a piece");
            for frame in &frames {
                prop_assert!(!all.take(frame, 0, &mut out).expect("a piece"));
                if twice {
                    prop_assert!(!all.take(frame, 0, &mut out).expect("again"));
                }
            }
            prop_assert!(all.take(&last, 0, &mut out).expect("the last"));
            let layers = Layers::find(&out).expect("headers");
            prop_assert_eq!(layers.segment(&out), &whole[layers.l4..]);
            prop_assert!(all.partial.is_empty());
        }

        #[test]
        fn malformed_pieces_break_nothing(
            v6: bool, changes in proptest::collection::vec((0usize..70, any::<u8>(), 0usize..3), 1..6), cut in 14usize..1400,
        ) {
            let (_, mut frames) = cut_up(v6, 3000, 1400, 1);
            for (at, value, frame) in changes {
                frames[frame][at] = value;
            }
            let (mut all, mut out) = (Fragments::default(), Vec::new());
            for frame in &frames {
                let _any = all.take(frame, 0, &mut out);
                let _short = all.take(&frame[..cut.min(frame.len())], 0, &mut out);
            }
        }
    }

    #[test]
    fn pieces_that_overlap_spoil_their_packet() {
        let (_, frames) = cut_up(false, 3000, 1420, 5);
        let (_, others) = cut_up(false, 3000, 1412, 5);
        let (mut all, mut out) = (Fragments::default(), Vec::new());
        assert_eq!(all.take(&frames[0], 0, &mut out), Ok(false));
        assert_eq!(all.take(&others[1], 0, &mut out), Err(DropReason::Fragment));
        assert!(all.partial.is_empty());
    }

    #[test]
    fn who_never_sends_the_rest_is_forgotten() {
        let (mut all, mut out) = (Fragments::default(), Vec::new());
        for n in 0..2 * PACKETS as u32 {
            let (_, frames) = cut_up(true, 3000, 1400, n);
            assert_eq!(all.take(&frames[1], n.into(), &mut out), Ok(false));
        }
        assert_eq!(all.partial.len(), PACKETS);
        let (_, frames) = cut_up(true, 3000, 1400, 0);
        assert_eq!(all.take(&frames[0], PATIENCE + 10_000, &mut out), Ok(false));
        assert_eq!((all.partial.len(), all.spare.len()), (1, PACKETS - 1));
    }
}
