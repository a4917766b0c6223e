//! The messages of RFC 4475 sent to a server, and how it may react.
//!
//! Each is sent over UDP below a Via of ours, as if a proxy forwarded it, so that the answer finds its way back. A valid message
//! may be refused for many reasons (its domain is not the server's), but not as malformed; an invalid one is refused as RFC 4475
//! says or dropped: who accepts it gets a warning, as RFC 4475 is not normative, and fails where RFC 3261 demands the refusal.
//! After each the server must still answer OPTIONS.

use crate::agent::{Agent, Peer};
use crate::draft::via;
use crate::file::{Request, Transport};
use crate::ladder::{Arrow, hidden, summary};
use crate::names::{Identity, branch, random};
use crate::{Outcome, SILENT, Verdict};
use serde::Serialize;
use sip_core::message::{Message as Sip, Name};
use sip_core::{Method, transaction};
use std::time::{Duration, Instant};

/// How long a final response may take.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Time between two looks at the socket.
const TICK: Duration = Duration::from_micros(500);

/// How a server may react to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reaction {
    /// Any response but 400: the message is valid.
    Accept,
    /// One of these, or none: the message is malformed. RFC 4475 and, of some, RFC 3261 recommend that.
    Refuse(&'static [u16]),
    /// One of these, or none: RFC 3261 demands it.
    Must(&'static [u16]),
    /// Anything: the server must go on working.
    Survive,
}

/// A message of RFC 4475.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Message {
    /// Name in RFC 4475.
    pub name: &'static str,
    /// Section.
    pub section: &'static str,
    /// What is special.
    pub title: &'static str,
    #[serde(skip)]
    reaction: Reaction,
    #[serde(skip)]
    bytes: &'static [u8],
}

macro_rules! messages {
    ($($name:literal $section:literal $reaction:expr, $title:literal;)*) => {
        /// All messages in the order of their sections.
        pub const MESSAGES: &[Message] = &[$(Message {
            name: $name,
            section: $section,
            title: $title,
            reaction: $reaction,
            bytes: include_bytes!(concat!("../../core/tests/rfc4475/", $name, ".dat")),
        },)*];
    };
}

use Reaction::{Accept, Must, Refuse, Survive};

messages! {
    "wsinv" "3.1.1.1" Accept, "folds, white space and compact names everywhere";
    "intmeth" "3.1.1.2" Accept, "every character that a method, URI or parameter may hold";
    "esc01" "3.1.1.3" Accept, "escapes in URIs";
    "escnull" "3.1.1.4" Accept, "escaped NULs in URIs";
    "esc02" "3.1.1.5" Accept, "percent signs that are no escapes";
    "lwsdisp" "3.1.1.6" Accept, "no white space between display name and bracket";
    "longreq" "3.1.1.7" Accept, "long values";
    "dblreq" "3.1.1.8" Accept, "bytes behind the body of a datagram";
    "semiuri" "3.1.1.9" Accept, "a semicolon in the user part";
    "transports" "3.1.1.10" Accept, "transports known and unknown in Via";
    "mpart01" "3.1.1.11" Accept, "a multipart body with octets of any value";
    "unreason" "3.1.1.12" Survive, "a response whose reason is not ASCII";
    "noreason" "3.1.1.13" Survive, "a response without reason";
    "badinv01" "3.1.2.1" Refuse(&[400]), "extraneous separators in Via and Contact";
    "clerr" "3.1.2.2" Refuse(&[400]), "Content-Length larger than the datagram";
    "ncl" "3.1.2.3" Refuse(&[400]), "a negative Content-Length";
    "scalar02" "3.1.2.4" Refuse(&[400]), "numbers out of range in a request";
    "scalarlg" "3.1.2.5" Survive, "numbers out of range in a response";
    "quotbal" "3.1.2.6" Refuse(&[400]), "a display name without closing quote";
    "ltgtruri" "3.1.2.7" Survive, "a Request-URI in angle brackets";
    "lwsruri" "3.1.2.8" Survive, "white space in the Request-URI";
    "lwsstart" "3.1.2.9" Survive, "two spaces in the request line";
    "trws" "3.1.2.10" Survive, "spaces at the end of the request line";
    "escruri" "3.1.2.11" Survive, "header fields in the Request-URI";
    "baddate" "3.1.2.12" Survive, "a Date that is not GMT";
    "regbadct" "3.1.2.13" Survive, "a Contact with a question mark and no brackets";
    "badaspec" "3.1.2.14" Survive, "white space within an addr-spec";
    "baddn" "3.1.2.15" Survive, "a display name that is no token";
    "badvers" "3.1.2.16" Refuse(&[505]), "an unknown version";
    "mismatch01" "3.1.2.17" Refuse(&[400]), "CSeq with another method, a known one";
    "mismatch02" "3.1.2.18" Refuse(&[400, 501]), "CSeq with another method, an unknown one";
    "bigcode" "3.1.2.19" Survive, "a response with a status code out of range";
    "badbranch" "3.2.1" Survive, "a branch that is the magic cookie and no more";
    "insuf" "3.3.1" Refuse(&[400]), "no From, To and Call-ID";
    "unkscm" "3.3.2" Refuse(&[416]), "a Request-URI of an unknown scheme";
    "novelsc" "3.3.3" Refuse(&[416]), "a Request-URI of a scheme that is not SIP's";
    "unksm2" "3.3.4" Survive, "unknown schemes in From, To and Contact";
    "bext01" "3.3.5" Must(&[420]), "unknown options in Require and Proxy-Require";
    "invut" "3.3.6" Accept, "an unknown content type";
    "regaut01" "3.3.7" Accept, "an unknown authorization scheme";
    "multi01" "3.3.8" Refuse(&[400]), "header fields twice that may appear once";
    "mcl01" "3.3.9" Refuse(&[400]), "two different values of Content-Length";
    "bcast" "3.3.10" Survive, "a response with a broadcast address in Via";
    "zeromf" "3.3.11" Accept, "Max-Forwards of zero";
    "cparam01" "3.3.12" Accept, "an unknown parameter of Contact";
    "cparam02" "3.3.13" Accept, "an unknown parameter of a URI in Contact";
    "regescrt" "3.3.14" Accept, "an escaped Route in a URI of Contact";
    "sdp01" "3.3.15" Accept, "an Accept without application/sdp";
    "inv2543" "3.4.1" Accept, "a request of RFC 2543";
}

