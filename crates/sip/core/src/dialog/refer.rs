use super::DialogError;
use crate::message::header::{Event, NameAddr, SubscriptionState};
use crate::message::{Message, Name, scan_status};
use crate::method::Method;

/// A REFER that came or was sent: the subscription that it makes (RFC 3515 section 2.4.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Target of the reference.
    pub refer_to: NameAddr,
    /// Event of its NOTIFYs: `refer;id=CSEQ`.
    pub event: String,
    /// No NOTIFY is wanted (RFC 4488).
    pub silent: bool,
}

impl Reference {
    /// Reads a REFER.
    pub fn of(refer: &Message) -> Result<Self, DialogError> {
        if !refer.is(&Method::Refer) {
            return Err(DialogError::NotARequest);
        }
        let refer_to = refer.need(Name::ReferTo)?;
        let number = refer.cseq()?.number;
        let silent = refer.headers.iter().any(|header| {
            header.written.eq_ignore_ascii_case("Refer-Sub") && header.value.eq_ignore_ascii_case("false")
        });
        Ok(Self { refer_to, event: format!("refer;id={number}"), silent })
    }

    /// Whether a NOTIFY belongs to this REFER. The first REFER of a dialog may go without `id`.
    pub fn is_notified_by(&self, notify: &Message) -> Result<bool, DialogError> {
        let event: Event = notify.need(Name::Event)?;
        let id = self.event.strip_prefix("refer;id=");
        Ok(event.package.eq_ignore_ascii_case("refer") && event.id().is_none_or(|other| Some(other) == id))
    }
}

/// Body of a NOTIFY, of type `message/sipfrag;version=2.0` (RFC 3420).
pub fn notify_body(code: u16, reason: &str) -> Vec<u8> {
    format!("SIP/2.0 {code} {reason}\r\n").into_bytes()
}

/// Subscription-State of a NOTIFY about a response with this status code: a final one ends the subscription.
pub fn subscribe_state(code: u16, expires_s: u32) -> String {
    if code < 200 { format!("active;expires={expires_s}") } else { "terminated;reason=noresource".to_owned() }
}

/// Status code that a NOTIFY reports, and whether the subscription is over.
pub fn notify_status(notify: &Message) -> Result<(Option<u16>, bool), DialogError> {
    let state: SubscriptionState = notify.need(Name::SubscriptionState)?;
    Ok((scan_status(&notify.body), state.terminated()))
}
