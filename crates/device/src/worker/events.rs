//! Events of connections: they come up, bytes arrive, they break.

use super::conn::Conn;
use super::{State, Worker};
use crate::conn_error::ConnError;
use crate::endpoint::{Connection, Endpoint, Event, Input};
use protocol::cause::{CLOSED_IN_HANDSHAKE, Cause};
use protocol::meter::Failure;
use protocol::model::{FlowEnd, Model, Outbox};
use protocol::time::Time;

/// Reads from one socket before the next is served.
const READS_PER_TURN: usize = 64;
/// Turns to read the bytes that came before sending failed: more than a receive buffer holds.
const RECEIVE_REST_TURNS: usize = 16;

impl<E: Endpoint, D: Model> Worker<E, D> {
    pub(super) fn event(&mut self, event: &Event) {
        if let Some(socket) = event.token.shared_number() {
            if event.readable && !self.unread_shared.contains(&socket) {
                self.receive_shared(socket);
            }
            return;
        }
        let (i, generation) = (event.token.slot(), event.token.generation());
        let slot = &mut self.slots[i as usize];
        if slot.generation != generation {
            return;
        }
        let Some(conn) = &mut slot.conn else { return };
        // with the last bytes the end may have come too, and it is not told again
        conn.ended |= event.ended;
        let read_later = conn.unread;
        if event.writable && !conn.send_failed {
            if !conn.up {
                match self.endpoint.send(&mut conn.inner, &mut Outbox::default()) {
                    Err(broken) => return self.broke_sending(i, broken),
                    Ok(()) => self.check_up(i),
                }
            } else if !conn.inner.is_flushed() {
                match self.endpoint.send(&mut conn.inner, &mut Outbox::default()) {
                    Err(broken) => return self.broke_sending(i, broken),
                    Ok(()) if conn.closing && conn.inner.is_flushed() => return self.hang_up(i),
                    Ok(()) => {
                        let due = slot.blocked_timer.take_if(|_| conn.inner.is_flushed());
                        self.leave(i, false);
                        self.refusals(i);
                        if let Some(due) = due {
                            let slot = &mut self.slots[i as usize];
                            slot.wake = Time::NEVER;
                            let (g, asked) = (usize::from(slot.group), slot.wake_set_at);
                            self.late(g, due, asked);
                            self.call(i, due, |device, cx| device.timer(cx));
                        }
                    }
                }
            }
        }
        if event.readable && !read_later {
            self.readable(i, generation);
        }
    }

    /// Tell the model once, when bytes can be exchanged.
    fn check_up(&mut self, i: u32) {
        let slot = &mut self.slots[i as usize];
        if let Some(conn) = slot.conn.as_mut().filter(|c| !c.up && c.inner.is_up()) {
            conn.up = true;
            slot.connect_by = Time::NEVER;
            self.reached(i);
            self.call_connected(i);
        }
    }

    /// Read connections that had more to read than one turn takes.
    pub(super) fn read_on(&mut self) {
        for _ in 0..self.unread.len() {
            let Some((i, generation)) = self.unread.pop_front() else { break };
            self.tick();
            let slot = &mut self.slots[i as usize];
            if let Some(conn) = slot.conn.as_mut().filter(|_| slot.generation == generation) {
                conn.unread = false;
            }
            self.readable(i, generation);
        }
    }

    pub(super) fn readable(&mut self, i: u32, generation: u32) {
        let mut buffer = std::mem::take(&mut self.buffer);
        for turn in 0.. {
            let slot = &mut self.slots[i as usize];
            let Some(conn) = slot.conn.as_mut().filter(|_| slot.generation == generation) else { break };
            if turn == READS_PER_TURN {
                conn.unread = true;
                self.unread.push_back((i, generation));
                break;
            }
            match self.endpoint.receive(&mut conn.inner, &mut buffer) {
                Ok(Input::Dry) => break,
                Ok(Input::End { complete }) => {
                    self.mark_broken(i, ConnError::closed("the server closed the connection", complete));
                    break;
                }
                Err(broken) if !broken.gone => self.refused(i, broken),
                Err(broken) => {
                    self.mark_broken(i, broken);
                    break;
                }
                Ok(Input::Dropped(datagrams)) => self.dropped(i, datagrams),
                Ok(Input::Aside) => {
                    if !conn.send_failed
                        && let Err(broken) = self.endpoint.send(&mut conn.inner, &mut Outbox::default())
                    {
                        self.broke_sending(i, broken);
                        break;
                    }
                    self.check_up(i);
                }
                Ok(Input::Bytes { len, dry }) => {
                    let dry = dry && !conn.ended;
                    self.check_up(i);
                    self.deliver(i, generation, &buffer[..len]);
                    if dry {
                        break;
                    }
                    self.tick();
                }
            }
        }
        self.buffer = buffer;
    }

