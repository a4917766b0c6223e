//! ICMP errors of ours: a datagram came to a port that nobody listens at (RFC 1122 section 4.1.3.1, RFC 4443 section 3.1).

use super::Stack;
use super::frames::Replies;
use crate::config::SECOND;
use crate::connection::Tuple;
use crate::wire::{Link, send_error};
use packet::{Layers, Mac, ipv4, ipv6};
use std::net::IpAddr;

/// Errors a second, and how many of them at once (RFC 4443 section 2.4 (f)), as Linux has them.
const RATE: u64 = 1000;
const BURST: u64 = 50;
/// Type and code of port unreachable.
const PORT_V4: (u8, u8) = (3, 3);
const PORT_V6: (u8, u8) = (1, 4);
/// Bytes of the header of an ICMP error.
const ICMP: usize = 8;
/// The longest error (RFC 1812 section 4.3.2.3, RFC 4443 section 2.4 (c)).
const LONGEST_V4: usize = 576;
const LONGEST_V6: usize = 1280;

/// A token bucket, by the time at which the next token is there.
#[derive(Debug, Default)]
pub(super) struct Limit {
    next: u64,
}

impl Limit {
    fn take(&mut self, now: u64) -> bool {
        let step = SECOND / RATE;
        let next = self.next.max(now);
        if next > now + (BURST - 1) * step {
            return false;
        }
        self.next = next + step;
        true
    }
}

impl Stack {
    /// Whether `ip` is of one host: nobody is told of an error who stands for several (RFC 1122 section 3.2.2).
    fn is_one_host(&self, ip: IpAddr) -> bool {
        let IpAddr::V4(v4) = ip else { return true };
        !self.config.networks.iter().any(|network| {
            let host_bits = u32::MAX.checked_shr(network.prefix.into()).unwrap_or(0);
            // networks of two hosts have no broadcast (RFC 3021)
            network.contains(ip) && host_bits > 1 && v4.to_bits() & host_bits == host_bits
        })
    }

    /// Nobody listens where a datagram came to, from Ethernet address `to`.
    pub(super) fn reply_port_unreachable(
        &mut self,
        frame: &[u8],
        layers: &Layers,
        tuple: &Tuple,
        to: Mac,
        now: u64,
    ) {
        if !self.is_one_host(tuple.remote) {
            return;
        }
        if !self.errors.take(now) {
            self.counters.icmp_errors_limited += 1;
            return;
        }
        let (what, most) = match layers.is_v6() {
            false => (PORT_V4, LONGEST_V4 - ipv4::LEN - ICMP),
            true => (PORT_V6, LONGEST_V6 - ipv6::LEN - ICMP),
        };
        let quoted = frame.get(layers.ip..layers.end.min(layers.ip + most)).unwrap_or_default();
        let link = Link { source: self.config.mac, destination: to, tags: self.config.tags };
        let Self { replies, spare, .. } = self;
        if send_error(&mut Replies { replies, spare }, &link, tuple, what, quoted) {
            self.counters.icmp_errors_sent += 1;
        } else {
            self.counters.drop(crate::DropReason::ReplyQueueFull);
        }
    }
}
