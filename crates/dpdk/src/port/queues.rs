//! The queues of a started port: each is one thread's, which receives from it or sends by it a batch at a time.

use super::Inner;
use crate::af_packet;
use crate::batch::Batch;
use crate::memif_port;
use crate::mempool::Mempool;
use crate::ring::Direct;
use dpdk_sys::rte_mbuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A receive queue that is used without a driver.
#[derive(Debug)]
pub(super) enum DirectRx {
    Ring(Direct),
    Memif(Box<memif_port::Rx>),
    AfPacket(Box<af_packet::Rx>),
}

/// A transmit queue that is used without a driver.
#[derive(Debug)]
pub(super) enum DirectTx {
    Ring(Direct),
    Memif(Box<memif_port::Tx>),
    AfPacket(Box<af_packet::Tx>),
}

/// One receive queue; only its holder takes packets from it.
#[derive(Debug)]
pub struct RxQueue {
    pub(super) port: Arc<Inner>,
    pub(super) queue: u16,
    pub(super) direct: Option<DirectRx>,
    /// The port takes tags out.
    pub(super) untagged: bool,
    /// Most packets at once.
    pub(super) burst: usize,
    /// Keeps the pool from being used by others while the queue fills packets from it.
    pub(super) _pool: Mempool,
}

/// One transmit queue; only its holder gives packets to it.
#[derive(Debug)]
pub struct TxQueue {
    pub(super) port: Arc<Inner>,
    pub(super) queue: u16,
    pub(super) direct: Option<DirectTx>,
    /// Packets may leave work to the port; with whether it puts tags in.
    pub(super) helped: Option<bool>,
    /// Most packets at once.
    pub(super) burst: usize,
}

impl RxQueue {
    /// Most packets that [`RxQueue::receive`] takes at once.
    pub fn burst(&self) -> usize {
        self.burst
    }

    /// Take `most` packets at once from now on, if it took more. A queue over a ring takes what the batch has room for.
    pub fn limit(&mut self, most: usize) {
        self.burst = self.burst.min(most.max(1));
    }

    /// Take what has arrived, as much as `batch` has room for and the port hands out at once.
    #[inline]
    pub fn receive(&mut self, batch: &mut Batch) -> usize {
        let (port, queue, burst) = (self.port.id, self.queue, self.burst);
        match &mut self.direct {
            Some(DirectRx::Ring(ring)) => return ring.receive(batch),
            Some(DirectRx::Memif(memif)) => return memif.receive(batch, burst),
            Some(DirectRx::AfPacket(packets)) => return packets.receive(batch, burst),
            None => {}
        }
        let get = |to: *mut *mut rte_mbuf, room: usize| {
            // SAFETY: the port is started and has this queue; `&mut self` makes us its only user. `to` has `room` places.
            usize::from(unsafe { dpdk_sys::nd_rx_burst(port, queue, to, room.min(burst) as u16) })
        };
        // SAFETY: the driver writes at most `room` packets and hands them over.
        let received = unsafe { batch.fill(get) };
        if self.untagged {
            batch.restore_tags(received);
        }
        received
    }
}

impl TxQueue {
    /// Send as many packets as the port takes, in order; the rest stay in `batch`.
    #[inline]
    pub fn send(&mut self, batch: &mut Batch) -> usize {
        if let Some(tags) = self.helped {
            return self.send_helped(batch, tags);
        }
        match &mut self.direct {
            Some(DirectTx::Ring(ring)) => return ring.send(batch),
            Some(DirectTx::Memif(memif)) => return memif.send(batch, &self.port.unfit),
            Some(DirectTx::AfPacket(packets)) => return packets.send(batch, &self.port.unfit),
            None => {}
        }
        let (port, queue, burst) = (self.port.id, self.queue, self.burst);
        let put = |from: *mut *mut rte_mbuf, n: usize| {
            in_pieces(n, burst, |at, n| {
                // SAFETY: the port is started and has this queue; `&mut self` makes us its only user; `at + n` is at most as
                // many packets as there are.
                usize::from(unsafe { dpdk_sys::nd_tx_burst(port, queue, from.add(at), n as u16) })
            })
        };
        // SAFETY: the driver takes over the first packets, as many as it returns.
        unsafe { batch.take(put) }
    }

    fn send_helped(&mut self, batch: &mut Batch, tags: bool) -> usize {
        let (port, queue, burst) = (self.port.id, self.queue, self.burst);
        let mut unfit = 0;
        let put = |from: *mut *mut rte_mbuf, n: usize| {
            in_pieces(n, burst, |at, n| {
                // SAFETY: as in `send`; packets in a batch are nobody else's, and the call changes no bytes that are shared.
                let taken = unsafe {
                    let (first, tags) = (from.add(at), tags.into());
                    dpdk_sys::nd_tx_burst_helped(port, queue, first, n as u16, tags, &raw mut unfit)
                };
                usize::from(taken)
            })
        };
        // SAFETY: the driver takes over the first packets, as many as it returns.
        let sent = unsafe { batch.take(put) };
        if unfit > 0 {
            self.port.unfit.fetch_add(unfit, Ordering::Relaxed);
        }
        sent
    }
}

/// Have `send(at, n)` send `n` packets from number `at` on, at most `burst` at once, until all are sent or it takes fewer.
/// Returns how many were sent.
#[inline]
fn in_pieces(packets: usize, burst: usize, mut send: impl FnMut(usize, usize) -> usize) -> usize {
    let mut sent = 0;
    loop {
        let piece = (packets - sent).min(burst);
        let taken = send(sent, piece);
        sent += taken.min(piece);
        if taken < piece || sent == packets {
            return sent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_sent_in_pieces_until_one_is_not_taken_whole() {
        // 100 packets in bursts of 32, by a port that has room for so many.
        for (room, pieces) in [
            (1000, &[(0, 32), (32, 32), (64, 32), (96, 4)][..]),
            (64, &[(0, 32), (32, 32), (64, 32)]),
            (40, &[(0, 32), (32, 32)]),
            (0, &[(0, 32)]),
        ] {
            let (mut left, mut asked) = (room, Vec::new());
            let sent = in_pieces(100, 32, |at, n| {
                asked.push((at, n));
                let taken = n.min(left);
                left -= taken;
                taken
            });
            assert_eq!((sent, &asked[..]), (room.min(100), pieces));
        }
        assert_eq!(in_pieces(0, 32, |_, n| n), 0);
    }
}
