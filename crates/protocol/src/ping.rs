//! ICMP echo (RFC 792 for IPv4, RFC 4443 for IPv6).
//!
//! A flow is a series of echo requests, each with its number; the other side returns them as they are.

use crate::describe::{
    Confirmed, Delay, Description, FlowLength, ModelKind, ModelParams, Replies, SendRate, SizeOption,
    UrlMapping,
};
use crate::meter::Failure;
use crate::model::{Cx, Model};
use crate::pace::Pace;
use crate::problem::Problem;
use crate::rate_timeline::RateTimeline;
use crate::target::{Scheme, Target};
use crate::time::Time;
use crate::unit::{Interval, Size};
use packet::signature::{self, Signature};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

const SCHEMES: &[Scheme] = &[Scheme::icmp("ping")];
const ROUND_TRIP: usize = 0;

/// What it is.
pub const DESCRIPTION: Description = Description {
    name: "ping",
    about: "ICMP echo",
    schemes: SCHEMES,
    delays: &[Delay { name: "round_trip", about: "from the intended send time to the echo reply" }],
    values: &[],
    counters: &[],
    indices: &[],
    confirmed: Confirmed::Always,
    ordered: false,
    quick: Some(UrlMapping {
        messages: "echo requests",
        device: "device",
        devices: 1,
        count: "count",
        interval: "interval",
        rate: None,
        size: SizeOption::Key("size"),
        path: None,
        options: &[],
    }),
    texts: &[],
};

/// Parameters of the `ping` model.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Bytes after the 8-byte ICMP header. Default `56B`, at most `65507B`.
    pub size: Size,
    /// Time from one echo request to the next. `0s`: the next is due when the former is answered or given up.
    /// Default `1s`.
    pub interval: Interval,
    /// Echo requests per flow; 0: until the load ends. Default 0.
    pub count: u32,
    /// An echo not answered within this time is lost. Default `1s`.
    pub timeout: Interval,
}

impl Default for Params {
    fn default() -> Self {
        Self { size: Size(56), interval: Interval::secs(1), count: 0, timeout: Interval::secs(1) }
    }
}

/// Bytes of the ICMP echo header.
const HEADER: usize = 8;
/// Largest payload: what an IPv4 packet holds (65535 − 20 − 8).
const SIZE_MAX: Size = Size(65_507);
/// Most echoes that may be unanswered at a time: half of what 16 bits of sequence number can tell apart.
const OUTSTANDING_MAX: u128 = 32_768;
/// How many answered echoes are remembered to know duplicates by.
const REMEMBERED: usize = 64;
/// How many echoes one callback sends before other devices are served.
const BATCH: usize = 64;

// RFC 792, RFC 4443 §4: types
const REPLY_V4: u8 = 0;
const UNREACHABLE_V4: u8 = 3;
const REQUEST_V4: u8 = 8;
const EXCEEDED_V4: u8 = 11;
const UNREACHABLE_V6: u8 = 1;
const EXCEEDED_V6: u8 = 3;
const REQUEST_V6: u8 = 128;
const REPLY_V6: u8 = 129;

/// What is the same for all devices of a group.
#[derive(Debug)]
pub struct Config {
    ipv6: bool,
    /// The payload, where the signature does not stand.
    payload: Box<[u8]>,
    pace: Pace,
    count: u64,
    timeout: Duration,
}

impl ModelKind for Params {
    const DESCRIPTION: &'static Description = &DESCRIPTION;
    type Config = Config;

    fn compile(&self, target: &Target) -> Result<Config, Problem> {
        self.check()?;
        Ok(Config {
            ipv6: target.ipv6,
            payload: (0..self.size.bytes()).map(|i| i as u8).collect(),
            pace: Pace::every(self.interval),
            count: u64::from(self.count),
            timeout: self.timeout.0,
        })
    }

    fn timeline(config: &Config) -> Option<&Arc<RateTimeline>> {
        Some(config.pace.timeline())
    }
}

