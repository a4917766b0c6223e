//! Redirections that a call follows (RFC 3261 section 8.1.3.4): the Contacts of 3xx responses, by their `q`, each once.
//!
//! Over UDP the INVITE goes to the address in a Contact, where it has one that can be reached; else, and over a connection, to the
//! server. Call-ID and From stay, CSeq grows.

use super::UserAgent;
use super::next_hop::direct;
use super::play::REDIRECTED;
use super::send::Numbers;
use crate::dialog::{contact_uri, values};
use crate::measure;
use crate::method::Method;
use crate::transaction::Client;
use protocol::cause::Cause;
use protocol::meter::Failure;
use protocol::model::Cx;
use protocol::time::Time;
use sip_core::message::{Fields, Name, Scanned};
use std::net::SocketAddr;
use std::sync::Arc;

/// Redirections of one call, at most, and places that are remembered of it.
const REDIRECTIONS_MAX: u8 = 10;
const TARGETS_MAX: usize = 64;
/// Why a call has failed whose redirections name nobody new.
const CIRCLE: &str = "redirected in a circle";

/// Where a call may still go, and where it went.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// With `q` in thousandths, the best last.
    left: Vec<(u16, Box<[u8]>)>,
    known: Vec<Box<[u8]>>,
    redirections: u8,
}

impl Targets {
    /// Add the Contacts of a response.
    fn add(&mut self, bytes: &[u8], fields: usize) {
        let mut read = Fields::new(bytes, fields);
        while let Ok(Some(field)) = read.next() {
            let is_contact = field.name == Name::Contact;
            for contact in values(field.value).filter(|_| is_contact) {
                let uri = contact_uri(contact);
                let is_sip = uri.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b"sip:"))
                    || uri.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"sips:"));
                // what stands in a request line is on it alone
                let is_plain = uri.iter().all(u8::is_ascii_graphic);
                let is_new = !self.known.iter().any(|one| **one == *uri);
                if is_sip && is_plain && is_new && self.known.len() < TARGETS_MAX {
                    self.known.push(uri.into());
                    self.left.push((q(contact), uri.into()));
                }
            }
        }
        // those of one q in the order in which they came
        self.left.reverse();
        self.left.sort_by_key(|(q, _)| *q);
    }
}

impl UserAgent {
    /// A final response to an INVITE came that no step waits for: the call goes to the next Contact, or has failed where it went in
    /// a circle. False: it stays with this response.
    pub(super) fn follow(
        &mut self,
        cx: &mut Cx<'_>,
        bytes: &[u8],
        message: &Scanned<'_>,
        code: u16,
        client: &Client,
    ) -> bool {
        let redirects = (300..400).contains(&code);
        // section 8.1.3.4: other failures send it to the next, those of 600 and above end it
        let goes_on = redirects || (400..600).contains(&code) && self.targets.is_some();
        if !self.config.follow_redirects || client.method != Method::Invite || !goes_on {
            return false;
        }
        let config = Arc::clone(&self.config);
        let Some(request) = config.request(client.step) else { return false };
        let Some(dialog) = &mut self.dialogs.dialog else { return false };
        let targets = self.targets.get_or_insert_default();
        if targets.known.is_empty() {
            targets.known.push(dialog.target.clone());
        }
        if redirects {
            targets.redirections += 1;
            targets.add(bytes, message.fields);
        }
        let too_often = targets.redirections > REDIRECTIONS_MAX;
        let next = targets.left.pop().filter(|_| !too_often);
        if next.is_none() && !redirects {
            return false;
        }
        let delay = measure::finished(cx, client, Some(code), true, dialog.asked.unwrap_or(Time::ZERO));
        cx.delivered(client.first, delay);
        let Some((_, uri)) = next else {
            let why = if too_often { REDIRECTED } else { CIRCLE };
            self.fail(cx, Cause::named(Failure::Rejected, why), || {
                format!("INVITE was answered with {code}: {why}")
            });
            return true;
        };
        dialog.target = uri;
        dialog.asked = Some(cx.now);
        let numbers = Numbers { branch: self.next_branch(), cseq: self.next_cseq(Method::Invite) };
        let again = self.begin(cx, request, numbers, cx.now);
        measure::requested(cx, &again, false);
        cx.sent(again.first, again.length);
        self.keep(Client { step: client.step, ..again });
        true
    }

    /// Where a call that was redirected goes; none: to the server.
    pub(super) fn redirected_to(&self) -> Option<SocketAddr> {
        let target = &self.dialogs.dialog.as_ref().filter(|_| self.targets.is_some())?.target;
        let goes = !self.config.reliable && !self.config.outbound_proxy;
        direct(target, self.peer.filter(|_| goes)?)
    }
}

/// Parameter `q` of a Contact in thousandths (section 20.10); without one it is the best.
fn q(contact: &[u8]) -> u16 {
    let behind = contact.iter().rposition(|byte| *byte == b'>').map_or(contact, |end| &contact[end..]);
    let value = behind.split(|byte| *byte == b';').skip(1).find_map(|one| {
        let (name, value) = std::str::from_utf8(one).ok()?.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse::<f32>().ok())?
    });
    value.map_or(1000, |q| (q.clamp(0.0, 1.0) * 1000.0) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contacts_are_tried_by_their_q() {
        let message = b"SIP/2.0 302 Moved\r\nContact: <sip:low@h>;q=0.2, <sip:best@h>\r\nm: <sip:half@h;q=0.9>;q=0.5,<tel:1>\r\n\
            Contact: <sip:also@h>;q=1.0\r\nContact: <sip:known@h>\r\n\r\n";
        let mut targets = Targets { known: vec![b"sip:known@h"[..].into()], ..Targets::default() };
        targets.add(message, 19);
        let order: Vec<_> = std::iter::from_fn(|| targets.left.pop()).map(|(_, uri)| uri).collect();
        let order: Vec<_> = order.iter().map(|uri| String::from_utf8_lossy(uri).into_owned()).collect();
        assert_eq!(order, ["sip:best@h", "sip:also@h", "sip:half@h;q=0.9", "sip:low@h"]);
        targets.add(message, 19);
        assert!(targets.left.is_empty(), "each once");
    }
}
