//! `profile.*`: the format, and what is wrong with one.

use super::{Answer, NoParams};
use crate::caller::Caller;
use crate::profiles::{self, Refusal};
use serde::Deserialize;
use serde_json::{Value, json};

/// The JSON Schema.
pub fn schema(_: NoParams) -> Answer {
    Ok(profile::schema())
}

/// A profile as JSON, or as its text: then lines are named too.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Validate {
    profile: Value,
}

/// All that is wrong with it.
pub fn validate(caller: &Caller, params: Validate) -> Answer {
    let text = match params.profile {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let errors = match profiles::load(&text, caller.files(), caller.core.registry.kinds()) {
        Ok(_) => Vec::new(),
        Err(Refusal::Faults(faults)) => faults,
        Err(Refusal::NotAllowed(error)) => return Err(error),
    };
    Ok(json!({"errors": errors}))
}
