//! HTTP/1.1 client (RFC 9110 semantics, RFC 9112 syntax).
//!
//! A flow is one connection, the requests of `before` one after the other, and `requests` requests, one after the other or
//! pipelined; with `then` several take turns, with `pause` a device rests after a response: connect → request → response → … → close. When the server closes in between, as it may after any
//! response, the flow connects again and goes on: that is no failure. A request that was on its way as the server
//! closed the idle connection is sent once more, if that is allowed (RFC 9110 §9.2.2).

mod capture;
mod config;
mod description;
mod excerpt;
mod incomplete;
mod params;
mod request;
mod sending;
pub mod wire;

pub use self::capture::Capture;
pub use self::config::Config;
pub use self::description::DESCRIPTION;
pub use self::params::{Params, StepRequest};

use self::capture::CapturedValues;

use self::description::{CLASS_2XX, CONNECT, CONNECTIONS, FIRST_BYTE, IDLE_CLOSES, RESPONSE};
use self::excerpt::ResponseExcerpt;
use self::wire::{Body, MalformedResponse};
use crate::cause::{Cause, HTTP_PORT, other_protocol};
use crate::meter::Failure;
use crate::model::{Cx, Model};
use crate::time::Time;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A response without a value that is to be captured.
const NO_VALUE: &str = "no value to capture";
/// A connection is not used any more this long before the server's announced idle time is over, or a quarter of that
/// time where it is less: the request has to get there.
const IDLE_MARGIN: Duration = Duration::from_secs(1);

impl Config {
    /// A new device.
    pub fn device(self: &Arc<Self>, _index: u32) -> Device {
        Device {
            config: Arc::clone(self),
            waiting: VecDeque::with_capacity(self.depth.min(8)),
            next: 0,
            base: Time::NEVER,
            since: Time::ZERO,
            armed: Time::NEVER,
            idle_by: Time::NEVER,
            reading: None,
            excerpt: None,
            captured: (self.captures > 0).then(|| Box::new(CapturedValues::new(self.captures))),
            length: 0,
            status: 0,
            emitted: 0,
            retried: 0,
            served: false,
            state: State::Idle,
            close: false,
            begun: false,
            empty: None,
            stopping: false,
        }
    }
}

/// A request on its way.
#[derive(Debug, Clone, Copy)]
struct PendingRequest {
    intended: Time,
    sent: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No flow.
    Idle,
    /// Between two connections of a flow.
    Down,
    Connecting,
    Up,
}

/// One virtual device.
#[derive(Debug)]
pub struct Device {
    config: Arc<Config>,
    /// Requests without a complete response, oldest first.
    waiting: VecDeque<PendingRequest>,
    /// Number of the next request.
    next: u64,
    /// When the first request behind those of `before` was due. In a closed loop: when the rest after the last response ends.
    base: Time,
    /// When the connection was asked for.
    since: Time,
    /// When the timer is set to.
    armed: Time,
    /// From when on the server may close an idle connection, by what it has announced.
    idle_by: Time,
    /// The body being read; `None`: a head comes next.
    reading: Option<Body>,
    /// What the server says of a request that it did not serve.
    excerpt: Option<Box<ResponseExcerpt>>,
    /// Values taken from responses, where any are.
    captured: Option<Box<CapturedValues>>,
    /// Bytes of the body being read, if that is known and less than `u32::MAX`.
    length: u32,
    status: u16,
    /// How many of `waiting` were sent on this connection.
    emitted: u16,
    /// How many of `waiting`, from the oldest on, were sent before on a connection that was closed.
    retried: u16,
    /// A whole response has come on this connection.
    served: bool,
    state: State,
    /// The server closes after this response.
    close: bool,
    /// The first byte of this response is here.
    begun: bool,
    /// Why the last response on this connection had no content, whatever its fields say.
    empty: Option<NoContent>,
    stopping: bool,
}

/// A response without content (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoContent {
    ToHead,
    Status204,
    Status304,
}

impl NoContent {
    fn of(to_head: bool, status: u16) -> Option<Self> {
        match status {
            _ if to_head => Some(Self::ToHead),
            204 => Some(Self::Status204),
            304 => Some(Self::Status304),
            _ => None,
        }
    }

    /// The response in words, and the name of the cause when it has content.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::ToHead => ("a response to HEAD", "content in a response to HEAD"),
            Self::Status204 => ("a 204 response", "content in a 204 response"),
            Self::Status304 => ("a 304 response", "content in a 304 response"),
        }
    }
}

