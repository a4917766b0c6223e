//! What comes to a user agent: responses to its transactions, requests, and what is neither.

use super::expected::matches;
use super::failover::{REJECTS, UNAVAILABLE};
use super::lifetime::TOO_BRIEF;
use super::server::server;
use super::{Event, INBOX_MAX, Stage, UserAgent};
use crate::auth::{Auth, Secrets};
use crate::binding;
use crate::description::counter;
use crate::dialog::{Dialog, contact_uri, routes};
use crate::measure;
use crate::message::{fingerprint, read_branch, read_call};
use crate::method::Method;
use crate::scenario::{Alternative, ExpectedMessage, Op, When, reason};
use crate::transaction::Client;
use protocol::cause::{Cause, other_protocol};
use protocol::meter::Failure;
use protocol::model::Cx;
use protocol::template::Template;
use protocol::time::Time;
use sip_core::digest::AkaError;
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

    fn response(&mut self, cx: &mut Cx<'_>, bytes: &[u8], message: &Scanned<'_>, code: u16) {
        let method = Method::of(message.cseq.method);
        let ours = message.via.branch.and_then(|branch| read_branch(branch, self.config.run));
        let number = ours.filter(|(device, _)| *device == cx.device).map(|(_, number)| number);
        let place = if method == Method::Invite { &mut self.invite } else { &mut self.request };
        let same = |client: &&mut Box<Client>| number == Some(client.branch) && client.method == method;
        if place.as_mut().filter(same).is_some_and(|client| !client.is_answered_by(message)) {
            cx.count(cx.now, counter::MALFORMED_MESSAGES);
            return cx.corrupted(cx.now, || {
                format!("a {code} to {method} whose Call-ID, From tag or CSeq is not that of its request")
            });
        }
        let Some(client) = place.as_mut().filter(same) else {
            if method == Method::Bye && self.is_released(number, code) {
                return;
            }
            if method == Method::Prack && self.is_to_prack(cx, number, code) {
                return;
            }
            return self.late_response(cx, bytes, message, code, number.is_some());
        };
        if code < 200 {
            let first = client.first;
            client.proceed();
            if code == 100 {
                cx.count(first, counter::TRYING_RESPONSES);
            }
            let rings =
                code > 100 && !std::mem::replace(&mut client.ringing, true) && method == Method::Invite;
            if rings {
                let session = !self.dialog.as_ref().is_some_and(|dialog| dialog.session);
                if let Some(invite) = self.invite.as_ref().filter(|_| session) {
                    measure::alerted(cx, invite);
                }
            }
            if method == Method::Invite {
                self.extend(cx.now);
            }
            if code > 100 && method == Method::Invite {
                if !self.acknowledge_provisional(cx, bytes, message) {
                    return;
                }
                self.take_answer(cx, message.session(), false);
                if !message.body.is_empty() {
                    self.begin_media(cx); // early media
                }
            }
            if code > 100 {
                cx.count(first, counter::PROVISIONAL_RESPONSES);
                self.tell(
                    cx,
                    bytes,
                    Event::Response { method, status: code, first, delay: 0, dropped: false },
                );
            }
            return;
        }
        let Some(client) = place.take() else { return };
        self.final_response(cx, bytes, message, code, *client);
    }

    fn final_response(
        &mut self,
        cx: &mut Cx<'_>,
        bytes: &[u8],
        message: &Scanned<'_>,
        code: u16,
        client: Client,
    ) {
        let method = client.method;
        let session = self.in_session();
        if method == Method::Invite && code >= 300 {
            self.acknowledge_failure(cx, &client, message.to.value);
        }
        if code == UNAVAILABLE && cx.has_next && client.to.is_none() && !self.is_expected(method, code) {
            let place = if method == Method::Invite { &mut self.invite } else { &mut self.request };
            *place = Some(Box::new(client));
            return self.next_server(cx, REJECTS);
        }
        let dropped = self.is_dropped(&client, code);
        if dropped {
            cx.count(self.session_requested_at(), counter::CALLS_DROPPED);
        }
        if matches!(code, 401 | 407) && !self.is_expected(method, code) {
            cx.count(client.first, counter::CHALLENGES);
            match self.answers_to(cx, message, &client) {
                Err(error) => {
                    return self.fail(cx, Failure::Protocol, || format!("a {code} to {method}: {error}"));
                }
                Ok(answers) => {
                    if !answers.is_empty() && self.send_authorized(cx, &client, answers) {
                        return;
                    }
                }
            }
        }
        if code == TOO_BRIEF
            && !self.is_expected(method, code)
            && message.min_expires.is_some_and(|least| self.send_longer(cx, &client, least))
        {
            return;
        }
        if method == Method::Invite && !session && (200..300).contains(&code) {
            if !client.ringing {
                measure::alerted(cx, &client);
            }
            self.establish(bytes, message);
        }
        if method == Method::Invite && (200..300).contains(&code) {
            self.take_answer(cx, message.session(), true);
            self.begin_media(cx);
        }
        let unbound = self.why_unbound(cx, bytes, message, &client, code);
        if method == Method::Register && (200..300).contains(&code) && unbound.is_none() {
            self.registration_accepted(cx);
        }
        let asks = if method == Method::Invite { !session } else { session };
        let counted = Some(code).filter(|_| unbound.is_none());
        let delay = measure::finished(cx, &client, counted, asks, self.session_requested_at());
        if let Some(what) = unbound {
            cx.delay(client.first, delay);
            return self.fail(cx, Cause::named(Failure::Protocol, what), || what.into());
        }
        if method == Method::Bye
            && ((200..300).contains(&code) || dropped)
            && let Some(dialog) = &mut self.dialog
        {
            dialog.session = false;
        }
        if method == Method::Bye {
            self.sum_up_call(cx);
        }
        // section 12.1: a 2xx to an INVITE without tag, or without Contact, makes no dialog
        if method == Method::Invite && (200..300).contains(&code) && !session {
            let lacks = match (message.to_tag, message.contact) {
                (None, _) => Some("a 200 to INVITE without a tag in To"),
                (_, None) => Some("a 200 to INVITE without Contact"),
                _ => None,
            };
            if let Some(what) = lacks {
                return self.fail(cx, Failure::Protocol, || what.into());
            }
        }
        // a call that has ended with its server has ended as the scenario wanted
        let over = dropped || self.is_over_already(method, code, fingerprint(message.call_id));
        let status = if over { 200 } else { code };
        self.tell(cx, bytes, Event::Response { method, status, first: client.first, delay, dropped });
    }

    /// Why a 2xx to a REGISTER that asks for a binding made none.
    fn why_unbound(
        &self,
        cx: &Cx<'_>,
        bytes: &[u8],
        message: &Scanned<'_>,
        client: &Client,
        code: u16,
    ) -> Option<&'static str> {
        let Some(Op::Send(request)) = self.config.ops.get(usize::from(client.step)) else { return None };
        let asks = request.method == Method::Register && request.expires.unwrap_or(self.config.expires) > 0;
        if !(asks && (200..300).contains(&code)) {
            return None;
        }
        let mut ours = Vec::with_capacity(64);
        self.contact_address(cx, &mut ours);
        binding::missing(bytes, message.fields, &ours)
    }

    /// Whether a step waits for this response as it is: then a challenge is not answered.
    fn is_expected(&self, method: Method, code: u16) -> bool {
        let Some(Op::Expect(alternatives)) = self.config.ops.get(usize::from(self.at)) else { return false };
        alternatives.iter().filter(|one| one.leg == self.leg).any(|one| match &one.message {
            ExpectedMessage::Response { status, of } => of.unwrap_or(self.last) == method && status.has(code),
            ExpectedMessage::Request(_) | ExpectedMessage::AnyRequest => false,
        })
    }

    /// Answers to the challenges of a response. A proxy that forks passes on those of all callees and proxies behind it
    /// (section 22.3).
    fn answers_to(
        &self,
        cx: &mut Cx<'_>,
        message: &Scanned<'_>,
        client: &Client,
    ) -> Result<Vec<Auth>, AkaError> {
        let config = Arc::clone(&self.config);
        let values = self.values(cx);
        let mut rendered = |template: &Template| {
            let mut text = Vec::new();
            template.render(values, cx.rng, &mut text);
            text
        };
        let password = config.password.as_ref().map(&mut rendered);
        let aka = config.aka.as_ref().and_then(|aka| aka.keys(&mut rendered));
        if password.is_none() && aka.is_none() {
            return Ok(Vec::new());
        }
        let user = rendered(&config.auth_user);
        let secrets = Secrets { password, aka };
        let mut all = Auth::answers(message.www_authenticate.as_slice(), &user, &secrets, false)?;
        all.extend(Auth::answers(message.proxy_authenticate.as_slice(), &user, &secrets, true)?);
        all.retain(|auth| client.may_answer(auth.asker(), auth.is_stale()));
        Ok(all)
    }

    /// A response to no transaction under way: a 2xx to INVITE that came again is acknowledged again (section 13.2.2.4).
    fn late_response(&mut self, cx: &mut Cx<'_>, bytes: &[u8], message: &Scanned<'_>, code: u16, ours: bool) {
        let method = Method::of(message.cseq.method);
        if !ours {
            return cx.count(cx.now, counter::UNRELATED_MESSAGES);
        }
        match code {
            100 => return cx.count(cx.now, counter::TRYING_RESPONSES),
            101..200 => return cx.count(cx.now, counter::PROVISIONAL_RESPONSES),
            _ => {}
        }
        if method == Method::Invite && code < 300 {
            return self.late_answer(cx, bytes, message);
        }
        cx.count(cx.now, counter::RESPONSES_REPEATED);
    }

    /// The call is answered: its dialog (section 12.1.2).
    fn establish(&mut self, bytes: &[u8], message: &Scanned<'_>) {
        let Some(dialog) = &mut self.dialog else { return };
        let call = read_call(message.call_id).unwrap_or_default();
        self.answered = (call, fingerprint(message.to_tag.unwrap_or_default()));
        self.ack = None;
        dialog.remote = message.to.value.into();
        if let Some(contact) = message.contact {
            dialog.target = contact_uri(contact).into();
        }
        dialog.routes =
            if message.record_route { routes(bytes, message.fields, true) } else { Box::default() };
        dialog.confirmed = true;
        dialog.session = true;
    }

    /// A message is for the steps: what they take from it is taken now.
    fn tell(&mut self, cx: &mut Cx<'_>, bytes: &[u8], event: Event) {
        if self.config.captures > 0 && !self.capture(cx, bytes, &event) {
            return;
        }
        if self.inbox.len() == INBOX_MAX {
            self.inbox.pop_front();
        }
        self.inbox.push_back((self.leg, event));
    }

    /// Take values from a message for the next step that waits for it. False: a required one is not there, and the flow ended.
    fn capture(&mut self, cx: &mut Cx<'_>, bytes: &[u8], event: &Event) -> bool {
        let config = Arc::clone(&self.config);
        let steps = config.ops.get(usize::from(self.at)..).unwrap_or_default().iter();
        let mut alternatives = steps
            .filter_map(|op| match op {
                Op::Expect(alternatives) => Some(alternatives.iter()),
                _ => None,
            })
            .flatten();
        let Some(taker) = alternatives.find(|one| matches(one, self.leg, event, self.last)) else {
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
        let place = if to_invite { &self.invited } else { &self.requested };
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
        let other_call = self.dialog.as_ref().is_some_and(|dialog| *dialog.call_id != *message.call_id);
        let ringing =
            self.invited.as_ref().is_some_and(|invited| invited.status < 200 && invited.call != call);
        let busy = to_invite && (other_call && self.in_session() || ringing);
        if busy {
            // what is under way is kept
            cx.count(cx.now, counter::UNRELATED_MESSAGES);
            return self.answer_aside(cx, new, 486, b"");
        }
        if let Some(dialog) = self.dialog.as_mut().filter(|_| !other_call && method != Method::Cancel) {
            dialog.remote_cseq = dialog.remote_cseq.max(cseq);
        }
        if to_invite {
            self.keep_offer(message.session());
            self.keep_unacknowledged();
            let before = self.invited.replace(Box::new(new));
            self.remember(before);
            if message.to_tag.is_none() {
                cx.count(cx.now, counter::CALLS_RECEIVED);
                self.accept_dialog(cx, bytes, message);
            }
        } else {
            let before = self.requested.replace(Box::new(new));
            self.remember(before);
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
        let Some(invited) = self.invited.as_mut().filter(|one| one.call == call && one.cseq == cseq) else {
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
            self.begin_media(cx);
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
        let Some(invited) = self.invited.as_mut().filter(|one| one.call == call) else { return false };
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
            if let Some(invited) = &mut self.invited {
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
        let pending =
            self.invited.as_ref().is_some_and(|one| one.call == call && one.cseq == cseq && one.status < 200);
        if !pending {
            return self.respond(cx, false, 481, reason(481), b"", b"");
        }
        self.respond(cx, false, 200, reason(200), b"", b"");
        self.respond(cx, true, 487, reason(487), b"", b"");
        self.dialog = None;
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
        self.dialog = Some(Box::new(Dialog {
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
        let steps = self.config.ops[usize::from(self.at).min(self.config.ops.len())..].iter();
        let ahead =
            steps.take_while(|op| !matches!(op, Op::Jump { when: When::Always, .. } | Op::Again { .. }));
        let wants = |one: &Alternative| one.leg == self.leg && one.message.is_request(method);
        let mut next = ahead.filter_map(|op| match op {
            Op::Expect(alternatives) => Some(alternatives),
            _ => None,
        });
        next.any(|alternatives| alternatives.iter().any(wants))
    }

    /// Whether the present step waits for a request of this method.
    pub(super) fn expects(&self, method: Method) -> bool {
        matches!(self.config.ops.get(usize::from(self.at)), Some(Op::Expect(alternatives))
            if alternatives.iter().any(|one| one.leg == self.leg && one.message.is_request(method)))
    }

    /// Answer a request that no step waits for.
    fn answer_unexpected(&mut self, cx: &mut Cx<'_>, method: Method, call: u64) {
        let ours = self.dialog.as_ref().is_some_and(|dialog| fingerprint(&dialog.call_id) == call);
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
                self.begin_media(cx);
            }
            Method::Invite => {
                cx.count(cx.now, counter::UNRELATED_MESSAGES);
                self.respond(cx, true, 486, reason(486), b"", b"");
                self.dialog = None;
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
