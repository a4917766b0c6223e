//! Who writes, and whether he is still there. Told what happened and what time it is; keeps no clock.

use crate::session::Session;
use std::time::{Duration, Instant};

/// A writer who is silent for so long has lost his lease.
pub const LEASE: Duration = Duration::from_secs(3);

/// One writer at a time, or none.
#[derive(Debug, Default)]
pub struct Lease(Option<Writer>);

#[derive(Debug)]
struct Writer {
    /// `None` when he left: the lease runs on, for another to take it over.
    session: Option<Session>,
    heard: Instant,
    /// We are at work on a call of his: the silence is ours.
    busy: bool,
}

impl Writer {
    fn is_expired(&self, now: Instant) -> bool {
        !self.busy && now.saturating_duration_since(self.heard) >= LEASE
    }
}

impl Lease {
    /// Make `session`, whose call this is, the writer. False when another is.
    pub fn acquire(&mut self, session: Session, now: Instant) -> bool {
        let taken =
            self.0.as_ref().is_some_and(|w| w.session.is_some_and(|s| s != session) && !w.is_expired(now));
        if !taken {
            self.0 = Some(Writer { session: Some(session), heard: now, busy: true });
        }
        !taken
    }

    /// The writer whose call we are at work on, and since when.
    pub fn busy(&self) -> Option<(Session, Instant)> {
        let writer = self.0.as_ref().filter(|writer| writer.busy)?;
        Some((writer.session?, writer.heard))
    }

    /// Whether `session` is the writer.
    pub fn is_writer(&self, session: Session) -> bool {
        self.0.as_ref().is_some_and(|w| w.session == Some(session))
    }

    /// A call of `session` begins (`busy`) or is answered: either way he was heard from.
    pub fn renew(&mut self, session: Session, busy: bool, now: Instant) {
        if let Some(w) = self.0.as_mut().filter(|w| w.session == Some(session)) {
            (w.heard, w.busy) = (now, busy);
        }
    }

    /// `session` writes no more. Another may, at once; if nobody does the lease lapses as if he were silent.
    pub fn release(&mut self, session: Session, now: Instant) {
        if self.is_writer(session) {
            self.0 = Some(Writer { session: None, heard: now, busy: false });
        }
    }

    /// Take the lease from a writer who has been silent for too long. True when that happened now.
    pub fn expire(&mut self, now: Instant) -> bool {
        self.0.take_if(|w| w.is_expired(now)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALMOST: Duration = Duration::from_millis(2999);

    #[test]
    fn one_writes_until_he_is_silent_for_too_long() {
        let (mut lease, t) = (Lease::default(), Instant::now());
        assert!(!lease.is_writer(1) && !lease.expire(t + LEASE));
        assert!(lease.acquire(1, t));
        lease.renew(1, false, t);
        assert!(lease.is_writer(1) && !lease.is_writer(2));
        assert!(!lease.acquire(2, t + ALMOST) && !lease.expire(t + ALMOST));
        assert!(lease.acquire(1, t + ALMOST), "again is no fault");
        lease.renew(1, false, t + ALMOST);
        assert!(!lease.expire(t + LEASE));
        assert!(lease.expire(t + ALMOST + LEASE) && !lease.is_writer(1));
        assert!(!lease.expire(t + ALMOST + LEASE), "once");
    }

    #[test]
    fn a_lease_that_lapsed_unseen_can_be_taken() {
        let (mut lease, t) = (Lease::default(), Instant::now());
        lease.acquire(1, t);
        lease.renew(1, false, t);
        assert!(lease.acquire(2, t + LEASE) && lease.is_writer(2) && !lease.is_writer(1));
    }

    #[test]
    fn our_own_work_is_not_his_silence() {
        let (mut lease, t) = (Lease::default(), Instant::now());
        lease.acquire(1, t);
        assert!(!lease.expire(t + 10 * LEASE) && !lease.acquire(2, t + 10 * LEASE));
        lease.renew(1, false, t + 10 * LEASE);
        assert!(!lease.expire(t + 10 * LEASE + ALMOST) && lease.expire(t + 11 * LEASE));
    }

    #[test]
    fn calls_of_others_do_not_keep_it() {
        let (mut lease, t) = (Lease::default(), Instant::now());
        lease.acquire(1, t);
        lease.renew(1, false, t);
        lease.renew(2, true, t + ALMOST);
        lease.release(2, t + ALMOST);
        assert!(lease.expire(t + LEASE));
    }

    #[test]
    fn who_leaves_is_followed_by_another_or_by_the_end() {
        let (mut lease, t) = (Lease::default(), Instant::now());
        lease.acquire(1, t);
        lease.release(1, t);
        lease.renew(1, false, t + ALMOST);
        assert!(!lease.is_writer(1) && !lease.expire(t + ALMOST));
        assert!(lease.acquire(2, t + ALMOST) && lease.is_writer(2));
        lease.release(2, t + ALMOST);
        assert!(!lease.expire(t + LEASE) && lease.expire(t + ALMOST + LEASE));
    }
}
