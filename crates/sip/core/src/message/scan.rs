//! One pass over a message, without allocation: what a load generator reads.

use super::field::{Field, Fields, line_end};
use super::lex::{self, Cursor};
use super::{Error, Fault, MAX_BODY, MAX_HEAD, Name};

/// How many challenges of a kind are kept.
pub const MAX_CHALLENGES: usize = 4;

/// Start line of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start<'a> {
    /// Request line (RFC 3261 section 7.1).
    Request {
        /// Method, in the case that was written.
        method: &'a [u8],
        /// Request-URI as written.
        uri: &'a [u8],
    },
    /// Status line (RFC 3261 section 7.2).
    Response {
        /// Status code, 100 to 699.
        code: u16,
        /// Reason phrase, possibly empty.
        reason: &'a [u8],
    },
}

/// CSeq (RFC 3261 section 20.16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CSeq<'a> {
    /// Sequence number, under 2^31.
    pub number: u32,
    /// Method.
    pub method: &'a [u8],
}

/// The topmost Via (RFC 3261 section 20.42).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopVia<'a> {
    /// Transport, such as `UDP`.
    pub transport: &'a [u8],
    /// Host of sent-by; an IPv6 address within its brackets.
    pub host: &'a [u8],
    /// Port of sent-by.
    pub port: Option<u16>,
    /// Parameter `branch`.
    pub branch: Option<&'a [u8]>,
    /// Parameter `received`.
    pub received: Option<&'a [u8]>,
    /// Parameter `rport` (RFC 3581), which a request has without value.
    pub rport: Option<Option<u16>>,
}

/// From or To (RFC 3261 sections 20.20, 20.39).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Party<'a> {
    /// The value as written.
    pub value: &'a [u8],
    /// The URI.
    pub uri: &'a [u8],
}

/// The values of up to four challenges, as written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Challenges<'a> {
    values: [&'a [u8]; MAX_CHALLENGES],
    count: usize,
}

impl<'a> Challenges<'a> {
    /// The values in the order of the message, for [`Challenge::parse`](crate::digest::Challenge::parse).
    pub fn as_slice(&self) -> &[&'a [u8]] {
        &self.values[..self.count]
    }

    fn push(&mut self, value: &'a [u8]) {
        if let Some(slot) = self.values.get_mut(self.count) {
            *slot = value;
            self.count += 1;
        }
    }
}

/// The header fields that a load generator reads. Values are slices of the message: where a line was folded, they hold the fold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scanned<'a> {
    /// Start line.
    pub start: Start<'a>,
    /// Call-ID.
    pub call_id: &'a [u8],
    /// CSeq.
    pub cseq: CSeq<'a>,
    /// Topmost Via.
    pub via: TopVia<'a>,
    /// From.
    pub from: Party<'a>,
    /// Parameter `tag` of From.
    pub from_tag: Option<&'a [u8]>,
    /// To.
    pub to: Party<'a>,
    /// Parameter `tag` of To.
    pub to_tag: Option<&'a [u8]>,
    /// The first Contact, as written, with its parameters.
    pub contact: Option<&'a [u8]>,
    /// Max-Forwards.
    pub max_forwards: Option<u8>,
    /// Expires, seconds.
    pub expires: Option<u32>,
    /// Min-Expires, seconds.
    pub min_expires: Option<u32>,
    /// Retry-After, seconds, without comment and parameters.
    pub retry_after: Option<u32>,
    /// WWW-Authenticate of up to four challenges.
    pub www_authenticate: Challenges<'a>,
    /// Proxy-Authenticate of up to four challenges.
    pub proxy_authenticate: Challenges<'a>,
    /// The first Authorization, as written.
    pub authorization: Option<&'a [u8]>,
    /// The first Proxy-Authorization, as written.
    pub proxy_authorization: Option<&'a [u8]>,
    /// Content-Length.
    pub content_length: Option<u32>,
    /// Content-Type, as written.
    pub content_type: Option<&'a [u8]>,
    /// There is a Record-Route.
    pub record_route: bool,
    /// The first Require, as written.
    pub require: Option<&'a [u8]>,
    /// RSeq (RFC 3262 section 7.1).
    pub rseq: Option<u32>,
    /// The body: as long as Content-Length says, or all that follows the head.
    pub body: &'a [u8],
    /// Offset of the first header field, for [`Fields::new`].
    pub fields: usize,
    /// Length of the head, with its empty line.
    pub header_end: usize,
}

impl Scanned<'_> {
    /// Status code; `None` for a request.
    pub fn code(&self) -> Option<u16> {
        match self.start {
            Start::Response { code, .. } => Some(code),
            Start::Request { .. } => None,
        }
    }

    /// Whether the message is a request with this method.
    pub fn is_request(&self, name: &str) -> bool {
        matches!(self.start, Start::Request { method, .. } if method == name.as_bytes())
    }
}

