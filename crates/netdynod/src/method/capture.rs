//! `capture.*`: packets for Wireshark.

use super::{Answer, Nothing};
use crate::connection::Caller;
use crate::rpc::{Error, NOTHING_THERE};
use protocol::unit::Size;
use serde::Deserialize;
use serde_json::json;
use std::path::PathBuf;
use traffic::capture::Capture;

/// Where to, and what.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    path: PathBuf,
    #[serde(default)]
    interface: Option<String>,
    #[serde(default)]
    filter: Option<String>,
    #[serde(default)]
    limit: Option<Size>,
    #[serde(default)]
    snap: Option<u32>,
}

/// Begin; ends one that is under way.
pub fn start(caller: &Caller, params: Start) -> Answer {
    caller.core.as_writer(caller.session)?;
    let towards = caller.core.run().and_then(|r| r.plan.groups.first().map(|g| g.address));
    let defaults = profile::Capture::default();
    let settings = profile::Capture {
        interface: params.interface,
        filter: params.filter.unwrap_or_default(),
        limit: params.limit.unwrap_or(defaults.limit),
        snap: params.snap.unwrap_or(defaults.snap),
    };
    let mut place = caller.core.capture();
    *place = None;
    let capture = match caller.core.run().and_then(|run| run.capture(&settings)) {
        Some(source) => Capture::start_from(source?, &settings, &params.path)?,
        None => Capture::start(&settings, &params.path, towards)?,
    };
    let status = capture.status();
    *place = Some(capture);
    Ok(json!({"path": status.path, "interface": status.interface}))
}

/// End it; what was captured is in the file then.
pub fn stop(caller: &Caller, _: Nothing) -> Answer {
    caller.core.as_writer(caller.session)?;
    match caller.core.capture().as_mut() {
        Some(capture) => Ok(serde_json::to_value(capture.stop()).unwrap_or_default()),
        None => Err(none()),
    }
}

/// How it is getting on.
pub fn status(caller: &Caller, _: Nothing) -> Answer {
    match caller.core.capture().as_ref() {
        Some(capture) => Ok(serde_json::to_value(capture.status()).unwrap_or_default()),
        None => Err(none()),
    }
}

fn none() -> Error {
    Error::new(NOTHING_THERE, "ND-104-11", "capture", "nothing is being captured", "Call capture.start first")
}
