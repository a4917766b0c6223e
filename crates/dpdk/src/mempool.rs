//! Where packets' memory comes from.

use crate::batch::{BURST, Batch};
use crate::eal::Eal;
use crate::error::{Error, Result};
use crate::mbuf::Mbuf;
use dpdk_sys::{rte_mbuf, rte_mempool};
use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// A pool of packets, shared by clones of this handle.
///
/// A pool that nobody uses any more is kept for the next one of the same size, so that a daemon that runs for months does not
/// fragment its memory. It is freed when there is no memory for another one, and none of its packets is out: one in a driver's queue
/// stays valid whatever is dropped first.
#[derive(Debug, Clone)]
pub struct Mempool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: NonNull<rte_mempool>,
    spec: PoolSpec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PoolSpec {
    packets: u32,
    room: u16,
    /// The NUMA node that its memory is on; `None`: any.
    node: Option<u32>,
}

// SAFETY: DPDK's pools may be used by any thread; the pointer does not dangle, as no pool is freed that has a handle.
unsafe impl Send for Inner {}
// SAFETY: as above; allocation and freeing are thread-safe (multi-producer, multi-consumer).
unsafe impl Sync for Inner {}

/// Packets that a registered thread keeps for itself.
const CACHE: u32 = 512;

/// Makes packets from a pool that are like others, and returns how many.
type Make = unsafe extern "C" fn(*mut rte_mempool, *mut *mut rte_mbuf, *mut *mut rte_mbuf, u32) -> u32;

/// A pool that nobody uses now.
struct Idle(NonNull<rte_mempool>, PoolSpec);
// SAFETY: see Inner.
unsafe impl Send for Idle {}

static IDLE: Mutex<Vec<Idle>> = Mutex::new(Vec::new());

/// Whether all of its packets are in the pool.
fn is_whole(Idle(pool, _): &Idle) -> bool {
    // SAFETY: the pool is valid: it is freed by `free_idle` alone, which takes it off the list.
    unsafe { dpdk_sys::rte_mempool_in_use_count(pool.as_ptr()) == 0 }
}

/// Free the pools that nobody uses. Whether there were any. To be called by who holds the EAL's control lock.
fn free_idle() -> bool {
    let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    let (whole, out): (Vec<Idle>, Vec<Idle>) = idle.drain(..).partition(is_whole);
    *idle = out;
    for Idle(pool, _) in &whole {
        // SAFETY: there is no handle on an idle pool, so nobody takes packets from it: a receive queue keeps one. And none of
        // its packets is out, so nobody gives one back.
        unsafe { dpdk_sys::rte_mempool_free(pool.as_ptr()) };
    }
    !whole.is_empty()
}

impl Mempool {
    /// A pool of `packets` packets of up to `room` bytes each, wherever there is memory.
    pub fn new(eal: &'static Eal, packets: u32, room: u16) -> Result<Self> {
        Self::on(eal, None, packets, room)
    }

    /// The same in the memory of one NUMA node, such as that of [the port](crate::Port::node) that uses it; see
    /// [`NodePools`](crate::NodePools) for all ports of a graph. Where nodes cannot be told apart (one node, no huge pages)
    /// that is the memory there is; a node whose memory is full lets others help, and that is logged.
    pub fn on(eal: &'static Eal, node: Option<u32>, packets: u32, room: u16) -> Result<Self> {
        let node = node.filter(|node| eal.nodes().contains(node));
        match (node, Self::make(eal, PoolSpec { packets, room, node })) {
            (Some(node), Err(_)) => {
                tracing::warn!(node, packets, room, "no packet memory on this NUMA node; taken from another");
                Self::make(eal, PoolSpec { packets, room, node: None })
            }
            (_, made) => made,
        }
    }

