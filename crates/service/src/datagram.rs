//! Servers of datagrams, without I/O.

use crate::Counters;
use std::net::SocketAddr;

/// The logic of a server of datagrams, without I/O. Whatever a client sends, it neither panics nor keeps more than a bounded
/// amount.
pub trait DatagramService {
    /// A datagram came.
    fn received(&mut self, from: SocketAddr, bytes: &[u8], out: &mut Datagrams);

    /// When [`Self::advance`] is to be called next, in nanoseconds since the start.
    fn next_at(&self) -> Option<u64>;

    /// The time is `out.now`: send what is due.
    fn advance(&mut self, out: &mut Datagrams);

    /// Counts since the start.
    fn counters(&self) -> Counters;
}

/// Datagrams to send.
#[derive(Debug, Default)]
pub struct Datagrams {
    /// Nanoseconds since the start.
    pub now: u64,
    bytes: Vec<u8>,
    ends: Vec<(SocketAddr, usize)>,
}

impl Datagrams {
    /// Send to a peer what `write` appends.
    pub fn send(&mut self, to: SocketAddr, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push((to, self.bytes.len()));
    }

    /// Hand all to `send`, in their order.
    pub fn drain(&mut self, mut send: impl FnMut(SocketAddr, &[u8])) {
        let mut from = 0;
        for (to, end) in self.ends.drain(..) {
            send(to, &self.bytes[from..end]);
            from = end;
        }
        self.bytes.clear();
    }
}
