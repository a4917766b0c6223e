//! HTTP/1.1 server (RFC 9112): a body of the size that the path names, for any method.
//!
//! `/512` has 512 bytes; where the path ends in no number, the setting `size` says how many. There is nothing (404) where it is
//! a number over the largest body. Bodies of requests are read and
//! dropped, in chunks too; requests may be pipelined. There is no `Date`: the server keeps no clock (RFC 9110 section 6.6.1).

mod body;
#[cfg(test)]
mod tests;

use crate::settings::BODY_MAX;
use crate::share::Share;
use crate::{ConnectionId, Counters, Output, Service, Settings};
use body::Body;
use std::collections::VecDeque;

/// Longest head of a request, bytes.
const HEAD_MAX: usize = 64 << 10;
/// Most fields in a head.
const FIELDS_MAX: usize = 100;
/// Bytes of replies after which a connection waits until they are sent.
const TURN: usize = 256 << 10;
/// The body of a 404.
const TOO_LARGE: &str = "The largest body has 67108864 bytes.\n";
/// What is sent before a body that waits for it (RFC 9110 section 15.2.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Bodies that are written with their head; larger ones are made as they are sent.
const SMALL: usize = 64 << 10;

/// A server.
#[derive(Debug)]
pub struct Http {
    size: usize,
    error_status: u16,
    errors: Share,
    drops: Share,
    sessions: Vec<Session>,
    counters: Counts,
}

/// One connection.
#[derive(Debug, Clone, Default)]
struct Session {
    /// Bytes asked to be sent, and those that the network took.
    asked: u64,
    taken: u64,
    /// Responses that it has not taken in full.
    unsent: VecDeque<Unsent>,
    /// What is left of the present request's body; `None`: the next head comes.
    body: Option<Body>,
    /// The present request.
    request: Request,
    /// Nothing more is answered: a reply was left out, or the connection is being closed.
    silent: bool,
    /// A large body is on its way: what comes after it waits.
    waits: bool,
}

/// A response on its way.
#[derive(Debug, Clone, Copy)]
struct Unsent {
    /// What was asked to be sent up to its end.
    end: u64,
    body: u64,
}

/// What a reply depends on.
#[derive(Debug, Clone, Copy, Default)]
struct Request {
    head: bool,
    close: bool,
    http10: bool,
    /// `None`: what is asked for is larger than the largest body.
    size: Option<usize>,
}

#[derive(Debug, Default)]
struct Counts {
    connections: u64,
    open: u64,
    requests: u64,
    responses: u64,
    broken: u64,
    errors: u64,
    dropped: u64,
    bad_requests: u64,
    bytes_received: u64,
    body_bytes: u64,
}

/// A request that is answered by an error and the end of the connection.
struct Refusal(u16);

impl Http {
    /// A server with these settings.
    pub fn new(settings: &Settings) -> Self {
        Self {
            size: settings.size,
            error_status: settings.error_status,
            errors: Share::new(settings.error_share, settings.seed),
            drops: Share::new(settings.drop_share, settings.seed.wrapping_add(1)),
            sessions: Vec::new(),
            counters: Counts::default(),
        }
    }

