//! What comes to a user agent: responses to its transactions, requests, and what is neither.

use super::expected::matches;
use super::server::server;
use super::{Event, INBOX_MAX, Stage, UserAgent};
use crate::description::counter;
use crate::dialog::{Dialog, contact_uri, routes};
use crate::measure;
use crate::message::{fingerprint, read_branch};
use crate::method::Method;
use crate::scenario::{Alternative, Op, When, reason};
use protocol::cause::{Cause, other_protocol};
use protocol::meter::Failure;
use protocol::model::Cx;
use protocol::time::Time;
use sip_core::message::{Scanned, Start, frame, leading_crlf, scan};
use std::sync::Arc;

impl UserAgent {
    /// Messages of a stream: how many bytes were used.
    pub(super) fn stream(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> usize {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            // keep-alives may come between messages (RFC 5626 section 3.5.1)
            if rest.len() == leading_crlf(rest) {
                return bytes.len();
            }
            // seen by its first bytes: an alert of TLS is too short to be a message, and is followed by nothing
            if let Some(name) = other_protocol(rest) {
                return self.no_sip(cx, bytes, rest, Cause::named(Failure::Protocol, name), name);
            }
            match frame(rest) {
                Ok(Some(length)) => {
                    self.message(cx, &rest[..length]);
                    used += length;
                    if self.stage == Stage::Reconnecting {
                        return bytes.len();
                    }
                    self.advance(cx);
                }
                Ok(None) => return used,
                Err(why) => return self.no_sip(cx, bytes, rest, Failure::Protocol.into(), &why.to_string()),
            }
        }
    }

    /// The other side does not speak SIP: the connection ends.
    fn no_sip(&mut self, cx: &mut Cx<'_>, bytes: &[u8], rest: &[u8], cause: Cause, why: &str) -> usize {
        let start = rest[..rest.len().min(60)].escape_ascii().to_string();
        self.fail(cx, cause, || format!("the stream is no SIP: {why}: {start}"));
        cx.close();
        bytes.len()
    }

    /// One message.
    pub(super) fn message(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) {
        cx.arrived(cx.now, bytes.len());
        if bytes.len() == leading_crlf(bytes) {
            return; // a keep-alive
        }
        let message = match scan(bytes) {
            Ok(message) => message,
            Err(why) => {
                // section 18.3, 21.4.1: it is dropped, and its transaction goes on
                cx.count(cx.now, counter::MALFORMED_MESSAGES);
                if self.refuse_version(cx, bytes, why.fault) {
                    return;
                }
                let start = bytes[..bytes.len().min(60)].escape_ascii().to_string();
                return cx.corrupted(cx.now, || format!("a malformed message: {why}: {start}"));
            }
        };
        if self.stage == Stage::Idle {
            return self.between_flows(cx, bytes, &message);
        }
        self.select_for(&message);
        match message.start {
            Start::Response { code, .. } => self.response(cx, bytes, &message, code),
            Start::Request { method, .. } => self.incoming(cx, bytes, &message, Method::of(method)),
        }
    }

    /// What comes when no flow is under way: a 2xx again, whose ACK was lost, and requests that are not for us.
    fn between_flows(&mut self, cx: &mut Cx<'_>, bytes: &[u8], message: &Scanned<'_>) {
        match message.start {
            Start::Response { code, .. } => {
                let number = message.via.branch.and_then(|branch| read_branch(branch, self.config.run));
                let number = number.filter(|(device, _)| *device == cx.device).map(|(_, number)| number);
                if !self.is_released(number, code) {
                    self.late_response(cx, bytes, message, code, number.is_some());
                }
            }
            Start::Request { method, .. } => {
                let method = Method::of(method);
                let status = match method {
                    Method::Ack => {
                        self.acknowledged_late(cx, fingerprint(message.call_id), message.cseq.number);
                        return;
                    }
                    Method::Options | Method::Notify => 200,
                    Method::Invite if message.to_tag.is_none() => 480,
                    _ => 481,
                };
                let new = server(bytes, message, method, self.source(cx), cx.from);
                if !self.is_past(cx, &new) {
                    self.answer_aside(cx, new, status, b"");
                }
            }
        }
    }

    /// A message is for the steps: what they take from it is taken now.
    pub(super) fn tell(&mut self, cx: &mut Cx<'_>, bytes: &[u8], event: Event) {
        if self.config.captures > 0 && !self.capture(cx, bytes, &event) {
            return;
        }
        if self.inbox.len() == INBOX_MAX {
            self.inbox.pop_front();
        }
        self.inbox.push_back((self.dialogs.selected(), event));
    }

