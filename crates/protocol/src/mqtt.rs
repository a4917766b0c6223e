//! MQTT client (OASIS MQTT 3.1.1 and 5.0).
//!
//! A flow is one virtual device's session on one TCP connection:
//! connect → CONNECT/CONNACK → \[SUBSCRIBE/SUBACK\] → `count` × PUBLISH, each acknowledged → DISCONNECT.
//!
//! Read this file for what a device does and when, `answers` for what it makes of what the broker says,
//! [`params`] for what it can be told, [`wire`] for how packets look.
//! Section numbers are those of OASIS MQTT 5.0 unless 3.1.1 is named.

mod answers;
pub mod field;
pub mod params;
pub mod property;
mod show;
pub mod version;
pub mod wire;

pub use self::params::{Backoff, Filter, Fixed, Params, Reconnect, Will};
pub use self::version::Version;

use self::property::{Properties, Value};
use self::wire::{Ack, Connect, Malformed, Packet, Publish};
use crate::describe::{Better, Confirmed, Counter, Delay, Description, Index, Quick, QuickSize, Unit};
use crate::meter::Failure;
use crate::model::{Cx, Model};
use crate::pace::Pace;
use crate::target::Scheme;
use crate::template::{Template, Values};
use crate::time::Time;
use ::packet::signature::{self, Signature};
use rand::Rng;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

const SCHEMES: &[Scheme] = &[Scheme::tcp("mqtt", Some(1883)), Scheme::tls("mqtts", Some(8883))];
const CONNECT: usize = 0;
const CONNACK: usize = 1;
const PUBLISH: usize = 2;
const END_TO_END: usize = 3;
const SESSIONS: usize = 0;
const SESSIONS_RESUMED: usize = 1;
const PUBLISHES_RESENT: usize = 2;

/// What it is.
pub const DESCRIPTION: Description = Description {
    name: "mqtt",
    about: "MQTT 3.1.1 or 5.0 client",
    schemes: SCHEMES,
    delays: &[
        Delay { name: "connect", about: "from the start of the flow to the connection being up" },
        Delay { name: "connack", about: "from CONNECT to CONNACK" },
        Delay { name: "publish", about: "from the intended send time to PUBACK or PUBCOMP" },
        Delay {
            name: "end_to_end",
            about: "from the intended send time to the arrival at a subscriber of the run",
        },
    ],
    counters: &[
        Counter {
            name: "sessions",
            unit: Unit::Sessions,
            about: "Connections that the broker accepted with CONNACK.",
            better: Better::Neither,
        },
        Counter {
            name: "sessions_resumed",
            unit: Unit::Sessions,
            about: "Of these, those with a session that the broker had kept.",
            better: Better::Neither,
        },
        Counter {
            name: "publishes_resent",
            unit: Unit::Messages,
            about: "PUBLISH packets sent again, with DUP, in a session that went on after its connection was lost.",
            better: Better::Less,
        },
    ],
    indices: &[Index {
        name: "resumption",
        unit: Unit::Ratio,
        about: "Share of the accepted connections that went on with a session that the broker had kept.",
        better: Better::Neither,
        over: &["sessions_resumed"],
        under: &["sessions"],
        less: &[],
    }],
    confirmed: Confirmed::By("qos"),
    ordered: false,
    quick: Some(Quick {
        messages: "publishes",
        device: "client",
        devices: 10,
        count: "count",
        interval: "interval",
        rate: None,
        size: QuickSize::Key("size"),
        path: None,
        options: &[("qos", "qos")],
    }),
};

/// How many publishes one callback sends before others get their turn.
const BATCH: usize = 64;

/// What is the same for all devices of a group.
#[derive(Debug)]
pub struct Plan {
    version: Version,
    client_id: Template,
    username: Option<Template>,
    password: Option<Template>,
    clean: bool,
    session_expiry: u32,
    keep_alive: u16,
    will: Option<Message>,
    publishes: bool,
    message: Message,
    size: Option<usize>,
    mark: bool,
    pace: Pace,
    count: u64,
    window: u16,
    filters: Box<[(Template, u8)]>,
    linger: Duration,
    connect_timeout: Duration,
    ack_timeout: Duration,
    max_packet: usize,
    reconnect: Reconnect,
    clean_disconnect: bool,
}

