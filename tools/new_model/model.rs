//! NAME client over UDP: one request per interval, each with a reply. The packet is that of SNTP (RFC 5905 section 14).
//!
//! A reply carries the transmit timestamp of its request as origin timestamp; that is how replies find their requests.

use crate::describe::{
    Better, Confirmed, Counter, Delay, Description, FlowLength, ModelKind, ModelParams, SendRate, SizeOption,
    Unit, UrlMapping,
};
use crate::meter::Failure;
use crate::model::{Cx, Model};
use crate::pace::Pace;
use crate::problem::Problem;
use crate::rate_timeline::RateTimeline;
use crate::target::{Scheme, Target};
use crate::time::Time;
use crate::unit::Interval;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

const SCHEMES: &[Scheme] = &[Scheme::udp("NAME", Some(123))];
/// Index into `delays`.
const RESPONSE: usize = 0;
/// Index into `counters`.
const UNSYNCHRONISED: usize = 0;

/// Description of the model, for results, help and reports.
pub const DESCRIPTION: Description = Description {
    name: "NAME",
    about: "NAME client over UDP",
    schemes: SCHEMES,
    delays: &[Delay { name: "response", about: "from the intended send time to the reply" }],
    values: &[],
    counters: &[Counter {
        name: "unsynchronised",
        unit: Unit::Messages,
        about: "Replies of a server whose clock is not synchronised.",
        better: Better::Less,
    }],
    indices: &[],
    confirmed: Confirmed::Always,
    ordered: false,
    quick: Some(UrlMapping {
        messages: "requests",
        device: "client",
        devices: 1,
        count: "count",
        interval: "interval",
        rate: None,
        size: SizeOption::Refused { why: "a request has 48 bytes", fix: "leave out --size" },
        path: None,
        options: &[],
    }),
    texts: &[],
};

/// Parameters of the `NAME` model.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Time from one request to the next. `0s`: the next is sent when the reply arrives. Default `1s`.
    pub interval: Interval,
    /// Requests per flow; 0: until the load ends. Default 0.
    pub count: u32,
    /// A request not answered within this time is lost. Default `1s`.
    pub timeout: Interval,
}

impl Default for Params {
    fn default() -> Self {
        Self { interval: Interval::secs(1), count: 0, timeout: Interval::secs(1) }
    }
}

/// Bytes of a packet without extension fields (RFC 5905 section 7.3).
const LEN: usize = 48;
/// Version 4, mode 3: client.
const CLIENT: u8 = 4 << 3 | 3;
/// Mode 4: server.
const SERVER: u8 = 4;
/// Leap indicator 3: the clock is not synchronised.
const ALARM: u8 = 3;
/// Most requests that one callback sends before other devices are served.
const BATCH: usize = 64;
/// Most requests that may wait for a reply.
const OUTSTANDING_MAX: u64 = 32_768;

/// Prepared parameters, shared by all devices of a group.
#[derive(Debug)]
pub struct Config {
    pace: Pace,
    count: u64,
    timeout: Duration,
}

impl ModelKind for Params {
    const DESCRIPTION: &'static Description = &DESCRIPTION;
    type Config = Config;

    fn compile(&self, _target: &Target) -> Result<Config, Problem> {
        self.check()?;
        Ok(Config { pace: Pace::every(self.interval), count: self.count.into(), timeout: self.timeout.0 })
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
        let waits = self.timeout > Interval::default();
        Problem::unless(waits, "timeout", || "is zero: every request would be lost".into(), "use 1s")?;
        let outstanding = self.timeout.ns() / self.interval.ns().max(1);
        Problem::unless(
            self.interval == Interval::default() || outstanding < OUTSTANDING_MAX,
            "timeout",
            || format!("allows {outstanding} requests without a reply; the limit is {OUTSTANDING_MAX}"),
            "use a shorter timeout or a longer interval",
        )
    }

    fn send_rate(&self) -> Option<SendRate> {
        Some(SendRate { key: "interval", per_second: self.interval.per_second() })
    }

    fn repeats(&self) -> Option<FlowLength> {
        Some(FlowLength { key: "count", count: self.count.into(), interval: self.interval })
    }

    #[cfg(any(test, feature = "testing"))]
    fn for_noise(&mut self, choice: u8, _scheme: &mut Scheme) -> usize {
        use crate::describe::bit;
        self.interval = Interval::ms(u64::from(bit(choice, 0)));
        self.count = 5 * u32::from(bit(choice, 1));
        self.timeout = Interval::ms(20);
        usize::MAX
    }
}

