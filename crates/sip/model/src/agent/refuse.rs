//! Requests that a user agent server refuses, whatever its scenario says (RFC 3261 sections 8.2, 12.2.2), and those that were
//! answered before and come again.

use super::UserAgent;
use super::server::server;
use crate::description::counter;
use crate::dialog::parameters;
use crate::method::Method;
use crate::scenario::reason;
use crate::transaction::Server;
use protocol::model::Cx;
use protocol::time::Time;
use sip_core::message::{Fault, Fields, Name, Scanned, Start, scan};
use std::net::SocketAddr;

/// Answered requests that are remembered, at most.
const PAST_MAX: usize = 4;
/// Media types of descriptions of a session.
const ACCEPT: &[u8] = b"Accept: application/sdp, multipart/mixed\r\n";

/// A status, and header fields of the response.
type Refusal = (u16, Vec<u8>);

impl UserAgent {
    /// Who sent what was received.
    pub(super) fn source(&self, cx: &Cx<'_>) -> Option<SocketAddr> {
        cx.from.or(self.peer)
    }

    /// Why a request is refused.
    pub(super) fn refusal(
        &self,
        now: Time,
        bytes: &[u8],
        message: &Scanned<'_>,
        new: &Server,
    ) -> Option<Refusal> {
        let Start::Request { uri, .. } = message.start else { return None };
        let plain = |status| Some((status, Vec::new()));
        if new.method == Method::Cancel {
            return None;
        }
        let scheme = uri.split(|byte| *byte == b':').next().unwrap_or_default();
        if !["sip", "sips", "tel"].iter().any(|known| scheme.eq_ignore_ascii_case(known.as_bytes())) {
            return plain(416);
        }
        let ours = self.is_in_dialog(message);
        // section 8.2.2.2: it came here by two ways
        let timeout = self.config.t1 * 64;
        let merges = |one: &Server| {
            let lasts = one.status < 200 || one.answered + timeout > now;
            lasts && (one.method, one.call, one.cseq) == (new.method, new.call, new.cseq)
        };
        if message.to_tag.is_none()
            && [&self.dialogs.invited, &self.dialogs.requested].into_iter().flatten().any(|one| merges(one))
        {
            return plain(482);
        }
        let ends = new.method == Method::Bye;
        let pending = || self.dialogs.invited.as_ref().is_some_and(|one| one.status < 200);
        // a scenario may wait for a BYE to a call that it rejected
        let known = || self.in_session() || pending() || self.expects(new.method);
        if (ends || message.to_tag.is_some()) && !ours || ends && !known() {
            return plain(481);
        }
        let before = self.dialogs.dialog.as_ref().filter(|_| ours && message.to_tag.is_some());
        if before.is_some_and(|dialog| new.cseq < dialog.remote_cseq) {
            return plain(500);
        }
        self.content_refusal(bytes, message, new.method)
    }

    /// The same for the extensions that it requires, and its body (sections 8.2.2.3, 8.2.3).
    fn content_refusal(&self, bytes: &[u8], message: &Scanned<'_>, method: Method) -> Option<Refusal> {
        let described = matches!(method, Method::Invite | Method::Update) && !message.body.is_empty();
        if message.require.is_none() && !described {
            return None;
        }
        let (mut unsupported, mut encoded, mut optional) = (Vec::new(), false, false);
        let mut fields = Fields::new(bytes, message.fields);
        while let Ok(Some(field)) = fields.next() {
            match field.name {
                Name::Require => {
                    let unknown = tags(field.value).filter(|tag| !self.supports(tag));
                    unsupported.extend(unknown.map(|tag| String::from_utf8_lossy(tag).into_owned()));
                }
                Name::ContentEncoding => encoded |= !field.value.eq_ignore_ascii_case(b"identity"),
                Name::ContentDisposition => {
                    let value = field.value.to_ascii_lowercase();
                    optional |= memchr::memmem::find(&value, b"handling=optional").is_some();
                }
                _ => {}
            }
        }
        if !unsupported.is_empty() {
            return Some((420, format!("Unsupported: {}\r\n", unsupported.join(", ")).into_bytes()));
        }
        if !described || optional {
            return None;
        }
        let kind = message.content_type.unwrap_or(b"application/sdp");
        let kind =
            kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        let known = kind == b"application/sdp" || kind.starts_with(b"multipart/");
        if encoded {
            return Some((415, b"Accept-Encoding: identity\r\n".to_vec()));
        }
        (!known).then(|| (415, ACCEPT.to_vec()))
    }

