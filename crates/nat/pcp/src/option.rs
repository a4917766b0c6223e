//! Options of a request (RFC 6887 sections 7.3 and 13).

use crate::mappings::{Filter, Filters};
use crate::result::ResultCode;
use std::net::{Ipv4Addr, Ipv6Addr};

const THIRD_PARTY: u8 = 1;
const PREFER_FAILURE: u8 = 2;
const FILTER: u8 = 3;
/// Options from here on may be left aside when they are not understood.
const OPTIONAL: u8 = 128;

/// What the options ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// THIRD_PARTY: a mapping for another than the sender.
    pub third_party: Option<Ipv6Addr>,
    /// PREFER_FAILURE: no other outside port will do.
    pub prefer_failure: bool,
    /// FILTER, in their order.
    pub filters: Filters,
    /// All that were understood, as they came: they are in the answer.
    pub processed: Vec<u8>,
}

/// Read what follows the opcode's own fields.
pub(crate) fn read_options(opcode: u8, mut rest: &[u8]) -> Result<Options, ResultCode> {
    let mut options = Options::default();
    while let [code, _, high, low, ref after @ ..] = *rest {
        let len = usize::from(u16::from_be_bytes([high, low]));
        let padded = len.next_multiple_of(4);
        let (Some(value), Some(next)) = (after.get(..len), after.get(padded..)) else {
            return Err(ResultCode::MalformedOption);
        };
        if parse_option(opcode, code, value, &mut options)? {
            options.processed.extend_from_slice(&rest[..4 + padded]);
        }
        rest = next;
    }
    Ok(options)
}

/// Take an option; false where it may be left aside.
fn parse_option(opcode: u8, code: u8, value: &[u8], options: &mut Options) -> Result<bool, ResultCode> {
    let (map, peer) = (opcode == 1, opcode == 2);
    match code {
        THIRD_PARTY => {
            let octets: [u8; 16] = value.try_into().map_err(|_| ResultCode::MalformedOption)?;
            if !(map || peer) || options.third_party.replace(octets.into()).is_some() {
                return Err(ResultCode::MalformedOption);
            }
        }
        PREFER_FAILURE => {
            // PEER implies it (RFC 6887 section 12.2).
            if peer {
                return Err(ResultCode::MalformedRequest);
            }
            if !map || !value.is_empty() || std::mem::replace(&mut options.prefer_failure, true) {
                return Err(ResultCode::MalformedOption);
            }
        }
        FILTER => {
            let [_, prefix, high, low, ref octets @ ..] = *value else {
                return Err(ResultCode::MalformedOption);
            };
            let octets: [u8; 16] = octets.try_into().map_err(|_| ResultCode::MalformedOption)?;
            if !map {
                return Err(ResultCode::MalformedOption);
            }
            let port = u16::from_be_bytes([high, low]);
            filter(prefix, port, octets.into(), &mut options.filters)?;
        }
        OPTIONAL.. => return Ok(false),
        _ => return Err(ResultCode::UnsuppOption),
    }
    Ok(true)
}

/// A prefix of length 0 drops the filters that were there, and those in front of it in this request.
fn filter(prefix: u8, port: u16, address: Ipv6Addr, filters: &mut Filters) -> Result<(), ResultCode> {
    if prefix == 0 {
        *filters = Filters { clear: true, add: Vec::new() };
        return Ok(());
    }
    // Of an IPv4-mapped address, the first 96 bits are always the same.
    let (Some(address), 96..=128) = (address.to_ipv4_mapped(), prefix) else {
        return Err(ResultCode::MalformedOption);
    };
    let prefix = prefix - 96;
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or_default();
    filters.add.push(Filter { address: Ipv4Addr::from_bits(address.to_bits() & mask), prefix, port });
    Ok(())
}
