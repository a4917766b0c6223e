//! Sending: what is due leaves, and leaves again until it is acknowledged (RFC 7252 section 4.2).

use super::echo::{Challenge, Echo};
use super::exchange::{Exchange, Part, Purpose, Stage};
use super::request::Fill;
use super::{BLOCKS, Device, ECHO_CHALLENGES, RESPONSE, RETRANSMISSIONS};
use crate::cause::Cause;
use crate::meter::Failure;
use crate::model::Cx;
use crate::template::Values;
use crate::time::Time;
use std::time::Duration;

impl Device {
    pub(super) fn set(&mut self, i: usize, stage: Stage) {
        let was = std::mem::replace(&mut self.exchanges[i].stage, stage);
        let step = |count: &mut u16, was: bool, is: bool| {
            *count = count.saturating_add(u16::from(is)).saturating_sub(u16::from(was));
        };
        step(&mut self.ready, was == Stage::Ready, stage == Stage::Ready);
        step(&mut self.outstanding, was.outstanding(), stage.outstanding());
        step(&mut self.pending, !was.over(), !stage.over());
    }

    /// Nothing more is waited for in exchange `i`.
    pub(super) fn over(&mut self, cx: &Cx<'_>, i: usize, how: Stage) {
        self.set(i, how);
        let number = self.number(i);
        if let Some(rare) = &mut self.rare {
            rare.echoes.forget(number);
        }
        self.silent = if self.pending > 0 { cx.now } else { Time::NEVER };
    }

    /// The response of exchange `i` is whole and as it should be.
    pub(super) fn delivered(&mut self, cx: &mut Cx<'_>, i: usize) {
        let Exchange { intended, purpose, .. } = self.exchanges[i];
        if purpose != Purpose::Fetch {
            cx.delivered(intended, RESPONSE);
        }
        self.over(cx, i, Stage::Done);
    }

    /// Exchange `i` failed.
    pub(super) fn fail(
        &mut self,
        cx: &mut Cx<'_>,
        i: usize,
        why: impl Into<Cause>,
        what: impl FnOnce() -> String,
    ) {
        let why = why.into();
        let Exchange { intended, purpose, .. } = self.exchanges[i];
        // what was lost belongs to the time at which it was due
        let at = if why.kind == Failure::Unanswered { intended } else { cx.now };
        cx.failure(at, why, what);
        self.failed |= matches!(purpose, Purpose::Register | Purpose::Deregister);
        self.over(cx, i, Stage::Failed);
    }

    /// Take up an exchange, whose first message is to be sent.
    pub(super) fn add(&mut self, x: Exchange) -> usize {
        self.exchanges.push_back(x);
        self.next += 1;
        let i = self.exchanges.len() - 1;
        self.next_message(i);
        i
    }

    /// Begin an exchange. False: it does not fit behind what this callback sends, and is to be tried again at once.
    pub(super) fn begin(&mut self, cx: &mut Cx<'_>, purpose: Purpose, intended: Time) -> bool {
        let i = self.add(Exchange::of(purpose, intended, Part::Request, self.config.request.szx));
        let fits = self.transmit(cx, i);
        if !fits && purpose == Purpose::Request {
            // it has not begun before it leaves
            self.set(i, Stage::Done);
            self.exchanges.pop_back();
            self.next -= 1;
            self.last_id = self.last_id.wrapping_sub(1);
        }
        fits
    }

    /// Exchange `i` goes on with a new message.
    pub(super) fn next_message(&mut self, i: usize) {
        // RFC 7252 section 4.4. At more than 265 messages a second of one device an identifier comes again within
        // EXCHANGE_LIFETIME: a load must not be held back by that
        self.last_id = self.last_id.wrapping_add(1);
        let x = &mut self.exchanges[i];
        x.id = self.last_id;
        x.tries = 0;
        self.set(i, Stage::Ready);
    }

    pub(super) fn number(&self, i: usize) -> u64 {
        self.next - (self.exchanges.len() - i) as u64
    }

    pub(super) fn token(&self, i: usize) -> u32 {
        let x = &self.exchanges[i];
        match x.purpose {
            // RFC 7641 section 3.1, and 3.6: the token of the observation. Blocks behind the first have their own
            Purpose::Register | Purpose::Deregister if x.part == Part::Request => self.salt,
            _ => self.salt.wrapping_add(self.number(i) as u32),
        }
    }

