//! Connections that others begin: with a place of their own, or by a cookie where there is none (RFC 4987 section 3.6).

use super::Stack;
use super::frames::Replies;
use crate::connection::{Env, State, Tuple, flag};
use crate::cookie::{Cookie, PERIOD};
use crate::counters::DropReason;
use crate::seq::Seq;
use crate::wire::{Link, send_segment};
use packet::Mac;
use packet::tcp::{Header, Options, flag as control};

impl Stack {
    pub(super) fn begin_passive(&mut self, tuple: Tuple, header: &Header, from: Mac, now: u64) {
        let most = self.listeners.get(&tuple.local_port).copied().unwrap_or(0);
        if self.half_open >= most {
            return self.send_cookie(&tuple, header, from, now);
        }
        let Ok(index) = self.add(tuple, State::SynReceived, now) else {
            return self.counters.drop(DropReason::ListenerFull);
        };
        self.half_open += 1;
        let conn = &mut self.connections[index as usize];
        conn.set(flag::PASSIVE);
        let (pool, counters) = (&mut self.pool, &mut self.counters);
        conn.take_syn(header, &Env { now, config: &self.config.tcp, pool, counters });
        self.settle(index);
    }

    /// Answer a SYN for which there is no room: all that is remembered of it is in our sequence number. Of the options that it
    /// offered the segment size alone is.
    fn send_cookie(&mut self, tuple: &Tuple, header: &Header, to: Mac, now: u64) {
        self.cookies_until = now + 2 * PERIOD;
        let own = self.mss(tuple.remote);
        let cookie = Cookie::new(header, own, tuple.local.is_ipv4());
        let sequence = cookie.number(now, header.sequence, |salt| self.hash_salted(tuple, salt));
        let answer = Header {
            source: tuple.local_port,
            destination: tuple.remote_port,
            sequence,
            acknowledgment: header.sequence.wrapping_add(1),
            flags: control::SYN | control::ACK,
            window: self.config.tcp.receive_buffer.min(u16::MAX.into()) as u16,
            options: Options { mss: Some(own), ..Options::default() },
        };
        let link = Link { source: self.config.mac, destination: to, tags: self.config.tags };
        let Self { replies, spare, .. } = self;
        if send_segment(&mut Replies { replies, spare }, &link, tuple, &answer, (&[], 0)) {
            self.counters.cookies_sent += 1;
        } else {
            self.counters.drop(DropReason::ReplyQueueFull);
        }
    }

    /// The connection of which a segment brings a cookie back.
    pub(super) fn redeem(&mut self, tuple: &Tuple, header: &Header, now: u64) -> Option<u32> {
        let kinds = control::SYN | control::ACK | control::RST;
        let listens = self.listeners.contains_key(&tuple.local_port);
        if now >= self.cookies_until || !listens || header.flags & kinds != control::ACK {
            return None;
        }
        let (number, theirs) = (header.acknowledgment.wrapping_sub(1), header.sequence.wrapping_sub(1));
        let cookie = Cookie::redeem(number, now, theirs, |salt| self.hash_salted(tuple, salt))?;
        let Ok(index) = self.add(*tuple, State::SynReceived, now) else {
            self.counters.drop(DropReason::ListenerFull);
            return None;
        };
        self.counters.cookies_accepted += 1;
        self.half_open += 1;
        let syn = Header {
            sequence: theirs,
            flags: control::SYN,
            options: Options { mss: Some(cookie.mss()), ..Options::default() },
            ..*header
        };
        let conn = &mut self.connections[index as usize];
        // our SYN was sent, and when is not known: no round trip is measured by it
        conn.set(flag::PASSIVE | flag::SYN_AGAIN);
        conn.clear(flag::SEND_SYN);
        (conn.iss, conn.una, conn.nxt) = (Seq(number), Seq(number), Seq(number) + 1);
        let (pool, counters) = (&mut self.pool, &mut self.counters);
        let env = Env { now, config: &self.config.tcp, pool, counters };
        conn.take_syn(&syn, &env);
        conn.rcv_edge = conn.rcv_nxt + env.config.receive_buffer.min(u16::MAX.into());
        Some(index)
    }

    fn hash_salted(&self, tuple: &Tuple, salt: u64) -> u64 {
        let [a, b] = self.config.secret;
        super::hash([a ^ salt, b.rotate_left(32) ^ salt], tuple)
    }
}
