//! Trials over the kernel's sockets.
#![allow(dead_code, unused_imports, reason = "each test file uses some of it")]

use run::Control;
use run::flows::Flows;
use run::result::TrialResult;
use serde_json::Value;
use sockets::Sockets;
pub use testbed::net;
pub use testbed::trial::{profile, total};

/// Run a profile to its end.
pub fn run(profile: &Value) -> (TrialResult, Flows) {
    run_with(profile, |_| {})
}

/// Run a profile to its end; `meanwhile` has the run's control.
pub fn run_with(profile: &Value, meanwhile: impl FnOnce(&Control)) -> (TrialResult, Flows) {
    let make = |profile: &profile::Profile| {
        let profile::Transport::Sockets(settings) = &profile.transport else { panic!("not sockets") };
        Sockets::new(settings)
    };
    let done = testbed::trial::run_with(profile, make, |_| (), |_, control| meanwhile(control));
    done.unwrap_or_else(|why| panic!("{why}"))
}
