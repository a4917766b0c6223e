//! Segments that arrive: RFC 9293 section 3.10.7, with the checks of RFC 5961 and RFC 7323.

use crate::config::SECOND;
use crate::congestion::Ack;
use crate::connection::{CloseReason, Connection, Deadline, Env, State, event, flag};
use crate::counters::DropReason;
use crate::flight::Acknowledged;
use crate::seq::Seq;
use packet::tcp::{Header, flag as control};

/// Challenges of one connection in a second (RFC 5961 section 7), and other acknowledgments that could go on for ever.
const CHALLENGES: u8 = 10;
/// Duplicate acknowledgments that show a loss (RFC 5681 section 3.2).
const DUPLICATES: usize = 3;
/// Age of a timestamp from which on it says nothing, s (RFC 7323 section 5.5: 24 days).
const OLD: u32 = 24 * 24 * 3600;

impl Connection {
    /// A segment arrived. `true`: it is to be answered by a RST (section 3.5.2).
    pub fn segment(&mut self, header: &Header, payload: &[u8], env: &mut Env<'_>) -> bool {
        env.counters.segments_received += 1;
        let refused = match self.state {
            State::Closed => !header.has(control::RST),
            State::SynSent => self.in_syn_sent(header, payload, env),
            _ => self.in_others(header, payload, env),
        };
        self.watch_peer(env);
        refused
    }

    /// Options of the peer's SYN: what both sides offered is used.
    pub fn take_syn(&mut self, header: &Header, env: &Env<'_>) {
        let options = &header.options;
        self.rcv_nxt = Seq(header.sequence) + 1;
        self.rcv_edge = self.rcv_nxt;
        self.last_ack = self.rcv_nxt;
        // RFC 9293 section 3.7.1: 536 where nothing is said; less than 64 is nobody's (RFC 791: 68 bytes of a packet)
        let peer = options.mss.unwrap_or(if self.tuple.local.is_ipv4() { 536 } else { 1220 }).max(64);
        self.mss = self.mss.min(peer);
        self.agreed_mss = self.agreed_mss.min(peer);
        self.congestion.resize(self.mss);
        if let Some((value, _)) = options.timestamps.filter(|_| env.config.timestamps) {
            self.set(flag::TIMESTAMPS);
            self.ts_recent = value;
            self.ts_recent_at = (env.now / SECOND) as u32;
        }
        if options.sack_permitted && env.config.sack {
            self.set(flag::SACK);
        }
        match options.window_scale.filter(|_| env.config.window_scale) {
            Some(scale) => self.send_scale = scale,
            None => self.receive_scale = 0,
        }
        // the window of a SYN is not shifted
        self.window = header.window.into();
        self.window_max = self.window_max.max(self.window);
        self.wl1 = Seq(header.sequence);
        self.wl2 = self.una;
    }

    /// Section 3.10.7.3.
    fn in_syn_sent(&mut self, header: &Header, payload: &[u8], env: &mut Env<'_>) -> bool {
        let ack = Seq(header.acknowledgment);
        let acknowledges = header.has(control::ACK);
        if acknowledges && (ack.until(self.iss) || self.nxt.before(ack)) {
            return !header.has(control::RST);
        }
        if header.has(control::RST) {
            if acknowledges {
                self.fail(CloseReason::Refused);
            }
            return false;
        }
        if !header.has(control::SYN) {
            return false;
        }
        self.take_syn(header, env);
        if acknowledges {
            self.establish(env);
            self.una = ack;
            self.wl2 = ack;
            self.state = State::Established;
            self.set(flag::ACK_NOW);
            if self.has(flag::FIN_QUEUED) {
                self.state = State::FinWait1;
            }
            if !payload.is_empty() || header.has(control::FIN) {
                let rest = Header { sequence: self.rcv_nxt.0, ..*header };
                self.take_window(true, env);
                return self.text(&rest, payload, env);
            }
        } else {
            // both begin at once
            self.state = State::SynReceived;
            self.disarm();
            self.set(flag::SEND_SYN);
        }
        false
    }

