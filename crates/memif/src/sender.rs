//! Frames to be sent.

use crate::copy;
use crate::link::{Link, Shared, View};
use crate::ring::{MASK_INT, NEXT, Ring};
use crate::{BURST, Role};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Most slots that are filled before they are sent: a burst, or a long frame in small buffers.
const SLOTS: usize = 1024 + BURST;

/// A slot that can be filled.
#[derive(Debug, Clone, Copy)]
struct Slot {
    at: *mut u8,
    room: u32,
    region: u16,
}

/// What sends to one ring; one thread's.
#[derive(Debug)]
pub struct Sender {
    view: View,
    queue: u16,
    ring: Option<Ring>,
    role: Role,
    /// Buffers of the ring, one after the other, if we made them.
    base: *mut u8,
    stride: usize,
    buffer_size: u32,
    /// The next slot to fill.
    position: u16,
    /// Up to where slots can be filled, as last seen.
    until: u16,
    slots: Box<[Slot]>,
}

// SAFETY: its addresses are in regions that it holds through its view, for any thread.
unsafe impl Send for Sender {}

impl Sender {
    pub(crate) fn new(shared: Arc<Shared>, queue: u16, buffer_size: u32) -> Self {
        let none = NonNull::<u8>::dangling().as_ptr();
        Self {
            view: View::new(shared),
            queue,
            ring: None,
            role: Role::Client,
            base: none,
            stride: 0,
            buffer_size,
            position: 0,
            until: 0,
            slots: vec![Slot { at: none, room: 0, region: 0 }; SLOTS].into_boxed_slice(),
        }
    }

    /// Begin to send: what room there is now, for at most `most` frames of one slot each (and at most [`BURST`]). The
    /// slots are being fetched.
    #[inline]
    pub fn begin(&mut self, most: usize) -> Space<'_> {
        if self.view.is_old() {
            self.attach();
        }
        let free = self.free(most.min(BURST));
        let mut space = Space { free, ready: 0, used: 0, frames: 0, sender: self };
        space.prepare(most.min(BURST));
        space
    }

    /// Slots that can be filled: at least `most`, if there are.
    #[inline]
    fn free(&mut self, most: usize) -> usize {
        let Some(ring) = self.ring else { return 0 };
        // The line is the other core's: it is looked at only if need be.
        if usize::from(self.until.wrapping_sub(self.position)) < most {
            self.until = match self.role {
                Role::Server => ring.head(),
                Role::Client => ring.tail().wrapping_add(ring.size()),
            };
        }
        let free = self.until.wrapping_sub(self.position);
        if free > ring.size() {
            self.mark_broken();
            return 0;
        }
        usize::from(free)
    }

    /// A slot to fill, by its position.
    #[inline]
    fn slot(&self, ring: Ring, at: u16) -> Option<Slot> {
        match self.role {
            Role::Client => {
                let number = usize::from(at & (ring.size() - 1));
                // SAFETY: the region has a buffer for each slot.
                let at = unsafe { self.base.add(number * self.stride) };
                Some(Slot { at, room: self.buffer_size, region: 0 })
            }
            Role::Server => {
                let told = ring.descriptor(at);
                let region = self.view.link()?.regions.get(usize::from(told.region))?;
                let at = region.at(told.offset, told.length)?;
                (told.length > 0).then_some(Slot { at: at.as_ptr(), room: told.length, region: told.region })
            }
        }
    }

    /// Begin with the connection there is now.
    #[cold]
    fn attach(&mut self) {
        (self.ring, self.position, self.until) = (None, 0, 0);
        let Some(link) = self.view.renew() else { return };
        self.role = link.role;
        let to_server = link.role == Role::Client;
        let Some(found) = link.ring(to_server, self.queue) else { return };
        self.ring = Some(found.ring);
        if let (Some(layout), Some(region)) = (link.layout, link.regions.first()) {
            let first = layout.buffers_of(to_server, self.queue) as usize;
            // SAFETY: the layout is that of the region.
            self.base = unsafe { region.base().add(first) }.as_ptr();
            self.stride = layout.stride() as usize;
            self.buffer_size = layout.buffer_size;
        }
    }

    #[cold]
    fn mark_broken(&mut self) {
        self.ring = None;
        if let Some(link) = self.view.link() {
            link.set_bad();
        }
    }

    /// What is filled is the other end's, up to `position`.
    #[inline]
    fn publish(&mut self, ring: Ring, position: u16) {
        self.position = position;
        match self.role {
            Role::Server => ring.set_tail(position),
            Role::Client => ring.set_head(position),
        }
        // Who goes to sleep unmasks, then looks again: one of us sees the other.
        fence(Ordering::SeqCst);
        if ring.flags() & MASK_INT == 0 {
            self.interrupt();
        }
    }

    #[cold]
    fn interrupt(&self) {
        let ring = self.view.link().and_then(|link: &Link| link.ring(self.role == Role::Client, self.queue));
        if let Some(ring) = ring {
            // If it cannot be written, it is full of what has the same meaning.
            let _ = nix::unistd::write(&ring.interrupt, &1u64.to_ne_bytes());
        }
    }
}

