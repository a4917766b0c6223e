//! User agent server: every call is answered, until BYE (RFC 3261 sections 13.3, 15.1.2).

use super::{Due, Key, Peer, Server, Transport, address};
use crate::echo::Dialog;
use sip_core::Method;
use sip_core::message::header::NameAddr;
use sip_core::message::{Message, Name, session as session_part};
use sip_core::sdp::{Agreement, Audio, Codec, Direction, NegotiationError, Session, answer};
use sip_core::transaction::MS;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// A call that was answered: its dialog, and the sequence number of its INVITE.
pub(super) type Call = Arc<(Dialog, u32)>;

/// A 200 to INVITE, sent again until its ACK comes (section 13.3.1.4).
#[derive(Debug)]
pub(super) struct Answered {
    bytes: Vec<u8>,
    to: Peer,
    invite: Arc<Message>,
    /// Our tag.
    tag: String,
    gap: u64,
    end: u64,
}

/// Keys (RFC 4733), which are no codec.
const EVENTS: &str = "telephone-event";
/// Longest Call-ID and tags: they are kept as long as a call is up.
const LONGEST: usize = 256;
const ALLOW: &str = "INVITE, ACK, CANCEL, BYE, OPTIONS, MESSAGE, INFO, NOTIFY, UPDATE, REGISTER";

impl Server {
    pub(super) fn serve(&mut self, key: &Key, request: &Message) {
        let dialog = dialog(request, "");
        if [&dialog.call, &dialog.theirs, &dialog.ours].into_iter().any(|one| one.len() > LONGEST) {
            return self.respond(key, 400, "Call-ID or Tag Too Long", Vec::new());
        }
        if !dialog.ours.is_empty() && !self.dialogs.has(&dialog) {
            return self.respond(key, 481, "Call/Transaction Does Not Exist", Vec::new());
        }
        if let Some((code, reason, fields)) = self.refusal(key, request, &dialog) {
            return self.respond(key, code, reason, fields);
        }
        match request.method() {
            Some(Method::Invite) => {
                if self.agree(request).is_some_and(|agreed| agreed.is_err()) {
                    self.counters.audio_refused += 1;
                    return self.respond(key, 488, "Not Acceptable Here", Vec::new());
                }
                if let Some(one) = self.incoming.get(key) {
                    let dialog = self::dialog(request, &one.tag);
                    self.dialogs.begin(&dialog);
                    self.dialogs.in_turn(&dialog, request.cseq().map_or(0, |cseq| cseq.number));
                }
                self.respond(key, 180, "Ringing", vec![(Name::Contact, self.contact(key, request))]);
                if self.settings.ring_ms == 0 {
                    return self.answer_call(key);
                }
                let when = self.now + self.settings.ring_ms * MS;
                self.at(when, Due::Answer(key.clone()));
            }
            // section 15.1.2
            Some(Method::Bye) if !self.dialogs.end(&dialog) => {
                self.respond(key, 481, "Call/Transaction Does Not Exist", Vec::new());
            }
            Some(Method::Bye) => {
                self.counters.calls_ended += 1;
                self.echo.end(&dialog);
                self.respond(key, 200, "OK", Vec::new());
            }
            Some(Method::Options | Method::Message | Method::Info | Method::Notify | Method::Update) => {
                self.respond(key, 200, "OK", vec![(Name::Allow, ALLOW.into())]);
            }
            _ => self.respond(key, 405, "Method Not Allowed", vec![(Name::Allow, ALLOW.into())]),
        }
    }

    fn contact(&self, key: &Key, request: &Message) -> String {
        let transport = self.incoming.get(key).map_or(Transport::Udp, |one| one.to.transport);
        let names_sips = || request.uri().is_some_and(|uri| uri.sip().is_some_and(|sip| sip.secure));
        let secure = transport == Transport::Tls && names_sips();
        format!("<{}>", self.own_uri(transport, secure))
    }