    fn make(eal: &'static Eal, spec: PoolSpec) -> Result<Self> {
        static COUNT: Mutex<u32> = Mutex::new(0);
        let PoolSpec { packets, room, node } = spec;
        let _control = eal.control();
        {
            let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
            // One with packets still out would be a smaller pool than asked for.
            let fits = |one: &Idle| one.1 == spec && is_whole(one);
            if let Some(at) = idle.iter().position(fits) {
                let Idle(pool, _) = idle.swap_remove(at);
                return Ok(Self(Arc::new(Inner { pool, spec })));
            }
        }
        let name = {
            let mut count = COUNT.lock().unwrap_or_else(PoisonError::into_inner);
            *count += 1;
            CString::new(format!("pool{count}")).unwrap_or_default()
        };
        let cache = CACHE.min(packets / 4);
        let room_with_head = room.saturating_add(dpdk_sys::RTE_PKTMBUF_HEADROOM as u16);
        let node = node.and_then(|node| i32::try_from(node).ok()).unwrap_or(-1);
        let create = || {
            // SAFETY: the EAL runs, with addresses for devices that are those of the process, as dense pools need;
            // `name` is NUL-terminated and copied; -1 is SOCKET_ID_ANY.
            let pool = unsafe {
                if eal.options().huge_pages {
                    dpdk_sys::rte_pktmbuf_pool_create(name.as_ptr(), packets, cache, 0, room_with_head, node)
                } else {
                    dpdk_sys::nd_dense_pool(name.as_ptr(), packets, cache, room_with_head)
                }
            };
            NonNull::new(pool)
        };
        match create().or_else(|| free_idle().then(create).flatten()) {
            Some(pool) => Ok(Self(Arc::new(Inner { pool, spec }))),
            None => Err::<Self, Error>(eal.out_of_memory(format!("{packets} packets of {room} bytes"))),
        }
    }

    /// Fill `batch` up to `n` packets of length 0; all of what is missing or nothing. Says whether it did.
    #[inline]
    pub fn fill(&self, batch: &mut Batch, n: usize) -> bool {
        self.fill_frames(batch, n, 0)
    }

    /// Fill `batch` up to `n` packets of `len` bytes each, which are whatever was there before; all of what is
    /// missing or nothing. Says whether it did.
    #[inline]
    pub fn fill_frames(&self, batch: &mut Batch, n: usize, len: usize) -> bool {
        self.fresh_frames(batch, n, len).is_some()
    }

