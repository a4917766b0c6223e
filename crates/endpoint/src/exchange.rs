//! Frames that one worker of a port received and another one takes, over rings between each two workers.

use dpdk::{Batch, Eal, Mbuf, Mempool, Ring, RingRx, RingTx};
use stack::{Recipient, Share};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes that a packet of the ports' memory has room for.
pub const ROOM: u16 = 2_048;
/// Frames that wait for a worker, from each other one.
const CAPACITY: u32 = 4095;

/// Counts of all workers of a port.
#[derive(Debug, Default)]
pub struct PortCounts {
    pub received_bytes: AtomicU64,
    pub sent_bytes: AtomicU64,
    /// Frames that were handed to another worker.
    pub redirected: AtomicU64,
    /// Frames for which a worker's ring had no room.
    pub dropped: AtomicU64,
    /// Workers that use the port.
    present: AtomicUsize,
}

/// One worker's ends of the rings.
#[derive(Debug)]
pub struct Exchange {
    pub share: Share,
    pub passed: Arc<PortCounts>,
    /// To each other worker, with what is on its way there.
    to: Vec<Option<(RingTx, Batch)>>,
    from: Vec<RingRx>,
    is_present: bool,
}

impl Exchange {
    /// For each of so many workers of a port its own.
    pub fn for_workers(eal: &'static Eal, workers: usize) -> dpdk::Result<Vec<Self>> {
        let passed = Arc::<PortCounts>::default();
        let own = |worker| Self {
            share: Share { worker, workers },
            passed: Arc::clone(&passed),
            to: Vec::new(),
            from: Vec::new(),
            is_present: false,
        };
        let mut all: Vec<Self> = (0..workers).map(own).collect();
        for from in 0..workers {
            for to in 0..workers {
                if from == to {
                    all[from].to.push(None);
                    continue;
                }
                let (tx, rx) = Ring::channel(eal, CAPACITY)?;
                all[from].to.push(Some((tx, Batch::new())));
                all[to].from.push(rx);
            }
        }
        Ok(all)
    }

    /// Its worker uses the port from now on.
    pub fn enter(&mut self) {
        if !std::mem::replace(&mut self.is_present, true) {
            self.passed.present.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Its worker has nothing more to do for itself.
    pub fn leave(&mut self) {
        if std::mem::replace(&mut self.is_present, false) {
            self.passed.present.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether a worker uses the port, so that frames must be handed on.
    pub fn is_used(&self) -> bool {
        self.passed.present.load(Ordering::Acquire) > 0
    }

    /// Frames that were handed on, and those for which there was no room.
    pub fn redirected(&self) -> (u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.passed.redirected), count(&self.passed.dropped))
    }

    /// Hand on a frame that was received for others, too; the frame, unless it went away.
    pub fn hand_on(&mut self, mbuf: Mbuf, recipient: Recipient, pool: &Mempool) -> Option<Mbuf> {
        match recipient {
            Recipient::Here => return Some(mbuf),
            Recipient::Worker(number) => {
                self.put(number, mbuf);
                return None;
            }
            Recipient::All => {}
        }
        let Share { worker, workers } = self.share;
        for number in (0..workers).filter(|number| *number != worker) {
            let mut copy = Batch::new();
            let is_copied = mbuf.len() <= pool.room()
                && pool.fill_frames(&mut copy, 1, mbuf.len())
                && copy.frames_mut().first_mut().is_some_and(|to| mbuf.copy_to(to.data_mut()));
            match copy.into_iter().next().filter(|_| is_copied) {
                Some(copy) => self.put(number, copy),
                None => _ = self.passed.dropped.fetch_add(1, Ordering::Relaxed),
            }
        }
        Some(mbuf)
    }

    fn put(&mut self, number: usize, mbuf: Mbuf) {
        let Some(Some((ring, batch))) = self.to.get_mut(number) else { return };
        let mut refused = batch.push(mbuf).err();
        if let Some(mbuf) = refused.take() {
            flush(ring, batch, &self.passed);
            refused = batch.push(mbuf).err();
        }
        self.passed.dropped.fetch_add(u64::from(refused.is_some()), Ordering::Relaxed);
    }

    /// Let the others have what was handed on.
    pub fn flush(&mut self) {
        for (ring, batch) in self.to.iter_mut().flatten().filter(|(_, batch)| !batch.is_empty()) {
            flush(ring, batch, &self.passed);
        }
    }

    /// What others have handed on, one burst from each: `take` gets the bursts. Whether there was anything.
    pub fn receive(&mut self, batch: &mut Batch, mut take: impl FnMut(&mut Batch)) -> bool {
        let mut any = false;
        for ring in &mut self.from {
            ring.receive(batch);
            if !batch.is_empty() {
                any = true;
                take(batch);
                batch.clear();
            }
        }
        any
    }
}

fn flush(ring: &mut RingTx, batch: &mut Batch, passed: &PortCounts) {
    let sent = ring.send(batch);
    passed.redirected.fetch_add(sent as u64, Ordering::Relaxed);
    passed.dropped.fetch_add(batch.len() as u64, Ordering::Relaxed);
    batch.clear();
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.leave();
    }
}
