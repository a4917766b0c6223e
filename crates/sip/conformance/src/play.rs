//! Plays a test.

mod expect;

/// Whether a challenge says that the credentials were right, and only their nonce too old.
fn is_stale(message: &Message) -> bool {
    let says = |name: &str| {
        let of = |value: &String| {
            field::param(value, "stale").is_some_and(|stale| stale.eq_ignore_ascii_case("true"))
        };
        field::values(message, name).iter().any(of)
    };
    says("WWW-Authenticate") || says("Proxy-Authenticate")
}

#[cfg(test)]
mod tests;

use crate::agent::{Agent, Peer};
use crate::draft::{self, Sequence};
use crate::field;
use crate::file::{Account, Level, Request, Test, Transport};
use crate::ladder::{Arrow, hidden, summary};
use crate::names::{Identity, Names, Saved, random};
use crate::step::{Auth, Plan, Send, Step};
use crate::{Outcome, SILENT, Verdict};
use sip_core::message::{Message, Name};
use sip_core::{Method, transaction};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Time between two looks at the sockets.
const TICK: Duration = Duration::from_micros(500);
/// Most messages of a test.
const MOST_MESSAGES: usize = 2000;

/// A challenge that cannot be answered.
const NO_ANSWER: &str = "the server's challenge cannot be answered: give user and password";

/// Why a test ended before its last step.
enum Stop {
    /// An expectation was not met.
    Fail(String),
    /// The test says nothing about the server.
    Inconclusive(String),
}

/// A step needs what did not come, or the test file is wrong.
fn file(what: String) -> Stop {
    Stop::Inconclusive(format!("a step cannot be played: {what}"))
}

/// A request that was sent.
struct Sent {
    agent: usize,
    name: Option<String>,
    message: Message,
    peer: Peer,
    auth: Auth,
    ack: bool,
    /// A challenge was answered.
    answered: bool,
    /// With credentials: their nonce may turn out to have been too old, once.
    renewable: bool,
}

/// A message that was received.
struct Arrival {
    agent: usize,
    saved: Saved,
    peer: Peer,
    /// The same came before.
    again: bool,
    taken: bool,
}

struct Player<'a> {
    request: &'a Request,
    agents: Vec<Agent>,
    names: Names<'a>,
    begin: Instant,
    ladder: Vec<Arrow>,
    shown: HashSet<(String, Vec<u8>)>,
    sent: Vec<Sent>,
    arrivals: Vec<Arrival>,
    keys: HashSet<String>,
    sequence: Sequence,
    call_ids: HashMap<(usize, bool), String>,
    /// A challenge came that could not be answered.
    challenged: bool,
    /// What is recommended and was not met.
    warnings: Vec<String>,
}

/// Plays one test.
pub(crate) fn play(request: &Request, test: &Test, plan: &Plan) -> Outcome {
    let begin = Instant::now();
    let transport = test.transport.unwrap_or(request.transport);
    let mut ladder = Vec::new();
    let result = lacks(request, test).map_or(Ok(()), |why| Err(Stop::Inconclusive(why))).and_then(|()| {
        let mut player = Player::new(request, transport, &test.agents, begin)
            .map_err(|error| Stop::Inconclusive(format!("no socket: {error}")))?;
        let result = player.all(plan);
        ladder = player.ladder;
        result.map(|()| player.warnings)
    });
    let (verdict, reason) = match result {
        Ok(warnings) if warnings.is_empty() => (Verdict::Pass, String::new()),
        Ok(warnings) => (Verdict::Warning, warnings.join("; ")),
        Err(Stop::Fail(reason)) if test.level == Level::Recommended => (Verdict::Warning, reason),
        Err(Stop::Fail(reason)) => (Verdict::Fail, reason),
        Err(Stop::Inconclusive(reason)) => (Verdict::Inconclusive, reason),
    };
    let duration_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
    Outcome { verdict, reason, duration_ms, ladder, ..unplayed(test) }
}