impl Model for Device {
    fn start(&mut self, cx: &mut Cx<'_>) {
        self.reset(State::Idle);
        self.next = 0;
        self.base = Time::NEVER;
        self.armed = Time::NEVER;
        self.stopping = false;
        if let Some(captured) = &mut self.captured {
            captured.reset();
        }
        self.connect(cx, cx.intended);
        self.arm(cx);
    }

    fn connected(&mut self, cx: &mut Cx<'_>) {
        cx.delay(self.since, CONNECT);
        cx.count(cx.now, CONNECTIONS);
        self.state = State::Up;
        (self.emitted, self.served, self.idle_by) = (0, false, Time::NEVER);
        let paced = !self.config.pace.closed_loop();
        if paced && self.base == Time::NEVER && self.config.before.is_empty() {
            self.base = cx.now;
        }
        self.pump(cx);
    }

    fn received(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> usize {
        let mut used = 0;
        while used < bytes.len() && self.state == State::Up {
            match self.read(cx, &bytes[used..]) {
                Ok(0) => break,
                Ok(n) => used += n,
                Err(what) => {
                    self.malformed(cx, what, &bytes[used..]);
                    return bytes.len();
                }
            }
        }
        if self.state != State::Idle {
            self.pump(cx);
        }
        if self.state == State::Up { used } else { bytes.len() }
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        self.armed = Time::NEVER;
        if self.state == State::Idle {
            return;
        }
        if self.deadline() <= cx.now {
            let what = if self.state == State::Up { "no response in time" } else { "no connection in time" };
            let begun =
                self.begun.then(|| format!("no whole response in time: it stopped {}", self.place().1));
            self.fail(cx, Cause::named(Failure::Timeout, what), || begun.unwrap_or_else(|| what.into()));
        } else {
            self.pump(cx);
        }
    }

    fn closed(&mut self, cx: &mut Cx<'_>, why: Failure) {
        let whole = self.reading == Some(Body::UntilClose) && !cx.truncated;
        if self.state == State::Up && why == Failure::Closed && whole {
            cx.mark_clean_close();
            self.response_complete(cx);
            if self.state != State::Idle {
                self.pump(cx);
            }
            return;
        }
        if self.state == State::Up && matches!(why, Failure::Closed | Failure::Reset) {
            // RFC 9112 §9.5: an idle connection may be closed at any time
            if self.emitted == 0 || self.may_retry() && self.oldest().idempotent {
                cx.mark_clean_close();
                self.idle_close(cx);
                return self.pump(cx);
            }
            self.explain(cx, why);
        }
        if self.state != State::Idle {
            self.end(cx);
            cx.give_up();
        }
    }

    fn stop(&mut self, cx: &mut Cx<'_>) {
        self.count_missed(cx);
        self.stopping = true;
        if self.state != State::Idle {
            self.pump(cx);
        }
    }

    fn abandoned(&mut self, cx: &mut Cx<'_>) {
        if self.waiting.is_empty() && self.state == State::Connecting {
            cx.never_answered(self.since, "no connection by the end of the drain");
        }
        for message in &self.waiting {
            cx.never_answered(message.intended, "no response by the end of the drain");
        }
        self.reset(State::Idle);
    }

    #[inline]
    fn waiting_since(&self) -> Time {
        self.waiting.front().map_or(Time::NEVER, |oldest| oldest.sent)
    }

    fn overdue(&self, end: Time) -> u64 {
        if !self.is_scheduled() {
            return 0;
        }
        let sent = self.next.saturating_sub(self.config.initial_requests());
        self.config.pace.pending(self.base, sent, self.config.requests, end)
    }

    fn holds_back(&self) -> bool {
        !self.config.pace.closed_loop()
    }
}

impl Device {
    fn reset(&mut self, state: State) {
        self.close_connection(state);
        self.waiting.clear();
        self.retried = 0;
    }

    /// Nothing more comes or goes on this connection.
    fn close_connection(&mut self, state: State) {
        self.state = state;
        self.emitted = 0;
        self.reading = None;
        self.excerpt = None;
        self.begun = false;
        self.empty = None;
        self.close = false;
        self.status = 0;
    }

    /// Whether the connection was an idle one, to the server, and what is on its way on it was not sent again before.
    fn may_retry(&self) -> bool {
        self.served && !self.begun && self.retried == 0
    }

    /// The server has closed an idle connection. What was on its way is to be sent again.
    fn idle_close(&mut self, cx: &mut Cx<'_>) {
        cx.count(cx.now, IDLE_CLOSES);
        self.retried = self.retried.max(self.emitted);
        self.close_connection(State::Down);
    }

