//! A connection's bytes, over the Unix socket or TCP. Clones share one descriptor: devices need the others.

use crate::lines::ReadTimeout;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// What is known of the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FarEnd {
    /// It may say more.
    There,
    /// It says no more, and may read still; over TCP it looks so too when it is gone.
    Silent,
    /// It is gone.
    Gone,
}

/// A connection over a Unix socket or TCP.
#[derive(Debug, Clone)]
pub enum Stream {
    /// From the Unix socket.
    Unix(Arc<UnixStream>),
    /// From TCP.
    Tcp(Arc<TcpStream>),
}

impl Stream {
    /// Whether anybody is at the other end still.
    pub fn far_end(&self) -> FarEnd {
        let mut one = match self {
            Self::Unix(stream) => [PollFd::new(stream.as_ref(), PollFlags::RDHUP)],
            Self::Tcp(stream) => [PollFd::new(stream.as_ref(), PollFlags::RDHUP)],
        };
        if poll(&mut one, Some(&Timespec::default())).is_err() {
            return FarEnd::There;
        }
        let seen = one[0].revents();
        if seen.intersects(PollFlags::HUP | PollFlags::ERR) {
            FarEnd::Gone
        } else if seen.contains(PollFlags::RDHUP) {
            FarEnd::Silent
        } else {
            FarEnd::There
        }
    }

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

impl From<Arc<TcpStream>> for Stream {
    fn from(stream: Arc<TcpStream>) -> Self {
        Self::Tcp(stream)
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

impl ReadTimeout for Stream {
    fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(limit),
            Self::Tcp(stream) => stream.set_read_timeout(limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_anybody_is_there_is_seen_also_behind_unread_bytes() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let stream = Stream::from(ours);
        assert_eq!(stream.far_end(), FarEnd::There);
        theirs.write_all(b"unread").unwrap();
        assert_eq!(stream.far_end(), FarEnd::There);
        theirs.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.far_end(), FarEnd::Silent);
        drop(theirs);
        assert_eq!(stream.far_end(), FarEnd::Gone);
    }
}
