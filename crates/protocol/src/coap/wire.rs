//! The CoAP message format (RFC 7252 section 3), read in one pass without a copy and written in place.

use std::fmt;

/// Message types (section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageType {
    /// Confirmable.
    Con = 0,
    /// Non-confirmable.
    Non = 1,
    /// Acknowledgement.
    Ack = 2,
    /// Reset.
    Rst = 3,
}

/// A method or response code: class and detail in one byte (section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u8);

impl Code {
    /// 0.00: no request and no response.
    pub const EMPTY: Code = Code(0);
    /// 0.01 GET.
    pub const GET: Code = Code::of(0, 1);
    /// 2.31 Continue (RFC 7959 section 2.9.1).
    pub const CONTINUE: Code = Code::of(2, 31);
    /// 4.01 Unauthorized (RFC 7252 section 5.9.2.2).
    pub const UNAUTHORIZED: Code = Code::of(4, 1);
    /// 4.13 Request Entity Too Large (RFC 7959 section 2.9.3).
    pub const TOO_LARGE: Code = Code::of(4, 13);

    /// The code `class.detail`.
    pub const fn of(class: u8, detail: u8) -> Code {
        Code(class << 5 | detail & 31)
    }

    /// What stands before the dot.
    pub const fn class(self) -> u8 {
        self.0 >> 5
    }

    /// Whether it says that the request was done.
    pub const fn success(self) -> bool {
        self.class() == 2
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.class(), self.0 & 31)
    }
}

// RFC 7252 section 5.10, RFC 7641 section 2, RFC 7959 sections 2.1 and 4, RFC 9175 section 2.2
/// Uri-Host.
pub const URI_HOST: u16 = 3;
/// ETag.
pub const ETAG: u16 = 4;
/// Observe.
pub const OBSERVE: u16 = 6;
/// Uri-Path.
pub const URI_PATH: u16 = 11;
/// Content-Format.
pub const CONTENT_FORMAT: u16 = 12;
/// Max-Age.
pub const MAX_AGE: u16 = 14;
/// Uri-Query.
pub const URI_QUERY: u16 = 15;
/// Accept.
pub const ACCEPT: u16 = 17;
/// Block2.
pub const BLOCK2: u16 = 23;
/// Block1.
pub const BLOCK1: u16 = 27;
/// Size1.
pub const SIZE1: u16 = 60;
/// Echo.
pub const ECHO: u16 = 252;

/// The byte between the options and the payload (section 3).
const PAYLOAD_MARKER: u8 = 0xff;
/// Version, type, token length, code, message ID.
pub const HEADER: usize = 4;
/// Longest token (section 3).
pub const TOKEN_MAX: usize = 8;
/// Longest value of Echo (RFC 9175 section 2.2.1).
pub const ECHO_MAX: usize = 40;

/// Where a block stands in its body: the value of Block1 or Block2 (RFC 7959 section 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Its number, counted in blocks of its size, 20 bits.
    pub number: u32,
    /// Whether more blocks follow.
    pub more: bool,
    /// Exponent of its size; 7 is reserved.
    pub szx: u8,
}

impl Block {
    /// Largest block number.
    pub const NUMBER_MAX: u32 = (1 << 20) - 1;
    /// The exponent that is reserved.
    pub const RESERVED: u8 = 7;

    /// The block that begins at `offset`, which is a multiple of its size.
    pub fn at(offset: u32, more: bool, szx: u8) -> Self {
        Self { number: offset >> (szx + 4), more, szx }
    }

    /// Bytes of a full block.
    pub fn size(self) -> usize {
        size_of_szx(self.szx)
    }

    /// Where it begins in the body.
    pub fn offset(self) -> u32 {
        self.number << (self.szx + 4)
    }

    /// The option's value.
    pub fn value(self) -> u32 {
        self.number << 4 | u32::from(self.more) << 3 | u32::from(self.szx)
    }

    /// Read the option's value.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let value = uint(value, 3)?;
        Some(Self { number: value >> 4, more: value & 8 != 0, szx: (value & 7) as u8 })
    }
}

/// Bytes of a full block with this exponent.
pub fn size_of_szx(szx: u8) -> usize {
    1 << (szx + 4)
}