impl Config {
    /// A new device.
    pub fn device(self: &Arc<Self>, _index: u32) -> Device {
        Device {
            config: Arc::clone(self),
            waiting: VecDeque::with_capacity(1),
            next: 0,
            base: Time::ZERO,
            silent: Time::NEVER,
            running: false,
            stopping: false,
        }
    }
}

/// A request without a reply.
#[derive(Debug, Clone, Copy)]
struct Request {
    number: u64,
    intended: Time,
    sent: Time,
}

/// One virtual device.
#[derive(Debug)]
pub struct Device {
    config: Arc<Config>,
    /// Oldest first.
    waiting: VecDeque<Request>,
    /// Number of the next request.
    next: u64,
    /// When the first request was due.
    base: Time,
    /// Send time of the first request after the last reply.
    silent: Time,
    running: bool,
    stopping: bool,
}

impl Model for Device {
    fn start(&mut self, cx: &mut Cx<'_>) {
        self.waiting.clear();
        self.next = 0;
        self.base = cx.intended;
        self.silent = Time::NEVER;
        self.running = true;
        self.stopping = false;
        self.advance(cx);
    }

    fn connected(&mut self, _cx: &mut Cx<'_>) {}

    fn received(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> usize {
        if self.running {
            if let Err(what) = self.reply(cx, bytes) {
                cx.corrupted(cx.now, || what.into());
            }
            self.advance(cx);
        }
        bytes.len()
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        if self.running {
            self.advance(cx);
        }
    }

    fn closed(&mut self, cx: &mut Cx<'_>, why: Failure) {
        if !self.running {
            return;
        }
        // the transport has counted the failure for the oldest request; later requests may still pass
        if why == Failure::Unreachable && !self.config.pace.closed_loop() {
            self.waiting.pop_front();
            return self.advance(cx);
        }
        self.waiting.pop_front();
        self.end(cx, "the socket broke before a reply came");
        cx.give_up();
    }

    fn stop(&mut self, cx: &mut Cx<'_>) {
        if self.running {
            self.missed(cx);
            self.stopping = true;
            self.advance(cx);
        }
    }

    fn abandoned(&mut self, cx: &mut Cx<'_>) {
        self.end(cx, "no reply by the end of the drain");
    }

    fn waiting_since(&self) -> Time {
        if self.running { self.silent } else { Time::NEVER }
    }
}

impl Device {
    /// Count requests that were due and not sent.
    fn missed(&self, cx: &mut Cx<'_>) {
        if self.running && !self.stopping {
            self.config.pace.count_missed(cx, self.base, self.next, self.config.count);
        }
    }

    /// End the flow; requests that still wait get no reply.
    fn end(&mut self, cx: &mut Cx<'_>, what: &str) {
        self.missed(cx);
        for request in self.waiting.drain(..) {
            cx.unanswered(request.intended, what);
        }
        self.running = false;
        cx.wake_at(Time::NEVER);
    }

    fn more(&self, cx: &Cx<'_>) -> bool {
        (self.config.count == 0 || self.next < self.config.count) && !self.stopping && cx.loading()
    }

    /// Give up overdue requests, send those that are due, set the timer; end the flow when nothing is left.
    fn advance(&mut self, cx: &mut Cx<'_>) {
        while let Some(&Request { intended, sent, .. }) = self.waiting.front() {
            if sent + self.config.timeout > cx.now {
                break;
            }
            self.waiting.pop_front();
            cx.unanswered(intended, "no reply in time");
        }
        let closed_loop = self.config.pace.closed_loop();
        for _ in 0..BATCH {
            let free = !closed_loop || self.waiting.is_empty();
            let intended = if closed_loop { cx.now } else { self.config.pace.due(self.base, self.next) };
            if !self.more(cx) || !free || intended > cx.now {
                break;
            }
            self.request(cx, intended);
        }
        if self.waiting.is_empty() {
            self.silent = Time::NEVER;
            if !self.more(cx) {
                self.running = false;
                cx.wake_at(Time::NEVER);
                cx.finish();
                cx.close();
                return;
            }
        }
        let mut at = self.waiting.front().map_or(Time::NEVER, |oldest| oldest.sent + self.config.timeout);
        if self.more(cx) && !closed_loop {
            at = at.min(self.config.pace.due(self.base, self.next));
        }
        cx.wake_at(at.max(cx.now));
    }

    /// Send a request (RFC 5905 section 14: all fields but the first byte and the transmit timestamp may be 0).
    fn request(&mut self, cx: &mut Cx<'_>, intended: Time) {
        let mut packet = [0; LEN];
        packet[0] = CLIENT;
        packet[40..].copy_from_slice(&(self.next + 1).to_be_bytes());
        cx.out.bytes.extend_from_slice(&packet);
        cx.out.segment = LEN;
        cx.sent(intended, LEN);
        self.silent = self.silent.min(cx.now);
        self.waiting.push_back(Request { number: self.next, intended, sent: cx.now });
        self.next += 1;
    }

    fn reply(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> Result<(), &'static str> {
        let Some((&first, origin)) = bytes.first().zip(bytes.get(24..32).and_then(<[u8]>::first_chunk))
        else {
            return Err("a packet shorter than its header");
        };
        if bytes.len() < LEN || first & 7 != SERVER {
            return Err("a packet that is no reply of a server");
        }
        let number = u64::from_be_bytes(*origin).wrapping_sub(1);
        let Some(at) = self.waiting.iter().position(|request| request.number == number) else {
            // a duplicate, or a reply after the timeout
            cx.count_unrequested(cx.now);
            return Ok(());
        };
        if let Some(request) = self.waiting.remove(at) {
            self.silent = cx.now;
            cx.arrived(request.intended, bytes.len());
            cx.delivered(request.intended, RESPONSE);
            if first >> 6 == ALARM {
                cx.count(request.intended, UNSYNCHRONISED);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FlowEnd;
    use crate::testing::Bench;

    fn bench(json: &str) -> Bench<Device> {
        let params: Params = serde_json::from_str(json).expect(json);
        let target = Target { scheme: SCHEMES[0], host: "h".into(), port: 123, ipv6: false };
        Bench::new(Arc::new(params.compile(&target).expect(json)).device(0))
    }

    /// The reply of a server to a request, with a leap indicator.
    fn reply(request: &[u8], leap: u8) -> Vec<u8> {
        let mut reply = vec![0; LEN];
        reply[0] = leap << 6 | 4 << 3 | SERVER;
        reply[24..32].copy_from_slice(&request[40..48]);
        reply
    }

    #[test]
    fn a_reply_gives_the_response_time() {
        let mut device = bench(r#"{"count": 2}"#);
        device.start();
        let request = device.sent();
        assert_eq!((request.len(), request[0]), (LEN, 0x23));
        device.run_to_ms(20);
        device.datagram(&reply(&request, 0));
        device.run_to_ms(1000);
        let request = device.sent();
        device.datagram(&reply(&request, ALARM));
        assert_eq!(device.end, Some(FlowEnd::Completed));
        assert_eq!(device.delay(RESPONSE), (2, 20));
        assert_eq!(device.own(UNSYNCHRONISED), 1);
    }

    #[test]
    fn a_request_without_a_reply_is_lost_and_a_late_reply_does_not_count() {
        let mut device = bench(r#"{"count": 1, "timeout": "300ms", "interval": "2s"}"#);
        device.start();
        device.run_to_ms(299);
        assert_eq!(device.failures(Failure::Unanswered), 0);
        device.run_to_ms(300);
        assert_eq!((device.failures(Failure::Unanswered), device.end), (1, Some(FlowEnd::Completed)));
    }

    #[test]
    fn what_is_no_reply_is_corrupted_and_what_was_not_asked_for_is_counted_apart() {
        let mut device = bench("{}");
        device.start();
        let request = device.sent();
        device.datagram(&request);
        device.datagram(&reply(&request, 0)[..LEN - 1]);
        device.datagram(&[]);
        assert_eq!(device.measured().corrupted, 3);
        let mut other = request.clone();
        other[47] = 9;
        device.datagram(&reply(&other, 0));
        device.datagram(&reply(&request, 0));
        device.datagram(&reply(&request, 0));
        let counts = device.measured();
        assert_eq!((counts.messages_received, counts.messages_delivered), (2, 1));
    }

    #[test]
    fn an_unreachable_server_loses_one_request_and_a_broken_socket_the_flow() {
        let mut device = bench("{}");
        device.start();
        device.closed(Failure::Unreachable);
        assert_eq!(device.end, None);
        device.run_to_ms(1000);
        assert_eq!(device.measured().messages_sent, 2);
        device.closed(Failure::Reset);
        assert_eq!(device.end, Some(FlowEnd::Failed));
        // both failures are the transport's to count
        assert_eq!(device.failures(Failure::Unanswered), 0);
    }

    #[test]
    fn parameters_that_lose_every_request_are_refused() {
        for (json, key) in
            [(r#"{"timeout": "0s"}"#, "timeout"), (r#"{"interval": "1us", "timeout": "1s"}"#, "timeout")]
        {
            let params: Params = serde_json::from_str(json).expect(json);
            assert_eq!(params.check().expect_err(json).key, key);
        }
    }
}
