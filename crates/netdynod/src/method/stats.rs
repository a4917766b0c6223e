//! `stats.*`: live statistics.

use super::{Answer, NoParams};
use crate::caller::Caller;
use serde::Deserialize;
use serde_json::{Value, json};

/// Send this connection every point of the series and every change of state.
pub fn subscribe(caller: &Caller, _: NoParams) -> Answer {
    let number = caller.core.watchers.add(caller.session, &caller.outbox)?;
    Ok(json!({"subscription": number}))
}

/// Which subscription.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unsubscribe {
    subscription: u64,
}

/// No longer.
pub fn unsubscribe(caller: &Caller, params: Unsubscribe) -> Answer {
    Ok(Value::Bool(caller.core.watchers.remove(caller.session, params.subscription)))
}
