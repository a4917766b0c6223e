//! Reliable provisional responses (RFC 3262), on both sides.
//!
//! A caller acknowledges each with a PRACK, once, and takes those of each callee in their order; PRACKs are sent again over UDP.
//! A callee sends one again until its PRACK comes.

use super::UserAgent;
use super::fork::callee;
use super::send::Numbers;
use crate::description::{counter, delay};
use crate::measure;
use crate::message::fingerprint;
use crate::method::Method;
use crate::scenario::{reason, rejected};
use crate::transaction::Client;
use protocol::meter::Failure;
use protocol::model::Cx;
use protocol::template::decimal;
use protocol::time::Time;
use rand::Rng;
use sip_core::message::{Fields, Name, Scanned};

/// PRACKs under way, at most.
const PRACKS_MAX: usize = 16;
/// Callees of one call whose sequence is followed, at most.
const CALLEES_MAX: usize = 16;

/// What a caller knows of the reliable provisional responses to it.
#[derive(Debug, Default)]
pub(super) struct Reliable {
    /// Call and tag of a callee, and the sequence number of its last one.
    last: Vec<(u64, u32)>,
    pracks: Vec<Client>,
}

#[cfg(any(test, feature = "testing"))]
impl Reliable {
    pub(super) fn pracks(&self) -> impl Iterator<Item = &Client> {
        self.pracks.iter()
    }
}

/// Whether a list of option tags has `100rel`.
pub(super) fn names_100rel(value: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|tag| tag.trim_ascii().eq_ignore_ascii_case(b"100rel"))
}

impl UserAgent {
    /// Acknowledge a provisional response where it is reliable. False: it came before, or out of turn, and is dropped
    /// (section 4).
    pub(super) fn acknowledge_provisional(
        &mut self,
        cx: &mut Cx<'_>,
        bytes: &[u8],
        message: &Scanned<'_>,
    ) -> bool {
        let (Some(rseq), Some(tag)) = (message.rseq, message.to_tag) else { return true };
        let reliable = message.require.is_some_and(names_100rel);
        if !reliable || !self.config.acknowledges_provisionals {
            return true;
        }
        let key = fingerprint(message.call_id) ^ fingerprint(tag).rotate_left(1);
        let known = self.reliable.get_or_insert_default();
        if known.pracks.len() == PRACKS_MAX {
            return false;
        }
        let full = known.last.len() == CALLEES_MAX;
        match known.last.iter_mut().find(|one| one.0 == key) {
            Some((_, last)) if last.checked_add(1) == Some(rseq) => *last = rseq,
            Some(_) => {
                cx.count(cx.now, counter::RESPONSES_REPEATED);
                return false;
            }
            None if full => return false,
            None => known.last.push((key, rseq)),
        }
        self.send_prack(cx, bytes, message, rseq);
        true
    }

    fn send_prack(&mut self, cx: &mut Cx<'_>, bytes: &[u8], message: &Scanned<'_>, rseq: u32) {
        let Some(dialog) = &mut self.dialogs.dialog else { return };
        dialog.cseq += 1;
        let cseq = dialog.cseq;
        let of = callee(bytes, message);
        let numbers = Numbers { branch: self.next_branch(), cseq };
        let mut extra = Vec::with_capacity(300);
        extra.extend_from_slice(b"RAck: ");
        decimal(rseq.into(), &mut extra);
        extra.push(b' ');
        decimal(message.cseq.number.into(), &mut extra);
        extra.extend_from_slice(b" INVITE\r\n");
        self.auth.write(Method::Prack.name(), &of.target, b"", cx.rng, &mut extra);
        let prack = self.bare_with(cx, &of, Method::Prack, numbers, None, &extra);
        let to = self.hop(&of);
        self.say_to(cx, to, &prack);
        cx.sent_bytes(cx.now, prack.len());
        cx.count(cx.now, counter::PRACKS);
        let client = Client { to, ..self.client(cx.now, Method::Prack, numbers, prack) };
        self.reliable.get_or_insert_default().pracks.push(client);
    }

