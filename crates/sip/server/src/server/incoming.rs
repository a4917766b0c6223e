//! Server transactions: requests that came, what answered them, and their branches.

use super::{Due, Field, Key, Peer, Server, address};
use crate::settings::Role;
use sip_core::Method;
use sip_core::message::{Message, Name};
use sip_core::transaction::{Actions, InviteServer, Server as OtherServer, Timers, Transmit};
use std::collections::HashMap;
use std::sync::Arc;

/// A request that came.
#[derive(Debug)]
pub(super) struct Incoming {
    pub request: Arc<Message>,
    pub to: Peer,
    /// The tag of our own responses.
    pub tag: String,
    machine: Machine,
    last: Vec<u8>,
    /// Status of the final response; 0: none yet.
    pub status: u16,
    /// Branches of requests that were sent on.
    pub branches: Vec<String>,
    /// Final responses of branches that are over, until it has one itself.
    pub answers: HashMap<String, Message>,
    scheduled: u64,
}

impl Incoming {
    /// Whether it is an INVITE that was answered with 2xx.
    fn accepted(&self) -> bool {
        matches!(self.machine, Machine::Invite(_)) && (200..300).contains(&self.status)
    }
}

#[derive(Debug)]
enum Machine {
    Invite(InviteServer),
    Other(OtherServer),
}

impl Machine {
    fn deadline(&self) -> Option<u64> {
        match self {
            Self::Invite(machine) => machine.deadline(),
            Self::Other(machine) => machine.deadline(),
        }
    }

    fn respond(&mut self, timers: &Timers, code: u16, now: u64) -> Actions {
        match self {
            Self::Invite(machine) => machine.respond(timers, code, now),
            Self::Other(machine) => machine.respond(timers, code, now),
        }
    }

    fn on_request(&mut self) -> Actions {
        match self {
            Self::Invite(machine) => machine.on_request(),
            Self::Other(machine) => machine.on_request(),
        }
    }

    fn on_timer(&mut self, timers: &Timers, now: u64) -> Actions {
        match self {
            Self::Invite(machine) => machine.on_timer(timers, now),
            Self::Other(machine) => machine.on_timer(timers, now),
        }
    }
}

impl Server {
    pub(super) fn begin(&mut self, key: Key, request: Message, from: Peer, to: Peer) {
        let reliable = from.transport.reliable();
        let machine = if request.method() == Some(&Method::Invite) {
            let mut timers = self.timers;
            if self.breaks("P02") {
                timers.trying = u64::MAX / 2;
            }
            Machine::Invite(InviteServer::new(&timers, reliable, self.now).0)
        } else {
            Machine::Other(OtherServer::new(reliable).0)
        };
        let tag = address::random();
        let one = Incoming {
            request: Arc::new(request),
            to,
            tag,
            machine,
            last: Vec::new(),
            status: 0,
            branches: Vec::new(),
            answers: HashMap::new(),
            scheduled: u64::MAX,
        };
        self.incoming.insert(key.clone(), one);
        self.schedule(&key);
    }

    fn schedule(&mut self, key: &Key) {
        let Some(one) = self.incoming.get_mut(key) else { return };
        let Some(when) = one.machine.deadline() else { return };
        if when < one.scheduled || one.scheduled <= self.now {
            one.scheduled = when;
            self.at(when, Due::Incoming(key.clone()));
        }
    }

    pub(super) fn incoming_due(&mut self, key: &Key) {
        let Some(one) = self.incoming.get_mut(key) else { return };
        one.scheduled = u64::MAX;
        if one.machine.deadline().is_some_and(|when| when <= self.now) {
            let actions = one.machine.on_timer(&self.timers, self.now);
            self.act(key, actions, true);
        }
        self.schedule(key);
    }

    /// The same request came again.
    pub(super) fn request_repeated(&mut self, key: &Key) {
        let Some(one) = self.incoming.get_mut(key) else { return };
        let actions = one.machine.on_request();
        self.act(key, actions, true);
    }

