//! Which messages a step waits for.

use super::Event;
use crate::method::Method;
use crate::scenario::{Alternative, Wanted};

/// Whether `event` of dialog `leg` is what is wanted; a response without a method named is to the request sent `last` in it.
pub(super) fn is_wanted(one: &Alternative, leg: u8, event: &Event, last: Method) -> bool {
    if one.leg != leg {
        return false;
    }
    match (&one.wanted, event) {
        (Wanted::Response { status, of }, Event::Response { method, status: code, .. }) => {
            of.unwrap_or(last) == *method && status.has(*code)
        }
        (wanted, Event::Request(method)) => wanted.is_request(*method),
        _ => false,
    }
}

/// Whether `event` is of a transaction that the step waits for a response of: then it is not what was to come.
pub(super) fn is_told_to(alternatives: &[Alternative], leg: u8, event: &Event, last: Method) -> bool {
    let Event::Response { method, status, .. } = event else { return false };
    alternatives.iter().filter(|one| one.leg == leg).any(|one| match &one.wanted {
        Wanted::Response { of, status: set } => {
            of.unwrap_or(last) == *method && (*status >= 200 || !set.is_provisional())
        }
        Wanted::Request(_) | Wanted::AnyRequest => false,
    })
}

/// It in words.
pub(super) fn told(wanted: &Wanted) -> String {
    match wanted {
        Wanted::Response { status, of: Some(of) } => format!("{status} to {of}"),
        Wanted::Response { status, of: None } => format!("{status}"),
        Wanted::Request(method) => method.to_string(),
        Wanted::AnyRequest => "a request".into(),
    }
}
