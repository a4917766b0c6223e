//! Requests and responses from the text of a step: what every message must have is added.

use crate::field;
use crate::file::Account;
use crate::names::{Identity, Names, Saved, branch};
use crate::step::Send;
use sip_core::digest::{Answer, Challenge, Preference, choose};
use sip_core::message::{Message, Name, StartLine, header::Via};
use sip_core::{Method, Uri};
use std::collections::HashMap;

/// Sequence numbers by Call-ID.
pub(crate) type Sequence = HashMap<String, u32>;

/// A request as it is sent.
pub(crate) struct Draft {
    pub message: Message,
    /// Route set of the dialog is empty: the request goes to its Request-URI.
    pub direct: Option<String>,
}

/// The request of a step.
pub(crate) fn request(
    send: &Send,
    agent: &Identity,
    names: &Names<'_>,
    call_id: &str,
    sequence: &mut Sequence,
) -> Result<Draft, String> {
    let dialog = send.dialog.as_deref().map(|name| names.saved(name)).transpose()?;
    let text = names.fill(&send.text)?;
    let (head, body) = text.split_once("\n\n").unwrap_or((&text, ""));
    let mut lines = head.lines();
    let start = lines.next().unwrap_or_default().trim();
    let (method, uri) = match (start.split_once(' '), dialog) {
        (Some((method, uri)), _) => (method, uri.strip_suffix(" SIP/2.0").unwrap_or(uri).trim().to_owned()),
        (None, Some(dialog)) => (start, target(dialog)?),
        (None, None) => return Err(format!("{start:?} has no Request-URI")),
    };
    let start = StartLine::Request { method: Method::of(method), uri };
    let mut message = Message { start, headers: Vec::new(), body: Vec::new() };
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let (name, value) = line.split_once(':').ok_or_else(|| format!("{line:?} is no header field"))?;
        message.push_named(name.trim(), value.trim());
    }
    let direct = complete(&mut message, send, dialog, agent, names, call_id, sequence)?;
    if !body.is_empty() {
        message.set_body("text/plain", body.replace('\n', "\r\n"));
    } else if method == "INVITE" && message.values(Name::ContentType).next().is_none() {
        offer(&mut message, agent);
    }
    if message.values(Name::ContentLength).next().is_none() && !omitted(send, Name::ContentLength) {
        message.push(Name::ContentLength, message.body.len());
    }
    Ok(Draft { message, direct })
}

fn omitted(send: &Send, name: Name) -> bool {
    send.omit.iter().any(|one| Name::of(one.as_bytes()) == name)
}

/// Adds what is missing; returns the Request-URI where the request goes to it and not to the server.
fn complete(
    message: &mut Message,
    send: &Send,
    dialog: Option<&Saved>,
    agent: &Identity,
    names: &Names<'_>,
    call_id: &str,
    sequence: &mut Sequence,
) -> Result<Option<String>, String> {
    let method = message.method().map(ToString::to_string).unwrap_or_default();
    let missing = |message: &Message, name| message.values(name).next().is_none() && !omitted(send, name);
    let ours = dialog.and_then(|saved| saved.message.as_ref());
    // The dialog's own side: To of a request that was received, From of a response.
    let received = ours.is_some_and(|ours| ours.code().is_none());
    let side = |name: Name| ours.and_then(|ours| ours.values(name).next()).map(str::to_owned);
    let register = method == "REGISTER";
    let address = |user: &str| format!("<sip:{user}@{}>", names.request.domain);
    let mut direct = None;
    if let Some(dialog) = dialog {
        let routes = dialog.routes();
        if routes.is_empty() {
            direct = message.uri().map(|uri| uri.to_string());
        } else if missing(message, Name::Route) {
            message.push(Name::Route, routes.join(", "));
        }
    }
    if missing(message, Name::From) {
        let user = if register { &names.request.user } else { names.caller() };
        let other = if received { side(Name::To) } else { side(Name::From) };
        let from = other.unwrap_or_else(|| address(&user.name));
        let tagged = field::param(&from, "tag").is_some();
        message.push(Name::From, if tagged { from } else { format!("{from};tag={}", agent.tag) });
    }
    if missing(message, Name::To) {
        let other = if received { side(Name::From) } else { side(Name::To) };
        message.push(Name::To, other.unwrap_or_else(|| address(&names.request.user.name)));
    }
    if missing(message, Name::CallId) {
        message.push(Name::CallId, side(Name::CallId).unwrap_or_else(|| call_id.to_owned()));
    }
    let id = message.values(Name::CallId).next().unwrap_or_default().to_owned();
    let last = sequence.entry(id).or_insert_with(|| ours.and_then(|m| m.cseq().ok()).map_or(0, |c| c.number));
    if missing(message, Name::CSeq) {
        let answered = ours.and_then(|ours| ours.cseq().ok()).filter(|_| method == "ACK");
        let number = answered.map_or(last.saturating_add(1), |cseq| cseq.number);
        message.push(Name::CSeq, format!("{number} {method}"));
    }
    if let Ok(cseq) = message.cseq() {
        *last = cseq.number.max(*last);
    }
    if missing(message, Name::MaxForwards) {
        message.push(Name::MaxForwards, 70);
    }
    if matches!(method.as_str(), "INVITE" | "SUBSCRIBE") && missing(message, Name::Contact) {
        message.push(Name::Contact, format!("<{}>", agent.contact()));
    }
    if missing(message, Name::Via) {
        message.push_front(Name::Via, via(agent, &branch()));
    }
    Ok(direct)
}

