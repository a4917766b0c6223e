//! The queues of a port: frames copied out of a socket's ring, and into it.

use super::Counters;
use super::ring::{Layout, Received, Ring};
use super::socket::PacketSocket;
use crate::batch::{BURST, Batch};
use crate::mempool::Mempool;
use nix::libc::{EAGAIN, ENOBUFS};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The type of an 802.1Q tag, with which a frame may be 4 bytes longer than the MTU allows (`packet_extra_vlan_len_allowed`).
const DOT1Q: [u8; 2] = [0x81, 0];
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// A receive queue.
#[derive(Debug)]
pub(crate) struct Rx {
    ring: Ring,
    /// Keeps the ring's memory.
    _socket: Arc<PacketSocket>,
    pool: Mempool,
    counters: Arc<Counters>,
    /// What was found in the ring, of one burst.
    found: [Option<Received>; BURST],
    /// A frame that one packet of the pool has no room for.
    whole: Box<[u8]>,
}

impl Rx {
    /// The receive queue of a socket, which has one; with `discard` what has arrived before is dropped.
    pub(crate) fn new(
        socket: &Arc<PacketSocket>,
        layout: Layout,
        counters: &Arc<Counters>,
        pool: &Mempool,
        discard: bool,
    ) -> Self {
        // SAFETY: a port is started once, and makes one such queue of each socket, which it keeps.
        let mut ring = unsafe { socket.receiving(layout) };
        if discard {
            ring.discard();
        }
        Self {
            ring,
            _socket: Arc::clone(socket),
            pool: pool.clone(),
            counters: Arc::clone(counters),
            found: [None; BURST],
            whole: vec![0; layout.room() + 4].into(),
        }
    }

    /// Take what has arrived, at most `most` and as much as `batch` and the pool have room for.
    #[inline]
    pub(crate) fn receive(&mut self, batch: &mut Batch, most: usize) -> usize {
        let (most, room) = (most.min(batch.room()), self.pool.room());
        let (mut n, mut bytes) = (0, 0);
        while n < most {
            let Some(frame) = self.ring.received(n as u32) else { break };
            if frame.truncated || frame.frame_bytes() > room {
                // It is dealt with when it is the first.
                if n == 0 {
                    return self.odd(&frame, batch);
                }
                break;
            }
            self.found[n] = Some(frame);
            bytes += frame.frame_bytes();
            n += 1;
        }
        if n == 0 {
            return 0;
        }
        let (ring, found) = (&self.ring, &self.found);
        let length = |at: usize| found.get(at).and_then(Option::as_ref).map_or(0, Received::frame_bytes);
        let Some(mut fresh) = self.pool.fresh_frames(batch, batch.len() + n, 0) else {
            return self.no_memory();
        };
        for (at, to) in fresh.with_lengths(length).enumerate() {
            if let Some(Some(frame)) = found.get(at) {
                ring.copy(at as u32, frame, to);
            }
        }
        self.ring.release(n as u32);
        self.passed(n, bytes)
    }

    /// The first frame is longer than its place, or than a packet of the pool.
    #[cold]
    fn odd(&mut self, frame: &Received, batch: &mut Batch) -> usize {
        let pieces = self.pool.segments(frame.frame_bytes());
        let Some(whole) =
            self.whole.get_mut(..frame.frame_bytes()).filter(|_| !frame.truncated && pieces <= BURST)
        else {
            self.ring.release(1);
            self.counters.truncated.fetch_add(1, Ordering::Relaxed);
            return 0;
        };
        self.ring.copy(0, frame, whole);
        let Some(packet) = self.pool.packet(whole) else { return self.no_memory() };
        self.ring.release(1);
        // There is room for one at least.
        let _full = batch.push(packet);
        self.passed(1, frame.frame_bytes())
    }

    #[inline]
    fn passed(&self, frames: usize, bytes: usize) -> usize {
        // The counters are those of all queues.
        self.counters.rx_frames.fetch_add(frames as u64, Ordering::Relaxed);
        self.counters.rx_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        frames
    }

    #[cold]
    fn no_memory(&self) -> usize {
        self.counters.no_memory.fetch_add(1, Ordering::Relaxed);
        0
    }
}

/// A transmit queue.
#[derive(Debug)]
pub(crate) struct Tx {
    ring: Ring,
    socket: Arc<PacketSocket>,
    counters: Arc<Counters>,
}

impl Tx {
    /// The transmit queue of a socket, which has one.
    pub(crate) fn new(socket: &Arc<PacketSocket>, layout: Layout, counters: &Arc<Counters>) -> Self {
        // SAFETY: a port is started once, and makes one such queue of each socket, which it keeps.
        let ring = unsafe { socket.sending(layout) };
        Self { ring, socket: Arc::clone(socket), counters: Arc::clone(counters) }
    }

    /// Send as many packets as there is room for, in order; the rest stay in `batch`. A frame that is longer than the interface or
    /// a place of the ring allows goes nowhere, and is counted by `unfit`: the kernel would drop it without a word.
    #[inline]
    pub(crate) fn send(&mut self, batch: &mut Batch, unfit: &AtomicU64) -> usize {
        if batch.is_empty() {
            return 0;
        }
        let longest = self.counters.mtu.load(Ordering::Relaxed) as usize + ETHERNET;
        let (mut taken, mut sent, mut bytes) = (0, 0, 0);
        for mbuf in batch.frames() {
            let length = mbuf.len();
            let tag = if mbuf.data().get(12..14) == Some(&DOT1Q) { 4 } else { 0 };
            let Some(place) = self.ring.free() else { break };
            match place.get_mut(..length).filter(|_| length <= longest + tag && length >= ETHERNET) {
                Some(place) if mbuf.is_whole() => place.copy_from_slice(mbuf.data()),
                Some(place) => _ = mbuf.copy_to(place),
                None => {
                    taken += 1;
                    unfit.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
            }
            self.ring.submit(length);
            taken += 1;
            sent += 1;
            bytes += length;
        }
        // Also when there was no room: what is in the ring may wait for that.
        match self.socket.kick().map_err(|why| why.raw_os_error()) {
            Ok(()) | Err(Some(EAGAIN | ENOBUFS)) => {
                self.counters.tx_frames.fetch_add(sent, Ordering::Relaxed);
                self.counters.tx_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Err(_) => _ = self.counters.tx_errors.fetch_add(sent, Ordering::Relaxed),
        }
        let free = |from: *mut *mut dpdk_sys::rte_mbuf, _: usize| {
            // SAFETY: the first packets of the batch, whose bytes have been copied; nobody uses them again.
            unsafe { dpdk_sys::nd_free_burst(from, taken as u32) };
            taken
        };
        // SAFETY: `free` takes over the first `taken`, which are at most as many as there are.
        unsafe { batch.take(free) };
        taken
    }
}
