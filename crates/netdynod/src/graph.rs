//! The graph of a profile, or of the run, for those who watch.

use crate::rpc::{BAD_PROFILE, Error, NOTHING_THERE};
use crate::run::Run;
use profile::Transport as Chosen;
use serde_json::Value;
use traffic::Transport;
use traffic::dpdk::Dpdk;
use traffic::dpdk::observe::Observer;

/// Of a profile: nothing is opened or started.
pub fn planned(profile: &Value) -> Result<Observer, Error> {
    let profile = profile::load(&profile.to_string()).map_err(|errors| Error::all(BAD_PROFILE, &errors))?;
    match &profile.transport {
        Chosen::Sockets(_) => None,
        Chosen::Dpdk(settings) => Dpdk::new(settings)?.observe(),
    }
    .ok_or_else(none)
}

/// Of the run, whether it goes on or is over.
pub fn of(run: &Run) -> Result<Observer, Error> {
    run.observe().ok_or_else(none)
}

fn none() -> Error {
    let what = "traffic over sockets has no graph of elements";
    Error::new(NOTHING_THERE, "ND-104-11", "transport", what, "Use a profile whose transport is dpdk")
}