    /// Take values from a message for the next step that waits for it. False: a required one is not there, and the flow ended.
    fn capture(&mut self, cx: &mut Cx<'_>, bytes: &[u8], event: &Event) -> bool {
        let config = Arc::clone(&self.config);
        let steps = config.steps(self.at).iter();
        let mut alternatives = steps
            .filter_map(|op| match op {
                Op::Expect(alternatives) => Some(alternatives.iter()),
                _ => None,
            })
            .flatten();
        let Some(taker) =
            alternatives.find(|one| matches(one, self.dialogs.selected(), event, self.dialogs.last))
        else {
            return true;
        };
        for capture in &taker.captures {
            let found = capture.value(bytes);
            let value = &mut self.captured[capture.slot];
            value.clear();
            value.extend_from_slice(found.unwrap_or_default());
            if found.is_none() && capture.required {
                let name = &capture.name;
                self.fail(cx, Failure::Rejected, || {
                    format!("a message has no {name}, which is captured from it")
                });
                return false;
            }
        }
        true
    }

    fn incoming(&mut self, cx: &mut Cx<'_>, bytes: &[u8], message: &Scanned<'_>, method: Method) {
        let call = fingerprint(message.call_id);
        let cseq = message.cseq.number;
        if method == Method::Ack {
            return self.acknowledged(cx, bytes, call, message);
        }
        let to_invite = method == Method::Invite;
        let new = server(bytes, message, method, self.source(cx), cx.from);
        let place = if to_invite { &self.dialogs.invited } else { &self.dialogs.requested };
        if place.as_ref().is_some_and(|server| server.is(method, cseq, call, new.branch)) {
            cx.count(cx.now, counter::REQUESTS_REPEATED);
            return self.respond_again(cx, to_invite);
        }
        if self.is_past(cx, &new) {
            return;
        }
        if let Some((status, headers)) = self.refusal(cx.now, bytes, message, &new) {
            cx.count(cx.now, counter::UNRELATED_MESSAGES);
            return self.answer_aside(cx, new, status, &headers);
        }
        let other_call =
            self.dialogs.dialog.as_ref().is_some_and(|dialog| *dialog.call_id != *message.call_id);
        let ringing =
            self.dialogs.invited.as_ref().is_some_and(|invited| invited.status < 200 && invited.call != call);
        let busy = to_invite && (other_call && self.in_session() || ringing);
        if busy {
            // what is under way is kept
            cx.count(cx.now, counter::UNRELATED_MESSAGES);
            return self.answer_aside(cx, new, 486, b"");
        }
        if let Some(dialog) = self.dialogs.dialog.as_mut().filter(|_| !other_call && method != Method::Cancel)
        {
            dialog.remote_cseq = dialog.remote_cseq.max(cseq);
        }
        if to_invite {
            self.keep_offer(message.session());
            self.keep_unacknowledged();
            let before = self.dialogs.invited.replace(Box::new(new));
            self.remember(before);
            if message.to_tag.is_none() {
                cx.count(cx.now, counter::CALLS_RECEIVED);
                self.accept_dialog(cx, bytes, message);
            }
        } else {
            let before = self.dialogs.requested.replace(Box::new(new));
            self.remember(before);
        }
        if matches!(method, Method::Invite | Method::Update) {
            self.note_session_interval(bytes, message.fields);
        }
        if method == Method::Bye && self.ended(cx, bytes, call) {
            return;
        }
        if method == Method::Prack && !self.take_prack(cx, bytes, message, call) {
            return self.respond(cx, false, 481, reason(481), b"", b"");
        }
        if method == Method::Cancel {
            return self.cancelled(cx, bytes, call, cseq);
        }
        if self.awaits(method) {
            return self.tell(cx, bytes, Event::Request(method));
        }
        self.answer_unexpected(cx, method, call);
    }

    /// The caller acknowledges our final response.
    fn acknowledged(&mut self, cx: &mut Cx<'_>, bytes: &[u8], call: u64, message: &Scanned<'_>) {
        let cseq = message.cseq.number;
        let Some(invited) = self.dialogs.invited.as_mut().filter(|one| one.call == call && one.cseq == cseq)
        else {
            if !self.acknowledged_late(cx, call, cseq) {
                if self.is_to_refusal(call, cseq) {
                    return;
                }
                cx.count(cx.now, counter::UNRELATED_MESSAGES);
            } else if self.awaits(Method::Ack) {
                self.tell(cx, bytes, Event::Request(Method::Ack));
            }
            return;
        };
        let first = invited.expires != Time::NEVER || invited.resend != Time::NEVER;
        let (answered, status) = (invited.answered, invited.status);
        invited.settle();
        if first && status < 300 {
            // an answer comes here where our 200 had the offer (RFC 3261 section 13.2.2.4)
            self.take_answer(cx, message.session(), true);
            self.begin_media(cx, true);
            measure::acknowledged(cx, answered);
            // that to a re-INVITE is of no step
            if self.awaits(Method::Ack) {
                self.tell(cx, bytes, Event::Request(Method::Ack));
            }
        } else if !first {
            self.acknowledged_late(cx, call, cseq);
        }
    }

