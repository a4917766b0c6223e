//! `control.*`: who may change things. Many watch, one writes, and he must be heard from.

use super::Answer;
use crate::server::Caller;
use serde_json::{Value, json};

/// Become the writer.
pub fn acquire(caller: &Caller) -> Answer {
    caller.core.acquire(caller.session)?;
    Ok(json!({"writer": true}))
}

/// Still there.
pub fn heartbeat(caller: &Caller) -> Answer {
    caller.core.as_writer(caller.session)?;
    Ok(Value::Bool(true))
}

/// Let another write.
pub fn release(caller: &Caller) -> Answer {
    caller.core.as_writer(caller.session)?;
    caller.core.release(caller.session);
    Ok(Value::Bool(true))
}