    /// A call comes to nothing; one that is up and that a further INVITE would have changed stays as it was.
    pub(super) fn drop_call(&mut self, key: &Key) {
        if let Some(one) = self.incoming.get(key)
            && dialog(&one.request, "").ours.is_empty()
        {
            self.dialogs.end(&dialog(&one.request, &one.tag));
        }
    }

    /// 200 to a call, unless it was cancelled.
    pub(super) fn answer_call(&mut self, key: &Key) {
        let Some(one) = self.incoming.get(key).filter(|one| one.status == 0) else { return };
        let contact = self.contact(key, &one.request);
        let Ok(cseq) = one.request.cseq() else { return };
        let dialog = dialog(&one.request, &one.tag);
        if !self.dialogs.has(&dialog) {
            return self.respond(key, 487, "Request Terminated", Vec::new());
        }
        let mut response = Message::response(&one.request, 200, "OK", Some(&one.tag));
        response.push(Name::Contact, contact);
        let (body, audio) = match self.agree(&one.request) {
            Some(Ok((session, agreement))) => (session.to_string(), Some(agreement)),
            _ => (session(self.settings.listen), None),
        };
        response.set_body("application/sdp", body);
        let (to, signalled) = (one.to, one.to.address.ip());
        if let Some(agreement) = &audio {
            let media = agreement.host.parse().ok().map(|ip| SocketAddr::new(ip, agreement.port));
            if !self.echo.begin(dialog.clone(), signalled, media, agreement.send, Instant::now()) {
                self.drop_call(key);
                return self.respond(key, 486, "Busy Here", Vec::new());
            }
            self.counters.audio_calls += 1;
        }
        let answered = Answered {
            bytes: response.to_bytes(),
            to,
            invite: Arc::clone(&one.request),
            tag: one.tag.clone(),
            gap: self.timers.t1,
            end: self.now + self.timers.limit(),
        };
        self.finish(key, &response);
        self.counters.calls_answered += 1;
        let call = Arc::new((dialog, cseq.number));
        self.awaiting.insert(Arc::clone(&call), answered);
        let when = self.now + self.timers.t1;
        self.at(when, Due::Ack(call));
    }

    /// The answer to an offer of audio, which is to go back; none where it does not, or there is no offer.
    fn agree(&self, request: &Message) -> Option<Result<(Session, Agreement), NegotiationError>> {
        let port = self.settings.echo.filter(|_| !request.body.is_empty())?;
        let kind = request.values(Name::ContentType).next().unwrap_or_default();
        let Ok(offer) = Session::parse(session_part(kind.as_bytes(), &request.body)) else {
            return Some(Err(NegotiationError::NoAudio));
        };
        // it matters to nobody what is in the packets
        let offered = offer.media.iter().flat_map(|media| &media.rtpmaps).filter(|map| map.channels == 1);
        let offered = offered.filter(|map| !map.name.eq_ignore_ascii_case(EVENTS));
        let codecs =
            offered.map(|map| Codec { name: map.name.clone(), payload: map.payload, rate: map.rate });
        let audio = Audio {
            host: self.settings.listen.ip().to_string(),
            port,
            codecs: [Codec::pcmu(), Codec::pcma()].into_iter().chain(codecs).collect(),
            telephone_event: Some(101),
            ptime: None,
            direction: Direction::SendRecv,
            crypto: Vec::new(),
        };
        let id = u64::from_str_radix(&address::random(), 16).unwrap_or_default() >> 1;
        Some(answer(&offer, &audio, id, 1))
    }