/// The result of a test that is not played, since the server is silent.
pub(crate) fn unplayed(test: &Test) -> Outcome {
    Outcome {
        id: test.id.clone(),
        title: test.title.clone(),
        role: test.role.clone(),
        clause: test.clause.clone(),
        verdict: Verdict::Inconclusive,
        reason: SILENT.into(),
        duration_ms: 0,
        ladder: Vec::new(),
    }
}

fn lacks(request: &Request, test: &Test) -> Option<String> {
    test.needs.iter().find_map(|need| {
        let (there, option) = match need.as_str() {
            "password" => (request.user.password.is_some(), "a password"),
            "other" => (request.other.is_some(), "a second user"),
            _ => (request.nonce_lifetime.is_some(), "the lifetime of the server's nonces"),
        };
        (!there).then(|| format!("the test needs {option}"))
    })
}

impl<'a> Player<'a> {
    fn new(
        request: &'a Request,
        transport: Transport,
        agents: &[String],
        begin: Instant,
    ) -> std::io::Result<Self> {
        let open = |name: &String| Agent::open(name, transport, request.server);
        let agents = agents.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let identity = |agent: &Agent| {
            let (local, tag) = (agent.local, random());
            (agent.name.clone(), Identity { local, user: agent.name.clone(), tag, transport })
        };
        let names = Names::new(request, agents.iter().map(identity).collect());
        Ok(Self {
            request,
            agents,
            names,
            begin,
            ladder: Vec::new(),
            shown: HashSet::new(),
            sent: Vec::new(),
            arrivals: Vec::new(),
            keys: HashSet::new(),
            sequence: Sequence::new(),
            call_ids: HashMap::new(),
            challenged: false,
            warnings: Vec::new(),
        })
    }