impl Message {
    /// The message of this name.
    pub fn of(name: &str) -> Option<&'static Self> {
        MESSAGES.iter().find(|message| message.name == name)
    }

    /// The message with a Via of ours above its own.
    fn below(&self, agent: &Identity) -> Vec<u8> {
        let line = self.bytes.windows(2).position(|pair| pair == b"\r\n").map_or(0, |at| at + 2);
        let (start, rest) = self.bytes.split_at(line);
        if start.starts_with(b"SIP/") {
            return self.bytes.to_vec();
        }
        let mut own = via(agent, &branch());
        own.params.set("rport", None);
        match self.name {
            // The branch is what is tested: it has to be the topmost.
            "badbranch" => own.params.set("branch", Some(sip_core::message::header::MAGIC_COOKIE)),
            "inv2543" => own.params.0.retain(|param| param.name != "branch"),
            _ => {}
        }
        [start, format!("Via: {own}\r\n").as_bytes(), rest].concat()
    }
}

/// An agent, and what went over its socket.
struct Exchange<'a> {
    request: &'a Request,
    agent: Agent,
    identity: Identity,
    begin: Instant,
    ladder: Vec<Arrow>,
}

impl Exchange<'_> {
    fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.note("uac", "server", bytes);
        self.agent.send(Peer::Address(self.request.server), bytes)
    }

    fn note(&mut self, from: &str, to: &str, bytes: &[u8]) {
        let at_ms = (self.begin.elapsed().as_secs_f64() * 10_000.0).round() / 10.0;
        let (from, to) = (from.to_owned(), to.to_owned());
        self.ladder.push(Arrow {
            at_ms,
            from,
            to,
            summary: summary(bytes),
            text: hidden(bytes),
            again: false,
        });
    }

    /// The first final response, or the last provisional one. `of` says whether a response is for the request.
    fn answer(&mut self, of: impl Fn(&Sip) -> bool) -> std::io::Result<Option<Sip>> {
        let end = Instant::now() + PATIENCE;
        let mut provisional = None;
        while Instant::now() < end {
            let Some((bytes, _)) = self.agent.receive()? else {
                std::thread::sleep(TICK);
                continue;
            };
            self.note("server", "uac", &bytes);
            match Sip::read(&bytes).ok().filter(&of) {
                Some(message) if message.code().is_some_and(|code| code >= 200) => return Ok(Some(message)),
                Some(message) if message.code().is_some() => provisional = Some(message),
                _ => {}
            }
        }
        Ok(provisional)
    }

    /// Whether the server answers OPTIONS, with whatever.
    fn alive(&mut self) -> std::io::Result<bool> {
        let uri = format!("sip:{}", self.request.domain);
        let call_id = random();
        let mut options = Sip::request(Method::Options, &sip_core::Uri::Other(uri.clone()));
        options.push(Name::Via, via(&self.identity, &branch()));
        options.push(Name::MaxForwards, 70);
        options.push(Name::From, format!("<{uri}>;tag={}", random()));
        options.push(Name::To, format!("<{uri}>"));
        options.push(Name::CallId, &call_id);
        options.push(Name::CSeq, "1 OPTIONS");
        options.push(Name::ContentLength, 0);
        self.send(&options.to_bytes())?;
        let answer = self.answer(|message| message.values(Name::CallId).next() == Some(&call_id))?;
        Ok(answer.is_some())
    }
}

