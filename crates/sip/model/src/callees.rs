//! Callees of a run that register before they are called.
//!
//! A server does not find a callee whose registration is still under way. A call that fails so says nothing about the server,
//! but that the load began too early: it is a failure of the generator's own, and the run is invalid. The groups of a run know
//! their callees from here; a lock is taken as a callee registers and as a call fails, and not otherwise.

use crate::message::fingerprint;
use crate::per_run::{self, Runs, locked};
use protocol::time::Time;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Name of the cause of calls that came too early.
pub(crate) const CALLED_EARLY: &str = "called before its registration";

/// Callees of the runs under way, by the number of the run.
static RUNS: Runs<Callees> = Mutex::new(Vec::new());

/// When each callee of a run registered, by its address of record; [`Time::NEVER`]: it has yet to.
#[derive(Debug, Default)]
pub(crate) struct Callees(Mutex<HashMap<u64, Time>>);

impl Callees {
    /// Those of run number `trial`.
    pub fn of(trial: u64) -> Arc<Self> {
        per_run::of(&RUNS, trial)
    }

    /// The callee at this address of record is going to register.
    pub fn expect(&self, address: &[u8]) {
        locked(&self.0).entry(fingerprint(address)).or_insert(Time::NEVER);
    }

    /// It has registered.
    pub fn registered(&self, address: &[u8], now: Time) {
        let mut all = locked(&self.0);
        let since = all.entry(fingerprint(address)).or_insert(now);
        *since = now.min(*since);
    }

    /// It has not, and that is a failure by itself: calls to it are judged like those to others.
    pub fn failed(&self, address: &[u8]) {
        let mut all = locked(&self.0);
        let address = fingerprint(address);
        if all.get(&address) == Some(&Time::NEVER) {
            all.remove(&address);
        }
    }

    /// Whether a call that was due at `due` came before the registration of its callee.
    pub fn is_early(&self, address: &[u8], due: Time) -> bool {
        locked(&self.0).get(&fingerprint(address)).is_some_and(|since| *since > due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callees_are_known_to_all_groups_of_a_run_and_to_no_other() {
        let (ours, same, other) = (Callees::of(91), Callees::of(91), Callees::of(92));
        ours.expect(b"sip:a@x");
        assert!(same.is_early(b"sip:a@x", Time(5)) && !other.is_early(b"sip:a@x", Time(5)));
        assert!(!same.is_early(b"sip:b@x", Time(5)), "nobody that is ours");
        ours.registered(b"sip:a@x", Time(9));
        ours.registered(b"sip:a@x", Time(20));
        ours.failed(b"sip:a@x");
        assert!(same.is_early(b"sip:a@x", Time(8)) && !same.is_early(b"sip:a@x", Time(9)));
        drop((ours, same));
        assert!(!Callees::of(91).is_early(b"sip:a@x", Time(5)), "the run is over");
    }

    #[test]
    fn a_registration_that_failed_excuses_no_call() {
        let all = Callees::default();
        all.expect(b"sip:a@x");
        all.failed(b"sip:a@x");
        assert!(!all.is_early(b"sip:a@x", Time(5)));
    }
}
