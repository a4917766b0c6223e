//! One device's datagram socket on a port: UDP, or ICMP echo.

use crate::port::StackPort;
use device::{Closed, ConnError, Input};
use protocol::meter::Failure;
use protocol::model::Outbox;
use rustix::io::Errno;
use stack::{Arrival, DatagramError, Sent, SocketHandle, SocketKind};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Bytes that wait while the port takes none: what is more is refused.
const WAITING_MAX: usize = 64 << 10;

/// Datagrams that the port had no room for, in their order.
#[derive(Debug, Default)]
struct Waiting {
    all: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Waiting {
    /// Put one behind the others. `false`: there is no room.
    fn push(&mut self, datagram: &[u8]) -> bool {
        let has_room = self.bytes + datagram.len() <= WAITING_MAX;
        if has_room {
            self.bytes += datagram.len();
            self.all.push_back(datagram.to_vec());
        }
        has_room
    }

    fn pop(&mut self) {
        self.bytes -= self.all.pop_front().map_or(0, |datagram| datagram.len());
    }
}

/// A socket, and what the port had no room for.
#[derive(Debug)]
pub struct Datagrams {
    /// Number of its port.
    pub port: usize,
    /// Our end; of echoes none.
    pub local: Option<SocketAddr>,
    handle: SocketHandle,
    kind: SocketKind,
    waiting: Waiting,
    given: u64,
    /// Errors that nobody has been told of yet.
    refused: Vec<ConnError>,
}

impl Datagrams {
    pub fn new(port: usize, kind: SocketKind, handle: SocketHandle, local: Option<SocketAddr>) -> Self {
        Self {
            port,
            local: local.filter(|_| kind == SocketKind::Udp),
            handle,
            kind,
            waiting: Waiting::default(),
            given: 0,
            refused: Vec::new(),
        }
    }

    /// Send what the port had no room for before.
    pub fn flush(&mut self, port: &mut StackPort, now: u64) {
        while let Some(datagram) = self.waiting.all.front() {
            match port.send_datagram(self.handle, datagram, now) {
                Sent::Full => return,
                Sent::Taken => {}
                Sent::TooLong => {
                    let refused = too_long(datagram.len());
                    self.refuse(refused);
                }
            }
            self.waiting.pop();
        }
    }

    /// Send the datagrams in `outbox`, which is empty afterwards.
    pub fn send(&mut self, port: &mut StackPort, outbox: &mut Outbox, now: u64) -> Result<(), ConnError> {
        self.flush(port, now);
        let mut refused = 0;
        let mut rest = &outbox.bytes[..];
        let mut sizes = outbox.sizes.iter();
        while !rest.is_empty() {
            let alike = if outbox.segment == 0 { rest.len() } else { outbox.segment };
            let size = sizes.next().copied().unwrap_or(alike).clamp(1, rest.len());
            let (datagram, behind) = rest.split_at(size);
            rest = behind;
            self.given += size as u64;
            let sent = if self.waiting.all.is_empty() {
                port.send_datagram(self.handle, datagram, now)
            } else {
                Sent::Full
            };
            match sent {
                Sent::Taken => {}
                Sent::TooLong => self.refuse(too_long(size)),
                Sent::Full if self.waiting.push(datagram) => {}
                Sent::Full => refused += 1,
            }
        }
        outbox.clear();
        if refused > 0 {
            return Err(ConnError::new(Failure::Local, "the port takes no more datagrams").datagrams(refused));
        }
        Ok(())
    }

    /// What came, once.
    pub fn receive(&mut self, port: &mut StackPort, buffer: &mut [u8]) -> Result<Input, ConnError> {
        match port.stack.receive_datagram(self.handle, buffer) {
            Arrival::Dry => Ok(Input::Dry),
            Arrival::Datagram(len, more) => Ok(Input::Bytes { len, dry: !more }),
            Arrival::Dropped(datagrams) => Ok(Input::Dropped(datagrams)),
            // kernel sockets do not tell it of echo requests, which stay without an answer
            Arrival::Error(..) if self.kind == SocketKind::Echo => Ok(Input::Aside),
            Arrival::Error(why, times) => Err(ConnError::remote(errno(why), "receive").datagrams(times)),
        }
    }

