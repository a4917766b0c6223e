//! A request as it is written: its options, its body and the block of it that a message carries.

use super::exchange::{Exchange, Part, Purpose};
use super::wire::{self, Block, Code, MessageType, Writer, size_of_szx};
use crate::template::{Template, Values};
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// The requests of a group, as ready as they can be.
#[derive(Debug)]
pub struct Request {
    pub method: Code,
    /// Uri-Host, unless the target is an address (RFC 7252 section 6.4).
    pub host: Option<Box<[u8]>>,
    pub path: Box<[Template]>,
    pub query: Box<[Template]>,
    pub content_format: Option<u16>,
    pub accept: Option<u16>,
    pub body: Template,
    /// The body is cut or padded with spaces to it.
    pub size: Option<usize>,
    /// Exponent of the size of blocks.
    pub szx: u8,
}

/// What templates are filled with: the same each time that one exchange is written, as a message that is sent again is
/// the same message (RFC 7252 section 4.2), and the blocks of a body are of one body.
#[derive(Debug, Clone, Copy)]
pub struct Fill {
    pub values: Values,
    pub seed: u64,
}

impl Fill {
    fn options(self) -> SmallRng {
        SmallRng::seed_from_u64(self.seed)
    }

    fn body(self) -> SmallRng {
        SmallRng::seed_from_u64(!self.seed)
    }
}

impl Request {
    /// Whether the first request says how large the blocks of its response may be (RFC 7959 section 2.4). 1024 bytes are
    /// the largest, and need no saying.
    pub fn negotiates(&self) -> bool {
        self.method == Code::GET && size_of_szx(self.szx) < BLOCK_MAX
    }

    /// How large the body is.
    pub fn body_len(&self, fill: Fill, room: &mut Vec<u8>) -> usize {
        if let Some(len) = self.size.or(self.body.fixed().map(<[u8]>::len)) {
            return len;
        }
        let start = room.len();
        self.body.render(fill.values, &mut fill.body(), room);
        let len = room.len() - start;
        room.truncate(start);
        len
    }

    /// Append the message that exchange `x` is at, with the value of Echo if it carries one.
    pub fn write(
        &self,
        out: &mut Vec<u8>,
        confirmable: bool,
        x: &Exchange,
        token: [u8; 4],
        fill: Fill,
        echo: Option<&[u8]>,
    ) {
        let body = if x.part == Part::Request { self.body_len(fill, out) } else { 0 };
        let kind = if confirmable { MessageType::Con } else { MessageType::Non };
        let mut writer = Writer::begin(out, kind, self.method, x.id, &token);
        if let Some(host) = &self.host {
            writer.option(wire::URI_HOST, host);
        }
        match (x.part, x.purpose) {
            // RFC 7641 sections 3.1 and 3.6
            (Part::Request, Purpose::Register) => writer.uint(wire::OBSERVE, 0),
            (Part::Request, Purpose::Deregister) => writer.uint(wire::OBSERVE, 1),
            _ => {}
        }
        let mut rng = fill.options();
        for segment in &self.path {
            writer.render(wire::URI_PATH, |out| segment.render(fill.values, &mut rng, out));
        }
        if let Some(format) = self.content_format.filter(|_| body > 0) {
            writer.uint(wire::CONTENT_FORMAT, format.into());
        }
        for argument in &self.query {
            writer.render(wire::URI_QUERY, |out| argument.render(fill.values, &mut rng, out));
        }
        if let Some(accept) = self.accept {
            writer.uint(wire::ACCEPT, accept.into());
        }
        match x.part {
            // RFC 7959 section 2.4: without a body, and with the M bit 0
            Part::Response => {
                writer.uint(wire::BLOCK2, Block::at(x.offset, false, x.szx).value());
                if let Some(echo) = echo {
                    writer.option(wire::ECHO, echo);
                }
            }
            Part::Request => {
                if self.negotiates() {
                    writer.uint(wire::BLOCK2, Block::at(0, false, x.szx).value());
                }
                let (from, size) = (x.offset as usize, size_of_szx(x.szx));
                let to = body.min(from + size);
                if body > size {
                    writer.uint(wire::BLOCK1, Block::at(x.offset, to < body, x.szx).value());
                    if from == 0 {
                        // section 4: how large it is as a whole
                        writer.uint(wire::SIZE1, body as u32);
                    }
                }
                if let Some(echo) = echo {
                    writer.option(wire::ECHO, echo);
                }
                writer.payload(|out| self.block(from, to, fill, out));
            }
        }
    }

    /// Append bytes `from` to `to` of the body.
    fn block(&self, from: usize, to: usize, fill: Fill, out: &mut Vec<u8>) {
        let start = out.len();
        match self.body.fixed() {
            Some(text) => out.extend_from_slice(text.get(from..to.min(text.len())).unwrap_or_default()),
            None => {
                self.body.render(fill.values, &mut fill.body(), out);
                let text = out.len() - start;
                out.truncate(start + to.min(text));
                out.drain(start..start + from.min(text));
            }
        }
        out.resize(start + to - from, b' ');
    }
}

/// Largest block (RFC 7959 section 2.2).
pub const BLOCK_MAX: usize = 1024;
