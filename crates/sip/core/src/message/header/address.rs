use super::super::lex::Cursor;
use super::{Params, Value, is_token, quote, text, unescape, with_cursor};
use crate::uri::Uri;
use std::fmt;

/// A `name-addr` or `addr-spec` with parameters (RFC 3261 section 20.10): From, To, Contact, Route, Record-Route, Refer-To.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NameAddr {
    /// Display name as written, with its quotes.
    pub display: Option<String>,
    /// URI.
    pub uri: Uri,
    /// Parameters behind the URI.
    pub params: Params,
}

impl NameAddr {
    /// An address without display name.
    pub fn new(uri: Uri) -> Self {
        Self { display: None, uri, params: Params::default() }
    }

    /// The same with a display name, quoted if need be.
    #[must_use]
    pub fn with_display_name(mut self, name: &str) -> Self {
        let plain = name.split(' ').all(is_token);
        self.display = Some(if plain { name.to_owned() } else { quote(name) });
        self
    }

    /// The same with a parameter.
    #[must_use]
    pub fn with(mut self, name: &str, value: Option<&str>) -> Self {
        self.params.set(name, value);
        self
    }

    /// Parameter `tag` (RFC 3261 section 19.3).
    pub fn tag(&self) -> Option<&str> {
        self.params.get("tag")
    }

    /// The display name without quotes and escapes.
    pub fn display_text(&self) -> Option<String> {
        let display = self.display.as_deref()?;
        Some(match display.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            Some(quoted) => unescape(quoted),
            None => display.to_owned(),
        })
    }

    fn read_from(read: &mut Cursor<'_>) -> Option<Self> {
        let begin = read.at;
        let uri = read.address()?;
        let written = &read.bytes[begin..read.at];
        // What stands before the URI's opening bracket.
        let before = written.len() - uri.len();
        let display = if written.ends_with(b">") { written[..before - 2].trim_ascii() } else { b"" };
        let uri = Uri::parse(std::str::from_utf8(uri).ok()?)?;
        let display = Some(display).filter(|name| !name.is_empty()).map(text);
        Some(Self { display, uri, params: Params::read(read)? })
    }
}

impl Value for NameAddr {
    fn read(input: &str) -> Option<(Self, &str)> {
        with_cursor(input, Self::read_from)
    }
}

impl fmt::Display for NameAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(display) = &self.display {
            write!(f, "{display} ")?;
        }
        write!(f, "<{}>{}", self.uri, self.params)
    }
}

/// A value of Contact (RFC 3261 section 20.10).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Contact {
    /// `*`: all bindings.
    All,
    /// An address.
    Address(NameAddr),
}

impl Contact {
    /// The address; none of `*`.
    pub fn address(&self) -> Option<&NameAddr> {
        match self {
            Self::All => None,
            Self::Address(address) => Some(address),
        }
    }

    /// Parameter `expires`, seconds.
    pub fn expires(&self) -> Option<u32> {
        self.address()?.params.get("expires")?.parse().ok()
    }

    /// Whether `expires` and `q` hold what they may (RFC 3261 section 25.1).
    pub fn valid(&self) -> bool {
        let Some(address) = self.address() else { return true };
        let expires = address.params.param("expires").is_none_or(|_| self.expires().is_some());
        let q = address.params.param("q").is_none_or(|param| param.value.as_deref().is_some_and(is_q));
        expires && q
    }
}

fn is_q(value: &str) -> bool {
    let (whole, digits) = value.split_once('.').unwrap_or((value, ""));
    let digit = |c: char| if whole == "1" { c == '0' } else { c.is_ascii_digit() };
    matches!(whole, "0" | "1") && digits.len() <= 3 && digits.chars().all(digit)
}

impl Value for Contact {
    fn read(input: &str) -> Option<(Self, &str)> {
        // `*` is a token, which a display name may begin with.
        let rest = input.strip_prefix('*').filter(|rest| rest.trim_ascii().is_empty());
        match rest {
            Some(rest) => Some((Self::All, rest)),
            None => NameAddr::read(input).map(|(address, rest)| (Self::Address(address), rest)),
        }
    }
}

impl fmt::Display for Contact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Address(address) => address.fmt(f),
        }
    }
}