    /// Read the head of a request. `None`: it has not come whole.
    fn head(&self, bytes: &[u8]) -> Result<Option<(usize, Request, Body, bool)>, Refusal> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut parsed = httparse::Request::new(&mut fields);
        let length = match parsed.parse(bytes) {
            Ok(httparse::Status::Complete(length)) if length <= HEAD_MAX => length,
            Ok(httparse::Status::Partial) if bytes.len() <= HEAD_MAX => return Ok(None),
            Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Refusal(431)),
            Err(httparse::Error::Version) => return Err(Refusal(505)),
            Err(_) => return Err(Refusal(400)),
        };
        let (path, http10) = (parsed.path.unwrap_or_default(), parsed.version == Some(0));
        let mut request = Request {
            head: parsed.method == Some("HEAD"),
            close: http10,
            http10,
            size: named_size(path).unwrap_or(Some(self.size)),
        };
        let (mut content_length, mut chunked, mut awaits, mut host) = (None, false, false, http10);
        for field in parsed.headers.iter() {
            let value = field.value.trim_ascii();
            if field.name.eq_ignore_ascii_case("content-length") {
                let number = digits(value).ok_or(Refusal(400))?;
                // RFC 9112 section 6.3: two that differ are an error
                if content_length.replace(number).is_some_and(|before| before != number) {
                    return Err(Refusal(400));
                }
            } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
                // section 6.1: another coding than chunked is not known here
                if chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Refusal(501));
                }
                chunked = true;
            } else if field.name.eq_ignore_ascii_case("connection") {
                let has = |word: &[u8]| {
                    value.split(|byte| *byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(word))
                };
                request.close = has(b"close") || request.close && !has(b"keep-alive");
            } else if field.name.eq_ignore_ascii_case("expect") {
                awaits = value.eq_ignore_ascii_case(b"100-continue");
            } else if field.name.eq_ignore_ascii_case("host") {
                host = true;
            }
        }
        // RFC 9112 section 3.2 and 6.3: no host, or two ways to say how long the body is
        if !host || chunked && (content_length.is_some() || http10) {
            return Err(Refusal(400));
        }
        let body = if chunked { Body::chunks() } else { Body::bytes(content_length.unwrap_or(0)) };
        Ok(Some((length, request, body, awaits && !http10 && !body.is_over())))
    }

    fn answer(&mut self, id: ConnectionId, session: &mut Session, out: &mut Output) {
        let request = session.request;
        self.counters.requests += 1;
        if self.drops.draw() {
            // what came after it would be taken for its reply
            self.counters.dropped += 1;
            session.silent = true;
            return;
        }
        let failed = self.errors.draw();
        let (status, size, words) = match request.size {
            _ if failed => (self.error_status, 0, ""),
            Some(size) => (200, size, ""),
            None => (404, TOO_LARGE.len(), TOO_LARGE),
        };
        self.counters.errors += u64::from(failed);
        self.counters.bad_requests += u64::from(status == 404 && !failed);
        let body = if request.head { 0 } else { size };
        let small = if body <= SMALL { body } else { 0 };
        let before = out.bytes.len();
        out.send(id, |out| {
            write_head(out, status, size, request.close, request.http10);
            if words.is_empty() || small == 0 {
                out.resize(out.len() + small, b'x');
            } else {
                out.extend_from_slice(words.as_bytes());
            }
        });
        session.asked += (out.bytes.len() - before) as u64;
        if small < body {
            out.fill(id, body);
            session.asked += body as u64;
            session.waits = true;
        }
        session.unsent.push_back(Unsent { end: session.asked, body: body as u64 });
        if request.close {
            session.silent = true;
            out.close(id);
        }
    }

    fn refuse(&mut self, id: ConnectionId, session: &mut Session, status: u16, out: &mut Output) {
        self.counters.bad_requests += 1;
        session.silent = true;
        out.send(id, |out| write_head(out, status, 0, true, false));
        out.close(id);
    }

    /// Take one step: a head, or some of a body. How many bytes; `None`: more has to come.
    fn step(
        &mut self,
        id: ConnectionId,
        session: &mut Session,
        bytes: &[u8],
        out: &mut Output,
    ) -> Result<Option<usize>, Refusal> {
        let used = match &mut session.body {
            Some(body) => match body.skip(bytes).map_err(|_| Refusal(400))? {
                0 if !body.is_over() => return Ok(None),
                used => used,
            },
            None => {
                // section 2.2: an empty line before a request is ignored
                if let Some(rest) = bytes.strip_prefix(b"\r\n") {
                    return Ok(Some(bytes.len() - rest.len()));
                }
                let Some((length, request, body, awaits)) = self.head(bytes)? else { return Ok(None) };
                (session.request, session.body) = (request, Some(body));
                if awaits {
                    out.send(id, |out| out.extend_from_slice(CONTINUE));
                    session.asked += CONTINUE.len() as u64;
                }
                length
            }
        };
        if session.body.as_ref().is_some_and(Body::is_over) {
            session.body = None;
            self.answer(id, session, out);
        }
        Ok(Some(used))
    }
}

