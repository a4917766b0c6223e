//! The graph of a profile, of the run, or of a link between ports, for those who watch.

use crate::files::Files;
use crate::profiles;
use crate::run::Run;
use profile::{Profile, Transport};
use run::graph::GraphView;
use serde_json::Value;
use system::Registry;
use system::rpc::{BAD_PROFILE, Error, NOTHING_THERE};

fn load(profile: &Value, files: Files<'_>, registry: &Registry) -> Result<Profile, Error> {
    Ok(profiles::load(&profile.to_string(), files, registry.kinds())?)
}

/// The profile with its elements named, as what its ports' roles stand for.
pub fn expanded(profile: &Value, files: Files<'_>, registry: &Registry) -> Result<Profile, Error> {
    let profile = load(profile, files, registry)?;
    if profile.has_devices() || !matches!(profile.transport, Transport::Dpdk(_)) {
        return Err(no_graph());
    }
    stream::graph::expanded(&profile, registry.kinds()).map_err(|errors| Error::all(BAD_PROFILE, &errors))
}

/// Of a profile: nothing is opened or started.
pub fn planned(profile: &Value, files: Files<'_>, registry: &Registry) -> Result<Box<dyn GraphView>, Error> {
    let profile = load(profile, files, registry)?;
    registry.transport(&profile)?.1.graph().ok_or_else(no_graph)
}

/// Of the run, whether it goes on or is over.
pub fn of(run: &Run) -> Result<Box<dyn GraphView>, Error> {
    run.graph().ok_or_else(no_graph)
}

fn no_graph() -> Error {
    let what = "traffic over sockets, and of devices with connections, has no graph of elements";
    Error::new(
        NOTHING_THERE,
        "ND-104-11",
        "transport",
        what,
        "Use a profile of streams whose transport is dpdk",
    )
}