    /// Section 3.10.7.4.
    fn in_others(&mut self, header: &Header, payload: &[u8], env: &mut Env<'_>) -> bool {
        let sequence = Seq(header.sequence);
        let reset = header.has(control::RST);
        if self.has(flag::TIMESTAMPS) && !reset {
            // RFC 7323 section 3.2: without the option it is of nobody who knows the connection
            let Some((value, _)) = header.options.timestamps else {
                env.counters.drop(DropReason::OldTimestamp);
                return false;
            };
            let aged = ((env.now / SECOND) as u32).saturating_sub(self.ts_recent_at) > OLD;
            if (value.wrapping_sub(self.ts_recent) as i32) < 0 && !aged {
                env.counters.drop(DropReason::OldTimestamp);
                self.acknowledge_with_limit(env);
                return false;
            }
        }
        let len =
            payload.len() as u32 + u32::from(header.has(control::SYN)) + u32::from(header.has(control::FIN));
        if !self.is_acceptable(sequence, len) {
            env.counters.drop(DropReason::OutOfWindow);
            if len > 0 && (sequence + len).until(self.rcv_nxt) {
                env.counters.duplicates += 1;
            }
            if self.state == State::SynReceived && !reset {
                // the SYN+ACK again is for the SYN again; whatever else, a SYN+ACK too, is told where we are. With a limit:
                // the peer may answer the same way
                if header.has(control::SYN) && !header.has(control::ACK) && sequence + 1 == self.rcv_nxt {
                    self.set(flag::SEND_SYN);
                } else {
                    self.acknowledge_with_limit(env);
                }
            } else if self.state == State::TimeWait && header.has(control::FIN) {
                self.set(flag::ACK_NOW);
                self.arm(Deadline::Gone, env.now.saturating_add(env.config.time_wait));
            } else if !reset && len > 0 {
                self.set(flag::ACK_NOW);
            } else if !reset {
                // a keep-alive or a window probe waits for it; two that answer each other for ever do, too
                self.acknowledge_with_limit(env);
            }
            return false;
        }
        if reset {
            return self.reset(sequence, env);
        }
        if header.has(control::SYN) {
            self.challenge(env);
            return false;
        }
        if !header.has(control::ACK) {
            return false;
        }
        let ack = Seq(header.acknowledgment);
        if !self.has(flag::UP) {
            if ack.until(self.una) || self.nxt.before(ack) {
                return true;
            }
            self.come_up(header, env);
        }
        if self.nxt.before(ack) || ack.before(self.una - self.window_max) {
            // RFC 5961 section 5
            env.counters.drop(DropReason::BadAck);
            self.challenge(env);
            return false;
        }
        if let Some((value, _)) = header.options.timestamps
            && self.has(flag::TIMESTAMPS)
            && sequence.until(self.last_ack)
        {
            self.ts_recent = value;
            self.ts_recent_at = (env.now / SECOND) as u32;
        }
        self.acknowledgment(header, len, env);
        if self.state == State::Closed {
            return false;
        }
        self.text(header, payload, env)
    }

    /// The handshake is over, of a connection that the peer opened, or that both opened.
    fn come_up(&mut self, header: &Header, env: &mut Env<'_>) {
        self.establish(env);
        self.una = self.iss + 1;
        self.window = u32::from(header.window) << self.send_scale;
        (self.wl1, self.wl2) = (Seq(header.sequence), Seq(header.acknowledgment));
        if self.state == State::SynReceived {
            self.state = State::Established;
        }
    }

    /// Our SYN is acknowledged.
    fn establish(&mut self, env: &mut Env<'_>) {
        // Karn: of a SYN that was sent twice nobody knows which was answered
        if !self.has(flag::SYN_AGAIN) {
            self.rtt.sample(env.now.saturating_sub(self.sent_at));
        }
        self.retries = 0;
        self.disarm();
        self.set(flag::UP);
        self.clear(flag::SEND_SYN);
        self.events |= event::WRITABLE;
        env.counters.accepted += u64::from(self.has(flag::PASSIVE));
    }