/// An unsigned integer of at most `most` bytes (section 3.2).
pub fn uint(value: &[u8], most: usize) -> Option<u32> {
    (value.len() <= most).then(|| value.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

/// Why bytes are no CoAP message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says what it is when it is shown")]
pub enum MalformedMessage {
    #[error("a datagram of {0} bytes, shorter than the header of CoAP")]
    Short(usize),
    #[error("version {0} of CoAP")]
    Version(u8),
    #[error("a token of {0} bytes")]
    Token(u8),
    #[error("code {0}, which is reserved")]
    Code(Code),
    #[error("an empty message with more than a header")]
    NotEmpty,
    #[error("a message that ends inside its token or an option")]
    Truncated,
    #[error("an option with the reserved length or delta 15")]
    Reserved,
    #[error("an option number beyond 65535")]
    OptionNumber,
    #[error("a payload marker without a payload")]
    NoPayload,
}

/// The first four bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Its type.
    pub kind: MessageType,
    /// Length of its token; more than [`TOKEN_MAX`] is an error.
    pub token: u8,
    /// Its code.
    pub code: Code,
    /// Its message ID.
    pub id: u16,
}

impl Header {
    /// Read it; of a version that is not 1 nothing else is known.
    pub fn parse(bytes: &[u8]) -> Result<Self, MalformedMessage> {
        let &[first, code, high, low] =
            bytes.first_chunk::<HEADER>().ok_or(MalformedMessage::Short(bytes.len()))?;
        if first >> 6 != 1 {
            return Err(MalformedMessage::Version(first >> 6));
        }
        let kind = match first >> 4 & 3 {
            0 => MessageType::Con,
            1 => MessageType::Non,
            2 => MessageType::Ack,
            _ => MessageType::Rst,
        };
        Ok(Self { kind, token: first & 15, code: Code(code), id: u16::from_be_bytes([high, low]) })
    }
}

/// A message as it was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its header.
    pub header: Header,
    /// Its token.
    pub token: &'a [u8],
    /// Its options, as far as a client needs them.
    pub options: Options<'a>,
    /// Its payload.
    pub payload: &'a [u8],
}

/// What a response may carry that a client acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options<'a> {
    /// Number of a notification (RFC 7641 section 2).
    pub observe: Option<u32>,
    /// Which version of the representation it is.
    pub etag: Option<&'a [u8]>,
    /// How long it stays fresh, in seconds.
    pub max_age: Option<u32>,
    /// Which block of the request it answers.
    pub block1: Option<Block>,
    /// Which block of the response it is.
    pub block2: Option<Block>,
    /// What the server wants to see again (RFC 9175 section 2).
    pub echo: Option<&'a [u8]>,
    /// The first critical option that a client does not know in a response (section 5.4.1).
    pub unrecognized: Option<u16>,
}

impl<'a> Options<'a> {
    fn take(&mut self, number: u16, value: &'a [u8]) {
        match number {
            // a value of another length than defined, and a second one of what stands once, are like an option that is
            // not known (sections 5.4.3 and 5.4.5): elective ones are passed over
            OBSERVE if self.observe.is_none() => self.observe = uint(value, 3),
            MAX_AGE if self.max_age.is_none() => self.max_age = uint(value, 4),
            ECHO if self.echo.is_none() && matches!(value.len(), 1..=ECHO_MAX) => self.echo = Some(value),
            ETAG if self.etag.is_none() && matches!(value.len(), 1..=8) => self.etag = Some(value),
            BLOCK1 if self.block1.is_none() && value.len() <= 3 => self.block1 = Block::parse(value),
            BLOCK2 if self.block2.is_none() && value.len() <= 3 => self.block2 = Block::parse(value),
            // odd numbers are critical (section 5.4.6); none but the block options is defined for a response
            _ if number & 1 == 1 => {
                self.unrecognized.get_or_insert(number);
            }
            _ => {}
        }
    }
}

impl<'a> Message<'a> {
    /// Read what follows `header` in `bytes`, which it stands at the beginning of.
    pub fn parse(header: Header, bytes: &'a [u8]) -> Result<Self, MalformedMessage> {
        let mut options = Options::default();
        let (token, payload) = read(header, bytes, |number, value| options.take(number, value))?;
        Ok(Self { header, token, options, payload })
    }
}

