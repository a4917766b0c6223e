//! The server without I/O: transactions, and what each role does with a request.

mod address;
mod auth;
mod dialogs;
mod flows;
mod incoming;
mod location;
mod outgoing;
mod proxy;
mod redirect;
mod refuse;
mod registrar;
#[cfg(test)]
mod tests;
mod uas;

use crate::counters::Counters;
use crate::echo::EchoCalls;
use crate::peer::{Broken, Given, Peer, Transport};
use crate::settings::{Role, Settings};
pub(crate) use address::without_connection;
use flows::Flows;
use incoming::Incoming;
use location::Location;
use outgoing::Outgoing;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use sip_core::digest::Nonces;
use sip_core::message::{Fault, Message, Name, StartLine};
use sip_core::transaction::{MS, Timers};
use sip_core::uri::SipUri;
use sip_core::{Method, Uri};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Most transactions at a time, on each side; more requests are answered with 503.
const TRANSACTIONS: usize = 500_000;
/// Used nonces that are remembered.
const NONCES: usize = 200_000;

/// Messages to send.
pub type Out = Vec<(Peer, Vec<u8>)>;

/// Key of a server transaction.
type Key = Arc<str>;

/// What is due at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Incoming(Key),
    Outgoing(String),
    /// A request whose answer was delayed.
    Handle(Key),
    /// A call that rings is answered.
    Answer(Key),
    /// A 200 to INVITE that waits for its ACK.
    Ack(uas::Call),
}

/// The server.
#[derive(Debug)]
pub struct Server {
    settings: Settings,
    timers: Timers,
    counters: Counters,
    location: Location,
    flows: Flows,
    echo: Arc<EchoCalls>,
    nonces: Nonces,
    incoming: HashMap<Key, Incoming>,
    outgoing: HashMap<String, Outgoing>,
    awaiting: HashMap<uas::Call, uas::Answered>,
    dialogs: dialogs::Dialogs,
    /// By which transaction each of the latest requests outside of a dialog came first.
    origins: HashMap<Arc<str>, Key>,
    origins_in_order: VecDeque<Arc<str>>,
    due: BinaryHeap<Reverse<(u64, Due)>>,
    chance: SmallRng,
    now: u64,
    out: Out,
}

impl Server {
    /// A server with these settings, which were checked.
    pub fn new(settings: Settings) -> Self {
        let t1 = settings.t1_ms * MS;
        let timers = Timers { t1, t2: t1 * 8, t4: t1 * 10, d: t1 * 64, ..Timers::default() };
        Self {
            timers,
            counters: Counters::default(),
            location: Location::new(settings.max_bindings),
            flows: Flows::new(settings.accept_aliases),
            echo: Arc::default(),
            nonces: Nonces::new(address::secret(), settings.nonce_lifetime_ms, NONCES),
            incoming: HashMap::new(),
            outgoing: HashMap::new(),
            awaiting: HashMap::new(),
            dialogs: dialogs::Dialogs::default(),
            origins: HashMap::new(),
            origins_in_order: VecDeque::new(),
            due: BinaryHeap::new(),
            chance: SmallRng::seed_from_u64(settings.seed),
            settings,
            now: 0,
            out: Vec::new(),
        }
    }

    /// What it counted.
    pub fn counters(&mut self) -> &Counters {
        self.location.expire(self.now);
        self.counters.bindings = self.location.bindings();
        self.counters.media(&self.echo);
        &self.counters
    }

    /// Whose audio goes back.
    pub fn echo(&self) -> Arc<EchoCalls> {
        Arc::clone(&self.echo)
    }

    /// A message could not be sent.
    pub fn send_failed(&mut self) {
        self.counters.send_errors += 1;
    }

    /// A client connected.
    pub fn connected(&mut self, transport: Transport) {
        self.counters.connected(transport.name());
    }

    /// A connection is gone. `why`: what was wrong with it.
    pub fn closed(&mut self, peer: Peer, why: Option<&Broken>) {
        self.flows.closed(peer);
        match why {
            Some(Broken::Tls(why)) => self.counters.tls_failed(why),
            Some(Broken::WebSocket(why)) => self.counters.websocket_failed(why),
            Some(Broken::GivenUp(why)) => self.given_up(*why),
            None => {}
        }
    }