/// A message to publish, by the device or as its will.
#[derive(Debug)]
struct Message {
    topic: Template,
    payload: Template,
    qos: u8,
    retain: bool,
}

impl Plan {
    /// A new device.
    pub fn device(self: &Arc<Self>, _index: u32) -> Device {
        Device {
            plan: Arc::clone(self),
            inflight: VecDeque::with_capacity(if self.publishes {
                usize::from(self.window.min(4))
            } else {
                0
            }),
            rare: None,
            base: Time::NEVER,
            since: Time::ZERO,
            limit: Time::NEVER,
            quiet: Time::ZERO,
            pinged: Time::NEVER,
            armed: Time::NEVER,
            next: 0,
            max_packet: u32::MAX,
            last_id: 0,
            window: self.window,
            keep_alive: self.keep_alive,
            attempts: 0,
            state: State::Idle,
            stopping: false,
        }
    }
}

/// What a publish waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaits {
    Ack,
    Rec,
    Comp,
}

/// A publish on its way.
#[derive(Debug, Clone, Copy)]
struct Inflight {
    intended: Time,
    sent: Time,
    seq: u32,
    id: u16,
    awaits: Awaits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No flow.
    Idle,
    /// The connection is on its way.
    Connecting,
    /// CONNECT is sent.
    Greeting,
    /// SUBSCRIBE is sent.
    Subscribing,
    /// Publishing.
    Up,
    /// All is published; messages may still come.
    Lingering,
    /// Until the next attempt to connect.
    Pausing,
}

/// What few devices need.
#[derive(Debug, Default)]
struct Rare {
    /// Identifiers of QoS 2 messages received and not released (§4.3.3), in order.
    received: Vec<u16>,
    /// The identifier that the broker gave us (§3.2.2.3.7).
    client_id: String,
}

/// One virtual device.
#[derive(Debug)]
pub struct Device {
    plan: Arc<Plan>,
    /// Publishes without their acknowledgement, oldest first.
    inflight: VecDeque<Inflight>,
    rare: Option<Box<Rare>>,
    /// When the first message was due.
    base: Time,
    /// When the connection was asked for, or CONNECT sent.
    since: Time,
    /// When the state must be left.
    limit: Time,
    /// When we last sent something.
    quiet: Time,
    /// When PINGREQ left; never: none is out.
    pinged: Time,
    /// When the timer is set to.
    armed: Time,
    /// Number of the next message.
    next: u32,
    /// Largest packet the broker takes.
    max_packet: u32,
    last_id: u16,
    window: u16,
    keep_alive: u16,
    attempts: u16,
    state: State,
    stopping: bool,
}

impl Model for Device {
    fn start(&mut self, cx: &mut Cx<'_>) {
        self.inflight.clear();
        self.rare = None;
        self.base = Time::NEVER;
        self.armed = Time::NEVER;
        self.next = 0;
        self.attempts = 0;
        self.stopping = false;
        if self.plan.clean {
            // not in a kept session: the broker may take a new message for an old one with its identifier
            self.last_id = 0;
        }
        self.connect(cx, cx.intended);
        self.arm(cx);
    }

    fn connected(&mut self, cx: &mut Cx<'_>) {
        cx.delay(self.since, CONNECT);
        self.since = cx.now;
        self.state = State::Greeting;
        self.greet(cx);
        self.arm(cx);
    }