/// Sends a message of RFC 4475, and judges what comes back.
pub(crate) fn play(request: &Request, message: &Message) -> Outcome {
    let begin = Instant::now();
    let mut ladder = Vec::new();
    let result = Agent::open("uac", Transport::Udp, request.server).and_then(|agent| {
        let (local, tag) = (agent.local, random());
        let identity = Identity { local, user: "uac".into(), tag, transport: Transport::Udp };
        let mut exchange = Exchange { request, agent, identity, begin, ladder: Vec::new() };
        let judged = judge(&mut exchange, message);
        ladder = exchange.ladder;
        judged
    });
    let (verdict, reason) =
        result.unwrap_or_else(|error| (Verdict::Inconclusive, format!("the socket failed: {error}")));
    let duration_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
    Outcome { verdict, reason, duration_ms, ladder, ..unplayed(message) }
}

/// The result of a message that is not sent, since the server is silent.
pub(crate) fn unplayed(message: &Message) -> Outcome {
    Outcome {
        id: format!("T-{}", message.name),
        title: message.title.into(),
        role: "torture".into(),
        clause: format!("RFC 4475 {}", message.section),
        verdict: Verdict::Inconclusive,
        reason: SILENT.into(),
        duration_ms: 0,
        ladder: Vec::new(),
    }
}

fn judge(exchange: &mut Exchange<'_>, message: &Message) -> std::io::Result<(Verdict, String)> {
    if !exchange.alive()? {
        return Ok((Verdict::Inconclusive, "the server did not answer OPTIONS before the message".into()));
    }
    let bytes = message.below(&exchange.identity);
    exchange.send(&bytes)?;
    let answer = exchange.answer(|_| true)?;
    let sent = Sip::read(&bytes).ok();
    if let Some((sent, answer)) = sent.zip(answer.as_ref())
        && sent.method() == Some(&Method::Invite)
        && answer.code().is_some_and(|code| code >= 300)
        && let Ok(ack) = transaction::ack(&sent, answer)
    {
        exchange.send(&ack.to_bytes())?;
    }
    if !exchange.alive()? {
        return Ok((Verdict::Fail, "the server did not answer OPTIONS after the message".into()));
    }
    Ok(verdict(message.reaction, answer.as_ref().and_then(Sip::code)))
}

fn verdict(reaction: Reaction, code: Option<u16>) -> (Verdict, String) {
    match (reaction, code) {
        (Accept, Some(400)) => (Verdict::Fail, "a valid message was refused with 400".into()),
        (Accept, None) => (Verdict::Inconclusive, "the server did not answer the message".into()),
        (Accept | Survive, _) | (Refuse(_) | Must(_), None) => (Verdict::Pass, String::new()),
        (Refuse(codes) | Must(codes), Some(code)) if codes.contains(&code) => (Verdict::Pass, String::new()),
        (Refuse(codes) | Must(codes), Some(code)) => {
            let expected = codes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
            if (200..300).contains(&code) {
                let verdict = if matches!(reaction, Must(_)) { Verdict::Fail } else { Verdict::Warning };
                return (verdict, format!("expected {expected} or no answer; received {code}"));
            }
            (
                Verdict::Inconclusive,
                format!("expected {expected}; the server answered {code} for another reason"),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_messages_are_there() {
        assert_eq!(MESSAGES.len(), 49);
        assert!(MESSAGES.iter().all(|message| !message.bytes.is_empty()));
        assert!(
            MESSAGES.is_sorted_by_key(|m| m
                .section
                .split('.')
                .map(|n| n.parse().unwrap())
                .collect::<Vec<u32>>())
        );
    }

    #[test]
    fn verdicts() {
        for (reaction, code, expected) in [
            (Accept, Some(400), Verdict::Fail),
            (Accept, Some(404), Verdict::Pass),
            (Accept, None, Verdict::Inconclusive),
            (Survive, Some(400), Verdict::Pass),
            (Survive, None, Verdict::Pass),
            (Refuse(&[400]), None, Verdict::Pass),
            (Refuse(&[400]), Some(400), Verdict::Pass),
            (Refuse(&[400]), Some(200), Verdict::Warning),
            (Must(&[420]), Some(200), Verdict::Fail),
            (Must(&[420]), Some(420), Verdict::Pass),
            (Must(&[420]), Some(404), Verdict::Inconclusive),
            (Refuse(&[416]), Some(404), Verdict::Inconclusive),
        ] {
            assert_eq!(verdict(reaction, code).0, expected, "{reaction:?} {code:?}");
        }
    }
}
