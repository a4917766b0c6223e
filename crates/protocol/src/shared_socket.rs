//! Sockets that the devices of a group share: whose a datagram is, and what is known of such a socket.

/// How the devices of a group share a datagram socket of each worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedSocket {
    /// Port to receive messages on that begin something; the worker's number is added to it. They are taken from any port of
    /// the target's addresses, and answers go back to where they came from. `None`: the kernel chooses a port, and datagrams
    /// are taken from the target's address and port alone.
    pub listen: Option<u16>,
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
