//! The profile's JSON Schema.

use crate::Profile;
use serde_json::Value;

/// The profile's JSON Schema.
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(Profile).to_value();
    schema["$id"] = "urn:netdyno:schema:profile-1".into();
    schema
}
