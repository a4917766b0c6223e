//! CoAP client over UDP: messages, requests and responses (RFC 7252), transfers in blocks (RFC 7959) and observed
//! resources (RFC 7641), requests repeated with the Echo option (RFC 9175).
//!
//! A flow is a series of requests for one resource, or one observation of it. A request that is larger than a block, or
//! whose response is, takes several exchanges of messages and is still one message of the load. `request` writes what is
//! sent and `wire` reads what comes; `transmission` sends, and sends again, `messages` finds what an answer belongs to, `blocks`
//! follows a transfer, `observe` an observation, and `echo` repeats what a server wants to be sure of. Here is the flow.

mod blocks;
mod echo;
mod exchange;
mod messages;
mod observe;
mod params;
mod request;
mod transmission;
pub mod wire;

use crate::describe::{
    Better, Confirmed, Counter, Delay, Description, Index, SizeOption, Text, Unit, UrlMapping,
};
use crate::meter::Failure;
use crate::model::{Cx, Model};
use crate::pace::Pace;
use crate::target::Scheme;
use crate::time::Time;
use exchange::{Exchange, Purpose, Stage};
use observe::ObserverState;
pub use params::{Method, Params};
use rand::Rng;
use request::Request;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use wire::{Code, Header};

const RESPONSE: usize = 0;
const ACKNOWLEDGEMENT: usize = 1;

const RETRANSMISSIONS: usize = 0;
const SEPARATE: usize = 1;
const BLOCKS: usize = 2;
const NOTIFICATIONS: usize = 3;
const ECHO_CHALLENGES: usize = 4;

/// What it is.
pub const DESCRIPTION: Description = Description {
    name: "coap",
    about: "CoAP client over UDP",
    // coaps (DTLS) is not offered
    schemes: &[Scheme::udp("coap", Some(5683))],
    delays: &[
        Delay { name: "response", about: "from the intended send time to the whole response" },
        Delay {
            name: "acknowledgement",
            about: "from the intended send time to the acknowledgement of a confirmable request, with or without its response",
        },
    ],
    values: &[],
    counters: &[
        Counter {
            name: "retransmissions",
            unit: Unit::Messages,
            about: "Confirmable messages sent again, as no acknowledgement had come (RFC 7252 section 4.2).",
            better: Better::Less,
        },
        Counter {
            name: "separate_responses",
            unit: Unit::Messages,
            about: "Responses in a message of their own, not in the acknowledgement (RFC 7252 section 5.2.2).",
            better: Better::Neither,
        },
        Counter {
            name: "block_requests",
            unit: Unit::Messages,
            about: "Requests for further blocks, or with them, behind the first of a transfer (RFC 7959).",
            better: Better::Neither,
        },
        Counter {
            name: "notifications",
            unit: Unit::Messages,
            about: "Notifications of an observed resource that were newer than the last (RFC 7641 section 3.4).",
            better: Better::More,
        },
        Counter {
            name: "echo_challenges",
            unit: Unit::Messages,
            about: "Requests repeated once with the Echo option, as the server answered 4.01 and asked for it (RFC 9175 section 2.3).",
            better: Better::Neither,
        },
    ],
    indices: &[Index {
        name: "retransmission_ratio",
        unit: Unit::Ratio,
        about: "Messages sent again, over those sent for the first time.",
        better: Better::Less,
        over: &["retransmissions"],
        under: &["messages_sent", "block_requests", "echo_challenges"],
        less: &[],
    }],
    confirmed: Confirmed::Always,
    ordered: false,
    quick: Some(UrlMapping {
        messages: "requests",
        device: "client",
        devices: 10,
        count: "count",
        interval: "interval",
        rate: None,
        size: SizeOption::Refused {
            why: "a GET has no body",
            fix: "Name a resource of that size, or write a profile with method PUT and size",
        },
        path: Some("path"),
        options: &[("method", "method"), ("data", "payload")],
    }),
    texts: &[("path", Text::Template), ("payload", Text::Template)],
};

