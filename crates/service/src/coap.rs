//! CoAP server (RFC 7252): a body of the size that the path names, for any method; in blocks where it is large (RFC 7959),
//! and observable (RFC 7641).
//!
//! `/512` has 512 bytes; where the path ends in no number, the setting `size` says how many. Bodies of requests are read and
//! dropped. Without a delay a response is in the acknowledgement; with one it is a message of its own (section 5.2.2).

mod observers;
mod recent_requests;
mod reply;
mod request;
#[cfg(test)]
mod tests;
mod transmission;

use crate::share::Share;
use crate::{Counters, DatagramService, Datagrams, Settings};
use observers::Observers;
use protocol::coap::wire::{Block, Code, Header, MessageType, Writer};
use recent_requests::{Outcome, RecentRequests};
use reply::{Reply, Token};
use request::Request;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use transmission::{Due, Transmissions};

/// Bodies of requests that are on their way; more are refused.
const UPLOADS: usize = 1 << 16;
/// Responses that wait for their time; more are not sent.
const DELAYED: usize = 1 << 18;

const CONTENT: Code = Code::of(2, 5);
const CHANGED: Code = Code::of(2, 4);
const DELETED: Code = Code::of(2, 2);
const BAD_REQUEST: Code = Code::of(4, 0);
const BAD_OPTION: Code = Code::of(4, 2);
const NOT_ALLOWED: Code = Code::of(4, 5);
const INCOMPLETE: Code = Code::of(4, 8);
const UNAVAILABLE: Code = Code::of(5, 3);

/// A server.
#[derive(Debug)]
pub struct Coap {
    size: usize,
    delay: u64,
    errors: Share,
    drops: Share,
    recent: RecentRequests,
    /// Where the next block of a body begins, by who sends it and to which resource.
    uploads: HashMap<(SocketAddr, u64), u32>,
    /// In the order of their times, since the delay is the same for all.
    delayed: VecDeque<(u64, MessageType, Reply)>,
    transmissions: Transmissions,
    observers: Observers,
    last_id: u16,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    received: u64,
    malformed: u64,
    requests: u64,
    confirmable: u64,
    duplicates: u64,
    blocks_received: u64,
    body_bytes_received: u64,
    responses: u64,
    separate: u64,
    blocks_sent: u64,
    body_bytes: u64,
    refused: u64,
    dropped: u64,
    bad: u64,
    retransmissions: u64,
    unacknowledged: u64,
    observations: u64,
    notifications: u64,
    resets: u64,
    pings: u64,
}

impl Coap {
    /// A server with these settings.
    pub fn new(settings: &Settings) -> Self {
        Self {
            size: settings.size,
            delay: settings.delay_ns,
            errors: Share::new(settings.error_share, settings.seed),
            drops: Share::new(settings.drop_share, settings.seed.wrapping_add(1)),
            recent: RecentRequests::default(),
            uploads: HashMap::new(),
            delayed: VecDeque::new(),
            transmissions: Transmissions::new(settings.seed),
            observers: Observers::new(settings.notify_ns),
            last_id: settings.seed as u16,
            counts: Counts::default(),
        }
    }

    fn id(&mut self) -> u16 {
        self.last_id = self.last_id.wrapping_add(1);
        self.last_id
    }

    /// Take a request that did not come before: what is done with it, and the response unless none is sent.
    fn take(&mut self, from: SocketAddr, request: &Request<'_>, now: u64) -> Option<Code> {
        self.counts.body_bytes_received += request.payload.len() as u64;
        let is_whole = request.is_whole();
        if is_whole {
            self.counts.requests += 1;
            self.counts.confirmable += u64::from(request.header.kind == MessageType::Con);
            if self.drops.draw() {
                self.counts.dropped += 1;
                return None;
            }
        }
        if request.unrecognized {
            self.counts.bad += 1;
            return Some(BAD_OPTION);
        }
        if let Some(block) = request.block1 {
            self.counts.blocks_received += 1;
            if !self.upload(from, request, block) {
                self.counts.bad += 1;
                return Some(INCOMPLETE);
            }
            if block.more {
                return Some(Code::CONTINUE);
            }
        }
        if is_whole && self.errors.draw() {
            self.counts.refused += 1;
            return Some(UNAVAILABLE);
        }
        let code = match request.header.code.0 {
            // GET, FETCH (RFC 8132)
            1 | 5 => CONTENT,
            // POST, PUT, PATCH, iPATCH
            2 | 3 | 6 | 7 => CHANGED,
            4 => DELETED,
            _ => NOT_ALLOWED,
        };
        self.counts.bad += u64::from(code == NOT_ALLOWED);
        if code == CONTENT && request.header.code == Code::GET && is_whole {
            let (token, reply) = (Token::new(request.token), self.reply(from, request, code));
            match request.observe {
                Some(0) if self.observers.add(reply, request.header.kind, now) => {
                    self.counts.observations += 1;
                }
                Some(1) => self.observers.remove(from, token),
                _ => {}
            }
        }
        Some(code)
    }

