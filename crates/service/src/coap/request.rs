//! A request as it came.

use crate::settings::BODY_MAX;
use protocol::coap::wire::{self, Block, Header, MalformedMessage};
use std::hash::{DefaultHasher, Hasher};

/// Options that say nothing here, and that a client may send all the same (RFC 7252 section 5.10).
const URI_PORT: u16 = 7;
const SIZE2: u16 = 28;

/// A request, as far as this server needs it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request<'a> {
    pub header: Header,
    pub token: &'a [u8],
    pub payload: &'a [u8],
    /// Which resource: its path and query.
    pub resource: u64,
    /// The number at the end of its path.
    pub size: Option<usize>,
    /// It asks for what the server has (RFC 6690).
    pub discovers: bool,
    /// Registers (0) or deregisters (1) an observation (RFC 7641 section 2).
    pub observe: Option<u32>,
    pub block1: Option<Block>,
    pub block2: Option<Block>,
    /// A critical option that is not known here (RFC 7252 section 5.4.1).
    pub unrecognized: bool,
}

impl<'a> Request<'a> {
    /// Read the message that begins with `header`.
    pub fn parse(header: Header, bytes: &'a [u8]) -> Result<Self, MalformedMessage> {
        let (mut observe, mut block1, mut block2) = (None, None, None);
        let (mut size, mut unrecognized) = (None, false);
        let (mut segments, mut known) = (0, 0);
        let mut resource = DefaultHasher::new();
        let (token, payload) = wire::read(header, bytes, |number, value| match number {
            wire::URI_PATH => {
                resource.write(value);
                resource.write_u8(0);
                known += usize::from([&b".well-known"[..], b"core"].get(segments) == Some(&value));
                segments += 1;
                size = number_of(value);
            }
            wire::URI_QUERY => {
                resource.write_u8(1);
                resource.write(value);
            }
            wire::OBSERVE => observe = wire::uint(value, 3),
            wire::BLOCK1 | wire::BLOCK2 => {
                let block = Block::parse(value).filter(|block| block.szx != Block::RESERVED);
                unrecognized |= block.is_none();
                if number == wire::BLOCK1 { block1 = block } else { block2 = block }
            }
            wire::URI_HOST | URI_PORT | wire::ACCEPT | wire::SIZE1 | SIZE2 => {}
            // odd numbers are critical (section 5.4.6)
            _ => unrecognized |= number & 1 == 1,
        })?;
        Ok(Self {
            header,
            token,
            payload,
            resource: resource.finish(),
            size,
            discovers: known == 2 && segments == 2,
            observe,
            block1,
            block2,
            unrecognized,
        })
    }

    /// Whether it is the first or only message of its exchange that has the whole request: no block of a body before the last,
    /// and no block of a response after the first.
    pub fn is_whole(&self) -> bool {
        self.block1.is_none_or(|block| !block.more) && self.block2.is_none_or(|block| block.number == 0)
    }
}

fn number_of(segment: &[u8]) -> Option<usize> {
    let digits = !segment.is_empty() && segment.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(segment).ok().filter(|_| digits)?.parse().ok()?;
    (number <= BODY_MAX).then_some(number)
}
