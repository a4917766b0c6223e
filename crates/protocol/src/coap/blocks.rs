//! What a response means for its exchange: it is over, or goes on with another block (RFC 7959).

use super::echo::Challenge;
use super::exchange::{Exchange, Part, Purpose};
use super::wire::{Block, Code, Message, size_of_szx};
use super::{Config, Device};
use crate::cause::{Cause, Detail};
use crate::meter::Failure;
use crate::model::Cx;
use std::fmt;

/// What follows from a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// All is there.
    Done,
    /// The code is none that is expected.
    Rejected,
    /// The representation is another than that of the blocks before.
    Changed,
    /// Another message is to be sent.
    Block { part: Part, offset: u32, szx: u8, etag: u32 },
}

/// What in a response the protocol does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    #[error("option {0}, which is critical and unknown")]
    Option(u16),
    #[error("a block with the reserved size exponent 7")]
    Reserved,
    #[error("no Block1 in the answer to a block")]
    NoBlock1,
    #[error("Block1 number {0} in the answer to block {1}")]
    Answers(u32, u32),
    #[error("blocks of {0} bytes asked for, where {1} were offered")]
    Larger(usize, usize),
    #[error("2.31 Continue where nothing is to be continued")]
    Continue,
    #[error("no Block2 in a block behind the first")]
    NoBlock2,
    #[error("a block at byte {0} where byte {1} was due")]
    Offset(u32, u32),
    #[error("a block of {0} bytes with {1}")]
    Length(usize, usize),
    #[error("a response of more than {0} bytes (max_response)")]
    TooLarge(u32),
    #[error("more blocks than there are numbers for")]
    Number,
}

impl Config {
    /// What follows from the response `message` to the message that `x` is at, of a body of `body` bytes.
    pub(super) fn follow(
        &self,
        x: &Exchange,
        body: usize,
        message: &Message<'_>,
    ) -> Result<NextStep, BlockError> {
        if let Some(option) = message.options.unrecognized {
            return Err(BlockError::Option(option));
        }
        let code = message.header.code;
        if x.part == Part::Request {
            if let Some(next) = self.next_of_request(x, body, code, message.options.block1)? {
                return Ok(next);
            }
        } else if code == Code::CONTINUE {
            return Err(BlockError::Continue);
        }
        if !self.expects(code) {
            return Ok(NextStep::Rejected);
        }
        self.next_of_response(x, message)
    }

    /// How the request goes on, unless this response is to all of it (section 2.5).
    fn next_of_request(
        &self,
        x: &Exchange,
        body: usize,
        code: Code,
        block1: Option<Block>,
    ) -> Result<Option<NextStep>, BlockError> {
        let size = size_of_szx(x.szx);
        let end = x.offset as usize + size;
        let block = |offset, szx| Ok(Some(NextStep::Block { part: Part::Request, offset, szx, etag: 0 }));
        // section 2.5: too large, and the server says how large a block may be
        if code == Code::TOO_LARGE && x.offset == 0 && body > 0 {
            return match block1 {
                Some(asked) if asked.szx < x.szx => block(0, asked.szx),
                _ => Ok(None),
            };
        }
        if end >= body {
            return if code == Code::CONTINUE { Err(BlockError::Continue) } else { Ok(None) };
        }
        if !code.success() {
            return Ok(None);
        }
        // 2.31, or from a server that takes each block by itself another success (section 3.2)
        let answered = block1.ok_or(BlockError::NoBlock1)?;
        let number = Block::at(x.offset, true, x.szx).number;
        if answered.szx == Block::RESERVED {
            return Err(BlockError::Reserved);
        }
        if answered.number != number {
            return Err(BlockError::Answers(answered.number, number));
        }
        if answered.szx > x.szx {
            return Err(BlockError::Larger(answered.size(), size));
        }
        block(end as u32, answered.szx)
    }

