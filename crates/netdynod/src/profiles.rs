//! Profiles as the daemon takes them: with files that may be named, right by themselves, and with a graph that its elements
//! can make.

use crate::files::Files;
use element::registry::Registry as Kinds;
use profile::{Error, Profile, Transport};
use system::rpc::{self, BAD_PROFILE};

/// Why a profile is not taken.
#[derive(Debug)]
pub enum Refusal {
    /// All that is wrong with it.
    Faults(Vec<Error>),
    /// It names what this caller may not name: nothing of it was opened.
    NotAllowed(rpc::Error),
}

impl From<Vec<Error>> for Refusal {
    fn from(faults: Vec<Error>) -> Self {
        Self::Faults(faults)
    }
}

impl From<Refusal> for rpc::Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Faults(faults) => Self::all(BAD_PROFILE, &faults),
            Refusal::NotAllowed(error) => error,
        }
    }
}

/// Read and check a profile, and the graph of its ports; its files are those that `files` lets be named.
pub fn load(text: &str, files: Files<'_>, kinds: &Kinds) -> Result<Profile, Refusal> {
    let profile = profile::load_resolved(text, |profile| {
        files.of_profile(profile, kinds).map_err(Refusal::NotAllowed)
    })?;
    let mut faults = match &profile.transport {
        Transport::Dpdk(dpdk) => dataplane::ports::check_devices(&dpdk.ports),
        _ => Vec::new(),
    };
    faults.extend(endpoint::check(&profile));
    if faults.is_empty() {
        faults = stream::graph::check(&profile, kinds);
    }
    if faults.is_empty() { Ok(profile) } else { Err(faults.into()) }
}
