//! `capture.*`: packets for Wireshark.

use super::{Answer, NoParams};
use crate::caller::Caller;
use protocol::unit::Size;
use serde::Deserialize;
use serde_json::json;
use system::rpc::{BAD_PARAMS, Error, NOTHING_THERE};

/// Where to, and what.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    path: String,
    #[serde(default)]
    interface: Option<String>,
    #[serde(default)]
    filter: Option<String>,
    #[serde(default)]
    limit: Option<Size>,
    #[serde(default)]
    snap: Option<u32>,
}

/// Begin, in a new file; ends one that is under way.
pub fn start(caller: &Caller, params: Start) -> Answer {
    caller.core.as_writer(caller.session)?;
    let defaults = profile::Capture::default();
    let settings = profile::Capture {
        interface: params.interface,
        filter: params.filter.unwrap_or_default(),
        limit: params.limit.unwrap_or(defaults.limit),
        snap: params.snap.unwrap_or(defaults.snap),
    };
    let wrong = |error: profile::Error| Error::of(BAD_PARAMS, &error);
    profile::check_capture(&settings, "params").map_err(wrong)?;
    let path = caller.files().file("capture.path", &params.path)?;
    let status = caller.core.start_capture(caller.session, &settings, &path)?;
    Ok(json!({"path": status.path, "interface": status.interface}))
}

/// End it; what was captured is in the file then.
pub fn stop(caller: &Caller, _: NoParams) -> Answer {
    caller.core.as_writer(caller.session)?;
    Ok(json!(caller.core.capture().as_mut().ok_or_else(no_capture)?.stop()))
}

/// How it is getting on.
pub fn status(caller: &Caller, _: NoParams) -> Answer {
    Ok(json!(caller.core.capture().as_ref().ok_or_else(no_capture)?.status()))
}

fn no_capture() -> Error {
    Error::new(NOTHING_THERE, "ND-104-11", "capture", "nothing is being captured", "Call capture.start first")
}