    /// A connection was refused or closed by us.
    pub fn given_up(&mut self, why: Given) {
        self.counters.given_up(why.name());
    }

    /// The system had no room for this many datagrams more.
    pub fn dropped_here(&mut self, more: u64) {
        self.counters.datagrams_dropped_here += more;
    }

    /// How long a client may take to send its first message: as long as a client waits for a response (Timers B and F).
    pub fn patience(&self) -> Duration {
        Duration::from_nanos(self.timers.t1 * 64)
    }

    /// When [`Self::on_timer`] is to be called.
    pub fn deadline(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// A message came. Times are nanoseconds of any clock that does not go back.
    pub fn receive(&mut self, from: Peer, bytes: &[u8], now: u64) -> Out {
        self.receive_from(from, bytes, now, &|_| false)
    }

    /// The same; `proves`: whether the client has shown a certificate of a host.
    pub fn receive_from(&mut self, from: Peer, bytes: &[u8], now: u64, proves: &dyn Fn(&str) -> bool) -> Out {
        self.now = now;
        if self.settings.drop_share > 0.0 && self.chance.random_bool(self.settings.drop_share) {
            self.counters.dropped_on_purpose += 1;
        } else {
            self.message(from, bytes, proves);
        }
        std::mem::take(&mut self.out)
    }

    /// The deadline has come.
    pub fn on_timer(&mut self, now: u64) -> Out {
        self.now = now;
        while let Some(Reverse((at, _))) = self.due.peek() {
            if *at > now {
                break;
            }
            let Some(Reverse((_, due))) = self.due.pop() else { break };
            match due {
                Due::Incoming(key) => self.incoming_due(&key),
                Due::Outgoing(branch) => self.outgoing_due(&branch),
                Due::Handle(key) => self.handle(&key),
                Due::Answer(key) => self.answer_call(&key),
                Due::Ack(call) => self.ack_due(&call),
            }
        }
        std::mem::take(&mut self.out)
    }

    /// Whether the rule of this purpose is broken on purpose.
    fn breaks(&self, purpose: &str) -> bool {
        self.settings.fault.as_deref() == Some(purpose)
    }

    fn at(&mut self, when: u64, what: Due) {
        self.due.push(Reverse((when, what)));
    }

    fn message(&mut self, from: Peer, bytes: &[u8], proves: &dyn Fn(&str) -> bool) {
        let message = match Message::read(bytes) {
            Ok(message) => message,
            Err(why) => {
                self.counters.malformed += 1;
                return self.unreadable(from, bytes, why.fault);
            }
        };
        self.flows.learn(from, &message, proves);
        match &message.start {
            StartLine::Request { .. } => self.request(from, message),
            StartLine::Response { code, .. } => {
                let code = *code;
                self.response(message, code);
            }
        }
    }

    /// A request that cannot be read is answered where its head can be (RFC 3261 section 16.3 step 1).
    fn unreadable(&mut self, from: Peer, bytes: &[u8], why: Fault) {
        let (code, reason, bytes) = match refuse::of_version(bytes).filter(|_| why == Fault::Version) {
            Some(ours) => (505, "Version Not Supported", ours),
            None => (400, "Bad Request", bytes.to_vec()),
        };
        let Ok((head, _)) = Message::read_head(&bytes) else { return };
        if head.method().is_some_and(|method| *method != Method::Ack) {
            self.refuse(from, head, code, reason);
        }
    }

    /// A response outside of any transaction.
    fn refuse(&mut self, from: Peer, request: Message, code: u16, reason: &str) {
        let Some((request, to, _)) = address::returned(request, from) else { return };
        let tag = address::random();
        let response = Message::response(&request, code, reason, Some(&tag));
        *self.counters.responses.entry(code).or_default() += 1;
        self.out.push((to, response.to_bytes()));
    }

    fn request(&mut self, from: Peer, message: Message) {
        let Some(method) = message.method().cloned() else { return };
        let Some((message, to, via)) = address::returned(message, from) else {
            self.counters.malformed += 1;
            return;
        };
        let Some(key) = address::key(&message, &via, method.as_str()) else {
            self.counters.malformed += 1;
            return self.refuse(from, message, 400, "Bad Request");
        };
        if method == Method::Ack {
            self.counters.request("ACK");
            return self.acknowledge(message, &key);
        }
        let stateless = match self.settings.fault.as_deref() {
            Some("R19") => method == Method::Register,
            Some("P20" | "D06") => method == Method::Invite,
            _ => false,
        };
        if self.incoming.contains_key(&key) && !stateless {
            self.counters.requests_repeated += 1;
            return self.request_repeated(&key);
        }
        self.counters.request(method.as_str());
        if self.incoming.len() >= TRANSACTIONS {
            return self.refuse(from, message, 503, "Service Unavailable");
        }
        self.begin(key.clone(), message, from, to);
        if self.settings.delay_ms > 0 && method != Method::Cancel {
            let when = self.now + self.settings.delay_ms * MS;
            return self.at(when, Due::Handle(key));
        }
        self.handle(&key);
    }

    /// Answer a request, or send it on.
    fn handle(&mut self, key: &Key) {
        let Some(request) = self.incoming.get(key).map(|one| Arc::clone(&one.request)) else { return };
        let Some(method) = request.method().cloned() else { return };
        if !address::complete(&request) {
            return self.respond(key, 400, "Bad Request", Vec::new());
        }
        let rejects = self.settings.error_share > 0.0 && method != Method::Cancel;
        if rejects && self.chance.random_bool(self.settings.error_share) {
            self.counters.rejected_on_purpose += 1;
            return self.respond(key, self.settings.error_status, "Rejected on purpose", Vec::new());
        }
        match (method, self.settings.role) {
            (Method::Cancel, _) => self.cancel(key, &request),
            (Method::Register, _) => self.register(key, &request),
            (_, Role::Proxy) => self.proxy(key, &request),
            (_, Role::Redirect) => self.redirect(key, &request),
            (_, Role::Uas) => self.serve(key, &request),
        }
    }

    /// Whether an address of record is ours: of the domain, or at the address that we listen on.
    fn is_domain(&self, uri: &Uri) -> bool {
        uri.sip().is_some_and(|sip| self.has_domain(sip) || sip.user.is_some() && self.listens_on(sip))
    }

    /// Whether a URI stands for this server itself.
    fn is_ours(&self, uri: &Uri) -> bool {
        uri.sip().is_some_and(|sip| self.listens_on(sip) || sip.user.is_none() && self.has_domain(sip))
    }

    /// Whether the host is the domain. Where that is an address, another port there is somebody else's.
    fn has_domain(&self, uri: &SipUri) -> bool {
        let Settings { domain, .. } = &self.settings;
        let other = || uri.port.is_some() && is_address(domain) && !self.listens_on(uri);
        uri.host.eq_ignore_ascii_case(domain) && !other()
    }

    /// Whether a URI has an address and port that we listen on.
    fn listens_on(&self, uri: &SipUri) -> bool {
        address::socket(uri).is_some_and(|at| self.settings.addresses().any(|(_, local)| local == at))
    }

    /// Our own URI for messages over `transport`; `secure`: a sips URI, where the request has one (RFC 3261 section 12.1.1).
    fn own_uri(&self, transport: Transport, secure: bool) -> String {
        let local = self.settings.local(transport);
        match transport {
            Transport::Tls if secure => format!("sips:{local}"),
            _ => format!("sip:{local}{}", transport.parameter()),
        }
    }

    fn is_known(&self, user: &str) -> bool {
        let open = self.settings.users.is_empty() || self.settings.password.is_some();
        open || self.settings.users.iter().any(|one| one.name == user)
    }
}

fn is_address(host: &str) -> bool {
    host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok()
}

/// User part of a URI.
fn user(uri: &Uri) -> String {
    uri.sip().and_then(|sip| sip.user.clone()).unwrap_or_default()
}

/// A header field of a response.
type Field = (Name, String);
