//! Which messages a step waits for.

use super::Event;
use crate::method::Method;
use crate::scenario::{Alternative, ExpectedMessage};
use std::fmt;

/// Whether `event` of dialog `leg` is the expected message; a response without a method named is to the request sent `last` in it.
pub(super) fn matches(one: &Alternative, leg: u8, event: &Event, last: Method) -> bool {
    if one.leg != leg {
        return false;
    }
    match (&one.message, event) {
        (ExpectedMessage::Response { status, of }, Event::Response { method, status: code, .. }) => {
            of.unwrap_or(last) == *method && status.has(*code)
        }
        (expected, Event::Request(method)) => expected.is_request(*method),
        _ => false,
    }
}

/// Whether `event` is a response to the request whose response the step waits for, but not the expected one.
pub(super) fn is_other_response(alternatives: &[Alternative], leg: u8, event: &Event, last: Method) -> bool {
    let Event::Response { method, status, .. } = event else { return false };
    alternatives.iter().filter(|one| one.leg == leg).any(|one| match &one.message {
        ExpectedMessage::Response { of, status: set } => {
            of.unwrap_or(last) == *method && (*status >= 200 || !set.is_provisional())
        }
        ExpectedMessage::Request(_) | ExpectedMessage::AnyRequest => false,
    })
}

impl fmt::Display for ExpectedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Response { status, of: Some(of) } => write!(f, "{status} to {of}"),
            Self::Response { status, of: None } => write!(f, "{status}"),
            Self::Request(method) => write!(f, "{method}"),
            Self::AnyRequest => f.write_str("a request"),
        }
    }
}
