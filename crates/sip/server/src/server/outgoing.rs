//! Client transactions: requests that were sent on, and the responses to them (RFC 3261 sections 16.7 to 16.9).

use super::{Due, Key, Peer, Server, address};
use sip_core::Method;
use sip_core::message::header::Via;
use sip_core::message::{Message, Name};
use sip_core::transaction::{Actions, Client, End, InviteClient, MS, State, Timers, Transmit};

/// Timer C: how long a call may ring without a word (section 16.6 step 11).
const TIMER_C: u64 = 180_000 * MS;

/// A request that was sent on.
#[derive(Debug)]
pub(super) struct Outgoing {
    request: Message,
    bytes: Vec<u8>,
    pub to: Peer,
    machine: Machine,
    /// Server transaction that it belongs to; none of a CANCEL.
    parent: Option<Key>,
    /// Its final response.
    answer: Option<Message>,
    provisional: bool,
    /// A CANCEL waits for a provisional response (section 9.1).
    cancelled: bool,
    timer_c: u64,
    scheduled: u64,
    gap: u64,
}

#[derive(Debug)]
enum Machine {
    Invite(InviteClient),
    Other(Client),
}

impl Machine {
    fn deadline(&self) -> Option<u64> {
        match self {
            Self::Invite(machine) => machine.deadline(),
            Self::Other(machine) => machine.deadline(),
        }
    }

    fn on_response(&mut self, timers: &Timers, code: u16, now: u64) -> Actions {
        match self {
            Self::Invite(machine) => machine.on_response(timers, code, now),
            Self::Other(machine) => machine.on_response(timers, code, now),
        }
    }

    fn on_timer(&mut self, timers: &Timers, now: u64) -> Actions {
        match self {
            Self::Invite(machine) => machine.on_timer(timers, now),
            Self::Other(machine) => machine.on_timer(timers, now),
        }
    }
}

impl Outgoing {
    fn is_invite(&self) -> bool {
        matches!(self.machine, Machine::Invite(_))
    }

    fn deadline(&self) -> Option<u64> {
        let machine = self.machine.deadline();
        let waits = self.is_invite() && self.provisional && self.answer.is_none();
        if waits { Some(machine.unwrap_or(u64::MAX).min(self.timer_c)) } else { machine }
    }
}

