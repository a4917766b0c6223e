//! What an HTTP device sends, when, and on which connection.

use super::description::RETRIED;
use super::{Device, IDLE_CLOSES, PendingRequest, State};
use crate::http::config::Exchange;
use crate::model::{Cx, Link};
use crate::template::Values;
use crate::time::Time;

impl Device {
    pub(super) fn has_more(&self, cx: &Cx<'_>) -> bool {
        let wanted =
            self.config.requests == 0 || self.next < self.config.requests + self.config.initial_requests();
        wanted && !self.stopping && cx.loading()
    }

    /// When the next request is due.
    #[inline]
    pub(super) fn due(&self, now: Time) -> Time {
        match self.next.checked_sub(self.config.initial_requests()) {
            Some(sent) if !self.config.pace.closed_loop() => self.config.pace.due(self.base, sent),
            _ => self.rest_until().unwrap_or(now),
        }
    }

    /// When the rest after the last response ends, if there is one.
    fn rest_until(&self) -> Option<Time> {
        (self.config.pace.closed_loop() && self.base != Time::NEVER).then_some(self.base)
    }

    /// The exchange with the oldest request that waits.
    pub(super) fn oldest(&self) -> &Exchange {
        self.config.exchange(self.next - self.waiting.len() as u64)
    }

    /// Whether another request may be sent, once it is due.
    pub(super) fn may_send(&self, cx: &Cx<'_>) -> bool {
        // those that are to be sent again go first; and behind what the server has yet to answer nothing is sent to one that
        // has closed
        let held = self.state == State::Up
            && (usize::from(self.emitted) < self.waiting.len() || self.emitted > 0 && cx.ended);
        // what is sent at the start of a flow is answered before anything else is sent
        let first = self.next - self.waiting.len() as u64;
        let depth = if first < self.config.initial_requests() { 1 } else { self.config.depth };
        !held && self.waiting.len() < depth && self.has_more(cx)
    }

    /// Send what is due, connect for it if need be, end the flow when nothing is left.
    pub(super) fn pump(&mut self, cx: &mut Cx<'_>) {
        self.emit_waiting(cx);
        while self.may_send(cx) && self.state != State::Connecting {
            let intended = self.due(cx.now);
            if intended > cx.now {
                break;
            }
            if self.state == State::Up && self.emitted == 0 && !self.is_usable(cx) {
                self.close_connection(State::Down);
            }
            if self.state == State::Down {
                return self.reconnect(cx);
            }
            let bytes = self.emit(cx, self.next);
            cx.sent(intended, bytes);
            self.waiting.push_back(PendingRequest { intended, sent: cx.now });
            if self.config.pace.closed_loop() {
                self.base = Time::NEVER;
            }
            self.emitted += 1;
            self.next += 1;
        }
        if self.waiting.is_empty() {
            if !self.has_more(cx) && self.state != State::Connecting {
                self.end(cx);
                cx.finish();
                cx.close();
                return;
            }
        } else if self.state == State::Down {
            return self.reconnect(cx);
        }
        self.arm(cx);
    }

    /// Send what waits and was sent on an earlier connection: what was pipelined behind a response that closed it at once
    /// (RFC 9112 §9.3.2), what is sent again after it was closed without a word one by one until a response has come.
    pub(super) fn emit_waiting(&mut self, cx: &mut Cx<'_>) {
        let most = if self.retried > 0 && !self.served { 1 } else { self.waiting.len() };
        while self.state == State::Up && usize::from(self.emitted) < most {
            if self.emitted == 0 && !self.is_usable(cx) {
                return self.close_connection(State::Down);
            }
            let at = usize::from(self.emitted);
            let bytes = self.emit(cx, self.next - (self.waiting.len() - at) as u64);
            cx.sent_bytes(self.waiting[at].intended, bytes);
            cx.count(self.waiting[at].intended, RETRIED);
            self.waiting[at].sent = cx.now;
            self.emitted += 1;
        }
    }

    /// Whether a request can be sent on this connection, on which no other is on its way: the server has not closed it, and
    /// is not about to by what it has said.
    pub(super) fn is_usable(&self, cx: &mut Cx<'_>) -> bool {
        if cx.ended {
            cx.count(cx.now, IDLE_CLOSES);
        }
        !cx.ended && cx.now < self.idle_by
    }

    /// Connect again; when the old connection is only being closed now, right after that.
    pub(super) fn reconnect(&mut self, cx: &mut Cx<'_>) {
        if cx.link == Link::Close {
            self.armed = cx.now;
            cx.wake_at(cx.now);
        } else {
            self.connect(cx, cx.now);
            self.arm(cx);
        }
    }

    /// Send request number `seq`; how many bytes that is.
    #[inline]
    pub(super) fn emit(&self, cx: &mut Cx<'_>, seq: u64) -> usize {
        let before = cx.out.bytes.len();
        let values = Values { device: cx.device, seq, now: cx.now };
        let captured = self.captured.as_deref().map_or(&[][..], |captured| &captured.values);
        self.config.exchange(seq).request.render(values, captured, cx.rng, &mut cx.out.bytes);
        cx.out.bytes.len() - before
    }

    /// When the flow fails unless something happens.
    #[inline]
    pub(super) fn deadline(&self) -> Time {
        match (self.state, self.waiting.front()) {
            (State::Connecting, _) => self.since + self.config.timeout,
            (State::Up, Some(oldest)) => oldest.sent + self.config.timeout,
            _ => Time::NEVER,
        }
    }

    /// Set the timer, unless it goes off before it is needed anyway: deadlines mostly move on.
    #[inline]
    pub(super) fn arm(&mut self, cx: &mut Cx<'_>) {
        let mut at = self.deadline();
        let timed = !self.config.pace.closed_loop() || self.rest_until().is_some();
        if timed && self.state != State::Connecting && self.may_send(cx) {
            at = at.min(self.due(cx.now));
        }
        if at < self.armed {
            self.armed = at;
            cx.wake_at(at);
        }
    }
}