    /// Take a block of a body; whether it is the one that was to come (RFC 7959 section 2.9.2).
    fn upload(&mut self, from: SocketAddr, request: &Request<'_>, block: Block) -> bool {
        let key = (from, request.resource);
        let expected = if block.number == 0 { Some(0) } else { self.uploads.remove(&key) };
        let fits = expected == Some(block.offset()) && (!block.more || request.payload.len() == block.size());
        if fits && block.more {
            if self.uploads.len() >= UPLOADS && !self.uploads.contains_key(&key) {
                return false;
            }
            self.uploads.insert(key, block.offset() + block.size() as u32);
        }
        fits
    }

    fn reply(&self, to: SocketAddr, request: &Request<'_>, code: Code) -> Reply {
        let token = Token::new(request.token);
        let mut reply = Reply {
            to,
            token,
            code,
            size: (code == CONTENT).then(|| request.size.unwrap_or(self.size)),
            discovers: request.discovers,
            block2: request.block2,
            block1: request.block1,
            observe: None,
        };
        if code == CONTENT {
            reply.observe =
                request.observe.filter(|what| *what == 0).and_then(|_| self.observers.number(to, token));
        }
        if reply.block().is_none() {
            (reply.code, reply.size, reply.observe) = (BAD_REQUEST, None, None);
        }
        reply
    }

    /// Send a response or notification; confirmable ones until they are acknowledged.
    fn send(&mut self, reply: &Reply, kind: MessageType, id: u16, notifies: bool, out: &mut Datagrams) {
        let (now, mut carried) = (out.now, 0);
        let mut confirmable = None;
        out.send(reply.to, |out| {
            let from = out.len();
            carried = reply.write(out, kind, id);
            confirmable = (kind == MessageType::Con).then(|| out[from..].to_vec());
        });
        self.counts.body_bytes += carried as u64;
        self.counts.blocks_sent += u64::from(reply.block().is_some_and(|(block, ..)| block.is_some()));
        if let Some(bytes) = confirmable {
            self.transmissions.sent((reply.to, id), &bytes, notifies.then_some(reply.token), now);
        }
    }

    fn answer(&mut self, from: SocketAddr, request: &Request<'_>, out: &mut Datagrams) {
        let Header { kind, id, .. } = request.header;
        let (token, is_confirmable) = (Token::new(request.token), kind == MessageType::Con);
        if let Some(outcome) = self.recent.find(from, id, token, out.now) {
            self.counts.duplicates += 1;
            match outcome {
                Outcome::Answered(code) if is_confirmable => {
                    let reply = self.reply(from, request, code);
                    out.send(from, |out| {
                        reply.write(out, MessageType::Ack, id);
                    });
                }
                Outcome::Separate if is_confirmable => acknowledge(from, id, out),
                _ => {}
            }
            return;
        }
        let Some(code) = self.take(from, request, out.now) else {
            return self.recent.add(from, id, token, Outcome::Dropped, out.now);
        };
        let reply = self.reply(from, request, code);
        self.counts.responses += u64::from(request.is_whole());
        let outcome =
            if self.delay == 0 && is_confirmable { Outcome::Answered(code) } else { Outcome::Separate };
        self.recent.add(from, id, token, outcome, out.now);
        match (is_confirmable, self.delay) {
            (true, 0) => self.send(&reply, MessageType::Ack, id, false, out),
            (false, 0) => {
                let id = self.id();
                self.send(&reply, MessageType::Non, id, false, out);
            }
            _ => {
                if is_confirmable {
                    acknowledge(from, id, out);
                }
                if self.delayed.len() < DELAYED {
                    self.counts.separate += u64::from(is_confirmable);
                    self.delayed.push_back((out.now + self.delay, kind, reply));
                }
            }
        }
    }

