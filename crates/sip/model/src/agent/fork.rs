//! Answers to an INVITE beside the one that the call goes on with: further callees of a call that a proxy forked, and answers
//! that came again.
//!
//! Each is acknowledged, and the call of a further callee is ended (RFC 3261 section 13.2.2.4). The ACK and the BYE are made
//! from the 2xx alone, so that one that comes when the flow is over gets them too. A BYE is sent again over UDP while a
//! flow is under way; afterwards each time the 2xx comes again.

use super::UserAgent;
use super::send::Numbers;
use crate::description::counter;
use crate::dialog::{Dialog, contact_uri, routes};
use crate::measure;
use crate::message::{fingerprint, read_call};
use crate::method::Method;
use crate::transaction::Client;
use protocol::meter::Failure;
use protocol::model::Cx;
use protocol::time::Time;
use sip_core::message::{Scanned, scan};
use std::net::SocketAddr;

/// Further callees of one call that are remembered, at most.
const FORKS_MAX: usize = 8;

/// A further callee, whose call is being ended.
#[derive(Debug)]
pub(super) struct Fork {
    /// Of Call-ID and tag.
    key: u64,
    ack: Box<[u8]>,
    /// Where both go, if not to the server.
    to: Option<SocketAddr>,
    /// The BYE; none once it is answered.
    bye: Option<Client>,
}

#[cfg(any(test, feature = "testing"))]
impl Fork {
    pub(super) fn bytes(&self) -> usize {
        self.ack.len() + self.bye.as_ref().map_or(0, super::footprint::client)
    }
}

impl UserAgent {
    /// A 2xx to an INVITE of ours that waits for none any more.
    pub(super) fn late_answer(&mut self, cx: &mut Cx<'_>, bytes: &[u8], message: &Scanned<'_>) {
        let (Some(tag), Some(call)) = (message.to_tag, read_call(message.call_id)) else {
            return cx.count(cx.now, counter::RESPONSES_REPEATED);
        };
        let is_last = self.dialogs.answered.0 == call;
        if is_last && self.dialogs.answered.1 != fingerprint(tag) {
            return self.release(cx, bytes, message);
        }
        cx.count(cx.now, counter::RESPONSES_REPEATED);
        let under_way =
            self.dialogs.dialog.as_ref().is_some_and(|dialog| *dialog.call_id == *message.call_id);
        let is_of_call = |ack: &[u8]| scan(ack).is_ok_and(|ack| ack.call_id == message.call_id);
        match self.dialogs.ack.take_if(|sent| is_of_call(&sent.1)) {
            Some(ack) => {
                self.say_to(cx, ack.0, &ack.1);
                self.dialogs.ack = Some(ack);
            }
            // the scenario has yet to acknowledge it
            None if is_last && under_way => {}
            None => {
                let of = callee(bytes, message);
                let ack = self.acknowledgement(cx, &of);
                cx.sent_bytes(cx.now, ack.len());
                self.say_to(cx, self.hop(&of), &ack);
            }
        }
    }

    /// Acknowledge the answer of another callee, and end that call.
    fn release(&mut self, cx: &mut Cx<'_>, bytes: &[u8], message: &Scanned<'_>) {
        let key = fingerprint(message.call_id) ^ fingerprint(message.to_tag.unwrap_or_default());
        if let Some(place) = self.forks.iter().position(|fork| fork.key == key) {
            cx.count(cx.now, counter::RESPONSES_REPEATED);
            let fork = &self.forks[place];
            let again = fork.bye.as_ref().map(|bye| bye.bytes.clone());
            let (ack, to) = (fork.ack.clone(), fork.to);
            self.say_to(cx, to, &ack);
            // over UDP alone they are kept
            if let Some(bye) = again.filter(|bye| !bye.is_empty()) {
                self.say_to(cx, to, &bye);
            }
            return;
        }
        cx.count(cx.now, counter::FORKS_RELEASED);
        let of = callee(bytes, message);
        let ack = self.acknowledgement(cx, &of);
        let to = self.hop(&of);
        self.say_to(cx, to, &ack);
        let numbers = Numbers { branch: self.next_branch(), cseq: of.invite_cseq.wrapping_add(1) };
        let mut credentials = Vec::new();
        self.auth.write(Method::Bye.name(), &of.target, b"", cx.rng, &mut credentials);
        let bye = self.bare_with(cx, &of, Method::Bye, numbers, None, &credentials);
        self.say_to(cx, to, &bye);
        cx.sent_bytes(cx.now, ack.len() + bye.len());
        if self.forks.len() == FORKS_MAX {
            self.forks.remove(0);
        }
        let bye = Some(self.client(cx.now, Method::Bye, numbers, bye));
        self.forks.push(Fork { key, ack: ack.into(), to, bye });
    }

