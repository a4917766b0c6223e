//! Media sockets: UDP sockets that a device has in addition to its connection, an even port for RTP and the next for RTCP.

use crate::time::Time;
use std::net::SocketAddr;

/// One of the two media sockets of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    /// The even port.
    Rtp = 0,
    /// The port above it.
    Rtcp = 1,
}

impl Channel {
    /// Both, in the order of their ports.
    pub const ALL: [Self; 2] = [Self::Rtp, Self::Rtcp];
}

/// A datagram that arrived at a media socket.
#[derive(Debug, Clone, Copy)]
pub struct MediaPacket<'a> {
    /// At which socket.
    pub channel: Channel,
    /// Who sent it.
    pub from: SocketAddr,
    /// When it arrived at this host, which may be before the device is told of it.
    pub at: Time,
    /// Its payload.
    pub bytes: &'a [u8],
}

/// Datagrams that leave from media sockets.
#[derive(Debug, Default)]
pub struct MediaOutbox {
    bytes: Vec<u8>,
    /// Socket, destination, and where the datagram ends in `bytes`.
    datagrams: Vec<(Channel, SocketAddr, usize)>,
}

impl MediaOutbox {
    /// Append a datagram to `to`, which `write` writes behind what is in the vector.
    #[inline]
    pub fn push(&mut self, channel: Channel, to: SocketAddr, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.datagrams.push((channel, to, self.bytes.len()));
    }

    /// The datagrams, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Channel, SocketAddr, &[u8])> {
        self.datagrams.iter().scan(0, |start, (channel, to, end)| {
            let bytes = &self.bytes[std::mem::replace(start, *end)..*end];
            Some((*channel, *to, bytes))
        })
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Drop all, keeping the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.datagrams.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_keep_their_bounds() {
        let mut outbox = MediaOutbox::default();
        let to: SocketAddr = "192.0.2.1:4000".parse().expect("address");
        outbox.push(Channel::Rtp, to, |out| out.extend_from_slice(b"one"));
        outbox.push(Channel::Rtcp, to, |out| out.extend_from_slice(b"second"));
        let all: Vec<_> = outbox.iter().map(|(channel, _, bytes)| (channel, bytes)).collect();
        assert_eq!(all, [(Channel::Rtp, &b"one"[..]), (Channel::Rtcp, b"second")]);
        outbox.clear();
        assert!(outbox.is_empty() && outbox.iter().next().is_none());
    }
}
