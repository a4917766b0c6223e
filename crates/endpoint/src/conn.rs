//! One device's connection, as far as its worker asks about it between two calls of the endpoint.

use device::conn_error::CONNECT;
use device::{ConnError, Connection};
use rustix::io::Errno;
use stack::{CloseReason, ConnectError, Handle};
use std::net::SocketAddr;

/// So many bytes that the stack has taken since it was last looked at count as sent without a look.
const UNCHECKED: u64 = 64 << 10;

/// A connection.
#[derive(Debug)]
pub struct Conn {
    /// Number of its port.
    pub port: usize,
    pub handle: Handle,
    pub local: SocketAddr,
    pub is_up: bool,
    /// Bytes that the stack had no room for.
    pub out: Vec<u8>,
    pub out_at: usize,
    /// Bytes of the stream that were given to it.
    pub given: u64,
    /// Of those that the stack took: how many it had not sent when that was last asked.
    pub unsent: u64,
    left: u64,
}

impl Conn {
    pub fn new(port: usize, handle: Handle, local: SocketAddr) -> Self {
        Self { port, handle, local, is_up: false, out: Vec::new(), out_at: 0, given: 0, unsent: 0, left: 0 }
    }

    /// Bytes that the stack had no room for.
    pub fn waiting(&self) -> usize {
        self.out.len() - self.out_at
    }

    /// Why it broke, in the words that the kernel has for it.
    pub fn broken(&self, why: CloseReason, doing: &'static str) -> ConnError {
        let doing = if self.is_up { doing } else { CONNECT };
        let errno = match why {
            CloseReason::Refused => Errno::CONNREFUSED,
            CloseReason::Reset => Errno::CONNRESET,
            CloseReason::TimedOut => Errno::TIMEDOUT,
            CloseReason::NoNeighbour | CloseReason::Unreachable => Errno::HOSTUNREACH,
        };
        ConnError::remote(errno, doing)
    }
}

/// Why a connection to `address` could not begin.
pub fn not_begun(why: ConnectError, address: SocketAddr) -> ConnError {
    let doing = format!("connect to {address}");
    match why {
        ConnectError::NoPort => ConnError::errno(Errno::ADDRNOTAVAIL, doing),
        ConnectError::NoRoute => ConnError::route(Errno::NETUNREACH, doing),
        ConnectError::NoRoom => ConnError::errno(Errno::NOBUFS, doing),
    }
}

impl Connection for Conn {
    fn is_datagram(&self) -> bool {
        false
    }

    fn is_up(&self) -> bool {
        self.is_up
    }

    fn local(&self) -> Option<SocketAddr> {
        Some(self.local)
    }

    fn is_flushed(&self) -> bool {
        self.waiting() == 0
    }

    fn queued_bytes(&self) -> u64 {
        self.given
    }

    fn sent_bytes(&mut self, exact: bool) -> u64 {
        let taken = self.given - self.waiting() as u64;
        if !exact && taken - self.left < UNCHECKED {
            return taken;
        }
        self.left = taken.saturating_sub(self.unsent).max(self.left);
        self.left
    }

    fn take_refused(&mut self) -> Option<ConnError> {
        None
    }
}
