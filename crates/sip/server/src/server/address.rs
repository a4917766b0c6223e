//! Addresses of messages: where responses go, where requests are for, and keys of transactions.

use super::{Key, Peer, Transport};
use sip_core::message::header::{NameAddr, Value, Via};
use sip_core::message::{Message, Name, StartLine};
use sip_core::uri::SipUri;
use sip_core::{Method, Uri};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, SocketAddr};

/// Sixteen hexadecimal digits nobody can guess.
pub(super) fn random() -> String {
    format!("{:016x}", unguessable())
}

/// A number from the keys of the standard library's hash maps, which the system's random source gives.
fn unguessable() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A secret.
pub(super) fn secret() -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&unguessable().to_be_bytes()));
    bytes
}

/// A new branch.
pub(super) fn branch() -> String {
    format!("z9hG4bK{}", random())
}

/// The request with the address that it came from (RFC 3261 section 18.2.1, RFC 3581 section 4), where its responses go, and its
/// topmost Via.
pub(super) fn returned(mut request: Message, from: Peer) -> Option<(Message, Peer, Via)> {
    let first = request.headers.iter_mut().find(|header| header.name == Name::Via)?;
    // further Vias of the same field stay behind the first
    let (mut via, rest) = Via::read(&first.value)?;
    let source = from.address;
    let rport = via.rport().is_some();
    if rport {
        via.params.set("rport", Some(&source.port().to_string()));
    }
    let host = via.host.trim_start_matches('[').trim_end_matches(']');
    if rport || host.parse::<IpAddr>().ok() != Some(source.ip()) {
        via.params.set("received", Some(&source.ip().to_string()));
    }
    first.value = format!("{via}{rest}");
    let to = match from.transport {
        // section 18.2.2
        Transport::Udp if !rport => Peer::udp(SocketAddr::new(source.ip(), via.port.unwrap_or(5060))),
        _ => from,
    };
    Some((request, to, via))
}

/// Where a response goes whose connection is gone (RFC 3261 section 18.2.2): to the address that the request came from, and the
/// port that its sender names, not the one that it sent from.
pub(crate) fn without_connection(response: &[u8], from: Peer) -> Option<Peer> {
    let via = Message::read(response).ok()?.top_via().ok()?;
    let address = SocketAddr::new(from.address.ip(), via.port.unwrap_or(5060));
    Some(Peer { address, ..from })
}

/// Key of the server transaction (RFC 3261 section 17.2.3); an ACK has that of its INVITE.
pub(super) fn key(request: &Message, via: &Via, method: &str) -> Option<Key> {
    let method = if method == "ACK" { "INVITE" } else { method };
    if via.unique_branch() {
        return Some(format!("{} {}:{:?} {method}", via.branch()?, via.host, via.port).into());
    }
    let StartLine::Request { uri, .. } = &request.start else { return None };
    let (cseq, call) = (request.cseq().ok()?.number, request.call_id().ok()?);
    let tag = request.from().ok()?.tag().unwrap_or_default().to_owned();
    let sender = format!("{:?} {}:{:?}", via.branch(), via.host, via.port);
    Some(format!("{uri} {call} {cseq} {method} {tag} {sender}").into())
}

/// Whether the header fields that every request has are there and well formed (section 8.1.1).
pub(super) fn complete(request: &Message) -> bool {
    let parties = request.from().is_ok() && request.to().is_ok() && request.call_id().is_ok();
    let sequence = request.cseq().is_ok_and(|cseq| request.method() == Some(&cseq.method));
    let hops = request.get::<u32>(Name::MaxForwards).is_ok_and(|hops| hops.is_none_or(|hops| hops <= 255));
    let length = request.get::<u32>(Name::ContentLength).is_ok();
    parties && sequence && hops && length && request.contacts().is_ok()
}

/// Address and port of a URI that has no name.
pub(super) fn socket(uri: &SipUri) -> Option<SocketAddr> {
    let host = uri.host.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port.unwrap_or(if uri.secure { 5061 } else { 5060 });
    host.parse().ok().map(|ip| SocketAddr::new(ip, port))
}

/// Where a request to a URI goes that no client's connection is known of: an address over UDP or TCP; a name is not looked up.
pub(super) fn destination(uri: &Uri) -> Option<Peer> {
    let sip = uri.sip().filter(|sip| !sip.secure)?;
    let address = socket(sip)?;
    match sip.param("transport").flatten().map(str::to_ascii_lowercase).as_deref() {
        None | Some("udp") => Some(Peer::udp(address)),
        Some("tcp") => Some(Peer::tcp(address)),
        Some(_) => None,
    }
}

/// The first Route.
pub(super) fn route(message: &Message) -> Option<NameAddr> {
    message.all::<NameAddr>(Name::Route).ok()?.into_iter().next()
}

/// Sets the Route set.
pub(super) fn set_routes(message: &mut Message, routes: &[NameAddr]) {
    message.remove(Name::Route);
    for route in routes {
        message.push(Name::Route, route);
    }
}

/// Sets the Request-URI.
pub(super) fn set_uri(message: &mut Message, to: &str) {
    if let StartLine::Request { uri, .. } = &mut message.start {
        to.clone_into(uri);
    }
}

/// A request of the same transaction: ACK to a failure, or CANCEL.
pub(super) fn derived(request: &Message, method: Method, to: Option<&str>) -> Option<Message> {
    let made = match method {
        Method::Cancel => sip_core::transaction::cancel(request).ok()?,
        _ => {
            let to = Message { start: request.start.clone(), headers: Vec::new(), body: Vec::new() }
                .with(Name::To, to?);
            sip_core::transaction::ack(request, &to).ok()?
        }
    };
    Some(made)
}
