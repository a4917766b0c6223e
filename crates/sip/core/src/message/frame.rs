use super::field::{Fields, line_end};
use super::lex::Cursor;
use super::scan::{leading_crlf, start_line};
use super::{Error, Fault, MAX_BODY, MAX_HEAD, Name};

/// Length of the first message of a stream, CRLFs before it included; `None` until all of it is there.
///
/// A message of a stream must have Content-Length (RFC 3261 section 18.3). [`Framer`] does the same for a buffer that grows,
/// without reading it again from the front.
pub fn frame(bytes: &[u8]) -> Result<Option<usize>, Error> {
    Framer::default().frame(bytes)
}

/// Finds messages in a stream whose bytes come in parts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Framer {
    searched: usize,
    length: Option<usize>,
}

impl Framer {
    /// Length of the message that `bytes` begins with, once it is complete. Call again with the same bytes and more.
    ///
    /// A returned length begins a new message: the next call's `bytes` begin behind it. After an error the stream cannot be
    /// read any further.
    pub fn frame(&mut self, bytes: &[u8]) -> Result<Option<usize>, Error> {
        let length = match self.length {
            Some(length) => length,
            None => {
                let Some(length) = self.head(bytes)? else { return Ok(None) };
                self.length = Some(length);
                length
            }
        };
        if bytes.len() < length {
            return Ok(None);
        }
        *self = Self::default();
        Ok(Some(length))
    }

    fn head(&mut self, bytes: &[u8]) -> Result<Option<usize>, Error> {
        let begin = leading_crlf(bytes);
        let from = self.searched.max(begin).min(bytes.len());
        let Some(end) = memchr::memmem::find(&bytes[from..], b"\r\n\r\n") else {
            if bytes.len() > MAX_HEAD {
                return Err(Error::new(Fault::LongHead, MAX_HEAD));
            }
            self.searched = bytes.len().saturating_sub(3);
            return Ok(None);
        };
        let end = from + end + 4;
        if end > MAX_HEAD {
            return Err(Error::new(Fault::LongHead, MAX_HEAD));
        }
        let fields = match start_line(bytes) {
            Ok((_, fields)) => fields,
            // a request of another version ends as one of ours, and is answered (RFC 3261 section 21.5.6)
            Err(error) if error.fault == Fault::Version => line_end(bytes, begin)? + 2,
            Err(error) => return Err(error),
        };
        let mut fields = Fields::new(&bytes[..end], fields);
        let mut length = None;
        while let Some(field) = fields.next()? {
            if field.name != Name::ContentLength {
                continue;
            }
            let mut read = Cursor::new(field.value);
            let value = read.number(u32::MAX).filter(|_| read.is_at_end());
            let value = value.ok_or_else(|| Error::new(Fault::Value(field.name), field.offset))?;
            if length.replace(value as usize).is_some() {
                return Err(Error::new(Fault::Repeated(field.name), field.offset));
            }
        }
        let length = length.ok_or_else(|| Error::new(Fault::Missing(Name::ContentLength), end))?;
        if length > MAX_BODY {
            return Err(Error::new(Fault::LongBody, end));
        }
        Ok(Some(end + length))
    }
}
