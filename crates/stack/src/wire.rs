//! Frames of a stack: segments with their IP and Ethernet headers, and where they are written to.

use crate::connection::Tuple;
use packet::ethernet::{Ethernet, LEN as ETHERNET, Tags, kind};
use packet::layers::protocol;
use packet::tcp::Header;
use packet::{Mac, checksum, ipv4, ipv6};
use std::net::IpAddr;

/// Hops that a packet may make.
const HOPS: u8 = 64;

/// Takes frames to send.
pub trait Transmit {
    /// Room for a frame of `len` bytes, which is sent once this is written; `None`: it takes no more now.
    fn frame(&mut self, len: usize) -> Option<&mut [u8]>;
}

/// Ethernet addresses and VLANs of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub source: Mac,
    pub destination: Mac,
    pub tags: Tags,
}

/// Send a segment. `false`: there was no room.
pub(crate) fn send_segment(
    to: &mut impl Transmit,
    link: &Link,
    tuple: &Tuple,
    header: &Header,
    payload: &[u8],
) -> bool {
    let ip = if tuple.local.is_ipv4() { ipv4::LEN } else { ipv6::LEN };
    let headers = ETHERNET + link.tags.bytes().len() + ip;
    let (tcp, segment) = (header.size(), header.size() + payload.len());
    let Some(frame) = to.frame(headers + segment) else { return false };
    let kind = if tuple.local.is_ipv4() { kind::IPV4 } else { kind::IPV6 };
    let ethernet = Ethernet { destination: link.destination, source: link.source, kind };
    let Some(rest) = ethernet.emit_tagged(frame, &link.tags, ip + segment) else { return false };
    let Some(pseudo) = emit_ip(rest, tuple, segment) else { return false };
    let body = &mut rest[ip..ip + segment];
    header.emit(body);
    body[tcp..].copy_from_slice(payload);
    let sum = pseudo.plus(checksum::Sum::ZERO.bytes(body)).checksum();
    body[16..18].copy_from_slice(&sum.to_be_bytes());
    true
}

/// Write the IP header of a segment; the sum of its pseudo-header.
fn emit_ip(out: &mut [u8], tuple: &Tuple, segment: usize) -> Option<checksum::Sum> {
    match (tuple.local, tuple.remote) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let out = out.first_chunk_mut()?;
            let (protocol, payload) = (protocol::TCP, segment as u16);
            ipv4::Ipv4 { source, destination, protocol, ttl: HOPS, dscp: 0, payload }.emit(out);
            Some(checksum::pseudo_header(&out[12..20], protocol, segment as u32))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let out = out.first_chunk_mut()?;
            let (next, payload) = (protocol::TCP, segment as u16);
            ipv6::Ipv6 { source, destination, next, hops: HOPS, dscp: 0, payload }.emit(out);
            Some(checksum::pseudo_header(&out[8..40], next, segment as u32))
        }
        _ => None,
    }
}
