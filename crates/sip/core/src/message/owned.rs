use super::field::Fields;
use super::header::{CSeq, CallId, Contact, NameAddr, Value, Via, parse, parse_list};
use super::scan::{Start, start_line, tag_of};
use super::{Error, Fault, MAX_BODY, MAX_HEAD, Name};
use crate::method::Method;
use crate::uri::Uri;
use std::borrow::Cow;
use std::fmt::Write;

/// Room for the header fields of a usual message, and of a response to one.
const FIELDS: usize = 16;
const RESPONSE_FIELDS: usize = 12;
/// Room for a start line.
const START: usize = 128;
/// Longest known name.
const LONGEST_NAME: usize = 19;

/// Start line of a [`Message`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartLine {
    /// Request line.
    Request {
        /// Method.
        method: Method,
        /// Request-URI as written.
        uri: String,
    },
    /// Status line.
    Response {
        /// Status code, 100 to 699.
        code: u16,
        /// Reason phrase.
        reason: String,
    },
}

/// A header field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The name, if known.
    pub name: Name,
    /// The name as written; of one that is known, its long form is sent.
    pub written: Cow<'static, str>,
    /// The value in one line.
    pub value: String,
    /// Offset of the value in the bytes that were read.
    pub(super) offset: usize,
}

/// A message with all its header fields in order.
///
/// [`Message::read`] takes what can be split into header fields, however odd their values are; [`Message::faults`] then tells
/// what is wrong with them, and [`Message::parse`] refuses what has any fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Start line.
    pub start: StartLine,
    /// Header fields in order.
    pub headers: Vec<Header>,
    /// Body.
    pub body: Vec<u8>,
}

impl Message {
    /// A request without header fields.
    pub fn request(method: Method, uri: &Uri) -> Self {
        let start = StartLine::Request { method, uri: uri.to_string() };
        Self { start, headers: Vec::new(), body: Vec::new() }
    }

    /// A response to a request: its Via, From, To, Call-ID, CSeq and Record-Route (RFC 3261 sections 8.2.6.2, 12.1.1), and a tag for
    /// To where it has none.
    pub fn response(request: &Self, code: u16, reason: &str, tag: Option<&str>) -> Self {
        let start = StartLine::Response { code, reason: single_line(reason.to_owned()) };
        let mut response = Self { start, headers: Vec::with_capacity(RESPONSE_FIELDS), body: Vec::new() };
        for header in &request.headers {
            let value = match header.name {
                Name::Via | Name::From | Name::CallId | Name::CSeq | Name::RecordRoute => &header.value,
                Name::To => {
                    let address = parse::<NameAddr>(&header.value).filter(|to| to.tag().is_none());
                    match address.zip(tag) {
                        Some((to, tag)) => response.push(Name::To, to.with("tag", Some(tag))),
                        None => response.push(Name::To, &header.value),
                    }
                    continue;
                }
                _ => continue,
            };
            response.push(header.name, value);
        }
        response.push(Name::ContentLength, 0);
        response
    }

    /// The same with one more header field, at the end.
    #[must_use]
    pub fn with(mut self, name: Name, value: impl std::fmt::Display) -> Self {
        self.push(name, value);
        self
    }

    /// Adds a header field at the end. Line breaks in the value become spaces.
    pub fn push(&mut self, name: Name, value: impl std::fmt::Display) {
        self.push_written(name, Cow::Borrowed(name.as_str()), value);
    }

    /// Adds a header field of any name at the end. Line breaks in the value become spaces.
    pub fn push_named(&mut self, name: &str, value: impl std::fmt::Display) {
        let written = single_line(name.to_owned());
        self.push_written(Name::of(written.as_bytes()), Cow::Owned(written), value);
    }

    fn push_written(&mut self, name: Name, written: Cow<'static, str>, value: impl std::fmt::Display) {
        self.headers.push(Header { name, written, value: single_line(value.to_string()), offset: 0 });
    }

    /// Adds a header field before all others, as a proxy does with Via and Record-Route.
    pub fn push_front(&mut self, name: Name, value: impl std::fmt::Display) {
        self.push(name, value);
        self.headers.rotate_right(1);
    }

