//! How a user agent answers requests.

use super::UserAgent;
use super::send::SESSION;
use crate::description::counter;
use crate::message;
use crate::method::Method;
use crate::scenario::Answer;
use protocol::model::Cx;
use protocol::template::decimal;
use protocol::time::Time;
use std::sync::Arc;

/// What a response has beside its start and what it repeats.
#[derive(Clone, Copy)]
struct Content<'a> {
    headers: &'a [u8],
    body: &'a [u8],
    content_type: &'a str,
    /// Whether it is sent again until its PRACK comes.
    reliable: bool,
}

impl UserAgent {
    /// Play a step that answers a request.
    pub(super) fn answer(&mut self, cx: &mut Cx<'_>, answer: &Answer) {
        self.select(answer.leg);
        let place = if self.dialogs.answers_invite { &self.dialogs.invited } else { &self.dialogs.requested };
        if place.is_none() {
            return;
        }
        let config = Arc::clone(&self.config);
        let mut extra = Vec::new();
        self.headers(&config.headers, cx, &mut extra);
        self.headers(&answer.headers, cx, &mut extra);
        let reliable =
            answer.reliable && self.dialogs.answers_invite && self.reliability(cx, &mut extra).is_some();
        let described =
            self.dialogs.answers_invite && self.dialogs.invited.as_ref().is_some_and(|one| one.described);
        let mut body = Vec::with_capacity(if answer.sdp { SESSION.max(config.sdp_size) } else { 0 });
        // once a reliable response had the answer, no other has one (RFC 6337 section 3.1.1)
        if answer.sdp && !described {
            self.answer_session(cx, &mut body);
        } else if let Some(template) = &answer.body {
            self.render(template, cx, &mut body);
        }
        let content_type = if answer.sdp { "application/sdp" } else { &answer.content_type };
        let content = Content { headers: &extra, body: &body, content_type, reliable };
        self.respond_with(cx, self.dialogs.answers_invite, answer.status, &answer.reason, content);
        let describes = answer.sdp && (101..200).contains(&answer.status);
        let answered = (200..300).contains(&answer.status);
        if self.dialogs.answers_invite && (describes || answered) {
            self.begin_media(cx, answered);
        }
    }

    /// Answer the INVITE or the other request that came last.
    pub(super) fn respond(
        &mut self,
        cx: &mut Cx<'_>,
        to_invite: bool,
        status: u16,
        reason: &str,
        headers: &[u8],
        body: &[u8],
    ) {
        let content = Content { headers, body, content_type: "application/sdp", reliable: false };
        self.respond_with(cx, to_invite, status, reason, content);
    }

    fn respond_with(
        &mut self,
        cx: &mut Cx<'_>,
        to_invite: bool,
        status: u16,
        reason: &str,
        content: Content<'_>,
    ) {
        let config = Arc::clone(&self.config);
        let Content { headers, body, content_type, reliable } = content;
        let place = if to_invite { &mut self.dialogs.invited } else { &mut self.dialogs.requested };
        let Some(mut server) = place.take() else { return };
        let mut out = Vec::with_capacity(server.head.len() + 160 + body.len());
        out.extend_from_slice(b"SIP/2.0 ");
        decimal(status.into(), &mut out);
        out.push(b' ');
        out.extend_from_slice(reason.as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&server.head);
        if !server.tagged && status > 100 {
            out.extend_from_slice(b";tag=");
            self.tag(cx, &mut out);
        }
        out.extend_from_slice(b"\r\n");
        let reachable =
            to_invite && status < 300 || matches!(server.method, Method::Subscribe | Method::Refer);
        if reachable && status > 100 {
            self.contact(cx, false, &mut out);
        }
        if (200..300).contains(&status) {
            out.extend_from_slice(&server.bindings);
        }
        if (200..300).contains(&status) && matches!(server.method, Method::Invite | Method::Update) {
            self.answer_session_interval(cx, &mut out);
        }
        out.extend_from_slice(headers);
        message::body(content_type, body, &mut out);
        server.status = status;
        if status >= 200 {
            server.answered = cx.now;
        }
        if to_invite && status >= 200 {
            // section 13.3.1.4 for 2xx; section 17.2.1, Timers G and H, for the others
            let repeats = !config.reliable || status < 300;
            server.wait = config.t1;
            server.resend = if repeats { cx.now + config.t1 } else { Time::NEVER };
            server.expires = if repeats { cx.now + config.t1 * 64 } else { Time::NEVER };
            if status < 300
                && let Some(dialog) = &mut self.dialogs.dialog
            {
                dialog.session = true;
            }
        }
        if reliable {
            // RFC 3262 section 3: T1, doubled each time, for 64 times T1, over any transport
            server.wait = config.t1;
            server.resend = cx.now + config.t1;
            server.expires = cx.now + config.t1 * 64;
            server.described = !body.is_empty();
        }
        let over = server.method == Method::Bye && status < 300;
        if over {
            self.ended_by_peer(cx);
        }
        let to = server.to;
        server.response = out.clone().into();
        cx.sent_bytes(cx.now, out.len());
        let place = if to_invite { &mut self.dialogs.invited } else { &mut self.dialogs.requested };
        *place = Some(server);
        self.say_to(cx, to, &out);
        if over {
            self.sum_up_call(cx);
        }
    }

    /// Send a response again: its request came again.
    pub(super) fn respond_again(&mut self, cx: &mut Cx<'_>, to_invite: bool) {
        let place = if to_invite { &self.dialogs.invited } else { &self.dialogs.requested };
        let Some(server) = place.as_ref().filter(|server| !server.response.is_empty()) else { return };
        let (response, to) = (server.response.to_vec(), server.to);
        cx.count(cx.now, counter::RESPONSE_RETRANSMISSIONS);
        cx.sent_bytes(cx.now, response.len());
        self.say_to(cx, to, &response);
    }
}