    /// Whether a response is to a PRACK of ours. A refusal ends the flow.
    pub(super) fn is_to_prack(&mut self, cx: &mut Cx<'_>, branch: Option<u32>, code: u16) -> bool {
        let (Some(branch), Some(known)) = (branch, &mut self.reliable) else { return false };
        let Some(place) = known.pracks.iter().position(|prack| prack.branch == branch) else { return false };
        if code < 200 {
            known.pracks[place].proceed();
            return true;
        }
        let prack = known.pracks.swap_remove(place);
        cx.delay(prack.first, delay::RESPONSE);
        if code < 300 {
            cx.count(prack.first, counter::PRACKS_ACCEPTED);
        } else {
            let why = reason(code);
            self.fail(cx, rejected(code), || format!("PRACK was answered with {code} {why}"));
        }
        true
    }

    /// Whether PRACKs are under way.
    pub(super) fn acknowledges(&self) -> bool {
        self.reliable.as_ref().is_some_and(|known| !known.pracks.is_empty())
    }

    /// When a PRACK is due again, or given up.
    pub(super) fn prack_due(&self) -> Time {
        let pracks = self.reliable.iter().flat_map(|known| &known.pracks);
        pracks.map(|prack| prack.resend.min(prack.expires)).min().unwrap_or(Time::NEVER)
    }

    /// Send PRACKs again that are due. False: one was given up, and the flow ended.
    pub(super) fn prack_again(&mut self, cx: &mut Cx<'_>) -> bool {
        let t2 = self.config.t2;
        let Some(known) = &mut self.reliable else { return true };
        if known.pracks.iter().any(|prack| prack.expires <= cx.now) {
            self.fail(cx, Failure::Unanswered, || "no final response to PRACK before Timer F".into());
            return false;
        }
        let now = cx.now;
        for prack in known.pracks.iter_mut().filter(|prack| prack.resend <= now) {
            match prack.to {
                Some(to) => cx.out.elsewhere.push((to, prack.bytes.clone())),
                None => cx.out.push_datagram(&prack.bytes),
            }
            cx.sent_bytes(prack.first, prack.bytes.len());
            prack.sent_again(cx.now, t2);
            measure::sent_again(cx, prack);
        }
        true
    }

    /// Header fields of a reliable provisional response, and its sequence number; none where the caller does not support it.
    pub(super) fn reliability(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> Option<u32> {
        let invited = self.dialogs.invited.as_mut().filter(|invited| invited.reliable_asked)?;
        // section 3: the first is drawn from 1 to 2^31 - 1, and each is one more than the last
        let rseq = match invited.rseq {
            0 => cx.rng.random_range(1..1 << 31),
            last => last.wrapping_add(1),
        };
        invited.rseq = rseq;
        out.extend_from_slice(b"Require: 100rel\r\nRSeq: ");
        decimal(rseq.into(), out);
        out.extend_from_slice(b"\r\n");
        Some(rseq)
    }

    /// Whether a reliable provisional response of ours waits for its PRACK.
    pub(super) fn is_unacknowledged(&self) -> bool {
        self.dialogs.invited.as_ref().is_some_and(|one| one.status < 200 && one.resend != Time::NEVER)
    }

    /// A PRACK came. True: it is for the provisional response that waits for one (section 3).
    pub(super) fn take_prack(
        &mut self,
        cx: &mut Cx<'_>,
        bytes: &[u8],
        message: &Scanned<'_>,
        call: u64,
    ) -> bool {
        let mut fields = Fields::new(bytes, message.fields);
        let mut rack = None;
        while let Ok(Some(field)) = fields.next() {
            if field.name == Name::RAck {
                rack = read_rack(field.value);
            }
        }
        let waits = self.is_unacknowledged();
        let invited = self.dialogs.invited.as_mut().filter(|one| waits && one.call == call);
        let Some(invited) = invited.filter(|one| rack == Some((one.rseq, one.cseq))) else { return false };
        invited.settle();
        cx.count(cx.now, counter::PROVISIONALS_ACKNOWLEDGED);
        true
    }
}

/// Sequence numbers of a RAck to an INVITE: of the response, and of the INVITE.
fn read_rack(value: &[u8]) -> Option<(u32, u32)> {
    let mut words = std::str::from_utf8(value).ok()?.split_ascii_whitespace();
    let numbers = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    (words.next() == Some("INVITE") && words.next().is_none()).then_some(numbers)
}