    /// Removes every header field of a name.
    pub fn remove(&mut self, name: Name) {
        self.headers.retain(|header| header.name != name);
    }

    /// Sets a header field to one value, in the place of the first that it had.
    pub fn set(&mut self, name: Name, value: impl std::fmt::Display) {
        let place = self.headers.iter().position(|header| header.name == name);
        self.remove(name);
        self.push(name, value);
        if let Some(place) = place {
            self.headers[place..].rotate_right(1);
        }
    }

    /// Sets body, Content-Type and Content-Length.
    pub fn set_body(&mut self, content_type: &str, body: impl Into<Vec<u8>>) {
        self.body = body.into();
        self.set(Name::ContentType, content_type);
        self.set(Name::ContentLength, self.body.len());
    }

    /// Reads a message, which is all of a datagram or what [`frame`](super::frame) found in a stream.
    ///
    /// Only what keeps it from being split into start line, header fields and body is an error.
    pub fn read(bytes: &[u8]) -> Result<Self, Error> {
        let (mut message, end) = Self::read_head(bytes)?;
        let rest = &bytes[end..];
        let length = message.get::<u32>(Name::ContentLength).ok().flatten().map(|length| length as usize);
        let body = match length {
            Some(length) if length > MAX_BODY => return Err(Error::new(Fault::LongBody, end)),
            Some(length) => rest.get(..length).ok_or_else(|| Error::new(Fault::ShortBody, bytes.len()))?,
            None if rest.len() > MAX_BODY => return Err(Error::new(Fault::LongBody, end)),
            None => rest,
        };
        message.body = body.to_vec();
        Ok(message)
    }

    /// Reads start line and header fields, and returns the offset of the body. A server answers with them even if the body is
    /// shorter than Content-Length says.
    pub fn read_head(bytes: &[u8]) -> Result<(Self, usize), Error> {
        let (start, at) = start_line(bytes)?;
        let start = match start {
            Start::Request { method, uri } => {
                StartLine::Request { method: Method::of(utf8(method, 0)?), uri: utf8(uri, 0)?.to_owned() }
            }
            Start::Response { code, reason } => {
                StartLine::Response { code, reason: utf8(reason, 12)?.to_owned() }
            }
        };
        let (mut fields, mut headers) = (Fields::new(bytes, at), Vec::with_capacity(FIELDS));
        while let Some(field) = fields.next()? {
            let value = unfold(utf8(field.value, field.offset)?);
            let written = match field.name.as_str() {
                known if known.as_bytes() == field.written => Cow::Borrowed(known),
                _ => Cow::Owned(utf8(field.written, field.offset)?.to_owned()),
            };
            headers.push(Header { name: field.name, written, value, offset: field.offset });
        }
        let end = fields.offset();
        if end > MAX_HEAD {
            return Err(Error::new(Fault::LongHead, MAX_HEAD));
        }
        Ok((Self { start, headers, body: Vec::new() }, end))
    }

    /// Method of a request.
    pub fn method(&self) -> Option<&Method> {
        match &self.start {
            StartLine::Request { method, .. } => Some(method),
            StartLine::Response { .. } => None,
        }
    }

    /// Request-URI of a request, if it is well formed.
    pub fn uri(&self) -> Option<Uri> {
        match &self.start {
            StartLine::Request { uri, .. } => Uri::parse(uri),
            StartLine::Response { .. } => None,
        }
    }

    /// Status code of a response.
    pub fn code(&self) -> Option<u16> {
        match self.start {
            StartLine::Request { .. } => None,
            StartLine::Response { code, .. } => Some(code),
        }
    }

    /// Values of all header fields of a name, as written.
    pub fn values(&self, name: Name) -> impl Iterator<Item = &str> {
        self.headers.iter().filter(move |header| header.name == name).map(|header| header.value.as_str())
    }

