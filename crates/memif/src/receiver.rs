//! Frames that arrive.

use crate::copy;
use crate::link::{Shared, View};
use crate::ring::{Descriptor, NEXT, Ring};
use crate::{BURST, Role};
use std::ptr::NonNull;
use std::sync::Arc;

/// Longest frame.
const LONGEST: u32 = 1 << 16;
/// Most parts that the frames of a burst have, those of one part aside.
const PARTS: usize = 1024;

/// How a frame is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
enum Kind {
    /// There are whole lines to read.
    Lines,
    /// Just its bytes.
    Bytes,
    /// In parts: `at` is the first one's number.
    Parts,
}

/// A frame that has arrived.
#[derive(Debug, Clone, Copy)]
struct Piece {
    at: *const u8,
    length: u32,
    /// The position after it.
    end: u16,
    kind: Kind,
}

/// Of a frame in several slots, what is in one.
#[derive(Debug, Clone, Copy)]
struct Part {
    at: *const u8,
    length: u32,
}

/// What receives from one ring; one thread's.
#[derive(Debug)]
pub struct Receiver {
    view: View,
    queue: u16,
    ring: Option<Ring>,
    role: Role,
    /// Region 0: where most frames are, and its length.
    base: *const u8,
    len: u64,
    /// What a slot has room for, if we made it.
    buffer_size: u32,
    /// The next slot to look at.
    position: u16,
    /// Up to where there are frames, as last seen.
    until: u16,
    /// The last frame seen was not whole.
    waits: bool,
    malformed: u64,
    pieces: [Piece; BURST],
    parts: Box<[Part]>,
    parts_used: usize,
}

// SAFETY: its addresses are in regions that it holds through its view, for any thread.
unsafe impl Send for Receiver {}

/// What reading a frame came to.
enum Read {
    Frame(Piece),
    /// The rest of it is yet to come, or there is no room to note it in this burst.
    Later,
    /// Not fit to be read, up to this position.
    Malformed(u16),
}

impl Receiver {
    pub(crate) fn new(shared: Arc<Shared>, queue: u16) -> Self {
        let none = NonNull::<u8>::dangling().as_ptr();
        Self {
            view: View::new(shared),
            queue,
            ring: None,
            role: Role::Client,
            base: none,
            len: 0,
            buffer_size: 0,
            position: 0,
            until: 0,
            waits: false,
            malformed: 0,
            pieces: [Piece { at: none, length: 0, end: 0, kind: Kind::Bytes }; BURST],
            parts: vec![Part { at: none, length: 0 }; PARTS].into_boxed_slice(),
            parts_used: 0,
        }
    }

