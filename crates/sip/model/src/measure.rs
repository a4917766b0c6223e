//! What responses count as, by RFC 6076.

use crate::description::{counter, delay};
use crate::method::Method;
use crate::transaction::Client;
use protocol::model::Cx;
use protocol::time::Time;

/// A request of a new transaction was due at `client.first` and is sent. Within a dialog an INVITE asks for no session.
pub(crate) fn requested(cx: &mut Cx<'_>, client: &Client, in_dialog: bool) {
    match client.method {
        Method::Register => cx.count(client.first, counter::REGISTRATIONS),
        Method::Invite if !in_dialog => cx.count(client.first, counter::SESSION_REQUESTS),
        Method::Bye => cx.count(client.first, counter::DISCONNECT_REQUESTS),
        _ => {}
    }
}

/// It is sent again.
pub(crate) fn sent_again(cx: &mut Cx<'_>, client: &Client) {
    let counter = match client.method {
        Method::Register => counter::REGISTER_RETRANSMISSIONS,
        Method::Invite => counter::INVITE_RETRANSMISSIONS,
        Method::Bye => counter::BYE_RETRANSMISSIONS,
        _ => counter::OTHER_RETRANSMISSIONS,
    };
    cx.count(client.first, counter);
}

/// The ACK came to a 2xx that was sent the first time at `answered`.
pub(crate) fn acknowledged(cx: &mut Cx<'_>, answered: Time) {
    cx.delay(answered, delay::ANSWER_SIGNAL);
    cx.count(answered, counter::ANSWERS_ACKNOWLEDGED);
}

/// The first response came that says that the callee is alerted, or that the call is answered (section 4.3.1).
pub(crate) fn alerted(cx: &mut Cx<'_>, client: &Client) {
    cx.delay(client.first, delay::SESSION_REQUEST);
}

/// A final response came, `None`: not in time. `session`: it is to an INVITE that asked for a
/// session, or to the BYE of one, which was asked for at `asked`.
/// Returns the delay that it is measured by.
pub(crate) fn finished(
    cx: &mut Cx<'_>,
    client: &Client,
    status: Option<u16>,
    session: bool,
    asked: Time,
) -> usize {
    let at = client.first;
    if client.moved && matches!(status, Some(200..=299)) {
        cx.delay(at, delay::FAILOVER);
    }
    match (client.method, status) {
        (Method::Register, Some(200..=299)) => {
            cx.count(at, counter::REGISTRATIONS_ACCEPTED);
            delay::REGISTRATION
        }
        (Method::Register, status) => {
            // section 4.2: a challenge is no failure; one that cannot be answered is
            if status.is_none_or(|status| status >= 400) {
                cx.count(at, counter::REGISTRATIONS_INEFFECTIVE);
            }
            // section 4.1: the delay of a registration is that of a successful one
            delay::RESPONSE
        }
        (Method::Invite, status) if session => {
            match status {
                Some(200..=299) => {
                    cx.count(at, counter::SESSIONS_ANSWERED);
                    cx.count(at, counter::SESSION_REQUESTS_EFFECTIVE);
                    return delay::SESSION_SETUP;
                }
                Some(300..=399) => {
                    cx.count(at, counter::SESSIONS_REDIRECTED);
                    return delay::REDIRECT;
                }
                // section 4.7
                Some(480 | 486 | 600 | 603) => cx.count(at, counter::SESSION_REQUESTS_EFFECTIVE),
                // section 4.8
                Some(408 | 500 | 503 | 504) | None => cx.count(at, counter::SESSION_ATTEMPTS_INEFFECTIVE),
                Some(_) => {}
            }
            delay::SESSION_REQUEST_FAILED
        }
        (Method::Bye, Some(200..=299)) => {
            cx.count(at, counter::DISCONNECTS_ACCEPTED);
            if session {
                cx.count(asked, counter::SESSIONS_COMPLETED);
            }
            delay::SESSION_DISCONNECT
        }
        _ => delay::RESPONSE,
    }
}
