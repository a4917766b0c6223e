//! What frames must be like to be measured.

use packet::frame::Sizes;
use packet::icmp_error::Quoted;
use packet::layers::protocol::UDP;
use packet::signature;
use packet::udp::Datagram;
use protocol::meter::Tally;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;

/// Devices send from this UDP port on, in turn.
pub const FIRST_SOURCE_PORT: u16 = 10_000;
/// As many as there are before the first comes again.
pub const SOURCE_PORTS: u16 = 50_000;

/// Frames that the receiver expects of one group.
#[derive(Debug)]
pub struct ExpectedGroup {
    /// Number of the group in the plan.
    pub group: usize,
    /// Numbers of its streams: one for each device.
    pub streams: Range<u32>,
    /// Counts and delays, by phase.
    pub meter: [Tally; 3],
    /// Which of the delays is the time from sending to receiving.
    pub delay: Option<usize>,
    /// Its frames are of all kinds, and counted whole; else they are UDP, and only what that carries counts.
    pub whole: bool,
    /// `None`: its frames are made of layers of the user's own, or recorded. They are known by their signature alone.
    pub plain: Option<PlainUdp>,
}

/// A group whose frames are UDP datagrams towards its target, with nothing in them but zeros and the signature.
#[derive(Debug, Clone)]
pub struct PlainUdp {
    /// Whether the target is to send them back.
    echo: bool,
    peer: FlowAddress,
    /// Where they come from: device number n has number n modulo their count.
    sources: Vec<IpAddr>,
    own: Vec<FlowAddress>,
    devices: u32,
    /// A bit for each payload length there is.
    lengths: Box<[u64]>,
}

/// An address as it stands in a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FlowAddress {
    octets: [u8; 16],
    len: usize,
    port: u16,
    /// Who is asked there answers from an address of his own.
    many: bool,
}

impl FlowAddress {
    fn new(ip: IpAddr, port: u16) -> Self {
        let (mut octets, len) = ([0; 16], if ip.is_ipv4() { 4 } else { 16 });
        match ip {
            IpAddr::V4(ip) => octets[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => octets = ip.octets(),
        }
        let many = ip.is_multicast() || ip.is_unspecified() || ip == IpAddr::V4(Ipv4Addr::BROADCAST);
        Self { octets, len, port, many }
    }

    #[inline]
    fn is(&self, octets: &[u8], port: u16, own: u16) -> bool {
        port == own && (self.many || self.octets.get(..self.len) == Some(octets))
    }
}

/// The source port of a device.
fn port(device: u32) -> u16 {
    FIRST_SOURCE_PORT + (device % u32::from(SOURCE_PORTS)) as u16
}

impl PlainUdp {
    /// Datagrams of these sizes (whole frames without FCS, `headers` of it before the payload) from `devices` devices at
    /// `sources` to `peer`.
    pub fn new(
        (sources, devices): (Vec<IpAddr>, u32),
        peer: SocketAddr,
        (sizes, headers): (&Sizes, usize),
        echo: bool,
    ) -> Self {
        let distinct: Vec<usize> = match sizes {
            Sizes::Cycle(cycle) => cycle.clone(),
            Sizes::Random(from, to) => (*from..=*to).collect(),
        };
        let payloads: Vec<usize> = distinct.iter().map(|size| size.saturating_sub(headers)).collect();
        let longest = payloads.iter().max().copied().unwrap_or(0);
        let mut lengths = vec![0u64; longest / 64 + 1];
        for len in payloads {
            lengths[len / 64] |= 1 << (len % 64);
        }
        Self {
            echo,
            peer: FlowAddress::new(peer.ip(), peer.port()),
            own: sources.iter().map(|ip| FlowAddress::new(*ip, 0)).collect(),
            sources,
            devices,
            lengths: lengths.into(),
        }
    }

    /// Whether each datagram is to come back.
    #[inline]
    pub fn is_echo(&self) -> bool {
        self.echo
    }

    #[inline]
    fn is_length(&self, len: usize) -> bool {
        self.lengths.get(len / 64).is_some_and(|word| word >> (len % 64) & 1 == 1)
    }

    /// Whether the datagram between `addresses`, as they stand in the IP header, is one that `device` sent and the target
    /// sent back: with both ends swapped as by a host, or as it left where the device under test forwards frames.
    #[inline]
    pub fn is_of(&self, device: u32, addresses: &[u8], datagram: &Datagram<'_>) -> bool {
        let Some(own) = self.own.get(device as usize % self.own.len().max(1)) else { return false };
        let (source, destination) = addresses.split_at(addresses.len() / 2);
        let (from, to, port) = (datagram.source, datagram.destination, port(device));
        self.peer.is(source, from, self.peer.port) && own.is(destination, to, port)
            || own.is(source, from, port) && self.peer.is(destination, to, self.peer.port)
    }

    /// Whether the target sent the datagram to one of the devices.
    pub fn is_reply(&self, addresses: &[u8], datagram: &Datagram<'_>) -> bool {
        let (source, destination) = addresses.split_at(addresses.len() / 2);
        let from = self.peer.is(source, datagram.source, self.peer.port);
        from && self.own.iter().any(|own| own.is(destination, 0, 0)) && self.has_port(datagram.destination)
    }

    /// Whether one of the devices sent what is quoted.
    pub fn is_quoted(&self, quoted: &Quoted) -> bool {
        let to = FlowAddress::new(quoted.destination.ip(), quoted.destination.port());
        let from = self.sources.contains(&quoted.source.ip()) && self.has_port(quoted.source.port());
        quoted.protocol == UDP && to == self.peer && from
    }

    fn has_port(&self, port: u16) -> bool {
        let count = self.devices.min(SOURCE_PORTS.into());
        port.checked_sub(FIRST_SOURCE_PORT).is_some_and(|number| u32::from(number) < count)
    }

    /// Whether a payload is as it was sent but for the signature, which is checked by itself. One-way datagrams may come
    /// in a tunnel: what has another length than any that was sent is then known by its signature alone.
    #[inline]
    pub fn is_as_sent(&self, payload: &[u8]) -> bool {
        // The shortest have no room for anything but the signature.
        if self.is_length(payload.len()) {
            payload.len() == signature::LEN || is_blank(payload)
        } else {
            !self.echo
        }
    }
}

/// Whether there are only zeros before and after the signature. The place is even in the payload where it is in the
/// frame, as all headers before it have even lengths.
#[inline]
fn is_blank(payload: &[u8]) -> bool {
    let Some((before, rest)) = signature::place(payload.len()).and_then(|at| payload.split_at_checked(at))
    else {
        return false;
    };
    let (words, odd) = before.as_chunks::<8>();
    // All of them, not up to the first that is none: that takes many at a time.
    let words = words.iter().fold(0, |all, word| all | u64::from_ne_bytes(*word));
    let odd = odd.iter().chain(rest.get(signature::LEN..).unwrap_or(&[])).fold(0, |all, byte| all | byte);
    words == 0 && odd == 0
}
