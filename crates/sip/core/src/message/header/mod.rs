//! Header fields with their parts (RFC 3261 section 20 and the standards of each).

mod address;
mod date;
mod event;
mod param;
mod reliability;
mod timing;
mod via;

pub use address::{Contact, NameAddr};
pub use date::Date;
pub use event::{Event, SubscriptionState};
pub use param::{Param, Params};
pub use reliability::{CSeq, RAck};
pub use timing::{Refresher, RetryAfter, SessionExpires};
pub use via::{MAGIC_COOKIE, Via};

use super::lex::{self, Cursor};
use std::fmt;

/// A value of a header field. [`Message::get`](super::Message::get) and [`Message::all`](super::Message::all) read it.
pub trait Value: Sized + fmt::Display {
    /// Reads one value from the front of `text`: the value, and what follows it.
    fn read(text: &str) -> Option<(Self, &str)>;
}

/// Reads one value that is all of `text`.
pub fn parse<T: Value>(text: &str) -> Option<T> {
    T::read(text).filter(|(_, rest)| rest.trim_ascii().is_empty()).map(|(value, _)| value)
}

/// Reads values with commas between them (RFC 3261 section 7.3.1). There is at least one.
pub fn parse_list<T: Value>(text: &str) -> Option<Vec<T>> {
    let (mut rest, mut values) = (text, Vec::new());
    loop {
        let (value, after) = T::read(rest)?;
        values.push(value);
        let after = after.trim_ascii_start();
        if after.is_empty() {
            return Some(values);
        }
        rest = after.strip_prefix(',')?.trim_ascii_start();
    }
}

/// For values that are read with a cursor.
fn with_cursor<T>(text: &str, read: impl FnOnce(&mut Cursor<'_>) -> Option<T>) -> Option<(T, &str)> {
    let mut cursor = Cursor::new(text.as_bytes());
    let value = read(&mut cursor)?;
    text.get(cursor.at..).map(|rest| (value, rest))
}

/// Bytes of a text, cut where its grammar allows.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A token: an option tag, a method, an event package.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Token(pub String);

impl Value for Token {
    fn read(input: &str) -> Option<(Self, &str)> {
        with_cursor(input, |read| read.token().map(|token| Self(text(token))))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A number of up to 32 bits: Expires, Min-Expires, Content-Length, RSeq, Max-Forwards.
impl Value for u32 {
    fn read(text: &str) -> Option<(Self, &str)> {
        with_cursor(text, |read| read.number(Self::MAX))
    }
}

/// Call-ID (RFC 3261 section 20.8).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallId(pub String);

impl Value for CallId {
    fn read(input: &str) -> Option<(Self, &str)> {
        with_cursor(input, |read| {
            read.word()?;
            if read.byte(b'@') {
                read.word()?;
            }
            Some(Self(text(&read.bytes[..read.at])))
        })
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Warning (RFC 3261 section 20.43).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Warning {
    /// Three digits.
    pub code: u16,
    /// Host or name that adds the warning.
    pub agent: String,
    /// Text, as written between its quotes.
    pub text: String,
}

impl Value for Warning {
    fn read(input: &str) -> Option<(Self, &str)> {
        with_cursor(input, |read| {
            let code = u16::try_from(read.number(999).filter(|_| read.at == 3)?).ok()?;
            read.space().then_some(())?;
            let begin = read.at;
            match read.peek() {
                Some(b'[') => {
                    read.host()?;
                    read.port(false)?;
                }
                _ => {
                    read.token()?;
                    read.port(false)?;
                }
            }
            let agent = text(&read.bytes[begin..read.at]);
            read.space().then_some(())?;
            Some(Self { code, agent, text: text(read.quoted()?) })
        })
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:03} {} \"{}\"", self.code, self.agent, self.text)
    }
}

/// Content-Type (RFC 3261 section 20.15).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MediaType {
    /// Such as `application`.
    pub kind: String,
    /// Such as `sdp`.
    pub subtype: String,
    /// Parameters.
    pub params: Params,
}

impl MediaType {
    /// Whether this is `kind/subtype`, in any case.
    pub fn is(&self, kind: &str, subtype: &str) -> bool {
        self.kind.eq_ignore_ascii_case(kind) && self.subtype.eq_ignore_ascii_case(subtype)
    }
}

impl Value for MediaType {
    fn read(input: &str) -> Option<(Self, &str)> {
        with_cursor(input, |read| {
            let kind = text(read.token()?);
            read.separator(b'/').then_some(())?;
            Some(Self { kind, subtype: text(read.token()?), params: Params::read(read)? })
        })
    }
}

impl fmt::Display for MediaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}{}", self.kind, self.subtype, self.params)
    }
}

/// `text` as a quoted string (RFC 3261 section 25.1); what may not stand in one becomes a space.
pub fn quote(text: &str) -> String {
    format!("\"{}\"", escape(text))
}

/// [`quote`] without the quotes.
fn escape(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\t' => quoted.push(c),
            c if c.is_ascii_control() => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted
}

/// The content of a quoted string without its escapes.
pub fn unescape(written: &str) -> String {
    let mut chars = written.chars();
    let mut text = String::with_capacity(written.len());
    while let Some(c) = chars.next() {
        text.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    text
}

/// Whether `text` is a token.
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(lex::is_token)
}

#[cfg(test)]
mod tests;
