//! URIs of SIP (RFC 3261 section 19.1) and telephone numbers (RFC 3966), with their comparison.

mod sip;
mod tel;

pub use sip::SipUri;
pub use tel::TelUri;

use crate::message::lex;
use std::fmt;

/// A URI.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Uri {
    /// `sip:` or `sips:`.
    Sip(SipUri),
    /// `tel:`.
    Tel(TelUri),
    /// A URI of another scheme, as written.
    Other(String),
}

impl Uri {
    /// Reads a URI, which is all of `text`.
    pub fn parse(text: &str) -> Option<Self> {
        if !lex::has_scheme(text.as_bytes()) || !text.bytes().all(lex::is_uri) {
            return None;
        }
        let (scheme, rest) = text.split_once(':')?;
        if scheme.eq_ignore_ascii_case("sip") {
            return SipUri::parse(false, rest).map(Self::Sip);
        }
        if scheme.eq_ignore_ascii_case("sips") {
            return SipUri::parse(true, rest).map(Self::Sip);
        }
        if scheme.eq_ignore_ascii_case("tel") {
            return TelUri::parse(rest).map(Self::Tel);
        }
        Some(Self::Other(text.to_owned()))
    }

    /// Whether both name the same resource (RFC 3261 section 19.1.4, RFC 3966 section 4).
    pub fn equivalent(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Sip(a), Self::Sip(b)) => a.equivalent(b),
            (Self::Tel(a), Self::Tel(b)) => a.equivalent(b),
            (Self::Other(a), Self::Other(b)) => a == b,
            _ => false,
        }
    }

    /// The SIP or SIPS URI.
    pub fn sip(&self) -> Option<&SipUri> {
        match self {
            Self::Sip(uri) => Some(uri),
            _ => None,
        }
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sip(uri) => uri.fmt(f),
            Self::Tel(uri) => uri.fmt(f),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// A parameter of a URI, as written.
type Param = (String, Option<String>);

/// `;name=value` one after the other; `valid` says which bytes may stand in both. A name may appear once (RFC 3261 section 19.1.1).
fn params(text: &str, valid: fn(u8) -> bool) -> Option<Vec<Param>> {
    let mut params: Vec<Param> = Vec::new();
    for one in text.split(';').skip(1) {
        let (name, value) = match one.split_once('=') {
            None => (one, None),
            Some((_, "")) => return None,
            Some((name, value)) => (name, Some(value)),
        };
        let fine = escaped(name, valid) && !name.is_empty() && value.is_none_or(|v| escaped(v, valid));
        if !fine || params.len() >= MAX_PARAMS || find(&params, name).is_some() {
            return None;
        }
        params.push((name.to_owned(), value.map(str::to_owned)));
    }
    Some(params)
}

/// Most parameters of a URI.
const MAX_PARAMS: usize = 64;

fn find<'a>(params: &'a [Param], name: &str) -> Option<Option<&'a str>> {
    params.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_deref())
}

fn write_params(f: &mut fmt::Formatter<'_>, params: &[Param]) -> fmt::Result {
    params.iter().try_for_each(|(name, value)| match value {
        None => write!(f, ";{name}"),
        Some(value) => write!(f, ";{name}={value}"),
    })
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte)
}

/// Every byte is `valid` or unreserved, or part of `%HH`.
fn escaped(text: &str, valid: fn(u8) -> bool) -> bool {
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = match after {
            [high, low, after @ ..]
                if *byte == b'%' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                after
            }
            _ if is_unreserved(*byte) || valid(*byte) => after,
            _ => return false,
        };
    }
    true
}

/// `%HH` decoded where it stands for a byte that needs no escape, in upper case elsewhere: equal texts are equivalent.
fn normal(text: &str) -> Vec<u8> {
    let (mut rest, mut out) = (text.as_bytes(), Vec::with_capacity(text.len()));
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        let code = after
            .get(..2)
            .filter(|_| *byte == b'%')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match code {
            Some(code) if is_unreserved(code) => {
                out.push(code);
                rest = &after[2..];
            }
            Some(_) => {
                out.push(b'%');
                out.extend(after[..2].to_ascii_uppercase());
                rest = &after[2..];
            }
            None => out.push(*byte),
        }
    }
    out
}

fn same(a: &str, b: &str) -> bool {
    normal(a) == normal(b)
}

fn same_in_any_case(a: &str, b: &str) -> bool {
    normal(a).eq_ignore_ascii_case(&normal(b))
}

#[cfg(test)]
mod tests;