/// A Via of the agent.
pub(crate) fn via(agent: &Identity, branch: &str) -> Via {
    let host = crate::address::host(agent.local.ip());
    Via::new(agent.transport.as_str(), &host, Some(agent.local.port()), branch)
}

/// Remote target of a dialog (RFC 3261 section 12.1.2).
fn target(dialog: &Saved) -> Result<String, String> {
    let message = dialog.message.as_ref().ok_or("the message that made the dialog cannot be read")?;
    field::term(message, "Contact.uri")
        .ok_or_else(|| "the message that made the dialog has no Contact".into())
}

/// An offer or answer of audio (RFC 3264).
fn offer(message: &mut Message, agent: &Identity) {
    let family = if agent.local.is_ipv4() { "IP4" } else { "IP6" };
    let address = agent.local.ip();
    let body = format!(
        "v=0\r\no=- 1 1 IN {family} {address}\r\ns=-\r\nc=IN {family} {address}\r\nt=0 0\r\nm=audio 49170 RTP/AVP 0\r\n"
    );
    message.set_body("application/sdp", body);
}

/// The response of a step to a request.
pub(crate) fn response(
    text: &str,
    request: &Message,
    agent: &Identity,
    names: &Names<'_>,
) -> Result<Message, String> {
    let text = names.fill(text)?;
    let mut lines = text.lines();
    let start = lines.next().unwrap_or_default().trim();
    let (code, reason) = start.split_once(' ').unwrap_or((start, ""));
    let code = code.parse().ok().filter(|code| (100..=699).contains(code));
    let code: u16 = code.ok_or_else(|| format!("{start:?} is no status code and reason"))?;
    let tag = (code > 100).then_some(agent.tag.as_str());
    let mut response = Message::response(request, code, reason, tag);
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let (name, value) = line.split_once(':').ok_or_else(|| format!("{line:?} is no header field"))?;
        response.push_named(name.trim(), value.trim());
    }
    let invite = request.method() == Some(&Method::Invite);
    if invite && (101..300).contains(&code) && response.values(Name::Contact).next().is_none() {
        response.push(Name::Contact, format!("<{}>", agent.contact()));
    }
    if invite && (200..300).contains(&code) {
        offer(&mut response, agent);
    }
    Ok(response)
}

/// The header field that answers a challenge to a request (RFC 3261 section 22). `None` where it cannot be answered.
pub(crate) fn credentials(
    request: &Message,
    challenge: &Message,
    account: &Account,
    wrong: bool,
) -> Option<(Name, String)> {
    let (asks, answers) = if challenge.code() == Some(407) {
        (Name::ProxyAuthenticate, Name::ProxyAuthorization)
    } else {
        (Name::WwwAuthenticate, Name::Authorization)
    };
    let values: Vec<&[u8]> = challenge.values(asks).map(str::as_bytes).collect();
    let challenge: Challenge<'_> = choose(&values, Preference::Topmost).ok()?;
    let StartLine::Request { method, uri } = &request.start else { return None };
    let password = account.password.as_deref()?;
    let password = if wrong { format!("not {password}") } else { password.to_owned() };
    let username = account.name.as_bytes();
    let ha1 = challenge.algorithm.ha1(username, challenge.realm, password.as_bytes());
    let cnonce = crate::names::random();
    let answer = Answer {
        challenge: &challenge,
        username,
        ha1: &ha1,
        method: method.as_str().as_bytes(),
        uri: uri.as_bytes(),
        body: &request.body,
        qop: challenge.qop(false),
        cnonce: cnonce.as_bytes(),
        nc: 1,
    };
    let mut value = Vec::new();
    answer.write(&mut value);
    Some((answers, String::from_utf8_lossy(&value).into_owned()))
}

/// The request once more with credentials (RFC 3261 section 22.2): higher sequence number, another branch.
pub(crate) fn with_credentials(
    request: &Message,
    challenge: &Message,
    account: &Account,
    wrong: bool,
) -> Option<Message> {
    let (name, value) = credentials(request, challenge, account, wrong)?;
    let mut again = request.clone();
    again.remove(name);
    again.push(name, value);
    renew(&mut again)?;
    Some(again)
}

/// Higher sequence number and another branch.
fn renew(request: &mut Message) -> Option<()> {
    let cseq = request.cseq().ok()?;
    request.set(Name::CSeq, format!("{} {}", cseq.number.checked_add(1)?, cseq.method));
    let mut via = request.top_via().ok()?;
    via.params.set("branch", Some(&branch()));
    let first = request.headers.iter_mut().find(|header| header.name == Name::Via)?;
    first.value = via.to_string();
    Some(())
}

/// User part of From: whose credentials answer a challenge.
pub(crate) fn from_user(request: &Message) -> Option<String> {
    match Uri::parse(&field::term(request, "From.uri")?)? {
        Uri::Sip(uri) => uri.user,
        _ => None,
    }
}

/// Where a request goes that has no route: the address in its Request-URI.
pub(crate) fn destination(uri: &str) -> Option<std::net::SocketAddr> {
    let uri = Uri::parse(uri)?;
    let sip = uri.sip()?;
    crate::address::parse(&sip.host, sip.port)
}

/// Host and port that a response over UDP goes to (RFC 3261 section 18.2.2, RFC 3581).
pub(crate) fn reply_address(request: &Message, source: std::net::SocketAddr) -> std::net::SocketAddr {
    let Ok(via) = request.top_via() else { return source };
    if via.rport().is_some() {
        return source;
    }
    std::net::SocketAddr::new(source.ip(), via.port.unwrap_or(5060))
}
