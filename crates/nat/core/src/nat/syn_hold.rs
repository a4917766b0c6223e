//! SYNs from the outside that nobody asked for (RFC 5382 REQ-4): answered after 6 s, unless the inside opens the same connection by then.
//! They are never forwarded, so each is dropped, and counted, when it comes; what is kept is what its answer quotes.

use super::Nat;
use super::icmp_reply::Error;
use super::slow_path_packet::SlowPathPacket;
use crate::config::Config;
use crate::key::Endpoint;
use crate::reason::Reason;
use crate::verdict::{Forward, Side};
use packet::layers::protocol;
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// Bytes of a SYN that are kept to be quoted: an IP header without options, and TCP's.
const QUOTE: usize = 40;

#[derive(Debug)]
struct HeldSyn {
    until: u64,
    source: Endpoint,
    destination: Endpoint,
    packet: [u8; QUOTE],
}

/// Those that are held, in the order of their times.
#[derive(Debug)]
pub struct SynHold {
    queue: VecDeque<HeldSyn>,
    capacity: usize,
    wait: u64,
}

impl SynHold {
    /// As many, and for as long, as the configuration says.
    pub fn new(config: &Config) -> Self {
        let (capacity, wait) = (config.held_syns, config.timeouts.unsolicited_syn);
        Self { queue: VecDeque::with_capacity(capacity), capacity, wait }
    }
}

impl Nat {
    /// Answer a SYN that is dropped for `reason`, later; one that finds no room gets no answer. Why it is dropped.
    pub(crate) fn hold_syn(&mut self, frame: &[u8], way: &SlowPathPacket, reason: Reason) -> Reason {
        let Some(packet) = frame.get(way.headers.l3.into()..).and_then(|packet| packet.first_chunk()) else {
            return Reason::Truncated;
        };
        // One that goes back in has no sender outside to answer to.
        if !way.hop || self.syns.queue.len() >= self.syns.capacity {
            return reason;
        }
        let (source, destination) = (way.headers.source(), way.headers.destination());
        let until = way.now.saturating_add(self.syns.wait);
        self.syns.queue.push_back(HeldSyn { until, source, destination, packet: *packet });
        reason
    }

    /// Answer those whose time has come.
    pub(crate) fn answer_syns(&mut self, now: u64) {
        while self.syns.queue.front().is_some_and(|held| held.until <= now) {
            let Some(held) = self.syns.queue.pop_front() else { return };
            let (from, to) = (held.destination.address, held.source.address);
            // Both sides opened it: the outside will send its SYN again.
            let opened = self.find_down(held.source, held.destination, protocol::TCP).is_some();
            // REQ-4 a: without an address of its own outside the NAT keeps silent there.
            if !opened && self.config.addresses.outside.is_some() {
                let forward = Forward { to: Side::Outside, hop: 0, realm: 0 };
                let (from, to) = (Ipv4Addr::from_bits(from), Ipv4Addr::from_bits(to));
                self.send_error(from, to, &held.packet, Error::PortUnreachable, forward, now);
            }
        }
    }
}
