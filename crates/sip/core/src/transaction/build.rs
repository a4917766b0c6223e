//! Requests that belong to a transaction of another.

use crate::message::{Fault, Message, Name, StartLine};
use crate::method::Method;

/// ACK for a final response that is none of class 2 (RFC 3261 section 17.1.1.3).
pub fn ack(request: &Message, response: &Message) -> Result<Message, Fault> {
    let to = response.values(Name::To).next().ok_or(Fault::Missing(Name::To))?;
    derived(request, Method::Ack, to)
}

/// CANCEL of a request that has no final response yet (RFC 3261 section 9.1).
pub fn cancel(request: &Message) -> Result<Message, Fault> {
    let to = request.values(Name::To).next().ok_or(Fault::Missing(Name::To))?;
    derived(request, Method::Cancel, to)
}

/// Request-URI, topmost Via, Route, From, Call-ID and sequence number of `request`.
fn derived(request: &Message, method: Method, to: &str) -> Result<Message, Fault> {
    let StartLine::Request { uri, .. } = &request.start else { return Err(Fault::StartLine) };
    let number = request.cseq()?.number;
    let start = StartLine::Request { method: method.clone(), uri: uri.clone() };
    let mut derived = Message { start, headers: Vec::new(), body: Vec::new() };
    derived.push(Name::Via, request.top_via()?);
    for route in request.values(Name::Route) {
        derived.push(Name::Route, route);
    }
    for name in [Name::From, Name::CallId] {
        derived.push(name, request.values(name).next().ok_or(Fault::Missing(name))?);
    }
    derived.push(Name::To, to);
    derived.push(Name::CSeq, format!("{number} {method}"));
    derived.push(Name::MaxForwards, 70);
    derived.push(Name::ContentLength, 0);
    Ok(derived)
}
