//! Segments that a connection sends: handshake, data, FIN, acknowledgments.

use crate::connection::{Connection, Deadline, Env, State, flag};
use crate::offload::Large;
use crate::seq::Seq;
use packet::tcp::{Header, Options, SACKS, flag as control};

/// Whether a segment was taken, to be sent.
pub(crate) type Taken = bool;

impl Connection {
    /// Whether it has something to send.
    pub fn wants_to_send(&self) -> bool {
        const SIGNALS: u32 =
            flag::SEND_SYN | flag::SEND_RST | flag::ACK_NOW | flag::SEND_PROBE | flag::SEND_TAIL;
        if self.flags & SIGNALS != 0 {
            return true;
        }
        if !self.has(flag::UP) || self.state == State::Closed {
            return false;
        }
        let lost = self.active.as_ref().is_some_and(|active| active.flight.has_lost());
        let fin = self.has(flag::FIN_QUEUED) && !self.has(flag::FIN_SENT);
        lost || fin || self.unsent() > 0
    }

    /// Send what may be sent now. `send` takes a header, its payload, and how much of that a segment has room for: it segments
    /// what is more, which it is given where `large` says so. `false`: it did not take the last one, and the rest is to be sent later.
    pub fn emit(
        &mut self,
        env: &mut Env<'_>,
        large: Option<Large>,
        mut send: impl FnMut(&Header, &[u8], u32) -> Taken,
    ) -> bool {
        if self.has(flag::SEND_RST) {
            let header = self.header(env, control::RST | control::ACK, self.nxt);
            if !send(&header, &[], 0) {
                return false;
            }
            env.counters.resets_sent += 1;
            self.clear(flag::SEND_RST);
            return true;
        }
        if self.state == State::Closed {
            return true;
        }
        if self.has(flag::SEND_SYN) && !self.emit_syn(env, &mut send) {
            return false;
        }
        if self.has(flag::UP) {
            let before = self.nxt;
            let all = self.emit_data(env, large, &mut send);
            if self.nxt != before
                && (self.is_quiet() || matches!(self.deadline, Deadline::Probe | Deadline::Persist))
            {
                if self.is_quiet() {
                    // questions to a silent peer or next hop were counted, and no retransmission
                    self.retries = 0;
                }
                self.arm_retransmission(env);
            }
            if !all {
                return false;
            }
        }
        if self.has(flag::SEND_PROBE) {
            // a byte that is acknowledged already: whoever receives it says where the window is
            let header = self.header(env, control::ACK, self.una - 1);
            if !send(&header, &[], 0) {
                return false;
            }
            self.clear(flag::SEND_PROBE);
            self.acknowledged_all();
        }
        if self.has(flag::ACK_NOW) && self.state != State::SynSent {
            let header = self.header(env, control::ACK, self.nxt);
            if !send(&header, &[], 0) {
                return false;
            }
            self.acknowledged_all();
        }
        true
    }

    /// A segment left that acknowledges all that was received.
    fn acknowledged_all(&mut self) {
        self.clear(flag::ACK_NOW);
        self.ack_at = u64::MAX;
        self.last_ack = self.rcv_nxt;
    }

    fn header(&mut self, env: &Env<'_>, flags: u8, sequence: Seq) -> Header {
        let window =
            if flags & control::RST != 0 { 0 } else { self.take_window(flags & control::SYN == 0, env) };
        let mut options = Options::default();
        if self.has(flag::TIMESTAMPS) {
            options.timestamps = Some((self.timestamp(env.now), self.ts_recent));
        }
        if self.has(flag::SACK)
            && flags & (control::SYN | control::RST) == 0
            && let Some(active) = &self.active
            && active.receive.has_gap()
        {
            let most = if options.timestamps.is_some() { SACKS - 1 } else { SACKS };
            for (place, (left, right)) in options.sack.iter_mut().zip(active.receive.sacks().take(most)) {
                *place = ((self.rcv_nxt + left).0, (self.rcv_nxt + right).0);
                options.sacks += 1;
            }
        }
        Header {
            source: self.tuple.local_port,
            destination: self.tuple.remote_port,
            sequence: sequence.0,
            acknowledgment: if flags & control::ACK != 0 { self.rcv_nxt.0 } else { 0 },
            flags,
            window,
            options,
        }
    }

