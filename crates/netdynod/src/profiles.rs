//! Profiles as the daemon takes them: right by themselves, and with a graph that its elements can make.

use profile::{Error, Profile};

/// Read and check a profile, and the graph of its ports.
pub fn load(text: &str) -> Result<Profile, Vec<Error>> {
    let profile = profile::load(text)?;
    let faults = stream::graph::check(&profile);
    if faults.is_empty() { Ok(profile) } else { Err(faults) }
}
