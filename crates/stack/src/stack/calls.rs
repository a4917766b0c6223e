//! What the owner of connections asks of them: accept, write, read, close, and events.

use super::{Event, Handle, Received, Stack, Status};
use crate::connection::{CloseReason, State, event, flag};
use crate::send_buffer::SendBuffer;
use std::sync::Arc;

impl Stack {
    /// Accept connections at a port, of which `half_open` may be in their handshake.
    pub fn listen(&mut self, port: u16, half_open: usize) {
        self.listeners.insert(port, half_open);
    }

    /// Whether connections wait to be accepted.
    pub fn waits_for_accept(&self) -> bool {
        !self.accepted.is_empty()
    }

    /// A connection that somebody else opened, and which is `owner`'s from now on.
    pub fn accept(&mut self, owner: u64) -> Option<Handle> {
        loop {
            let handle = self.accepted.pop_front()?;
            let found = self.connections.get_mut(handle.index as usize);
            if let Some(conn) = found.filter(|conn| conn.generation == handle.generation) {
                conn.owner = owner;
                conn.events |= event::WRITABLE | event::READABLE;
                self.settle(handle.index);
                return Some(handle);
            }
        }
    }

    /// Give it bytes to send; how many it took. When it takes more, its owner is told.
    pub fn write(&mut self, handle: Handle, bytes: &[u8], now: u64) -> Result<usize, CloseReason> {
        self.give(handle, bytes.len(), now, |send, n| send.push(&bytes[..n]))
    }

    /// The same with `length` bytes of `body`, which is repeated without end, from `offset` on. Whatever waits to be acknowledged
    /// refers to `body`, and is sent again from there: nothing is copied.
    pub fn write_shared(
        &mut self,
        handle: Handle,
        body: &Arc<[u8]>,
        offset: usize,
        length: usize,
        now: u64,
    ) -> Result<usize, CloseReason> {
        let length = if body.is_empty() { 0 } else { length };
        self.give(handle, length, now, |send, n| send.push_shared(body, offset, n))
    }

    /// Let `push` append as many of `length` bytes as there is room for.
    fn give(
        &mut self,
        handle: Handle,
        length: usize,
        now: u64,
        push: impl FnOnce(&mut SendBuffer, usize),
    ) -> Result<usize, CloseReason> {
        let Some(mut call) = self.call(handle, now) else { return Err(CloseReason::Reset) };
        let (conn, env) = call.parts();
        if let Some(broken) = conn.broken {
            return Err(broken);
        }
        if length == 0 {
            return Ok(0);
        }
        if !conn.takes_data() {
            return Err(CloseReason::Reset);
        }
        let room = (env.config.send_buffer as usize).saturating_sub(conn.unacknowledged_bytes());
        let n = room.min(length);
        if n > 0 {
            push(&mut conn.active(env.pool).send, n);
        }
        if n < length {
            conn.set(flag::FULL);
        }
        self.settle(handle.index);
        Ok(n)
    }

    /// Read what was received.
    pub fn read(&mut self, handle: Handle, buffer: &mut [u8], now: u64) -> Result<Received, CloseReason> {
        let Some(mut call) = self.call(handle, now) else { return Ok(Received::End) };
        let (conn, env) = call.parts();
        if conn.readable() > 0 {
            let n = conn.active(env.pool).receive.read(buffer);
            let left = conn.readable();
            let reach = conn.rcv_nxt + env.config.receive_buffer.saturating_sub(left as u32);
            let opened = if conn.rcv_edge.before(reach) { reach.since(conn.rcv_edge) } else { 0 };
            let half = env.config.receive_buffer / 2;
            let worth = (2 * u32::from(conn.mss)).min(half);
            // while there is room enough, acknowledgments say it
            if conn.rcv_edge.since(conn.rcv_nxt) <= half
                && opened >= worth
                && conn.has(flag::UP)
                && !conn.has(flag::FIN_RECEIVED)
            {
                conn.set(flag::ACK_NOW);
            }
            conn.rest(env.pool);
            self.settle(handle.index);
            return Ok(Received::Bytes(n, left > 0));
        }
        if let Some(broken) = conn.broken {
            return Err(broken);
        }
        Ok(if conn.has(flag::FIN_RECEIVED) || conn.state == State::Closed {
            Received::End
        } else {
            Received::Dry
        })
    }

    /// State of a connection; `None`: it is gone.
    pub fn status(&self, handle: Handle) -> Option<Status> {
        self.get(handle).map(|conn| Status {
            state: conn.state,
            is_up: conn.has(flag::UP),
            unsent: conn.unsent(),
            held: conn.unacknowledged_bytes(),
            local: conn.tuple.local(),
            remote: conn.tuple.remote(),
        })
    }

    /// Close it, and let go of it: what it was given is still sent.
    pub fn close(&mut self, handle: Handle, now: u64) {
        if let Some(mut call) = self.call(handle, now) {
            let (conn, mut env) = call.parts();
            conn.close(&mut env);
            self.settle(handle.index);
        }
    }

    /// Send no more, and read on.
    pub fn shut_down(&mut self, handle: Handle, now: u64) {
        if let Some(mut call) = self.call(handle, now) {
            call.parts().0.shut_down();
            self.settle(handle.index);
        }
    }

    /// Reset it, and let go of it.
    pub fn abort(&mut self, handle: Handle, now: u64) {
        if let Some(mut call) = self.call(handle, now) {
            let conn = call.parts().0;
            conn.set(flag::ORPHAN);
            conn.abort();
            self.settle(handle.index);
        }
    }

    /// Connections that have an event.
    pub fn events(&self) -> usize {
        self.told.len()
    }

    /// The next event.
    pub fn event(&mut self) -> Option<Event> {
        loop {
            let Some(index) = self.told.pop_front() else {
                let owner = self.sockets.event()?;
                return Some(Event { owner, readable: true, writable: false, ended: false });
            };
            let Some(conn) = self.connections.get_mut(index as usize) else { continue };
            conn.clear(flag::TOLD);
            let events = std::mem::take(&mut conn.events);
            if events == 0 || conn.has(flag::ORPHAN) {
                continue;
            }
            return Some(Event {
                owner: conn.owner,
                readable: events & event::READABLE != 0,
                writable: events & event::WRITABLE != 0,
                ended: events & event::ENDED != 0,
            });
        }
    }
}
