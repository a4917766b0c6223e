//! A queue of packets between two threads: one puts in, one takes out.

use crate::batch::Batch;
use crate::eal::Eal;
use crate::error::Result;
use dpdk_sys::{rte_mbuf, rte_ring};
use std::ffi::{CStr, CString};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A ring in DPDK's memory; freed with the packets still in it when its last owner goes.
#[derive(Debug)]
pub struct Ring {
    ring: NonNull<rte_ring>,
    eal: &'static Eal,
}

// SAFETY: the ring's memory is shared by design. Its two ends are used through RingTx and RingRx, or through a port's
// queues, which exist once each and are used mutably.
unsafe impl Send for Ring {}
// SAFETY: as above; `&Ring` itself gives no access to packets.
unsafe impl Sync for Ring {}

/// The end that puts in.
#[derive(Debug)]
pub struct RingTx(Arc<Ring>);

/// The end that takes out.
#[derive(Debug)]
pub struct RingRx(Arc<Ring>);

impl Ring {
    /// A ring for at least `capacity` packets, for one thread to put in and one to take out.
    pub fn channel(eal: &'static Eal, capacity: u32) -> Result<(RingTx, RingRx)> {
        let ring = Arc::new(Self::create(eal, capacity)?);
        Ok((RingTx(ring.clone()), RingRx(ring)))
    }

    /// One for at least `capacity` packets, with one user at each end.
    pub(crate) fn create(eal: &'static Eal, capacity: u32) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = CString::new(format!("ring{}", COUNT.fetch_add(1, Ordering::Relaxed))).unwrap_or_default();
        // DPDK's rings hold one less than their size, a power of two.
        let size = capacity.saturating_add(1).next_power_of_two();
        let flags = dpdk_sys::ND_RING_SP | dpdk_sys::ND_RING_SC;
        let _control = eal.control();
        // SAFETY: the EAL runs, `name` is NUL-terminated and copied, size is a power of two; -1 is any node.
        let ring = unsafe { dpdk_sys::rte_ring_create(name.as_ptr(), size, -1, flags) };
        match NonNull::new(ring) {
            Some(ring) => Ok(Self { ring, eal }),
            None => Err(eal.out_of_memory(format!("a ring of {capacity} packets"))),
        }
    }

    pub(crate) fn raw(&self) -> NonNull<rte_ring> {
        self.ring
    }

    /// Free what is in the ring. Nobody may be using it.
    pub(crate) fn drain(&self) {
        drain(self.ring);
    }
}

fn drain(ring: NonNull<rte_ring>) {
    let (mut batch, ring) = (Batch::new(), ring.as_ptr());
    loop {
        // SAFETY: the ring is valid and holds only packets that it owns; drain writes at most `room`.
        let n = unsafe { batch.fill(|to, room| dpdk_sys::nd_ring_drain(ring, to, room as u32) as usize) };
        if n == 0 {
            break;
        }
        batch.clear();
    }
}

/// The ring that `net_ring` made for a queue of the port called `port`, which gives back what is put into it.
pub(crate) fn of_port(port: &CStr, queue: u16) -> Option<NonNull<rte_ring>> {
    // SAFETY: the name is NUL-terminated and only read.
    NonNull::new(unsafe { dpdk_sys::nd_port_ring(port.as_ptr(), queue) })
}

/// Close a port that made its rings by itself, as `net_ring` does: its driver makes as many as it could have queues, and
/// of those without a queue it forgets all, of the others what is in them.
///
/// # Safety
/// `port` is the name of such a port, which nobody uses and `close` closes. The caller holds [`Eal::control`].
pub(crate) unsafe fn close_with_rings(port: &CStr, close: impl FnOnce()) {
    /// Queues of a port (DPDK's `RTE_PMD_RING_MAX_RX_RINGS`).
    const MOST: u16 = 16;
    let made = || (0..MOST).filter_map(|queue| of_port(port, queue));
    made().for_each(drain);
    close();
    // SAFETY: the port is gone, and its name nobody else's while `control` is held: these were its own.
    made().for_each(|ring| unsafe { dpdk_sys::rte_ring_free(ring.as_ptr()) });
}

