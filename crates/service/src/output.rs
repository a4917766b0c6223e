//! What a service asks for: replies, closes and times to be called at.

/// A connection: its slot, and how many the slot had before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId {
    /// Slots are used again, so that numbers stay small.
    pub slot: u32,
    /// Tells connections of one slot apart.
    pub generation: u32,
}

/// One request of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send so many bytes of the buffer.
    Send(ConnectionId, usize),
    /// Send so many bytes that say nothing.
    Fill(ConnectionId, usize),
    /// Close once everything before is sent.
    Close(ConnectionId),
    /// Call [`crate::Service::timer`] at this time.
    Wake(ConnectionId, u64),
}

/// What a service asks for while it is called.
#[derive(Debug, Default)]
pub struct Output {
    /// Nanoseconds since the start.
    pub now: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) actions: Vec<Action>,
}

impl Output {
    /// Send to a connection what `write` appends.
    pub fn send(&mut self, to: ConnectionId, write: impl FnOnce(&mut Vec<u8>)) {
        self.send_within(to, usize::MAX, write);
    }

    /// The same unless that is more than `limit` bytes; whether it is sent.
    pub(crate) fn send_within(
        &mut self,
        to: ConnectionId,
        limit: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let before = self.bytes.len();
        write(&mut self.bytes);
        let added = self.bytes.len() - before;
        if added > limit {
            self.bytes.truncate(before);
            return false;
        }
        match self.actions.last_mut() {
            Some(Action::Send(last, length)) if *last == to => *length += added,
            _ => self.actions.push(Action::Send(to, added)),
        }
        true
    }

    /// Send so many bytes `x`. The next bytes to this connection are sent after [`crate::Service::received`] was called again.
    pub fn fill(&mut self, to: ConnectionId, length: usize) {
        self.actions.push(Action::Fill(to, length));
    }

    /// Close a connection once everything before is sent.
    pub fn close(&mut self, id: ConnectionId) {
        self.actions.push(Action::Close(id));
    }

    /// Call [`crate::Service::timer`] of a connection at `at`, in nanoseconds since the start. Earlier requests stay.
    pub fn wake_at(&mut self, id: ConnectionId, at: u64) {
        self.actions.push(Action::Wake(id, at));
    }

    /// Take what was asked for. For tests.
    #[doc(hidden)]
    pub fn take(&mut self) -> Drained {
        let (mut sent, mut closed, mut wakes, mut at) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for action in self.actions.drain(..) {
            match action {
                Action::Send(id, length) => {
                    sent.push((id, self.bytes[at..at + length].to_vec()));
                    at += length;
                }
                Action::Fill(id, length) => sent.push((id, vec![b'x'; length])),
                Action::Close(id) => closed.push(id),
                Action::Wake(id, when) => wakes.push((id, when)),
            }
        }
        self.bytes.clear();
        (sent, closed, wakes)
    }
}

/// Bytes to send by connection, connections to close, and times to be called at.
#[doc(hidden)]
pub type Drained = (Vec<(ConnectionId, Vec<u8>)>, Vec<ConnectionId>, Vec<(ConnectionId, u64)>);
