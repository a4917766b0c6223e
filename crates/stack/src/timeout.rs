//! Deadlines of a connection: retransmission, probes, delayed acknowledgments, and the end of waiting.

use crate::config::{MS, SECOND};
use crate::connection::{CloseReason, Connection, Deadline, Env, State, flag};

/// Least time until a tail loss probe: below it a host that is busy looks like a loss.
const PROBE_MIN: u64 = 10 * MS;
/// How long a peer may delay the acknowledgment of a single segment (RFC 8985 section 7.2).
const PEER_DELAY: u64 = 200 * MS;
/// Time between questions to a silent peer, and how many remain without an answer before it is given up: as Linux has them.
const KEEP_ALIVE_INTERVAL: u64 = 75 * SECOND;
const KEEP_ALIVES: u8 = 9;
/// Timeouts in a row after which the path is taken for one that swallows large packets and does not say so, and what payload is
/// tried then (RFC 2923 section 2.1; RFC 4821 section 7.7: 1024 bytes, then 512, as Linux does).
const BLACK_HOLES: [(u8, u16); 2] = [(2, 1024), (4, 512)];

impl Connection {
    /// Its time has come.
    pub fn timer(&mut self, env: &mut Env<'_>) {
        if self.ack_at <= env.now {
            self.ack_at = u64::MAX;
            self.set(flag::ACK_NOW);
        }
        if self.deadline_at > env.now {
            return;
        }
        match self.deadline {
            Deadline::None => {}
            Deadline::Retransmit => self.retransmission_timeout(env),
            Deadline::Probe => {
                env.counters.probes += 1;
                self.disarm();
                self.set(flag::PROBED | flag::SEND_TAIL);
            }
            Deadline::Reorder => match self.detect_losses(env) {
                Some(at) => self.arm(Deadline::Reorder, at),
                None => self.arm_retransmission(env),
            },
            Deadline::Persist => {
                self.retries += 1;
                if self.retries > env.config.retries {
                    return self.fail(CloseReason::TimedOut);
                }
                self.duplicates = self.duplicates.saturating_add(1);
                self.set(flag::SEND_PROBE);
                self.persist(env);
            }
            Deadline::KeepAlive if self.retries >= KEEP_ALIVES => {
                self.fail(CloseReason::TimedOut);
                self.set(flag::SEND_RST);
            }
            Deadline::KeepAlive => {
                self.retries += 1;
                self.set(flag::SEND_PROBE);
                let wait = KEEP_ALIVE_INTERVAL.min(env.config.keep_alive);
                self.arm(Deadline::KeepAlive, env.now.saturating_add(wait));
            }
            Deadline::Gone => self.end(),
        }
    }

    fn retransmission_timeout(&mut self, env: &mut Env<'_>) {
        let up = self.has(flag::UP);
        let most = if up { env.config.retries } else { env.config.syn_retries };
        debug_assert!(!up || self.in_flight() > 0, "nothing is in flight");
        if up && self.window == 0 {
            // the peer took back what it offered, and lives (RFC 9293 section 3.8.6): ask, and do not give up while it answers
            self.set(flag::SEND_PROBE);
            return self.persist(env);
        }
        env.counters.timeouts += 1;
        if self.retries >= most {
            return self.fail(CloseReason::TimedOut);
        }
        self.retries += 1;
        if !up {
            self.disarm();
            return self.set(flag::SEND_SYN);
        }
        self.suspect_path(env);
        let control = env.config.control;
        self.congestion.timed_out(control, self.in_flight(), self.nxt, self.mss, self.retries > 1);
        if let Some(active) = self.active.as_deref_mut() {
            active.flight.lose_all();
        }
        self.clear(flag::SEND_TAIL);
        self.arm(Deadline::Retransmit, env.now.saturating_add(self.rtt.timeout(env.config, self.retries)));
    }

    /// Large segments are not acknowledged at all: try smaller ones.
    fn suspect_path(&mut self, env: &mut Env<'_>) {
        let first = self.active.as_ref().map_or(0, |active| active.flight.first_len());
        for (retries, mss) in BLACK_HOLES {
            if self.retries == retries && self.mss > mss && first > u32::from(mss) {
                self.mss = mss;
                // it holds for this connection, whatever routers say later
                self.clear(flag::SMALL_PATH);
                env.counters.path_mtu_guesses += 1;
            }
        }
    }

    /// Something came, or nothing is awaited any more: from now on the peer may be silent for so long.
    pub fn watch_peer(&mut self, env: &Env<'_>) {
        let open = self.has(flag::UP) && !matches!(self.state, State::Closed | State::TimeWait);
        if env.config.keep_alive == 0 || !open || !self.is_quiet() {
            return;
        }
        if self.deadline == Deadline::KeepAlive {
            self.retries = 0;
        }
        self.arm(Deadline::KeepAlive, env.now.saturating_add(env.config.keep_alive));
    }

    /// Wait for the peer's window to open, longer each time (RFC 9293 section 3.8.6.1).
    pub fn persist(&mut self, env: &Env<'_>) {
        let wait = self.rtt.timeout(env.config, self.duplicates);
        self.arm(Deadline::Persist, env.now.saturating_add(wait));
    }

    /// Wait for what is in flight, or for nothing.
    pub fn arm_retransmission(&mut self, env: &Env<'_>) {
        if self.deadline == Deadline::Gone {
            return;
        }
        let Some(active) = self.active.as_ref().filter(|active| !active.flight.is_empty()) else {
            return self.disarm();
        };
        let timeout = self.rtt.timeout(env.config, self.retries);
        let probes = self.has(flag::SACK)
            && !self.has(flag::PROBED)
            && self.retries == 0
            && !self.congestion.is_recovering()
            && !active.flight.has_lost();
        if probes && let Some(smoothed) = self.rtt.smoothed() {
            let alone = if active.flight.segments() == 1 { PEER_DELAY } else { 0 };
            let wait = (2 * smoothed).max(PROBE_MIN) + alone;
            if wait < timeout {
                return self.arm(Deadline::Probe, env.now.saturating_add(wait));
            }
        }
        self.arm(Deadline::Retransmit, env.now.saturating_add(timeout));
    }
}
