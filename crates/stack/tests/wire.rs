//! What tests have on the wire: addresses and settings of two sides, the frames that a stack sends, and segments made by hand.

use packet::ethernet::{Ethernet, LEN as ETHERNET, Tags, kind};
use packet::ipv4::{self, Ipv4};
use packet::ipv6::{self, Ipv6};
use packet::layers::protocol;
use packet::tcp::Header;
use packet::{Mac, checksum};
use stack::{Config, Network, Share, TcpConfig, Transmit};
use std::net::IpAddr;

pub const MS: u64 = 1_000_000;

/// Takes all frames.
#[derive(Default)]
pub struct Frames(pub Vec<Vec<u8>>);

impl Transmit for Frames {
    fn frame(&mut self, len: usize) -> Option<&mut [u8]> {
        self.0.push(vec![0; len]);
        self.0.last_mut().map(Vec::as_mut_slice)
    }
}

/// Address of side 0 or 1.
pub fn ip(side: u8, v6: bool) -> IpAddr {
    if v6 {
        IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(side) + 1])
    } else {
        IpAddr::from([10, 0, 0, side + 1])
    }
}

/// Ethernet address of side 0 or 1.
pub fn mac(side: u8) -> Mac {
    [2, 0, 0, 0, 0, side + 1]
}

pub fn config(side: u8, tcp: TcpConfig) -> Config {
    let addresses = vec![ip(side, false), ip(side, true)];
    let network = |address, prefix| Network { address, prefix };
    Config {
        mac: mac(side),
        tags: Tags::NONE,
        networks: vec![network(addresses[0], 24), network(addresses[1], 64)],
        addresses,
        gateways: Vec::new(),
        peer: None,
        mtu: 1500,
        ports: 40_000..=40_099,
        connections: 200,
        sockets: 100,
        share: Share::ALL,
        // ports of sockets begin with the first of their range
        secret: [7 + u64::from(side), 100 * 65_535],
        tcp,
    }
}

/// A segment to side `to` from the other one.
pub fn segment(to: u8, v6: bool, header: &Header, payload: &[u8]) -> Vec<u8> {
    let len = header.size() + payload.len();
    let (source, destination, protocol) = (ip(1 - to, v6), ip(to, v6), protocol::TCP);
    let at = ETHERNET + if v6 { ipv6::LEN } else { ipv4::LEN };
    let mut frame = vec![0; at + len];
    let kind = if v6 { kind::IPV6 } else { kind::IPV4 };
    let ethernet = Ethernet { destination: mac(to), source: mac(1 - to), kind };
    ethernet.emit(frame.first_chunk_mut().expect("room"));
    let addresses = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip = Ipv4 { source, destination, protocol, ttl: 64, dscp: 0, payload: len as u16 };
            ip.emit(frame[ETHERNET..].first_chunk_mut().expect("room"));
            8
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let next = protocol;
            let ip = Ipv6 { source, destination, next, hops: 64, dscp: 0, payload: len as u16 };
            ip.emit(frame[ETHERNET..].first_chunk_mut().expect("room"));
            32
        }
        _ => unreachable!("both are of one family"),
    };
    assert!(header.emit(&mut frame[at..]));
    frame[at + header.size()..].copy_from_slice(payload);
    let pseudo = checksum::pseudo_header(&frame[at - addresses..at], protocol, len as u32);
    let sum = pseudo.plus(checksum::Sum::ZERO.bytes(&frame[at..])).checksum();
    frame[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
    frame
}
