//! Requests read, answers written (RFC 6887 sections 7, 11.1 and 12.1).

use crate::mappings::Nonce;
use crate::option::{Options, read_options};
use crate::result::ResultCode;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

/// The version of RFC 6887. NAT-PMP is 0.
pub const VERSION: u8 = 2;
/// No message is longer.
pub const MAX_LEN: usize = 1100;
pub(crate) const HEADER: usize = 24;
const MAP: usize = 36;
const PEER: usize = 56;
/// In the byte of the opcode: this is an answer.
const RESPONSE: u8 = 0x80;

/// The part that MAP and PEER have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MappingWish {
    pub nonce: Nonce,
    pub protocol: u8,
    pub internal_port: u16,
    pub port: u16,
    pub address: Ipv6Addr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    Announce,
    Map(MappingWish),
    Peer(MappingWish, u16, Ipv6Addr),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub lifetime_s: u32,
    pub client: Ipv6Addr,
    pub body: Body,
    pub options: Options,
}

/// Why there is nothing to carry out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnreadReason {
    /// No request at all: not answered.
    Noise,
    /// Answered by an error.
    Error(ResultCode),
}

/// A field of a message that is known to be long enough.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..at + N).and_then(|part| part.try_into().ok()).unwrap_or([0; N])
}

fn address(bytes: &[u8], at: usize) -> Ipv6Addr {
    Ipv6Addr::from(field::<16>(bytes, at))
}

/// Read a request that came from `source`, in the order of section 8.2: version, length, opcode, address, options.
pub(crate) fn read(bytes: &[u8], source: Ipv6Addr) -> Result<Request, UnreadReason> {
    let [version, opcode, ..] = *bytes else { return Err(UnreadReason::Noise) };
    if opcode & RESPONSE != 0 {
        return Err(UnreadReason::Noise);
    }
    if version != VERSION {
        return Err(UnreadReason::Error(ResultCode::UnsuppVersion));
    }
    if !(HEADER..=MAX_LEN).contains(&bytes.len()) || !bytes.len().is_multiple_of(4) {
        return Err(UnreadReason::Error(ResultCode::MalformedRequest));
    }
    let len = match opcode {
        0 => 0,
        1 => MAP,
        2 => PEER,
        _ => return Err(UnreadReason::Error(ResultCode::UnsuppOpcode)),
    };
    let client = address(bytes, 8);
    if client != source {
        return Err(UnreadReason::Error(ResultCode::AddressMismatch));
    }
    let Some((body, rest)) = bytes[HEADER..].split_at_checked(len) else {
        return Err(UnreadReason::Error(ResultCode::MalformedRequest));
    };
    let wish = || MappingWish {
        nonce: field(body, 0),
        protocol: field::<1>(body, 12)[0],
        internal_port: u16::from_be_bytes(field(body, 16)),
        port: u16::from_be_bytes(field(body, 18)),
        address: address(body, 20),
    };
    let body = match opcode {
        0 => Body::Announce,
        1 => Body::Map(wish()),
        _ => Body::Peer(wish(), u16::from_be_bytes(field(body, 36)), address(body, 40)),
    };
    let options = read_options(opcode, rest).map_err(UnreadReason::Error)?;
    Ok(Request { lifetime_s: u32::from_be_bytes(field(bytes, 4)), client, body, options })
}

fn header(opcode: u8, code: ResultCode, lifetime_s: u32, epoch: u32) -> Vec<u8> {
    let mut answer = Vec::with_capacity(HEADER + PEER);
    answer.extend([VERSION, opcode | RESPONSE, 0, code as u8]);
    answer.extend(lifetime_s.to_be_bytes());
    answer.extend(epoch.to_be_bytes());
    answer.extend([0; 12]);
    answer
}

/// An error: the request's own content after our header. To another version it is the header alone, whose first words a NAT-PMP
/// client reads as "unsupported version" (RFC 6887 appendix A).
pub(crate) fn error(request: &[u8], code: ResultCode, lifetime_s: u32, epoch: u32) -> Vec<u8> {
    let opcode = request.get(1).copied().unwrap_or_default();
    let mut answer = header(opcode, code, lifetime_s, epoch);
    if code != ResultCode::UnsuppVersion {
        let content = request.get(HEADER..).unwrap_or_default();
        answer.extend_from_slice(&content[..content.len().min(MAX_LEN - HEADER)]);
        answer.resize(answer.len().next_multiple_of(4), 0);
    }
    answer
}

/// An error about a request that could not be read: the last 96 bits of the client's address come back (RFC 6887 section 7.2).
pub(crate) fn unread(request: &[u8], code: ResultCode, epoch: u32) -> Vec<u8> {
    let mut answer = error(request, code, code.lifetime_s(), epoch);
    if let (Some(to), Some(client)) = (answer.get_mut(12..HEADER), request.get(12..HEADER)) {
        to.copy_from_slice(client);
    }
    answer
}

/// Success: what was given in place of what was wished for, and the options that were processed.
pub(crate) fn success(
    request: &Request,
    lifetime_s: u32,
    epoch: u32,
    external: Option<SocketAddrV4>,
) -> Vec<u8> {
    let (opcode, wish) = match &request.body {
        Body::Announce => (0, None),
        Body::Map(wish) => (1, Some(wish)),
        Body::Peer(wish, ..) => (2, Some(wish)),
    };
    let mut answer = header(opcode, ResultCode::Success, lifetime_s, epoch);
    if let Some(wish) = wish {
        let (port, address) =
            external.map_or((wish.port, wish.address), |given| (given.port(), given.ip().to_ipv6_mapped()));
        answer.extend(wish.nonce);
        answer.extend([wish.protocol, 0, 0, 0]);
        answer.extend(wish.internal_port.to_be_bytes());
        answer.extend(port.to_be_bytes());
        answer.extend(address.octets());
    }
    if let Body::Peer(_, port, address) = request.body {
        answer.extend(port.to_be_bytes());
        answer.extend([0; 2]);
        answer.extend(address.octets());
    }
    answer.extend_from_slice(&request.options.processed);
    answer
}

/// The IPv4 address in an IPv4-mapped one.
pub(crate) fn ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    address.to_ipv4_mapped()
}
