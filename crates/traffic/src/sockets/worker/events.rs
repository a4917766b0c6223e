//! What the sockets say: connections that come up, bytes that arrive, connections that break.

use super::{State, Worker};
use crate::sockets::broken::Broken;
use crate::sockets::conn::{Conn, Input};
use protocol::meter::Failure;
use protocol::model::{End, Model};
use protocol::time::Time;
use rustix::event::epoll;
use std::time::Duration;

/// Reads from one socket before others have their turn.
const READS_A_TURN: usize = 64;
/// From so many on, of datagrams, a queue may have been full.
const MANY_READS: usize = 8;

impl Worker {
    pub(super) fn socket_event(&mut self, i: u32, generation: u32, flags: epoll::EventFlags) {
        let slot = &mut self.slots[i as usize];
        if slot.generation != generation {
            return;
        }
        let Some(conn) = &mut slot.conn else { return };
        // with the last bytes the end may have come too, and it is not told again
        conn.ends |=
            flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR);
        let read_later = conn.unread;
        if flags.intersects(epoll::EventFlags::OUT | epoll::EventFlags::ERR | epoll::EventFlags::HUP) {
            if !conn.up {
                let done = conn.connect_result().and_then(|()| conn.flush_tls());
                match done {
                    Err(broken) => return self.broke(i, broken),
                    Ok(()) => self.check_up(i),
                }
            } else if !conn.is_flushed() {
                match conn.flush() {
                    Err(broken) => {
                        // what the server said before it closed comes first
                        self.readable(i, generation);
                        return self.broke_if(i, generation, broken);
                    }
                    Ok(()) if conn.closing && conn.is_flushed() => return self.hang_up(i),
                    Ok(()) => {
                        let due = slot.held.take_if(|_| conn.is_flushed());
                        self.refusals(i);
                        if let Some(due) = due {
                            let slot = &mut self.slots[i as usize];
                            slot.wake = Time::NEVER;
                            let (g, asked) = (usize::from(slot.group), slot.asked);
                            self.late(g, due, asked);
                            self.call(i, due, |device, cx| device.timer(cx));
                        }
                    }
                }
            }
        }
        let input = epoll::EventFlags::IN
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::HUP
            | epoll::EventFlags::ERR;
        if flags.intersects(input) && !read_later {
            self.readable(i, generation);
        }
    }

    /// Tell the model once, when bytes can be exchanged.
    fn check_up(&mut self, i: u32) {
        let slot = &mut self.slots[i as usize];
        if let Some(conn) = slot.conn.as_mut().filter(|c| !c.up && c.ready()) {
            conn.up = true;
            slot.connect_by = Time::NEVER;
            let begun = slot.begun;
            self.call(i, begun, |device, cx| device.connected(cx));
        }
    }

    /// Go on with sockets that had more to read than one turn takes.
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

    fn readable(&mut self, i: u32, generation: u32) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut reads = 0;
        for turn in 0.. {
            reads = turn;
            let slot = &mut self.slots[i as usize];
            let Some(conn) = slot.conn.as_mut().filter(|_| slot.generation == generation) else { break };
            if turn == READS_A_TURN {
                conn.unread = true;
                self.unread.push_back((i, generation));
                break;
            }
            match conn.read(&mut buffer, &mut self.cipher) {
                Ok(Input::Dry) => break,
                Ok(Input::End) => {
                    self.broke(i, Broken::new(Failure::Closed, "the server closed the connection"));
                    break;
                }
                Err(broken) if !broken.gone => self.refused(i, broken),
                Err(broken) => {
                    self.broke(i, broken);
                    break;
                }
                Ok(Input::Aside) => {
                    if let Err(broken) = conn.flush_tls() {
                        self.broke(i, broken);
                        break;
                    }
                    self.check_up(i);
                }
                Ok(Input::Bytes(n)) => {
                    let dry = conn.short_read_is_dry() && n < buffer.len();
                    self.check_up(i);
                    self.deliver(i, generation, &buffer[..n]);
                    if dry {
                        break;
                    }
                    self.tick();
                }
            }
        }
        self.buffer = buffer;
        if reads >= MANY_READS && self.slots[i as usize].generation == generation {
            self.count_dropped(i);
        }
    }

    /// Count what the receive queue of device `i` had no room for.
    pub(super) fn count_dropped(&mut self, i: u32) {
        let slot = &mut self.slots[i as usize];
        let (dropped, or_broken) = slot.conn.as_mut().map_or((0, false), Conn::take_dropped);
        let dropped = if or_broken { self.overflows.of(dropped) } else { dropped };
        if dropped > 0 {
            let g = usize::from(slot.group);
            self.groups[g].meter[self.window.counted(self.now) as usize].counts.receive_drops += dropped;
            self.complain(g, Failure::Local, format!("{dropped} datagrams found our own receive queue full"));
        }
    }

    /// Show the model what came, behind what it left before.
    fn deliver(&mut self, i: u32, generation: u32, fresh: &[u8]) {
        let slot = &mut self.slots[i as usize];
        if slot.state != State::Active {
            return; // answers after the flow's end
        }
        let Some(conn) = slot.conn.as_mut().filter(|c| slot.generation == generation && !c.closing) else {
            return;
        };
        let begun = slot.begun;
        if conn.is_datagram() {
            self.call(i, begun, |device, cx| device.received(cx, fresh));
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
            self.broke(i, broken);
        }
    }

    /// Device `i`'s connection broke. One may be found broken twice before [`Worker::mend`] looks at it; the
    /// generation then tells that it is the same.
    pub(super) fn broke(&mut self, i: u32, broken: Broken) {
        self.broken.push_back((i, self.slots[i as usize].generation, broken));
    }

    /// The same, unless the model has had enough of that connection meanwhile.
    fn broke_if(&mut self, i: u32, generation: u32, broken: Broken) {
        if self.slots[i as usize].generation == generation {
            self.broke(i, broken);
        }
    }

    /// Datagrams of device `i` did not get through. They are counted now; the model hears of it in
    /// [`Worker::mend`].
    pub(super) fn refused(&mut self, i: u32, broken: Broken) {
        let slot = &mut self.slots[i as usize];
        slot.tally.failed = slot.tally.failed.saturating_add(broken.times as u32);
        let g = usize::from(slot.group);
        self.count_failure(g, broken.why, broken.times);
        self.complain(g, broken.why, &broken);
        self.broke(i, broken);
    }

    /// A failure counts when it happens, whenever its flow began: a server that goes away while it is measured shows.
    fn count_failure(&mut self, g: usize, why: Failure, times: u64) {
        let phase = self.window.counted(self.now) as usize;
        self.groups[g].meter[phase].counts.failures[why as usize] += times;
    }

    /// Take what the socket of device `i` noted while it sent.
    pub(super) fn refusals(&mut self, i: u32) {
        while let Some(broken) = self.slots[i as usize].conn.as_mut().and_then(|conn| conn.refused.pop()) {
            self.refused(i, broken);
        }
    }

    /// Tell models of connections that broke and of datagrams that were refused. Here and not where it happened,
    /// so that a model that connects again at once cannot recurse.
    pub(super) fn mend(&mut self) {
        for _ in 0..self.broken.len() {
            let Some((i, generation, broken)) = self.broken.pop_front() else { break };
            if self.slots[i as usize].generation != generation {
                continue;
            }
            if broken.gone {
                self.count_dropped(i);
            }
            let slot = &mut self.slots[i as usize];
            let mut closing = false;
            if broken.gone {
                closing = slot.conn.take().is_some_and(|c| c.closing);
                slot.generation = slot.generation.wrapping_add(1);
                slot.connect_by = Time::NEVER;
                slot.held = None;
            }
            if slot.state != State::Active || closing {
                continue;
            }
            let (begun, why) = (slot.begun, broken.why);
            let g = usize::from(slot.group);
            let (ended, excused) = self.call_closed(i, begun, why);
            if !broken.gone {
                if ended.is_some() {
                    self.hang_up(i);
                }
            } else if !(excused || (why == Failure::Closed && ended == Some(End::Completed))) {
                self.count_failure(g, why, 1);
                self.slots[i as usize].tally.failed += 1;
                self.complain(g, why, &broken);
            }
        }
    }

    pub(super) fn hang_up(&mut self, i: u32) {
        self.count_dropped(i);
        let slot = &mut self.slots[i as usize];
        if let Some(mut conn) = slot.conn.take() {
            conn.goodbye();
        }
        slot.generation = slot.generation.wrapping_add(1);
        slot.connect_by = Time::NEVER;
    }

    pub(super) fn open(&mut self, i: u32) -> Result<(), Broken> {
        let slot = &mut self.slots[i as usize];
        let group = &self.plan.groups[usize::from(slot.group)];
        slot.generation = slot.generation.wrapping_add(1);
        slot.conn = None;
        let mut conn = Conn::open(group, slot.index)?;
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(u64::from(slot.generation) << 32 | u64::from(i));
        epoll::add(&self.epoll, &conn, data, flags).map_err(|e| Broken::errno(e, "epoll"))?;
        if conn.is_datagram() {
            conn.up = true;
        } else {
            slot.connect_asked = self.now;
            slot.connect_by = self.now + Duration::from_nanos(group.connect_timeout);
        }
        slot.conn = Some(conn);
        self.arm(i);
        Ok(())
    }
}
