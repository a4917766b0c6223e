use super::{Error, Fault, MAX_FIELD, MAX_FIELDS, MAX_HEAD, Name, lex};

/// A header field as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name, if known.
    pub name: Name,
    /// The name as written.
    pub written: &'a [u8],
    /// The value without white space around it. Folded lines stay as they are.
    pub value: &'a [u8],
    /// Offset of `value`.
    pub offset: usize,
}

/// The header fields of a message, one after the other, split into names and values (RFC 3261 section 7.3.1).
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
    count: usize,
}

impl<'a> Fields<'a> {
    /// Reads header fields that begin at `at`, behind the start line.
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at, count: 0 }
    }

    /// Offset of the next header field; of the body once there are no more.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// The next header field; `None` behind the empty line.
    #[expect(clippy::should_implement_trait, reason = "it fails")]
    pub fn next(&mut self) -> Result<Option<Field<'a>>, Error> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.starts_with(b"\r\n") {
            self.at += 2;
            return Ok(None);
        }
        self.count += 1;
        if self.count > MAX_FIELDS {
            return Err(Error::new(Fault::ManyFields, self.at));
        }
        let length = rest.iter().position(|b| !lex::is_token(*b)).unwrap_or(rest.len());
        let mut colon = length;
        while let Some(b' ' | b'\t') = rest.get(colon) {
            colon += 1;
        }
        if rest.get(colon) != Some(&b':') || length == 0 {
            let fault = if colon == rest.len() || rest == b"\r" {
                Fault::UnterminatedHead
            } else {
                Fault::HeaderName
            };
            return Err(Error::new(fault, self.at + colon));
        }
        let written = &rest[..length];
        let end = field_end(self.bytes, self.at + colon + 1)?;
        if end - self.at > MAX_FIELD {
            return Err(Error::new(Fault::LongField, self.at));
        }
        if end > MAX_HEAD {
            return Err(Error::new(Fault::LongHead, self.at));
        }
        let (value, offset) = trim(self.bytes, self.at + colon + 1, end);
        self.at = end + 2;
        Ok(Some(Field { name: Name::of(written), written, value, offset }))
    }
}

/// End of the header field that `from` is in: a CRLF that no folded line follows.
fn field_end(bytes: &[u8], from: usize) -> Result<usize, Error> {
    let mut at = from;
    loop {
        let end = line_end(bytes, at)?;
        match bytes.get(end + 2) {
            Some(b' ' | b'\t') => at = end + 2,
            Some(_) => return Ok(end),
            None => return Err(Error::new(Fault::UnterminatedHead, bytes.len())),
        }
        // A folded line is no longer than a field may be, so that this is read once.
        if end - from > MAX_FIELD {
            return Err(Error::new(Fault::LongField, from));
        }
    }
}

/// The next CRLF.
pub(super) fn line_end(bytes: &[u8], from: usize) -> Result<usize, Error> {
    let rest = bytes.get(from..).unwrap_or_default();
    let at = memchr::memchr2(b'\r', b'\n', rest)
        .ok_or_else(|| Error::new(Fault::UnterminatedHead, bytes.len()))?
        + from;
    match bytes[at..] {
        [b'\r', b'\n', ..] => Ok(at),
        [b'\r'] => Err(Error::new(Fault::UnterminatedHead, bytes.len())),
        _ => Err(Error::new(Fault::LineEnd, at)),
    }
}

fn trim(bytes: &[u8], begin: usize, end: usize) -> (&[u8], usize) {
    let space = |b: &u8| matches!(b, b' ' | b'\t' | b'\r' | b'\n');
    let value = &bytes[begin..end];
    let lead = value.iter().position(|b| !space(b)).unwrap_or(value.len());
    let kept = value.iter().rposition(|b| !space(b)).map_or(lead, |last| last + 1);
    (&value[lead..kept], begin + lead)
}