    /// The ACK to the answer of a callee, with what the INVITE had (section 13.2.2.4).
    fn acknowledgement(&mut self, cx: &Cx<'_>, of: &Dialog) -> Vec<u8> {
        let numbers = Numbers { branch: self.next_branch(), cseq: of.invite_cseq };
        let asked = self.dialogs.dialog.as_ref().filter(|dialog| dialog.call_id == of.call_id);
        let credentials = asked.map_or(&b""[..], |dialog| &dialog.credentials);
        self.bare_with(cx, of, Method::Ack, numbers, None, credentials)
    }

    /// Whether a response is to the BYE of such a call: then that call is over.
    pub(super) fn is_released(&mut self, branch: Option<u32>, code: u16) -> bool {
        let Some(branch) = branch else { return false };
        let of = |fork: &&mut Fork| fork.bye.as_ref().is_some_and(|bye| bye.branch == branch);
        let Some(fork) = self.forks.iter_mut().find(of) else { return false };
        match &mut fork.bye {
            Some(bye) if code < 200 => bye.proceed(),
            bye => *bye = None,
        }
        true
    }

    /// Whether calls of further callees have yet to end.
    pub(super) fn releases(&self) -> bool {
        self.forks.iter().any(|fork| fork.bye.is_some())
    }

    /// When one of these BYEs is due again, or given up.
    pub(super) fn release_due(&self) -> Time {
        let byes = self.forks.iter().filter_map(|fork| fork.bye.as_ref());
        byes.map(|bye| bye.resend.min(bye.expires)).min().unwrap_or(Time::NEVER)
    }

    /// Send these BYEs again that are due.
    pub(super) fn release_again(&mut self, cx: &mut Cx<'_>) {
        let t2 = self.config.t2;
        for fork in &mut self.forks {
            if fork.bye.take_if(|bye| bye.expires <= cx.now).is_some() {
                cx.failure(cx.now, Failure::Unanswered, || {
                    "no final response to the BYE of a forked call before Timer F".into()
                });
            }
            if let Some(bye) = fork.bye.as_mut().filter(|bye| bye.resend <= cx.now) {
                match fork.to {
                    Some(to) => cx.out.elsewhere.push((to, bye.bytes.clone())),
                    None => cx.out.push_datagram(&bye.bytes),
                }
                cx.sent_bytes(bye.first, bye.bytes.len());
                bye.sent_again(cx.now, t2);
                measure::sent_again(cx, bye);
            }
        }
    }
}

/// The dialog that a 2xx to an INVITE of ours makes (section 12.1.2).
pub(super) fn callee(bytes: &[u8], message: &Scanned<'_>) -> Dialog {
    Dialog {
        call_id: message.call_id.into(),
        local: message.from.value.into(),
        remote: message.to.value.into(),
        target: message.contact.map(contact_uri).unwrap_or_default().into(),
        routes: if message.record_route { routes(bytes, message.fields, true) } else { Box::default() },
        cseq: message.cseq.number,
        invite_cseq: message.cseq.number,
        ..Dialog::default()
    }
}
