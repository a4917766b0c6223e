//! A NAT that takes over tells switches and routers where its addresses are now.

use crate::pair::Duty;
use ::element::interface_addr::InterfaceAddr;
use dpdk::{Batch, Mempool};
use std::sync::Arc;

/// Addresses that are announced at once, and the time until the next ones, ns.
const AT_ONCE: usize = 16;
const PAUSE: u64 = 1_000_000;
/// All of it is said twice (RFC 5227 section 2.3), ns after the first time.
const AGAIN: u64 = 2_000_000_000;
/// Bytes of the shortest frame.
const SHORTEST: usize = 60;

/// Who announces the addresses of a port.
#[derive(Debug)]
pub struct Announcer {
    duty: Arc<Duty>,
    addrs: Vec<InterfaceAddr>,
    /// How often the NAT had begun to translate when it was announced.
    begun: u32,
    rounds: Rounds,
}

impl Announcer {
    /// Of these addresses.
    pub fn new(duty: Arc<Duty>, addrs: Vec<InterfaceAddr>) -> Self {
        Self { duty, addrs, begun: 0, rounds: Rounds::default() }
    }

    /// Whether the NAT translates.
    pub fn is_active(&self, now: u64) -> bool {
        self.duty.is_active(now)
    }

    /// Announce some of them if it is time.
    pub fn send(&mut self, batch: &mut Batch, pool: &Mempool, now: u64) {
        if !self.duty.is_active(now) {
            return;
        }
        if self.begun != self.duty.begun() {
            self.begun = self.duty.begun();
            self.rounds = Rounds { left: 2, at: 0, due: now };
        }
        self.rounds.announce(&self.addrs, batch, pool, now, |_| true);
    }
}

/// Addresses that have come to a port, until all of them are announced.
#[derive(Debug, Default)]
pub struct Newcomers {
    addrs: Vec<InterfaceAddr>,
    rounds: Rounds,
}

impl Newcomers {
    /// These have come; what is left of those before is announced with them.
    pub fn add(&mut self, addrs: impl Iterator<Item = InterfaceAddr>, now: u64) {
        self.addrs.extend(addrs);
        self.rounds = Rounds { left: 2, at: 0, due: now };
    }

    /// Announce some of them if it is time, as far as they are `there` still.
    pub fn send(
        &mut self,
        batch: &mut Batch,
        pool: &Mempool,
        now: u64,
        there: impl Fn(&InterfaceAddr) -> bool,
    ) {
        if self.addrs.is_empty() {
            return;
        }
        self.rounds.announce(&self.addrs, batch, pool, now, there);
        if self.rounds.left == 0 {
            self.addrs = Vec::new();
        }
    }
}

/// Which addresses are next.
#[derive(Debug, Default)]
struct Rounds {
    left: u32,
    at: usize,
    due: u64,
}

impl Rounds {
    /// Announce the next of these if it is time, as far as they are `there`.
    fn announce(
        &mut self,
        addrs: &[InterfaceAddr],
        batch: &mut Batch,
        pool: &Mempool,
        now: u64,
        there: impl Fn(&InterfaceAddr) -> bool,
    ) {
        let (from, to) = self.next(addrs.len(), now);
        let mut done = 0;
        for addr in addrs.get(from..to).unwrap_or(&[]) {
            if there(addr) {
                let Some(mut mbuf) = pool.packet(&[0; SHORTEST]) else { break };
                if addr.announce(mbuf.data_mut()).is_some() && batch.push(mbuf).is_err() {
                    break;
                }
            }
            done += 1;
        }
        if from < to {
            self.note(done, addrs.len(), now);
        }
    }

    /// From this one of so many to that.
    fn next(&self, count: usize, now: u64) -> (usize, usize) {
        if self.left == 0 || now < self.due {
            return (0, 0);
        }
        (self.at, (self.at + AT_ONCE).min(count))
    }

    /// So many of those were announced; the others found no room, and are the next.
    fn note(&mut self, done: usize, count: usize, now: u64) {
        (self.at, self.due) = (self.at + done, now + PAUSE);
        if self.at >= count {
            (self.left, self.at, self.due) = (self.left - 1, 0, now + AGAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_announced_twice_some_at_a_time() {
        let mut rounds = Rounds { left: 2, at: 0, due: 5 };
        assert_eq!(rounds.next(40, 4), (0, 0), "it is not time");
        let (mut now, mut said) = (5, Vec::new());
        for _ in 0..8 {
            let (from, to) = rounds.next(40, now);
            // Once there is room for some of them only.
            let done = if said.len() == 16 { 5 } else { to - from };
            said.extend(from..from + done);
            rounds.note(done, 40, now);
            assert_eq!(rounds.next(40, now), (0, 0), "not at once");
            now = rounds.due;
        }
        assert_eq!(said, (0..40).chain(0..40).collect::<Vec<_>>());
        assert!(now >= 5 + 2 * AGAIN);
        assert_eq!(Rounds { left: 1, at: 0, due: 0 }.next(0, 0), (0, 0));
    }
}