impl ModelParams for Params {
    fn about(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn check(&self) -> Result<(), Problem> {
        let Params { size, interval, timeout, .. } = *self;
        Problem::unless(size <= SIZE_MAX, "size", || format!("{size} is too large"), "use at most 65507B")?;
        let waits = timeout > Interval::default();
        Problem::unless(waits, "timeout", || "is zero, so every echo would be lost".into(), "use 1s")?;
        let outstanding = u128::from(timeout.ns()) / u128::from(interval.ns().max(1));
        Problem::unless(
            interval == Interval::default() || outstanding < OUTSTANDING_MAX,
            "timeout",
            || format!("lets {outstanding} echoes be unanswered, more than sequence numbers can tell apart"),
            "use a shorter timeout or a longer interval",
        )
    }

    fn compares(&self) -> bool {
        true
    }

    fn send_rate(&self) -> Option<SendRate> {
        Some(SendRate { key: "interval", per_second: self.interval.per_second() })
    }

    fn repeats(&self) -> Option<FlowLength> {
        Some(FlowLength { key: "count", count: self.count.into(), interval: self.interval })
    }

    fn replies(&self) -> Option<Replies> {
        // without an interval one echo is under way
        let per_second = self.interval.per_second();
        (per_second > 0.0).then(|| Replies { per_second, burst: 1.0, bytes: self.size.bytes() as f64 })
    }

    #[cfg(any(test, feature = "testing"))]
    fn for_noise(&mut self, choice: u8, _scheme: &mut Scheme) -> usize {
        use crate::describe::bit;
        self.size = Size(u64::from(choice & 31));
        self.interval = Interval::ms(u64::from(bit(choice, 5)));
        self.timeout = Interval::ms(20);
        self.count = 5 * u32::from(bit(choice, 6));
        usize::MAX
    }
}

impl Config {
    /// A new device.
    pub fn device(self: &Arc<Self>, _index: u32) -> Device {
        Device {
            config: Arc::clone(self),
            echoes: VecDeque::with_capacity(1),
            next: 0,
            base: Time::ZERO,
            armed: Time::NEVER,
            silent: Time::NEVER,
            running: false,
            stopping: false,
        }
    }
}

/// An echo request that was sent.
#[derive(Debug, Clone, Copy)]
struct Echo {
    intended: Time,
    sent: Time,
    /// Answered, or known to be lost.
    done: bool,
}

/// One virtual device.
#[derive(Debug)]
pub struct Device {
    config: Arc<Config>,
    /// The latest echoes, oldest first; the last is number `next - 1`. Each has a time-out, is settled by an ICMP error too,
    /// and in a closed loop was due when no number tells: a `SequenceWindow` would stand beside this, not in its place.
    echoes: VecDeque<Echo>,
    /// Number of the next echo.
    next: u64,
    /// When the first was due.
    base: Time,
    /// When the timer is set to.
    armed: Time,
    /// When the first echo was sent after the last reply, as long as one of them may be answered.
    silent: Time,
    running: bool,
    stopping: bool,
}

impl Model for Device {
    fn start(&mut self, cx: &mut Cx<'_>) {
        self.echoes.clear();
        self.next = 0;
        self.base = cx.intended;
        self.armed = Time::NEVER;
        self.silent = Time::NEVER;
        self.running = true;
        self.stopping = false;
        self.pump(cx);
    }