    /// Frames that were skipped as their descriptors were wrong.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// What has arrived, at most `most` frames (and at most [`BURST`]). Their first lines are being fetched.
    #[inline]
    pub fn burst(&mut self, most: usize) -> Frames<'_> {
        let count = self.gather(most.min(BURST));
        Frames { receiver: self, count }
    }

    #[inline]
    fn gather(&mut self, most: usize) -> usize {
        if self.view.is_old() {
            self.attach();
        }
        let Some(ring) = self.ring else { return 0 };
        // The line is the other core's: it is looked at only if need be.
        if usize::from(self.until.wrapping_sub(self.position)) < most || self.waits {
            self.until = match self.role {
                Role::Server => ring.head(),
                Role::Client => ring.tail(),
            };
            self.waits = false;
        }
        let end = self.until;
        let available = end.wrapping_sub(self.position);
        if available == 0 {
            return 0;
        }
        // A client has every slot on offer.
        if available > ring.size() {
            self.mark_broken();
            return 0;
        }
        ring.prefetch(self.position, available.min(most as u16));
        self.parts_used = 0;
        let mut count = 0;
        let mut at = self.position;
        while count < most && at != end {
            let told = ring.descriptor(at);
            let whole = copy::round_up_to_line(told.length as usize) as u64;
            let fits = u64::from(told.offset) + whole <= self.len;
            if told.is_plain() && fits && told.length.wrapping_sub(1) < LONGEST {
                at = at.wrapping_add(1);
                // SAFETY: within region 0, as was checked.
                let from = unsafe { self.base.add(told.offset as usize) };
                copy::prefetch(from);
                if told.length > 64 {
                    copy::prefetch(from.wrapping_add(64));
                }
                self.pieces[count] = Piece { at: from, length: told.length, end: at, kind: Kind::Lines };
                count += 1;
                continue;
            }
            match self.read(ring, at, end, told) {
                Read::Frame(piece) => {
                    self.pieces[count] = piece;
                    at = piece.end;
                    count += 1;
                }
                Read::Later => {
                    self.waits = true;
                    break;
                }
                // Those before it come first; it is met again.
                Read::Malformed(_) if count > 0 => break,
                Read::Malformed(next) => {
                    self.malformed += 1;
                    at = next;
                    self.give_back(ring, at);
                }
            }
        }
        count
    }

    /// A frame that is not as most are, of which `told` is the first slot.
    #[cold]
    fn read(&mut self, ring: Ring, from: u16, end: u16, mut told: Descriptor) -> Read {
        let first = self.parts_used;
        let Some(link) = self.view.link() else { return Read::Later };
        let (mut at, mut used, mut length, mut good) = (from, first, 0u32, true);
        loop {
            at = at.wrapping_add(1);
            length = length.saturating_add(told.length);
            let region = link.regions.get(usize::from(told.region));
            match region.and_then(|region| region.at(told.offset, told.length)) {
                Some(address) if length <= LONGEST => {
                    if let Some(part) = self.parts.get_mut(used) {
                        *part = Part { at: address.as_ptr(), length: told.length };
                        copy::prefetch(address.as_ptr());
                    }
                    used += 1;
                }
                _ => good = false,
            }
            if told.flags & NEXT == 0 {
                break;
            }
            if at == end {
                if end.wrapping_sub(from) < ring.size() {
                    return Read::Later;
                }
                good = false;
                break;
            }
            told = ring.descriptor(at);
        }
        if !good || length == 0 {
            return Read::Malformed(at);
        }
        if used > PARTS {
            return if first > 0 { Read::Later } else { Read::Malformed(at) };
        }
        self.parts_used = used;
        let piece = match used - first {
            1 => Piece { at: self.parts[first].at, length, end: at, kind: Kind::Bytes },
            _ => Piece { at: std::ptr::without_provenance(first), length, end: at, kind: Kind::Parts },
        };
        Read::Frame(piece)
    }

    /// Everything before `position` is done with.
    #[inline]
    fn give_back(&mut self, ring: Ring, position: u16) {
        match self.role {
            Role::Server => ring.set_tail(position),
            Role::Client => {
                let mut at = self.position;
                while at != position {
                    ring.set_descriptor(at, 0, 0, self.buffer_size);
                    at = at.wrapping_add(1);
                }
                ring.set_head(position.wrapping_add(ring.size()));
            }
        }
        self.position = position;
    }

    /// The first `taken` frames are done with.
    #[inline]
    fn release(&mut self, taken: usize) {
        let (Some(ring), Some(last)) = (self.ring, taken.checked_sub(1)) else { return };
        let position = self.pieces[last].end;
        if self.parts_used > 0 && self.role == Role::Server {
            self.unchain(ring, position);
        }
        self.give_back(ring, position);
    }

    /// There are senders that never clear the flag.
    #[cold]
    fn unchain(&self, ring: Ring, position: u16) {
        let mut at = self.position;
        while at != position {
            let told = ring.descriptor(at);
            if told.flags & NEXT != 0 {
                ring.set_descriptor(at, 0, told.region, told.length);
            }
            at = at.wrapping_add(1);
        }
    }

    /// Begin with the connection there is now.
    #[cold]
    fn attach(&mut self) {
        (self.ring, self.position, self.until, self.waits) = (None, 0, 0, false);
        let Some(link) = self.view.renew() else { return };
        self.role = link.role;
        let Some(found) = link.ring(link.role == Role::Server, self.queue) else { return };
        let ring = found.ring;
        self.ring = Some(ring);
        let region = link.regions.first();
        self.base = region.map_or(NonNull::dangling().as_ptr(), |region| region.base().as_ptr());
        self.len = region.map_or(0, |region| region.len() as u64);
        if let Some(layout) = link.layout {
            // Every slot is on offer.
            self.buffer_size = layout.buffer_size;
            ring.set_head(ring.size());
        }
    }

    #[cold]
    fn mark_broken(&mut self) {
        self.ring = None;
        if let Some(link) = self.view.link() {
            link.set_bad();
        }
    }
}

/// What a burst found. Dropped without [`Frames::release`], it comes again.
#[derive(Debug)]
pub struct Frames<'a> {
    receiver: &'a mut Receiver,
    count: usize,
}

impl Frames<'_> {
    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    fn piece(&self, at: usize) -> Piece {
        self.receiver.pieces[..self.count][at]
    }

    /// Bytes of a frame.
    ///
    /// # Panics
    /// There is no such frame.
    #[inline]
    pub fn length(&self, at: usize) -> usize {
        self.piece(at).length as usize
    }

    /// Copy a frame: as much of it as `to` has room for.
    ///
    /// # Panics
    /// There is no such frame.
    #[inline]
    pub fn copy_to(&self, at: usize, to: &mut [u8]) {
        let piece = self.piece(at);
        if piece.kind == Kind::Parts {
            return self.copy_parts(piece, to);
        }
        let length = to.len().min(piece.length as usize);
        // SAFETY: the frame was found to be within its region, which the receiver holds.
        unsafe { std::ptr::copy_nonoverlapping(piece.at, to.as_mut_ptr(), length) };
    }

    /// Copy a frame in whole lines of 64 bytes, without a call.
    ///
    /// # Safety
    /// `to` has room for the frame's length rounded up to 64 bytes.
    ///
    /// # Panics
    /// There is no such frame.
    #[inline]
    pub unsafe fn copy_wide(&self, at: usize, to: *mut u8) {
        let piece = self.piece(at);
        if piece.kind == Kind::Lines {
            // SAFETY: whole lines were found to be in the region, and there is room for them, as promised by the caller.
            unsafe { copy::lines(piece.at, to, piece.length as usize) };
        } else {
            // SAFETY: as promised by the caller.
            let to = unsafe { std::slice::from_raw_parts_mut(to, piece.length as usize) };
            self.copy_to(at, to);
        }
    }

    #[cold]
    fn copy_parts(&self, piece: Piece, to: &mut [u8]) {
        let mut done = 0;
        for part in &self.receiver.parts[piece.at.addr()..self.receiver.parts_used] {
            let length = (part.length as usize).min(to.len().min(piece.length as usize) - done);
            // SAFETY: the part was found to be within its region, which the receiver holds.
            unsafe { std::ptr::copy_nonoverlapping(part.at, to.as_mut_ptr().add(done), length) };
            done += length;
        }
    }

    /// The first `taken` are done with: their slots go back. The others come again.
    #[inline]
    pub fn release(self, taken: usize) {
        self.receiver.release(taken.min(self.count));
    }
}