    fn all(&mut self, plan: &Plan) -> Result<(), Stop> {
        for step in &plan.setup {
            self.step(step).map_err(|stop| match stop {
                Stop::Fail(why) => Stop::Inconclusive(format!("setup: {why}")),
                other => other,
            })?;
        }
        for step in &plan.steps {
            self.step(step).map_err(|stop| match stop {
                Stop::Fail(_) if self.arrivals.is_empty() => {
                    Stop::Inconclusive("the server did not answer at all".into())
                }
                other => other,
            })?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), Stop> {
        match step {
            Step::Send(send) => self.send(send),
            Step::Respond { agent, text, to, name } => {
                self.respond(agent, text, to.as_deref(), name.as_deref())
            }
            Step::Resend { agent, message } => self.resend(agent, message),
            Step::Ack { agent, response } => self.acknowledge(agent, response),
            Step::Cancel { agent, request, name } => self.cancel(agent, request, name.clone()),
            Step::Expect(expect) => self.expect(expect),
            Step::Silence { agent, kinds, duration } => {
                self.silence(agent, kinds, duration.at(self.request.t1_ms))
            }
            Step::Count(count) => self.count(count),
            Step::Wait(wait) => self.pump(Instant::now() + wait.at(self.request.t1_ms)),
            Step::WaitForNonce => {
                let seconds = self.request.nonce_lifetime.unwrap_or_default().saturating_add(1);
                self.pump(Instant::now() + Duration::from_secs(seconds.into()))
            }
        }
    }

    fn agent(&self, name: &str) -> Result<usize, Stop> {
        let at = self.agents.iter().position(|agent| agent.name == name);
        at.ok_or_else(|| file(format!("no agent is called {name}")))
    }

    fn identity(&self, agent: usize) -> Result<&Identity, Stop> {
        let name = &self.agents[agent].name;
        self.names.agents.get(name).ok_or_else(|| file(format!("no agent is called {name}")))
    }

    // --- what agents send

    fn send(&mut self, send: &Send) -> Result<(), Stop> {
        let agent = self.agent(&send.agent)?;
        let register = send.text.trim_start().starts_with("REGISTER");
        let call_id = self.call_ids.entry((agent, register)).or_insert_with(random).clone();
        let mut sequence = std::mem::take(&mut self.sequence);
        let draft = draft::request(send, self.identity(agent)?, &self.names, &call_id, &mut sequence);
        self.sequence = sequence;
        let draft = draft.map_err(file)?;
        let mut message = draft.message;
        if let Some(name) = &send.credentials {
            let challenge = self.names.saved(name).map_err(file)?.message.clone();
            let account = self.account(&message);
            let answer =
                challenge.and_then(|challenge| draft::credentials(&message, &challenge, account, false));
            let (name, value) = answer.ok_or_else(|| Stop::Inconclusive(NO_ANSWER.into()))?;
            message.push(name, value);
        }
        let server = self.request.server;
        let address = draft.direct.and_then(|uri| draft::destination(&uri)).unwrap_or(server);
        let sent = Sent {
            agent,
            name: send.name.clone(),
            message,
            peer: Peer::Address(address),
            auth: send.auth,
            ack: send.ack,
            answered: false,
            renewable: false,
        };
        self.transmit(sent)
    }

    /// Sends a request and remembers its transaction.
    fn transmit(&mut self, sent: Sent) -> Result<(), Stop> {
        let bytes = sent.message.to_bytes();
        self.put(sent.agent, sent.peer, &bytes)?;
        if let Some(name) = &sent.name {
            self.names.save(name, Saved::new(bytes));
        }
        self.sent.push(sent);
        Ok(())
    }

    fn put(&mut self, agent: usize, peer: Peer, bytes: &[u8]) -> Result<(), Stop> {
        let name = self.agents[agent].name.clone();
        let to = self.party(peer);
        self.arrow(&name, &to, bytes);
        let sent = self.agents[agent].send(peer, bytes);
        sent.map_err(|error| Stop::Inconclusive(format!("{name} cannot send to {to}: {error}")))
    }

    fn respond(&mut self, agent: &str, text: &str, to: Option<&str>, name: Option<&str>) -> Result<(), Stop> {
        let agent = self.agent(agent)?;
        let named = to.map(|name| self.names.saved(name).map(|saved| saved.bytes.clone())).transpose();
        let named = named.map_err(file)?;
        let request = self.arrivals.iter().rev().find(|one| {
            let ours = one.saved.message.as_ref().and_then(Message::method);
            one.agent == agent
                && match &named {
                    Some(bytes) => one.saved.bytes == *bytes,
                    None => one.taken && ours.is_some_and(|method| *method != Method::Ack),
                }
        });
        let request = request.ok_or_else(|| file("there is no request to respond to".into()))?;
        let message = request.saved.message.clone();
        let message = message.ok_or_else(|| file("the request cannot be read".into()))?;
        let peer = match request.peer {
            Peer::Address(source) => Peer::Address(draft::reply_address(&message, source)),
            connection @ Peer::Connection(_) => connection,
        };
        let response = draft::response(text, &message, self.identity(agent)?, &self.names).map_err(file)?;
        let bytes = response.to_bytes();
        self.put(agent, peer, &bytes)?;
        if let Some(name) = name {
            self.names.save(name, Saved::new(bytes));
        }
        Ok(())
    }

    fn resend(&mut self, agent: &str, message: &str) -> Result<(), Stop> {
        let agent = self.agent(agent)?;
        let saved = self.names.saved(message).map_err(file)?;
        let bytes = saved.bytes.clone();
        // A response goes where its request came from.
        let code = saved.message.as_ref().and_then(Message::code);
        let via = saved.message.as_ref().and_then(|message| message.top_via().ok());
        let peer = match code {
            None => Peer::Address(self.request.server),
            Some(_) => {
                let came = self.arrivals.iter().rev().find(|one| {
                    let top = one.saved.message.as_ref().and_then(|message| message.top_via().ok());
                    one.agent == agent
                        && top.is_some()
                        && top.as_ref().map(|v| v.branch()) == via.as_ref().map(|v| v.branch())
                });
                let came = came.ok_or_else(|| file("the request of the response did not come".into()))?;
                match (came.peer, &came.saved.message) {
                    (Peer::Address(source), Some(message)) => {
                        Peer::Address(draft::reply_address(message, source))
                    }
                    (peer, _) => peer,
                }
            }
        };
        self.put(agent, peer, &bytes)
    }

    fn acknowledge(&mut self, agent: &str, response: &str) -> Result<(), Stop> {
        let agent = self.agent(agent)?;
        let response = self.names.saved(response).map_err(file)?.message.clone();
        let response = response.ok_or_else(|| file("the response cannot be read".into()))?;
        let at =
            self.transaction(agent, &response).ok_or_else(|| file("no request has this response".into()))?;
        self.ack_of(at, &response)
    }

    fn ack_of(&mut self, at: usize, response: &Message) -> Result<(), Stop> {
        let sent = &self.sent[at];
        let ack = transaction::ack(&sent.message, response);
        let ack = ack.map_err(|fault| Stop::Fail(format!("the response cannot be acknowledged: {fault}")))?;
        let (agent, peer) = (sent.agent, sent.peer);
        self.put(agent, peer, &ack.to_bytes())
    }

    fn cancel(&mut self, agent: &str, request: &str, name: Option<String>) -> Result<(), Stop> {
        let agent = self.agent(agent)?;
        let message = self.names.saved(request).map_err(file)?.message.clone();
        let message = message.ok_or_else(|| file("the request cannot be read".into()))?;
        let cancel = transaction::cancel(&message).map_err(|fault| file(fault.to_string()))?;
        let peer = Peer::Address(self.request.server);
        let (auth, ack, answered) = (Auth::None, true, false);
        self.transmit(Sent { agent, name, message: cancel, peer, auth, ack, answered, renewable: false })
    }

    // --- what agents receive

    /// Takes what arrives, up to a time.
    fn pump(&mut self, end: Instant) -> Result<(), Stop> {
        loop {
            let before = self.arrivals.len();
            self.look()?;
            if Instant::now() >= end {
                return Ok(());
            }
            if self.arrivals.len() == before {
                std::thread::sleep(TICK);
            }
        }
    }

    /// Takes all that has arrived.
    fn look(&mut self) -> Result<(), Stop> {
        for agent in 0..self.agents.len() {
            loop {
                let got = self.agents[agent].receive();
                let got = got.map_err(|error| Stop::Inconclusive(format!("a socket failed: {error}")))?;
                let Some((bytes, peer)) = got else { break };
                self.arrived(agent, bytes, peer)?;
            }
        }
        Ok(())
    }

    fn arrived(&mut self, agent: usize, bytes: Vec<u8>, peer: Peer) -> Result<(), Stop> {
        let name = self.agents[agent].name.clone();
        let from = self.party(peer);
        self.arrow(&from, &name, &bytes);
        if self.ladder.len() > MOST_MESSAGES {
            return Err(Stop::Fail(format!("more than {MOST_MESSAGES} messages came")));
        }
        let saved = Saved::new(bytes);
        let key = format!("{agent} {}", key(&saved));
        let again = !self.keys.insert(key);
        if let Some(message) = saved.message.clone() {
            if self.foreign(&message) {
                return self.answer_foreign(agent, &message, peer);
            }
            if self.react(agent, &message)? {
                return Ok(());
            }
        }
        self.arrivals.push(Arrival { agent, saved, peer, again, taken: false });
        Ok(())
    }

    /// Whether a message is none of this test's: a server may look whether its contacts are alive.
    fn foreign(&self, message: &Message) -> bool {
        let Some(id) = message.values(Name::CallId).next() else { return false };
        !self.sequence.contains_key(id) && message.method().is_some()
    }

    fn answer_foreign(&mut self, agent: usize, message: &Message, peer: Peer) -> Result<(), Stop> {
        if message.method() != Some(&Method::Options) {
            return Ok(());
        }
        let peer = match peer {
            Peer::Address(source) => Peer::Address(draft::reply_address(message, source)),
            connection @ Peer::Connection(_) => connection,
        };
        let response = Message::response(message, 200, "OK", Some(&random()));
        self.put(agent, peer, &response.to_bytes())
    }

    /// What a user agent does by itself: ACK of a final response that is none of class 2, credentials for a challenge. Whether
    /// that was all there is to the message.
    fn react(&mut self, agent: usize, message: &Message) -> Result<bool, Stop> {
        let Some(code) = message.code() else { return Ok(false) };
        let Some(at) = self.transaction(agent, message) else { return Ok(false) };
        let invite = self.sent[at].message.method() == Some(&Method::Invite);
        if invite && code >= 300 && self.sent[at].ack {
            self.ack_of(at, message)?;
        }
        if !matches!(code, 401 | 407) || self.sent[at].auth == Auth::None {
            return Ok(false);
        }
        // a nonce may end while a message is on its way (RFC 7616 section 3.3)
        let renewed = std::mem::take(&mut self.sent[at].renewable) && is_stale(message);
        if std::mem::replace(&mut self.sent[at].answered, true) && !renewed {
            return Ok(false);
        }
        let account = self.account(&self.sent[at].message);
        let wrong = self.sent[at].auth == Auth::Wrong;
        let Some(retry) = draft::with_credentials(&self.sent[at].message, message, account, wrong) else {
            self.challenged = true;
            return Ok(false);
        };
        if let Ok(cseq) = retry.cseq() {
            let id = retry.values(Name::CallId).next().unwrap_or_default().to_owned();
            let last = self.sequence.entry(id).or_default();
            *last = cseq.number.max(*last);
        }
        let old = &self.sent[at];
        let sent = Sent {
            agent,
            name: old.name.clone(),
            message: retry,
            peer: old.peer,
            auth: old.auth,
            ack: old.ack,
            answered: true,
            renewable: old.auth == Auth::Right && !renewed,
        };
        self.transmit(sent)?;
        Ok(true)
    }

    /// Whose credentials answer a challenge: those of the user in From.
    fn account(&self, message: &Message) -> &'a Account {
        let (request, user) = (self.request, draft::from_user(message));
        let accounts = [Some(&request.user), request.other.as_ref()];
        let account = accounts.into_iter().flatten().find(|one| Some(&one.name) == user.as_ref());
        account.unwrap_or(&request.user)
    }