    /// Whether requests fall due.
    fn is_scheduled(&self) -> bool {
        self.base != Time::NEVER && !self.stopping && self.state != State::Idle
    }

    /// Requests that fell due and will not be sent any more still count as intended.
    fn count_missed(&mut self, cx: &mut Cx<'_>) {
        if self.is_scheduled() {
            let sent = self.next.saturating_sub(self.config.initial_requests());
            self.config.pace.count_missed(cx, self.base, sent, self.config.requests);
        }
    }

    /// The flow is over. What ended it stands for the oldest request; the others have no answer either.
    fn end(&mut self, cx: &mut Cx<'_>) {
        for message in self.waiting.iter().skip(1) {
            cx.unanswered(message.intended, "pipelined behind a request whose connection was lost");
        }
        self.count_missed(cx);
        self.reset(State::Idle);
        cx.wake_at(Time::NEVER);
    }

    fn connect(&mut self, cx: &mut Cx<'_>, since: Time) {
        self.state = State::Connecting;
        self.since = since;
        cx.connect();
    }

    fn fail(&mut self, cx: &mut Cx<'_>, why: impl Into<Cause>, what: impl FnOnce() -> String) {
        self.end(cx);
        cx.fail(cx.now, why, what);
    }

    /// What the server sent, `bytes`, is no response: maybe it speaks another protocol.
    fn malformed(&mut self, cx: &mut Cx<'_>, what: MalformedResponse, bytes: &[u8]) {
        let head = self.reading.is_none() && matches!(what, MalformedResponse::Head(_));
        if let Some(empty) = self.empty.filter(|_| head || what == MalformedResponse::Unasked) {
            let (response, name) = empty.names();
            let what = MalformedResponse::Content(response);
            return self.fail(cx, Cause::named(Failure::Protocol, name), || what.to_string());
        }
        match other_protocol(bytes).filter(|other| head && *other != HTTP_PORT) {
            Some(other) => {
                self.fail(cx, Cause::named(Failure::Protocol, other), || format!("no HTTP: {other}"));
            }
            None => self.fail(cx, Failure::Protocol, || what.to_string()),
        }
    }

