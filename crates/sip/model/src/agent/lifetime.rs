//! Intervals that a server finds too short, and asks for a longer one: the lifetime of a registration, subscription or
//! publication (423, RFC 3261 section 10.2.8, RFC 6665 section 4.1.2.1, RFC 3903 section 4.1), and that of a session (422, RFC 4028
//! section 7.4). Such a request is sent again, once.

use super::UserAgent;
use super::send::Numbers;
use crate::description::counter;
use crate::method::Method;
use crate::scenario::{Header, Request};
use crate::transaction::Client;
use protocol::model::Cx;
use sip_core::message::{Fields, Name, Scanned};
use std::sync::Arc;

/// The statuses by which a server says that a lifetime, or a session interval, is too short.
const LIFETIME_TOO_BRIEF: u16 = 423;
const SESSION_TOO_SMALL: u16 = 422;

/// Why a request that was sent again with a longer interval has failed.
const LIFETIME_AGAIN: &str = "423 again, although its Min-Expires was asked for";
const SESSION_AGAIN: &str = "422 again, although its Min-SE was asked for";

/// What becomes of a response that may say that an interval is too short.
pub(super) enum TooShort {
    /// It says something else, or names none that is longer.
    No,
    /// The request was sent again.
    SentAgain,
    /// It had been sent again before.
    Again(&'static str),
}

impl UserAgent {
    /// Seconds that a request asks for.
    pub(super) fn lifetime(&self, request: &Request) -> u64 {
        match request.expires.unwrap_or(self.config.expires) {
            0 => 0,
            asked => asked.max(self.min_expires),
        }
    }

    /// Whether `header` of a request gives way to what the server asked for.
    pub(super) fn gives_way(&self, method: Method, header: &Header) -> bool {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        self.min_se > 0 && has_session(method) && (is("Session-Expires") || is("x") || is("Min-SE"))
    }

    /// A final response came that no step waits for: where it says that an interval is too short, the request is sent again.
    pub(super) fn lengthen(
        &mut self,
        cx: &mut Cx<'_>,
        bytes: &[u8],
        message: &Scanned<'_>,
        code: u16,
        client: &Client,
    ) -> TooShort {
        let config = Arc::clone(&self.config);
        let Some(request) = config.request(client.step) else { return TooShort::No };
        let (asked, least, again) = match code {
            LIFETIME_TOO_BRIEF => (self.lifetime(request), message.min_expires, LIFETIME_AGAIN),
            SESSION_TOO_SMALL if has_session(client.method) => {
                (u64::from(self.min_se).max(1), min_se(bytes, message), SESSION_AGAIN)
            }
            _ => return TooShort::No,
        };
        if client.longer {
            cx.count(client.first, counter::LIFETIMES_REFUSED);
            return TooShort::Again(again);
        }
        let Some(least) = least.filter(|least| asked > 0 && u64::from(*least) > asked) else {
            return TooShort::No;
        };
        cx.count(client.first, counter::LIFETIMES_RAISED);
        match code {
            SESSION_TOO_SMALL => self.min_se = least,
            _ => self.min_expires = least.into(),
        }
        let numbers = Numbers { branch: self.next_branch(), cseq: self.next_cseq(client.method) };
        let again = self.begin(cx, request, numbers, client.first);
        cx.sent_bytes(client.first, again.length);
        self.keep(Client {
            answered: client.answered.clone(),
            step: client.step,
            longer: true,
            moved: client.moved,
            ..again
        });
        TooShort::SentAgain
    }
}

/// Requests whose session may have an interval.
fn has_session(method: Method) -> bool {
    matches!(method, Method::Invite | Method::Update)
}

fn min_se(bytes: &[u8], message: &Scanned<'_>) -> Option<u32> {
    let mut fields = Fields::new(bytes, message.fields);
    while let Ok(Some(field)) = fields.next() {
        if field.name == Name::MinSe {
            let seconds = field.value.split(|byte| *byte == b';').next()?;
            return std::str::from_utf8(seconds).ok()?.trim().parse().ok();
        }
    }
    None
}
