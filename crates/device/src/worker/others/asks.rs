//! What a model asks of its device's other connections: open, listen, send, close.

use super::Other;
use crate::conn_error::ConnError;
use crate::endpoint::{Connection, Endpoint, To};
use crate::worker::Worker;
use crate::worker::conn::Conn;
use protocol::meter::Failure;
use protocol::model::{Ask, ConnId, Cx, Link, Model};
use protocol::time::Time;
use std::net::SocketAddr;
use std::time::Duration;

impl<E: Endpoint, D: Model> Worker<E, D> {
    /// Do what the model of device `i` asked of other connections than the one that the event was of.
    pub(in crate::worker) fn do_asks(&mut self, i: u32, asks: &[Ask], aside: &[u8]) {
        for ask in asks {
            match ask {
                Ask::Connect(id, to) => {
                    let to = to.map_or_else(|| self.to_target(i), To::Address);
                    self.open_other(i, *id, to);
                }
                Ask::Listen(id, local) => self.open_other(i, *id, To::Listen(*local)),
                Ask::Close(ConnId::FIRST) => self.close_first(i),
                Ask::Close(id) => {
                    if let Some(at) = self.others.find(i, *id) {
                        self.finish_other(at);
                    }
                }
                Ask::Send { conn, to, bytes } => self.send_aside(i, *conn, *to, &aside[bytes.clone()]),
            }
        }
    }

    /// The address of its target that works for device `i`.
    fn to_target(&self, i: u32) -> To {
        let slot = &self.slots[i as usize];
        let g = usize::from(slot.group);
        To::Target(self.groups[g].reach.start(&self.plan.groups[g].addresses, slot.index))
    }

    fn send_aside(&mut self, i: u32, id: ConnId, to: Option<SocketAddr>, bytes: &[u8]) {
        self.outbox.clear();
        self.outbox.bytes.extend_from_slice(bytes);
        self.outbox.to = to;
        if id == ConnId::FIRST {
            return self.send_first(i);
        }
        match self.others.find(i, id) {
            Some(at) => self.send_other(at),
            // it broke, and the model will be told: what goes with it is the model's to count
            None => self.outbox.clear(),
        }
    }

    fn open_other(&mut self, i: u32, id: ConnId, to: To) {
        if id == ConnId::FIRST || id >= ConnId::ACCEPTED {
            let g = usize::from(self.slots[i as usize].group);
            let what = format!("connection number {} is not the model's to give", id.0);
            return self.complain(g, Failure::Local, what);
        }
        if let Some(at) = self.others.find(i, id) {
            self.drop_other(at);
        }
        if let Err(full) = self.room_for_one(i) {
            return self.never_opened(i, id, full);
        }
        let slot = &self.slots[i as usize];
        let group = &self.plan.groups[usize::from(slot.group)];
        let (at, token) = self.others.reserve();
        let inner = match self.endpoint.open(group, slot.index, to, token) {
            Ok(inner) => inner,
            Err(broken) => {
                self.others.free.push(at);
                return self.never_opened(i, id, broken);
            }
        };
        let ready = inner.is_datagram() || matches!(to, To::Listen(_));
        let local = inner.local();
        let patience = Duration::from_nanos(group.connect_timeout);
        let connect_by = if ready { Time::NEVER } else { self.now + patience };
        self.others.put(at, Other { slot: i, id, conn: Conn::new(inner, ready), to, connect_by });
        match (to, local) {
            (To::Listen(_), Some(local)) => self.call_other(at, |device, cx| device.listening(cx, local)),
            _ if ready => self.call_other(at, |device, cx| device.connected(cx)),
            _ => {}
        }
    }

    /// Whether device `i` may have one connection more: the limit of open files is checked for those that its model
    /// provides for.
    pub(super) fn room_for_one(&self, i: u32) -> Result<(), ConnError> {
        let slot = &self.slots[i as usize];
        let most = self.plan.groups[usize::from(slot.group)].connections;
        if self.others.count(i) + u32::from(slot.conn.is_some()) < most {
            return Ok(());
        }
        let what = format!("a device has {most} connections already, all that its model provides for");
        Err(ConnError::new(Failure::Local, what))
    }