    /// The other side ends the call of our dialog. True: before it was answered, and all is said.
    fn ended(&mut self, cx: &mut Cx<'_>, bytes: &[u8], call: u64) -> bool {
        self.end_media(cx, false);
        let Some(invited) = self.dialogs.invited.as_mut().filter(|one| one.call == call) else {
            return false;
        };
        if invited.status < 200 {
            // section 15.1.2
            self.respond(cx, false, 200, reason(200), b"", b"");
            self.respond(cx, true, 487, reason(487), b"", b"");
            self.fail(cx, Failure::Closed, || "the caller ended the call before it was answered".into());
            return true;
        }
        if invited.needs_ack() {
            // our 2xx arrived: the step that waits for its ACK, which was lost or is late, has nothing to wait for
            self.keep_unacknowledged();
            if let Some(invited) = &mut self.dialogs.invited {
                invited.settle();
            }
            if self.awaits(Method::Ack) {
                self.tell(cx, bytes, Event::Request(Method::Ack));
            }
        }
        false
    }

    /// The caller gives up before it is answered (section 9.2).
    fn cancelled(&mut self, cx: &mut Cx<'_>, bytes: &[u8], call: u64, cseq: u32) {
        let pending = self
            .dialogs
            .invited
            .as_ref()
            .is_some_and(|one| one.call == call && one.cseq == cseq && one.status < 200);
        if !pending {
            return self.respond(cx, false, 481, reason(481), b"", b"");
        }
        self.respond(cx, false, 200, reason(200), b"", b"");
        self.respond(cx, true, 487, reason(487), b"", b"");
        self.dialogs.dialog = None;
        if self.awaits(Method::Cancel) {
            self.tell(cx, bytes, Event::Request(Method::Cancel));
        } else {
            self.fail(cx, Failure::Closed, || "the caller cancelled the call".into());
        }
    }

    /// The dialog that an INVITE asks for (section 12.1.1).
    fn accept_dialog(&mut self, cx: &mut Cx<'_>, bytes: &[u8], message: &Scanned<'_>) {
        let offered = self.offered.take();
        self.sum_up_call(cx);
        self.offered = offered;
        let mut local = message.to.value.to_vec();
        local.extend_from_slice(b";tag=");
        self.tag(cx, &mut local);
        self.dialogs.dialog = Some(Box::new(Dialog {
            call_id: message.call_id.into(),
            local: local.into(),
            remote: message.from.value.into(),
            target: message.contact.map(contact_uri).unwrap_or_default().into(),
            routes: if message.record_route { routes(bytes, message.fields, false) } else { Box::default() },
            confirmed: true,
            remote_cseq: message.cseq.number,
            ..Dialog::default()
        }));
    }

    /// Whether the present step, or the one behind the present pause, waits for a request of this method.
    fn awaits(&self, method: Method) -> bool {
        let steps = self.config.steps(self.at).iter();
        let ahead =
            steps.take_while(|op| !matches!(op, Op::Jump { when: When::Always, .. } | Op::Again { .. }));
        let wants = |one: &Alternative| one.leg == self.dialogs.selected() && one.message.is_request(method);
        let mut next = ahead.filter_map(|op| match op {
            Op::Expect(alternatives) => Some(alternatives),
            _ => None,
        });
        next.any(|alternatives| alternatives.iter().any(wants))
    }

    /// Whether the present step waits for a request of this method.
    pub(super) fn expects(&self, method: Method) -> bool {
        matches!(self.config.ops.get(usize::from(self.at)), Some(Op::Expect(alternatives))
            if alternatives.iter().any(|one| one.leg == self.dialogs.selected() && one.message.is_request(method)))
    }

    /// Answer a request that no step waits for.
    fn answer_unexpected(&mut self, cx: &mut Cx<'_>, method: Method, call: u64) {
        let ours = self.dialogs.dialog.as_ref().is_some_and(|dialog| fingerprint(&dialog.call_id) == call);
        match method {
            Method::Bye if ours && self.in_session() => self.hung_up(cx),
            Method::Bye => {
                cx.count(cx.now, counter::UNRELATED_MESSAGES);
                self.respond(cx, false, 481, reason(481), b"", b"");
            }
            // a re-INVITE (section 14.2): what it offers is taken
            Method::Invite if ours && self.in_session() => {
                let mut body = Vec::new();
                self.answer_session(cx, &mut body);
                self.respond(cx, true, 200, reason(200), b"", &body);
                self.begin_media(cx, true);
            }
            Method::Invite => {
                cx.count(cx.now, counter::UNRELATED_MESSAGES);
                self.respond(cx, true, 486, reason(486), b"", b"");
                self.dialogs.dialog = None;
            }
            Method::Options
            | Method::Notify
            | Method::Info
            | Method::Message
            | Method::Update
            | Method::Prack => {
                self.respond(cx, false, 200, reason(200), b"", b"");
            }
            _ => {
                cx.count(cx.now, counter::UNRELATED_MESSAGES);
                self.respond(
                    cx,
                    false,
                    405,
                    reason(405),
                    b"Allow: INVITE, ACK, BYE, CANCEL, OPTIONS\r\n",
                    b"",
                );
            }
        }
    }
}