    fn emit_syn(&mut self, env: &mut Env<'_>, send: &mut impl FnMut(&Header, &[u8], u32) -> Taken) -> bool {
        let answers = self.state != State::SynSent;
        let flags = if answers { control::SYN | control::ACK } else { control::SYN };
        let mut header = self.header(env, flags, self.iss);
        let window = env.config.receive_buffer.min(u16::MAX.into());
        header.window = window as u16;
        if answers {
            self.rcv_edge = self.rcv_edge.later(self.rcv_nxt + window);
        }
        header.options.mss = Some(self.offered_mss);
        header.options.sack_permitted = if answers { self.has(flag::SACK) } else { env.config.sack };
        // what the peer did not offer is not offered in return (RFC 7323 section 2.2)
        let scales =
            if answers { self.receive_scale > 0 || self.send_scale > 0 } else { env.config.window_scale };
        header.options.window_scale = scales.then_some(self.receive_scale);
        if !answers && env.config.timestamps {
            header.options.timestamps = Some((self.timestamp(env.now), 0));
        }
        if !send(&header, &[], 0) {
            return false;
        }
        if self.nxt != self.iss {
            self.set(flag::SYN_AGAIN);
            env.counters.retransmitted += 1;
        }
        self.nxt = self.iss + 1;
        self.sent_at = env.now;
        self.clear(flag::SEND_SYN | flag::ACK_NOW);
        // one that answers the peer's SYN again leaves the timer as it is, or the retries would never run out
        if self.deadline == Deadline::None {
            let timeout = self.rtt.timeout(env.config, self.retries);
            self.arm(Deadline::Retransmit, env.now.saturating_add(timeout));
        }
        true
    }

    /// Retransmissions first, then what is new.
    fn emit_data(
        &mut self,
        env: &mut Env<'_>,
        large: Option<Large>,
        send: &mut impl FnMut(&Header, &[u8], u32) -> Taken,
    ) -> bool {
        if !self.emit_tail(env, send) || !self.emit_lost(env, send) {
            return false;
        }
        let idle = self.active.as_ref().is_none_or(|active| active.flight.is_empty());
        if idle && env.now.saturating_sub(self.sent_at) > self.rtt.timeout(env.config, 0) {
            self.congestion.idle(self.mss);
        }
        loop {
            let finishes = self.has(flag::FIN_QUEUED) && !self.has(flag::FIN_SENT);
            let unsent = self.unsent() as u32;
            if unsent == 0 && !finishes {
                return true;
            }
            let full = self.segment_size();
            let usable = (self.una + self.window).since(self.nxt);
            // a window that shrank reaches less far than what was sent
            let usable = if usable > i32::MAX as u32 { 0 } else { usable };
            let mut len = unsent.min(full).min(usable);
            let mut size = full;
            if unsent > 0 {
                let pipe = self.active.as_ref().map_or(0, |active| active.flight.pipe());
                // silly windows are not filled (RFC 9293 section 3.8.6.2.1)
                let silly = len < full && len < unsent && len < self.window_max / 2;
                if len == 0 || silly {
                    self.set(flag::BLOCKED);
                    if pipe == 0 && self.is_quiet() {
                        self.persist(env);
                    }
                    return true;
                }
                let room = self.congestion.room(pipe, false, self.mss);
                if room < len {
                    self.congestion.limit();
                    return true;
                }
                if let Some((whole, segment)) = self.several(large, unsent.min(usable).min(room)) {
                    (len, size) = (whole, segment);
                }
            }
            if !self.emit_new(len, size, env, send) {
                return false;
            }
        }
    }

    /// Of so many bytes that may be sent, how many go at once in segments that are full, and how many each has.
    fn several(&self, large: Option<Large>, may: u32) -> Option<(u32, u32)> {
        let Large { payload, mss } = large?;
        let size = self.room_within(mss.min(self.mss));
        let segments = may.min(payload) / size;
        (segments > 1).then_some((segments * size, size))
    }

    /// `len` bytes that were not sent before, in segments of `size` bytes, and FIN with the last.
    fn emit_new(
        &mut self,
        len: u32,
        size: u32,
        env: &mut Env<'_>,
        send: &mut impl FnMut(&Header, &[u8], u32) -> Taken,
    ) -> bool {
        let last = len as usize == self.unsent();
        let finishes = last && self.has(flag::FIN_QUEUED) && !self.has(flag::FIN_SENT);
        let mut flags = control::ACK;
        flags |= if last && len > 0 { control::PSH } else { 0 };
        flags |= if finishes { control::FIN } else { 0 };
        let (at, start) = (self.sent_bytes(), self.nxt);
        let header = self.header(env, flags, start);
        let active = self.active(env.pool);
        if !send(&header, active.send.get(at, len as usize, &mut env.pool.scratch), size) {
            self.rest(env.pool);
            return false;
        }
        let end = start + len + u32::from(finishes);
        // each by itself, as they are acknowledged, lost and sent again
        let mut from = start;
        for _ in 1..len.div_ceil(size) {
            active.flight.push(from, from + size, env.now);
            from += size;
        }
        active.flight.push(from, end, env.now);
        self.congestion.sent(len);
        env.counters.bytes_sent += u64::from(len);
        self.nxt = end;
        self.sent_at = env.now;
        if finishes {
            self.set(flag::FIN_SENT);
        }
        self.acknowledged_all();
        true
    }

