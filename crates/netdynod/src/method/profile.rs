//! `profile.*`: the format, and what is wrong with one.

use super::{Answer, Nothing};
use serde::Deserialize;
use serde_json::{Value, json};

/// The JSON Schema.
pub fn schema(_: Nothing) -> Answer {
    Ok(profile::schema())
}

/// A profile as JSON, or as its text: then lines are named too.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Validate {
    profile: Value,
}

/// All that is wrong with it.
pub fn validate(params: Validate) -> Answer {
    let text = match params.profile {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let errors = crate::profiles::load(&text).err().unwrap_or_default();
    Ok(json!({"errors": errors}))
}
