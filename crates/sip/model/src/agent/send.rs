//! What a user agent sends: requests, and the ACK to a failure.

use super::UserAgent;
use crate::auth::Auth;
use crate::config::Config;
use crate::description::via_transport;
use crate::dialog::Dialog;
use crate::measure;
use crate::message::{self, contact};
use crate::method::Method;
use crate::scenario::{Header, Request};
use crate::transaction::{Client, origin};
use protocol::model::Cx;
use protocol::template::{Template, Values, decimal};
use protocol::time::Time;
use std::sync::Arc;

/// Bytes of a message to begin with: enough for most, and little enough that an allocator has them at hand.
const MESSAGE: usize = 1000;
/// The same of a session description.
pub(super) const SESSION: usize = 256;
/// Timer C (RFC 3261 section 16.6): how long a call may ring without a word.
const TIMER_C: std::time::Duration = std::time::Duration::from_secs(180);

/// What one request has that another of the same step has not.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    pub branch: u32,
    pub cseq: u32,
}

impl UserAgent {
    pub(super) fn values(&self, cx: &Cx<'_>) -> Values {
        Values { device: cx.device, seq: self.flow - 1, now: cx.now }
    }

    pub(crate) fn render(&self, template: &Template, cx: &mut Cx<'_>, out: &mut Vec<u8>) {
        let values = self.values(cx);
        template.render_with(values, &self.captured, cx.rng, out);
    }

    /// Append `sip:USER@DOMAIN`.
    pub(super) fn uri(&self, user: &Template, cx: &mut Cx<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(self.scheme());
        // a callee without a user is the server itself
        if user.fixed().is_none_or(|user| !user.is_empty()) {
            self.render(user, cx, out);
            out.push(b'@');
        }
        self.render(&self.config.domain, cx, out);
    }