/// Reads a message, which is all of a datagram or what [`frame`](super::frame) found in a stream.
///
/// CRLFs before the start line are skipped (RFC 3261 section 7.5). Bytes behind the body are ignored (section 18.3).
/// Everything that is not returned stays unread. So `scan` accepts, and [`Message::parse`](super::Message::parse) refuses, messages in which
///
/// * the head is not UTF-8;
/// * the inside of a URI, among them the Request-URI, is malformed;
/// * the second or a later Via is malformed;
/// * values that are given as written (Contact, Require, Content-Type, challenges, credentials) are malformed, or what follows
///   the seconds of Retry-After is;
/// * a header field that is not given is malformed, or is there more often than it may be.
pub fn scan(bytes: &[u8]) -> Result<Scanned<'_>, Error> {
    let (start, fields_at) = start_line(bytes)?;
    let mut fields = Fields::new(bytes, fields_at);
    let mut found = FieldCollector::default();
    while let Some(field) = fields.next()? {
        found.take(&field)?;
    }
    let header_end = fields.offset();
    if header_end > MAX_HEAD {
        return Err(Error::new(Fault::LongHead, MAX_HEAD));
    }
    found.finish(start, bytes, fields_at, header_end)
}

/// How many bytes of CRLF stand before the start line: keep-alives of a stream (RFC 5626 section 3.5.1).
pub fn leading_crlf(bytes: &[u8]) -> usize {
    bytes.chunks_exact(2).take_while(|pair| *pair == b"\r\n").count() * 2
}

/// The start line, and where the header fields begin.
pub(super) fn start_line(bytes: &[u8]) -> Result<(Start<'_>, usize), Error> {
    let begin = leading_crlf(bytes);
    let end = line_end(bytes, begin)?;
    if end - begin > super::MAX_FIELD {
        return Err(Error::new(Fault::LongField, begin));
    }
    let line = &bytes[begin..end];
    let start = if line.len() >= 4 && line[..4].eq_ignore_ascii_case(b"SIP/") {
        status_line(line)
    } else {
        request_line(line)
    };
    let start = start.map_err(|(fault, at)| Error::new(fault, begin + at))?;
    Ok((start, end + 2))
}

fn status_line(line: &[u8]) -> Result<Start<'_>, (Fault, usize)> {
    if line.len() < 7 || !line[..7].eq_ignore_ascii_case(b"SIP/2.0") {
        return Err((Fault::Version, 4));
    }
    if line.get(7) != Some(&b' ') {
        return Err((Fault::StartLine, 7));
    }
    let digits = line[8..].iter().take_while(|b| b.is_ascii_digit()).count();
    let &[hundreds @ b'1'..=b'6', tens, ones] = &line[8..8 + digits] else {
        return Err((if digits == 0 { Fault::StartLine } else { Fault::StatusCode }, 8));
    };
    if line.get(11) != Some(&b' ') {
        return Err((Fault::StartLine, 11));
    }
    let code = [hundreds, tens, ones].iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    Ok(Start::Response { code, reason: &line[12..] })
}

fn request_line(line: &[u8]) -> Result<Start<'_>, (Fault, usize)> {
    let mut cursor = Cursor::new(line);
    let method = cursor.token().ok_or((Fault::StartLine, 0))?;
    if !cursor.byte(b' ') {
        return Err((Fault::StartLine, cursor.at));
    }
    let uri = line[cursor.at..].iter().take_while(|b| lex::is_uri(**b)).count();
    let uri = &line[cursor.at..cursor.at + uri];
    if !lex::has_scheme(uri) {
        return Err((Fault::RequestUri, cursor.at));
    }
    cursor.at += uri.len();
    if !cursor.byte(b' ') {
        return Err((Fault::RequestUri, cursor.at));
    }
    let version = &line[cursor.at..];
    if version.eq_ignore_ascii_case(b"SIP/2.0") {
        return Ok(Start::Request { method, uri });
    }
    let other = version.len() > 4
        && version[..4].eq_ignore_ascii_case(b"SIP/")
        && version[4..].iter().all(|b| b.is_ascii_digit() || *b == b'.');
    Err((if other { Fault::Version } else { Fault::StartLine }, cursor.at))
}

