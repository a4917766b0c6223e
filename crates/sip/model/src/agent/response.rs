//! Responses to a user agent's requests, and those that come when nothing waits for them.

use super::failover::{REJECTS, UNAVAILABLE};
use super::lifetime::TooShort;
use super::{Event, UserAgent};
use crate::auth::{Auth, Secrets};
use crate::binding;
use crate::description::counter;
use crate::dialog::{contact_uri, routes};
use crate::measure;
use crate::message::{fingerprint, read_branch, read_call};
use crate::method::Method;
use crate::scenario::{ExpectedMessage, Op};
use crate::session_timer::REFRESH;
use crate::transaction::Client;
use protocol::cause::Cause;
use protocol::meter::Failure;
use protocol::model::Cx;
use protocol::template::Template;
use sip_core::digest::AkaError;
use sip_core::message::Scanned;
use std::sync::Arc;

impl UserAgent {
    pub(super) fn response(&mut self, cx: &mut Cx<'_>, bytes: &[u8], message: &Scanned<'_>, code: u16) {
        let method = Method::of(message.cseq.method);
        let ours = message.via.branch.and_then(|branch| read_branch(branch, self.config.run));
        let number = ours.filter(|(device, _)| *device == cx.device).map(|(_, number)| number);
        let place =
            if method == Method::Invite { &mut self.dialogs.invite } else { &mut self.dialogs.request };
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
                let session = !self.dialogs.dialog.as_ref().is_some_and(|dialog| dialog.session);
                if let Some(invite) = self.dialogs.invite.as_ref().filter(|_| session) {
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
                    self.begin_media(cx, false);
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
        self.retry_after = message.retry_after;
        if method == Method::Invite && code >= 300 {
            self.acknowledge_failure(cx, &client, message.to.value);
        }
        if code == UNAVAILABLE && cx.has_next && client.to.is_none() && !self.is_expected(method, code) {
            let place =
                if method == Method::Invite { &mut self.dialogs.invite } else { &mut self.dialogs.request };
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
        let mut too_short = TooShort::No;
        if !self.is_expected(method, code) {
            too_short = self.lengthen(cx, bytes, message, code, &client);
            if matches!(too_short, TooShort::SentAgain) {
                return;
            }
        }
        if !session && !self.is_expected(method, code) && self.follow(cx, bytes, message, code, &client) {
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
            self.begin_media(cx, true);
        }
        let unbound = self.why_unbound(cx, bytes, message, &client, code);
        if method == Method::Register && (200..300).contains(&code) && unbound.is_none() {
            self.registration_accepted(cx);
            self.registration_changed(&client);
        }
        let asks = if method == Method::Invite { !session } else { session };
        let counted = Some(code).filter(|_| unbound.is_none());
        let delay = measure::finished(cx, &client, counted, asks, self.session_requested_at());
        if let TooShort::Again(what) = too_short {
            cx.delay(client.first, delay);
            return self.fail(cx, Cause::named(Failure::Rejected, what), || format!("{method}: {what}"));
        }
        if let Some(what) = unbound {
            cx.delay(client.first, delay);
            return self.fail(cx, Cause::named(Failure::Protocol, what), || what.into());
        }
        if let Some(leg) = client.step.checked_sub(REFRESH).filter(|_| method != Method::Bye) {
            self.select(leg as u8);
            cx.delivered(client.first, delay);
            return self.refreshed(cx, bytes, message.fields, code, &client);
        }
        if method == Method::Invite && (200..300).contains(&code) {
            self.begin_session_timer(cx, bytes, message.fields);
        }
        if method == Method::Bye
            && ((200..300).contains(&code) || dropped)
            && let Some(dialog) = &mut self.dialogs.dialog
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
        alternatives.iter().filter(|one| one.leg == self.dialogs.selected()).any(|one| match &one.message {
            ExpectedMessage::Response { status, of } => {
                of.unwrap_or(self.dialogs.last) == method && status.has(code)
            }
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
    pub(super) fn late_response(
        &mut self,
        cx: &mut Cx<'_>,
        bytes: &[u8],
        message: &Scanned<'_>,
        code: u16,
        ours: bool,
    ) {
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
        let state = &mut *self.dialogs;
        let Some(dialog) = &mut state.dialog else { return };
        let call = read_call(message.call_id).unwrap_or_default();
        state.answered = (call, fingerprint(message.to_tag.unwrap_or_default()));
        state.ack = None;
        dialog.remote = message.to.value.into();
        if let Some(contact) = message.contact {
            dialog.target = contact_uri(contact).into();
        }
        dialog.routes =
            if message.record_route { routes(bytes, message.fields, true) } else { Box::default() };
        dialog.confirmed = true;
        dialog.session = true;
    }
}
