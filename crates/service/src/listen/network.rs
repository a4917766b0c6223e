//! What carries the connections of a worker: the kernel's TCP, or a stack over a port.

use crate::Counters;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Something can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Connections wait to be accepted.
    Accept,
    /// Of the connection in this slot.
    Ready {
        /// Slot.
        slot: u32,
        /// There is room to send.
        room: bool,
        /// Something came, or the connection ended.
        input: bool,
    },
}

/// Connections that others open. An event comes again as long as it is waited for and true (level-triggered).
pub trait Network {
    /// A connection.
    type Stream;

    /// Wait for events, for `longest` at most, and put them into `events`.
    fn wait(&mut self, longest: Duration, events: &mut Vec<Event>) -> io::Result<()>;

    /// Accept a connection, whose events name `slot`; `None`: none waits. Input is waited for.
    fn accept(&mut self, slot: u32) -> io::Result<Option<Self::Stream>>;

    /// Read once; 0 at the end.
    fn receive(&mut self, stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize>;

    /// Send; how many bytes were taken.
    fn send(&mut self, stream: &mut Self::Stream, bytes: &[u8]) -> io::Result<usize>;

    /// Send up to `length` bytes of `body`, which is repeated without end, from its start on; how many bytes were taken. A network
    /// that keeps what it sends refers to `body` instead of copying it.
    fn send_shared(
        &mut self,
        stream: &mut Self::Stream,
        body: &Arc<[u8]>,
        length: usize,
    ) -> io::Result<usize> {
        self.send(stream, &body[..length.min(body.len())])
    }

    /// Say that nothing more is sent. `WouldBlock`: not yet, and room to send is waited for.
    fn end(&mut self, stream: &mut Self::Stream) -> io::Result<()>;

    /// Wait for room to send, for input, or for neither.
    fn watch(&mut self, stream: &mut Self::Stream, slot: u32, room: bool, input: bool) -> io::Result<()>;

    /// Close a connection.
    fn close(&mut self, stream: Self::Stream);

    /// Add what was counted below the service.
    fn count(&self, _into: &mut Counters) {}
}