    /// Count datagrams that the receive queue of device `i` had no room for.
    pub(super) fn dropped(&mut self, i: u32, dropped: u64) {
        if dropped > 0 {
            let g = usize::from(self.slots[i as usize].group);
            self.groups[g].meter[self.window.counted(self.now) as usize].counts.receive_drops += dropped;
            self.keep_example(
                g,
                Failure::Local,
                format!("{dropped} datagrams found our own receive queue full"),
            );
        }
    }

    /// Show the model received bytes, behind those that it left before.
    fn deliver(&mut self, i: u32, generation: u32, fresh: &[u8]) {
        let slot = &mut self.slots[i as usize];
        if slot.state != State::Active && !self.plan.groups[usize::from(slot.group)].keeps_connection {
            return; // answers after the flow's end
        }
        let Some(conn) = slot.conn.as_mut().filter(|c| slot.generation == generation && !c.closing) else {
            return;
        };
        let begun = slot.begun;
        if conn.inner.is_datagram() {
            let from = conn.inner.stranger();
            self.mark_answered(i);
            self.call(i, begun, |device, cx| {
                cx.from = from;
                device.received(cx, fresh)
            });
            return;
        }
        let mut spill = conn.take_spill();
        let rest = if spill.is_empty() {
            let used = self.call(i, begun, |device, cx| device.received(cx, fresh)).min(fresh.len());
            if used == fresh.len() {
                return;
            }
            fresh[used..].to_vec()
        } else {
            spill.extend_from_slice(fresh);
            let used = self.call(i, begun, |device, cx| device.received(cx, &spill)).min(spill.len());
            spill.drain(..used);
            spill
        };
        let slot = &mut self.slots[i as usize];
        if let Some(conn) = slot.conn.as_mut().filter(|_| slot.generation == generation)
            && let Err(broken) = conn.keep(rest)
        {
            self.mark_broken(i, broken);
        }
    }

    /// Device `i`'s connection broke. One may be found broken twice before [`Worker::report_broken`] looks at it; the
    /// generation then tells that it is the same.
    pub(super) fn mark_broken(&mut self, i: u32, broken: ConnError) {
        self.broken.push_back((i, self.slots[i as usize].generation, broken));
    }

    /// The same, and it showed while sending. It is read on before the model hears of that: what the server said before it
    /// closed comes first.
    pub(super) fn broke_sending(&mut self, i: u32, broken: ConnError) {
        if let Some(conn) = self.slots[i as usize].conn.as_mut().filter(|_| broken.gone) {
            conn.send_failed = true;
            conn.ended |= broken.why == Failure::Reset;
        }
        self.mark_broken(i, broken.sending());
    }

    /// Read the bytes that came before sending on the connection of device `i` failed with `broken`. Gives the error that ended
    /// it: TLS says more with its last record than the network does.
    fn receive_rest(&mut self, i: u32, generation: u32, broken: ConnError) -> ConnError {
        let found = self.broken.len();
        for _ in 0..RECEIVE_REST_TURNS {
            self.readable(i, generation);
            let slot = &mut self.slots[i as usize];
            let Some(conn) = slot.conn.as_mut().filter(|_| slot.generation == generation) else { break };
            if !std::mem::take(&mut conn.unread) {
                break;
            }
        }
        let mut told = broken;
        for (other, at, broken) in self.broken.split_off(found) {
            if (other, at) != (i, generation) {
                self.broken.push_back((other, at, broken));
            } else if matches!(broken.why, Failure::Tls | Failure::Protocol) {
                told = broken;
            }
        }
        told
    }

