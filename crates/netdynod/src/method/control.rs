//! `control.*`: who may change things. Many watch, one writes, and he must be heard from.

use super::{Answer, NoParams};
use crate::caller::Caller;
use serde::Deserialize;
use serde_json::{Value, json};

/// What opens TCP; who comes by the Unix socket needs none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    #[serde(default, rename = "token")]
    _token: String,
}

/// Good day: whoever comes so far is in.
pub fn hello(_: Hello) -> Answer {
    Ok(Value::Bool(true))
}

/// Become the writer.
pub fn acquire(caller: &Caller, _: NoParams) -> Answer {
    caller.core.acquire(caller.session, &caller.stream)?;
    Ok(json!({"writer": true}))
}

/// Still there.
pub fn heartbeat(caller: &Caller, _: NoParams) -> Answer {
    caller.core.as_writer(caller.session)?;
    Ok(Value::Bool(true))
}

/// Let another write.
pub fn release(caller: &Caller, _: NoParams) -> Answer {
    caller.core.as_writer(caller.session)?;
    caller.core.release(caller.session);
    Ok(Value::Bool(true))
}
