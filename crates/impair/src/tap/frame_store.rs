//! Buffers for the frames on their way.
//!
//! Most frames are either tens of kilobytes or acknowledgements, so there are large buffers and small ones. Parts
//! of one super-segment share its buffer.

use super::memory::{Pool, Supplier};
use super::segment::{FrameLayout, HEADERS_MAX, VNET, complete};
use crate::packet_store::{Burst, PacketStore, flip, wire_bytes};
use rustix::io::{Errno, IoSlice, read, write, writev};
use std::os::fd::AsFd;

/// Holds the largest super-segment with its headers: IP's 65535 bytes, Ethernet, tags. Not a power of two,
/// lest all buffers begin in the same cache lines.
const LARGE: usize = (1 << 16) + 256;
const SMALL: usize = 2048;

/// Packets of one frame, one after the other.
#[derive(Debug)]
pub(crate) struct Piece {
    buffer: u32,
    first: u16,
    count: u16,
    /// Not 0: a bit is flipped on the way out, and this says which.
    damage: u32,
}

#[derive(Debug, Clone, Copy)]
struct StoredFrame {
    layout: FrameLayout,
    /// Pieces of it that are still on their way.
    pieces: u32,
}

/// All frames of one direction.
#[derive(Debug)]
pub(crate) struct FrameStore {
    large: Pool,
    small: Pool,
    buffers: Vec<StoredFrame>,
    /// How many are large: the first ones.
    larges: u32,
    /// Where frames are read that there is no buffer for, and written that are damaged.
    spare: Box<[u8]>,
}

/// Result of a read from a tap.
#[derive(Debug)]
pub(crate) enum FrameRead {
    Piece(Piece),
    /// There was no buffer.
    NoRoom(Burst),
    /// There was nothing.
    Nothing,
}

impl FrameStore {
    pub(crate) fn new(larges: usize, smalls: usize, supplier: &Supplier) -> std::io::Result<Self> {
        let layout = FrameLayout::of(&[]);
        Ok(Self {
            large: Pool::new(LARGE, larges, supplier.clone())?,
            small: Pool::new(SMALL, smalls, supplier.clone())?,
            buffers: vec![StoredFrame { layout, pieces: 0 }; larges + smalls],
            larges: larges as u32,
            spare: vec![0; LARGE].into(),
        })
    }

    /// A buffer's bytes from the virtio-net header on, as many as are in use.
    fn bytes(&self, buffer: u32) -> &[u8] {
        let place = match buffer.checked_sub(self.larges) {
            None => self.large.get(buffer),
            Some(small) => self.small.get(small),
        };
        let len = VNET + self.buffers.get(buffer as usize).map_or(0, |buffer| buffer.layout.len as usize);
        place.get(..len).unwrap_or(&[])
    }

    /// Read one frame.
    pub(crate) fn receive(&mut self, from: impl AsFd) -> Result<FrameRead, Errno> {
        let landing = self.large.next();
        let into = match landing {
            Some(buffer) => self.large.get_mut(buffer),
            None => &mut self.spare,
        };
        let len = match read(from, &mut *into) {
            Ok(len) => len,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(FrameRead::Nothing),
            Err(why) => return Err(why),
        };
        let bytes = into.get(..len).unwrap_or(&[]);
        let layout = FrameLayout::of(bytes);
        let small = if len <= SMALL { self.small.next() } else { None };
        let buffer = match small {
            Some(small) => {
                if let Some(place) = self.small.get_mut(small).get_mut(..len) {
                    place.copy_from_slice(bytes);
                }
                self.small.take();
                self.larges + small
            }
            None => match landing {
                Some(large) => {
                    self.large.take();
                    large
                }
                None => return Ok(FrameRead::NoRoom(burst(&layout, 0, layout.packets))),
            },
        };
        if let Some(place) = self.buffers.get_mut(buffer as usize) {
            *place = StoredFrame { layout, pieces: 1 };
        }
        Ok(FrameRead::Piece(Piece { buffer, first: 0, count: layout.packets, damage: 0 }))
    }

    /// Write a piece, and free it.
    pub(crate) fn send(&mut self, piece: Piece, to: impl AsFd) -> Result<(), Errno> {
        let mut spare = std::mem::take(&mut self.spare);
        let done = self.write(&piece, to, &mut spare);
        self.spare = spare;
        self.free(piece);
        done
    }

    fn write(&self, piece: &Piece, to: impl AsFd, spare: &mut [u8]) -> Result<(), Errno> {
        let Some(StoredFrame { layout, .. }) = self.buffers.get(piece.buffer as usize) else { return Ok(()) };
        let bytes = self.bytes(piece.buffer);
        if piece.count == layout.packets && piece.damage == 0 {
            return write(to, bytes).map(drop);
        }
        let mut head = [0; VNET + HEADERS_MAX];
        let part = layout.part(bytes, piece.first, piece.count, &mut head);
        let (len, payload) = part.unwrap_or((0, 0..bytes.len()));
        let (head, payload) = (head.get(..len).unwrap_or(&[]), bytes.get(payload).unwrap_or(&[]));
        if piece.damage == 0 {
            return writev(to, &[IoSlice::new(head), IoSlice::new(payload)]).map(drop);
        }
        let Some(frame) = spare.get_mut(..len + payload.len()) else { return Err(Errno::MSGSIZE) };
        let (before, after) = frame.split_at_mut(len);
        before.copy_from_slice(head);
        after.copy_from_slice(payload);
        // Else the receiver would trust what it sees.
        complete(frame);
        flip(frame.get_mut(VNET..).unwrap_or(&mut []), u64::from(piece.damage) << 32);
        write(to, frame).map(drop)
    }
}

/// `count` packets of a frame, from `first` on.
fn burst(layout: &FrameLayout, first: u16, count: u16) -> Burst {
    let last = wire_bytes(layout.frame_len(first + count.saturating_sub(1)));
    let bytes = if count > 1 { wire_bytes(layout.frame_len(first)) } else { last };
    Burst { packets: count.into(), bytes, last }
}

impl PacketStore for FrameStore {
    type Load = Piece;

    #[inline]
    fn burst(&self, load: &Piece) -> Burst {
        match self.buffers.get(load.buffer as usize) {
            Some(buffer) => burst(&buffer.layout, load.first, load.count),
            None => Burst::single(0),
        }
    }

    fn split(&mut self, load: &mut Piece, count: u32) -> Option<Piece> {
        let buffer = self.buffers.get_mut(load.buffer as usize)?;
        let count = u16::try_from(count).ok().filter(|count| *count < load.count)?;
        buffer.pieces += 1;
        let part = Piece { count, ..*load };
        load.first += count;
        load.count -= count;
        Some(part)
    }

    fn copy(&mut self, load: &Piece) -> Option<Piece> {
        self.buffers.get_mut(load.buffer as usize)?.pieces += 1;
        Some(Piece { ..*load })
    }

    fn corrupt(&mut self, load: &mut Piece, dice: u64) {
        load.damage = (dice >> 32) as u32 | 1;
    }

    fn free(&mut self, load: Piece) {
        let Some(buffer) = self.buffers.get_mut(load.buffer as usize) else { return };
        buffer.pieces = buffer.pieces.saturating_sub(1);
        if buffer.pieces == 0 {
            match load.buffer.checked_sub(self.larges) {
                None => self.large.give(load.buffer),
                Some(small) => self.small.give(small),
            }
        }
    }
}

#[cfg(test)]
mod tests;