    /// Datagrams of device `i` did not get through. They are counted now; the model hears of it in
    /// [`Worker::report_broken`].
    pub(super) fn refused(&mut self, i: u32, broken: ConnError) {
        if self.fails_over(i) && broken.is_by_path() {
            // it counts where the model does not go on with another server
            return self.mark_broken(i, broken);
        }
        if let Some(broken) = self.redirect(i, broken) {
            let cause = broken.cause();
            let slot = &mut self.slots[i as usize];
            slot.tally.failed = slot.tally.failed.saturating_add(broken.times as u32);
            let g = usize::from(slot.group);
            self.count_failure(g, cause, broken.times);
            self.keep_example(g, cause, &broken);
            self.mark_broken(i, broken);
        }
    }

    /// Count datagrams of device `i` that could not be sent here, without telling its model.
    pub(super) fn count_local(&mut self, i: u32, broken: ConnError) {
        let cause = broken.cause();
        let g = usize::from(self.slots[i as usize].group);
        self.count_failure(g, cause, broken.times);
        self.keep_example(g, cause, &broken);
    }

    /// A failure counts when it happens, whenever its flow began: a server that goes away while it is measured shows.
    fn count_failure(&mut self, g: usize, cause: Cause, times: u64) {
        let phase = self.window.counted(self.now) as usize;
        self.groups[g].meter[phase].failed(cause, times);
    }

    /// Take datagram errors that the connection of device `i` noted while it sent.
    pub(super) fn refusals(&mut self, i: u32) {
        while let Some(broken) =
            self.slots[i as usize].conn.as_mut().and_then(|conn| conn.inner.take_refused())
        {
            self.refused(i, broken);
        }
    }

    /// Tell models of connections that broke and of datagrams that were refused. Here and not where it happened,
    /// so that a model that connects again at once cannot recurse.
    pub(super) fn report_broken(&mut self) {
        for _ in 0..self.broken.len() {
            let Some((i, generation, mut broken)) = self.broken.pop_front() else { break };
            if broken.gone && broken.sending && self.slots[i as usize].generation == generation {
                broken = self.receive_rest(i, generation, broken);
            }
            if self.slots[i as usize].generation != generation {
                continue;
            }
            if broken.gone {
                match self.try_next_address(i, broken) {
                    Ok(()) => continue,
                    Err(left) => broken = left,
                }
            }
            let mut closing = false;
            let mut cause = broken.cause();
            if broken.gone {
                let slot = &mut self.slots[i as usize];
                let tls = self.plan.groups[usize::from(slot.group)].scheme.tls;
                if let Some(conn) = &mut slot.conn {
                    closing = conn.closing;
                    conn.send_failed = true;
                    if tls && matches!(cause.kind, Failure::Closed | Failure::Reset) && !conn.up {
                        cause = Cause::named(cause.kind, CLOSED_IN_HANDSHAKE);
                    }
                }
                self.close(i);
                let slot = &mut self.slots[i as usize];
                slot.generation = slot.generation.wrapping_add(1);
                slot.connect_by = Time::NEVER;
                slot.blocked_timer = None;
            }
            let slot = &self.slots[i as usize];
            if slot.state != State::Active || closing {
                continue;
            }
            let (begun, why) = (slot.begun, broken.why);
            let g = usize::from(slot.group);
            let (ended, excused) = self.call_closed(i, begun, &mut cause, broken.truncated);
            if !broken.gone {
                if self.fails_over(i) && broken.is_by_path() && !excused {
                    self.count_failure(g, cause, broken.times);
                    self.keep_example(g, cause, &broken);
                }
                if ended.is_some() {
                    self.hang_up(i);
                }
            } else if !(excused || (why == Failure::Closed && ended == Some(FlowEnd::Completed))) {
                self.count_failure(g, cause, 1);
                self.slots[i as usize].tally.failed += 1;
                self.keep_example(g, cause, &broken);
            }
        }
    }

    pub(super) fn hang_up(&mut self, i: u32) {
        self.close(i);
        let slot = &mut self.slots[i as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.connect_by = Time::NEVER;
    }

    /// Close the connection of device `i`, if it has one. How many datagrams were never sent.
    pub(super) fn close(&mut self, i: u32) -> u64 {
        self.leave_last(i);
        let Some(Conn { inner, .. }) = self.slots[i as usize].conn.take() else { return 0 };
        let closed = self.endpoint.close(inner);
        self.dropped(i, closed.dropped);
        closed.unsent
    }
}
