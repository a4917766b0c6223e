//! Steps that the user writes, for protocols that have no model: send, expect, delay, repeat.
//!
//! A flow connects, plays the steps from first to last, and closes. Over TCP and TLS `expect` searches the
//! bytes that came, and uses them up to the end of what it found; over UDP it looks at one datagram at a time.

mod compile;
mod params;
mod step;

pub use self::compile::{DEPTH_MAX, KEPT_MAX, Op, Pattern};
pub use self::params::Params;
pub use self::step::{Repeat, Step};

use crate::cause::{Cause, TLS_PORT, other_protocol};
use crate::describe::{Confirmed, Delay, Description, Text};
use crate::meter::Failure;
use crate::model::{Cx, Model};
use crate::target::Scheme;
use crate::template::Values;
use crate::time::Time;
use std::sync::Arc;
use std::time::Duration;

const SCHEMES: &[Scheme] = &[Scheme::tcp("tcp", None), Scheme::tls("tls", None), Scheme::udp("udp", None)];
const CONNECT: usize = 0;
const STEP: usize = 1;
const FLOW: usize = 2;

/// What it is.
pub const DESCRIPTION: Description = Description {
    name: "script",
    about: "steps that the user writes: send, expect, delay, repeat",
    schemes: SCHEMES,
    delays: &[
        Delay { name: "connect", about: "from the start of the flow to the connection being up" },
        Delay { name: "step", about: "from a send to the match of the expect that follows it" },
        Delay { name: "flow", about: "from the start of the flow to its end" },
    ],
    values: &[],
    counters: &[],
    indices: &[],
    // it may send what it expects no answer to
    confirmed: Confirmed::Never,
    ordered: false,
    quick: None,
    texts: &[("steps.send", Text::EscapesAndTemplate), ("steps.expect", Text::Escapes)],
};

/// How many steps one callback plays before other devices are served.
const STEPS_PER_CALL: usize = 256;

/// What is the same for all devices of a group.
#[derive(Debug)]
pub struct Config {
    ops: Box<[Op]>,
    timeout: Duration,
    datagrams: bool,
}