    fn empty(&mut self, from: SocketAddr, header: Header, out: &mut Datagrams) {
        match header.kind {
            // section 4.3: a ping
            MessageType::Con => {
                self.counts.pings += 1;
                reset(from, header.id, out);
            }
            MessageType::Ack => {
                let _not_waited_for = self.transmissions.take_answered((from, header.id));
            }
            MessageType::Rst => {
                self.counts.resets += 1;
                let _not_waited_for = self.transmissions.take_answered((from, header.id));
                // RFC 7641 section 3.6
                self.observers.reset(from, header.id);
            }
            MessageType::Non => self.counts.malformed += 1,
        }
    }
}

fn acknowledge(to: SocketAddr, id: u16, out: &mut Datagrams) {
    out.send(to, |out| {
        Writer::begin(out, MessageType::Ack, Code::EMPTY, id, &[]);
    });
}

fn reset(to: SocketAddr, id: u16, out: &mut Datagrams) {
    out.send(to, |out| {
        Writer::begin(out, MessageType::Rst, Code::EMPTY, id, &[]);
    });
}

impl DatagramService for Coap {
    fn received(&mut self, from: SocketAddr, bytes: &[u8], out: &mut Datagrams) {
        self.counts.received += 1;
        // of another version nothing is known (section 3)
        let Ok(header) = Header::parse(bytes) else {
            self.counts.malformed += 1;
            return;
        };
        let confirmable = header.kind == MessageType::Con;
        match Request::parse(header, bytes) {
            Ok(_) if header.code == Code::EMPTY => self.empty(from, header, out),
            Ok(request)
                if header.code.class() == 0 && matches!(header.kind, MessageType::Con | MessageType::Non) =>
            {
                self.answer(from, &request, out);
            }
            // section 4.2: what cannot be processed is rejected
            other => {
                self.counts.malformed += u64::from(other.is_err() || header.code.class() == 0);
                if confirmable {
                    reset(from, header.id, out);
                }
            }
        }
    }

    fn next_at(&self) -> Option<u64> {
        let delayed = self.delayed.front().map(|(at, ..)| *at);
        [delayed, self.transmissions.next_at(), self.observers.next_at()].into_iter().flatten().min()
    }

    fn advance(&mut self, out: &mut Datagrams) {
        while self.delayed.front().is_some_and(|(at, ..)| *at <= out.now) {
            let Some((_, kind, reply)) = self.delayed.pop_front() else { break };
            let id = self.id();
            self.send(&reply, kind, id, false, out);
        }
        while let Some(due) = self.transmissions.take_due(out.now) {
            match due {
                Due::Again(to, bytes) => {
                    self.counts.retransmissions += 1;
                    out.send(to, |out| out.extend_from_slice(&bytes));
                }
                Due::GivenUp(to, observation) => {
                    self.counts.unacknowledged += 1;
                    // RFC 7641 section 4.5: it is not interested any more
                    observation.into_iter().for_each(|token| self.observers.remove(to, token));
                }
            }
        }
        let (mut id, now) = (self.last_id, out.now);
        while let Some((kind, reply)) = self.observers.take_due(now, || {
            id = id.wrapping_add(1);
            id
        }) {
            self.last_id = id;
            self.counts.notifications += 1;
            self.send(&reply, kind, id, true, out);
        }
    }

    fn counters(&self) -> Counters {
        let counts = &self.counts;
        Counters::from([
            ("messages_received", counts.received),
            ("bad_messages", counts.malformed),
            ("requests", counts.requests),
            ("requests_confirmable", counts.confirmable),
            ("duplicates", counts.duplicates),
            ("blocks_received", counts.blocks_received),
            ("body_bytes_received", counts.body_bytes_received),
            ("responses", counts.responses),
            ("responses_separate", counts.separate),
            ("blocks_sent", counts.blocks_sent),
            ("body_bytes", counts.body_bytes),
            ("refused_requests", counts.refused),
            ("unanswered_requests", counts.dropped),
            ("bad_requests", counts.bad),
            ("retransmissions", counts.retransmissions),
            ("responses_unacknowledged", counts.unacknowledged),
            ("observations", counts.observations),
            ("open_observations", self.observers.len() as u64),
            ("notifications", counts.notifications),
            ("resets", counts.resets),
            ("pings", counts.pings),
        ])
    }
}