    /// Tell the model of a connection that could not be opened, later: not from inside of what asked for it.
    fn never_opened(&mut self, i: u32, id: ConnId, broken: ConnError) {
        self.stillborn.push((i, id, broken));
    }

    /// Call the model about the connection in place `at`, and carry out what it asks of it.
    pub(super) fn call_other(&mut self, at: u32, f: impl FnOnce(&mut D, &mut Cx<'_>)) {
        self.call_from(at, None, |device, cx| {
            f(device, cx);
            0
        });
    }

    pub(super) fn call_from(
        &mut self,
        at: u32,
        peer: Option<SocketAddr>,
        f: impl FnOnce(&mut D, &mut Cx<'_>) -> usize,
    ) -> usize {
        let Some(other) = self.others.get(at) else { return usize::MAX };
        let (i, id) = (other.slot, other.id);
        let begun = self.slots[i as usize].begun;
        self.call_on(i, begun, id, peer, f).0
    }

    /// What the model wants of the connection `id` of device `i`, which an event was of.
    pub(in crate::worker) fn carry_out_other(
        &mut self,
        i: u32,
        id: ConnId,
        peer: Option<SocketAddr>,
        link: Link,
    ) {
        let Some(at) = self.others.find(i, id) else { return };
        if link == Link::Connect {
            let before = self.others.get(at).map(|other| other.to);
            return self.open_other(i, id, before.unwrap_or_else(|| self.to_target(i)));
        }
        self.outbox.to = self.outbox.to.or(peer);
        if !self.outbox.bytes.is_empty() {
            self.send_other(at);
        }
        if link == Link::Close {
            self.finish_other(at);
        }
    }

    /// Send what is in the outbox on the connection in place `at`.
    fn send_other(&mut self, at: u32) {
        let Some(other) = self.others.places[at as usize].other.as_mut() else { return };
        let sent = self.endpoint.send(&mut other.conn.inner, &mut self.outbox);
        self.outbox.bytes.clear();
        if let Err(broken) = sent {
            self.other_broke(at, broken.sending());
        }
        self.other_refusals(at);
    }

    /// Datagrams that did not get through: counted now, as those of a first connection are.
    pub(super) fn other_refusals(&mut self, at: u32) {
        while let Some(other) = self.others.get(at)
            && let Some(broken) = other.conn.inner.take_refused()
        {
            self.other_refused(at, broken);
        }
    }

    pub(super) fn other_refused(&mut self, at: u32, broken: ConnError) {
        if let Some(other) = self.others.get(at) {
            let i = other.slot;
            self.count_refused(i, &broken);
            self.other_broke(at, broken);
        }
    }

    pub(super) fn other_broke(&mut self, at: u32, broken: ConnError) {
        let generation = self.others.places[at as usize].generation;
        self.others.broken.push((at, generation, broken));
    }

    /// Close the connection in place `at` when all that was queued on it has gone.
    fn finish_other(&mut self, at: u32) {
        let Some(other) = self.others.get(at) else { return };
        if other.conn.up && !other.conn.inner.is_flushed() {
            other.conn.closing = true;
        } else {
            self.drop_other(at);
        }
    }

    /// Close it now.
    pub(super) fn drop_other(&mut self, at: u32) {
        let Some(other) = self.others.take(at) else { return };
        let closed = self.endpoint.close(other.conn.inner);
        self.dropped(other.slot, closed.dropped);
        if closed.unsent > 0 {
            let what = "the socket took no more datagrams until the flow was over";
            let broken = ConnError::new(Failure::Local, what).datagrams(closed.unsent);
            self.count_refused(other.slot, &broken);
        }
    }

    /// The flow of device `i` is over, and with it all of its other connections.
    pub(in crate::worker) fn finish_others(&mut self, i: u32) {
        for at in self.others.of(i) {
            self.finish_other(at);
        }
    }

    /// The same, whatever has not gone by now.
    pub(in crate::worker) fn drop_others(&mut self, i: u32) {
        for at in self.others.of(i) {
            self.drop_other(at);
        }
    }

    /// Whether any of them has yet to send what it was given when its flow ended.
    pub(in crate::worker) fn others_close(&self) -> bool {
        let others =
            self.others.named.values().filter_map(|at| self.others.places[*at as usize].other.as_ref());
        others.into_iter().any(|other| other.conn.closing)
    }
}
