//! Counters of the server: what it received, sent, accepted and rejected.

use crate::echo::EchoCalls;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the start. Retransmissions are not among `requests` and `responses`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Counters {
    /// Requests received, by method.
    pub requests: BTreeMap<String, u64>,
    /// Requests received again.
    pub requests_repeated: u64,
    /// Responses sent, by status.
    pub responses: BTreeMap<u16, u64>,
    /// Responses sent again.
    pub responses_repeated: u64,
    /// Requests sent on, by method.
    pub forwarded: BTreeMap<String, u64>,
    /// Requests sent on again.
    pub forwarded_repeated: u64,
    /// Responses received to requests sent on, by status.
    pub answers: BTreeMap<u16, u64>,
    /// Requests sent on that no final response came to.
    pub timeouts: u64,
    /// Challenges sent.
    pub challenges: u64,
    /// REGISTER requests accepted.
    pub registrations: u64,
    /// Of these, requests that only removed bindings.
    pub removals: u64,
    /// Bindings now.
    pub bindings: u64,
    /// Calls answered with 200.
    pub calls_answered: u64,
    /// ACKs to 200.
    pub calls_acknowledged: u64,
    /// 200 to INVITE without ACK in 64 T1.
    pub calls_unacknowledged: u64,
    /// Of these, calls that were ended by a BYE of ours.
    pub calls_hung_up: u64,
    /// Calls ended by BYE.
    pub calls_ended: u64,
    /// Calls answered with audio, which goes back.
    pub audio_calls: u64,
    /// Calls whose offer of audio could not be taken.
    pub audio_refused: u64,
    /// RTP packets of calls.
    pub rtp_received: u64,
    /// RTP packets sent back.
    pub rtp_returned: u64,
    /// RTP packets of calls that did not go back, as a call has no so many in a second.
    pub rtp_limited: u64,
    /// Packets at the port of RTP that our own receive queue had no room for: no loss of the path.
    pub rtp_dropped_here: u64,
    /// Datagrams at the port of RTP that are no RTP, or of nobody in a call.
    pub rtp_unrelated: u64,
    /// RTCP packets received.
    pub rtcp_received: u64,
    /// Requests rejected on purpose.
    pub rejected_on_purpose: u64,
    /// Messages dropped on purpose.
    pub dropped_on_purpose: u64,
    /// Messages that could not be read.
    pub malformed: u64,
    /// Responses to nothing that was sent, ACKs to nothing, and messages that go nowhere.
    pub unrelated: u64,
    /// Messages that could not be sent.
    pub send_errors: u64,
    /// Connections that clients opened, by transport.
    pub connections: BTreeMap<String, u64>,
    /// Connections that the server refused or closed, by cause.
    pub connections_given_up: BTreeMap<String, u64>,
    /// Datagrams that our own receive queue had no room for: requests among them were not seen, and are no loss of the path.
    pub datagrams_dropped_here: u64,
    /// Connections whose TLS failed, by cause.
    pub tls_failures: BTreeMap<String, u64>,
    /// Connections whose WebSocket handshake or frames failed, by cause.
    pub websocket_failures: BTreeMap<String, u64>,
}

impl Counters {
    pub(crate) fn media(&mut self, echo: &EchoCalls) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.rtp_received = read(&echo.received);
        self.rtp_returned = read(&echo.returned);
        self.rtp_limited = read(&echo.limited);
        self.rtp_dropped_here = read(&echo.dropped_here);
        self.rtp_unrelated = read(&echo.unrelated);
        self.rtcp_received = read(&echo.rtcp);
    }

    pub(crate) fn request(&mut self, method: &str) {
        count(&mut self.requests, method);
    }

    pub(crate) fn connected(&mut self, transport: &str) {
        count(&mut self.connections, transport);
    }

    pub(crate) fn given_up(&mut self, why: &str) {
        count(&mut self.connections_given_up, why);
    }

    pub(crate) fn tls_failed(&mut self, why: &str) {
        count(&mut self.tls_failures, why);
    }

    pub(crate) fn websocket_failed(&mut self, why: &str) {
        count(&mut self.websocket_failures, why);
    }

    pub(crate) fn forwarded(&mut self, method: &str) {
        count(&mut self.forwarded, method);
    }
}

/// Methods and causes that are counted by their name; beyond, all are `other`: names are the sender's.
const MOST_METHODS: usize = 32;

fn count(counts: &mut BTreeMap<String, u64>, method: &str) {
    if let Some(count) = counts.get_mut(method) {
        *count += 1;
        return;
    }
    let name = if counts.len() < MOST_METHODS { method } else { "other" };
    *counts.entry(name.to_owned()).or_default() += 1;
}