/// How many exchanges that are over are remembered, to know answers that come twice.
const REMEMBERED: usize = 8;
/// Most requests that may wait for a response, those that are acknowledged with them.
const PENDING_MAX: u16 = 1024;
/// Most exchanges between the oldest that waits and the newest.
const SPAN_MAX: usize = 1 << 14;
/// How many requests one callback sends before other devices are served.
const BATCH: usize = 64;

/// What is the same for all devices of a group.
#[derive(Debug)]
pub struct Config {
    request: Request,
    confirmable: bool,
    observe: bool,
    pace: Pace,
    /// Requests, or notifications, of a flow; 0: no end.
    count: u64,
    nstart: u16,
    /// ACK_TIMEOUT, and what ACK_RANDOM_FACTOR adds to it at most, ns.
    ack_timeout: (u64, u64),
    max_retransmit: u8,
    timeout: Duration,
    max_response: u32,
    /// One bit for each code that is a success.
    expect: [u64; 4],
}

impl Config {
    /// A new device.
    pub fn device(self: &Arc<Self>, _index: u32) -> Device {
        Device {
            config: Arc::clone(self),
            exchanges: VecDeque::with_capacity(1),
            next: 0,
            base: Time::ZERO,
            armed: Time::NEVER,
            soonest: Time::NEVER,
            silent: Time::NEVER,
            rare: None,
            salt: 0,
            last_id: 0,
            ready: 0,
            outstanding: 0,
            pending: 0,
            running: false,
            stopping: false,
            failed: false,
        }
    }

    /// How long to wait for an acknowledgement before the first retransmission (RFC 7252 section 4.2).
    fn first_wait(&self, cx: &mut Cx<'_>) -> u64 {
        let (least, spread) = self.ack_timeout;
        least + cx.rng.random_range(0..=spread)
    }

    fn expects(&self, code: Code) -> bool {
        self.expect[usize::from(code.0) / 64] >> (code.0 % 64) & 1 == 1
    }
}

/// One virtual device.
#[derive(Debug)]
pub struct Device {
    config: Arc<Config>,
    /// The latest exchanges, oldest first; the last is number `next - 1`.
    exchanges: VecDeque<Exchange>,
    /// Number of the next exchange.
    next: u64,
    /// When the first request was due.
    base: Time,
    /// When the timer is set to.
    armed: Time,
    /// No exchange has something due before.
    soonest: Time,
    /// When the first message was sent after the last answer, as long as one is waited for.
    silent: Time,
    /// What only observers, and servers that respond separately, need.
    rare: Option<Box<ObserverState>>,
    /// What is added to an exchange's number to give its token; drawn for each flow (RFC 7252 section 5.3.1).
    salt: u32,
    last_id: u16,
    /// Exchanges by stage.
    ready: u16,
    outstanding: u16,
    pending: u16,
    running: bool,
    stopping: bool,
    /// The observation cannot go on.
    failed: bool,
}

impl Model for Device {
    fn start(&mut self, cx: &mut Cx<'_>) {
        // RFC 7252 section 4.4: identifiers begin anywhere, and go on in the next flow
        if self.last_id == 0 {
            self.last_id = cx.rng.random();
        }
        self.salt = cx.rng.random();
        self.clear();
        // the number 0 is the token of an observation
        self.next = u64::from(self.config.observe);
        self.base = cx.intended;
        self.armed = Time::NEVER;
        self.running = true;
        self.stopping = false;
        self.failed = false;
        if let Some(rare) = &mut self.rare {
            **rare = ObserverState::default();
        }
        if self.config.observe {
            self.begin(cx, Purpose::Register, cx.intended);
        }
        self.pump(cx);
    }