#[derive(Default)]
struct FieldCollector<'a> {
    call_id: Option<&'a [u8]>,
    cseq: Option<(CSeq<'a>, usize)>,
    via: Option<TopVia<'a>>,
    from: Option<(Party<'a>, Option<&'a [u8]>)>,
    to: Option<(Party<'a>, Option<&'a [u8]>)>,
    contact: Option<&'a [u8]>,
    max_forwards: Option<u8>,
    expires: Option<u32>,
    min_expires: Option<u32>,
    retry_after: Option<u32>,
    www_authenticate: Challenges<'a>,
    proxy_authenticate: Challenges<'a>,
    authorization: Option<&'a [u8]>,
    proxy_authorization: Option<&'a [u8]>,
    content_length: Option<u32>,
    content_type: Option<&'a [u8]>,
    record_route: bool,
    require: Option<&'a [u8]>,
    rseq: Option<u32>,
}

/// Puts a value where none was.
fn set_once<T>(slot: &mut Option<T>, field: &Field<'_>, value: T) -> Result<(), Error> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::new(Fault::Repeated(field.name), field.offset)),
    }
}

impl<'a> FieldCollector<'a> {
    fn take(&mut self, field: &Field<'a>) -> Result<(), Error> {
        let (name, value) = (field.name, field.value);
        let mut cursor = Cursor::new(value);
        let read = &mut cursor;
        let bad = |at: usize| Error::new(Fault::Value(name), field.offset + at);
        match name {
            Name::Via if self.via.is_none() => {
                self.via = Some(via(read).ok_or_else(|| bad(cursor.at))?);
            }
            Name::CallId => {
                let known = call_id(read).filter(|_| read.is_at_end()).ok_or_else(|| bad(cursor.at))?;
                set_once(&mut self.call_id, field, known)?;
            }
            Name::CSeq => {
                let cseq = cseq(read).filter(|_| read.is_at_end()).ok_or_else(|| bad(cursor.at))?;
                set_once(&mut self.cseq, field, (cseq, field.offset))?;
            }
            Name::From | Name::To => {
                let party = party(read).ok_or_else(|| bad(cursor.at))?;
                let slot = if name == Name::From { &mut self.from } else { &mut self.to };
                set_once(slot, field, party)?;
            }
            Name::Contact if self.contact.is_none() => {
                self.contact = Some(first_value(value)).filter(|first| !first.is_empty());
            }
            Name::MaxForwards => {
                let hops = number(read, 255).ok_or_else(|| bad(cursor.at))?;
                set_once(&mut self.max_forwards, field, u8::try_from(hops).unwrap_or(u8::MAX))?;
            }
            Name::Expires | Name::MinExpires | Name::ContentLength => {
                let number = number(read, u32::MAX).ok_or_else(|| bad(cursor.at))?;
                let slot = match name {
                    Name::Expires => &mut self.expires,
                    Name::MinExpires => &mut self.min_expires,
                    _ => &mut self.content_length,
                };
                set_once(slot, field, number)?;
            }
            Name::RSeq => {
                let number = number(read, u32::MAX).filter(|n| *n > 0).ok_or_else(|| bad(cursor.at))?;
                set_once(&mut self.rseq, field, number)?;
            }
            Name::RetryAfter => {
                let seconds = read.number(u32::MAX);
                let ends = matches!(read.peek(), None | Some(b' ' | b'\t' | b'\r' | b'(' | b';'));
                set_once(
                    &mut self.retry_after,
                    field,
                    seconds.filter(|_| ends).ok_or_else(|| bad(cursor.at))?,
                )?;
            }
            Name::ContentType => set_once(&mut self.content_type, field, value)?,
            Name::WwwAuthenticate => self.www_authenticate.push(value),
            Name::ProxyAuthenticate => self.proxy_authenticate.push(value),
            Name::Authorization => self.authorization = self.authorization.or(Some(value)),
            Name::ProxyAuthorization => self.proxy_authorization = self.proxy_authorization.or(Some(value)),
            Name::Require => self.require = self.require.or(Some(value)),
            Name::RecordRoute => self.record_route = true,
            _ => {}
        }
        Ok(())
    }

    fn finish(
        self,
        start: Start<'a>,
        bytes: &'a [u8],
        fields: usize,
        header_end: usize,
    ) -> Result<Scanned<'a>, Error> {
        let missing = |name| Error::new(Fault::Missing(name), header_end);
        let via = self.via.ok_or_else(|| missing(Name::Via))?;
        let (from, from_tag) = self.from.ok_or_else(|| missing(Name::From))?;
        let (to, to_tag) = self.to.ok_or_else(|| missing(Name::To))?;
        let call_id = self.call_id.ok_or_else(|| missing(Name::CallId))?;
        let (cseq, cseq_at) = self.cseq.ok_or_else(|| missing(Name::CSeq))?;
        if matches!(start, Start::Request { method, .. } if method != cseq.method) {
            return Err(Error::new(Fault::MethodMismatch, cseq_at));
        }
        let rest = bytes.get(header_end..).unwrap_or_default();
        let body = match self.content_length.map(|length| length as usize) {
            None if rest.len() > MAX_BODY => return Err(Error::new(Fault::LongBody, header_end)),
            None => rest,
            Some(length) if length > MAX_BODY => return Err(Error::new(Fault::LongBody, header_end)),
            Some(length) => rest.get(..length).ok_or_else(|| Error::new(Fault::ShortBody, bytes.len()))?,
        };
        Ok(Scanned {
            start,
            call_id,
            cseq,
            via,
            from,
            from_tag,
            to,
            to_tag,
            contact: self.contact,
            max_forwards: self.max_forwards,
            expires: self.expires,
            min_expires: self.min_expires,
            retry_after: self.retry_after,
            www_authenticate: self.www_authenticate,
            proxy_authenticate: self.proxy_authenticate,
            authorization: self.authorization,
            proxy_authorization: self.proxy_authorization,
            content_length: self.content_length,
            content_type: self.content_type,
            record_route: self.record_route,
            require: self.require,
            rseq: self.rseq,
            body,
            fields,
            header_end,
        })
    }
}

