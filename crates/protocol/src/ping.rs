//! ICMP echo (RFC 792 for IPv4, RFC 4443 for IPv6).
//!
//! A flow is a series of echo requests, each with its number; the other side returns them as they are.

use crate::meter::Failure;
use crate::model::{Cx, Model};
use crate::pace::Pace;
use crate::problem::Problem;
use crate::registry::{Carrier, Scheme, Target};
use crate::time::Time;
use crate::unit::{Interval, Size};
use packet::signature::{self, Signature};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Where it can be pointed at.
pub const SCHEMES: &[Scheme] = &[Scheme { name: "ping", port: None, carrier: Carrier::Icmp, tls: false }];

/// What it measures: intended send time to echo reply.
pub const DELAYS: &[&str] = &["round_trip"];
const ROUND_TRIP: usize = 0;

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
/// How many echoes one callback sends before others get their turn.
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
pub struct Plan {
    ipv6: bool,
    /// The payload, where the signature does not stand.
    payload: Box<[u8]>,
    pace: Pace,
    count: u64,
    timeout: Duration,
}

impl Params {
    /// Whether the values make sense, and make sense together.
    pub fn check(&self) -> Result<(), Problem> {
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

    /// Check, and prepare what all devices share.
    pub fn compile(&self, target: &Target) -> Result<Plan, Problem> {
        self.check()?;
        Ok(Plan {
            ipv6: target.ipv6,
            payload: (0..self.size.bytes()).map(|i| i as u8).collect(),
            pace: Pace::every(self.interval),
            count: u64::from(self.count),
            timeout: self.timeout.0,
        })
    }
}

impl Plan {
    /// A new device.
    pub fn device(self: &Arc<Self>, _index: u32) -> Device {
        Device {
            plan: Arc::clone(self),
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
    plan: Arc<Plan>,
    /// The latest echoes, oldest first; the last is number `next - 1`.
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
        if why == Failure::Unreachable && !self.plan.pace.closed_loop() {
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
            self.missed(cx);
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
}

impl Device {
    fn missed(&mut self, cx: &mut Cx<'_>) {
        if !self.stopping {
            self.plan.pace.missed(cx, self.base, self.next, self.plan.count);
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
        self.missed(cx);
        self.forget(cx, 1, "the socket broke before a reply came");
        self.running = false;
        self.armed = Time::NEVER;
        cx.wake_at(Time::NEVER);
    }

    fn more(&self, cx: &Cx<'_>) -> bool {
        (self.plan.count == 0 || self.next < self.plan.count) && !self.stopping && cx.loading()
    }

    /// Give up on what is overdue, send what is due, end the flow when nothing is left.
    fn pump(&mut self, cx: &mut Cx<'_>) {
        while let Some(&Echo { intended, sent, done }) = self.echoes.front() {
            let overdue = sent + self.plan.timeout <= cx.now;
            if !(overdue || done && self.echoes.len() > REMEMBERED) {
                break;
            }
            self.echoes.pop_front();
            if !done {
                cx.unanswered(intended, "no echo reply in time");
            }
        }
        let pace = self.plan.pace;
        let mut batch = 0;
        while self.more(cx) {
            let free = !pace.closed_loop() || self.echoes.back().is_none_or(|last| last.done);
            let intended = if pace.closed_loop() { cx.now } else { pace.due(self.base, self.next) };
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
        if !waiting && !self.more(cx) {
            self.end(cx);
            cx.finish();
            cx.close();
            return;
        }
        let mut at = match self.echoes.front() {
            Some(oldest) => oldest.sent + self.plan.timeout,
            None => Time::NEVER,
        };
        if self.more(cx) && !pace.closed_loop() {
            at = at.min(pace.due(self.base, self.next));
        }
        if at < self.armed {
            self.armed = at.max(cx.now);
            cx.wake_at(self.armed);
        }
    }

    /// Append an echo request (RFC 792 page 14, RFC 4443 §4.1); returns its length.
    fn emit(&self, cx: &mut Cx<'_>, intended: Time) -> usize {
        let plan = &*self.plan;
        let len = HEADER + plan.payload.len();
        let start = cx.out.bytes.len();
        let request = if plan.ipv6 { REQUEST_V6 } else { REQUEST_V4 };
        cx.out.bytes.extend_from_slice(&[request, 0, 0, 0]);
        // kernel ping sockets put their own identifier here
        cx.out.bytes.extend_from_slice(&(cx.device as u16).to_be_bytes());
        cx.out.bytes.extend_from_slice(&(self.next as u16).to_be_bytes());
        cx.out.bytes.extend_from_slice(&plan.payload);
        let message = &mut cx.out.bytes[start..];
        if let Some(place) = message[HEADER..].first_chunk_mut() {
            let stream = cx.device as u16;
            Signature { stream, sequence: self.next, sent_ns: intended.0 }.emit(place);
        }
        // over IPv6 the addresses are part of the sum (RFC 4443 §2.3): that is left to the network layer
        if !plan.ipv6 {
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
        if !self.plan.ipv6 && checksum(bytes) != 0 {
            return Err("an ICMP message with a wrong checksum");
        }
        match (self.plan.ipv6, kind, code) {
            (false, REPLY_V4, 0) | (true, REPLY_V6, 0) => self.reply(cx, bytes, payload),
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
                let rest = payload.get(signature::LEN..) == self.plan.payload.get(signature::LEN..);
                let time = echo.is_none_or(|intended| intended.0 == mark.sent_ns);
                rest && time && mark.stream == cx.device as u16 && mark.sequence == number
            }
            None => payload == &*self.plan.payload && payload.len() < signature::LEN,
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
            None => cx.unasked(cx.now),
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
mod tests {
    use super::*;
    use crate::meter::Phase;
    use crate::model::End;
    use crate::testing::{Bench, assault};
    use proptest::prelude::*;

    fn plan(json: &str, ipv6: bool) -> Arc<Plan> {
        let params: Params = serde_json::from_str(json).expect(json);
        let target = Target { scheme: SCHEMES[0], host: "h".into(), port: 0, ipv6 };
        Arc::new(params.compile(&target).expect(json))
    }

    fn bench(json: &str) -> Bench<Device> {
        Bench::new(plan(json, false).device(0))
    }

    /// What a host answers to each request in `sent` (RFC 1122 §3.2.2.6).
    fn replies(sent: &[u8], each: usize) -> Vec<Vec<u8>> {
        let reply = |request: &[u8]| {
            let mut reply = request.to_vec();
            reply[0] = if request[0] == REQUEST_V6 { REPLY_V6 } else { REPLY_V4 };
            reply[2..4].fill(0);
            let sum = checksum(&reply);
            reply[2..4].copy_from_slice(&sum.to_be_bytes());
            reply
        };
        sent.chunks(each).map(reply).collect()
    }

    fn answer(bench: &mut Bench<Device>) {
        let each = bench.out.segment;
        let sent = bench.sent();
        replies(&sent, each.max(1)).iter().for_each(|reply| bench.datagram(reply));
    }

    #[test]
    fn a_device_is_small() {
        assert!(std::mem::size_of::<Device>() <= 80, "{}", std::mem::size_of::<Device>());
    }

    #[test]
    fn requests_look_as_the_rfcs_have_them() {
        let mut v4 = bench(r#"{"size": "4B"}"#);
        v4.start();
        assert_eq!(v4.out.segment, 12);
        assert_eq!(v4.sent(), [8, 0, 0xf5, 0xfb, 0, 0, 0, 0, 0, 1, 2, 3]);
        let mut v6 = Bench::new(plan(r#"{"size": "20B"}"#, true).device(0));
        v6.start();
        let sent = v6.sent();
        assert_eq!(
            (sent.len(), &sent[..8], &sent[26..]),
            (28, &[128, 0, 0, 0, 0, 0, 0, 0][..], &[18, 19][..])
        );
        assert!(Signature::parse(&sent[8..]).is_some());
        // the example of RFC 1071 §3
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(checksum(&[1]), !0x0100);
    }

    #[test]
    fn replies_give_the_round_trip() {
        for (json, ipv6) in [(r#"{"count": 3}"#, false), (r#"{"count": 3, "size": "0B"}"#, true)] {
            let mut ping = Bench::new(plan(json, ipv6).device(0));
            ping.start();
            for i in 0..3 {
                ping.run_to_ms(1000 * i + 20);
                answer(&mut ping);
            }
            assert_eq!(ping.end, Some(End::Completed));
            assert_eq!(ping.delay(ROUND_TRIP), (3, 20));
            assert_eq!(ping.measured().messages_delivered, 3);
            assert_eq!(ping.measured().bytes_sent, ping.measured().bytes_received);
        }
    }

    #[test]
    fn what_does_not_come_back_is_lost_and_what_comes_late_too() {
        let mut ping = bench(r#"{"count": 2, "interval": "100ms", "timeout": "300ms"}"#);
        ping.start();
        let first = ping.sent();
        ping.run_to_ms(299);
        assert_eq!(ping.failures(Failure::Unanswered), 0);
        ping.run_to_ms(300);
        assert_eq!(ping.failures(Failure::Unanswered), 1);
        ping.datagram(&replies(&first, 64)[0]);
        assert_eq!((ping.measured().messages_delivered, ping.measured().messages_received), (0, 1));
        ping.run_to_ms(400);
        assert_eq!((ping.failures(Failure::Unanswered), ping.end), (2, Some(End::Completed)));
    }

    #[test]
    fn an_echo_that_nothing_comes_of_is_lost_in_the_phase_it_was_due_in() {
        let mut ping = bench(r#"{"interval": "1s", "timeout": "1h"}"#);
        ping.window.measure = Time(1_500_000_000);
        ping.start();
        ping.run_to_ms(4_500);
        ping.abandon();
        let unanswered = |phase| ping.counts(phase).failures[Failure::Unanswered as usize];
        assert_eq!((unanswered(Phase::Warmup), unanswered(Phase::Measure)), (2, 3));
        // a socket that breaks is counted once, for the oldest
        let mut broken = bench(r#"{"interval": "1s", "timeout": "1h"}"#);
        broken.start();
        broken.run_to_ms(2_500);
        broken.closed(Failure::Local);
        assert_eq!((broken.end, broken.failures(Failure::Unanswered)), (Some(End::Failed), 2));
    }

    #[test]
    fn it_waits_from_the_first_echo_after_the_last_reply() {
        let mut ping = bench(r#"{"interval": "100ms", "timeout": "1s"}"#);
        ping.start();
        answer(&mut ping);
        assert_eq!(ping.model.waiting_since(), Time::NEVER);
        ping.run_to_ms(350);
        assert_eq!(ping.model.waiting_since(), Time(100_000_000));
        // one of the three is lost
        let sent = ping.sent();
        ping.datagram(&replies(&sent[64..128], 64)[0]);
        assert_eq!(ping.model.waiting_since(), Time(350_000_000));
        ping.run_to_ms(5_000);
        assert_eq!(ping.model.waiting_since(), Time(350_000_000), "echoes go on, and none is answered");
        // what is given up before the next is sent is not waited for
        let mut slow = bench(r#"{"interval": "5s", "timeout": "1s"}"#);
        slow.start();
        slow.run_to_ms(999);
        assert_eq!(slow.model.waiting_since(), Time::ZERO);
        slow.run_to_ms(1_000);
        assert_eq!(slow.model.waiting_since(), Time::NEVER);
    }

    #[test]
    fn a_second_reply_is_a_duplicate() {
        let mut ping = bench("{}");
        ping.start();
        let reply = replies(&ping.sent(), 64).remove(0);
        ping.datagram(&reply);
        ping.datagram(&reply);
        assert_eq!((ping.measured().messages_delivered, ping.measured().duplicates), (1, 1));
    }

    #[test]
    fn without_interval_the_next_follows_the_reply_or_its_loss() {
        let mut ping = bench(r#"{"interval": "0s", "timeout": "1s"}"#);
        ping.start();
        for _ in 0..1000 {
            answer(&mut ping);
        }
        assert_eq!(ping.measured().messages_delivered, 1000);
        assert!(ping.model.echoes.len() <= REMEMBERED + 1, "memory is bounded");
        ping.sent();
        ping.run_to_ms(1500);
        assert_eq!((ping.failures(Failure::Unanswered), ping.measured().messages_sent), (1, 1002));
    }

    #[test]
    fn sequence_numbers_wrap() {
        let mut ping = bench(r#"{"interval": "1us", "timeout": "1ms", "size": "18B"}"#);
        ping.start();
        for us in 1..70_000 {
            answer(&mut ping);
            ping.run_to(Time(us * 1000));
        }
        assert_eq!(ping.measured().messages_delivered, 69_999);
        assert_eq!(ping.complaints, [""; 0]);
    }

    #[test]
    fn what_is_not_our_reply_is_told() {
        let mut ping = bench("{}");
        ping.start();
        let reply = replies(&ping.sent(), 64).remove(0);
        let changed = |at: usize, fix: bool| {
            let mut bytes = reply.clone();
            bytes[at] ^= 1;
            if fix {
                bytes[2..4].fill(0);
                let sum = checksum(&bytes);
                bytes[2..4].copy_from_slice(&sum.to_be_bytes());
            }
            bytes
        };
        for (bytes, what) in [
            (reply[..7].to_vec(), "an ICMP message shorter than its header"),
            (changed(40, false), "an ICMP message with a wrong checksum"),
            (changed(40, true), "a reply with another payload than the request"),
            (changed(11, true), "a reply with another payload than the request"),
            (changed(7, true), "a reply to no request"),
        ] {
            ping.datagram(&bytes);
            assert_eq!(ping.complaints.pop().as_deref(), Some(what));
        }
        assert_eq!((ping.measured().corrupted, ping.end), (5, None), "the flow goes on");
        assert_eq!(ping.measured().failures, <[u64; Failure::ALL.len()]>::default());
        ping.datagram(&changed(0, true));
        ping.datagram(&reply);
        assert_eq!(ping.measured().messages_delivered, 1);
    }

    #[test]
    fn an_icmp_error_ends_the_wait_for_its_echo() {
        let mut ping = bench(r#"{"count": 1}"#);
        ping.start();
        let request = ping.sent();
        let mut error = vec![UNREACHABLE_V4, 1, 0, 0, 0, 0, 0, 0, 0x45];
        error.resize(28, 0);
        error.extend_from_slice(&request[..8]);
        let sum = checksum(&error);
        error[2..4].copy_from_slice(&sum.to_be_bytes());
        ping.datagram(&error);
        assert_eq!((ping.failures(Failure::Unreachable), ping.end), (1, Some(End::Completed)));
        // told by the socket instead: the next echo is tried when it is due
        let mut ping = bench(r#"{"count": 2}"#);
        ping.start();
        ping.closed(Failure::Unreachable);
        ping.sent();
        ping.run_to_ms(1000);
        answer(&mut ping);
        assert_eq!((ping.measured().messages_delivered, ping.end), (1, Some(End::Completed)));
        let mut denied = bench("{}");
        denied.start();
        denied.closed(Failure::Local);
        assert_eq!(denied.end, Some(End::Failed));
    }

    #[test]
    fn stop_waits_for_replies() {
        let mut ping = bench(r#"{"interval": "10ms"}"#);
        ping.window.drain = Time(15_000_000);
        ping.start();
        ping.run_to_ms(15);
        ping.stop();
        assert_eq!(ping.end, None);
        answer(&mut ping);
        assert_eq!(ping.end, Some(End::Completed));
        assert_eq!((ping.measured().messages_intended, ping.counts(Phase::Drain).messages_intended), (2, 0));
    }

    #[test]
    fn wrong_parameters_are_explained() {
        let problem = |json: &str| {
            let params: Params = serde_json::from_str(json).expect(json);
            params.check().expect_err(json).to_string()
        };
        assert!(problem(r#"{"size": "65508B"}"#).starts_with("size"));
        assert!(problem(r#"{"timeout": "0s"}"#).starts_with("timeout"));
        assert!(problem(r#"{"interval": "1us", "timeout": "32768us"}"#).contains("32768 echoes"));
        plan(r#"{"interval": "1us", "timeout": "32767us", "size": "65507B"}"#, false);
    }

    proptest! {
        /// Whoever changes it may make the message's checksum right again.
        #[test]
        fn no_bit_of_the_payload_can_change_unseen(
            size in 0u32..200, bit: prop::sample::Index, ipv6: bool, fix: bool, asked in 0u64..3,
        ) {
            let mut ping = Bench::new(plan(&format!(r#"{{"size": "{size}B"}}"#), ipv6).device(0));
            ping.start();
            for second in 1..=asked {
                answer(&mut ping);
                ping.run_to_ms(1000 * second);
            }
            let reply = replies(&ping.sent(), HEADER + size as usize).remove(0);
            if size > 0 {
                let bit = bit.index(8 * size as usize);
                let mut changed = reply.clone();
                changed[HEADER + bit / 8] ^= 1 << (bit % 8);
                if fix {
                    changed[2..4].fill(0);
                    let sum = checksum(&changed);
                    changed[2..4].copy_from_slice(&sum.to_be_bytes());
                }
                ping.datagram(&changed);
                prop_assert_eq!((ping.measured().messages_delivered, ping.measured().corrupted), (asked, 1));
                prop_assert_eq!(ping.measured().duplicates, 0);
            }
            ping.datagram(&reply);
            prop_assert_eq!(ping.measured().messages_delivered, asked + 1);
        }

        #[test]
        fn nothing_that_comes_breaks_a_device(
            data in prop::collection::vec(any::<u8>(), 0..300), size in 0u32..40, ipv6: bool, interval in 0u32..3,
        ) {
            let json = format!(r#"{{"size": "{size}B", "interval": "{interval}ms", "timeout": "5ms"}}"#);
            assault(plan(&json, ipv6).device(0), &data, usize::MAX);
        }
    }
}
