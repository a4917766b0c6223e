//! Bytes of the grammar (RFC 3261 section 25.1), read one after the other.

const TOKEN: u8 = 1;
const WORD: u8 = 2;
const HOST: u8 = 4;
const URI: u8 = 8;
const VALUE: u8 = 16;

const CLASS: [u8; 256] = {
    let mut class = [0; 256];
    let mut byte = 0_usize;
    while byte < 256 {
        let b = byte as u8;
        let alnum = b.is_ascii_alphanumeric();
        let token = alnum || in_set(b, b"-.!%*_+`'~");
        let mut bits = 0;
        if token {
            bits |= TOKEN;
        }
        if token || in_set(b, b"()<>:\\\"/[]?{}") {
            bits |= WORD;
        }
        // `_` is in no hostname of the grammar; networks of containers have it.
        if alnum || in_set(b, b"-._") {
            bits |= HOST;
        }
        if b > 0x20 && b < 0x7f && !in_set(b, b"<>\"") {
            bits |= URI;
        }
        if token || in_set(b, b"[]:") {
            bits |= VALUE;
        }
        class[byte] = bits;
        byte += 1;
    }
    class
};

const fn in_set(byte: u8, set: &[u8]) -> bool {
    let mut at = 0;
    while at < set.len() {
        if set[at] == byte {
            return true;
        }
        at += 1;
    }
    false
}

fn is(byte: u8, class: u8) -> bool {
    CLASS[usize::from(byte)] & class != 0
}

/// A byte of a `token`.
pub(crate) fn is_token(byte: u8) -> bool {
    is(byte, TOKEN)
}

/// A byte that a URI may hold between angle brackets.
pub(crate) fn is_uri(byte: u8) -> bool {
    is(byte, URI)
}

/// Reads `bytes` from front to back. What fails leaves the place at the first byte that does not fit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    #[inline]
    fn run(&mut self, class: u8) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|b| !is(*b, class)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    #[inline]
    fn nonempty_run(&mut self, class: u8) -> Option<&'a [u8]> {
        Some(self.run(class)).filter(|run| !run.is_empty())
    }

    /// White space, folded lines included; whether there was any. CR and LF stand in a value only where it was folded.
    #[inline]
    pub fn space(&mut self) -> bool {
        let begin = self.at;
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
        self.at > begin
    }

    /// This byte, if it is next.
    #[inline]
    pub fn byte(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// This byte, with white space around it (`COMMA`, `SEMI`, `EQUAL`, `SLASH`). Nothing is read where it does not follow.
    #[inline]
    pub fn separator(&mut self, byte: u8) -> bool {
        let begin = self.at;
        self.space();
        if self.byte(byte) {
            self.space();
            return true;
        }
        self.at = begin;
        false
    }

    #[inline]
    pub fn token(&mut self) -> Option<&'a [u8]> {
        self.nonempty_run(TOKEN)
    }

    pub fn word(&mut self) -> Option<&'a [u8]> {
        self.nonempty_run(WORD)
    }

    /// A `quoted-string`: the bytes between the quotes, escapes as written.
    pub fn quoted(&mut self) -> Option<&'a [u8]> {
        if !self.byte(b'"') {
            return None;
        }
        let begin = self.at;
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(&self.bytes[begin..self.at - 1]);
                }
                b'\\' => {
                    let escaped = self.bytes.get(self.at + 1)?;
                    if !escaped.is_ascii() || matches!(escaped, b'\r' | b'\n') {
                        return None;
                    }
                    self.at += 2;
                }
                b' ' | b'\t' | b'\r' | b'\n' | 0x21..=0x7e | 0x80.. => self.at += 1,
                _ => return None,
            }
        }
    }

    /// A `comment`: the bytes between its parentheses. Comments within it are part of it.
    pub fn comment(&mut self) -> Option<&'a [u8]> {
        let begin = self.at + 1;
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'(' => depth += 1,
                b')' => depth = depth.checked_sub(1)?,
                b'\\' => self.at += 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return self.bytes.get(begin..self.at - 1);
            }
        }
    }

    /// A decimal number of any number of digits up to `max`.
    pub fn number(&mut self, max: u32) -> Option<u32> {
        let (begin, mut value) = (self.at, 0_u32);
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            value = value.checked_mul(10)?.checked_add(u32::from(digit - b'0'))?;
            self.at += 1;
        }
        (self.at > begin && value <= max).then_some(value)
    }

    /// A host: a name, an IPv4 address, or an IPv6 address within brackets.
    pub fn host(&mut self) -> Option<&'a [u8]> {
        let begin = self.at;
        if !self.byte(b'[') {
            return self.nonempty_run(HOST);
        }
        let length = self.bytes[self.at..].iter().take(46).position(|b| *b == b']')?;
        let address = std::str::from_utf8(&self.bytes[self.at..self.at + length]).ok()?;
        address.parse::<std::net::Ipv6Addr>().ok()?;
        self.at += length + 1;
        Some(&self.bytes[begin..self.at])
    }

    /// `[ ":" port ]`, with white space around the colon where `spaced`.
    pub fn port(&mut self, spaced: bool) -> Option<Option<u16>> {
        let colon = if spaced { self.separator(b':') } else { self.byte(b':') };
        if !colon {
            return Some(None);
        }
        Some(Some(u16::try_from(self.number(65_535)?).ok()?))
    }

    /// One parameter after its semicolon: `token [ EQUAL gen-value ]`. A value is a token, a host or a quoted string.
    pub fn parameter(&mut self) -> Option<Parameter<'a>> {
        let name = self.token()?;
        if !self.separator(b'=') {
            return Some(Parameter { name, value: None, quoted: false });
        }
        let quoted = self.peek() == Some(b'"');
        let value = if quoted { self.quoted()? } else { self.nonempty_run(VALUE)? };
        Some(Parameter { name, value: Some(value), quoted })
    }

    /// A URI of any scheme up to the closing bracket, or up to what ends an `addr-spec` in a header field.
    pub fn uri(&mut self, bracketed: bool) -> Option<&'a [u8]> {
        let begin = self.at;
        let ends = |b: u8| !is(b, URI) || !bracketed && matches!(b, b';' | b',' | b'?');
        let rest = &self.bytes[begin..];
        let length = rest.iter().position(|b| ends(*b)).unwrap_or(rest.len());
        self.at += length;
        has_scheme(&rest[..length]).then_some(&rest[..length])
    }

    /// `name-addr` or `addr-spec` (RFC 3261 section 20.10): the URI.
    pub fn address(&mut self) -> Option<&'a [u8]> {
        let begin = self.at;
        if self.peek() == Some(b'"') {
            self.quoted()?;
            self.space();
        } else {
            while self.token().is_some() && self.space() {}
            if self.peek() != Some(b'<') {
                self.at = begin;
                return self.uri(false);
            }
        }
        self.byte(b'<').then_some(())?;
        let uri = self.uri(true)?;
        self.byte(b'>').then_some(uri)
    }
}

/// A parameter as written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameter<'a> {
    pub name: &'a [u8],
    pub value: Option<&'a [u8]>,
    pub quoted: bool,
}

/// Begins with a scheme and a colon, and something follows (RFC 3986 section 3.1).
pub(crate) fn has_scheme(uri: &[u8]) -> bool {
    let Some(colon) = uri.iter().position(|b| *b == b':') else { return false };
    let scheme = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    uri.first().is_some_and(u8::is_ascii_alphabetic)
        && uri[..colon].iter().all(scheme)
        && colon + 1 < uri.len()
}
