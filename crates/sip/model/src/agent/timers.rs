//! Timers of a user agent: what is sent again, what is given up, and the wait of a step.

use super::UserAgent;
use super::failover::SILENT;
use crate::description::counter;
use crate::measure;
use crate::scenario::{Op, reason};
use protocol::meter::Failure;
use protocol::model::Cx;
use protocol::time::Time;
use std::sync::Arc;

impl UserAgent {
    /// Set the timer to what comes first: a step, or a transmission.
    pub(super) fn arm(&mut self, cx: &mut Cx<'_>) {
        let mut at = if self.until == Time::ZERO { Time::NEVER } else { self.until };
        if self.lingers > cx.now {
            at = at.min(self.lingers);
        }
        self.silent = Time::NEVER;
        for leg in self.legs() {
            self.select(leg);
            at = at.min(self.transactions_due());
        }
        if self.reliable.is_some() {
            at = at.min(self.prack_due());
        }
        if !self.forks.is_empty() {
            at = at.min(self.release_due());
        }
        self.signalling = at;
        self.wake(cx);
    }

    /// When a transaction of the selected dialog needs attention.
    fn transactions_due(&mut self) -> Time {
        let mut at = Time::NEVER;
        for client in [&self.dialogs.invite, &self.dialogs.request].into_iter().flatten() {
            at = at.min(client.resend).min(client.expires);
            if !client.provisional {
                self.silent = self.silent.min(client.first);
            }
        }
        if let Some(dialog) = self.dialogs.dialog.as_ref().filter(|dialog| dialog.session) {
            at = at.min(dialog.clock.map_or(Time::NEVER, |clock| clock.due()));
        }
        let servers = [&self.dialogs.invited, &self.dialogs.requested].into_iter().flatten();
        servers.fold(at, |at, server| at.min(server.due()))
    }

    /// Set the timer to what comes first: signalling or audio.
    pub(super) fn wake(&mut self, cx: &mut Cx<'_>) {
        let at = self.signalling.min(self.media_due());
        if at != self.armed {
            self.armed = at;
            cx.wake_at(at);
        }
    }

    /// Send again what is due, give up what is overdue. True: the flow goes on.
    pub(super) fn retransmit(&mut self, cx: &mut Cx<'_>) -> bool {
        for leg in self.legs() {
            self.select(leg);
            if !self.retransmit_selected(cx) {
                return false;
            }
        }
        if !self.forks.is_empty() {
            self.release_again(cx);
        }
        self.prack_again(cx)
    }

    /// The same for the selected dialog.
    fn retransmit_selected(&mut self, cx: &mut Cx<'_>) -> bool {
        if self.is_left_alone(cx) {
            self.next_server(cx, SILENT);
            return false;
        }
        if !self.keep_session(cx) {
            return false;
        }
        for invite in [true, false] {
            let client = if invite { &mut self.dialogs.invite } else { &mut self.dialogs.request };
            if let Some(overdue) = client.take_if(|client| client.expires <= cx.now) {
                let session = self.in_session();
                measure::finished(
                    cx,
                    &overdue,
                    None,
                    if invite { !session } else { session },
                    self.session_requested_at(),
                );
                let (method, t) = (overdue.method, overdue.first);
                let timer = match (invite, overdue.provisional) {
                    (true, true) => "Timer C",
                    (true, false) => "Timer B",
                    (false, _) => "Timer F",
                };
                self.fail_since(cx, t, Failure::Unanswered, || {
                    format!("no final response to {method} before {timer}")
                });
                return false;
            }
        }
        let t2 = self.config.t2;
        let state = &mut *self.dialogs;
        for client in [&mut state.invite, &mut state.request].into_iter().flatten() {
            if client.resend <= cx.now {
                match client.to {
                    Some(to) => cx.out.elsewhere.push((to, client.bytes.clone())),
                    None => cx.out.push_datagram(&client.bytes),
                }
                cx.sent_bytes(client.first, client.bytes.len());
                client.sent_again(cx.now, t2);
                measure::sent_again(cx, client);
            }
        }
        let Some(invited) = &mut self.dialogs.invited else { return true };
        if invited.expires <= cx.now {
            // section 13.3.1.4: without its ACK the session is over
            invited.settle();
            let status = invited.status;
            if status < 200 {
                // RFC 3262 section 3
                self.respond(cx, true, 504, reason(504), b"", b"");
                self.fail(cx, Failure::Unanswered, || format!("no PRACK to our {status} in time (64 × T1)"));
                return false;
            }
            self.fail(cx, Failure::Unanswered, || format!("no ACK to our {status} in time (64 × T1)"));
            return false;
        }
        if invited.resend <= cx.now {
            let (response, to) = (invited.response.clone(), invited.to);
            let of = if invited.status < 200 { cx.now } else { invited.answered };
            cx.sent_bytes(of, invited.response.len());
            let doubled = invited.wait * 2;
            invited.wait = if invited.status < 200 { doubled } else { doubled.min(t2) };
            invited.resend = cx.now + invited.wait;
            cx.count(of, counter::RESPONSE_RETRANSMISSIONS);
            self.say_to(cx, to, &response);
        }
        true
    }

    /// When the present session was asked for.
    pub(super) fn session_requested_at(&self) -> Time {
        self.dialogs.dialog.as_ref().and_then(|dialog| dialog.asked).unwrap_or(Time::ZERO)
    }

    pub(super) fn in_session(&self) -> bool {
        self.dialogs.dialog.as_ref().is_some_and(|dialog| dialog.session)
    }

    /// Whether the present step's wait is over without what it waits for.
    pub(super) fn timed_out(&mut self, cx: &mut Cx<'_>) -> bool {
        let config = Arc::clone(&self.config);
        let Some(Op::Expect(alternatives)) = config.ops.get(usize::from(self.at)) else { return false };
        if self.until == Time::ZERO || self.until > cx.now {
            return false;
        }
        if let Some(label) = alternatives.iter().find_map(|one| one.expired) {
            self.go_to(label);
            self.due = cx.now;
            return false;
        }
        if let Some(passes) = alternatives.iter().find(|one| one.optional) {
            match passes.then {
                Some(label) => self.go_to(label),
                None => self.next(cx),
            }
            return false;
        }
        let what = alternatives.iter().map(|one| one.message.to_string()).collect::<Vec<_>>().join(" or ");
        let step = self.at;
        self.fail(cx, Failure::Timeout, || format!("step {step}: {what} did not come in time"));
        true
    }
}
