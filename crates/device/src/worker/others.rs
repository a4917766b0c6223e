//! Connections of a device besides its first: those that its model asked for by number, and those that a listening one
//! accepted. Most devices have none, and pay one comparison an event for it.

use super::conn::Conn;
use super::{State, Worker};
use crate::conn_error::ConnError;
use crate::endpoint::{Connection, Endpoint, Event, Input, To, Token};
use protocol::meter::Failure;
use protocol::model::{Ask, ConnId, End, Link, Model, Outbox};
use protocol::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// Set in the slot number of a [`Token`]: the rest is a place in [`Others`].
const OTHER: u32 = 1 << 31;
/// Reads from one connection, and connections accepted by one, before others have their turn.
const A_TURN: usize = 64;

/// One of them.
#[derive(Debug)]
struct Other<C> {
    /// Whose it is.
    slot: u32,
    id: ConnId,
    conn: Conn<C>,
    to: To,
    /// When it must be up.
    connect_by: Time,
}

/// A place for one, and how many it has had: events of an earlier one are nobody's.
#[derive(Debug)]
struct Place<C> {
    generation: u32,
    other: Option<Other<C>>,
}

/// All of a worker's devices.
#[derive(Debug)]
pub(super) struct Others<C> {
    places: Vec<Place<C>>,
    free: Vec<u32>,
    /// By device and number.
    named: BTreeMap<(u32, ConnId), u32>,
    /// Those that are not up, by when they must be.
    connecting: BTreeSet<(Time, u32)>,
    /// Those that have more to read than one turn took.
    unread: Vec<(u32, u32)>,
    /// What broke while something else was being done.
    broken: Vec<(u32, u32, ConnError)>,
}

impl<C> Others<C> {
    pub fn new() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            named: BTreeMap::new(),
            connecting: BTreeSet::new(),
            unread: Vec::new(),
            broken: Vec::new(),
        }
    }

    /// Whether a token's slot number means one of these.
    #[inline]
    pub fn is_one(slot: u32) -> bool {
        slot & OTHER != 0
    }

    /// Whether something can be done at once.
    pub fn is_waiting(&self) -> bool {
        !self.unread.is_empty() || !self.broken.is_empty()
    }

    /// When the next of them must be up.
    pub fn next(&self) -> Time {
        self.connecting.first().map_or(Time::NEVER, |(by, _)| *by)
    }

    /// A place for the connection `id` of device `slot`, and its token.
    fn reserve(&mut self) -> (u32, Token) {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, other: None });
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[at as usize];
        place.generation = place.generation.wrapping_add(1);
        (at, Token::new(at | OTHER, place.generation))
    }

    fn put(&mut self, at: u32, other: Other<C>) {
        self.named.insert((other.slot, other.id), at);
        if other.connect_by != Time::NEVER {
            self.connecting.insert((other.connect_by, at));
        }
        self.places[at as usize].other = Some(other);
    }

    fn get(&mut self, at: u32) -> Option<&mut Other<C>> {
        self.places.get_mut(at as usize)?.other.as_mut()
    }

    /// The same, unless another has taken the place.
    fn same(&mut self, at: u32, generation: u32) -> Option<&mut Other<C>> {
        self.places.get_mut(at as usize).filter(|place| place.generation == generation)?.other.as_mut()
    }

    fn take(&mut self, at: u32) -> Option<Other<C>> {
        let other = self.places.get_mut(at as usize)?.other.take()?;
        self.named.remove(&(other.slot, other.id));
        self.connecting.remove(&(other.connect_by, at));
        self.free.push(at);
        Some(other)
    }

    fn find(&self, slot: u32, id: ConnId) -> Option<u32> {
        self.named.get(&(slot, id)).copied()
    }

    /// All of device `slot`.
    fn of(&self, slot: u32) -> Vec<u32> {
        self.named.range((slot, ConnId(0))..=(slot, ConnId(u32::MAX))).map(|(_, at)| *at).collect()
    }

    /// A number that none of device `slot` has, for one that was accepted.
    fn number(&self, slot: u32) -> ConnId {
        let mut taken = self.named.range((slot, ConnId::ACCEPTED)..=(slot, ConnId(u32::MAX)));
        taken.next_back().map_or(ConnId::ACCEPTED, |((_, id), _)| ConnId(id.0.saturating_add(1)))
    }
}