    fn received(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> usize {
        let mut used = 0;
        while self.open() {
            let step = wire::frame(&bytes[used..], self.plan.max_packet).and_then(|frame| {
                let Some(frame) = frame else { return Ok(0) };
                cx.arrived(cx.now, frame.len);
                self.packet(cx, &wire::parse(self.plan.version, &frame)?)?;
                Ok(frame.len)
            });
            match step {
                Ok(0) => break,
                Ok(n) => used += n,
                Err(what) => self.lost(cx, Failure::Protocol, || what.to_string()),
            }
        }
        self.pump(cx);
        if self.open() { used } else { bytes.len() }
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        self.armed = Time::NEVER;
        let over = self.limit <= cx.now;
        match self.state {
            State::Idle => return,
            State::Connecting if over => self.lost(cx, Failure::Timeout, || "no connection in time".into()),
            State::Greeting if over => self.lost(cx, Failure::Timeout, || "no CONNACK in time".into()),
            State::Subscribing if over => self.lost(cx, Failure::Timeout, || "no SUBACK in time".into()),
            State::Pausing if over => self.connect(cx, cx.now),
            State::Lingering if over => self.leave(cx),
            State::Up | State::Lingering => {
                if self.oldest_due() <= cx.now {
                    self.lost(cx, Failure::Timeout, || "no acknowledgement in time".into());
                } else if self.pinged != Time::NEVER && self.pinged + self.plan.ack_timeout <= cx.now {
                    self.lost(cx, Failure::Timeout, || "no PINGRESP in time".into());
                } else if self.ping_due() <= cx.now {
                    self.pinged = cx.now;
                    self.send(cx, &Packet::PingReq);
                }
            }
            _ => {}
        }
        self.pump(cx);
    }

    fn closed(&mut self, cx: &mut Cx<'_>, why: Failure) {
        if self.state == State::Greeting && matches!(why, Failure::Closed | Failure::Reset) {
            let version = if self.plan.version == Version::V5 { "5.0" } else { "3.1.1" };
            cx.explain(why, || {
                format!("closed after CONNECT, without CONNACK: does the broker speak MQTT {version}, without TLS?")
            });
        }
        if self.open() || self.state == State::Connecting {
            if self.may_return() {
                self.pause(cx);
                self.arm(cx);
            } else {
                self.end(cx);
                cx.give_up();
            }
        }
    }

    fn stop(&mut self, cx: &mut Cx<'_>) {
        self.missed(cx);
        self.stopping = true;
        if self.state == State::Pausing {
            self.end(cx);
            cx.give_up();
        }
        self.pump(cx);
    }

    fn abandoned(&mut self, cx: &mut Cx<'_>) {
        if self.state == State::Lingering {
            // all that it had to do is done; only others' messages could have come
            return self.leave(cx);
        }
        let what = match self.state {
            State::Connecting => "no connection by the end of the drain",
            State::Greeting => "no CONNACK by the end of the drain",
            State::Subscribing => "no SUBACK by the end of the drain",
            _ => "no acknowledgement by the end of the drain",
        };
        let greets = matches!(self.state, State::Connecting | State::Greeting | State::Subscribing);
        if greets {
            cx.never_answered(self.since, what);
        }
        // of those that wait to be sent again, the loss of their connection stands for the oldest
        let stood_for = usize::from(self.state != State::Up);
        for message in self.inflight.iter().skip(stood_for) {
            cx.never_answered(message.intended, what);
        }
        self.inflight.clear();
        self.state = State::Idle;
    }

    #[inline]
    fn waiting_since(&self) -> Time {
        match self.state {
            State::Up | State::Lingering => {
                self.inflight.front().map_or(self.pinged, |oldest| oldest.sent.min(self.pinged))
            }
            // for CONNACK and SUBACK
            State::Greeting | State::Subscribing => self.since,
            State::Idle | State::Connecting | State::Pausing => Time::NEVER,
        }
    }
}

// ---- the session ----

impl Device {
    /// Whether there is a connection to read from.
    fn open(&self) -> bool {
        !matches!(self.state, State::Idle | State::Connecting | State::Pausing)
    }