impl Config {
    /// A new device.
    pub fn device(self: &Arc<Self>, _index: u32) -> Device {
        Device {
            config: Arc::clone(self),
            kept: Vec::new(),
            started: Time::ZERO,
            due: Time::ZERO,
            limit: Time::NEVER,
            asked: None,
            seen: 0,
            next: 0,
            at: 0,
            rounds: [0; DEPTH_MAX],
            state: State::Idle,
            waiting: false,
            other: false,
            stopping: false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Connecting,
    Playing,
}

/// One virtual device.
#[derive(Debug)]
pub struct Device {
    config: Arc<Config>,
    /// What came and was not used yet; for datagrams each with its length before it.
    kept: Vec<u8>,
    /// When the flow began.
    started: Time,
    /// When the step at hand was due.
    due: Time,
    /// When an expect fails or a delay is over.
    limit: Time,
    /// When the last send was due, until an expect answers it.
    asked: Option<Time>,
    /// How much of `kept` has no match in it.
    seen: u32,
    /// Number of the next send.
    next: u32,
    /// The step at hand.
    at: u32,
    /// Rounds played of each repeat around it.
    rounds: [u32; DEPTH_MAX],
    state: State,
    /// The step at hand has begun.
    waiting: bool,
    /// Something else came than what is expected.
    other: bool,
    stopping: bool,
}

impl Model for Device {
    fn start(&mut self, cx: &mut Cx<'_>) {
        let config = Arc::clone(&self.config);
        *self = config.device(0);
        self.started = cx.intended;
        self.due = cx.intended;
        if config.datagrams {
            self.state = State::Playing;
            self.play(cx);
        } else {
            self.state = State::Connecting;
            self.limit = cx.now + config.timeout;
            cx.wake_at(self.limit);
            cx.connect();
        }
    }

    fn connected(&mut self, cx: &mut Cx<'_>) {
        if self.state == State::Connecting {
            cx.delay(self.started, CONNECT);
            self.state = State::Playing;
            self.due = cx.now;
            self.play(cx);
        }
    }

    fn received(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> usize {
        if self.state == State::Playing {
            cx.arrived(cx.now, bytes.len());
            // kept here, as it may be looked at when only time has passed
            let framed = if self.config.datagrams { 2 } else { 0 };
            if self.kept.len() + framed + bytes.len() > KEPT_MAX && self.config.datagrams {
                cx.count_unrequested(cx.now);
                return bytes.len();
            }
            if self.config.datagrams {
                self.kept.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
            }
            self.kept.extend_from_slice(bytes);
            self.play(cx);
            if self.state == State::Playing && self.kept.len() > KEPT_MAX {
                self.fail(cx, Failure::Protocol, || {
                    "more came than is kept, without what is expected".into()
                });
            }
        }
        bytes.len()
    }

    fn timer(&mut self, cx: &mut Cx<'_>) {
        match self.state {
            State::Idle => {}
            State::Connecting if self.limit <= cx.now => {
                self.fail(cx, Failure::Timeout, || "no connection in time".into());
            }
            State::Connecting => cx.wake_at(self.limit),
            State::Playing => self.play(cx),
        }
    }

    fn closed(&mut self, cx: &mut Cx<'_>, why: Failure) {
        if self.asks_no_more() && matches!(why, Failure::Closed | Failure::Reset) {
            // nothing is left to send or expect: either side may close
            cx.mark_clean_close();
            cx.delay(self.started, FLOW);
            cx.finish();
            return self.end(cx);
        }
        if self.state != State::Idle {
            self.end(cx);
            cx.give_up();
        }
    }

    fn stop(&mut self, cx: &mut Cx<'_>) {
        // repeats end with the round at hand; what stands behind them (a farewell) is played
        self.stopping = true;
        if self.state == State::Playing {
            self.play(cx);
        }
    }

    fn abandoned(&mut self, cx: &mut Cx<'_>) {
        if self.state == State::Connecting {
            cx.never_answered(self.started, "no connection by the end of the drain");
        } else if self.waiting_since() != Time::NEVER {
            let step = self.at;
            let what = format!("step {step} had not got what it expects by the end of the drain");
            let asked = self.asked.unwrap_or(self.due);
            if self.config.datagrams {
                cx.unanswered(asked, &what);
            } else {
                cx.never_answered(asked, &what);
            }
        }
        self.state = State::Idle;
    }

    fn waiting_since(&self) -> Time {
        match self.config.ops.get(self.at as usize) {
            Some(Op::Expect { within, .. }) if self.state == State::Playing && self.waiting => {
                Time(self.limit.0.saturating_sub(u64::try_from(within.as_nanos()).unwrap_or(u64::MAX)))
            }
            _ => Time::NEVER,
        }
    }
}

impl Device {
    /// Whether nothing is left to play but pauses: all is sent, and all that is expected has come.
    fn asks_no_more(&self) -> bool {
        let over = |op: &Op| match op {
            Op::Send(_) | Op::Expect { .. } => false,
            Op::Delay(_) => true,
            Op::Again { depth, count, .. } => {
                self.stopping || *count > 0 && self.rounds[*depth].saturating_add(1) >= *count
            }
        };
        let left = self.config.ops.get(self.at as usize..).unwrap_or_default();
        self.state == State::Playing && !self.config.datagrams && left.iter().all(over)
    }

    fn end(&mut self, cx: &mut Cx<'_>) {
        self.state = State::Idle;
        self.kept = Vec::new();
        cx.wake_at(Time::NEVER);
    }

    fn fail(&mut self, cx: &mut Cx<'_>, why: impl Into<Cause>, what: impl FnOnce() -> String) {
        cx.fail(cx.now, why, what);
        self.end(cx);
    }

    fn step(&mut self, due: Time) {
        self.at += 1;
        self.due = due;
        self.waiting = false;
        self.other = false;
        self.seen = 0;
    }

    /// Play steps until one has to wait.
    fn play(&mut self, cx: &mut Cx<'_>) {
        let config = Arc::clone(&self.config);
        for _ in 0..STEPS_PER_CALL {
            let Some(op) = config.ops.get(self.at as usize) else {
                cx.delay(self.started, FLOW);
                cx.finish();
                cx.close();
                return self.end(cx);
            };
            match op {
                Op::Send(template) => {
                    if config.datagrams && !cx.out.bytes.is_empty() {
                        // the next datagram has to wait for the next call
                        return cx.wake_at(cx.now);
                    }
                    let values = Values { device: cx.device, seq: u64::from(self.next), now: cx.now };
                    let before = cx.out.bytes.len();
                    template.render(values, cx.rng, &mut cx.out.bytes);
                    cx.sent(self.due, cx.out.bytes.len() - before);
                    self.next = self.next.wrapping_add(1);
                    self.asked = Some(self.due);
                    self.step(self.due);
                }
                Op::Expect { pattern, within } => {
                    if !self.waiting {
                        self.waiting = true;
                        self.limit = cx.now + *within;
                    }
                    if self.consume_match(cx, pattern) {
                        match self.asked.take() {
                            Some(asked) => cx.delivered(asked, STEP),
                            None => cx.count_unrequested(cx.now),
                        }
                        self.step(cx.now);
                    } else if self.limit <= cx.now {
                        return self.missing(cx);
                    } else {
                        return cx.wake_at(self.limit);
                    }
                }
                Op::Delay(time) => {
                    if !self.waiting {
                        self.waiting = true;
                        self.limit = self.due + *time;
                    }
                    if self.limit > cx.now {
                        return cx.wake_at(self.limit);
                    }
                    self.step(self.limit);
                }
                Op::Again { start, depth, count } => {
                    let rounds = &mut self.rounds[*depth];
                    *rounds = rounds.saturating_add(1);
                    if (*count == 0 || *rounds < *count) && !self.stopping && cx.loading() {
                        self.at = *start as u32;
                    } else {
                        *rounds = 0;
                        self.at += 1;
                    }
                }
            }
        }
        cx.wake_at(cx.now);
    }

    /// Look for the pattern in what came; use it up to the end of the match.
    fn consume_match(&mut self, cx: &mut Cx<'_>, pattern: &Pattern) -> bool {
        if !self.config.datagrams {
            if self.kept.len() == self.seen as usize {
                return false;
            }
            let end = pattern.find(&self.kept, self.seen as usize);
            match end {
                Some(end) => drop(self.kept.drain(..end)),
                None => self.seen = self.kept.len() as u32,
            }
            return end.is_some();
        }
        while let Some((len, rest)) = self.kept.split_first_chunk() {
            let len = usize::from(u16::from_be_bytes(*len)).min(rest.len());
            let hit = pattern.find(&rest[..len], 0).is_some();
            self.kept.drain(..2 + len);
            if hit {
                return true;
            }
            self.other = true;
            cx.count_unrequested(cx.now);
        }
        false
    }

    /// An expect is over without a match.
    fn missing(&mut self, cx: &mut Cx<'_>) {
        let step = self.at;
        if self.kept.is_empty() && !self.other {
            return self.fail(cx, Failure::Timeout, || format!("nothing came at step {step} in time"));
        }
        let start = self.kept[..self.kept.len().min(60)].escape_ascii().to_string();
        // of the others it may expect any itself
        let tls = !self.config.datagrams && other_protocol(&self.kept) == Some(TLS_PORT);
        let why = if tls { Cause::named(Failure::Rejected, TLS_PORT) } else { Failure::Rejected.into() };
        self.fail(cx, why, || format!("not what step {step} expects: {start}"));
    }
}

#[cfg(test)]
mod tests;