    /// The request that a response is for: branch and method are the same (RFC 3261 section 17.1.3).
    fn transaction(&self, agent: usize, response: &Message) -> Option<usize> {
        let via = response.top_via().ok()?;
        let method = response.cseq().ok()?.method;
        self.sent.iter().rposition(|sent| {
            let branch = sent.message.top_via().ok();
            sent.agent == agent
                && sent.message.method() == Some(&method)
                && branch.is_some_and(|own| own.branch() == via.branch())
        })
    }

    // --- the ladder

    fn party(&self, peer: Peer) -> String {
        let agents = self.agents.iter().find(|agent| peer == Peer::Address(agent.local));
        agents.map_or_else(|| "server".into(), |agent| agent.name.clone())
    }

    fn arrow(&mut self, from: &str, to: &str, bytes: &[u8]) {
        let again = !self.shown.insert((format!("{from} {to}"), bytes.to_vec()));
        let at_ms = self.begin.elapsed().as_secs_f64() * 1000.0;
        let at_ms = (at_ms * 10.0).round() / 10.0;
        self.ladder.push(Arrow {
            at_ms,
            from: from.to_owned(),
            to: to.to_owned(),
            summary: summary(bytes),
            text: hidden(bytes),
            again,
        });
    }
}

/// What makes a message the same as one before: transaction and, of a response, its status and To tag.
fn key(saved: &Saved) -> String {
    let Some(message) = &saved.message else { return saved.text() };
    let branch = message.top_via().ok().and_then(|via| via.branch().map(str::to_owned)).unwrap_or_default();
    let cseq = message.values(Name::CSeq).next().unwrap_or_default();
    match message.code() {
        Some(code) => {
            let tag = message.to().ok().and_then(|to| to.tag().map(str::to_owned)).unwrap_or_default();
            format!("{code} {branch} {cseq} {tag}")
        }
        None => format!("{:?} {branch} {cseq}", message.method()),
    }
}