    /// Send again what is lost, as far as the congestion window allows.
    fn emit_lost(&mut self, env: &mut Env<'_>, send: &mut impl FnMut(&Header, &[u8], u32) -> Taken) -> bool {
        if self.window == 0 {
            if self.is_quiet() && self.active.as_ref().is_some_and(|active| active.flight.has_lost()) {
                self.persist(env);
            }
            return true;
        }
        while let Some((i, sent)) = self.active.as_ref().and_then(|active| active.flight.first_lost()) {
            let len = sent.end.since(sent.start).min(self.segment_size());
            let pipe = self.active.as_ref().map_or(0, |active| active.flight.pipe());
            if self.congestion.room(pipe, true, self.mss) < len {
                self.congestion.limit();
                return true;
            }
            if !self.emit_again(i, (sent.start, sent.end), env, send) {
                return false;
            }
            if self.is_quiet() {
                self.arm_retransmission(env);
            }
        }
        true
    }

    /// Tail loss probe: new data if there is any and the peer's window lets it, else the last segment again (RFC 8985 section
    /// 7.3).
    fn emit_tail(&mut self, env: &mut Env<'_>, send: &mut impl FnMut(&Header, &[u8], u32) -> Taken) -> bool {
        if !self.has(flag::SEND_TAIL) {
            return true;
        }
        let usable = (self.una + self.window).since(self.nxt);
        let new = (self.unsent() as u32).min(self.segment_size());
        if new > 0 && usable <= i32::MAX as u32 && new <= usable {
            if !self.emit_new(new, new.max(1), env, send) {
                return false;
            }
        } else if let Some((i, sent)) = self.active.as_ref().and_then(|active| active.flight.last())
            && !self.emit_again(i, (sent.start, sent.end), env, send)
        {
            return false;
        }
        self.clear(flag::SEND_TAIL);
        self.arm_retransmission(env);
        true
    }

    /// Segment `i` of those in flight, from `start` to `end`, again.
    fn emit_again(
        &mut self,
        i: usize,
        (start, end): (Seq, Seq),
        env: &mut Env<'_>,
        send: &mut impl FnMut(&Header, &[u8], u32) -> Taken,
    ) -> bool {
        let held = self.unacknowledged_bytes() as u32;
        let at = start.since(self.una);
        let all = end.since(start);
        // FIN has a sequence number and no byte
        let bytes = all.min(held.saturating_sub(at)).min(self.segment_size());
        let finishes = self.has(flag::FIN_SENT) && end == self.nxt && at + bytes == held && bytes < all;
        let mut flags = control::ACK;
        flags |= if at + bytes == held && bytes > 0 { control::PSH } else { 0 };
        flags |= if finishes { control::FIN } else { 0 };
        let header = self.header(env, flags, start);
        let Some(active) = self.active.as_deref_mut() else { return true };
        let payload = active.send.get(at as usize, bytes as usize, &mut env.pool.scratch);
        if !send(&header, payload, bytes) {
            return false;
        }
        active.flight.sent_again(i, bytes + u32::from(finishes), env.now);
        self.congestion.sent(bytes);
        env.counters.retransmitted += 1;
        self.sent_at = env.now;
        self.acknowledged_all();
        true
    }

    /// Bytes of payload that a segment has room for, its options taken off (RFC 6691).
    fn segment_size(&self) -> u32 {
        self.room_within(self.mss)
    }

    /// The same of a segment with `mss` bytes behind its header.
    fn room_within(&self, mss: u16) -> u32 {
        let timestamps = if self.has(flag::TIMESTAMPS) { 12 } else { 0 };
        let sacks = match &self.active {
            Some(active) if self.has(flag::SACK) && active.receive.has_gap() => {
                let most = if timestamps > 0 { SACKS - 1 } else { SACKS };
                4 + 8 * active.receive.sacks().take(most).count()
            }
            _ => 0,
        };
        u32::from(mss).saturating_sub(timestamps + sacks as u32).max(1)
    }
}