    fn connect(&mut self, cx: &mut Cx<'_>, since: Time) {
        self.state = State::Connecting;
        self.since = since;
        self.limit = cx.now + self.plan.connect_timeout;
        self.pinged = Time::NEVER;
        self.window = self.plan.window;
        self.keep_alive = self.plan.keep_alive;
        self.max_packet = u32::MAX;
        cx.connect();
    }

    /// The connection cannot be used any more: come back later, or fail the flow.
    fn lost(&mut self, cx: &mut Cx<'_>, why: Failure, what: impl FnOnce() -> String) {
        if self.may_return() {
            cx.failure(cx.now, why, what);
            cx.close();
            self.pause(cx);
        } else {
            self.end(cx);
            cx.fail(cx.now, why, what);
        }
    }

    fn may_return(&self) -> bool {
        let most = match &self.plan.reconnect {
            Reconnect::None => return false,
            Reconnect::Fixed(fixed) => fixed.attempts,
            Reconnect::Backoff(backoff) => backoff.attempts,
        };
        !self.stopping && (most == 0 || self.attempts < most)
    }

    /// What waits for an acknowledgement gets none: no later connection carries it on. The first `stood_for` of it
    /// have been counted with what happened to their connection.
    pub(super) fn forget(&mut self, cx: &mut Cx<'_>, stood_for: usize) {
        for message in self.inflight.iter().skip(stood_for) {
            cx.unanswered(message.intended, "its connection was lost before an acknowledgement came");
        }
        self.inflight.clear();
    }

    fn pause(&mut self, cx: &mut Cx<'_>) {
        if self.plan.clean {
            self.forget(cx, 1);
        }
        let pause = match &self.plan.reconnect {
            Reconnect::None => 0,
            Reconnect::Fixed(fixed) => fixed.delay.ns(),
            Reconnect::Backoff(backoff) => {
                let doubled = backoff.min.ns().saturating_mul(1 << self.attempts.min(32));
                let whole = doubled.min(backoff.max.ns());
                cx.rng.random_range(whole / 2..=whole)
            }
        };
        self.attempts = self.attempts.saturating_add(1);
        self.state = State::Pausing;
        self.limit = cx.now + Duration::from_nanos(pause);
    }

    /// Messages that fell due and will not be sent any more still count as intended.
    fn missed(&mut self, cx: &mut Cx<'_>) {
        let publishing = self.plan.publishes && self.base != Time::NEVER && self.state != State::Idle;
        if publishing && !self.stopping {
            self.plan.pace.missed(cx, self.base, u64::from(self.next), self.plan.count);
        }
    }

    /// The flow is over. What ended it stands for the oldest message; the others have no answer either.
    fn end(&mut self, cx: &mut Cx<'_>) {
        self.missed(cx);
        self.forget(cx, 1);
        self.state = State::Idle;
        self.armed = Time::NEVER;
        cx.wake_at(Time::NEVER);
    }

    /// End the flow in good order.
    fn leave(&mut self, cx: &mut Cx<'_>) {
        if self.plan.clean_disconnect {
            self.send(cx, &Packet::Disconnect { code: 0, properties: Properties::default() });
        }
        self.end(cx);
        cx.finish();
        cx.close();
    }

    /// Send a packet that is no PUBLISH.
    fn send(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>) {
        let before = cx.out.bytes.len();
        packet.emit(self.plan.version, &mut cx.out.bytes);
        self.count(cx, before);
    }

    fn count(&mut self, cx: &mut Cx<'_>, before: usize) {
        let bytes = (cx.out.bytes.len() - before) as u64;
        cx.at(cx.now).counts.bytes_sent += bytes;
        self.quiet = cx.now;
    }

