//! The rings that a socket shares with the kernel (TPACKET_V2): places in turn, each the kernel's or ours as its status says.

use nix::libc::{TP_STATUS_AVAILABLE, TP_STATUS_KERNEL, TP_STATUS_SEND_REQUEST, TP_STATUS_TS_RAW_HARDWARE};
use nix::libc::{TP_STATUS_TS_SOFTWARE, TP_STATUS_USER, TP_STATUS_VLAN_TPID_VALID, TP_STATUS_VLAN_VALID};
use nix::libc::{TPACKET2_HDRLEN, sockaddr_ll, tpacket2_hdr};
use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the kernel looks for a frame that is to be sent (`tpacket_snd`).
const SENT_AT: usize = TPACKET2_HDRLEN - size_of::<sockaddr_ll>();
/// Where it begins to write one that was received, at most: after the header, an Ethernet header aligned to 16 (`tpacket_rcv`).
const RECEIVED_AT: usize = (TPACKET2_HDRLEN + 16).next_multiple_of(16) - 14;
/// The least that a place is aligned to.
const ALIGNMENT: u32 = 16;
/// The least bytes of a place by default, as of DPDK's driver.
const LEAST: u32 = 2048;
const PAGE: u32 = 4096;

/// How a ring is laid out: blocks, each of so many places. Both rings of a socket are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) frame_size: u32,
    pub(crate) block_size: u32,
    pub(crate) blocks: u32,
    pub(crate) frames: u32,
}

impl Layout {
    /// For `frames` places at least. What is not said follows from the MTU. `None`: it cannot be laid out so.
    pub(crate) fn new(
        frame_size: Option<u32>,
        block_size: Option<u32>,
        frames: u32,
        mtu: u32,
    ) -> Option<Self> {
        // An Ethernet header, and a tag that the kernel leaves in.
        let needed = mtu.min(1 << 16).checked_add(18 + RECEIVED_AT as u32)?;
        let frame_size = frame_size.unwrap_or_else(|| needed.next_power_of_two().max(LEAST));
        let block_size = block_size.unwrap_or_else(|| frame_size.next_multiple_of(PAGE));
        let valid = frame_size.is_multiple_of(ALIGNMENT)
            && frame_size as usize > RECEIVED_AT + 64
            && block_size.is_multiple_of(PAGE)
            && block_size >= frame_size;
        if !valid {
            return None;
        }
        let per_block = block_size / frame_size;
        let blocks = frames.div_ceil(per_block);
        Some(Self { frame_size, block_size, blocks, frames: blocks.checked_mul(per_block)? })
    }

    /// Bytes of a ring.
    pub(crate) fn bytes(&self) -> usize {
        self.block_size as usize * self.blocks as usize
    }

    /// Bytes of a frame that fit a place, sent or received.
    pub(crate) fn room(&self) -> usize {
        (self.frame_size as usize).saturating_sub(RECEIVED_AT.max(SENT_AT))
    }

    /// Where a place begins.
    fn offset(&self, place: u32) -> usize {
        let per_block = self.block_size / self.frame_size;
        (place / per_block) as usize * self.block_size as usize
            + (place % per_block) as usize * self.frame_size as usize
    }
}

/// A ring of one direction, and the place that is next.
#[derive(Debug)]
pub(crate) struct Ring {
    base: *mut u8,
    layout: Layout,
    next: u32,
}

// SAFETY: the memory is that of a socket which the holder keeps open, and no other thread of ours uses it.
unsafe impl Send for Ring {}

/// A frame that was received, as the kernel describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Received {
    /// Bytes in the ring, from `at` on.
    pub(crate) length: usize,
    at: usize,
    /// The tag that the kernel took out, with its type.
    tag: Option<[u8; 4]>,
    /// The kernel had more bytes than a place has room for.
    pub(crate) truncated: bool,
}

impl Received {
    /// Bytes of the frame with its tag.
    pub(crate) fn frame_bytes(&self) -> usize {
        self.length + if self.tag.is_some() { 4 } else { 0 }
    }
}

impl Ring {
    /// # Safety
    /// From `base` on there are as many bytes as the layout has, aligned to a page, which are valid for reads and writes as long as
    /// this is used, and which only the kernel and this use, taking turns as the places' statuses say.
    pub(crate) unsafe fn new(base: *mut u8, layout: Layout) -> Self {
        Self { base, layout, next: 0 }
    }

    fn place(&self, ahead: u32) -> *mut u8 {
        let at = self.layout.offset((self.next + ahead) % self.layout.frames);
        // SAFETY: the offset of a place, all of which lie within the ring.
        unsafe { self.base.add(at) }
    }

