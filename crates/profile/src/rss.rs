//! How ports spread what they receive over their queues.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// By what a port finds the queue of a frame that it receives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Rss {
    /// Addresses and ports: all frames of a flow, and of the way back, are on one queue.
    #[default]
    Flow,
    /// The IPv4 source address alone.
    Source,
    /// The IPv4 destination address alone.
    Destination,
}

impl Rss {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