    fn connected(&mut self, _cx: &mut Cx<'_>) {}

    fn received(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> usize {
        if self.running {
            if let Err(what) = self.message(cx, bytes) {
                cx.corrupted(cx.now, || what.into());
            }
            self.pump(cx);
        }
        bytes.len()
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        self.armed = Time::NEVER;
        if self.running {
            self.pump(cx);
        }
    }

    fn closed(&mut self, cx: &mut Cx<'_>, why: Failure) {
        if !self.running {
            return;
        }
        // one echo could not be sent or was refused on its way: the next is tried when it is due
        if why == Failure::Unreachable && !self.config.pace.closed_loop() {
            if let Some(oldest) = self.echoes.iter_mut().find(|echo| !echo.done) {
                oldest.done = true;
            }
            return self.pump(cx);
        }
        self.end(cx);
        cx.give_up();
    }

    fn stop(&mut self, cx: &mut Cx<'_>) {
        if self.running {
            self.count_missed(cx);
            self.stopping = true;
            self.pump(cx);
        }
    }

    fn abandoned(&mut self, cx: &mut Cx<'_>) {
        self.forget(cx, 0, "no echo reply by the end of the drain");
        self.running = false;
    }

    #[inline]
    fn waiting_since(&self) -> Time {
        if self.running { self.silent } else { Time::NEVER }
    }

    fn overdue(&self, end: Time) -> u64 {
        let sends = self.running && !self.stopping;
        if sends { self.config.pace.pending(self.base, self.next, self.config.count, end) } else { 0 }
    }
}

impl Device {
    fn count_missed(&mut self, cx: &mut Cx<'_>) {
        if !self.stopping {
            self.config.pace.count_missed(cx, self.base, self.next, self.config.count);
        }
    }

    /// Echoes that have no reply now get none. The first `stood_for` of them have been counted with what happened.
    fn forget(&mut self, cx: &mut Cx<'_>, stood_for: usize, what: &str) {
        for echo in self.echoes.iter().filter(|echo| !echo.done).skip(stood_for) {
            cx.unanswered(echo.intended, what);
        }
        self.echoes.clear();
    }

    fn end(&mut self, cx: &mut Cx<'_>) {
        self.count_missed(cx);
        self.forget(cx, 1, "the socket broke before a reply came");
        self.running = false;
        self.armed = Time::NEVER;
        cx.wake_at(Time::NEVER);
    }

    fn has_more(&self, cx: &Cx<'_>) -> bool {
        (self.config.count == 0 || self.next < self.config.count) && !self.stopping && cx.loading()
    }

    /// Give up on what is overdue, send what is due, end the flow when nothing is left.
    fn pump(&mut self, cx: &mut Cx<'_>) {
        while let Some(&Echo { intended, sent, done }) = self.echoes.front() {
            let overdue = sent + self.config.timeout <= cx.now;
            if !(overdue || done && self.echoes.len() > REMEMBERED) {
                break;
            }
            self.echoes.pop_front();
            if !done {
                cx.unanswered(intended, "no echo reply in time");
            }
        }
        let closed_loop = self.config.pace.closed_loop();
        let mut batch = 0;
        while self.has_more(cx) {
            let free = !closed_loop || self.echoes.back().is_none_or(|last| last.done);
            let intended = if closed_loop { cx.now } else { self.config.pace.due(self.base, self.next) };
            if !free || intended > cx.now || batch == BATCH {
                break;
            }
            batch += 1;
            let len = self.emit(cx, intended);
            cx.sent(intended, len);
            self.silent = self.silent.min(cx.now);
            self.echoes.push_back(Echo { intended, sent: cx.now, done: false });
            self.next += 1;
        }
        let waiting = self.echoes.iter().any(|echo| !echo.done);
        if !waiting {
            self.silent = Time::NEVER;
        }
        if !waiting && !self.has_more(cx) {
            self.end(cx);
            cx.finish();
            cx.close();
            return;
        }
        let mut at = match self.echoes.front() {
            Some(oldest) => oldest.sent + self.config.timeout,
            None => Time::NEVER,
        };
        if self.has_more(cx) && !closed_loop {
            at = at.min(self.config.pace.due(self.base, self.next));
        }
        if at < self.armed {
            self.armed = at.max(cx.now);
            cx.wake_at(self.armed);
        }
    }

    /// Append an echo request (RFC 792 page 14, RFC 4443 §4.1); returns its length.
    fn emit(&self, cx: &mut Cx<'_>, intended: Time) -> usize {
        let config = &*self.config;
        let len = HEADER + config.payload.len();
        let start = cx.out.bytes.len();
        let request = if config.ipv6 { REQUEST_V6 } else { REQUEST_V4 };
        cx.out.bytes.extend_from_slice(&[request, 0, 0, 0]);
        // kernel ping sockets put their own identifier here
        cx.out.bytes.extend_from_slice(&(cx.device as u16).to_be_bytes());
        cx.out.bytes.extend_from_slice(&(self.next as u16).to_be_bytes());
        cx.out.bytes.extend_from_slice(&config.payload);
        let message = &mut cx.out.bytes[start..];
        if let Some(place) = message[HEADER..].first_chunk_mut() {
            let stream = cx.device & signature::STREAM_MAX;
            Signature { stream, sequence: self.next, sent_ns: intended.0 }.emit(place);
        }
        // over IPv6 the addresses are part of the sum (RFC 4443 §2.3): that is left to the network layer
        if !config.ipv6 {
            let sum = checksum(message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        cx.out.segment = len;
        len
    }

    fn message(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> Result<(), &'static str> {
        let Some((&[kind, code, ..], payload)) = bytes.split_first_chunk::<HEADER>() else {
            return Err("an ICMP message shorter than its header");
        };
        // a name may have addresses of both families: the reply says which one it is from
        let summed = kind == REPLY_V4 || !self.config.ipv6 && kind != REPLY_V6;
        if summed && checksum(bytes) != 0 {
            return Err("an ICMP message with a wrong checksum");
        }
        match (self.config.ipv6, kind, code) {
            (_, REPLY_V4 | REPLY_V6, 0) => self.reply(cx, bytes, payload),
            (false, UNREACHABLE_V4 | EXCEEDED_V4, _) => {
                // behind the IPv4 header are the first 8 bytes of what could not be delivered (RFC 792)
                let header = usize::from(payload.first().map_or(0, |first| first & 15)) * 4;
                self.undelivered(cx, payload.get(header..), REQUEST_V4)
            }
            (true, UNREACHABLE_V6 | EXCEEDED_V6, _) => self.undelivered(cx, payload.get(40..), REQUEST_V6),
            // our own request, seen on a loopback; anything else is not for us
            _ => Ok(()),
        }
    }

    /// The echo that a 16-bit sequence number means, if it was sent.
    fn number(&self, sequence: u16) -> Option<u64> {
        let last = self.next.checked_sub(1)?;
        last.checked_sub(u64::from((last as u16).wrapping_sub(sequence)))
    }

    fn find(&mut self, number: u64) -> Option<&mut Echo> {
        let first = self.next - self.echoes.len() as u64;
        self.echoes.get_mut(usize::try_from(number.checked_sub(first)?).ok()?)
    }

    fn reply(&mut self, cx: &mut Cx<'_>, bytes: &[u8], payload: &[u8]) -> Result<(), &'static str> {
        let number = self.number(u16::from_be_bytes([bytes[6], bytes[7]])).ok_or("a reply to no request")?;
        let echo = self.find(number).map(|echo| echo.intended);
        // RFC 792, RFC 4443 §4.2: the data come back as they were
        let same = match Signature::parse(payload) {
            Some(mark) => {
                let rest = payload.get(signature::LEN..) == self.config.payload.get(signature::LEN..);
                let time = echo.is_none_or(|intended| intended.0 == mark.sent_ns);
                rest && time && mark.stream == cx.device & signature::STREAM_MAX && mark.sequence == number
            }
            None => payload == &*self.config.payload && payload.len() < signature::LEN,
        };
        if !same {
            return Err("a reply with another payload than the request");
        }
        match self.find(number) {
            Some(Echo { done: true, intended, .. }) => {
                let intended = *intended;
                cx.at(intended).counts.duplicates += 1;
            }
            Some(echo) => {
                echo.done = true;
                let intended = echo.intended;
                // those still on their way are waited for from now on
                self.silent = cx.now;
                cx.arrived(intended, bytes.len());
                cx.delivered(intended, ROUND_TRIP);
            }
            // already counted as lost
            None => cx.count_unrequested(cx.now),
        }
        Ok(())
    }

    fn undelivered(
        &mut self,
        cx: &mut Cx<'_>,
        inner: Option<&[u8]>,
        request: u8,
    ) -> Result<(), &'static str> {
        // cut short it says nothing
        let Some(inner) = inner.and_then(<[u8]>::first_chunk::<HEADER>) else { return Ok(()) };
        let number = self.number(u16::from_be_bytes([inner[6], inner[7]]));
        if let (true, Some(number)) = (inner[0] == request, number)
            && let Some(echo) = self.find(number).filter(|echo| !echo.done)
        {
            echo.done = true;
            let intended = echo.intended;
            cx.failure(intended, Failure::Unreachable, || "an ICMP error instead of an echo reply".into());
        }
        Ok(())
    }
}

/// Internet checksum (RFC 1071) of a whole message; 0 when the checksum in it is right.
fn checksum(bytes: &[u8]) -> u16 {
    let pairs = bytes.chunks(2).map(|pair| match *pair {
        [high, low] => u64::from(u16::from_be_bytes([high, low])),
        [high] => u64::from(high) << 8,
        _ => 0,
    });
    let mut sum: u64 = pairs.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests;
