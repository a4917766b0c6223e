//! Which addresses of a target's name are used.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which addresses of a target's name are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Resolve {
    /// The first that works, of both families in turn; a device that cannot connect to one tries the next.
    #[default]
    First,
    /// Every one: devices are spread over them, and none falls back to another.
    All,
    /// As `first`, IPv4 addresses only.
    V4,
    /// As `first`, IPv6 addresses only.
    V6,
}

impl Resolve {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::First
    }

    /// Whether an address of this family may be used.
    pub fn allows(self, ipv4: bool) -> bool {
        match self {
            Self::First | Self::All => true,
            Self::V4 => ipv4,
            Self::V6 => !ipv4,
        }
    }
}
