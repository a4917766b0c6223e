//! Deadlines of a connection: retransmission, probes, delayed acknowledgments, and the end of waiting.

use crate::config::MS;
use crate::connection::{CloseReason, Connection, Deadline, Env, flag};

/// Least time until a tail loss probe: below it a host that is busy looks like a loss.
const PROBE_MIN: u64 = 10 * MS;
/// How long a peer may delay the acknowledgment of a single segment (RFC 8985 section 7.2).
const PEER_DELAY: u64 = 200 * MS;

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
            Deadline::Gone => self.end(),
        }
    }

    fn retransmission_timeout(&mut self, env: &mut Env<'_>) {
        let up = self.has(flag::UP);
        let most = if up { env.config.retries } else { env.config.syn_retries };
        env.counters.timeouts += 1;
        if self.retries >= most {
            return self.fail(CloseReason::TimedOut);
        }
        self.retries += 1;
        if !up {
            self.disarm();
            return self.set(flag::SEND_SYN);
        }
        self.congestion.timed_out(self.in_flight(), self.nxt, self.mss, self.retries > 1);
        if let Some(active) = self.active.as_deref_mut() {
            active.flight.lose_all();
        }
        self.clear(flag::SEND_TAIL);
        self.arm(Deadline::Retransmit, env.now.saturating_add(self.rtt.timeout(env.config, self.retries)));
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