/// Slots that are being filled. Dropped without [`Space::commit`], nothing is sent.
#[derive(Debug)]
pub struct Space<'a> {
    sender: &'a mut Sender,
    /// Slots that there are.
    free: usize,
    /// Of those, known in `slots`.
    ready: usize,
    /// Of those, filled.
    used: usize,
    frames: usize,
}

impl Space<'_> {
    /// Slots that can be filled now without looking for more.
    #[inline]
    pub fn room(&self) -> usize {
        self.ready - self.used
    }

    /// Whether the whole ring is free: what finds no room now never does.
    pub fn is_all_free(&mut self) -> bool {
        let size = self.sender.ring.map_or(usize::MAX, |ring| usize::from(ring.size()));
        self.used == 0 && self.sender.free(size) == size
    }

    /// Bytes that go into the next slot: a longer frame takes several.
    #[inline]
    pub fn buffer_size(&self) -> usize {
        match self.sender.slots[..self.ready].get(self.used) {
            Some(slot) => slot.room as usize,
            None => self.sender.buffer_size as usize,
        }
    }

    /// Know, if there are so many, `count` slots.
    #[inline]
    fn prepare(&mut self, count: usize) {
        let Some(ring) = self.sender.ring else { return };
        if count > self.free {
            self.free = self.sender.free(count);
        }
        let count = count.min(self.free).min(SLOTS);
        if self.sender.role == Role::Server {
            let (from, more) =
                (self.sender.position.wrapping_add(self.ready as u16), count.saturating_sub(self.ready));
            ring.prefetch(from, more as u16);
        }
        while self.ready < count {
            let at = self.sender.position.wrapping_add(self.ready as u16);
            let Some(slot) = self.sender.slot(ring, at) else {
                // A client that offers what is not there.
                self.sender.mark_broken();
                (self.free, self.ready, self.used, self.frames) = (0, 0, 0, 0);
                return;
            };
            copy::prefetch_write(slot.at);
            if at.is_multiple_of(4) || self.ready == 0 {
                ring.prefetch_write(at);
            }
            self.sender.slots[self.ready] = slot;
            self.ready += 1;
        }
    }

    /// Add a frame; `false` if there is no room for it. One of no bytes is taken and forgotten.
    #[inline]
    pub fn put(&mut self, frame: &[u8]) -> bool {
        if let (Some(ring), Some(slot)) = (self.sender.ring, self.next())
            && frame.len().wrapping_sub(1) < slot.room as usize
        {
            // SAFETY: the slot has room for the frame, which is not in memory that the slots are in.
            unsafe { std::ptr::copy_nonoverlapping(frame.as_ptr(), slot.at, frame.len()) };
            self.fill(ring, slot, frame.len());
            return true;
        }
        self.put_slowly(std::iter::once(frame), frame.len())
    }

    /// Add a frame, copied in whole lines of 64 bytes without a call where there is room for them; `false` if there is no
    /// room for the frame.
    ///
    /// # Safety
    /// `from` has `len` bytes, rounded up to 64, to be read.
    #[inline]
    pub unsafe fn put_wide(&mut self, from: *const u8, len: usize) -> bool {
        if let (Some(ring), Some(slot)) = (self.sender.ring, self.next())
            && len != 0
            && copy::round_up_to_line(len) <= slot.room as usize
        {
            // SAFETY: there are whole lines to read, as promised by the caller, and the slot has room for them.
            unsafe { copy::lines(from, slot.at, len) };
            self.fill(ring, slot, len);
            return true;
        }
        // SAFETY: as promised by the caller.
        self.put(unsafe { std::slice::from_raw_parts(from, len) })
    }

    /// Add a frame that is in pieces, `total` bytes of them; `false` if there is no room for it.
    #[inline]
    pub fn put_pieces<'p>(&mut self, pieces: impl Iterator<Item = &'p [u8]>, total: usize) -> bool {
        self.put_slowly(pieces, total)
    }

    #[inline]
    fn next(&self) -> Option<Slot> {
        self.sender.slots[..self.ready].get(self.used).copied()
    }

    /// A frame is in the next slot.
    #[inline]
    fn fill(&mut self, ring: Ring, slot: Slot, length: usize) {
        let at = self.sender.position.wrapping_add(self.used as u16);
        ring.set_descriptor(at, 0, slot.region, length as u32);
        self.used += 1;
        self.frames += 1;
    }

    /// A frame in pieces, to as many slots as it takes.
    fn put_slowly<'p>(&mut self, pieces: impl Iterator<Item = &'p [u8]>, total: usize) -> bool {
        if total == 0 {
            return true;
        }
        if !self.know(total) {
            return false;
        }
        let Some(ring) = self.sender.ring else { return false };
        let (mut number, mut filled, mut left) = (self.used, 0, total);
        for mut piece in pieces {
            piece = &piece[..piece.len().min(left)];
            left -= piece.len();
            while !piece.is_empty() {
                let slot = self.sender.slots[number];
                let length = piece.len().min(slot.room as usize - filled);
                // SAFETY: the slot has room for so many bytes after those filled.
                unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), slot.at.add(filled), length) };
                piece = &piece[length..];
                filled += length;
                if filled == slot.room as usize && !(piece.is_empty() && left == 0) {
                    self.tell(ring, number, NEXT, slot.room as usize);
                    (number, filled) = (number + 1, 0);
                }
            }
        }
        if left > 0 {
            // The pieces were fewer than was said.
            self.restore(self.used, number + 1);
            return false;
        }
        self.tell(ring, number, 0, filled);
        self.used = number + 1;
        self.frames += 1;
        true
    }

    fn tell(&self, ring: Ring, number: usize, flags: u16, length: usize) {
        let at = self.sender.position.wrapping_add(number as u16);
        ring.set_descriptor(at, flags, self.sender.slots[number].region, length as u32);
    }

    /// Know as many slots as have room for `total` bytes; `false`: there are not.
    fn know(&mut self, total: usize) -> bool {
        let (mut count, mut room) = (0, 0);
        while room < total {
            if self.used + count == self.ready {
                self.prepare(self.ready + 1);
            }
            let Some(slot) = self.sender.slots[..self.ready].get(self.used + count) else { return false };
            room += slot.room as usize;
            count += 1;
        }
        true
    }

    /// Slots are offered as they were: what they have room for is told where their frames' lengths are.
    fn restore(&self, from: usize, to: usize) {
        let Some(ring) = self.sender.ring else { return };
        for number in from..to.min(self.ready) {
            self.tell(ring, number, 0, self.sender.slots[number].room as usize);
        }
    }

    /// Send what was put; how many frames.
    #[inline]
    pub fn commit(mut self) -> usize {
        let used = std::mem::take(&mut self.used);
        if let (Some(ring), true) = (self.sender.ring, used > 0) {
            let position = self.sender.position.wrapping_add(used as u16);
            self.sender.publish(ring, position);
            return self.frames;
        }
        0
    }
}

impl Drop for Space<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.used > 0 {
            self.restore(0, self.used);
        }
    }
}
