//! Which work a DPDK port does by itself.

use crate::error::CONFLICT;
use crate::{Error, Port, Role};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which work a port does by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "offloads is \"auto\", \"none\", or a list of some of \"checksum\", \"vlan\", \"segment\", \"timestamp\""
)]
pub enum Offloads {
    /// As a rule says.
    By(Rule),
    /// These, and no other.
    These(Vec<Offload>),
}

/// A rule for which work a port does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// What it offers, and what helps.
    Auto,
    /// None.
    None,
}

/// Work that a port may offer to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Offload {
    /// To make the checksums of IPv4, UDP and TCP in the streams that it sends, and to look at those that come back.
    Checksum,
    /// To put VLAN tags into frames, and take them out.
    Vlan,
    /// To segment large frames of TCP (TCP segmentation offload): see `segment` of `tcp` in `frame.layers`.
    Segment,
    /// To stamp what it receives.
    Timestamp,
}

impl Default for Offloads {
    fn default() -> Self {
        Self::By(Rule::Auto)
    }
}

impl Offloads {
    /// Whether the port is to do it. `None`: if it offers it, and it helps.
    pub fn setting(&self, work: Offload) -> Option<bool> {
        match self {
            Self::By(Rule::Auto) => None,
            Self::By(Rule::None) => Some(false),
            Self::These(all) => Some(all.contains(&work)),
        }
    }

    pub(crate) fn is_auto(&self) -> bool {
        *self == Self::default()
    }
}

/// Work that nobody has with what the port is for.
pub(crate) fn check(port: &Port, at: &str) -> Option<Error> {
    let wants = |work| port.offloads.setting(work) == Some(true);
    let error = |what: &str, fix: &str| Some(Error::new(CONFLICT, format!("{at}.offloads"), what, fix));
    let generators = [Offload::Checksum, Offload::Segment, Offload::Timestamp];
    if port.role != Role::Generator && generators.into_iter().any(wants) {
        let what = "only a port with the role generator makes and measures frames";
        return error(what, "Leave all but vlan out");
    }
    if port.impair.is_some() && wants(Offload::Timestamp) {
        let what = "the port would stamp frames before impair delays them";
        return error(what, "Leave timestamp out, or impair");
    }
    None
}