impl<E: Endpoint, D: Model> Worker<E, D> {
    /// Do what the model of device `i` asked of other connections than the one that the event was of.
    pub(super) fn do_asks(&mut self, i: u32, asks: &[Ask], aside: &[u8]) {
        for ask in asks {
            match ask {
                Ask::Connect(id, to) => self.open_other(i, *id, to.map_or(To::Target, To::Address)),
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

    /// Tell the model of a connection that could not be opened, later: not from inside of what asked for it.
    fn never_opened(&mut self, i: u32, id: ConnId, broken: ConnError) {
        self.stillborn.push((i, id, broken));
    }

    /// Call the model about the connection in place `at`, and carry out what it asks of it.
    fn call_other(&mut self, at: u32, f: impl FnOnce(&mut D, &mut protocol::model::Cx<'_>)) {
        self.call_from(at, None, |device, cx| {
            f(device, cx);
            0
        });
    }

    fn call_from(
        &mut self,
        at: u32,
        peer: Option<SocketAddr>,
        f: impl FnOnce(&mut D, &mut protocol::model::Cx<'_>) -> usize,
    ) -> usize {
        let Some(other) = self.others.get(at) else { return usize::MAX };
        let (i, id) = (other.slot, other.id);
        let begun = self.slots[i as usize].begun;
        self.call_on(i, begun, id, peer, f).0
    }

    /// What the model wants of the connection `id` of device `i`, which an event was of.
    pub(super) fn carry_out_other(&mut self, i: u32, id: ConnId, peer: Option<SocketAddr>, link: Link) {
        let Some(at) = self.others.find(i, id) else { return };
        if link == Link::Connect {
            let to = self.others.get(at).map_or(To::Target, |other| other.to);
            return self.open_other(i, id, to);
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
            self.other_broke(at, broken);
        }
        self.other_refusals(at);
    }

    /// Datagrams that did not get through: counted now, as those of a first connection are.
    fn other_refusals(&mut self, at: u32) {
        while let Some(other) = self.others.get(at)
            && let Some(broken) = other.conn.inner.take_refused()
        {
            self.other_refused(at, broken);
        }
    }

    fn other_refused(&mut self, at: u32, broken: ConnError) {
        if let Some(other) = self.others.get(at) {
            let i = other.slot;
            self.count_refused(i, &broken);
            self.other_broke(at, broken);
        }
    }

    fn other_broke(&mut self, at: u32, broken: ConnError) {
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
    fn drop_other(&mut self, at: u32) {
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
    pub(super) fn finish_others(&mut self, i: u32) {
        for at in self.others.of(i) {
            self.finish_other(at);
        }
    }

    /// The same, whatever has not gone by now.
    pub(super) fn drop_others(&mut self, i: u32) {
        for at in self.others.of(i) {
            self.drop_other(at);
        }
    }

    /// Whether any of them has yet to send what it was given when its flow ended.
    pub(super) fn others_close(&self) -> bool {
        let others =
            self.others.named.values().filter_map(|at| self.others.places[*at as usize].other.as_ref());
        others.into_iter().any(|other| other.conn.closing)
    }

    /// Something can be done with one of these connections.
    pub(super) fn other_event(&mut self, event: &Event) {
        let (at, generation) = (event.token.slot() & !OTHER, event.token.generation());
        let Some(other) = self.others.same(at, generation) else { return };
        if matches!(other.to, To::Listen(_)) && !other.conn.inner.is_datagram() {
            return if event.readable {
                self.accept(at, generation)
            };
        }
        other.conn.ended |= event.ended;
        let read_later = other.conn.unread;
        if event.writable {
            let (was_up, was_flushed) = (other.conn.up, other.conn.inner.is_flushed());
            if !was_up || !was_flushed {
                let moved = self.endpoint.send(&mut other.conn.inner, &mut Outbox::default());
                let gone = other.conn.closing && other.conn.inner.is_flushed();
                match moved {
                    Err(broken) => {
                        // what the peer said before it closed comes first
                        if was_up {
                            self.read_other(at, generation);
                        }
                        return self.other_broke(at, broken);
                    }
                    Ok(()) if gone => return self.drop_other(at),
                    Ok(()) => self.other_up(at, generation),
                }
                self.other_refusals(at);
            }
        }
        if event.readable && !read_later {
            self.read_other(at, generation);
        }
    }

    /// Tell the model once, when bytes can be exchanged.
    fn other_up(&mut self, at: u32, generation: u32) {
        let Some(other) = self.others.same(at, generation).filter(|o| !o.conn.up && o.conn.inner.is_up())
        else {
            return;
        };
        other.conn.up = true;
        let by = std::mem::replace(&mut other.connect_by, Time::NEVER);
        self.others.connecting.remove(&(by, at));
        self.call_other(at, |device, cx| device.connected(cx));
    }

    /// Take those who want to connect.
    fn accept(&mut self, at: u32, generation: u32) {
        for _ in 0..A_TURN {
            let (new, token) = self.others.reserve();
            let Some(listener) = self.others.same(at, generation) else {
                return self.others.free.push(new);
            };
            let i = listener.slot;
            let (inner, peer) = match self.endpoint.accept(&mut listener.conn.inner, token) {
                Ok(Some(accepted)) => accepted,
                Ok(None) => return self.others.free.push(new),
                Err(broken) => {
                    self.others.free.push(new);
                    return self.count_refused(i, &broken);
                }
            };
            let (id, conn) = (self.others.number(i), Conn::new(inner, true));
            let to = To::Address(peer);
            self.others.put(new, Other { slot: i, id, conn, to, connect_by: Time::NEVER });
            if self.slots[i as usize].state != State::Active {
                self.drop_other(new);
                continue;
            }
            self.call_other(new, |device, cx| device.accepted(cx, peer));
        }
        // others have their turn; there may be more
        self.others.unread.push((at, generation));
    }

    fn read_other(&mut self, at: u32, generation: u32) {
        let mut buffer = std::mem::take(&mut self.buffer);
        for turn in 0.. {
            let Some(other) = self.others.same(at, generation) else { break };
            if turn == A_TURN {
                other.conn.unread = true;
                self.others.unread.push((at, generation));
                break;
            }
            match self.endpoint.receive(&mut other.conn.inner, &mut buffer) {
                Ok(Input::Dry) => break,
                Ok(Input::End) => {
                    self.other_broke(at, ConnError::new(Failure::Closed, "the peer closed the connection"));
                    break;
                }
                Err(broken) if !broken.gone => self.other_refused(at, broken),
                Err(broken) => {
                    self.other_broke(at, broken);
                    break;
                }
                Ok(Input::Dropped(datagrams)) => {
                    let i = other.slot;
                    self.dropped(i, datagrams);
                }
                Ok(Input::Aside) => {
                    if let Err(broken) = self.endpoint.send(&mut other.conn.inner, &mut Outbox::default()) {
                        self.other_broke(at, broken);
                        break;
                    }
                    self.other_up(at, generation);
                }
                Ok(Input::Bytes { len, dry }) => {
                    let dry = dry && !other.conn.ended;
                    self.other_up(at, generation);
                    self.deliver_other(at, generation, &buffer[..len]);
                    if dry {
                        break;
                    }
                    self.tick();
                }
            }
        }
        self.buffer = buffer;
    }

    /// Show the model what came, behind what it left before.
    fn deliver_other(&mut self, at: u32, generation: u32, fresh: &[u8]) {
        let Some(other) = self.others.same(at, generation).filter(|other| !other.conn.closing) else {
            return;
        };
        let (i, peer) = (other.slot, other.conn.inner.peer());
        if other.conn.inner.is_datagram() {
            if self.slots[i as usize].state == State::Active {
                self.call_from(at, peer, |device, cx| device.received(cx, fresh));
            }
            return;
        }
        let mut bytes = other.conn.take_spill();
        if self.slots[i as usize].state != State::Active {
            return; // answers after the flow's end
        }
        bytes.extend_from_slice(fresh);
        let used = self.call_from(at, None, |device, cx| device.received(cx, &bytes)).min(bytes.len());
        bytes.drain(..used);
        if let Some(other) = self.others.same(at, generation)
            && !bytes.is_empty()
            && let Err(broken) = other.conn.keep(bytes)
        {
            self.other_broke(at, broken);
        }
    }

    /// Go on with what had more to read, and give up on what did not come up in time.
    pub(super) fn read_others_on(&mut self) {
        for (at, generation) in std::mem::take(&mut self.others.unread) {
            self.tick();
            let Some(other) = self.others.same(at, generation) else { continue };
            other.conn.unread = false;
            if matches!(other.to, To::Listen(_)) && !other.conn.inner.is_datagram() {
                self.accept(at, generation);
            } else {
                self.read_other(at, generation);
            }
        }
        while let Some((by, at)) = self.others.connecting.first().copied().filter(|(by, _)| *by <= self.now) {
            self.others.connecting.remove(&(by, at));
            self.other_broke(at, ConnError::new(Failure::Timeout, "no connection in time"));
        }
    }

    /// Tell models of those that broke, here and not where it happened: see [`Worker::mend`].
    pub(super) fn mend_others(&mut self) {
        if self.stillborn.is_empty() && !self.others.is_waiting() {
            return;
        }
        for (i, id, broken) in std::mem::take(&mut self.stillborn) {
            self.lost_other(i, id, &broken);
        }
        for (at, generation, broken) in std::mem::take(&mut self.others.broken) {
            let Some(other) = self.others.same(at, generation) else { continue };
            let (i, id, closing) = (other.slot, other.id, other.conn.closing);
            if broken.gone {
                self.drop_other(at);
            }
            if !closing {
                self.lost_other(i, id, &broken);
            }
        }
    }

    fn lost_other(&mut self, i: u32, id: ConnId, broken: &ConnError) {
        let (state, begun) = (self.slots[i as usize].state, self.slots[i as usize].begun);
        if state != State::Active {
            return;
        }
        let why = broken.why;
        let ((), ended, excused) = self.call_on(i, begun, id, None, |device, cx| device.closed(cx, why));
        if broken.gone && !(excused || (why == Failure::Closed && ended == Some(End::Completed))) {
            self.count_refused(i, broken);
        }
    }
}