    fn connected(&mut self, _cx: &mut Cx<'_>) {}

    fn received(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> usize {
        if self.running {
            match Header::parse(bytes) {
                Ok(header) => self.message(cx, header, bytes),
                // section 3: of an unknown version, and so passed over, but not in silence
                Err(what) => cx.corrupted(cx.now, || what.to_string()),
            }
            self.pump(cx);
        }
        bytes.len()
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        self.armed = Time::NEVER;
        if self.running {
            self.expire(cx);
            self.pump(cx);
        }
    }

    fn closed(&mut self, cx: &mut Cx<'_>, why: Failure) {
        if !self.running {
            return;
        }
        // one datagram was refused on its way: the transport has counted that, and the next request is sent when it is due
        let lost = matches!(why, Failure::Refused | Failure::Unreachable);
        if lost && !self.config.pace.closed_loop() && !self.config.observe {
            if let Some(oldest) = self.exchanges.iter().position(|x| !x.stage.over()) {
                self.over(cx, oldest, Stage::Failed);
            }
            return self.pump(cx);
        }
        self.forget(cx, 1, "the socket broke before a response came");
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
        if self.running {
            self.forget(cx, 0, "no response by the end of the drain");
            self.running = false;
        }
    }

    #[inline]
    fn waiting_since(&self) -> Time {
        if self.running { self.silent } else { Time::NEVER }
    }

    fn overdue(&self, end: Time) -> u64 {
        if !self.running || self.stopping || self.config.observe {
            return 0;
        }
        self.config.pace.pending(self.base, self.next, self.config.count, end)
    }

    fn holds_back(&self) -> bool {
        !self.config.observe && !self.config.pace.closed_loop()
    }
}

impl Device {
    fn clear(&mut self) {
        self.exchanges.clear();
        (self.ready, self.outstanding, self.pending) = (0, 0, 0);
        self.soonest = Time::NEVER;
        self.silent = Time::NEVER;
    }

    /// Requests that fell due and will not be sent any more still count as intended.
    fn count_missed(&mut self, cx: &mut Cx<'_>) {
        if !self.stopping && !self.config.observe {
            self.config.pace.count_missed(cx, self.base, self.next, self.config.count);
        }
    }

    /// What has no response now gets none. The first `stood_for` of it have been counted with what happened.
    fn forget(&mut self, cx: &mut Cx<'_>, stood_for: usize, what: &str) {
        for x in self.exchanges.iter().filter(|x| !x.stage.over()).skip(stood_for) {
            cx.unanswered(x.intended, what);
        }
        self.clear();
    }

    fn end(&mut self, cx: &mut Cx<'_>) {
        self.count_missed(cx);
        self.clear();
        self.running = false;
        self.armed = Time::NEVER;
        cx.wake_at(Time::NEVER);
    }

    fn has_more(&self, cx: &Cx<'_>) -> bool {
        let wanted = self.config.count == 0 || self.next < self.config.count;
        wanted && !self.stopping && !self.config.observe && cx.loading()
    }

    /// Whether another request may be sent now (RFC 7252 section 4.7). In a closed loop it waits for a response, not only
    /// for an acknowledgement.
    fn room(&self) -> bool {
        let waiting = if self.config.pace.closed_loop() { self.pending } else { self.outstanding };
        waiting < self.config.nstart && self.pending < PENDING_MAX && self.exchanges.len() < SPAN_MAX
    }

    /// Send what is due, end the flow when nothing is left, set the timer.
    fn pump(&mut self, cx: &mut Cx<'_>) {
        let closed_loop = self.config.pace.closed_loop();
        let mut fits = self.send_ready(cx);
        let mut batch = 0;
        while fits && self.room() && self.has_more(cx) {
            let intended = if closed_loop { cx.now } else { self.config.pace.due(self.base, self.next) };
            if intended > cx.now {
                break;
            }
            batch += 1;
            fits = batch <= BATCH && self.begin(cx, Purpose::Request, intended);
        }
        if self.config.observe {
            fits &= self.observe(cx);
        }
        while self.exchanges.len() > REMEMBERED && self.exchanges.front().is_some_and(|x| x.stage.over()) {
            self.exchanges.pop_front();
        }
        if self.failed {
            self.forget(cx, 0, "the observation was over before a response came");
            self.end(cx);
            cx.give_up();
            return cx.close();
        }
        if self.pending == 0 && fits && !self.has_more(cx) && !self.observing() {
            self.end(cx);
            cx.finish();
            return cx.close();
        }
        let mut at = self.soonest;
        if !fits {
            at = cx.now;
        } else if !closed_loop && self.room() && self.has_more(cx) {
            at = at.min(self.config.pace.due(self.base, self.next));
        }
        at = at.min(self.stale());
        if at < self.armed {
            self.armed = at.max(cx.now);
            cx.wake_at(self.armed);
        }
    }
}

#[cfg(test)]
mod tests;
