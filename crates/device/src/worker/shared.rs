//! Datagrams of shared sockets: each is given to the device that it is for.

use super::{State, Worker};
use crate::conn_error::ConnError;
use crate::endpoint::{Connection, Datagram, Endpoint};
use protocol::meter::record;
use protocol::model::Model;
use protocol::shared_socket::Recipient;
use protocol::time::Time;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::net::SocketAddr;
use std::ops::Range;

/// Batches read from one socket before the next is served.
const BATCHES_PER_TURN: usize = 2;
/// Datagrams between two looks at the clock.
const DATAGRAMS_PER_LOOK: usize = 16;
/// Devices that are asked whether they are free before one that is not gets the message.
const ASKED: u32 = 64;
/// Keys of foreign messages that are remembered, at least, and most.
const KEYS: usize = 1 << 16;
const KEYS_MAX: usize = 1 << 20;

/// Which devices of a group foreign messages are for.
#[derive(Debug)]
pub(crate) struct Receivers {
    /// The slots, and where the search for a free one begins.
    slots: Range<u32>,
    next: u32,
    /// By key; the oldest is forgotten first.
    taken: HashMap<u64, u32, BuildHasherDefault<DefaultHasher>>,
    order: VecDeque<u64>,
}

impl Receivers {
    pub fn new(slots: Range<u32>) -> Self {
        Self { next: slots.start, slots, taken: HashMap::default(), order: VecDeque::new() }
    }

    /// The slot of device `index` of the run, if it is of this worker.
    fn slot(&self, index: u32, worker: usize, workers: usize) -> Option<u32> {
        let (worker, workers) = (worker as u32, workers.max(1) as u32);
        let place = index.checked_sub(worker).filter(|place| place % workers == 0)? / workers;
        (place < self.slots.len() as u32).then(|| self.slots.start + place)
    }

    /// A free device, or one that is not.
    fn free(&mut self, mut is_free: impl FnMut(u32) -> bool) -> Option<u32> {
        for _ in 0..ASKED.min(self.slots.len() as u32) {
            let slot = self.next;
            self.next = if slot + 1 < self.slots.end { slot + 1 } else { self.slots.start };
            if is_free(slot) {
                return Some(slot);
            }
        }
        (!self.slots.is_empty()).then_some(self.next)
    }

    fn remember(&mut self, key: u64, slot: u32) {
        let most = (self.slots.len() * 8).clamp(KEYS, KEYS_MAX);
        if self.taken.insert(key, slot).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > most
            && let Some(oldest) = self.order.pop_front()
        {
            self.taken.remove(&oldest);
        }
    }
}

impl<E: Endpoint, D: Model> Worker<E, D> {
    /// Read shared socket number `socket`, which may have something.
    pub(super) fn receive_shared(&mut self, socket: u32) {
        let mut batch = std::mem::take(&mut self.batch);
        for turn in 0.. {
            if turn == BATCHES_PER_TURN {
                self.unread_shared.push_back(socket);
                break;
            }
            let groups = &self.plan.groups;
            let framing = |group: usize, bytes: &[u8]| groups[group].model.framing(bytes);
            if let Err(broken) = self.endpoint.receive_shared(socket, framing, &mut batch) {
                self.lost_shared(batch.group, &broken, 1);
                break;
            }
            self.tick();
            let phase = self.window.counted(self.now) as usize;
            let counts = &mut self.groups[batch.group].meter[phase].counts;
            counts.messages_received += batch.strangers;
            counts.receive_drops += batch.dropped;
            if batch.dropped > 0 {
                let what = format!("{} datagrams found our own receive queue full", batch.dropped);
                self.keep_example(batch.group, protocol::meter::Failure::Local, what);
            }
            // how long they have waited for us
            if let Some(first) = batch.datagrams.first() {
                let came = Time(self.now.since(Time(first.waited.as_nanos() as u64)));
                let phase = self.window.phase(came) as usize;
                record(&mut self.groups[batch.group].meter[phase].lateness, self.now.since(came));
            }
            let read = self.now;
            for (n, datagram) in batch.datagrams.iter().enumerate() {
                if n % DATAGRAMS_PER_LOOK == DATAGRAMS_PER_LOOK - 1 {
                    self.tick();
                }
                let bytes = &batch.bytes[datagram.place.clone()];
                self.deliver_shared(batch.group, bytes, datagram, read);
            }
            for (broken, quoted) in batch.refused.drain(..) {
                self.refused_shared(batch.group, broken, &quoted);
            }
            if !batch.more {
                break;
            }
        }
        self.batch = batch;
    }

    /// Read sockets that had more to read than one turn takes.
    pub(super) fn read_on_shared(&mut self) {
        for _ in 0..self.unread_shared.len() {
            let Some(socket) = self.unread_shared.pop_front() else { break };
            self.receive_shared(socket);
        }
    }