/// Put in as many packets as there is room for, in order; the rest stay in `batch`.
///
/// # Safety
/// `ring` is valid, and the caller its only producer.
#[inline]
unsafe fn put(ring: NonNull<rte_ring>, batch: &mut Batch) -> usize {
    let put = |from: *mut *mut rte_mbuf, n: usize| {
        // SAFETY: as promised by the caller.
        unsafe { dpdk_sys::nd_ring_enqueue(ring.as_ptr(), from, n as u32) as usize }
    };
    // SAFETY: the ring takes over the first packets, as many as it returns.
    unsafe { batch.take(put) }
}

/// Take out as many packets as `batch` has room for, in order.
///
/// # Safety
/// `ring` is valid, and the caller its only consumer.
#[inline]
unsafe fn get(ring: NonNull<rte_ring>, batch: &mut Batch) -> usize {
    let get = |to: *mut *mut rte_mbuf, room: usize| {
        // SAFETY: as promised by the caller.
        unsafe { dpdk_sys::nd_ring_dequeue(ring.as_ptr(), to, room as u32) as usize }
    };
    // SAFETY: the ring writes at most `room` packets that it owned and hands over.
    unsafe { batch.fill(get) }
}

/// What a queue of a port of rings is in truth. Used without the driver, which copies pointer by pointer, it takes a third
/// less time; what passes is counted here then.
#[derive(Debug)]
pub(crate) struct Direct {
    ring: NonNull<rte_ring>,
    passed: Arc<AtomicU64>,
}

// SAFETY: as for `Ring`.
unsafe impl Send for Direct {}

impl Direct {
    /// `passed`: packets that went through it.
    ///
    /// # Safety
    /// `ring` has one user at each end, of which this is one, and outlives this.
    pub(crate) unsafe fn new(ring: NonNull<rte_ring>, passed: Arc<AtomicU64>) -> Self {
        Self { ring, passed }
    }

    #[inline]
    pub(crate) fn send(&mut self, batch: &mut Batch) -> usize {
        // SAFETY: as promised to `new`.
        let sent = unsafe { put(self.ring, batch) };
        self.count(sent)
    }

    #[inline]
    pub(crate) fn receive(&mut self, batch: &mut Batch) -> usize {
        // SAFETY: as promised to `new`.
        let received = unsafe { get(self.ring, batch) };
        self.count(received)
    }

    #[inline]
    fn count(&self, packets: usize) -> usize {
        // Nobody else writes it.
        self.passed.store(self.passed.load(Ordering::Relaxed) + packets as u64, Ordering::Relaxed);
        packets
    }
}

/// What sees how full a ring is.
#[derive(Debug, Clone)]
pub struct RingRoom(Arc<Ring>);

impl RingRoom {
    /// Packets that there is room for: as many can be put in by the thread that puts in, as room only grows meanwhile.
    #[inline]
    pub fn room(&self) -> usize {
        // SAFETY: the ring is valid while we hold it; its indices are only read, by atomic instructions.
        unsafe { dpdk_sys::nd_ring_room(self.0.ring.as_ptr()) as usize }
    }
}

impl RingTx {
    /// What sees how much room there is, without the right to put anything in.
    pub fn watch(&self) -> RingRoom {
        RingRoom(Arc::clone(&self.0))
    }

    /// Put in as many packets as there is room for, in order; the rest stay in `batch`.
    #[inline]
    pub fn send(&mut self, batch: &mut Batch) -> usize {
        // SAFETY: the ring is ours; `&mut self` makes us its only producer.
        unsafe { put(self.0.ring, batch) }
    }
}

impl RingRx {
    /// Take out as many packets as `batch` has room for, in order.
    #[inline]
    pub fn receive(&mut self, batch: &mut Batch) -> usize {
        // SAFETY: the ring is ours; `&mut self` makes us its only consumer.
        unsafe { get(self.0.ring, batch) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.drain();
        let _control = self.eal.control();
        // SAFETY: we are the last owner (both ends, or the cable that made it, are gone).
        unsafe { dpdk_sys::rte_ring_free(self.ring.as_ptr()) };
    }
}
