//! Frames between a port and a stack: what the port does by itself is asked of it, and believed of it.

use dpdk::{Batch, Checked, Headers, Mbuf, Mempool, TxQueue, TxWork};
use element::capture::{Tap, TapEnd};
use stack::{Offload, Recipient, Stack, Transmit, Work};
use std::sync::Arc;

/// Gives frames to the stack, whole.
#[derive(Debug)]
pub struct Incoming {
    /// The frame of several segments that was received last.
    whole: Vec<u8>,
    /// Whether the port validates checksums.
    validates: bool,
    tap: TapEnd,
}

impl Incoming {
    pub fn new(validates: bool, tap: Arc<Tap>) -> Self {
        Self { whole: Vec::new(), validates, tap: TapEnd::new(tap) }
    }

    /// Where they can be captured.
    pub fn tap(&mut self) -> &mut TapEnd {
        &mut self.tap
    }

    pub fn take(&mut self, stack: &mut Stack, mbuf: &Mbuf, now: u64) -> Recipient {
        let Self { whole, validates, .. } = self;
        let mut frame = mbuf.data();
        if !mbuf.is_whole() {
            whole.resize(mbuf.len(), 0);
            if !mbuf.copy_to(whole) {
                stack.count_unreadable();
                return Recipient::Here;
            }
            frame = whole;
        }
        // what it says is wrong, or says nothing of, is summed
        if *validates && mbuf.checksum() == Checked::Good {
            stack.receive_validated(frame, now)
        } else {
            stack.receive(frame, now)
        }
    }
}

/// Frames on their way to the port.
#[derive(Debug)]
pub struct Outgoing {
    tx: TxQueue,
    pool: Mempool,
    batch: Batch,
    bytes: u64,
    /// What the port does by itself.
    offload: Offload,
    /// It makes the checksums of IPv4 headers, too.
    ipv4_checksums: bool,
    tap: TapEnd,
}

impl Transmit for Outgoing {
    #[inline]
    fn frame(&mut self, len: usize) -> Option<&mut [u8]> {
        self.add(len)?;
        self.batch.frames_mut().last_mut().map(|mbuf| mbuf.data_mut())
    }

    fn offload(&self) -> Offload {
        self.offload
    }

    fn frame_with_work(&mut self, len: usize, work: &Work) -> Option<&mut [u8]> {
        self.add(len)?;
        let work = TxWork::checksums(&headers(work), self.ipv4_checksums);
        let mbuf = self.batch.frames_mut().last_mut()?;
        mbuf.request_tx_offload(&work);
        Some(mbuf.data_mut())
    }

    fn segmented(&mut self, before: &[u8], payload: &[u8], work: &Work) -> bool {
        let Some(segment) = work.segment.filter(|_| self.has_room()) else { return false };
        let Some(mut whole) = self.pool.packet_of(before, payload) else { return false };
        whole.request_tx_offload(&TxWork::segments(&headers(work), self.ipv4_checksums, segment));
        self.bytes += whole.len() as u64;
        self.batch.push(whole).is_ok()
    }
}

fn headers(work: &Work) -> Headers {
    let Work { l2, l3, l4, v6, tcp, .. } = *work;
    Headers { l2: l2 as u8, l3: l3 as u16, l4: l4 as u8, v6, tcp }
}

impl Outgoing {
    pub fn new(
        tx: TxQueue,
        pool: Mempool,
        (offload, ipv4_checksums): (Offload, bool),
        tap: Arc<Tap>,
    ) -> Self {
        let (batch, tap) = (Batch::new(), TapEnd::new(tap));
        Self { tx, pool, batch, bytes: 0, offload, ipv4_checksums, tap }
    }

    /// Where they can be captured.
    pub fn tap(&mut self) -> &mut TapEnd {
        &mut self.tap
    }

    pub fn pool(&self) -> &Mempool {
        &self.pool
    }

    /// Bytes that it was given since the last time.
    pub fn take_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.bytes)
    }

    /// Whether there is a place for a frame, made by sending if need be.
    fn has_room(&mut self) -> bool {
        if self.batch.room() == 0 {
            self.flush();
        }
        self.batch.room() > 0
    }

    /// Add a frame of so many bytes.
    #[inline]
    fn add(&mut self, len: usize) -> Option<()> {
        if !self.has_room() {
            return None;
        }
        let frames = self.batch.len() + 1;
        self.pool.fill_frames(&mut self.batch, frames, len).then(|| self.bytes += len as u64)
    }

    /// Hand all that the port takes to it.
    pub fn flush(&mut self) {
        if !self.batch.is_empty() {
            let Self { tx, tap, batch, .. } = self;
            tap.sent(batch, |batch| _ = tx.send(batch));
        }
    }
}
