//! ICMP messages that arrive: neighbour discovery, echo requests, and errors about what was sent.

use super::frames::{Replies, is_station};
use super::{REPLIES, Stack};
use crate::connection::{CloseReason, Env, State, Tuple, flag};
use crate::counters::DropReason;
use crate::fragments::{cut, pieces};
use crate::path_mtu::segment_size;
use crate::seq::Seq;
use crate::share::Recipient;
use packet::icmp_error::{IcmpError, PacketOutcome};
use packet::layers::protocol;
use packet::nd::{self, Nd};
use packet::{Layers, icmp, ipv4, ipv6};

/// The MTU of the next hop that an ICMP message says (RFC 1191 section 4, RFC 4443 section 3.2).
pub(super) fn told_mtu(message: &[u8], v6: bool) -> Option<u32> {
    match (v6, message) {
        (false, [3, 4, _, _, _, _, high, low, ..]) => Some(u16::from_be_bytes([*high, *low]).into()),
        (true, [2, _, _, _, a, b, c, d, ..]) => Some(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => None,
    }
}

impl Stack {
    pub(super) fn take_icmp(&mut self, frame: &[u8], (layers, recipient): (&Layers, Recipient), now: u64) {
        let Some((_, local)) = Self::destination(frame, layers) else { return };
        if let Some(message) = Nd::parse(frame) {
            return self.take_nd(&message, now);
        }
        if !self.owns(local) {
            return self.drop_once(recipient, DropReason::NotForUs);
        }
        if let Some(error) = IcmpError::parse(frame, layers) {
            return self.take_icmp_error(&error, layers.segment(frame), layers.is_v6(), now);
        }
        if self.take_echo_reply(frame, layers) {
            return;
        }
        if recipient == Recipient::All {
            // no echo request: that is of one flow
            return self.drop_once(recipient, DropReason::NotForUs);
        }
        self.reply_echo(frame, layers, now);
    }

    fn take_nd(&mut self, message: &Nd, now: u64) {
        if message.mac.is_some_and(|mac| !is_station(mac)) {
            return self.drop_once(Recipient::All, DropReason::BadSource);
        }
        if message.operation != nd::Operation::Solicitation && self.owns(message.target.into()) {
            // RFC 4862 section 5.4.4
            self.duplicate_address();
            return;
        }
        let config = &self.config;
        let owns = |ip| config.share.answers() && config.addresses.binary_search(&ip).is_ok();
        let (change, answer) = self.neighbours.nd(message, config.mac, owns, now);
        let tags = config.tags;
        if let Some(answer) = answer
            && let Some(to) = self.reply(nd::FRAME + tags.bytes().len())
        {
            answer.emit(to, &tags);
        }
        if let Some(change) = change {
            self.neighbour_changed(change, now);
        }
    }

    /// Answer an echo request, in fragments where the request came in such.
    fn reply_echo(&mut self, frame: &[u8], layers: &Layers, now: u64) {
        let Some((remote, local)) = Self::destination(frame, layers) else { return };
        let v6 = layers.is_v6();
        let mtu = self.paths.get(remote, now).unwrap_or(self.config.mtu).min(self.config.mtu);
        let size = layers.end - layers.ip;
        let is_whole = size <= mtu.into();
        let header = if v6 { ipv6::LEN } else { ipv4::LEN };
        let frames = if is_whole { 1 } else { pieces(size - header, v6, mtu) };
        if self.replies.len() + frames > REPLIES {
            return self.counters.drop(DropReason::ReplyQueueFull);
        }
        let mut reply = self.spare.pop().unwrap_or_default();
        reply.clear();
        reply.extend_from_slice(frame);
        if !icmp::answer(&mut reply, layers, local) {
            self.counters.drop(DropReason::NotForUs);
        } else if is_whole {
            return self.replies.push_back(reply);
        } else if layers.l4 == layers.ip + header {
            self.identification = self.identification.wrapping_add(1);
            let (replies, spare) = (&mut self.replies, &mut self.spare);
            let whole = &reply[..layers.end];
            cut(whole, layers.ip, v6, mtu, self.identification, &mut Replies { replies, spare });
        } else {
            // options would have to be told which go with each fragment
            self.counters.drop(DropReason::Fragment);
        }
        self.spare.push(reply);
    }

    /// An ICMP error quotes no packet of ours. Each stack was given it: the one that would have the flow counts it, and the
    /// first where none is quoted.
    pub(super) fn drop_foreign(&mut self, flow: Option<&Tuple>) {
        let share = self.config.share;
        let is_own = flow.map_or(share.answers(), |flow| {
            share.has((flow.local, flow.remote), (flow.local_port, flow.remote_port))
        });
        if is_own {
            self.counters.drop(DropReason::ForeignIcmp);
        }
    }

    /// An ICMP message about a segment of ours. It is believed when it quotes what is in flight (RFC 5927 section 4.1); what
    /// it says ends a handshake only: later it may be wrong, or pass (RFC 9293 section 3.9.2.2).
    fn take_icmp_error(&mut self, error: &IcmpError, message: &[u8], v6: bool, now: u64) {
        if let Some(quoted) = error.quoted.filter(|quoted| quoted.protocol != protocol::TCP) {
            return self.take_datagram_error(error, &quoted, message, now);
        }
        let tuple = error.quoted.map(|quoted| {
            let (local, remote) = (quoted.source, quoted.destination);
            let (local_port, remote_port) = (local.port(), remote.port());
            Tuple { local: local.ip(), remote: remote.ip(), local_port, remote_port }
        });
        let found = tuple
            .and_then(|tuple| Some((self.find(self.hash(&tuple), &tuple)?, Seq(error.quoted?.sequence?))));
        let Some((index, sequence)) = found else { return self.drop_foreign(tuple.as_ref()) };
        let conn = &mut self.connections[index as usize];
        if sequence.before(conn.una) || !sequence.before(conn.nxt) {
            return self.counters.drop(DropReason::ForeignIcmp);
        }
        if let Some(told) = told_mtu(message, v6) {
            let remote = conn.tuple.remote;
            if !self.paths.learn(remote, told, self.config.mtu, now) {
                return self.counters.drop(DropReason::ForeignIcmp);
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
