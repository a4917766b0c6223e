//! `log.*`: what the daemon has to say.

use super::Answer;
use crate::caller::Caller;
use serde::Deserialize;
use serde_json::json;
use system::rpc::Error;
use tracing::Level;

/// From where, and how grave.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tail {
    #[serde(default)]
    after: u64,
    #[serde(default = "info")]
    level: String,
}

fn info() -> String {
    "info".to_owned()
}

/// The last entries.
pub fn tail(caller: &Caller, params: Tail) -> Answer {
    let level: Level = params.level.parse().map_err(|_| {
        let what = format!("{:?} is not a level; use error, warn, info, debug or trace", params.level);
        Error::params("params.level", what)
    })?;
    Ok(json!({"entries": caller.core.log.entries_after(params.after, level)}))
}