    /// Whether a segment is in the window (section 3.10.7.4, table 6). Of one at the left edge of a closed window the
    /// acknowledgment counts.
    fn is_acceptable(&self, sequence: Seq, len: u32) -> bool {
        let window = self.rcv_edge.since(self.rcv_nxt);
        if sequence == self.rcv_nxt {
            return true;
        }
        let inside = |at: Seq| at.since(self.rcv_nxt) < window;
        inside(sequence) || (len > 0 && inside(sequence + (len - 1)))
    }

    /// RFC 5961 section 3.2: a RST counts where the next byte is expected, and is challenged elsewhere.
    fn reset(&mut self, sequence: Seq, env: &mut Env<'_>) -> bool {
        if sequence != self.rcv_nxt {
            self.challenge(env);
        } else if self.state == State::TimeWait {
            // RFC 1337: an old one must not end 2 MSL early
        } else {
            let refused = self.state == State::SynReceived && !self.has(flag::PASSIVE);
            self.fail(if refused { CloseReason::Refused } else { CloseReason::Reset });
        }
        false
    }

    fn challenge(&mut self, env: &mut Env<'_>) {
        env.counters.drop(DropReason::Challenged);
        self.acknowledge_with_limit(env);
    }

    /// An acknowledgment to who may answer it the same way.
    fn acknowledge_with_limit(&mut self, env: &Env<'_>) {
        let second = (env.now / SECOND) as u32;
        if self.challenged_in != second {
            (self.challenged_in, self.challenges) = (second, 0);
        }
        if self.challenges < CHALLENGES {
            self.challenges += 1;
            self.set(flag::ACK_NOW);
        }
    }

