//! A response as it is written.

use protocol::coap::wire::{self, Block, Code, MessageType, TOKEN_MAX, Writer, size_of_szx};
use std::net::SocketAddr;

/// Exponent of the largest block, 1024 bytes (RFC 7959 section 2.2).
const SZX: u8 = 6;
const SIZE2: u16 = 28;
/// Content formats (RFC 7252 section 12.3).
const OCTETS: u32 = 42;
const LINKS: u32 = 40;
/// What the server has (RFC 6690).
const CORE: &[u8] = b"</>;obs;rt=\"netdyno\"";

/// A token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Token {
    bytes: [u8; TOKEN_MAX],
    length: u8,
}

impl Token {
    pub fn new(token: &[u8]) -> Self {
        let mut bytes = [0; TOKEN_MAX];
        let length = token.len().min(TOKEN_MAX);
        bytes[..length].copy_from_slice(&token[..length]);
        Self { bytes, length: length as u8 }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// A response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reply {
    pub to: SocketAddr,
    pub token: Token,
    pub code: Code,
    /// Bytes of its body; `None`: it has none.
    pub size: Option<usize>,
    /// Its body is the list of what the server has.
    pub discovers: bool,
    /// Which block was asked for.
    pub block2: Option<Block>,
    /// Which block it answers.
    pub block1: Option<Block>,
    /// Number of a notification.
    pub observe: Option<u32>,
}

impl Reply {
    /// Bytes of the whole body.
    fn body(&self) -> usize {
        if self.discovers { CORE.len() } else { self.size.unwrap_or(0) }
    }

    /// Which block it carries, and where that begins and ends; `None`: the body ends before it.
    pub fn block(&self) -> Option<(Option<Block>, usize, usize)> {
        let whole = self.body();
        let asked = self.block2.map(|block| Block { szx: block.szx.min(SZX), ..block });
        let Some(block) =
            asked.or((whole > size_of_szx(SZX)).then_some(Block { number: 0, more: false, szx: SZX }))
        else {
            return Some((None, 0, whole));
        };
        // a larger exponent than ours begins elsewhere: RFC 7959 section 2.4 lets a client ask for a smaller one only
        let from = block.offset() as usize;
        if from > 0 && from >= whole {
            return None;
        }
        let to = whole.min(from + block.size());
        Some((Some(Block { more: to < whole, ..block }), from, to))
    }

    /// Append it; how many bytes of its body it has.
    pub fn write(&self, out: &mut Vec<u8>, kind: MessageType, id: u16) -> usize {
        let mut writer = Writer::begin(out, kind, self.code, id, self.token.bytes());
        let (block, from, to) = match self.size.and_then(|_| self.block()) {
            Some((block, from, to)) if self.code.success() => (block, from, to),
            _ => (None, 0, 0),
        };
        if block.is_some() {
            // section 2.4: blocks of one representation
            writer.uint(wire::ETAG, self.body() as u32 | 1 << 31);
        }
        if let Some(number) = self.observe {
            writer.uint(wire::OBSERVE, number & 0xff_ffff);
        }
        if to > from {
            writer.uint(wire::CONTENT_FORMAT, if self.discovers { LINKS } else { OCTETS });
        }
        if let Some(block) = block {
            writer.uint(wire::BLOCK2, block.value());
        }
        if let Some(block) = self.block1 {
            writer.uint(wire::BLOCK1, block.value());
        }
        if block.is_some_and(|block| block.number == 0) {
            writer.uint(SIZE2, self.body() as u32);
        }
        writer.payload(|out| {
            if self.discovers {
                out.extend_from_slice(&CORE[from..to]);
            } else {
                out.resize(out.len() + to - from, b'x');
            }
        });
        to - from
    }
}
