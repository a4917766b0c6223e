//! A device's connection over a port: a byte stream, or datagrams.

use crate::conn::Conn;
use crate::datagrams::Datagrams;
use device::{ConnError, Connection};
use std::net::SocketAddr;

/// A connection.
#[derive(Debug)]
pub enum Link {
    Stream(Box<Conn>),
    Datagrams(Box<Datagrams>),
}

impl Connection for Link {
    fn is_datagram(&self) -> bool {
        matches!(self, Self::Datagrams(_))
    }

    fn is_up(&self) -> bool {
        match self {
            Self::Stream(conn) => conn.is_up(),
            Self::Datagrams(_) => true,
        }
    }

    fn local(&self) -> Option<SocketAddr> {
        match self {
            Self::Stream(conn) => Some(conn.local),
            Self::Datagrams(socket) => socket.local,
        }
    }

    fn is_flushed(&self) -> bool {
        match self {
            Self::Stream(conn) => conn.out.is_empty(),
            Self::Datagrams(socket) => socket.is_flushed(),
        }
    }

    fn queued_bytes(&self) -> u64 {
        match self {
            Self::Stream(conn) => conn.out.given(),
            Self::Datagrams(socket) => socket.bytes_queued(),
        }
    }

    fn sent_bytes(&mut self, exact: bool) -> u64 {
        match self {
            Self::Stream(conn) => conn.sent_bytes(exact),
            Self::Datagrams(socket) => socket.datagrams_sent(),
        }
    }

    fn take_refused(&mut self) -> Option<ConnError> {
        match self {
            Self::Stream(_) => None,
            Self::Datagrams(socket) => socket.take_refused(),
        }
    }
}
