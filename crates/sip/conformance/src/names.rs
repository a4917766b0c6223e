//! Placeholders of test files: `{domain}`, `{uas.contact}`, `{invite.branch}`.

use crate::address::host_port;
use crate::field;
use crate::file::{Account, Request, Transport};
use sip_core::message::{Message, Name, StartLine, header::MAGIC_COOKIE};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::time::Instant;

/// A message that was sent or received.
#[derive(Debug, Clone)]
pub(crate) struct Saved {
    pub bytes: Vec<u8>,
    /// `None` where the bytes cannot be read.
    pub message: Option<Message>,
    pub at: Instant,
}

impl Saved {
    pub fn new(bytes: Vec<u8>) -> Self {
        let message = Message::read(&bytes).ok();
        Self { bytes, message, at: Instant::now() }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Route set of a dialog that this message made: of a response that the caller received the other way round
    /// (RFC 3261 sections 12.1.1, 12.1.2).
    pub fn routes(&self) -> Vec<String> {
        let Some(message) = &self.message else { return Vec::new() };
        let mut routes = field::values(message, "Record-Route");
        if message.code().is_some() {
            routes.reverse();
        }
        routes
    }
}

/// Identity of a user agent in a test.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub local: SocketAddr,
    pub user: String,
    pub tag: String,
    pub transport: Transport,
}

impl Identity {
    pub fn contact(&self) -> String {
        let transport = if self.transport == Transport::Tcp { ";transport=tcp" } else { "" };
        format!("sip:{}@{}{transport}", self.user, host_port(self.local))
    }
}

/// All that placeholders stand for.
pub(crate) struct Names<'a> {
    pub request: &'a Request,
    pub agents: HashMap<String, Identity>,
    saved: HashMap<String, Saved>,
    /// A user that the server does not know.
    nobody: String,
}

/// Digits that nobody else draws.
pub(crate) fn random() -> String {
    format!("{:016x}", RandomState::new().hash_one(Instant::now()))
}

/// A branch (RFC 3261 section 8.1.1.7).
pub(crate) fn branch() -> String {
    format!("{MAGIC_COOKIE}{}", random())
}

impl<'a> Names<'a> {
    pub fn new(request: &'a Request, agents: HashMap<String, Identity>) -> Self {
        let nobody = format!("nobody-{}", random().to_lowercase());
        Self { request, agents, saved: HashMap::new(), nobody }
    }

    pub fn t1_ms(&self) -> u64 {
        self.request.t1_ms
    }

    /// The user that calls.
    pub fn caller(&self) -> &'a Account {
        self.request.other.as_ref().unwrap_or(&self.request.user)
    }

    pub fn save(&mut self, name: &str, saved: Saved) {
        self.saved.insert(name.to_owned(), saved);
    }

    pub fn saved(&self, name: &str) -> Result<&Saved, String> {
        self.saved.get(name).ok_or_else(|| format!("no message has the name {name}"))
    }

    /// The text with every placeholder replaced.
    pub fn fill(&self, text: &str) -> Result<String, String> {
        let (mut rest, mut out) = (text, String::with_capacity(text.len()));
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) =
                after.split_once('}').ok_or_else(|| format!("{text:?} has no closing brace"))?;
            out.push_str(before);
            out.push_str(&self.value(name)?);
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }

    fn value(&self, name: &str) -> Result<String, String> {
        let request = self.request;
        let aor = |user: &str| format!("sip:{user}@{}", request.domain);
        Ok(match name {
            "server" => host_port(request.server),
            "domain" => request.domain.clone(),
            "user" => request.user.name.clone(),
            "aor" => aor(&request.user.name),
            "caller" => self.caller().name.clone(),
            "caller_aor" => aor(&self.caller().name),
            "nobody" => self.nobody.clone(),
            "random" => random(),
            "branch" => branch(),
            _ => {
                let unknown = || format!("nothing is called {{{name}}}");
                let (owner, part) = name.split_once('.').ok_or_else(unknown)?;
                match self.agents.get(owner) {
                    Some(agent) => of_agent(agent, part).ok_or_else(unknown)?,
                    None => of_message(self.saved(owner)?, part)
                        .ok_or_else(|| format!("message {owner} has no {part}"))?,
                }
            }
        })
    }
}

fn of_agent(agent: &Identity, part: &str) -> Option<String> {
    Some(match part {
        "contact" => agent.contact(),
        "address" => host_port(agent.local),
        "tag" => agent.tag.clone(),
        _ => return None,
    })
}

fn of_message(saved: &Saved, part: &str) -> Option<String> {
    if part == "text" {
        return Some(saved.text());
    }
    let message = saved.message.as_ref()?;
    match part {
        "branch" => field::term(message, "Via[0].branch"),
        "cseq" => message.cseq().ok().map(|cseq| cseq.number.to_string()),
        "target" => field::term(message, "Contact.uri"),
        "uri" => match &message.start {
            StartLine::Request { uri, .. } => Some(uri.clone()),
            StartLine::Response { .. } => None,
        },
        _ if Name::of(part.split(['[', '.']).next()?.as_bytes()) != Name::Other => field::term(message, part),
        _ => None,
    }
}
