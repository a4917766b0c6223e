//! How long the active NAT may translate without having told its standby that it is there: shorter than the standby waits before it takes
//! over. Both sides measure their own time from one heartbeat, so an active NAT that hung and wakes up is silent by itself.
//!
//! ```text
//!  active    clock read ── heartbeat sent ── checked ──── 5/6 of the silence ────▶ translates no more
//!  standby                      └─ heard ─────────────────────── the silence ──────────▶ takes over
//! ```

/// The active NAT's side.
#[derive(Debug, Clone, Copy)]
pub struct Lease {
    silence: u64,
    /// When the last heartbeat that was sent was begun; `None`: there is no standby yet.
    sent: Option<u64>,
}

/// It may have lapsed: somebody else may translate by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseLapse;

impl Lease {
    /// With a standby that takes over after so long, ns.
    pub fn new(silence: u64) -> Self {
        Self { silence, sent: None }
    }

    /// When the next heartbeat is due.
    pub fn due(&self) -> u64 {
        self.sent.map_or(0, |sent| sent + self.silence / 3)
    }

    /// A heartbeat was begun at `began` and is sent `now`. Until when it may translate.
    pub fn renew(&mut self, began: u64, now: u64) -> Result<u64, LeaseLapse> {
        if self.sent.is_some_and(|sent| now >= sent + self.length()) {
            return Err(LeaseLapse);
        }
        self.sent = Some(began);
        Ok(began + self.length())
    }

    /// Whether it may not translate any more at this time.
    pub fn is_over(&self, now: u64) -> bool {
        self.sent.is_some_and(|sent| now >= sent + self.length())
    }

    fn length(&self) -> u64 {
        self.silence / 6 * 5
    }
}

/// The standby's side.
#[derive(Debug, Clone, Copy)]
pub struct Watch {
    silence: u64,
    heard: u64,
}

impl Watch {
    /// Of a NAT that is heard at `now`.
    pub fn new(silence: u64, now: u64) -> Self {
        Self { silence, heard: now }
    }

    /// A message came.
    pub fn message_received(&mut self, now: u64) {
        self.heard = now;
    }

    /// When the last message came.
    pub fn last_message(&self) -> u64 {
        self.heard
    }

    /// Whether it was silent for too long, where nothing of it waits to be read.
    pub fn is_silent(&self, now: u64) -> bool {
        now >= self.heard + self.silence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const SILENCE: u64 = 300 * MS;

    #[test]
    fn heartbeats_keep_it_and_a_hang_ends_it() {
        let mut lease = Lease::new(SILENCE);
        assert!(!lease.is_over(u64::MAX), "nobody would take over");
        assert_eq!((lease.due(), lease.renew(0, MS)), (0, Ok(250 * MS)));
        assert_eq!(lease.due(), 100 * MS);
        assert_eq!(lease.renew(100 * MS, 249 * MS), Ok(350 * MS));
        // It hung between reading the clock and having sent.
        assert_eq!(lease.renew(200 * MS, 350 * MS), Err(LeaseLapse));
        assert!(lease.is_over(350 * MS) && !lease.is_over(349 * MS));
    }

    proptest! {
        /// Each step of the active NAT may hang for any time, and each message may take any time: they never translate both.
        #[test]
        fn never_both(steps in prop::collection::vec((0..150u64, 0..150u64, 0..40u64), 1..60)) {
            let mut lease = Lease::new(SILENCE);
            let mut active_until = 0;
            // When each heartbeat lies in the standby's socket, in order; it reads them at once, or later.
            let (mut now, mut messages) = (0, Vec::new());
            for (before, after, pause) in steps {
                let began = now;
                now += before * MS;
                messages.push(now);
                now += after * MS;
                match lease.renew(began, now) {
                    Ok(until) => active_until = until,
                    Err(LeaseLapse) => break,
                }
                now += pause * MS;
            }
            // The standby looks at every instant at which a message has come, and takes over at the first that is too late.
            let mut watch = Watch::new(SILENCE, messages[0]);
            let mut taken = None;
            for message in &messages[1..] {
                if watch.is_silent(*message) {
                    taken = Some(watch.last_message() + SILENCE);
                    break;
                }
                watch.message_received(*message);
            }
            let taken = taken.unwrap_or(watch.last_message() + SILENCE);
            prop_assert!(active_until <= taken, "translates until {active_until}, and the other from {taken} on");
        }
    }
}
