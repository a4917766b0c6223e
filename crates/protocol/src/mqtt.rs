//! MQTT client (OASIS MQTT 3.1.1 and 5.0).
//!
//! A flow is one virtual device's session on one TCP connection:
//! connect → CONNECT/CONNACK → \[SUBSCRIBE/SUBACK\] → `count` × PUBLISH, each acknowledged → DISCONNECT.
//!
//! Read this file for what a device does and when, `session` and `publishing` for how, `answers` for what it makes of
//! what the broker says, [`params`] for what it can be told, [`wire`] for how packets look.
//! Section numbers are those of OASIS MQTT 5.0 unless 3.1.1 is named.

mod answers;
pub mod field;
pub mod params;
pub mod property;
mod publishing;
mod session;
mod show;
pub mod version;
pub mod wire;

pub use self::params::{Backoff, Filter, Fixed, Params, Reconnect, Will};
pub use self::version::Version;

use self::property::Properties;
use self::wire::{Ack, MalformedPacket, Packet, Publish};
use crate::cause::{Cause, other_protocol};
use crate::describe::{
    Better, Confirmed, Counter, Delay, Description, Index, SizeOption, Text, Unit, UrlMapping,
};
use crate::meter::Failure;
use crate::model::{Cx, Model};
use crate::pace::Pace;
use crate::target::Scheme;
use crate::template::Template;
use crate::time::Time;
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
    values: &[],
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
        about: "Share of the accepted connections that resumed a session.",
        better: Better::Neither,
        over: &["sessions_resumed"],
        under: &["sessions"],
        less: &[],
    }],
    confirmed: Confirmed::By("qos"),
    ordered: false,
    quick: Some(UrlMapping {
        messages: "publishes",
        device: "client",
        devices: 10,
        count: "count",
        interval: "interval",
        rate: None,
        size: SizeOption::Key("size"),
        path: None,
        options: &[("qos", "qos"), ("topic", "topic"), ("data", "payload"), ("user", "target")],
    }),
    texts: &[
        ("client_id", Text::Template),
        ("username", Text::Template),
        ("password", Text::Template),
        ("topic", Text::Template),
        ("payload", Text::Template),
        ("will.topic", Text::Template),
        ("will.payload", Text::Template),
        ("subscribe.topic", Text::Template),
    ],
};

/// How many publishes one callback sends before other devices are served.
const BATCH: usize = 64;

/// What is the same for all devices of a group.
#[derive(Debug)]
pub struct Config {
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
    /// The packet identifier before the first.
    first_id: u16,
}

/// A message to publish, by the device or as its will.
#[derive(Debug)]
struct Message {
    topic: Template,
    payload: Template,
    qos: u8,
    retain: bool,
}

impl Config {
    /// A new device.
    pub fn device(self: &Arc<Self>, _index: u32) -> Device {
        Device {
            config: Arc::clone(self),
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
            last_id: self.first_id,
            window: self.window,
            keep_alive: self.keep_alive,
            attempts: 0,
            held: 0,
            pings: 0,
            state: State::Idle,
            resumed: false,
            stopping: false,
        }
    }
}

/// What a publish waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AwaitedPacket {
    /// PUBACK.
    Ack,
    /// PUBREC.
    Rec,
    /// PUBCOMP.
    Comp,
    /// PUBCOMP, to a PUBREL that was sent again in a resumed session.
    CompAgain,
    /// To be sent again in a resumed session: the broker takes no more at a time now (§4.9).
    Resend,
}

impl AwaitedPacket {
    /// Whether PUBREL was sent: PUBLISH is never sent again then (§4.3.3).
    fn released(self) -> bool {
        matches!(self, AwaitedPacket::Comp | AwaitedPacket::CompAgain)
    }
}

/// A publish on its way.
#[derive(Debug, Clone, Copy)]
struct Inflight {
    intended: Time,
    /// When it was sent for the first time.
    sent: Time,
    seq: u32,
    id: u16,
    awaits: AwaitedPacket,
    /// Its flow has failed and counted it: only the session still has it.
    reported: bool,
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
struct SessionExtras {
    /// Identifiers of QoS 2 messages received and not released (§4.3.3), in order.
    received: Vec<u16>,
    /// The client identifier of the session, where the broker gave it (§3.2.2.3.7) or it cannot be made a second time.
    client_id: String,
    /// PUBCOMPs due for PUBRELs of messages that are done with: the broker sent PUBREC twice.
    pubcomps: u16,
    /// Identifiers of messages that were sent again in this connection: a second answer to each may come.
    resent: Vec<u16>,
}

/// One virtual device.
#[derive(Debug)]
pub struct Device {
    config: Arc<Config>,
    /// Publishes without their acknowledgement, in the order in which they were sent in this connection; the last
    /// [`Device::held`] of them still wait to be sent again.
    inflight: VecDeque<Inflight>,
    rare: Option<Box<SessionExtras>>,
    /// When the first message was due.
    base: Time,
    /// When the connection was asked for, CONNECT sent, CONNACK received, or a PUBLISH last sent again.
    since: Time,
    /// When the state must be left.
    limit: Time,
    /// When we last sent something.
    quiet: Time,
    /// When the oldest PINGREQ without its answer left; never: none is out.
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
    /// How many at the end of `inflight` wait to be sent again.
    held: u16,
    /// PINGREQs without their answer.
    pings: u8,
    state: State,
    /// Whether the broker resumed the session in this connection.
    resumed: bool,
    stopping: bool,
}

impl Model for Device {
    fn start(&mut self, cx: &mut Cx<'_>) {
        self.base = Time::NEVER;
        self.armed = Time::NEVER;
        self.next = 0;
        self.attempts = 0;
        self.stopping = false;
        // a kept session outlives its flow (§4.1): the broker may take a new message for an old one with its identifier
        if self.config.clean {
            self.inflight.clear();
            self.rare = None;
            self.last_id = 0;
        }
        self.connect(cx, cx.intended);
        self.arm(cx);
    }