    /// Whether it understands the extension of this option tag: 100rel, or one that the scenario's header fields say.
    fn supports(&self, tag: &[u8]) -> bool {
        let said =
            |name: &str| name.eq_ignore_ascii_case("Supported") || name.eq_ignore_ascii_case("Require");
        let config = &self.config;
        tag.eq_ignore_ascii_case(b"100rel")
            || config.headers.iter().filter(|header| said(&header.name)).any(|header| {
                header.value.fixed().is_some_and(|value| tags(value).any(|one| one.eq_ignore_ascii_case(tag)))
            })
    }

    /// Whether a request is within our dialog: by Call-ID, and by the tags that both have.
    pub(super) fn is_in_dialog(&self, message: &Scanned<'_>) -> bool {
        let has = |party: &[u8], tag: Option<&[u8]>| match (tag_of(party), tag) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => true,
        };
        self.dialogs.dialog.as_ref().is_some_and(|dialog| {
            let same = *dialog.call_id == *message.call_id;
            same && has(&dialog.local, message.to_tag) && has(&dialog.remote, message.from_tag)
        })
    }

    /// Answer a request that is no step's, and keep what is under way.
    pub(super) fn answer_aside(&mut self, cx: &mut Cx<'_>, new: Server, status: u16, headers: &[u8]) {
        let to_invite = new.method == Method::Invite;
        let kept = self.place(to_invite).replace(Box::new(new));
        self.respond(cx, to_invite, status, reason(status), headers, b"");
        let answered = std::mem::replace(self.place(to_invite), kept);
        self.remember(answered);
    }

    fn place(&mut self, to_invite: bool) -> &mut Option<Box<Server>> {
        if to_invite { &mut self.dialogs.invited } else { &mut self.dialogs.requested }
    }

    /// A request gives way to another: it may come again.
    pub(super) fn remember(&mut self, one: Option<Box<Server>>) {
        let Some(one) = one.filter(|one| one.status >= 200) else { return };
        if self.past.len() == PAST_MAX {
            self.past.pop_front();
        }
        self.past.push_back(one);
    }

    /// Whether a request was answered before: it is answered again, but for a 2xx to INVITE, whose ACK is on its way.
    pub(super) fn is_past(&mut self, cx: &mut Cx<'_>, new: &Server) -> bool {
        let is = |one: &Server| one.is(new.method, new.cseq, new.call, new.branch);
        let Some(one) = self.past.iter().find(|one| is(one)) else { return false };
        let (response, to) = (one.response.clone(), one.to);
        let answers = one.method != Method::Invite || one.status >= 300;
        cx.count(cx.now, counter::REQUESTS_REPEATED);
        if answers {
            cx.count(cx.now, counter::RESPONSE_RETRANSMISSIONS);
            cx.sent_bytes(cx.now, response.len());
            self.say_to(cx, to, &response);
        }
        true
    }

    /// Whether an ACK is that to an INVITE that was refused.
    pub(super) fn is_to_refusal(&self, call: u64, cseq: u32) -> bool {
        let is = |one: &Server| (one.method, one.call, one.cseq) == (Method::Invite, call, cseq);
        self.past.iter().any(|one| is(one) && one.status >= 300)
    }

    /// A request of another version of SIP (section 21.5.6). False: it is none.
    pub(super) fn refuse_version(&mut self, cx: &mut Cx<'_>, bytes: &[u8], why: Fault) -> bool {
        let end = memchr::memchr(b'\r', bytes).filter(|_| why == Fault::Version);
        let Some(start) = end.and_then(|end| memchr::memrchr(b' ', &bytes[..end])) else { return false };
        let behind = end.unwrap_or(start);
        let ours = [&bytes[..=start], b"SIP/2.0", &bytes[behind..]].concat();
        let Ok(message) = scan(&ours) else { return false };
        let Start::Request { method, .. } = message.start else { return false };
        let method = Method::of(method);
        if method != Method::Ack {
            let new = server(&ours, &message, method, self.source(cx), cx.from);
            self.answer_aside(cx, new, 505, b"");
        }
        true
    }
}

/// Option tags of a header field.
fn tags(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|tag| !tag.is_empty())
}

/// The tag of a From or To.
fn tag_of(party: &[u8]) -> Option<&[u8]> {
    let mut params = parameters(party).split(|byte| *byte == b';').skip(1).map(<[u8]>::trim_ascii);
    params.find_map(|one| {
        let (name, value) = one.split_at(one.iter().position(|byte| *byte == b'=')?);
        name.trim_ascii().eq_ignore_ascii_case(b"tag").then(|| value[1..].trim_ascii())
    })
}
