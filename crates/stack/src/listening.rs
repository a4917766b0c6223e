//! A datagram socket that hears everybody: of a server.

use crate::connection::Tuple;
use crate::packets::{Packets, Queue};
use crate::path_mtu::LEAST_V4;
use packet::{ipv4, udp};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Places for peers that large datagrams were sent to, of which a path can be too small.
const PLACES: usize = 256;
/// Bytes of a sender's address and port before its datagram, in a form of one length.
const SENDER: usize = 19;

/// Result of [`Stack::send_datagram_to`](crate::Stack::send_datagram_to).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOutcome {
    /// It was sent.
    Sent,
    /// The Ethernet address of the next hop is being asked for, or the port takes no more now.
    Later,
    /// It cannot be sent.
    Lost,
}

/// The socket.
#[derive(Debug)]
pub(crate) struct Listening {
    pub local: SocketAddr,
    /// Datagrams that there was no room for.
    pub dropped: u64,
    room: usize,
    packets: Packets,
    received: Queue,
    /// Memory for a datagram with its sender.
    whole: Vec<u8>,
    /// Who was sent a large datagram, by a hash: the last one of each place.
    answered: Vec<Option<SocketAddr>>,
}

/// The place of a peer among those that were answered.
fn place(peer: SocketAddr) -> usize {
    let fold = |bytes: &[u8]| bytes.iter().fold(0u32, |sum, byte| sum.wrapping_mul(31) ^ u32::from(*byte));
    let ip = match peer.ip() {
        IpAddr::V4(ip) => fold(&ip.octets()),
        IpAddr::V6(ip) => fold(&ip.octets()),
    };
    let hash = (ip ^ u32::from(peer.port())).wrapping_mul(0x9e37_79b1);
    (hash >> 24) as usize % PLACES
}

impl Listening {
    pub fn new(local: SocketAddr, room: usize) -> Self {
        let (packets, received) = (Packets::default(), Queue::default());
        Self { local, dropped: 0, room, packets, received, whole: Vec::new(), answered: Vec::new() }
    }

    pub fn matches(&self, tuple: &Tuple) -> bool {
        (tuple.local, tuple.local_port) == (self.local.ip(), self.local.port())
    }

    /// A datagram of so many bytes was sent from here.
    pub fn answered(&mut self, tuple: &Tuple, bytes: usize) {
        if bytes + ipv4::LEN + udp::LEN <= LEAST_V4.into() {
            return;
        }
        self.answered.resize(PLACES, None);
        self.answered[place(tuple.remote())] = Some(tuple.remote());
    }

    /// Whether a large datagram was sent there lately: what a router says of one may be true.
    pub fn has_answered(&self, tuple: &Tuple) -> bool {
        self.matches(tuple)
            && self.answered.get(place(tuple.remote())).is_some_and(|peer| *peer == Some(tuple.remote()))
    }

    pub fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    /// A datagram came. `false`: there is no room.
    pub fn deliver(&mut self, tuple: &Tuple, bytes: &[u8]) -> bool {
        self.whole.clear();
        match tuple.remote {
            IpAddr::V4(ip) => {
                self.whole.push(4);
                self.whole.extend_from_slice(&ip.octets());
                self.whole.resize(SENDER - 2, 0);
            }
            IpAddr::V6(ip) => {
                self.whole.push(6);
                self.whole.extend_from_slice(&ip.octets());
            }
        }
        self.whole.extend_from_slice(&tuple.remote_port.to_be_bytes());
        self.whole.extend_from_slice(bytes);
        let taken = self.packets.push(&mut self.received, &self.whole, self.room);
        self.dropped += u64::from(!taken);
        taken
    }

    /// The oldest datagram: its length, and who sent it.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        let packet = self.packets.front(&self.received)?;
        let (sender, bytes) = packet.split_first_chunk::<SENDER>()?;
        let [kind, ip @ .., high, low] = *sender;
        let ip = match ip {
            [a, b, c, d, ..] if kind == 4 => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            all => IpAddr::V6(Ipv6Addr::from(all)),
        };
        let from = SocketAddr::new(ip, u16::from_be_bytes([high, low]));
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        self.packets.pop(&mut self.received);
        Some((length, from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_keep_their_order_and_their_senders() {
        let local = "[fd00::1]:5683".parse().expect("an address");
        let mut socket = Listening::new(local, 1 << 10);
        let tuple = |remote: &str| {
            let remote: SocketAddr = remote.parse().expect("an address");
            Tuple { local: local.ip(), local_port: 5683, remote: remote.ip(), remote_port: remote.port() }
        };
        let senders = ["10.0.0.1:7", "[fd00::2]:65535"];
        for sender in senders {
            assert!(socket.matches(&tuple(sender)) && socket.deliver(&tuple(sender), sender.as_bytes()));
        }
        assert!(!socket.deliver(&tuple(senders[0]), &[0; 1000]), "no room");
        let mut buffer = [0; 100];
        for sender in senders {
            let (length, from) = socket.receive(&mut buffer).expect("a datagram");
            assert_eq!((&buffer[..length], from), (sender.as_bytes(), sender.parse().expect("an address")));
        }
        assert!(socket.is_empty() && socket.receive(&mut buffer).is_none());
        assert_eq!(socket.dropped, 1);
    }
}
