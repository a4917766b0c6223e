//! A UDP frame that is written again and again, each time with a new signature.

use crate::checksum::{self, Sum};
use crate::ethernet::{self, Ethernet, kind};
use crate::ipv4::{self, Ipv4};
use crate::ipv6::{self, Ipv6};
use crate::layers::protocol;
use crate::signature::{self, Signature};
use crate::{Mac, take_mut, udp};
use std::net::{IpAddr, SocketAddr};

/// From whom to whom a stream goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Source Ethernet address.
    pub source_mac: Mac,
    /// Destination Ethernet address: the next hop's.
    pub destination_mac: Mac,
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port, of the same IP version.
    pub destination: SocketAddr,
    /// Hops it may make.
    pub ttl: u8,
    /// Differentiated services code point, 0–63.
    pub dscp: u8,
}

/// Why a template cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The frame is too short for its headers and the signature.
    #[error("a frame of {len} bytes is too short: headers and signature take {least} (both without FCS)")]
    TooShort {
        /// Asked for.
        len: usize,
        /// Needed.
        least: usize,
    },
    /// The frame is longer than IP can say.
    #[error("a frame of {len} bytes is longer than an IP packet can be")]
    TooLong {
        /// Asked for.
        len: usize,
    },
    /// One address is IPv4, the other IPv6.
    #[error("source and destination are of different IP versions")]
    MixedVersions,
}

/// A frame ready to be sent but for signature and checksum.
#[derive(Debug, Clone)]
pub struct Template {
    bytes: Vec<u8>,
    /// Where the UDP header begins.
    udp: usize,
    /// The UDP checksum's sum over everything but the signature.
    sum: Sum,
}

impl Template {
    /// A frame of `len` bytes without FCS (60 for the smallest Ethernet frame) on `flow`; bytes after the
    /// signature are zero.
    pub fn new(flow: &Flow, len: usize) -> Result<Self, TemplateError> {
        let v6 = flow.source.is_ipv6();
        let ip_len = if v6 { ipv6::LEN } else { ipv4::LEN };
        let udp = ethernet::LEN + ip_len;
        let least = udp + udp::LEN + signature::LEN;
        if len < least {
            return Err(TemplateError::TooShort { len, least });
        }
        let udp_len = u16::try_from(len - udp).map_err(|_| TemplateError::TooLong { len })?;
        if usize::from(udp_len) + ip_len > usize::from(u16::MAX) {
            return Err(TemplateError::TooLong { len });
        }
        let mut bytes = vec![0; len];
        let kind = if v6 { kind::IPV6 } else { kind::IPV4 };
        let ethernet = Ethernet { destination: flow.destination_mac, source: flow.source_mac, kind };
        if let Some(out) = take_mut(&mut bytes, 0) {
            ethernet.emit(out);
        }
        let pseudo = match (flow.source.ip(), flow.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let (ttl, dscp) = (flow.ttl, flow.dscp);
                let ip = Ipv4 { source, destination, protocol: protocol::UDP, ttl, dscp, payload: udp_len };
                if let Some(out) = take_mut(&mut bytes, ethernet::LEN) {
                    ip.emit(out);
                }
                let both = [source.octets(), destination.octets()].concat();
                checksum::pseudo_header(&both, protocol::UDP, udp_len.into())
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let (hops, dscp) = (flow.ttl, flow.dscp);
                let ip = Ipv6 { source, destination, next: protocol::UDP, hops, dscp, payload: udp_len };
                if let Some(out) = take_mut(&mut bytes, ethernet::LEN) {
                    ip.emit(out);
                }
                let both = [source.octets(), destination.octets()].concat();
                checksum::pseudo_header(&both, protocol::UDP, udp_len.into())
            }
            _ => return Err(TemplateError::MixedVersions),
        };
        let header = [flow.source.port(), flow.destination.port(), udp_len, 0].map(u16::to_be_bytes);
        bytes[udp..udp + udp::LEN].copy_from_slice(header.as_flattened());
        let sum = pseudo.plus(Sum::ZERO.bytes(&bytes[udp..]));
        Ok(Self { bytes, udp, sum })
    }

    /// Bytes in the frame, without FCS.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that UDP carries.
    #[inline]
    pub fn payload(&self) -> usize {
        self.bytes.len() - self.udp - udp::LEN
    }

    /// Write the frame with `signature` and a right checksum. `out` has [`Template::len`] bytes, else
    /// nothing is written and the answer is false.
    #[inline]
    pub fn write(&self, out: &mut [u8], signature: &Signature) -> bool {
        if out.len() != self.bytes.len() {
            return false;
        }
        out.copy_from_slice(&self.bytes);
        let Some(place) = take_mut::<{ 8 + signature::LEN }>(out, self.udp) else { return false };
        let Some(mark) = place.last_chunk_mut::<{ signature::LEN }>() else { return false };
        signature.emit(mark);
        let checksum = match self.sum.plus(Sum::ZERO.bytes(mark)).checksum() {
            0 => 0xffff, // RFC 768: zero would mean that there is none
            checksum => checksum,
        };
        place[6..8].copy_from_slice(&checksum.to_be_bytes());
        true
    }
}
