//! A connection's bytes, over the Unix socket or TCP. Clones share one descriptor: devices need the others.

use crate::lines::Patient;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// See the module's own words.
#[derive(Debug, Clone)]
pub enum Stream {
    /// From the Unix socket.
    Unix(Arc<UnixStream>),
    /// From TCP.
    Tcp(Arc<TcpStream>),
}

impl Stream {
    /// Make all who read or write it stop.
    pub fn hang_up(&self) {
        let _gone = match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Self {
        Self::Unix(Arc::new(stream))
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::Tcp(Arc::new(stream))
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.as_ref().read(into),
            Self::Tcp(stream) => stream.as_ref().read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.as_ref().write(bytes),
            Self::Tcp(stream) => stream.as_ref().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Patient for Stream {
    fn patience(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(limit),
            Self::Tcp(stream) => stream.set_read_timeout(limit),
        }
    }
}