    /// The value of a header field that has one; `None` where it is missing.
    pub fn get<T: Value>(&self, name: Name) -> Result<Option<T>, Fault> {
        let mut values = self.values(name);
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(Fault::Repeated(name));
        }
        parse(value).map(Some).ok_or(Fault::Value(name))
    }

    /// The values of all header fields of a name, which have commas between them within a field.
    pub fn all<T: Value>(&self, name: Name) -> Result<Vec<T>, Fault> {
        let mut all = Vec::new();
        for value in self.values(name) {
            // Supported, Allow, Accept and others may be empty (RFC 3261 section 25.1).
            if !value.is_empty() || !name.may_be_empty() {
                all.extend(parse_list::<T>(value).ok_or(Fault::Value(name))?);
            }
        }
        Ok(all)
    }

    /// The one value of a header field that may not be missing.
    pub fn need<T: Value>(&self, name: Name) -> Result<T, Fault> {
        self.get(name)?.ok_or(Fault::Missing(name))
    }

    /// The topmost Via.
    pub fn top_via(&self) -> Result<Via, Fault> {
        let first = self.values(Name::Via).next().ok_or(Fault::Missing(Name::Via))?;
        Via::read(first).map(|(via, _)| via).ok_or(Fault::Value(Name::Via))
    }

    /// From.
    pub fn from(&self) -> Result<NameAddr, Fault> {
        self.need(Name::From)
    }

    /// To.
    pub fn to(&self) -> Result<NameAddr, Fault> {
        self.need(Name::To)
    }

    /// Parameter `tag` of From or To, whatever the inside of the URI is.
    pub fn tag(&self, of: Name) -> Option<&str> {
        self.values(of).next().and_then(tag_of)
    }

    /// CSeq.
    pub fn cseq(&self) -> Result<CSeq, Fault> {
        self.need(Name::CSeq)
    }

    /// Call-ID.
    pub fn call_id(&self) -> Result<String, Fault> {
        self.need::<CallId>(Name::CallId).map(|id| id.0)
    }

    /// All values of Contact.
    pub fn contacts(&self) -> Result<Vec<Contact>, Fault> {
        self.all(Name::Contact)
    }

    /// The message as it is sent. Content-Length is as it was set.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.emit(false)
    }

    /// The same with compact names where there are any (RFC 3261 section 7.3.3).
    pub fn to_compact_bytes(&self) -> Vec<u8> {
        self.emit(true)
    }

    fn emit(&self, compact: bool) -> Vec<u8> {
        let fields = self.headers.iter().map(|one| one.written.len().max(LONGEST_NAME) + one.value.len() + 4);
        let mut text = String::with_capacity(START + fields.sum::<usize>() + self.body.len());
        let _writing_to_a_string_never_fails = match &self.start {
            StartLine::Request { method, uri } => write!(text, "{method} {uri} SIP/2.0\r\n"),
            StartLine::Response { code, reason } => write!(text, "SIP/2.0 {code} {reason}\r\n"),
        };
        for Header { name, written, value, .. } in &self.headers {
            match name.compact().filter(|_| compact) {
                Some(letter) => text.push(letter),
                None if *name == Name::Other => text.push_str(written),
                None => text.push_str(name.as_str()),
            }
            text.push_str(": ");
            text.push_str(value);
            text.push_str("\r\n");
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// Line breaks and what is around them become a space. A fold behind a backslash stays: an escape of CR is malformed
/// (RFC 3261 section 25.1), and may not turn into an escaped space.
fn unfold(value: &str) -> String {
    if !value.contains('\n') {
        return value.to_owned();
    }
    let mut parts = value.split("\r\n");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if text.ends_with('\\') {
            text.push_str("\r\n");
            text.push_str(part);
            continue;
        }
        text.truncate(text.trim_end_matches([' ', '\t']).len());
        text.push(' ');
        text.push_str(part.trim_start_matches([' ', '\t']));
    }
    text
}

fn single_line(value: String) -> String {
    if !value.contains(['\r', '\n']) && value.trim_ascii().len() == value.len() {
        return value;
    }
    value.replace(['\r', '\n'], " ").trim_ascii().to_owned()
}

fn utf8(bytes: &[u8], offset: usize) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|error| Error::new(Fault::Utf8, offset + error.valid_up_to()))
}