/// Read what follows `header` in `bytes`: the token and the payload. `option` gets each option in turn.
pub fn read<'a>(
    header: Header,
    bytes: &'a [u8],
    mut option: impl FnMut(u16, &'a [u8]),
) -> Result<(&'a [u8], &'a [u8]), MalformedMessage> {
    let rest = bytes.get(HEADER..).unwrap_or_default();
    if usize::from(header.token) > TOKEN_MAX {
        return Err(MalformedMessage::Token(header.token));
    }
    match header.code.class() {
        // section 4.1: an empty message is four bytes
        0 if header.code == Code::EMPTY && !rest.is_empty() => return Err(MalformedMessage::NotEmpty),
        0 | 2 | 4 | 5 => {}
        // section 4.2: 1, 6 and 7 are reserved; 3 is not in use (section 12.1)
        _ => return Err(MalformedMessage::Code(header.code)),
    }
    let (token, mut rest) = rest.split_at_checked(header.token.into()).ok_or(MalformedMessage::Truncated)?;
    let mut number = 0u16;
    while let Some((&first, after)) = rest.split_first() {
        if first == PAYLOAD_MARKER {
            return match after {
                [] => Err(MalformedMessage::NoPayload),
                payload => Ok((token, payload)),
            };
        }
        let (delta, after) = extended(first >> 4, after)?;
        let (len, after) = extended(first & 15, after)?;
        number = u16::try_from(delta)
            .ok()
            .and_then(|delta| number.checked_add(delta))
            .ok_or(MalformedMessage::OptionNumber)?;
        let (value, after) = after.split_at_checked(len as usize).ok_or(MalformedMessage::Truncated)?;
        option(number, value);
        rest = after;
    }
    Ok((token, &[]))
}

/// A delta or length, which goes on in the bytes behind when it is 13 or 14 (section 3.1).
#[inline]
fn extended(nibble: u8, rest: &[u8]) -> Result<(u32, &[u8]), MalformedMessage> {
    match (nibble, rest) {
        (0..=12, _) => Ok((nibble.into(), rest)),
        (13, [more, rest @ ..]) => Ok((u32::from(*more) + 13, rest)),
        (14, [high, low, rest @ ..]) => Ok((u32::from(u16::from_be_bytes([*high, *low])) + 269, rest)),
        (13 | 14, _) => Err(MalformedMessage::Truncated),
        _ => Err(MalformedMessage::Reserved),
    }
}

/// A message as it is written, option by option in the order of their numbers.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    last: u16,
}

impl<'a> Writer<'a> {
    /// Append the header and the token.
    pub fn begin(out: &'a mut Vec<u8>, kind: MessageType, code: Code, id: u16, token: &[u8]) -> Self {
        let [high, low] = id.to_be_bytes();
        out.extend_from_slice(&[1 << 6 | (kind as u8) << 4 | token.len() as u8, code.0, high, low]);
        out.extend_from_slice(token);
        Self { out, last: 0 }
    }

    /// Append an option with a value.
    pub fn option(&mut self, number: u16, value: &[u8]) {
        self.render(number, |out| out.extend_from_slice(value));
    }

    /// Append an option with a number in as few bytes as it takes (section 3.2).
    pub fn uint(&mut self, number: u16, value: u32) {
        let skip = value.leading_zeros() as usize / 8;
        self.option(number, &value.to_be_bytes()[skip..]);
    }

    /// Append an option whose value `render` appends.
    pub fn render(&mut self, number: u16, render: impl FnOnce(&mut Vec<u8>)) {
        let start = self.out.len();
        // most options have one byte before their value
        self.out.push(0);
        render(self.out);
        let len = self.out.len() - start - 1;
        let mut head = [0; 5];
        let (delta, at) = extend((number - self.last).into(), &mut head, 1);
        let (len, at) = extend(len, &mut head, at);
        head[0] = delta << 4 | len;
        self.out[start] = head[0];
        if at > 1 {
            self.out.splice(start + 1..start + 1, head[1..at].iter().copied());
        }
        self.last = number;
    }

    /// Append the payload that `render` appends, with the marker before it unless there is none.
    pub fn payload(self, render: impl FnOnce(&mut Vec<u8>)) {
        self.out.push(PAYLOAD_MARKER);
        let start = self.out.len();
        render(self.out);
        if self.out.len() == start {
            self.out.pop();
        }
    }
}

/// The four bits of a delta or length, and what they need behind them, written from `at` on.
#[inline]
fn extend(value: usize, head: &mut [u8; 5], at: usize) -> (u8, usize) {
    match value {
        0..=12 => (value as u8, at),
        13..=268 => {
            head[at] = (value - 13) as u8;
            (13, at + 1)
        }
        _ => {
            let [high, low] = ((value - 269) as u16).to_be_bytes();
            head[at..at + 2].copy_from_slice(&[high, low]);
            (14, at + 2)
        }
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