    fn connected(&mut self, cx: &mut Cx<'_>) {
        cx.delay(self.since, CONNECT);
        self.since = cx.now;
        self.state = State::Greeting;
        self.send_connect(cx);
        self.arm(cx);
    }

    fn received(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> usize {
        let mut used = 0;
        while self.open() {
            let step = wire::frame(&bytes[used..], self.config.max_packet).and_then(|frame| {
                let Some(frame) = frame else { return Ok(0) };
                cx.arrived(cx.now, frame.len);
                self.packet(cx, &wire::parse(self.config.version, &frame)?)?;
                Ok(frame.len)
            });
            match step {
                Ok(0) => break,
                Ok(n) => used += n,
                Err(what) => match other_protocol(bytes).filter(|_| self.state == State::Greeting) {
                    Some(other) => {
                        let why = Cause::named(Failure::Protocol, other);
                        self.connection_lost(cx, why, || format!("no MQTT: {other}"));
                    }
                    None => self.connection_lost(cx, Failure::Protocol, || what.to_string()),
                },
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
            State::Connecting if over => self.late_for(cx, "no connection in time"),
            State::Greeting if over => self.late_for(cx, "no CONNACK in time"),
            State::Subscribing if over => self.late_for(cx, "no SUBACK in time"),
            State::Pausing if over => self.connect(cx, cx.now),
            State::Lingering if over => self.disconnect(cx),
            State::Subscribing | State::Up | State::Lingering => {
                if self.oldest_due() <= cx.now {
                    self.late_for(cx, "no acknowledgement in time");
                } else if self.pinged != Time::NEVER && self.pinged + self.config.ack_timeout <= cx.now {
                    self.late_for(cx, "no PINGRESP in time");
                } else if self.ping_due() <= cx.now {
                    self.pinged = self.pinged.min(cx.now);
                    self.pings += 1;
                    self.send(cx, &Packet::PingReq);
                }
            }
            _ => {}
        }
        self.pump(cx);
    }

    fn closed(&mut self, cx: &mut Cx<'_>, why: Failure) {
        if self.state == State::Greeting && matches!(why, Failure::Closed | Failure::Reset) {
            let version = if self.config.version == Version::V5 { "5.0" } else { "3.1.1" };
            cx.explain(Cause::named(why, "closed before CONNACK"), || {
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
        self.count_missed(cx);
        self.stopping = true;
        if self.state == State::Pausing && !self.has_unacknowledged() {
            self.end(cx);
            cx.give_up();
        }
        self.pump(cx);
    }

    fn abandoned(&mut self, cx: &mut Cx<'_>) {
        if self.state == State::Lingering {
            // all that it had to do is done; only others' messages could have come
            return self.disconnect(cx);
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
        for message in self.inflight.iter().filter(|message| !message.reported).skip(stood_for) {
            cx.never_answered(message.intended, what);
        }
        self.inflight.clear();
        self.state = State::Idle;
    }

    #[inline]
    fn waiting_since(&self) -> Time {
        match self.state {
            State::Up | State::Lingering => self.oldest_sent().min(self.pinged),
            // for CONNACK and SUBACK
            State::Greeting | State::Subscribing => self.since,
            State::Idle | State::Connecting | State::Pausing => Time::NEVER,
        }
    }

    fn overdue(&self, end: Time) -> u64 {
        if !self.is_scheduled() {
            return 0;
        }
        self.config.pace.pending(self.base, self.next.into(), self.config.count, end)
    }

    fn holds_back(&self) -> bool {
        self.config.publishes && !self.config.pace.closed_loop()
    }
}

impl Device {
    /// What was waited for has not come.
    fn late_for(&mut self, cx: &mut Cx<'_>, what: &'static str) {
        self.connection_lost(cx, Cause::named(Failure::Timeout, what), || what.into());
    }

    /// When the oldest publish was sent in this connection; never: none waits for an answer.
    #[inline]
    fn oldest_sent(&self) -> Time {
        self.inflight.front().map_or(Time::NEVER, |oldest| oldest.sent.max(self.since))
    }

    /// When the oldest publish must be acknowledged.
    #[inline]
    fn oldest_due(&self) -> Time {
        self.oldest_sent() + self.config.ack_timeout
    }

    /// When to send PINGREQ: after three quarters of the keep-alive, so that it is there in time (§3.1.2.10), be the
    /// former answered or not.
    #[inline]
    fn ping_due(&self) -> Time {
        match self.keep_alive {
            0 => Time::NEVER,
            _ if self.pings == u8::MAX => Time::NEVER,
            seconds => self.quiet + Duration::from_millis(u64::from(seconds) * 750),
        }
    }

    /// Set the timer, unless it goes off before it is needed anyway: deadlines mostly move on.
    #[inline]
    fn arm(&mut self, cx: &mut Cx<'_>) {
        let mut at = match self.state {
            State::Idle => return,
            State::Subscribing | State::Up | State::Lingering => {
                let pong = self.pinged + self.config.ack_timeout;
                self.limit.min(self.oldest_due()).min(self.ping_due()).min(pong)
            }
            _ => self.limit,
        };
        let room = self.room();
        let paced = self.config.publishes && !self.config.pace.closed_loop();
        if self.state == State::Up && paced && room && self.has_more(cx) {
            at = at.min(self.config.pace.due(self.base, self.next.into()));
        }
        if at < self.armed {
            self.armed = at;
            cx.wake_at(at);
        }
    }
}

#[cfg(test)]
mod tests;
