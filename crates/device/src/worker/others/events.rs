//! What happens to other connections: they come up, are accepted, bring bytes, break.

use super::{OTHER, Other};
use crate::conn_error::ConnError;
use crate::endpoint::{Connection, Endpoint, Event, Input, To};
use crate::worker::conn::Conn;
use crate::worker::{State, Worker};
use protocol::meter::Failure;
use protocol::model::{ConnId, FlowEnd, Model, Outbox};
use protocol::time::Time;

/// Reads from one connection, and connections accepted by one, before others have their turn.
const A_TURN: usize = 64;

impl<E: Endpoint, D: Model> Worker<E, D> {
    /// Something can be done with one of these connections.
    pub(in crate::worker) fn other_event(&mut self, event: &Event) {
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
                    Err(broken) => return self.other_broke(at, broken.sending()),
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
            if let Err(full) = self.room_for_one(i) {
                self.others.free.push(new);
                // who connected sees it closed
                let _nothing_was_sent = self.endpoint.close(inner);
                self.count_refused(i, &full);
                continue;
            }
            let (id, conn) = (self.others.accepted_id(i), Conn::new(inner, true));
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
                Ok(Input::End { complete }) => {
                    self.other_broke(at, ConnError::closed("the peer closed the connection", complete));
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
    pub(in crate::worker) fn read_others_on(&mut self) {
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
    pub(in crate::worker) fn mend_others(&mut self) {
        if self.stillborn.is_empty() && !self.others.is_waiting() {
            return;
        }
        for (i, id, broken) in std::mem::take(&mut self.stillborn) {
            self.lost_other(i, id, &broken);
        }
        for (at, generation, broken) in std::mem::take(&mut self.others.broken) {
            if broken.gone && broken.sending {
                // what the peer said before it closed comes first
                if let Some(other) = self.others.same(at, generation) {
                    other.conn.ended = true;
                }
                self.read_other(at, generation);
            }
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
        let mut cause = broken.cause();
        let (ended, excused) = self.call_closed(i, begun, id, &mut cause, broken.truncated);
        if broken.gone && !(excused || (why == Failure::Closed && ended == Some(FlowEnd::Completed))) {
            self.count_caused(i, cause, broken);
        }
    }
}