    fn deliver_shared(&mut self, g: usize, bytes: &[u8], datagram: &Datagram, read: Time) {
        let Some(i) = self.recipient(g, bytes, datagram.from) else { return };
        let slot = &self.slots[i as usize];
        let begun = slot.begun;
        let up = slot.conn.as_ref().is_some_and(|conn| !conn.closing);
        let peer = slot.conn.as_ref().and_then(|conn| conn.inner.peer());
        let from = Some(datagram.from).filter(|from| peer != Some(*from));
        if !up || (slot.state != State::Active && !self.plan.groups[g].keeps_connection) {
            let phase = self.window.counted(self.now) as usize;
            self.groups[g].meter[phase].counts.messages_received += 1;
            return;
        }
        self.mark_answered(i);
        let came = Time(read.since(Time(datagram.waited.as_nanos() as u64))).max(begun.min(self.now));
        self.call(i, begun, |device, cx| {
            cx.came = came;
            cx.from = from;
            device.received(cx, bytes)
        });
    }

    /// The slot of the device that a datagram is for.
    #[inline]
    fn recipient(&mut self, g: usize, bytes: &[u8], from: SocketAddr) -> Option<u32> {
        let group = &self.plan.groups[g];
        let receivers = &mut self.groups[g].receivers;
        let slots = &mut self.slots;
        match group.model.recipient(bytes, false) {
            Recipient::Device(number) => {
                let slot = number
                    .checked_sub(group.first_device)
                    .and_then(|index| receivers.slot(index, self.number, self.workers));
                slot.or(receivers.slots.clone().next())
            }
            Recipient::Stray => receivers.slots.clone().next(),
            Recipient::Known(key) => receivers.taken.get(&key).copied().or(receivers.slots.clone().next()),
            Recipient::Free(key) => {
                if let Some(slot) = receivers.taken.get(&key) {
                    return Some(*slot);
                }
                let is_free = |slot: u32| {
                    let slot = &slots[slot as usize];
                    slot.state == State::Active && slot.device.is_free()
                };
                let slot = receivers.free(is_free)?;
                receivers.remember(key, slot);
                if group.shared.is_some_and(|shared| shared.listen.is_some())
                    && let Some(conn) = &mut slots[slot as usize].conn
                {
                    self.endpoint.answer_to(&mut conn.inner, from);
                }
                Some(slot)
            }
        }
    }

    /// A datagram came back with an error: the device that sent it hears of it, if it says whose it is.
    fn refused_shared(&mut self, g: usize, broken: ConnError, quoted: &[u8]) {
        let sender = match self.plan.groups[g].model.recipient(quoted, true) {
            Recipient::Device(number) => number
                .checked_sub(self.plan.groups[g].first_device)
                .and_then(|index| self.groups[g].receivers.slot(index, self.number, self.workers)),
            Recipient::Free(_) | Recipient::Known(_) | Recipient::Stray => None,
        };
        match sender.filter(|i| self.slots[*i as usize].conn.as_ref().is_some_and(|c| c.inner.is_up())) {
            Some(i) => self.refused(i, broken),
            None => self.lost_shared(g, &broken, broken.times),
        }
    }

    /// Datagrams of group `g` did not get through, and nobody knows whose they were.
    fn lost_shared(&mut self, g: usize, broken: &ConnError, times: u64) {
        let (cause, phase) = (broken.cause(), self.window.counted(self.now) as usize);
        self.groups[g].meter[phase].failed(cause, times);
        self.keep_example(g, cause, broken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_other_workers_have_no_slot_here() {
        let receivers = Receivers::new(10..14);
        let slots = [1, 4, 7, 10, 13, 2, 0].map(|device| receivers.slot(device, 1, 3));
        assert_eq!(slots, [Some(10), Some(11), Some(12), Some(13), None, None, None]);
    }

    #[test]
    fn foreign_messages_go_to_free_devices_in_turn() {
        let mut receivers = Receivers::new(3..6);
        assert_eq!([(); 4].map(|()| receivers.free(|slot| slot != 4)), [Some(3), Some(5), Some(3), Some(5)]);
        assert!(receivers.free(|_| false).is_some());
        assert_eq!(Receivers::new(3..3).free(|_| true), None);
    }

    #[test]
    fn the_oldest_key_is_forgotten_first() {
        let mut receivers = Receivers::new(0..1);
        (0..=KEYS as u64).for_each(|key| receivers.remember(key, 0));
        receivers.remember(5, 0);
        assert_eq!((receivers.taken.len(), receivers.order.len()), (KEYS, KEYS));
        assert!(!receivers.taken.contains_key(&0) && receivers.taken.contains_key(&1));
    }
}
