//! Versions of the protocol.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Protocol version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
pub enum Version {
    /// MQTT 3.1.1, protocol level 4.
    #[default]
    #[serde(rename = "3.1.1")]
    V311,
    /// MQTT 5.0, protocol level 5.
    #[serde(rename = "5.0")]
    V5,
}

impl Version {
    /// Protocol level in CONNECT (§3.1.2.2).
    pub fn level(self) -> u8 {
        match self {
            Version::V311 => 4,
            Version::V5 => 5,
        }
    }
}
