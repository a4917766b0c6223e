//! ICMP errors of the NAT's own (RFC 5508 REQ-8 and REQ-10, RFC 1812 section 4.3), so many a second at most.

use super::Nat;
use super::icmp::Kind;
use crate::config::{Config, SECOND};
use crate::headers::Headers;
use crate::verdict::{Forward, Side};
use packet::checksum::Sum;
use packet::ipv4::{self, Ipv4};
use packet::layers::protocol;
use std::net::Ipv4Addr;

/// Bytes of a packet that are quoted: with the headers before it 576 (RFC 1812 section 4.3.2.3).
const QUOTE: usize = 576 - ipv4::LEN - 8;

/// What is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Error {
    /// The hops are used up.
    TimeExceeded,
    /// The next link takes packets of so many bytes only.
    TooBig(u16),
    /// Limits or resources forbid it (RFC 5508 REQ-8).
    Prohibited,
    /// There is no way for it now, but may be soon: hosts try again (RFC 1122 section 4.2.3.9).
    Unreachable,
    /// Nobody there takes it.
    PortUnreachable,
}

impl Error {
    /// Type, code and the last two bytes of the header.
    fn header(self) -> (u8, u8, u16) {
        match self {
            Self::TimeExceeded => (11, 0, 0),
            Self::TooBig(mtu) => (3, 4, mtu),
            Self::Prohibited => (3, 13, 0),
            Self::Unreachable => (3, 1, 0),
            Self::PortUnreachable => (3, 3, 0),
        }
    }
}

/// How many errors may be sent still.
#[derive(Debug)]
pub struct Replies {
    per_second: u32,
    second: u64,
    left: u32,
}

impl Replies {
    /// As many as the configuration says.
    pub fn new(config: &Config) -> Self {
        Self { per_second: config.icmp_errors_per_second, second: 0, left: config.icmp_errors_per_second }
    }

    fn take(&mut self, now: u64) -> bool {
        if now / SECOND != self.second {
            (self.second, self.left) = (now / SECOND, self.per_second);
        }
        let some = self.left > 0;
        self.left = self.left.saturating_sub(1);
        some
    }
}

impl Nat {
    /// Report a packet, which is not translated yet, to its sender.
    pub(crate) fn report(&mut self, side: Side, frame: &[u8], headers: &Headers, error: Error, now: u64) {
        let own = match side {
            Side::Inside => self.config.addresses.inside,
            Side::Outside => self.config.addresses.outside,
        };
        let packet = frame.get(headers.l3.into()..headers.end.into()).unwrap_or(&[]);
        // Never about an error, nor about a piece that is not the first (RFC 1122 section 3.2.2).
        let message = frame.get(usize::from(headers.l4)).copied();
        let query = matches!(message.map(Kind::of), Some(Kind::Request | Kind::Reply));
        if headers.is(Headers::LATER) || (headers.protocol == protocol::ICMP && !query) {
            return;
        }
        if let Some(own) = own {
            let to = Ipv4Addr::from_bits(headers.source().address);
            let hop = match side {
                Side::Inside => self.subscribers.find(&self.hasher, to.to_bits(), headers.realm),
                Side::Outside => None,
            };
            let hop = hop.and_then(|number| self.subscribers.at(number)).map_or(0, |line| line.down_hop);
            let realm = if side == Side::Inside { headers.realm } else { 0 };
            self.send_error(own, to, packet, error, Forward { to: side, hop, realm }, now);
        }
    }

    /// Send an error that quotes `packet`.
    pub(crate) fn send_error(
        &mut self,
        from: Ipv4Addr,
        to: Ipv4Addr,
        packet: &[u8],
        error: Error,
        forward: Forward,
        now: u64,
    ) {
        // Nor to what is no single host (RFC 1122 section 3.2.2).
        if to.is_unspecified()
            || to.is_multicast()
            || to.is_broadcast()
            || to.is_loopback()
            || !self.replies.take(now)
        {
            return;
        }
        let quote = packet.get(..packet.len().min(QUOTE)).unwrap_or(&[]);
        let (kind, code, last) = error.header();
        let [high, low] = last.to_be_bytes();
        let mut head = [0; ipv4::LEN + 8];
        if let Some((ip, icmp)) = head.split_first_chunk_mut::<{ ipv4::LEN }>() {
            let payload = (8 + quote.len()) as u16;
            Ipv4 { source: from, destination: to, protocol: protocol::ICMP, ttl: 64, dscp: 48, payload }
                .emit(ip);
            icmp.copy_from_slice(&[kind, code, 0, 0, 0, 0, high, low]);
            let sum = Sum::ZERO.bytes(icmp).bytes(quote).checksum().to_be_bytes();
            icmp[2..4].copy_from_slice(&sum);
        }
        if let Some(slot) = self.outbox.keep_parts(&[&head, quote]) {
            self.outbox.send(slot, forward);
        }
    }
}
