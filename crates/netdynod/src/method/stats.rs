//! `stats.*`: live statistics.

use super::Answer;
use crate::server::Caller;
use serde::Deserialize;
use serde_json::{Value, json};

/// Send this connection every point of the series and every change of state.
pub fn subscribe(caller: &Caller) -> Answer {
    Ok(json!({"subscription": caller.core.subscribe(caller.session, caller.lines.clone())}))
}

/// Which subscription.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unsubscribe {
    subscription: u64,
}

/// No longer.
pub fn unsubscribe(caller: &Caller, params: &Unsubscribe) -> Answer {
    Ok(Value::Bool(caller.core.unsubscribe(caller.session, params.subscription)))
}
