//! Trials over the kernel's sockets.
#![allow(dead_code, unused_imports, reason = "each test file uses some of it")]

use protocol::meter::{Phase, Tally};
use run::Sample;
use run::flows::Flows;
use run::result::TrialResult;
use run::{Control, SetupError};
use serde_json::Value;
use sockets::Sockets;
use std::time::{Duration, Instant};
pub use testbed::net;
pub use testbed::trial::{profile, total};

/// Run a profile to its end.
pub fn run(profile: &Value) -> (TrialResult, Flows) {
    run_with(profile, |_| {})
}

/// Run a profile to its end; `meanwhile` has the run's control.
pub fn run_with(profile: &Value, meanwhile: impl FnOnce(&Control)) -> (TrialResult, Flows) {
    let done = testbed::trial::run_with(profile, make, |_| (), |_, control| meanwhile(control));
    done.unwrap_or_else(|why| panic!("{why}"))
}

/// Run a profile until the first group's tally of the measure phase is `enough`.
pub fn run_until(profile: &Value, enough: impl Fn(&Tally) -> bool) -> (TrialResult, Flows) {
    let (mut sum, patience) = (None::<Tally>, Instant::now() + Duration::from_secs(120));
    let mut ended = false;
    let seen = |sample: &Sample, control: &Control| {
        let measured = &sample.groups[0][Phase::Measure as usize];
        let sum = match &mut sum {
            Some(sum) => {
                sum.merge(measured);
                sum
            }
            None => sum.insert(measured.clone()),
        };
        if !ended && (enough(sum) || Instant::now() > patience) {
            ended = true;
            control.stop();
        }
    };
    let done = testbed::trial::run_watched(profile, make, |_| (), |_, _| (), seen);
    done.unwrap_or_else(|why| panic!("{why}"))
}

fn make(profile: &profile::Profile) -> Result<Sockets, SetupError> {
    let profile::Transport::Sockets(settings) = &profile.transport else { panic!("not sockets") };
    Sockets::new(settings)
}