    pub(super) fn ack_due(&mut self, call: &Call) {
        let Some(one) = self.awaiting.get_mut(call) else { return };
        if self.now >= one.end {
            // a call that the caller ended, or a further INVITE of one that is up
            let over = !self.dialogs.has(&call.0);
            let one = self.awaiting.remove(call);
            self.counters.calls_unacknowledged += 1;
            let bye = |one: Answered| Some((bye(&one.invite, &one.tag)?, one.to));
            if let Some((bye, to)) = one.filter(|_| !over).and_then(bye) {
                self.hang_up(bye, to);
            }
            self.echo.end(&call.0);
            self.dialogs.end(&call.0);
            return;
        }
        self.out.push((one.to, one.bytes.clone()));
        self.counters.responses_repeated += 1;
        one.gap = (one.gap * 2).min(self.timers.t2);
        let when = (self.now + one.gap).min(one.end);
        self.at(when, Due::Ack(call.clone()));
    }

    /// Section 13.3.1.4: a call whose 200 nobody acknowledged is over. `caller`: where its responses went.
    fn hang_up(&mut self, bye: Message, caller: Peer) {
        let next = address::route(&bye).map_or_else(|| bye.uri(), |route| Some(route.uri));
        // a name is not looked up
        let to = next.and_then(|uri| self.destination(&uri)).unwrap_or(caller);
        self.counters.calls_hung_up += 1;
        self.send_new(bye, to);
    }

    pub(super) fn call_acknowledged(&mut self, ack: &Message) {
        let call = ack.cseq().ok().map(|cseq| (dialog(ack, ""), cseq.number));
        match call.and_then(|call| self.awaiting.remove(&call)) {
            Some(_) => self.counters.calls_acknowledged += 1,
            None => self.counters.unrelated += 1,
        }
    }
}

/// The BYE of the dialog that our answer to an INVITE made, with our tag (sections 12.1.1, 12.2.1.1).
fn bye(invite: &Message, tag: &str) -> Option<Message> {
    let to = invite.to().ok()?;
    let ours = if to.tag().is_none() { to.with("tag", Some(tag)) } else { to };
    let contacts = invite.contacts().ok()?;
    let caller = contacts.first().and_then(|contact| contact.address()).map(|contact| contact.uri.clone());
    let from = invite.from().ok()?;
    let mut bye = Message::request(Method::Bye, caller.as_ref().unwrap_or(&from.uri))
        .with(Name::From, ours)
        .with(Name::To, &from)
        .with(Name::CallId, invite.call_id().ok()?)
        .with(Name::CSeq, "1 BYE")
        .with(Name::MaxForwards, 70);
    let routes = invite.all::<NameAddr>(Name::RecordRoute).ok()?;
    match routes.split_first() {
        // section 12.2.1.1: a strict router has the next hop in the Request-URI
        Some((first, rest)) if !first.uri.sip().is_some_and(sip_core::uri::SipUri::loose_router) => {
            let mut routes = rest.to_vec();
            routes.push(NameAddr::new(bye.uri()?));
            address::set_routes(&mut bye, &routes);
            address::set_uri(&mut bye, &first.uri.to_string());
        }
        _ => address::set_routes(&mut bye, &routes),
    }
    Some(bye)
}

/// The dialog of a request from the caller; `ours`: our tag, where the request has none yet.
fn dialog(request: &Message, ours: &str) -> Dialog {
    Dialog {
        call: request.call_id().unwrap_or_default(),
        theirs: request.tag(Name::From).unwrap_or_default().to_owned(),
        ours: request.tag(Name::To).unwrap_or(ours).to_owned(),
    }
}

/// An answer of audio that is neither sent nor wanted.
fn session(local: SocketAddr) -> String {
    let (ip, kind) = (local.ip(), if local.is_ipv4() { "IP4" } else { "IP6" });
    let id = address::random();
    let id = u64::from_str_radix(&id, 16).unwrap_or_default() >> 1;
    format!(
        "v=0\r\no=- {id} 1 IN {kind} {ip}\r\ns=-\r\nc=IN {kind} {ip}\r\nt=0 0\r\nm=audio 9 RTP/AVP 0 8\r\na=inactive\r\n"
    )
}