fn number(read: &mut Cursor<'_>, max: u32) -> Option<u32> {
    read.number(max).filter(|_| read.is_at_end())
}

fn call_id<'a>(read: &mut Cursor<'a>) -> Option<&'a [u8]> {
    read.word()?;
    if read.byte(b'@') {
        read.word()?;
    }
    Some(&read.bytes[..read.at])
}

fn cseq<'a>(read: &mut Cursor<'a>) -> Option<CSeq<'a>> {
    // RFC 3261 section 8.1.1.5.
    let number = read.number((1 << 31) - 1)?;
    read.space().then_some(())?;
    Some(CSeq { number, method: read.token()? })
}

/// From or To, whose value ends here (RFC 3261 section 20.20).
fn party<'a>(read: &mut Cursor<'a>) -> Option<(Party<'a>, Option<&'a [u8]>)> {
    let uri = read.address()?;
    let mut tag = None;
    while read.separator(b';') {
        let parameter = read.parameter()?;
        if parameter.name.eq_ignore_ascii_case(b"tag") {
            let value = parameter.value.filter(|value| value.iter().all(|b| lex::is_token(*b)));
            if tag.replace(value.filter(|_| !parameter.quoted)?).is_some() {
                return None;
            }
        }
    }
    read.is_at_end().then_some((Party { value: read.bytes, uri }, tag))
}

/// Parameter `tag` of a value of From or To.
pub(super) fn tag_of(value: &str) -> Option<&str> {
    let (_, tag) = party(&mut Cursor::new(value.as_bytes()))?;
    std::str::from_utf8(tag?).ok()
}

fn via<'a>(read: &mut Cursor<'a>) -> Option<TopVia<'a>> {
    read.token()?;
    read.separator(b'/').then_some(())?;
    read.token()?;
    read.separator(b'/').then_some(())?;
    let transport = read.token()?;
    read.space().then_some(())?;
    let host = read.host()?;
    let port = read.port(true)?;
    let mut via = TopVia { transport, host, port, branch: None, received: None, rport: None };
    while read.separator(b';') {
        let parameter = read.parameter()?;
        let name = parameter.name;
        let bare = parameter.value.filter(|_| !parameter.quoted);
        let twice = if name.eq_ignore_ascii_case(b"branch") {
            via.branch.replace(bare.filter(|value| value.iter().all(|b| lex::is_token(*b)))?).is_some()
        } else if name.eq_ignore_ascii_case(b"received") {
            via.received.replace(bare?).is_some()
        } else if name.eq_ignore_ascii_case(b"rport") {
            let port = match parameter.value {
                None => None,
                Some(_) => Some(port_number(bare?)?),
            };
            via.rport.replace(port).is_some()
        } else {
            false
        };
        if twice {
            return None;
        }
    }
    (read.is_at_end() || read.separator(b',')).then_some(via)
}

fn port_number(digits: &[u8]) -> Option<u16> {
    let mut read = Cursor::new(digits);
    number(&mut read, 65_535).and_then(|port| u16::try_from(port).ok())
}

/// Up to the first comma that stands neither in quotes nor between angle brackets.
fn first_value(value: &[u8]) -> &[u8] {
    let (mut quoted, mut bracketed, mut escaped) = (false, false, false);
    let end = value.iter().position(|byte| {
        if escaped {
            escaped = false;
            return false;
        }
        match byte {
            b'\\' if quoted => escaped = true,
            b'"' if !bracketed => quoted = !quoted,
            b'<' if !quoted => bracketed = true,
            b'>' if !quoted => bracketed = false,
            b',' => return !quoted && !bracketed,
            _ => {}
        }
        false
    });
    value[..end.unwrap_or(value.len())].trim_ascii_end()
}

#[cfg(test)]
mod tests;