impl Service for Http {
    fn opened(&mut self, id: ConnectionId, _: &mut Output) {
        self.counters.connections += 1;
        self.counters.open += 1;
        let slot = id.slot as usize;
        if self.sessions.len() <= slot {
            self.sessions.resize(slot + 1, Session::default());
        }
        self.sessions[slot] = Session::default();
    }

    fn received(&mut self, id: ConnectionId, bytes: &[u8], out: &mut Output) -> usize {
        let Some(session) = self.sessions.get_mut(id.slot as usize) else { return bytes.len() };
        let mut session = std::mem::take(session);
        let (mut used, before) = (0, out.bytes.len());
        session.waits = false;
        while used < bytes.len() && !session.silent && !session.waits && out.bytes.len() - before < TURN {
            match self.step(id, &mut session, &bytes[used..], out) {
                Ok(Some(length)) => used += length,
                Ok(None) => break,
                Err(Refusal(status)) => self.refuse(id, &mut session, status, out),
            }
        }
        if session.silent && !session.waits {
            used = bytes.len();
        }
        self.counters.bytes_received += used as u64;
        self.sessions[id.slot as usize] = session;
        used
    }

    fn sent(&mut self, id: ConnectionId, bytes: usize) {
        let Some(session) = self.sessions.get_mut(id.slot as usize) else { return };
        session.taken += bytes as u64;
        while session.unsent.front().is_some_and(|response| response.end <= session.taken) {
            self.counters.responses += 1;
            self.counters.body_bytes += session.unsent.pop_front().map_or(0, |response| response.body);
        }
    }

    fn timer(&mut self, _: ConnectionId, _: &mut Output) {}

    fn closed(&mut self, id: ConnectionId, _: &mut Output) {
        self.counters.open -= 1;
        if let Some(session) = self.sessions.get_mut(id.slot as usize) {
            self.counters.broken += std::mem::take(session).unsent.len() as u64;
        }
    }

    fn counters(&self) -> Counters {
        let Counts {
            connections,
            open,
            requests,
            responses,
            broken,
            errors,
            dropped,
            bad_requests,
            bytes_received,
            body_bytes,
        } = self.counters;
        Counters::from([
            ("connections", connections),
            ("open_connections", open),
            ("requests", requests),
            ("responses", responses),
            ("broken_responses", broken),
            ("refused_requests", errors),
            ("unanswered_requests", dropped),
            ("bad_requests", bad_requests),
            ("bytes_received", bytes_received),
            ("body_bytes", body_bytes),
        ])
    }
}

fn write_head(out: &mut Vec<u8>, status: u16, size: usize, close: bool, http10: bool) {
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "",
    };
    out.extend_from_slice(b"HTTP/1.1 ");
    number(out, usize::from(status));
    out.push(b' ');
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(
        b"\r\nServer: netdyno\r\nContent-Type: application/octet-stream\r\nContent-Length: ",
    );
    number(out, size);
    if close {
        out.extend_from_slice(b"\r\nConnection: close");
    } else if http10 {
        out.extend_from_slice(b"\r\nConnection: keep-alive");
    }
    out.extend_from_slice(b"\r\n\r\n");
}

fn number(out: &mut Vec<u8>, mut value: usize) {
    let (mut text, mut at) = ([0; 20], 20);
    loop {
        at -= 1;
        text[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&text[at..]);
}

fn digits(text: &[u8]) -> Option<u64> {
    let good = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| good)?.parse().ok()
}

/// The number at the end of a path, and in it `None` if it is larger than the largest body.
fn named_size(path: &str) -> Option<Option<usize>> {
    let path = path.split('?').next()?;
    let last = path.rsplit('/').next()?;
    if last.is_empty() || !last.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(last.parse().ok().filter(|size| *size <= BODY_MAX))
}