    fn greet(&mut self, cx: &mut Cx<'_>) {
        let plan = Arc::clone(&self.plan);
        let values = Values { device: cx.device, seq: u64::from(self.next), now: cx.now };
        let mut fill = |template: &Template| {
            let mut text = Vec::new();
            template.render(values, cx.rng, &mut text);
            text
        };
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap_or_default();
        let mut client_id = text(fill(&plan.client_id));
        if let Some(rare) = self.rare.as_ref().filter(|_| client_id.is_empty()) {
            client_id.clone_from(&rare.client_id);
        }
        let username = plan.username.as_ref().map(|name| text(fill(name)));
        let password = plan.password.as_ref().map(&mut fill);
        let will = plan.will.as_ref().map(|will| (text(fill(&will.topic)), fill(&will.payload), will));
        let mut properties = Vec::new();
        if plan.session_expiry > 0 {
            wire_number(&mut properties, property::SESSION_EXPIRY, plan.session_expiry);
        }
        // §3.1.2.11.4: the broker then drops what we would not take
        wire_number(&mut properties, property::MAXIMUM_PACKET_SIZE, plan.max_packet as u32);
        let packet = Packet::Connect(Connect {
            clean: plan.clean,
            keep_alive: plan.keep_alive,
            properties: property::written(&properties).only_in(plan.version),
            client_id: &client_id,
            will: will.as_ref().map(|(topic, payload, will)| wire::Will {
                properties: Properties::default(),
                topic,
                payload,
                qos: will.qos,
                retain: will.retain,
            }),
            username: username.as_deref(),
            password: password.as_deref(),
        });
        self.send(cx, &packet);
    }

    fn subscribe(&mut self, cx: &mut Cx<'_>) {
        let plan = Arc::clone(&self.plan);
        let values = Values { device: cx.device, seq: 0, now: cx.now };
        let (mut filters, mut filter) = (Vec::new(), Vec::new());
        for (template, qos) in &plan.filters {
            filter.clear();
            template.render(values, cx.rng, &mut filter);
            wire::put_filter(&mut filters, &filter, *qos);
        }
        self.state = State::Subscribing;
        let (id, properties) = (self.new_id(), Properties::default());
        self.send(cx, &Packet::Subscribe { id, properties, filters: wire::filters(&filters) });
    }

    /// The session is there: messages are due from now on.
    fn ready(&mut self, cx: &mut Cx<'_>) {
        self.state = State::Up;
        self.limit = Time::NEVER;
        if self.base == Time::NEVER {
            self.base = cx.now;
        }
    }

    /// An identifier that is not in use (§2.2.1).
    fn new_id(&mut self) -> u16 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            // at most 1024 are in use
            if self.inflight.iter().all(|message| message.id != self.last_id) {
                return self.last_id;
            }
        }
    }
}

fn wire_number(out: &mut Vec<u8>, id: u8, number: u32) {
    property::put(out, id, Value::Number(number));
}

// ---- publishing ----

impl Device {
    fn more(&self, cx: &Cx<'_>) -> bool {
        let wanted = self.plan.count == 0 || u64::from(self.next) < self.plan.count;
        wanted && !self.stopping && cx.loading()
    }

    /// Publish what is due; leave when nothing is left to do; set the timer.
    fn pump(&mut self, cx: &mut Cx<'_>) {
        if self.state == State::Up {
            let mut batch = 0;
            while self.plan.publishes && self.more(cx) && self.inflight.len() < usize::from(self.window) {
                let pace = self.plan.pace;
                let intended =
                    if pace.closed_loop() { cx.now } else { pace.due(self.base, self.next.into()) };
                if intended > cx.now {
                    break;
                }
                if batch == BATCH {
                    self.armed = cx.now;
                    cx.wake_at(cx.now);
                    return;
                }
                batch += 1;
                if !self.publish(cx, intended) {
                    return;
                }
            }
            if self.inflight.is_empty() && !self.more(cx) {
                if self.plan.linger.is_zero() {
                    return self.leave(cx);
                }
                self.state = State::Lingering;
                self.limit = cx.now + self.plan.linger;
            }
        }
        self.arm(cx);
    }