impl Server {
    /// Adds our Via: a new branch for each copy, the old one where that rule is broken.
    pub(super) fn add_via(&self, message: &mut Message, next: Peer, branch: &str) {
        let known = message.top_via().ok().and_then(|via| via.branch().map(str::to_owned));
        let branch = if branch.is_empty() { known.unwrap_or_default() } else { branch.to_owned() };
        let local = self.settings.local(next.transport);
        let host = match local.ip() {
            std::net::IpAddr::V4(ip) => ip.to_string(),
            std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let via = Via::new(next.transport.name(), &host, Some(local.port()), &branch);
        message.push_front(Name::Via, via);
    }

    pub(super) fn send_on(&mut self, key: &Key, mut message: Message, next: Peer) {
        let branch = if self.breaks("P03") {
            message.top_via().ok().and_then(|via| via.branch().map(str::to_owned)).unwrap_or_default()
        } else {
            address::branch()
        };
        self.add_via(&mut message, next, &branch);
        self.counters.forwarded(message.method().map_or("", Method::as_str));
        if let Some(one) = self.incoming.get_mut(key) {
            one.branches.push(branch.clone());
        }
        self.start(branch, message, next, Some(key.clone()));
    }

    /// A request of our own.
    pub(super) fn send_new(&mut self, mut request: Message, to: Peer) {
        let branch = address::branch();
        self.add_via(&mut request, to, &branch);
        self.start(branch, request, to, None);
    }

    fn start(&mut self, branch: String, request: Message, to: Peer, parent: Option<Key>) {
        let reliable = to.transport.reliable();
        let machine = if request.method() == Some(&Method::Invite) {
            Machine::Invite(InviteClient::new(&self.timers, reliable, self.now).0)
        } else {
            Machine::Other(Client::new(&self.timers, reliable, self.now).0)
        };
        let bytes = request.to_bytes();
        self.out.push((to, bytes.clone()));
        let one = Outgoing {
            request,
            bytes,
            to,
            machine,
            parent,
            answer: None,
            provisional: false,
            cancelled: false,
            timer_c: u64::MAX,
            scheduled: u64::MAX,
            gap: self.timers.t1,
        };
        self.outgoing.insert(branch.clone(), one);
        self.schedule_outgoing(&branch);
    }

    fn schedule_outgoing(&mut self, branch: &str) {
        let constant = self.breaks("P21");
        let doubling = self.breaks("P22");
        let (t1, now) = (self.timers.t1, self.now);
        let Some(one) = self.outgoing.get_mut(branch) else { return };
        let Some(mut when) = one.deadline() else { return };
        let unanswered = matches!(&one.machine, Machine::Invite(m) if m.state() == State::Calling)
            || matches!(&one.machine, Machine::Other(m) if m.state() == State::Trying);
        if constant && unanswered {
            when = when.min(now + t1);
        }
        if doubling && unanswered && !one.is_invite() {
            when = now + one.gap;
        }
        if when < one.scheduled || one.scheduled <= now {
            one.scheduled = when;
            self.at(when, Due::Outgoing(branch.to_owned()));
        }
    }

    pub(super) fn outgoing_due(&mut self, branch: &str) {
        let (timers, now) = (self.timers, self.now);
        let again = self.breaks("P21") || self.breaks("P22");
        let Some(one) = self.outgoing.get_mut(branch) else { return };
        one.scheduled = u64::MAX;
        if one.is_invite() && one.answer.is_none() && one.timer_c <= now {
            one.timer_c = u64::MAX;
            self.cancel_branch(branch);
            return self.schedule_outgoing(branch);
        }
        let due = one.machine.deadline().is_some_and(|when| when <= now);
        if !due && again {
            one.gap *= 2;
            let bytes = (one.to, one.bytes.clone());
            self.out.push(bytes);
        }
        if due {
            let actions = one.machine.on_timer(&timers, now);
            if actions.transmit == Some(Transmit::Request) {
                let waits = again && !one.is_invite();
                let bytes = (one.to, one.bytes.clone());
                if !waits {
                    self.counters.forwarded_repeated += 1;
                    self.out.push(bytes);
                }
            }
            if let Some(end) = actions.end {
                return self.transaction_ended(branch, end);
            }
        }
        self.schedule_outgoing(branch);
    }

    /// A client transaction is over.
    fn transaction_ended(&mut self, branch: &str, end: End) {
        if end == End::Normal {
            return self.remove_branch(branch);
        }
        self.counters.timeouts += 1;
        let Some(one) = self.outgoing.get_mut(branch) else { return };
        let parent = one.parent.clone();
        if one.is_invite() {
            // section 16.9: as if 408 had come
            let request =
                parent.as_ref().and_then(|key| self.incoming.get(key)).map(|one| one.request.clone());
            if let (Some(request), Some(one)) = (request, self.outgoing.get_mut(branch)) {
                let tag = address::random();
                one.answer = Some(Message::response(&request, 408, "Request Timeout", Some(&tag)));
            }
            if let Some(parent) = &parent {
                self.decide(parent);
            }
        }
        // RFC 4320 section 4.1: no 408 to requests other than INVITE
        self.remove_branch(branch);
    }

    /// Forget a client transaction, but its answer, which counts until the other branches have theirs.
    fn remove_branch(&mut self, branch: &str) {
        let Some(Outgoing { parent: Some(parent), answer: Some(answer), .. }) = self.outgoing.remove(branch)
        else {
            return;
        };
        if let Some(parent) = self.incoming.get_mut(&parent).filter(|one| one.status == 0) {
            parent.answers.insert(branch.to_owned(), answer);
        }
    }

    /// Answer a request that could be sent on to nobody.
    pub(super) fn unreachable(&mut self, key: &Key) {
        let Some(one) = self.incoming.get(key) else { return };
        if one.branches.is_empty() {
            self.respond(key, 480, "Temporarily Unavailable", Vec::new());
        }
    }

    /// A response came.
    pub(super) fn response(&mut self, message: Message, code: u16) {
        *self.counters.answers.entry(code).or_default() += 1;
        let via = message.top_via().ok();
        let method = message.cseq().map(|cseq| cseq.method);
        let (Some(mut branch), Ok(method)) = (via.and_then(|via| via.branch().map(str::to_owned)), method)
        else {
            self.counters.unrelated += 1;
            return;
        };
        if method == Method::Cancel {
            branch.push('C');
        }
        let (timers, now) = (self.timers, self.now);
        let Some(one) = self.outgoing.get_mut(&branch) else {
            self.counters.unrelated += 1;
            return;
        };
        let actions = one.machine.on_response(&timers, code, now);
        let invite = one.is_invite();
        if invite && code < 200 {
            one.timer_c = now + TIMER_C;
        }
        if code < 200 {
            one.provisional = true;
        }
        let cancel = code < 200 && std::mem::take(&mut one.cancelled);
        if actions.transmit == Some(Transmit::Ack) && !self.breaks("P16") {
            self.acknowledge_failure(&branch, &message);
        }
        if cancel {
            self.cancel_branch(&branch);
        }
        if actions.deliver {
            self.deliver(&branch, message, code, invite);
        }
        if let Some(end) = actions.end {
            return self.transaction_ended(&branch, end);
        }
        self.schedule_outgoing(&branch);
    }

    fn acknowledge_failure(&mut self, branch: &str, response: &Message) {
        let Some(one) = self.outgoing.get(branch) else { return };
        let to = response.values(Name::To).next().map(str::to_owned);
        if let Some(ack) = address::derived(&one.request, Method::Ack, to.as_deref()) {
            self.out.push((one.to, ack.to_bytes()));
        }
    }

    /// Section 16.7: a response goes on to where the request came from.
    fn deliver(&mut self, branch: &str, mut message: Message, code: u16, invite: bool) {
        let Some(parent) = self.outgoing.get(branch).and_then(|one| one.parent.clone()) else { return };
        if !(self.breaks("P14") && code == 180) {
            remove_top_via(&mut message);
        }
        match code {
            // section 16.7 step 5: 100 is for one hop
            100 => {}
            101..200 => self.finish(&parent, &message),
            200..300 if invite => {
                let known = self.outgoing.get(branch).is_some_and(|one| one.answer.is_some());
                if known && self.breaks("P15") {
                    return;
                }
                self.settle(branch, message.clone());
                if !known {
                    self.counters.calls_answered += 1;
                }
                self.finish(&parent, &message);
                if !self.breaks("P18") {
                    self.cancel_others(&parent, branch);
                }
            }
            _ => {
                if self.outgoing.get(branch).is_none_or(|one| one.answer.is_some()) {
                    return;
                }
                if self.breaks("P24") && code == 481 {
                    message.start =
                        sip_core::message::StartLine::Response { code: 500, reason: "Server Error".into() };
                }
                self.settle(branch, message.clone());
                if code >= 600 {
                    self.cancel_others(&parent, branch);
                }
                if invite {
                    self.decide(&parent);
                } else {
                    if self.outgoing.get(branch).is_some_and(|one| one.request.method() == Some(&Method::Bye))
                    {
                        self.counters.calls_ended += 1;
                    }
                    self.finish(&parent, &message);
                }
            }
        }
    }

    fn settle(&mut self, branch: &str, answer: Message) {
        if let Some(one) = self.outgoing.get_mut(branch) {
            one.answer = Some(answer);
        }
    }

    fn cancel_others(&mut self, parent: &Key, but: &str) {
        let branches = self.incoming.get(parent).map(|one| one.branches.clone()).unwrap_or_default();
        branches.iter().filter(|branch| *branch != but).for_each(|branch| self.cancel_branch(branch));
    }

    /// CANCEL a branch that has no final response (sections 9.1, 16.10).
    pub(super) fn cancel_branch(&mut self, branch: &str) {
        let Some(one) = self.outgoing.get_mut(branch).filter(|one| one.answer.is_none()) else { return };
        if !one.provisional {
            one.cancelled = true;
            return;
        }
        let to = one.to;
        let Some(cancel) = address::derived(&one.request, Method::Cancel, None) else { return };
        let mut name = branch.to_owned();
        name.push('C');
        if !self.outgoing.contains_key(&name) {
            self.counters.forwarded("CANCEL");
            self.start(name, cancel, to, None);
        }
    }

    /// The best response, once all branches have one (section 16.7 step 6).
    fn decide(&mut self, parent: &Key) {
        let Some(one) = self.incoming.get(parent).filter(|one| one.status == 0) else { return };
        let mut best: Option<(u16, Message)> = None;
        for branch in &one.branches {
            // a transaction over a stream has ended with its answer (Timer D)
            let answer = match self.outgoing.get(branch) {
                Some(outgoing) => outgoing.answer.as_ref(),
                None => one.answers.get(branch),
            };
            let Some(answer) = answer else { return };
            let code = answer.code().unwrap_or(500);
            // 6xx first, then the lowest; who answered says more than who was silent
            let rank = match code {
                600.. => code - 600,
                408 => 499,
                _ => code,
            };
            if best.as_ref().is_none_or(|(known, _)| rank < *known) {
                best = Some((rank, answer.clone()));
            }
        }
        if let Some((_, answer)) = best {
            self.finish(parent, &answer);
        }
    }
}

/// Our own Via comes off, whether it has a header field of its own or shares one.
fn remove_top_via(message: &mut Message) {
    let Some(place) = message.headers.iter().position(|header| header.name == Name::Via) else { return };
    let value = message.headers[place].value.clone();
    let rest = {
        use sip_core::message::header::Value;
        Via::read(&value).map(|(_, rest)| rest.trim_ascii().trim_start_matches(',').trim_ascii().to_owned())
    };
    match rest.filter(|rest| !rest.is_empty()) {
        Some(rest) => message.headers[place].value = rest,
        None => drop(message.headers.remove(place)),
    }
}
