//! Frames of a stack: segments with their IP and Ethernet headers, and where they are written to.

use crate::connection::Tuple;
use crate::offload::{Offload, Work};
use crate::sockets::SocketKind;
use packet::ethernet::{Ethernet, LEN as ETHERNET, Tags, kind};
use packet::layers::protocol;
use packet::tcp::Header;
use packet::{Mac, checksum, ipv4, ipv6, udp};
use std::net::IpAddr;

/// Hops that a packet may make.
const HOPS: u8 = 64;
/// Bytes of the header of an ICMP error.
const ICMP: usize = 8;
/// Types of echo requests (RFC 792, RFC 4443 section 4.1).
const ECHO_V4: u8 = 8;
const ECHO_V6: u8 = 128;

/// Takes frames to send.
pub trait Transmit {
    /// Room for a frame of `len` bytes, which is sent once this is written; `None`: it takes no more now.
    fn frame(&mut self, len: usize) -> Option<&mut [u8]>;

    /// The work that it does on frames which ask for it.
    fn offload(&self) -> Offload {
        Offload::default()
    }

    /// The same as [`frame`](Self::frame) of one with work for it.
    fn frame_with_work(&mut self, len: usize, work: &Work) -> Option<&mut [u8]> {
        let _checksums = work;
        self.frame(len)
    }

    /// Take a frame that is to be segmented, which has these headers and this payload. `false`: it takes no more now.
    fn segmented(&mut self, headers: &[u8], payload: &[u8], work: &Work) -> bool {
        let _segmentation = (headers, payload, work);
        false
    }
}

/// Ethernet addresses and VLANs of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub source: Mac,
    pub destination: Mac,
    pub tags: Tags,
}

/// Most bytes of headers: Ethernet with two tags, IPv6, and TCP with all options.
const HEADERS: usize = ETHERNET + 8 + ipv6::LEN + 60;

/// Send a segment, or a frame with more than `size` bytes of payload, which `to` segments. `false`: there was no room.
pub(crate) fn send_segment(
    to: &mut impl Transmit,
    link: &Link,
    tuple: &Tuple,
    header: &Header,
    (payload, size): (&[u8], u32),
) -> bool {
    let v6 = !tuple.local.is_ipv4();
    let (l2, l3, l4) =
        (ETHERNET + link.tags.bytes().len(), if v6 { ipv6::LEN } else { ipv4::LEN }, header.size());
    let (segment, does) = (l4 + payload.len(), to.offload());
    let mut work = Work { l2, l3, l4, v6, tcp: true, segment: None };
    let kind = if v6 { kind::IPV6 } else { kind::IPV4 };
    let ethernet = Ethernet { destination: link.destination, source: link.source, kind };
    if payload.len() > size as usize && does.segmentation.is_some() {
        work.segment = u16::try_from(size).ok();
        let mut headers = [0; HEADERS];
        let Some(headers) = headers.get_mut(..l2 + l3 + l4) else { return false };
        let Some(rest) = ethernet.emit_tagged(headers, &link.tags, l3 + l4) else { return false };
        let written = emit_ip(rest, tuple, protocol::TCP, segment).is_some() && header.emit(&mut rest[l3..]);
        return written && to.segmented(headers, payload, &work);
    }
    let len = l2 + l3 + segment;
    let frame = if does.checksums { to.frame_with_work(len, &work) } else { to.frame(len) };
    let Some(frame) = frame else { return false };
    let Some(rest) = ethernet.emit_tagged(frame, &link.tags, l3 + segment) else { return false };
    let Some(pseudo) = emit_ip(rest, tuple, protocol::TCP, segment) else { return false };
    let body = &mut rest[l3..l3 + segment];
    header.emit(body);
    body[l4..].copy_from_slice(payload);
    if !does.checksums {
        let sum = pseudo.plus(checksum::Sum::ZERO.bytes(body)).checksum();
        body[16..18].copy_from_slice(&sum.to_be_bytes());
    }
    true
}

/// Bytes that IP carries of a datagram.
pub(crate) fn datagram_size(kind: SocketKind, bytes: &[u8]) -> usize {
    bytes.len() + if kind == SocketKind::Udp { udp::LEN } else { 0 }
}