    /// Close the socket.
    pub fn close(self, port: &mut StackPort) -> Closed {
        let (_lost_with_the_next_hop, dropped) = port.stack.close_socket(self.handle);
        Closed { unsent: self.waiting.all.len() as u64, dropped }
    }

    /// Whether the port has taken everything.
    pub fn is_flushed(&self) -> bool {
        self.waiting.all.is_empty()
    }

    /// Bytes that it was given.
    pub fn bytes_queued(&self) -> u64 {
        self.given
    }

    /// How many of them the port has taken.
    pub fn datagrams_sent(&self) -> u64 {
        self.given - self.waiting.bytes as u64
    }

    /// Datagrams that were not sent; told once each.
    pub fn take_refused(&mut self) -> Option<ConnError> {
        self.refused.pop()
    }

    fn refuse(&mut self, refused: ConnError) {
        match self.refused.last_mut().filter(|last| last.is_like(&refused) && self.kind == SocketKind::Udp) {
            Some(last) => last.times += refused.times,
            None => self.refused.push(refused),
        }
    }
}

/// As the kernel says it.
fn too_long(size: usize) -> ConnError {
    ConnError::errno(Errno::MSGSIZE, format!("send a datagram of {size} bytes")).datagrams(1)
}

/// The error that Linux makes of it (icmp(7), RFC 1122 section 4.1.3.3).
fn errno(why: DatagramError) -> Errno {
    let DatagramError::Icmp { v6, kind, code } = why else { return Errno::HOSTUNREACH };
    match (v6, kind, code) {
        (false, 3, 0 | 6 | 9 | 11) | (true, 1, 0) => Errno::NETUNREACH,
        (false, 3, 2) => Errno::NOPROTOOPT,
        (false, 3, 3) | (true, 1, 4) => Errno::CONNREFUSED,
        (false, 3, 4) | (true, 2, _) => Errno::MSGSIZE,
        (false, 3, 5) => Errno::OPNOTSUPP,
        (false, 3, 7) => Errno::HOSTDOWN,
        (false, 3, 8) => Errno::NONET,
        (true, 1, 1 | 5 | 6) => Errno::ACCESS,
        (false, 12, _) | (true, 4, _) => Errno::PROTO,
        _ => Errno::HOSTUNREACH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_bytes_wait_as_there_is_room_for_and_no_more() {
        let mut waiting = Waiting::default();
        assert!(waiting.push(&[1; WAITING_MAX - 10]) && waiting.push(&[2; 10]));
        assert!(!waiting.push(&[3]), "one byte more");
        assert_eq!((waiting.all.len(), waiting.bytes), (2, WAITING_MAX));
        waiting.pop();
        assert!(waiting.push(&[3]));
        assert_eq!(waiting.all, [vec![2; 10], vec![3]]);
        assert_eq!(waiting.bytes, 11);
    }

    #[test]
    fn causes_are_those_of_kernel_sockets() {
        let why =
            |v6, kind, code| ConnError::remote(errno(DatagramError::Icmp { v6, kind, code }), "receive").why;
        assert_eq!((why(false, 3, 3), why(true, 1, 4)), (Failure::Refused, Failure::Refused));
        for (v6, kind, code) in
            [(false, 3, 0), (false, 3, 1), (false, 3, 13), (false, 11, 0), (true, 1, 1), (true, 3, 0)]
        {
            assert_eq!(why(v6, kind, code), Failure::Unreachable, "{v6} {kind} {code}");
        }
        assert_eq!(why(false, 3, 4), Failure::Local, "larger than the path takes");
        assert_eq!(errno(DatagramError::NoNeighbour), Errno::HOSTUNREACH);
    }
}
