//! ICMP messages that arrive: neighbour discovery, echo requests, and errors about what was sent.

use super::Stack;
use crate::connection::{CloseReason, Env, State, Tuple, flag};
use crate::counters::Drop;
use crate::path_mtu::segment_size;
use crate::seq::Seq;
use packet::ethernet::{LEN, TAG, Tags};
use packet::icmp_error::{IcmpError, PacketOutcome};
use packet::layers::protocol;
use packet::nd::{self, Nd};
use packet::{Layers, icmp};

/// The MTU of the next hop that an ICMP message says (RFC 1191 section 4, RFC 4443 section 3.2).
pub(super) fn told_mtu(message: &[u8], v6: bool) -> Option<u32> {
    match (v6, message) {
        (false, [3, 4, _, _, _, _, high, low, ..]) => Some(u16::from_be_bytes([*high, *low]).into()),
        (true, [2, _, _, _, a, b, c, d, ..]) => Some(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => None,
    }
}

impl Stack {
    pub(super) fn take_icmp(&mut self, frame: &[u8], layers: &Layers, now: u64) {
        let Some((_, local)) = Self::destination(frame, layers) else { return };
        if let Some(message) = Nd::parse(frame) {
            let (config, tags) = (&self.config, Tags::of(frame));
            let owns = |ip| config.share.answers() && config.addresses.binary_search(&ip).is_ok();
            let (change, answer) = self.neighbours.nd(&message, config.mac, owns, now);
            if let Some(answer) = answer
                && let Some(to) = self.reply(nd::FRAME + tags.bytes().len())
            {
                answer.emit(to, &tags);
            }
            if let Some(change) = change {
                self.neighbour_changed(change, now);
            }
            return;
        }
        if !self.owns(local) {
            return self.counters.drop(Drop::NotForUs);
        }
        if let Some(error) = IcmpError::parse(frame, layers) {
            return self.take_icmp_error(&error, layers.segment(frame), layers.is_v6(), now);
        }
        if self.take_echo_reply(frame, layers) {
            return;
        }
        // a request that came in pieces would have to be answered in pieces
        let whole = frame.len().min(LEN + 2 * TAG + usize::from(u16::MAX));
        if layers.end - layers.ip > self.config.mtu.into() {
            return self.counters.drop(Drop::Fragment);
        }
        let Some(to) = self.reply(whole) else { return };
        to.copy_from_slice(&frame[..whole]);
        if !icmp::answer(to, layers, local) {
            self.spare.extend(self.replies.pop_back());
            self.counters.drop(Drop::NotForUs);
        }
    }

    /// An ICMP message about a segment of ours. It is believed when it quotes what is in flight (RFC 5927 section 4.1); what
    /// it says ends a handshake only: later it may be wrong, or pass (RFC 9293 section 3.9.2.2).
    fn take_icmp_error(&mut self, error: &IcmpError, message: &[u8], v6: bool, now: u64) {
        if let Some(quoted) = error.quoted.filter(|quoted| quoted.protocol != protocol::TCP) {
            return self.take_datagram_error(error, &quoted, message, now);
        }
        let quoted = error.quoted;
        let found = quoted.and_then(|quoted| {
            let (local, remote) = (quoted.source, quoted.destination);
            let (local_port, remote_port) = (local.port(), remote.port());
            let tuple = Tuple { local: local.ip(), remote: remote.ip(), local_port, remote_port };
            Some((self.find(self.hash(&tuple), &tuple)?, Seq(quoted.sequence?)))
        });
        let Some((index, sequence)) = found else { return self.counters.drop(Drop::ForeignIcmp) };
        let conn = &mut self.connections[index as usize];
        if sequence.before(conn.una) || !sequence.before(conn.nxt) {
            return self.counters.drop(Drop::ForeignIcmp);
        }
        if let Some(told) = told_mtu(message, v6) {
            let remote = conn.tuple.remote;
            if !self.paths.learn(remote, told, self.config.mtu, now) {
                return self.counters.drop(Drop::ForeignIcmp);
            }
            let mtu = self.paths.get(remote, now);
            let is_less = conn.fit_path(mtu.map(|mtu| segment_size(mtu, !v6)));
            // not for congestion: what was too long is sent again at once, also of a connection that knows the path from another
            // a FIN counts as a byte
            let most = u32::from(conn.mss) + 1;
            if let Some(active) =
                conn.active.as_deref_mut().filter(|active| is_less || active.flight.first_len() > most)
            {
                active.flight.lose_all();
            }
        } else if conn.state == State::SynSent && error.outcome != PacketOutcome::Forwarded {
            conn.fail(if error.outcome == PacketOutcome::Refused {
                CloseReason::Refused
            } else {
                CloseReason::Unreachable
            });
        }
        if conn.has(flag::UP) {
            let (pool, counters) = (&mut self.pool, &mut self.counters);
            conn.arm_retransmission(&Env { now, config: &self.config.tcp, pool, counters });
        }
        self.settle(index);
    }
}
