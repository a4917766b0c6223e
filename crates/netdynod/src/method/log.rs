//! `log.*`: what the daemon has to say.

use super::Answer;
use crate::rpc::Error;
use crate::server::Caller;
use serde::Deserialize;
use serde_json::json;
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
pub fn tail(caller: &Caller, params: &Tail) -> Answer {
    let level: Level = params.level.parse().map_err(|_| Error {
        code: -32602,
        message: format!("{:?} is not a level; use error, warn, info, debug or trace", params.level),
        data: serde_json::Value::Null,
    })?;
    Ok(json!({"entries": caller.core.log.after(params.after, level)}))
}