    fn act(&mut self, key: &Key, actions: Actions, repeated: bool) {
        let breaks = self.breaks("D06");
        let Some(one) = self.incoming.get_mut(key) else { return };
        match actions.transmit {
            Some(Transmit::Trying) => {
                let trying = Message::response(&one.request, 100, "Trying", None);
                one.last = trying.to_bytes();
                *self.counters.responses.entry(100).or_default() += 1;
                self.out.push((one.to, one.last.clone()));
            }
            Some(_) if !(one.last.is_empty() || repeated && breaks) => {
                if repeated {
                    self.counters.responses_repeated += 1;
                }
                // the user repeats a 2xx to INVITE (RFC 6026 section 7.1), and a transaction that is over repeats nothing
                let kept = actions.end.is_none() && !one.accepted();
                let last = if kept { one.last.clone() } else { std::mem::take(&mut one.last) };
                self.out.push((one.to, last));
            }
            _ => {}
        }
        if actions.end.is_some() {
            self.incoming.remove(key);
        }
    }

    /// Answer a request ourselves.
    pub(super) fn respond(&mut self, key: &Key, code: u16, reason: &str, fields: Vec<Field>) {
        let untagged = self.breaks("D02") && (300..400).contains(&code);
        let Some(one) = self.incoming.get(key) else { return };
        let tag = (code > 100 && !untagged).then_some(one.tag.as_str());
        let mut response = Message::response(&one.request, code, reason, tag);
        response.remove(Name::ContentLength);
        for (name, value) in fields {
            response.push(name, value);
        }
        response.push(Name::ContentLength, 0);
        self.finish(key, &response);
    }

    /// Send a response.
    pub(super) fn finish(&mut self, key: &Key, response: &Message) {
        let Some(code) = response.code() else { return };
        let (timers, now) = (self.timers, self.now);
        let Some(one) = self.incoming.get_mut(key) else { return };
        let actions = one.machine.respond(&timers, code, now);
        if actions.transmit.is_some() {
            one.last = response.to_bytes();
            one.status = if code >= 200 { code } else { 0 };
            if code >= 200 {
                one.answers = HashMap::new();
            }
            *self.counters.responses.entry(code).or_default() += 1;
        }
        self.act(key, actions, false);
        self.schedule(key);
    }

    /// An ACK came: to a failure of ours, to a 200 of ours, or to somebody behind us.
    pub(super) fn acknowledge(&mut self, message: Message, key: &Key) {
        if let Some(one) = self.incoming.get_mut(key)
            && one.status >= 300
        {
            let branch = one.branches.first().cloned();
            if let Machine::Invite(machine) = &mut one.machine {
                let actions = machine.on_ack(&self.timers, self.now);
                self.act(key, actions, false);
                self.schedule(key);
            }
            if self.breaks("P17")
                && let Some(target) = branch.and_then(|branch| Some(self.outgoing.get(&branch)?.to))
            {
                self.out.push((target, message.to_bytes()));
            }
            return;
        }
        if self.settings.role == Role::Uas {
            return self.call_acknowledged(&message);
        }
        self.pass_on(message);
    }

    /// The INVITE that a CANCEL is about: it has the same branch (section 9.2).
    fn cancelled(request: &Message) -> Option<Key> {
        address::key(request, &request.top_via().ok()?, "INVITE")
    }

    pub(super) fn cancel(&mut self, key: &Key, request: &Message) {
        if self.breaks("D05") {
            return self.respond(key, 405, "Method Not Allowed", Vec::new());
        }
        let invite = Self::cancelled(request).filter(|invite| self.incoming.contains_key(invite));
        let Some(invite) = invite else {
            return self.respond(key, 481, "Call/Transaction Does Not Exist", Vec::new());
        };
        self.respond(key, 200, "OK", Vec::new());
        let Some(one) = self.incoming.get(&invite) else { return };
        let (branches, pending) = (one.branches.clone(), one.status == 0);
        if self.settings.role == Role::Proxy {
            if !self.breaks("P19") {
                branches.iter().for_each(|branch| self.cancel_branch(branch));
            }
        } else if pending {
            self.drop_call(&invite);
            self.respond(&invite, 487, "Request Terminated", Vec::new());
        }
    }
}