    /// Read one piece of a response. `Ok(0)`: more is needed.
    #[inline]
    fn read(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> Result<usize, MalformedResponse> {
        if !self.begun && matches!(bytes[0], b'\r' | b'\n') {
            // an empty line too many behind a response (RFC 9112 §2.2)
            cx.arrived(cx.now, 1);
            return Ok(1);
        }
        let asked = if self.emitted > 0 { self.waiting.front() } else { None };
        let Some(PendingRequest { intended, .. }) = asked.copied() else {
            return self.unrequested_data(cx, bytes);
        };
        let first = !std::mem::replace(&mut self.begun, true);
        let config = &*self.config;
        let exchange = config.exchange(self.next - self.waiting.len() as u64);
        let mut capture = self.captured.as_deref_mut().filter(|_| !exchange.captures.is_empty());
        let used = match &mut self.reading {
            None => {
                let Some(head) = wire::head(bytes, exchange.head, config.head_limit)? else {
                    if first {
                        cx.delay(intended, FIRST_BYTE);
                    }
                    return Ok(0);
                };
                // RFC 9110 §15.5.9: it waited for a request in vain, and has not seen that of ours which was on its way
                if head.status == 408 && head.close && self.served && self.retried == 0 {
                    cx.arrived(cx.now, bytes.len());
                    self.idle_close(cx);
                    cx.close();
                    return Ok(bytes.len());
                }
                // RFC 9110 §15.2: interim responses come before the one that counts
                match head.status {
                    101 => return Err(MalformedResponse::Switched),
                    100..=199 => self.status = head.status,
                    _ => {
                        self.status = head.status;
                        self.close = head.close || !config.keep_alive;
                        self.empty = NoContent::of(exchange.head, head.status);
                        self.idle_by = head.idle.map_or(Time::NEVER, |secs| idle_by(cx.now, secs));
                        self.length = match head.body {
                            Body::Length(all) => u32::try_from(all).unwrap_or(u32::MAX),
                            _ => 0,
                        };
                        self.reading = Some(head.body);
                        // a request that was not served gives no values; those there are may be in what the server says
                        if !exchange.expects(head.status) {
                            self.excerpt = Some(Box::new(ResponseExcerpt::of(&bytes[..head.len])));
                        } else if let Some(into) = &mut capture {
                            exchange.captures.head(&bytes[..head.len], into);
                        }
                    }
                }
                head.len
            }
            Some(body) => {
                // the data, without the chunked coding around them
                let excerpt = &mut self.excerpt;
                let mut keep = |data: &[u8]| {
                    if let Some(excerpt) = excerpt {
                        excerpt.append(data);
                    } else if let Some(into) = &mut capture {
                        exchange.captures.body(data, into);
                    }
                };
                match body {
                    Body::Length(left) => {
                        let step = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                        *left -= step as u64;
                        keep(&bytes[..step]);
                        step
                    }
                    Body::Chunked(chunked) => chunked.take_to(bytes, keep)?,
                    Body::UntilClose => {
                        keep(bytes);
                        bytes.len()
                    }
                }
            }
        };
        if first {
            cx.delay(intended, FIRST_BYTE);
        }
        cx.arrived(intended, used);
        let whole = match &self.reading {
            Some(Body::Length(left)) => *left == 0,
            Some(Body::Chunked(chunked)) => chunked.is_complete(),
            None | Some(Body::UntilClose) => false,
        };
        if whole {
            let close = self.close;
            self.response_complete(cx);
            if close {
                cx.close();
            }
        }
        Ok(used)
    }

    /// Something came although nothing was asked.
    fn unrequested_data(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> Result<usize, MalformedResponse> {
        match wire::head(bytes, false, self.config.head_limit) {
            Ok(None) => Ok(0),
            // RFC 9110 §15.5.9: it waited for a request in vain, and closes
            Ok(Some(head)) if head.status == 408 => {
                cx.arrived(cx.now, bytes.len());
                self.idle_close(cx);
                cx.close();
                Ok(bytes.len())
            }
            _ => Err(MalformedResponse::Unasked),
        }
    }

    /// The response to the oldest request is complete.
    #[inline]
    fn response_complete(&mut self, cx: &mut Cx<'_>) {
        self.reading = None;
        self.begun = false;
        self.served = true;
        self.emitted = self.emitted.saturating_sub(1);
        self.retried = self.retried.saturating_sub(1);
        let seq = self.next - self.waiting.len() as u64;
        if let Some(PendingRequest { intended, .. }) = self.waiting.pop_front() {
            let status = std::mem::take(&mut self.status);
            // RFC 9110 §15: a status that is no known class, of 600 and above, is an error of the server
            if let Some(class) = usize::from(status / 100).checked_sub(2) {
                cx.count(intended, CLASS_2XX + class.min(3));
            }
            let exchange = self.config.exchange(seq);
            if let Some(rest) = exchange.rest(cx.rng) {
                self.base = cx.now + rest;
            }
            let first = seq < self.config.initial_requests();
            let missing: Option<String> = match &mut self.captured {
                Some(into) if self.excerpt.is_none() && !exchange.captures.is_empty() => {
                    exchange.captures.end(into)
                }
                _ => None,
            };
            let secrets = self.captured.as_deref().map_or(&[][..], |captured| &captured.values);
            let (cause, words) = match (self.excerpt.take(), missing) {
                (None, None) => {
                    cx.delivered(intended, RESPONSE);
                    if seq + 1 == self.config.initial_requests() && !self.config.pace.closed_loop() {
                        self.base = cx.now;
                    }
                    return self.finish_response();
                }
                (Some(excerpt), _) => (excerpt.cause(status), excerpt.text(status, secrets)),
                (None, Some(what)) => {
                    (Cause::named(Failure::Rejected, NO_VALUE), format!("status {status}, and {what}"))
                }
            };
            if first {
                // what comes later builds on it
                return self.fail(cx, cause, || words);
            }
            cx.failure(cx.now, cause, || words);
        }
        self.finish_response();
    }

    /// A response is done with; the connection too, where the server said that it closes.
    #[inline]
    fn finish_response(&mut self) {
        if self.close {
            self.close_connection(State::Down);
        }
    }
}

/// Until when a connection that is idle from `now` on is used, of a server that closes it after so many seconds.
fn idle_by(now: Time, secs: u32) -> Time {
    let said = Duration::from_secs(secs.into());
    now + said.saturating_sub(IDLE_MARGIN.min(said / 4))
}

#[cfg(test)]
mod before_tests;
#[cfg(test)]
mod no_content_tests;
#[cfg(test)]
mod request_tests;
#[cfg(test)]
mod round_tests;
#[cfg(test)]
mod tests;
