//! Transactions of a user agent, as far as a load needs them (RFC 3261 section 17).
//!
//! A user agent has at most one INVITE and one other transaction under way on each side. What was sent is kept until the
//! transaction is over, and sent again as it was.

use crate::message::fingerprint;
use crate::method::Method;
use protocol::time::Time;
use sip_core::message::{Scanned, scan};
use std::net::SocketAddr;
use std::time::Duration;

/// Challenges that one request answers, at most.
const CHALLENGES_MAX: usize = 8;

/// A request that was sent and waits for its final response.
#[derive(Debug)]
pub(crate) struct Client {
    pub method: Method,
    /// Number in its branch.
    pub branch: u32,
    pub cseq: u32,
    /// Of its Call-ID and the tag of its From, which its responses repeat; none: it has none that can be read.
    pub origin: Option<u64>,
    /// As it was sent.
    pub bytes: Vec<u8>,
    pub length: usize,
    /// When it was due the first time; neither a retransmission nor a challenge changes it.
    pub first: Time,
    /// When it is sent again; never over a reliable transport.
    pub resend: Time,
    /// Time from one transmission to the next.
    pub wait: Duration,
    /// Timer B or F.
    pub expires: Time,
    /// A provisional response has come; one above 100.
    pub provisional: bool,
    pub ringing: bool,
    /// Who challenged it and was answered.
    pub answered: Vec<u64>,
    /// Whether it asks for the longer lifetime that the server wanted.
    pub longer: bool,
    /// Whether it went on to another server than the first.
    pub moved: bool,
    /// Where it went, if not to the server.
    pub to: Option<SocketAddr>,
    /// The step that it was made by.
    pub step: u16,
}

impl Client {
    /// Timers A and E: it is due again at `now`. Timer A doubles without limit, Timer E up to T2.
    pub fn sent_again(&mut self, now: Time, t2: Duration) {
        let doubled = self.wait * 2;
        self.wait = match (self.method, self.provisional) {
            (Method::Invite, _) => doubled,
            // section 17.1.2.2: in the state Proceeding it is T2
            (_, true) => t2,
            (_, false) => doubled.min(t2),
        };
        self.resend = now + self.wait;
    }

    /// A provisional response came: an INVITE is not sent again (section 17.1.1.2).
    pub fn proceed(&mut self) {
        self.provisional = true;
        if self.method == Method::Invite {
            self.resend = Time::NEVER;
            // Timer B guards the wait for the first response alone; how long it may ring is the scenario's
            self.expires = Time::NEVER;
        }
    }

    /// Whether a response with its branch has its Call-ID, From tag and CSeq, too (RFC 3261 section 8.2.6.2).
    pub fn is_answered_by(&self, response: &Scanned<'_>) -> bool {
        self.cseq == response.cseq.number && self.origin.is_none_or(|origin| origin == origin_of(response))
    }

    /// Whether it may be made again with an answer to a challenge of `asker`: once, and again where the nonce was stale.
    pub fn may_answer(&self, asker: u64, stale: bool) -> bool {
        let before = self.answered.iter().filter(|one| **one == asker).count();
        self.answered.len() < CHALLENGES_MAX && (before == 0 || stale && before < 3)
    }
}

/// What a request has in common with its responses, besides branch and CSeq; none: it is one that cannot be read.
pub(crate) fn origin(request: &[u8]) -> Option<u64> {
    scan(request).ok().map(|message| origin_of(&message))
}

fn origin_of(message: &Scanned<'_>) -> u64 {
    let tag = fingerprint(message.from_tag.unwrap_or_default());
    fingerprint(message.call_id) ^ tag.rotate_left(32)
}

/// A request that was received, and what answered it.
#[derive(Debug)]
pub(crate) struct Server {
    pub method: Method,
    pub cseq: u32,
    /// Of Call-ID and branch.
    pub call: u64,
    pub branch: u64,
    /// Header fields that each response repeats: Via, Record-Route, From, Call-ID, CSeq, To without our tag.
    pub head: Box<[u8]>,
    /// Who sent it, if not the server.
    pub to: Option<SocketAddr>,
    /// Whether To has a tag already.
    pub tagged: bool,
    /// Contact and Expires of a REGISTER, which its 200 repeats.
    pub bindings: Box<[u8]>,
    /// Whether the caller supports reliable provisional responses; sequence number of the last one, 0: none was sent; whether
    /// one with a session description was acknowledged.
    pub reliable_asked: bool,
    pub rseq: u32,
    pub described: bool,
    /// The last response; empty until there is one.
    pub response: Box<[u8]>,
    pub status: u16,
    /// When a final response to INVITE, or a reliable provisional one, is sent again, and given up.
    pub resend: Time,
    pub wait: Duration,
    pub expires: Time,
    /// When the final response was sent the first time.
    pub answered: Time,
}

impl Server {
    /// Whether a request of these is the same one again.
    pub fn is(&self, method: Method, cseq: u32, call: u64, branch: u64) -> bool {
        (self.method, self.cseq, self.call, self.branch) == (method, cseq, call, branch)
    }

    /// Whether it is an INVITE that was answered with 2xx and whose ACK has yet to come.
    pub fn needs_ack(&self) -> bool {
        self.method == Method::Invite && (200..300).contains(&self.status) && self.due() != Time::NEVER
    }

    /// Its final response needs no more attention.
    pub fn settle(&mut self) {
        self.resend = Time::NEVER;
        self.expires = Time::NEVER;
    }

    pub fn due(&self) -> Time {
        self.resend.min(self.expires)
    }
}
