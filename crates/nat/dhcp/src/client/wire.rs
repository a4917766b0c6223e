//! DHCP messages in frames.

use super::Verdict;
use packet::checksum::{Sum, pseudo_header};
use packet::ethernet::{self, Ethernet, Tags};
use packet::ipv4::{self, Ipv4};
use packet::layers::protocol;
use packet::udp::{self, Datagram};
use packet::{Layers, Mac};
use std::net::Ipv4Addr;

const CLIENT: u16 = 68;
const SERVER: u16 = 67;

/// From whom and to whom a message goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Endpoints {
    pub mac: Mac,
    pub source: Ipv4Addr,
    /// The server and the hardware address behind which it is; none: everybody.
    pub server: Option<(Mac, Ipv4Addr)>,
}

/// The frame of a message.
pub(super) fn frame(way: &Endpoints, tags: &Tags, message: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(udp::LEN + message.len()).ok()?;
    let (destination, to) = way.server.unwrap_or((ethernet::BROADCAST, Ipv4Addr::BROADCAST));
    let least = ipv4::LEN + usize::from(length);
    let mut frame = vec![0; ethernet::LEN + 2 * ethernet::TAG + least];
    let header = Ethernet { destination, source: way.mac, kind: ethernet::kind::IPV4 };
    let packet = header.emit_tagged(&mut frame, tags, least)?;
    let spare = packet.len() - least;

    let (head, segment) = packet.split_first_chunk_mut::<{ ipv4::LEN }>()?;
    let ip = Ipv4 {
        source: way.source,
        destination: to,
        protocol: protocol::UDP,
        ttl: 64,
        dscp: 0,
        payload: length,
    };
    ip.emit(head);
    let segment = segment.get_mut(..usize::from(length))?;
    segment[..2].copy_from_slice(&CLIENT.to_be_bytes());
    segment[2..4].copy_from_slice(&SERVER.to_be_bytes());
    segment[4..6].copy_from_slice(&length.to_be_bytes());
    segment[udp::LEN..].copy_from_slice(message);
    let pseudo = pseudo_header(&head[12..], protocol::UDP, u32::from(length));
    let sum = match pseudo.plus(Sum::ZERO.bytes(segment)).checksum() {
        0 => u16::MAX,
        sum => sum,
    };
    segment[6..8].copy_from_slice(&sum.to_be_bytes());
    let used = frame.len() - spare;
    frame.truncate(used);
    Some(frame)
}

/// A frame that may be a server's: who sent it to whom, and the message in it.
pub(super) fn reply<'a>(frame: &'a [u8], tags: &Tags) -> Result<(Ethernet, &'a [u8]), Verdict> {
    let header = Ethernet::parse(frame).ok_or(Verdict::NotOurs)?;
    let layers = Layers::find(frame).map_err(|_| Verdict::NotOurs)?;
    let datagram = Datagram::parse(frame, &layers).map_err(|_| Verdict::NotOurs)?;
    let ports = datagram.source == SERVER && datagram.destination == CLIENT;
    // A group address is nobody's.
    let sender = header.source[0] & 1 == 0;
    if layers.is_v6() || !ports || !sender || !Tags::of(frame).same_vlans(tags) {
        return Err(Verdict::NotOurs);
    }
    Ok((header, datagram.payload))
}