    /// What the acknowledgment says: what was delivered, what is lost, and how much may be sent.
    fn acknowledgment(&mut self, header: &Header, len: u32, env: &mut Env<'_>) {
        let (now, shortest) = (env.now, self.rtt.shortest());
        let ack = Seq(header.acknowledgment);
        let sacks = self.has(flag::SACK);
        let mut result = Acknowledged::default();
        let advanced = if self.una.before(ack) { ack.since(self.una) } else { 0 };
        let held = self.unacknowledged_bytes();
        let window = u32::from(header.window) << self.send_scale;
        if let Some(active) = self.active.as_deref_mut() {
            if advanced > 0 {
                active.flight.acknowledge(ack, now, shortest, &mut result);
                active.send.drop_front((advanced as usize).min(held));
            }
            if sacks {
                for (left, right) in header.options.blocks() {
                    let (left, right) = (Seq(*left), Seq(*right));
                    if left.before(right) && self.una.until(left) && right.until(self.nxt) {
                        active.flight.sack(left, right, now, shortest, &mut result);
                    }
                }
            }
        }
        let duplicate =
            advanced == 0 && ack == self.una && len == 0 && window == self.window && self.una != self.nxt;
        self.una += advanced;
        // an acknowledgment older than the last one says nothing of the window (RFC 9293 section 3.10.7.4), whatever its
        // number; one that acknowledges more is the peer's latest word, also where it came late
        let sequence = Seq(header.sequence);
        let newer =
            advanced > 0 || self.wl1.before(sequence) || (self.wl1 == sequence && self.wl2.until(ack));
        if newer && ack == self.una {
            if window > self.window {
                self.clear(flag::BLOCKED);
                if self.deadline == Deadline::Persist {
                    self.disarm();
                    self.duplicates = 0;
                    if let Some(active) =
                        self.active.as_deref_mut().filter(|active| !active.flight.is_empty())
                    {
                        // the window had shrunk over it: whether it was taken is not known
                        active.flight.lose_all();
                    }
                }
            }
            self.window = window;
            if self.wl1.before(sequence) {
                self.wl1 = sequence;
            }
            self.wl2 = ack;
            self.window_max = self.window_max.max(window);
        }
        if let Some(rtt) = result.rtt {
            self.rtt.sample(rtt);
        }
        if result.reordered {
            self.set(flag::REORDERED);
        }
        if advanced > 0 {
            self.duplicates = 0;
            self.retries = 0;
            let finished = self.has(flag::FIN_SENT) && !self.has(flag::FIN_ACKED) && self.una == self.nxt;
            let rtt = self.rtt.smoothed().unwrap_or(0);
            let what = Ack { bytes: advanced, una: self.una, now, rtt, mss: self.mss };
            let partial = self.congestion.acknowledged(env.config.control, &what);
            if partial
                && !sacks
                && let Some(active) = self.active.as_deref_mut()
            {
                // RFC 6582 section 3.2, step 3
                active.flight.lose_first();
            }
            // a probe that has not left asks for what is known now
            self.clear(flag::PROBED | flag::SEND_TAIL);
            if self.has(flag::FULL) && held > self.unacknowledged_bytes() {
                self.clear(flag::FULL);
                self.events |= event::WRITABLE;
            }
            if finished {
                self.set(flag::FIN_ACKED);
                self.fin_acknowledged(env);
            }
        } else if self.deadline == Deadline::Persist {
            self.retries = 0;
        }
        if !sacks && duplicate {
            self.duplicates = self.duplicates.saturating_add(1);
            if usize::from(self.duplicates) == DUPLICATES
                && let Some(active) = self.active.as_deref_mut()
            {
                active.flight.lose_first();
                let flight = self.nxt.since(self.una);
                self.congestion.loss_detected(env.config.control, flight, self.nxt, self.mss, None);
            }
        }
        let lost = self.active.as_ref().map_or(0, |active| active.flight.lost());
        let again = if sacks && result.progress { self.detect_losses(env) } else { None };
        if sacks && let Some(flight) = self.active.as_ref().map(|active| &active.flight) {
            let advances = advanced > 0 && flight.lost() <= lost;
            self.congestion.delivered(result.delivered, flight.pipe(), advances, self.mss);
        }
        match again {
            Some(at) => self.arm(Deadline::Reorder, at),
            None if advanced > 0 || result.progress => self.arm_retransmission(env),
            None => {}
        }
        self.rest(env.pool);
    }

    /// RACK: mark what is lost, and look again when the reordering window has passed.
    pub fn detect_losses(&mut self, env: &mut Env<'_>) -> Option<u64> {
        let (now, window) = (env.now, self.reordering_window());
        let active = self.active.as_deref_mut()?;
        let next = active.flight.detect(now, window);
        if active.flight.has_lost() {
            let (flight, pipe) = (self.nxt.since(self.una), active.flight.pipe());
            self.congestion.loss_detected(env.config.control, flight, self.nxt, self.mss, Some(pipe));
        }
        next
    }

    /// RFC 8985 section 6.2, step 4.
    fn reordering_window(&self) -> u64 {
        let sacked = self.active.as_ref().map_or(0, |active| active.flight.sacked_segments());
        if !self.has(flag::REORDERED) && (self.congestion.is_recovering() || sacked >= DUPLICATES) {
            return 0;
        }
        (self.rtt.shortest() / 4).min(self.rtt.smoothed().unwrap_or(0))
    }