    fn status(&self, ahead: u32) -> &AtomicU32 {
        let at = offset_of!(tpacket2_hdr, tp_status);
        // SAFETY: a place is aligned to 16, begins with its header, and its status is only used by atomic instructions.
        unsafe { AtomicU32::from_ptr(self.place(ahead).add(at).cast()) }
    }

    /// The frame that is `ahead` of the next one, if it has arrived.
    #[inline]
    pub(crate) fn received(&self, ahead: u32) -> Option<Received> {
        if ahead >= self.layout.frames {
            return None;
        }
        let status = self.status(ahead).load(Ordering::Acquire);
        if status & TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the place is ours, as its status said, and begins with its header.
        let header = unsafe { self.place(ahead).cast::<tpacket2_hdr>().read() };
        let (at, room) = (usize::from(header.tp_mac), self.layout.frame_size as usize);
        let length = (header.tp_snaplen as usize).min(room.saturating_sub(at));
        let tag = (status & TP_STATUS_VLAN_VALID != 0 && length >= 12).then(|| {
            let known = status & TP_STATUS_VLAN_TPID_VALID != 0;
            let [kind, tci] = [if known { header.tp_vlan_tpid } else { 0x8100 }, header.tp_vlan_tci];
            [kind.to_be_bytes(), tci.to_be_bytes()].concat().try_into().unwrap_or_default()
        });
        let truncated = length < header.tp_len as usize || length < 14;
        Some(Received { length, at, tag, truncated })
    }

    /// Copy a frame that has arrived, with its tag, to `to`, which has its length.
    #[inline]
    pub(crate) fn copy(&self, ahead: u32, frame: &Received, to: &mut [u8]) {
        // SAFETY: `received` cut the length to what lies in the place, which is ours until it is released: `&mut self`.
        let bytes = unsafe { std::slice::from_raw_parts(self.place(ahead).add(frame.at), frame.length) };
        if to.len() != frame.frame_bytes() {
            return;
        }
        match frame.tag {
            None => to.copy_from_slice(bytes),
            Some(tag) => {
                to[..12].copy_from_slice(&bytes[..12]);
                to[12..16].copy_from_slice(&tag);
                to[16..].copy_from_slice(&bytes[12..]);
            }
        }
    }

    /// Give the first `n` frames that have arrived back to the kernel.
    #[inline]
    pub(crate) fn release(&mut self, n: u32) {
        for ahead in 0..n {
            self.status(ahead).store(TP_STATUS_KERNEL, Ordering::Release);
        }
        self.next = (self.next + n) % self.layout.frames;
    }

    /// Give all that has arrived back.
    pub(crate) fn discard(&mut self) {
        let arrived = (0..self.layout.frames).take_while(|ahead| self.received(*ahead).is_some()).count();
        self.release(arrived as u32);
    }

    /// Where the next frame that is to be sent goes, if its place is free.
    #[inline]
    pub(crate) fn free(&mut self) -> Option<&mut [u8]> {
        // Some kernels say when they sent a frame that nobody asked to be told of.
        let stamps = TP_STATUS_TS_SOFTWARE | TP_STATUS_TS_RAW_HARDWARE;
        if self.status(0).load(Ordering::Acquire) & !stamps != TP_STATUS_AVAILABLE {
            return None;
        }
        let room = self.layout.room();
        // SAFETY: the place is ours, as its status said; so many bytes from there on lie within it.
        Some(unsafe { std::slice::from_raw_parts_mut(self.place(0).add(SENT_AT), room) })
    }

    /// Hand the next place, with a frame of `length` bytes, to the kernel.
    #[inline]
    pub(crate) fn submit(&mut self, length: usize) {
        let header = self.place(0).cast::<tpacket2_hdr>();
        // SAFETY: the place is ours (see `free`), and begins with its header.
        unsafe {
            (*header).tp_len = length as u32;
            (*header).tp_snaplen = length as u32;
        }
        self.status(0).store(TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.next = (self.next + 1) % self.layout.frames;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(4096))]
    struct Memory([u8; 8192]);