    /// How the response goes on (section 2.4).
    fn next_of_response(&self, x: &Exchange, message: &Message<'_>) -> Result<NextStep, BlockError> {
        let from = if x.part == Part::Response { x.offset } else { 0 };
        let len = message.payload.len();
        let Some(block) = message.options.block2 else {
            if from > 0 {
                return Err(BlockError::NoBlock2);
            }
            return if len > self.max_response as usize {
                Err(BlockError::TooLarge(self.max_response))
            } else {
                Ok(NextStep::Done)
            };
        };
        if block.szx == Block::RESERVED {
            return Err(BlockError::Reserved);
        }
        if block.offset() != from {
            return Err(BlockError::Offset(block.offset(), from));
        }
        let asked = x.part == Part::Response || self.request.negotiates();
        if asked && block.szx > x.szx {
            return Err(BlockError::Larger(block.size(), size_of_szx(x.szx)));
        }
        if len > block.size() || block.more && len < block.size() {
            return Err(BlockError::Length(block.size(), len));
        }
        // the blocks of one representation have one ETag
        let etag = message.options.etag.map_or(0, sum);
        if from > 0 && x.etag != 0 && etag != 0 && etag != x.etag {
            return Ok(NextStep::Changed);
        }
        let to = from.saturating_add(len as u32);
        if to > self.max_response {
            return Err(BlockError::TooLarge(self.max_response));
        }
        if !block.more {
            return Ok(NextStep::Done);
        }
        let szx = block.szx.min(self.request.szx);
        if to >> (szx + 4) > Block::NUMBER_MAX {
            return Err(BlockError::Number);
        }
        Ok(NextStep::Block { part: Part::Response, offset: to, szx, etag })
    }
}

/// A number for an ETag, never 0 (FNV-1a).
fn sum(etag: &[u8]) -> u32 {
    etag.iter().fold(0x811c_9dc5u32, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193)).max(1)
}

impl Device {
    /// The response to the message that exchange `i` is at.
    pub(super) fn response(&mut self, cx: &mut Cx<'_>, i: usize, message: &Message<'_>, len: usize) {
        self.confirm(cx, i);
        let x = self.exchanges[i];
        cx.arrived(x.intended, len);
        if self.echo(i, message) {
            self.silent = cx.now;
            return;
        }
        if x.part == Part::Request && matches!(x.purpose, Purpose::Register | Purpose::Deregister) {
            return self.registered(cx, i, message);
        }
        let next = self.next(cx, &x, i, message);
        self.go_on(cx, i, next, message);
    }

    pub(super) fn next(
        &self,
        cx: &mut Cx<'_>,
        x: &Exchange,
        i: usize,
        message: &Message<'_>,
    ) -> Result<NextStep, BlockError> {
        let body = match x.part {
            Part::Request => self.config.request.body_len(self.fill(cx.device, x, i), &mut cx.out.bytes),
            Part::Response => 0,
        };
        self.config.follow(x, body, message)
    }

    /// Do what follows from the response to exchange `i`.
    pub(super) fn go_on(
        &mut self,
        cx: &mut Cx<'_>,
        i: usize,
        next: Result<NextStep, BlockError>,
        message: &Message<'_>,
    ) {
        match next {
            Ok(NextStep::Done) => self.delivered(cx, i),
            Ok(NextStep::Rejected) => {
                let again =
                    self.exchanges[i].challenge == Challenge::Answered && message.options.echo.is_some();
                let told = if again { ", and Echo again after it was repeated" } else { "" };
                let detail = Detail::Response(message.header.code.0);
                let why = Cause { kind: Failure::Rejected, detail };
                self.fail(cx, i, why, || format!("{}{told}", Answer(message)));
            }
            Ok(NextStep::Changed) => self.fail(cx, i, Failure::Rejected, || {
                "the representation changed between two of its blocks (ETag)".into()
            }),
            Ok(NextStep::Block { part, offset, szx, etag }) => {
                let x = &mut self.exchanges[i];
                (x.part, x.offset, x.szx, x.etag) = (part, offset, szx, etag);
                x.challenge = Challenge::No;
                self.silent = cx.now;
                self.next_message(i);
            }
            Err(wrong) => self.fail(cx, i, Failure::Protocol, || wrong.to_string()),
        }
    }
}

/// A response in words: its code, and what the server says about it (RFC 7252 section 5.5.2).
pub(super) struct Answer<'a>(pub &'a Message<'a>);

impl fmt::Display for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.header.code)?;
        match std::str::from_utf8(self.0.payload) {
            Ok(text) if !text.is_empty() && text.len() <= 100 => write!(f, ", {text:?}"),
            _ => Ok(()),
        }
    }
}