    fn publish(&mut self, cx: &mut Cx<'_>, intended: Time) -> bool {
        let qos = self.plan.message.qos;
        let id = if qos > 0 { self.new_id() } else { 0 };
        let before = cx.out.bytes.len();
        self.emit(cx, Inflight { intended, sent: cx.now, seq: self.next, id, awaits: Awaits::Ack }, false);
        let len = cx.out.bytes.len() - before;
        if len as u64 > u64::from(self.max_packet) {
            // §3.2.2.3.6: a packet larger than the broker takes must not be sent
            let most = self.max_packet;
            cx.out.bytes.truncate(before);
            self.lost(cx, Failure::Rejected, || {
                format!("a PUBLISH has {len} bytes, the broker takes {most}")
            });
            self.arm(cx);
            return false;
        }
        cx.sent(intended, len);
        self.quiet = cx.now;
        if qos > 0 {
            let awaits = if qos == 1 { Awaits::Ack } else { Awaits::Rec };
            self.inflight.push_back(Inflight { intended, sent: cx.now, seq: self.next, id, awaits });
        }
        self.next = self.next.saturating_add(1);
        true
    }

    /// Write PUBLISH (§3.3).
    #[inline]
    fn emit(&self, cx: &mut Cx<'_>, message: Inflight, dup: bool) {
        let plan = &*self.plan;
        let out = &mut cx.out.bytes;
        let Message { topic, payload, qos, retain } = &plan.message;
        let seq = u64::from(message.seq);
        let values = Values { device: cx.device, seq, now: cx.now };
        let start = wire::begin(out, 0x30 | u8::from(dup) << 3 | qos << 1 | u8::from(*retain));
        out.extend_from_slice(&[0, 0]);
        topic.render(values, cx.rng, out);
        let topic_len = (out.len() - start - 2) as u16;
        out[start..start + 2].copy_from_slice(&topic_len.to_be_bytes());
        if *qos > 0 {
            out.extend_from_slice(&message.id.to_be_bytes());
        }
        if plan.version == Version::V5 {
            out.push(0); // no properties
        }
        let body = out.len();
        payload.render(values, cx.rng, out);
        if let Some(size) = plan.size {
            out.resize(body + size - if plan.mark { signature::LEN } else { 0 }, b' ');
        }
        if plan.mark {
            let mut mark = [0; signature::LEN];
            let stream = cx.device & signature::STREAM_MAX;
            Signature { stream, sequence: seq, sent_ns: message.intended.0 }.emit(&mut mark);
            out.extend_from_slice(&mark);
        }
        wire::end(out, start);
    }
}

// ---- time ----

impl Device {
    /// When the oldest publish must be acknowledged.
    #[inline]
    fn oldest_due(&self) -> Time {
        self.inflight.front().map_or(Time::NEVER, |oldest| oldest.sent + self.plan.ack_timeout)
    }

    /// When to send PINGREQ: after three quarters of the keep-alive, so that it is there in time (§3.1.2.10).
    #[inline]
    fn ping_due(&self) -> Time {
        match self.keep_alive {
            0 => Time::NEVER,
            _ if self.pinged != Time::NEVER => Time::NEVER,
            seconds => self.quiet + Duration::from_millis(u64::from(seconds) * 750),
        }
    }

    /// Set the timer, unless it goes off before it is needed anyway: deadlines mostly move on.
    #[inline]
    fn arm(&mut self, cx: &mut Cx<'_>) {
        let mut at = match self.state {
            State::Idle => return,
            State::Up | State::Lingering => {
                let pong = self.pinged + self.plan.ack_timeout;
                self.limit.min(self.oldest_due()).min(self.ping_due()).min(pong)
            }
            _ => self.limit,
        };
        let room = self.inflight.len() < usize::from(self.window);
        let paced = self.plan.publishes && !self.plan.pace.closed_loop();
        if self.state == State::Up && paced && room && self.more(cx) {
            at = at.min(self.plan.pace.due(self.base, self.next.into()));
        }
        if at < self.armed {
            self.armed = at;
            cx.wake_at(at);
        }
    }
}

#[cfg(test)]
mod tests;