    /// Send what is to be sent. False: not all of it fits into this callback.
    pub(super) fn send_ready(&mut self, cx: &mut Cx<'_>) -> bool {
        if self.ready > 0 {
            for i in 0..self.exchanges.len() {
                if self.exchanges[i].stage == Stage::Ready && !self.transmit(cx, i) {
                    return false;
                }
            }
        }
        true
    }

    /// Send the message of exchange `i`. One callback sends one datagram, or several of one size.
    pub(super) fn transmit(&mut self, cx: &mut Cx<'_>, i: usize) -> bool {
        let mut x = self.exchanges[i];
        let start = cx.out.bytes.len();
        let first = !x.begun && x.purpose != Purpose::Fetch;
        if first {
            x.began = cx.now;
        }
        x.begun = true;
        let token = self.token(i).to_be_bytes();
        let fill = self.fill(cx.device, &x, i);
        let number = self.number(i);
        let echo = self.rare.as_ref().and_then(|rare| rare.echoes.of(number, x.tries == 0));
        let (confirmable, out) = (self.config.confirmable, &mut cx.out.bytes);
        self.config.request.write(out, confirmable, &x, token, fill, echo.as_ref().map(Echo::bytes));
        let len = cx.out.bytes.len() - start;
        if start > 0 && cx.out.segment != len {
            cx.out.bytes.truncate(start);
            return false;
        }
        cx.out.segment = len;
        if let Some((rare, echo)) = self.rare.as_mut().zip(echo) {
            rare.echoes.sent(number, echo);
        }
        if first {
            cx.sent(x.intended, len);
        } else {
            cx.sent_bytes(x.intended, len);
            let kind = match (x.tries, x.challenge) {
                (1.., _) => RETRANSMISSIONS,
                (0, Challenge::Asked) => ECHO_CHALLENGES,
                (0, _) => BLOCKS,
            };
            cx.count(x.intended, kind);
        }
        if x.challenge == Challenge::Asked {
            x.challenge = Challenge::Answered;
        }
        if x.tries == 0 {
            x.sent = cx.now;
            x.wait = self.config.first_wait(cx);
        }
        x.due = x.sent + self.config.timeout;
        if self.config.confirmable {
            x.due = x.due.min(cx.now + Duration::from_nanos(x.wait));
        }
        self.exchanges[i] = x;
        self.set(i, Stage::Sent);
        self.soonest = self.soonest.min(x.due);
        self.silent = self.silent.min(cx.now);
        true
    }

    /// What the places of templates are filled with: the same each time that a message of this exchange is sent.
    pub(super) fn fill(&self, device: u32, x: &Exchange, i: usize) -> Fill {
        // an observation is of one resource
        let (seq, now) = if self.config.observe { (0, self.base) } else { (self.number(i), x.began) };
        Fill { values: Values { device, seq, now }, seed: u64::from(self.salt) << 32 | (seq & 0xffff_ffff) }
    }

    /// Send again what has waited long enough for its acknowledgement, give up what has waited too long.
    pub(super) fn expire(&mut self, cx: &mut Cx<'_>) {
        if self.soonest > cx.now {
            return;
        }
        self.soonest = Time::NEVER;
        for i in 0..self.exchanges.len() {
            let x = &mut self.exchanges[i];
            if x.stage == Stage::Ready || x.stage.over() {
                continue;
            }
            if x.due > cx.now {
                self.soonest = self.soonest.min(x.due);
                continue;
            }
            // RFC 7252 section 4.2: a sender may give up before MAX_RETRANSMIT
            let over = x.sent + self.config.timeout <= cx.now;
            if x.stage == Stage::Sent && !over && x.tries < self.config.max_retransmit {
                x.tries += 1;
                x.wait = x.wait.saturating_mul(2);
                self.set(i, Stage::Ready);
            } else {
                let acknowledged = x.stage == Stage::Acknowledged;
                self.fail(cx, i, Failure::Unanswered, || {
                    let what =
                        if acknowledged { "no response behind the acknowledgement" } else { "no response" };
                    format!("{what} in time")
                });
            }
        }
    }
}
