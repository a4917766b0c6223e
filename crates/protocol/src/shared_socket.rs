//! Sockets and connections that the devices of a group share: whose a message is, and where the next one begins.

use crate::cause::Cause;

/// How the devices of a group share a datagram socket of each worker, or connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedSocket {
    /// Port to receive messages on that begin something; the worker's number is added to it. They are taken from any port of
    /// the target's addresses, and answers go back to where they came from. `None`: the kernel chooses a port, and datagrams
    /// are taken from the target's address and port alone.
    pub listen: Option<u16>,
    /// Of a stream: how many connections the devices that send from one address share. Each worker has one at least.
    pub connections: u32,
}

/// What the bytes of a shared connection begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Framing {
    /// A message of this length.
    Message(usize),
    /// A part of a message, or nothing.
    Partial,
    /// Something else: the connection is of no use any more.
    Foreign(Cause, String),
}

/// Whose a datagram is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipient {
    /// The device of this number in the group: the datagram says so itself.
    Device(u32),
    /// A device that is free, and the same one for each that has this key.
    Free(u64),
    /// The device that was given a message with this key before.
    Known(u64),
    /// Nobody's in particular; any device can say so.
    Stray,
}