    fn arrived(memory: &mut Memory, place: usize, status: u32, frame: &[u8], len: u32, tag: (u16, u16)) {
        let header = tpacket2_hdr {
            tp_status: status,
            tp_len: len,
            tp_snaplen: frame.len() as u32,
            tp_mac: RECEIVED_AT as u16,
            tp_net: 0,
            tp_sec: 0,
            tp_nsec: 0,
            tp_vlan_tci: tag.1,
            tp_vlan_tpid: tag.0,
            tp_padding: [0; 4],
        };
        let at = place * 2048;
        // SAFETY: the header lies within the memory, at an aligned place.
        unsafe { memory.0.as_mut_ptr().add(at).cast::<tpacket2_hdr>().write(header) };
        memory.0[at + RECEIVED_AT..][..frame.len()].copy_from_slice(frame);
    }

    #[test]
    fn layouts_follow_the_mtu_and_refuse_what_does_not_fit() {
        let usual = Layout::new(None, None, 512, 1500).unwrap();
        assert_eq!((usual.frame_size, usual.block_size, usual.blocks, usual.frames), (2048, 4096, 256, 512));
        assert_eq!((usual.bytes(), usual.room()), (1 << 20, 1982));
        let jumbo = Layout::new(None, None, 16, 9000).unwrap();
        assert!(jumbo.room() >= 9018 && jumbo.frames == 16, "{jumbo:?}");
        let odd = Layout::new(Some(1600), Some(4096), 5, 1500).unwrap();
        assert_eq!((odd.frames, odd.offset(1), odd.offset(2), odd.offset(5)), (6, 1600, 4096, 9792));
        for (frame, block) in
            [(Some(1601), None), (Some(4096), Some(2048)), (None, Some(5000)), (Some(64), None)]
        {
            assert!(Layout::new(frame, block, 512, 1500).is_none(), "{frame:?} {block:?}");
        }
    }

    #[test]
    fn a_frame_comes_with_the_tag_that_the_kernel_took_out() {
        let mut memory = Box::new(Memory([0; 8192]));
        let frame: Vec<u8> = (0..60).collect();
        let (user, valid) = (TP_STATUS_USER, TP_STATUS_USER | TP_STATUS_VLAN_VALID);
        arrived(&mut memory, 0, user, &frame, 60, (0, 0));
        arrived(&mut memory, 1, valid, &frame, 60, (0, 0x6064));
        arrived(&mut memory, 2, valid | TP_STATUS_VLAN_TPID_VALID, &frame, 60, (0x88a8, 200));
        let layout = Layout::new(None, None, 4, 1500).unwrap();
        // SAFETY: the memory outlives the ring, and nobody else uses it meanwhile.
        let mut ring = unsafe { Ring::new(memory.0.as_mut_ptr(), layout) };
        let tags: [&[u8]; 3] = [&[], &[0x81, 0, 0x60, 0x64], &[0x88, 0xa8, 0, 200]];
        for (ahead, tag) in tags.into_iter().enumerate() {
            let one = ring.received(ahead as u32).unwrap();
            let mut to = vec![0; one.frame_bytes()];
            ring.copy(ahead as u32, &one, &mut to);
            assert_eq!(to, [&frame[..12], tag, &frame[12..]].concat());
            assert!(!one.truncated);
        }
        assert_eq!(ring.received(3), None);
        ring.release(3);
        assert_eq!(ring.received(0), None);
        ring.release(1);
        assert_eq!((ring.received(0), ring.next), (None, 0), "the kernel has all places again");
    }

    #[test]
    fn a_frame_longer_than_its_place_is_known_to_be() {
        let mut memory = Box::new(Memory([0; 8192]));
        arrived(&mut memory, 0, TP_STATUS_USER, &[7; 1982], 9000, (0, 0));
        arrived(&mut memory, 1, TP_STATUS_USER, &[7; 10], 10, (0, 0));
        let layout = Layout::new(None, None, 4, 1500).unwrap();
        // SAFETY: as above.
        let ring = unsafe { Ring::new(memory.0.as_mut_ptr(), layout) };
        assert!(ring.received(0).unwrap().truncated && ring.received(1).unwrap().truncated);
    }

    #[test]
    fn a_frame_that_is_sent_lies_where_the_kernel_looks() {
        let mut memory = Box::new(Memory([0; 8192]));
        let layout = Layout::new(None, None, 4, 1500).unwrap();
        // SAFETY: as above.
        let mut ring = unsafe { Ring::new(memory.0.as_mut_ptr(), layout) };
        for byte in 1..=4 {
            ring.free().unwrap()[..60].fill(byte);
            ring.submit(60);
        }
        assert!(ring.free().is_none(), "all places are the kernel's");
        for place in 0..4 {
            assert_eq!(memory.0[place * 2048 + 32..][..60], [place as u8 + 1; 60]);
            assert_eq!(memory.0[place * 2048], TP_STATUS_SEND_REQUEST as u8);
        }
    }
}