    fn scheme(&self) -> &'static [u8] {
        if self.config.is_secure() { b"sips:" } else { b"sip:" }
    }

    /// Append our host and port in Via and Contact.
    fn host(&self, cx: &Cx<'_>, out: &mut Vec<u8>) {
        match self.config.websocket {
            Some(_) => message::invalid_host(cx.device, self.config.run, out),
            None => message::address(self.local, out),
        }
    }

    /// Our Contact, without parameters.
    pub(super) fn contact_address(&self, cx: &Cx<'_>, out: &mut Vec<u8>) {
        contact(cx.device, via_transport(self.config.scheme), |out| self.host(cx, out), out);
    }

    pub(super) fn contact(&self, cx: &Cx<'_>, registers: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(b"Contact: ");
        self.contact_address(cx, out);
        if registers && self.config.websocket.is_some() {
            message::instance(cx.device, self.config.run, out);
            out.extend_from_slice(b"\r\nSupported: path, outbound");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Append our tag: of this device, in this flow.
    pub(super) fn tag(&self, cx: &Cx<'_>, out: &mut Vec<u8>) {
        message::hex8(cx.device, out);
        message::hex8(self.flow as u32 ^ self.config.run as u32, out);
    }

    /// Play a step that sends a request.
    pub(super) fn send(&mut self, cx: &mut Cx<'_>, request: &Request) {
        self.select(request.leg);
        let creates = matches!(request.method, Method::Invite | Method::Subscribe | Method::Refer);
        // a registration that names a dialog has its Call-ID
        let in_dialog = request.method == Method::Register && request.leg > 0;
        if (creates || in_dialog) && self.dialogs.dialog.is_none() {
            self.open_dialog(cx);
        }
        self.dialogs.last = request.method;
        if request.method == Method::Bye {
            self.end_media(cx, true);
        }
        let mut numbers = Numbers { branch: self.next_branch(), cseq: 0 };
        match request.method {
            Method::Ack => {
                numbers.cseq = self.dialogs.dialog.as_ref().map_or(1, |dialog| dialog.invite_cseq);
                let bytes = self.compose(cx, request, numbers);
                let to = self.hop_of(request);
                self.say_to(cx, to, &bytes);
                cx.sent_bytes(self.due, bytes.len());
                if !self.config.reliable || self.in_session() {
                    self.dialogs.ack = Some(Box::new((to, bytes)));
                }
                return;
            }
            // section 9.1: it is about the INVITE, and has its branch
            Method::Cancel => {
                if let Some(invite) = &self.dialogs.invite {
                    numbers = Numbers { branch: invite.branch, cseq: invite.cseq };
                }
            }
            _ => numbers.cseq = self.next_cseq(request.method),
        }
        let client = self.begin(cx, request, numbers, self.due);
        let in_dialog = request.method == Method::Invite && self.in_session();
        measure::requested(cx, &client, in_dialog);
        cx.sent(client.first, client.length);
        self.keep(client);
    }

    pub(super) fn next_cseq(&mut self, method: Method) -> u32 {
        let cseq = match (&mut self.dialogs.dialog, method) {
            (_, Method::Register) => &mut self.registers,
            (Some(dialog), _) => &mut dialog.cseq,
            (None, _) => return 1,
        };
        *cseq += 1;
        let cseq = *cseq;
        if let (Some(dialog), Method::Invite) = (&mut self.dialogs.dialog, method) {
            dialog.invite_cseq = cseq;
        }
        cseq
    }

    /// Send a request that opens a transaction.
    pub(super) fn begin(
        &mut self,
        cx: &mut Cx<'_>,
        request: &Request,
        numbers: Numbers,
        first: Time,
    ) -> Client {
        let bytes = self.compose(cx, request, numbers);
        let to = self.hop_of(request);
        self.say_to(cx, to, &bytes);
        Client { first, to, ..self.client(cx.now, request.method, numbers, bytes) }
    }

    /// The transaction of a request that is sent at `now`.
    pub(super) fn client(&self, now: Time, method: Method, numbers: Numbers, bytes: Vec<u8>) -> Client {
        let Config { reliable, t1, timeout, .. } = *self.config;
        Client {
            method,
            branch: numbers.branch,
            cseq: numbers.cseq,
            origin: origin(&bytes),
            length: bytes.len(),
            bytes: if reliable { Vec::new() } else { bytes },
            first: now,
            resend: if reliable { Time::NEVER } else { now + t1 },
            wait: t1,
            expires: now + timeout,
            provisional: false,
            ringing: false,
            answered: Vec::new(),
            longer: false,
            moved: false,
            to: None,
            step: self.at,
        }
    }

    pub(super) fn keep(&mut self, client: Client) {
        let place = if client.method == Method::Invite {
            &mut self.dialogs.invite
        } else {
            &mut self.dialogs.request
        };
        *place = Some(Box::new(client));
    }

    /// Send a request again with answers to its challenges. Section 22.2: Call-ID and From stay, CSeq grows.
    pub(super) fn send_authorized(&mut self, cx: &mut Cx<'_>, client: &Client, answers: Vec<Auth>) -> bool {
        let config = Arc::clone(&self.config);
        let Some(request) = config.request(client.step) else { return false };
        let mut answered = client.answered.clone();
        for auth in answers {
            answered.push(auth.asker());
            self.auth.add(auth);
        }
        let numbers = Numbers { branch: self.next_branch(), cseq: self.next_cseq(client.method) };
        let again = self.begin(cx, request, numbers, client.first);
        cx.sent_bytes(client.first, again.length);
        let Client { step, longer, moved, .. } = *client;
        self.keep(Client { step, longer, moved, answered, ..again });
        true
    }

    /// Send again over a new connection what was sent over one that had been closed, or to a server that failed.
    pub(super) fn send_again(&mut self, cx: &mut Cx<'_>) {
        let config = Arc::clone(&self.config);
        for (leg, invite) in self.legs().flat_map(|leg| [(leg, true), (leg, false)]) {
            self.select(leg);
            let place = if invite { &mut self.dialogs.invite } else { &mut self.dialogs.request };
            let Some(client) = place.take_if(|client| client.to.is_none()) else { continue };
            let Some(request) = config.request(client.step) else { continue };
            let numbers = Numbers { branch: client.branch, cseq: client.cseq };
            let bytes = self.compose(cx, request, numbers);
            self.say(cx, &bytes);
            let client = if client.moved {
                cx.sent_bytes(client.first, bytes.len());
                let Client { first, ringing, step, longer, moved, .. } = *client;
                // its timers, and its challenges, begin again
                Client {
                    first,
                    ringing,
                    step,
                    longer,
                    moved,
                    ..self.client(cx.now, client.method, numbers, bytes)
                }
            } else {
                // it may have another tag
                Client { origin: origin(&bytes), ..*client }
            };
            self.keep(client);
        }
    }

    /// Timer C takes the place of Timer B once a response has come.
    pub(super) fn extend(&mut self, now: Time) {
        if let Some(invite) = &mut self.dialogs.invite {
            invite.expires = now + TIMER_C;
        }
    }

    /// A call of our own: its Call-ID, and who it is from and for.
    fn open_dialog(&mut self, cx: &mut Cx<'_>) {
        self.sum_up_call(cx);
        self.targets = None;
        let config = Arc::clone(&self.config);
        let mut local = Vec::with_capacity(64);
        local.push(b'<');
        self.uri(&config.user, cx, &mut local);
        local.extend_from_slice(b">;tag=");
        self.tag(cx, &mut local);
        let mut target = Vec::with_capacity(48);
        self.uri(&config.callee, cx, &mut target);
        let remote = [b"<", &*target, b">"].concat();
        self.dialogs.dialog = Some(Box::new(Dialog {
            call_id: self.new_call_id(cx),
            local: local.into(),
            remote: remote.into(),
            target: target.into(),
            asked: Some(self.due),
            ..Dialog::default()
        }));
    }

    fn new_call_id(&mut self, cx: &Cx<'_>) -> Box<[u8]> {
        self.calls = self.calls.wrapping_add(1);
        let mut id = Vec::with_capacity(40);
        self.call_id(cx, self.calls, &mut id);
        id.into()
    }

    /// Append a Call-ID; number 0 is that of registrations.
    fn call_id(&self, cx: &Cx<'_>, number: u32, out: &mut Vec<u8>) {
        message::hex8(cx.device, out);
        message::hex8(number, out);
        message::hex8((self.config.run >> 32) as u32, out);
        message::hex8(self.config.run as u32, out);
        out.extend_from_slice(b"@netdyno");
    }

    /// A request as it leaves.
    fn compose(&mut self, cx: &mut Cx<'_>, request: &Request, numbers: Numbers) -> Vec<u8> {
        let config = Arc::clone(&self.config);
        let mut out = Vec::with_capacity(MESSAGE);
        let method = request.method;
        // a registration is in no dialog, whatever else is up
        let registers = method == Method::Register;
        let call_id = self.dialogs.dialog.as_ref().filter(|_| registers && request.leg > 0);
        let call_id = call_id.map(|dialog| dialog.call_id.clone());
        let mut dialog = self.dialogs.dialog.take_if(|_| !registers);
        let uri_at = {
            out.extend_from_slice(method.name().as_bytes());
            out.push(b' ');
            let start = out.len();
            match (&request.uri, &dialog) {
                (Some(uri), _) => self.render(uri, cx, &mut out),
                (None, Some(dialog)) => out.extend_from_slice(&dialog.target),
                (None, None) if method == Method::Register => {
                    out.extend_from_slice(self.scheme());
                    self.render(&config.domain, cx, &mut out);
                }
                (None, None) => self.uri(&config.callee, cx, &mut out),
            }
            start..out.len()
        };
        self.via(cx, numbers.branch, &mut out);
        match &dialog {
            Some(dialog) => {
                out.extend_from_slice(&dialog.routes);
                field("From", &dialog.local, &mut out);
                field("To", &dialog.remote, &mut out);
                field("Call-ID", &dialog.call_id, &mut out);
            }
            None => self.identify(cx, method, call_id.as_deref(), &mut out),
        }
        sequence(numbers.cseq, method, &mut out);
        let reachable = !matches!(method, Method::Bye | Method::Cancel | Method::Ack | Method::Message);
        if reachable {
            self.contact(cx, registers, &mut out);
        }
        if matches!(method, Method::Register | Method::Subscribe | Method::Publish) {
            message::number("Expires", self.lifetime(request), &mut out);
        }
        let mut body = Vec::with_capacity(if request.sdp { SESSION.max(config.sdp_size) } else { 0 });
        if request.sdp {
            self.describe_session(cx, true, request.hold, &mut body);
        } else if let Some(template) = &request.body {
            self.render(template, cx, &mut body);
        }
        match (method, &mut dialog) {
            // section 9.1: it is not challenged
            (Method::Cancel, _) => {}
            // section 22.1: it has those of its INVITE
            (Method::Ack, Some(dialog)) => out.extend_from_slice(&dialog.credentials),
            (_, dialog) => {
                let start = out.len();
                if !self.auth.is_empty() {
                    let uri = out[uri_at].to_vec();
                    self.auth.write(method.name(), &uri, &body, cx.rng, &mut out);
                }
                if let Some(dialog) = dialog.as_mut().filter(|_| method == Method::Invite) {
                    dialog.credentials = out[start..].into();
                }
            }
        }
        if let Some(signature) = &config.identity
            && signature.signs(method)
            && !self.in_session()
        {
            signature.write(self, cx, &mut out);
        }
        out.extend_from_slice(b"User-Agent: netdyno\r\n");
        for headers in [&config.headers, &request.headers] {
            self.headers_but(headers, |header| self.gives_way(method, header), cx, &mut out);
        }
        self.session_interval(request, dialog.as_deref(), &mut out);
        let content_type = if request.sdp { "application/sdp" } else { &request.content_type };
        message::body(content_type, &body, &mut out);
        self.dialogs.dialog = self.dialogs.dialog.take().or(dialog);
        out
    }

    pub(super) fn headers(&self, headers: &[Header], cx: &mut Cx<'_>, out: &mut Vec<u8>) {
        self.headers_but(headers, |_| false, cx, out);
    }

    fn headers_but(
        &self,
        headers: &[Header],
        is_left_out: impl Fn(&Header) -> bool,
        cx: &mut Cx<'_>,
        out: &mut Vec<u8>,
    ) {
        for Header { name, value } in headers.iter().filter(|header| !is_left_out(header)) {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            self.render(value, cx, out);
            out.extend_from_slice(b"\r\n");
        }
    }

    /// From, To and Call-ID of a request outside of a dialog; with `call_id` that one.
    fn identify(&mut self, cx: &mut Cx<'_>, method: Method, call_id: Option<&[u8]>, out: &mut Vec<u8>) {
        let config = Arc::clone(&self.config);
        out.extend_from_slice(b"From: <");
        self.uri(&config.user, cx, out);
        out.extend_from_slice(b">;tag=");
        self.tag(cx, out);
        out.extend_from_slice(b"\r\nTo: <");
        let to = if method == Method::Register { &config.user } else { &config.callee };
        self.uri(to, cx, out);
        out.extend_from_slice(b">\r\nCall-ID: ");
        match call_id {
            Some(call_id) => out.extend_from_slice(call_id),
            None if method == Method::Register => self.call_id(cx, 0, out),
            None => {
                self.calls = self.calls.wrapping_add(1);
                self.call_id(cx, self.calls, out);
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Acknowledge a failure to `invite` (section 17.1.1.3): with its branch, and the To of the response.
    pub(super) fn acknowledge_failure(&mut self, cx: &mut Cx<'_>, invite: &Client, to: &[u8]) {
        let numbers = Numbers { branch: invite.branch, cseq: invite.cseq };
        let Some(dialog) = &self.dialogs.dialog else { return };
        let ack = self.bare(cx, dialog, Method::Ack, numbers, Some(to));
        cx.sent_bytes(cx.now, ack.len());
        self.say_to(cx, invite.to, &ack);
    }

    pub(super) fn next_branch(&mut self) -> u32 {
        self.branches = self.branches.wrapping_add(1);
        self.branches
    }

    /// A request of `dialog` that no step has.
    pub(super) fn bare(
        &self,
        cx: &Cx<'_>,
        dialog: &Dialog,
        method: Method,
        numbers: Numbers,
        to: Option<&[u8]>,
    ) -> Vec<u8> {
        self.bare_with(cx, dialog, method, numbers, to, b"")
    }

    /// The same with more header fields.
    pub(super) fn bare_with(
        &self,
        cx: &Cx<'_>,
        dialog: &Dialog,
        method: Method,
        numbers: Numbers,
        to: Option<&[u8]>,
        headers: &[u8],
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(MESSAGE);
        out.extend_from_slice(method.name().as_bytes());
        out.push(b' ');
        out.extend_from_slice(&dialog.target);
        self.via(cx, numbers.branch, &mut out);
        out.extend_from_slice(&dialog.routes);
        field("From", &dialog.local, &mut out);
        field("To", to.unwrap_or(&dialog.remote), &mut out);
        field("Call-ID", &dialog.call_id, &mut out);
        sequence(numbers.cseq, method, &mut out);
        out.extend_from_slice(headers);
        message::body("", b"", &mut out);
        out
    }

    /// Append the end of the request line, Via and Max-Forwards.
    fn via(&self, cx: &Cx<'_>, branch: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(b" SIP/2.0\r\nVia: SIP/2.0/");
        out.extend_from_slice(via_transport(self.config.scheme).as_bytes());
        out.push(b' ');
        self.host(cx, out);
        out.extend_from_slice(b";branch=");
        message::branch(cx.device, branch, self.config.run, out);
        out.extend_from_slice(if self.config.alias { b";rport;alias" } else { b";rport" });
        out.extend_from_slice(b"\r\nMax-Forwards: 70\r\n");
    }
}

fn field(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn sequence(cseq: u32, method: Method, out: &mut Vec<u8>) {
    out.extend_from_slice(b"CSeq: ");
    decimal(cseq.into(), out);
    out.push(b' ');
    out.extend_from_slice(method.name().as_bytes());
    out.extend_from_slice(b"\r\n");
}