    fn fin_acknowledged(&mut self, env: &mut Env<'_>) {
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if self.has(flag::ORPHAN) {
                    self.arm(Deadline::Gone, env.now.saturating_add(env.config.fin_timeout));
                }
            }
            State::Closing => self.time_wait(env),
            State::LastAck => self.end(),
            _ => {}
        }
    }

    /// How far the window reaches now, as the field says it: whole units, at the right edge never less than before by a unit.
    pub fn take_window(&mut self, scaled: bool, env: &Env<'_>) -> u16 {
        let free = env.config.receive_buffer.saturating_sub(self.readable() as u32);
        let kept = self.rcv_edge.since(self.rcv_nxt);
        let shift = if scaled { self.receive_scale } else { 0 };
        let field = (free.max(kept) >> shift).min(u16::MAX.into());
        self.rcv_edge = self.rcv_edge.later(self.rcv_nxt + (field << shift));
        field as u16
    }

    /// Payload and FIN.
    fn text(&mut self, header: &Header, payload: &[u8], env: &mut Env<'_>) -> bool {
        let fin = header.has(control::FIN);
        if payload.is_empty() && !fin {
            return false;
        }
        if !matches!(self.state, State::Established | State::FinWait1 | State::FinWait2) {
            // the peer has said before that it sends no more; a FIN is acknowledged once more
            if fin && self.state == State::TimeWait {
                self.set(flag::ACK_NOW);
            }
            return false;
        }
        let sequence = Seq(header.sequence);
        let end = sequence + payload.len() as u32;
        let new = self.rcv_nxt.before(end);
        if new && self.has(flag::ORPHAN) {
            // nobody reads it any more (section 3.6.1): as Linux does
            self.end();
            env.counters.resets_sent += 1;
            return true;
        }
        let (from, to) = (sequence.later(self.rcv_nxt), end.earlier(self.rcv_edge));
        let mut advanced = 0;
        let mut gap = false;
        if from.before(to) {
            let bytes = &payload[from.since(sequence) as usize..to.since(sequence) as usize];
            self.largest = self.largest.max(payload.len().clamp(536, u16::MAX.into()) as u16);
            let offset = from.since(self.rcv_nxt);
            let had_gap = self.active.as_ref().is_some_and(|active| active.receive.has_gap());
            advanced = self.active(env.pool).receive.insert(offset, bytes);
            gap = had_gap || offset > 0;
        } else if !payload.is_empty() {
            env.counters.duplicates += u64::from(!new);
            self.set(flag::ACK_NOW);
        }
        self.rcv_nxt += advanced;
        env.counters.bytes_received += u64::from(advanced);
        if fin && to == end {
            self.active(env.pool).fin_at = Some(end);
        }
        let finished = self.active.as_ref().is_some_and(|active| active.fin_at == Some(self.rcv_nxt));
        if advanced > 0 {
            self.events |= event::READABLE;
        }
        if finished {
            self.active(env.pool).fin_at = None;
            self.rcv_nxt += 1;
            self.fin_received(env);
        } else if gap || fin {
            self.set(flag::ACK_NOW);
        } else if advanced > 0 {
            self.delay_ack(env);
        }
        self.rest(env.pool);
        false
    }

    /// RFC 5681 section 4.2: at once for every second full segment, as large as any that came, else within the delay.
    fn delay_ack(&mut self, env: &mut Env<'_>) {
        if self.rcv_nxt.since(self.last_ack) >= 2 * u32::from(self.largest) {
            self.set(flag::ACK_NOW);
        } else {
            self.ack_at = self.ack_at.min(env.now.saturating_add(env.config.delayed_ack));
        }
    }

    /// Whether a SYN begins a new connection in place of this one, which is only remembered (RFC 6191 section 2): by its
    /// timestamp where both have one, else by its sequence number. `timestamps`: whether the new one would have them.
    pub fn is_superseded(&self, header: &Header, timestamps: bool) -> bool {
        let ahead = self.rcv_nxt.before(Seq(header.sequence));
        let value = header.options.timestamps.filter(|_| timestamps).map(|(value, _)| value);
        let newer = match value {
            Some(value) if self.has(flag::TIMESTAMPS) => match value.wrapping_sub(self.ts_recent) as i32 {
                0 => ahead,
                age => age > 0,
            },
            Some(_) => true,
            None => ahead,
        };
        self.state == State::TimeWait && newer
    }

    fn fin_received(&mut self, env: &mut Env<'_>) {
        self.set(flag::FIN_RECEIVED | flag::ACK_NOW);
        self.events |= event::READABLE | event::ENDED;
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.time_wait(env),
            _ => {}
        }
    }
}
