//! One device's connection, as far as its worker asks about it between two calls of the endpoint.

use device::conn_error::CONNECT;
use device::output::Output;
use device::tls::{Records, Session};
use device::{ConnError, Input};
use protocol::model::Outbox;
use rustix::io::Errno;
use stack::{CloseReason, ConnectError, Handle, Received, Stack};
use std::net::SocketAddr;

/// A connection.
#[derive(Debug)]
pub struct Conn {
    /// Number of its port.
    pub port: usize,
    handle: Handle,
    pub local: SocketAddr,
    is_connected: bool,
    tls: Option<Box<Session>>,
    /// Bytes that the stack had no room for.
    pub out: Output,
    /// Of those that the stack took: how many it had not sent when that was last asked.
    unsent: u64,
}

impl Conn {
    /// One that begins to connect, with a TLS session on it or not.
    pub fn new(port: usize, handle: Handle, local: SocketAddr, tls: Option<Box<Session>>) -> Self {
        Self { port, handle, local, is_connected: false, tls, out: Output::default(), unsent: 0 }
    }

    /// Send what is in `outbox`, which is empty afterwards, behind what the stack had no room for; with an empty one only that.
    pub fn send(&mut self, stack: &mut Stack, outbox: &mut Outbox, now: u64) -> Result<(), ConnError> {
        if outbox.bytes.is_empty() {
            return self.progress(stack, now);
        }
        self.out.admit()?;
        if let Some(tls) = &mut self.tls {
            tls.write(&outbox.bytes)?;
            outbox.bytes.clear();
            return self.progress(stack, now);
        }
        if !self.out.is_empty() {
            self.out.append(&mut outbox.bytes);
            return Ok(());
        }
        let result = stack.write(self.handle, &outbox.bytes, now);
        self.refresh_status(stack);
        self.out.pass(&outbox.bytes, result.unwrap_or(0));
        outbox.bytes.clear();
        result.map(|_| ()).map_err(|why| self.conn_error(why, "send"))
    }

    /// Move on what there is to move: the handshake, what the stack had no room for.
    fn progress(&mut self, stack: &mut Stack, now: u64) -> Result<(), ConnError> {
        if let Some(tls) = &mut self.tls {
            self.out.append_records(tls)?;
        }
        self.flush(stack, now)
    }

    /// Let what the stack had no room for wait no longer than it must.
    fn flush(&mut self, stack: &mut Stack, now: u64) -> Result<(), ConnError> {
        let result = stack.write(self.handle, self.out.waiting(), now);
        self.refresh_status(stack);
        self.out.take(result.map_err(|why| self.conn_error(why, "send"))?);
        Ok(())
    }

    /// What came, once. `cipher` is room for TLS records.
    pub fn receive(
        &mut self,
        stack: &mut Stack,
        buffer: &mut [u8],
        cipher: &mut [u8],
        now: u64,
    ) -> Result<Input, ConnError> {
        if let Some(mut tls) = self.tls.take() {
            let input = tls.read(buffer, cipher, |room| match stack.read(self.handle, room, now) {
                Ok(Received::Dry) => Ok(Records::Dry),
                Ok(Received::Bytes(len, _)) => Ok(Records::Bytes(len)),
                Ok(Received::End) => Ok(Records::End),
                Err(why) => Err(self.conn_error(why, "receive")),
            });
            self.tls = Some(tls);
            self.refresh_status(stack);
            return input;
        }
        let result = stack.read(self.handle, buffer, now);
        self.refresh_status(stack);
        match result {
            Ok(Received::Dry) => Ok(Input::Dry),
            Ok(Received::Bytes(len, more)) => Ok(Input::Bytes { len, dry: !more }),
            Ok(Received::End) => Ok(Input::End { complete: true }),
            Err(why) => Err(self.conn_error(why, "receive")),
        }
    }

    /// Say goodbye and close it: what the stack has is still sent.
    pub fn close(mut self, stack: &mut Stack, now: u64) {
        if let Some(tls) = &mut self.tls {
            tls.end();
            let _nothing_to_lose = self.progress(stack, now);
        }
        stack.close(self.handle, now);
    }

    fn refresh_status(&mut self, stack: &Stack) {
        if let Some(status) = stack.status(self.handle) {
            self.is_connected |= status.is_up;
            self.unsent = status.unsent as u64;
        }
    }

    /// Why it broke, in the words that the kernel has for it.
    fn conn_error(&self, why: CloseReason, doing: &'static str) -> ConnError {
        let doing = if self.is_connected { doing } else { CONNECT };
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

impl Conn {
    /// Whether bytes can be exchanged.
    pub fn is_up(&self) -> bool {
        self.is_connected && self.tls.as_ref().is_none_or(|tls| !tls.is_handshaking())
    }

    /// How many of the bytes that it was given have left.
    pub fn sent_bytes(&mut self, exact: bool) -> u64 {
        let unsent = self.unsent;
        self.out.sent(exact, || unsent)
    }
}
