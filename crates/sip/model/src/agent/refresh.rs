//! Session timers (RFC 4028): the side that both agreed on refreshes a call halfway, and a call that nobody refreshed ends.
//!
//! A refresh is a request of ours that no step has. It waits until no other request of its dialog is under way.

use super::UserAgent;
use super::send::Numbers;
use crate::config::Config;
use crate::description::counter;
use crate::dialog::Dialog;
use crate::method::Method;
use crate::scenario::Request;
use crate::session_timer::{REFRESH, Side};
use crate::transaction::Client;
use protocol::cause::Cause;
use protocol::meter::Failure;
use protocol::model::Cx;
use protocol::template::decimal;
use protocol::time::Time;
use sip_core::message::header::{Refresher, SessionExpires, Value};
use sip_core::message::{Fields, Name};
use std::time::Duration;

/// Why a call has failed.
const EXPIRED: &str = "the session expired without a refresh";
const GONE: &str = "the refresh of the session was rejected";
/// How long before the end a session that nobody refreshed is ended, at most (section 10).
const MARGIN: Duration = Duration::from_secs(32);

/// The session timer of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionClock {
    /// Session interval, s.
    seconds: u32,
    ours: bool,
    /// When we refresh it; when it has ended.
    refresh: Time,
    ends: Time,
}

impl SessionClock {
    fn new(now: Time, seconds: u32, ours: bool) -> Self {
        let interval = Duration::from_secs(seconds.into());
        let refresh = if ours { now + interval / 2 } else { Time::NEVER };
        Self { seconds, ours, refresh, ends: now + (interval - MARGIN.min(interval / 3)) }
    }

    /// When it needs attention.
    pub fn due(&self) -> Time {
        self.refresh.min(self.ends)
    }
}

/// Session interval of a message, and who refreshes.
fn session_expires(bytes: &[u8], fields: usize) -> Option<(u32, Option<Refresher>)> {
    let mut read = Fields::new(bytes, fields);
    while let Ok(Some(field)) = read.next() {
        if field.name == Name::SessionExpires {
            let (found, _) = SessionExpires::read(std::str::from_utf8(field.value).ok()?)?;
            return Some((found.seconds, found.refresher())).filter(|(seconds, _)| *seconds > 1);
        }
    }
    None
}