/// Send a datagram in one packet: a payload of UDP, or an echo request. `false`: there was no room.
pub(crate) fn send_datagram(
    to: &mut impl Transmit,
    link: &Link,
    kind: SocketKind,
    tuple: &Tuple,
    bytes: &[u8],
) -> bool {
    let v6 = !tuple.local.is_ipv4();
    let (l2, ip) = (ETHERNET + link.tags.bytes().len(), if v6 { ipv6::LEN } else { ipv4::LEN });
    let body = datagram_size(kind, bytes);
    let leaves = kind == SocketKind::Udp && to.offload().checksums;
    let work = Work { l2, l3: ip, l4: udp::LEN, v6, tcp: false, segment: None };
    let frame = if leaves { to.frame_with_work(l2 + ip + body, &work) } else { to.frame(l2 + ip + body) };
    let Some(frame) = frame else { return false };
    let ether_type = if v6 { kind::IPV6 } else { kind::IPV4 };
    let ethernet = Ethernet { destination: link.destination, source: link.source, kind: ether_type };
    let Some(rest) = ethernet.emit_tagged(frame, &link.tags, ip + body) else { return false };
    let carried = match (kind, v6) {
        (SocketKind::Udp, _) => protocol::UDP,
        (SocketKind::Echo, false) => protocol::ICMP,
        (SocketKind::Echo, true) => protocol::ICMPV6,
    };
    let Some(pseudo) = emit_ip(rest, tuple, carried, body) else { return false };
    emit_body(&mut rest[ip..ip + body], kind, tuple, bytes, (!leaves).then_some(pseudo));
    true
}

/// Send an ICMP error of this type and code that quotes a packet. `false`: there was no room.
pub(crate) fn send_error(
    to: &mut impl Transmit,
    link: &Link,
    tuple: &Tuple,
    (kind, code): (u8, u8),
    quoted: &[u8],
) -> bool {
    let v6 = !tuple.local.is_ipv4();
    let (ip, body) = (if v6 { ipv6::LEN } else { ipv4::LEN }, ICMP + quoted.len());
    let Some(frame) = to.frame(ETHERNET + link.tags.bytes().len() + ip + body) else { return false };
    let (ether_type, carried) =
        if v6 { (kind::IPV6, protocol::ICMPV6) } else { (kind::IPV4, protocol::ICMP) };
    let ethernet = Ethernet { destination: link.destination, source: link.source, kind: ether_type };
    let Some(rest) = ethernet.emit_tagged(frame, &link.tags, ip + body) else { return false };
    let Some(pseudo) = emit_ip(rest, tuple, carried, body) else { return false };
    let out = &mut rest[ip..ip + body];
    out[..ICMP].copy_from_slice(&[kind, code, 0, 0, 0, 0, 0, 0]);
    out[ICMP..].copy_from_slice(quoted);
    let begin = if v6 { pseudo } else { checksum::Sum::ZERO };
    let sum = begin.plus(checksum::Sum::ZERO.bytes(out)).checksum();
    out[2..4].copy_from_slice(&sum.to_be_bytes());
    true
}

/// Write what IP carries of a datagram, with its checksum, unless nothing is said of its pseudo-header's: then that is left open.
fn emit_body(out: &mut [u8], kind: SocketKind, tuple: &Tuple, bytes: &[u8], pseudo: Option<checksum::Sum>) {
    let (begin, sum_at) = match kind {
        SocketKind::Udp => {
            let len = out.len() as u16;
            let words = [tuple.local_port, tuple.remote_port, len, 0];
            for (place, word) in out.chunks_exact_mut(2).zip(words) {
                place.copy_from_slice(&word.to_be_bytes());
            }
            out[udp::LEN..].copy_from_slice(bytes);
            (pseudo, 6)
        }
        SocketKind::Echo => {
            out.copy_from_slice(bytes);
            let Some([kind, _, high, low, identifier @ ..]) = out.first_chunk_mut::<6>() else { return };
            // the model may have written it for an address of the other family
            *kind = if tuple.local.is_ipv4() { ECHO_V4 } else { ECHO_V6 };
            (*high, *low) = (0, 0);
            *identifier = tuple.local_port.to_be_bytes();
            (if tuple.local.is_ipv4() { pseudo.and(Some(checksum::Sum::ZERO)) } else { pseudo }, 2)
        }
    };
    let Some(begin) = begin else { return };
    let sum = begin.plus(checksum::Sum::ZERO.bytes(out)).checksum();
    // a checksum of zero means that there is none (RFC 768)
    let sum = if sum == 0 && kind == SocketKind::Udp { 0xffff } else { sum };
    out[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Write the IP header of what `protocol` carries; the sum of its pseudo-header.
fn emit_ip(out: &mut [u8], tuple: &Tuple, protocol: u8, segment: usize) -> Option<checksum::Sum> {
    match (tuple.local, tuple.remote) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let out = out.first_chunk_mut()?;
            let payload = segment as u16;
            ipv4::Ipv4 { source, destination, protocol, ttl: HOPS, dscp: 0, payload }.emit(out);
            Some(checksum::pseudo_header(&out[12..20], protocol, segment as u32))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let out = out.first_chunk_mut()?;
            let (next, payload) = (protocol, segment as u16);
            ipv6::Ipv6 { source, destination, next, hops: HOPS, dscp: 0, payload }.emit(out);
            Some(checksum::pseudo_header(&out[8..40], next, segment as u32))
        }
        _ => None,
    }
}