    /// The same, and the packets that came. `None`: there is no memory.
    #[inline]
    pub fn fresh_frames<'a>(&self, batch: &'a mut Batch, n: usize, len: usize) -> Option<Fresh<'a>> {
        let from = batch.len();
        let n = n.saturating_sub(from).min(batch.room());
        if n == 0 {
            return Some(Fresh { batch, from });
        }
        if len > usize::from(self.0.spec.room) {
            return None;
        }
        let len = len as u16;
        let pool = self.0.pool.as_ptr();
        // SAFETY: nd_alloc_frames writes either n valid packets, n <= room, or none and returns non-zero; their
        // buffers have `room` bytes at least.
        let got = unsafe {
            batch.fill(
                |places, _room| {
                    if dpdk_sys::nd_alloc_frames(pool, places, n as u32, len) == 0 { n } else { 0 }
                },
            )
        };
        if from == 0 && got == n {
            batch.set_bytes(n as u64 * u64::from(len));
        }
        (got == n).then_some(Fresh { batch, from })
    }

    /// Clones of the first packets in `from`, to the end of `to`: as many as there is room and memory for, which it returns.
    /// A clone has a header of its own, from this pool, and the bytes of the packet that it is of, which stay in memory
    /// until the last of them is gone. Whoever wants to write gets a copy first: see [`Mbuf::data_mut`].
    pub fn clones_of(&self, from: &Batch, to: &mut Batch) -> usize {
        self.copy_all(from.frames(), to, dpdk_sys::nd_clone_burst)
    }

    /// Copies of the first packets in `from`, to the end of `to`: as many as there is room and memory for, which it
    /// returns. Longer ones than this pool's packets have room for come in several segments.
    pub fn copies_of(&self, from: &Batch, to: &mut Batch) -> usize {
        self.copy_all(from.frames(), to, dpdk_sys::nd_copy_burst)
    }

    /// A clone of one packet: see [`Mempool::clones_of`]. `None`: there is no memory.
    pub fn clone_of(&self, mbuf: &Mbuf) -> Option<Mbuf> {
        let mut one = Batch::new();
        self.copy_all(std::slice::from_ref(mbuf), &mut one, dpdk_sys::nd_clone_burst);
        one.into_iter().next()
    }

    /// A copy of one packet: see [`Mempool::copies_of`]. `None`: there is no memory.
    pub fn copy_of(&self, mbuf: &Mbuf) -> Option<Mbuf> {
        let mut one = Batch::new();
        self.copy_all(std::slice::from_ref(mbuf), &mut one, dpdk_sys::nd_copy_burst);
        one.into_iter().next()
    }

    fn copy_all(&self, from: &[Mbuf], to: &mut Batch, make: Make) -> usize {
        let pool = self.0.pool.as_ptr();
        // The shim takes pointers as DPDK does; Mbuf is a transparent one, and the packets are only read, apart from their
        // counts of references, which all may change.
        let packets = from.as_ptr().cast_mut().cast::<*mut rte_mbuf>();
        // SAFETY: the pool is valid; `from` are as many packets, borrowed for the call, which writes at most `n` new ones,
        // owned by nobody else, and returns how many.
        unsafe { to.fill(|places, room| make(pool, packets, places, from.len().min(room) as u32) as usize) }
    }

    /// Bytes that one packet has room for.
    #[inline]
    pub fn room(&self) -> usize {
        self.0.spec.room.into()
    }

    /// How many segments so many bytes take.
    pub fn segments(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.0.spec.room.into())
    }

    /// A packet with these bytes, in as many segments as they take, at most [`BURST`]. `None` when there are too few.
    pub fn packet(&self, bytes: &[u8]) -> Option<Mbuf> {
        self.packet_of(&[], bytes)
    }

    /// The same of a packet that begins with `headers`, which its first segment has whole.
    pub fn packet_of(&self, headers: &[u8], bytes: &[u8]) -> Option<Mbuf> {
        let first = self.room().checked_sub(headers.len())?.min(bytes.len());
        let (begin, rest) = bytes.split_at(first);
        let (pieces, mut batch) = (1 + self.segments(rest.len()), Batch::new());
        if pieces > BURST || !self.fill(&mut batch, pieces) {
            return None;
        }
        let mut batch = batch.into_iter();
        let mut whole = batch.next()?;
        let (head, tail) = whole.set_len(headers.len() + first)?.split_at_mut(headers.len());
        head.copy_from_slice(headers);
        tail.copy_from_slice(begin);
        let mut after: Option<Mbuf> = None;
        // From the end on: who is put before a chain need not look for its end.
        for (mut piece, bytes) in batch.zip(rest.chunks(self.0.spec.room.into()).rev()) {
            piece.set_len(bytes.len())?.copy_from_slice(bytes);
            if let Some(after) = after.take() {
                piece.chain(after).ok()?;
            }
            after = Some(piece);
        }
        if let Some(after) = after {
            whole.chain(after).ok()?;
        }
        Some(whole)
    }

    /// Packets not in use. Slow and, while others use the pool, approximate.
    pub fn available(&self) -> u32 {
        // SAFETY: the pool is valid.
        unsafe { dpdk_sys::rte_mempool_avail_count(self.0.pool.as_ptr()) }
    }

    /// Packets in all.
    pub fn capacity(&self) -> u32 {
        self.0.spec.packets
    }

    /// The NUMA node that its memory is on. `None`: any, as nobody asked, or as they cannot be told apart.
    pub fn node(&self) -> Option<u32> {
        self.0.spec.node
    }

    pub(crate) fn as_ptr(&self) -> *mut rte_mempool {
        self.0.pool.as_ptr()
    }
}

/// The packets at the end of a batch that a pool has just given: nobody else has their bytes.
#[derive(Debug)]
pub struct Fresh<'a> {
    batch: &'a mut Batch,
    from: usize,
}

impl Fresh<'_> {
    /// How many.
    #[inline]
    pub fn len(&self) -> usize {
        self.batch.len() - self.from
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Give back those after the first `n`.
    #[inline]
    pub fn truncate(&mut self, n: usize) {
        self.batch.truncate(self.from.saturating_add(n));
    }

    /// The bytes of each, to be written. As [`Batch::data_mut`], without looking into each packet whether others have them.
    #[inline]
    pub fn data_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [u8]> {
        // SAFETY: only `Mempool::fresh_frames` makes this, right after the pool gave the packets from `from` on, each the only
        // one with its buffer (nd_alloc_frames makes them direct, with one reference). The batch is borrowed since, and
        // nothing here hands out a packet or its clone; `truncate` only shortens it.
        unsafe { self.batch.own_bytes(self.from) }
    }

    /// The same of other lengths, which `len` tells for each; one that has no room for that is left as it is, and nothing of
    /// it given.
    #[inline]
    pub fn with_lengths(&mut self, mut len: impl FnMut(usize) -> usize) -> impl Iterator<Item = &mut [u8]> {
        let packets = self.batch.frames_mut().iter_mut().skip(self.from).enumerate();
        packets.map(move |(number, mbuf)| mbuf.set_len(len(number)).unwrap_or_default())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(Idle(self.pool, self.spec));
    }
}