impl UserAgent {
    /// Append what an INVITE or UPDATE says of the session interval: ours, or that which the server wants at least.
    pub(super) fn session_interval(&self, request: &Request, dialog: Option<&Dialog>, out: &mut Vec<u8>) {
        let is = |name: &str| request.headers.iter().any(|header| header.name.eq_ignore_ascii_case(name));
        let timer = self.config.session_timer.as_ref().filter(|_| !is("Session-Expires") && !is("x"));
        let own = timer.map_or(0, |timer| timer.expires.0.as_secs() as u32);
        let seconds = own.max(self.min_se);
        if seconds == 0 || !matches!(request.method, Method::Invite | Method::Update) {
            return;
        }
        out.extend_from_slice(b"Session-Expires: ");
        decimal(seconds.into(), out);
        let clock = dialog.filter(|dialog| dialog.session).and_then(|dialog| dialog.clock);
        match (clock, timer.and_then(|timer| timer.refresher)) {
            // section 7.4: the sides stay as they are
            (Some(clock), _) => out.extend_from_slice(role(clock.ours)),
            (None, Some(side)) => out.extend_from_slice(role(side == Side::Caller)),
            (None, None) => {}
        }
        if self.min_se > 0 {
            out.extend_from_slice(b"\r\nMin-SE: ");
            decimal(self.min_se.into(), out);
        }
        if timer.is_some() {
            out.extend_from_slice(b"\r\nSupported: timer");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// A 2xx to an INVITE or UPDATE of ours came: the session timer begins anew, or there is none.
    pub(super) fn begin_session_timer(&mut self, cx: &Cx<'_>, bytes: &[u8], fields: usize) {
        if self.config.session_timer.is_none() {
            return;
        }
        let asked = session_expires(bytes, fields);
        let clock =
            asked.map(|(seconds, side)| SessionClock::new(cx.now, seconds, side != Some(Refresher::Uas)));
        if let Some(dialog) = &mut self.dialogs.dialog {
            dialog.clock = clock;
        }
    }

    /// Note what an INVITE or UPDATE of the other side says of the session interval, for its 2xx.
    pub(super) fn note_session_interval(&mut self, bytes: &[u8], fields: usize) {
        if self.config.session_timer.is_some()
            && let Some(dialog) = &mut self.dialogs.dialog
        {
            dialog.interval_asked = session_expires(bytes, fields);
        }
    }

    /// Append what our 2xx to it says, and begin the session timer.
    pub(super) fn answer_session_interval(&mut self, cx: &Cx<'_>, out: &mut Vec<u8>) {
        let Some(timer) = &self.config.session_timer else { return };
        let Some(dialog) = &mut self.dialogs.dialog else { return };
        let Some((seconds, side)) = dialog.interval_asked.take() else { return };
        let theirs = side.map_or(timer.refresher != Some(Side::Callee), |side| side == Refresher::Uac);
        dialog.clock = Some(SessionClock::new(cx.now, seconds, !theirs));
        out.extend_from_slice(b"Session-Expires: ");
        decimal(seconds.into(), out);
        out.extend_from_slice(role(theirs));
        // section 9: who refreshes has to know
        out.extend_from_slice(if theirs { b"\r\nRequire: timer\r\n" } else { b"\r\nSupported: timer\r\n" });
    }

    /// Refresh the selected dialog if that is due, or end it. True: the flow goes on.
    pub(super) fn keep_session(&mut self, cx: &mut Cx<'_>) -> bool {
        let is_busy = self.dialogs.request.is_some() || self.dialogs.invite.is_some();
        let Some(dialog) = self.dialogs.dialog.as_mut().filter(|dialog| dialog.session) else { return true };
        let Some(clock) = &mut dialog.clock else { return true };
        if clock.ends <= cx.now {
            self.end_session(cx, Cause::named(Failure::Unanswered, EXPIRED));
            return false;
        }
        if clock.refresh > cx.now {
            return true;
        }
        if is_busy {
            // not before it is answered
            clock.refresh = cx.now + self.config.t1;
            return true;
        }
        clock.refresh = Time::NEVER;
        let config = std::sync::Arc::clone(&self.config);
        let step = REFRESH + u16::from(self.dialogs.selected());
        let Some(request) = config.request(step) else { return true };
        let numbers = Numbers { branch: self.next_branch(), cseq: self.next_cseq(request.method) };
        let client = self.begin(cx, request, numbers, cx.now);
        cx.count(cx.now, counter::SESSION_REFRESHES);
        cx.sent(client.first, client.length);
        self.keep(Client { step, ..client });
        true
    }

    /// A refresh of ours was answered.
    pub(super) fn refreshed(
        &mut self,
        cx: &mut Cx<'_>,
        bytes: &[u8],
        fields: usize,
        code: u16,
        client: &Client,
    ) {
        match code {
            200..300 => {
                if client.method == Method::Invite
                    && let Some(dialog) = &self.dialogs.dialog
                {
                    let numbers = Numbers { branch: self.branches.wrapping_add(1), cseq: client.cseq };
                    let ack = self.bare(cx, dialog, Method::Ack, numbers, None);
                    let to = self.hop(dialog);
                    self.next_branch();
                    cx.sent_bytes(cx.now, ack.len());
                    self.say_to(cx, to, &ack);
                    self.dialogs.ack = Some(Box::new((to, ack)));
                }
                self.begin_session_timer(cx, bytes, fields);
            }
            // section 10: the other side knows nothing of the call
            408 | 481 => self.end_session(cx, Cause::named(Failure::Rejected, GONE)),
            // until it ends
            _ => {}
        }
    }

    /// End the call of the selected dialog, and with it the flow.
    fn end_session(&mut self, cx: &mut Cx<'_>, cause: Cause) {
        cx.count(cx.now, counter::SESSIONS_EXPIRED);
        let numbers = Numbers { branch: self.next_branch(), cseq: self.next_cseq(Method::Bye) };
        if let Some(dialog) = &self.dialogs.dialog {
            let bye = self.bare(cx, dialog, Method::Bye, numbers, None);
            let to = self.hop(dialog);
            cx.sent_bytes(cx.now, bye.len());
            self.say_to(cx, to, &bye);
        }
        self.fail(cx, cause, || cause.detail.to_string());
    }
}

impl Config {
    /// The request that a step sends, or that refreshes a session.
    pub(crate) fn request(&self, step: u16) -> Option<&Request> {
        let op = match step.checked_sub(REFRESH) {
            Some(leg) => self.refreshes.get(usize::from(leg)),
            None => self.ops.get(usize::from(step)),
        };
        match op {
            Some(crate::scenario::Op::Send(request)) => Some(request),
            _ => None,
        }
    }
}

/// Who refreshes, as seen by the side that sends the request.
fn role(is_client: bool) -> &'static [u8] {
    if is_client { b";refresher=uac" } else { b";refresher=uas" }
}
