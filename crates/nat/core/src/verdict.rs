//! What becomes of a packet.

use crate::headers::Headers;
use crate::key::Realm;
use crate::reason::Reason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a packet comes from, and where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Where the subscribers are.
    Inside,
    /// The rest of the world.
    Outside,
}

/// Where a packet goes, and how: the link header is for whoever sends it to write.
///
/// In this order it is not copied in other pieces than it was made of, inside of a result: that would wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Forward {
    /// To which side.
    pub to: Side,
    /// By which next hop.
    pub hop: u16,
    /// With which tags.
    pub realm: Realm,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is not decided yet.
    Pending,
    /// It was translated in place, or needs no translation, and goes on.
    Forward(Forward),
    /// It goes nowhere.
    Drop(Reason),
    /// The NAT keeps a copy, and decides later: a fragment before the first one; or it sends it in pieces.
    Held,
}

/// A frame under way, with what was found in it.
#[derive(Debug)]
pub struct Frame<'a> {
    /// From the link header to the last byte.
    pub bytes: &'a mut [u8],
    /// What was found.
    pub headers: Headers,
    /// What becomes of it.
    pub verdict: Verdict,
}

impl<'a> Frame<'a> {
    /// A frame to be parsed and decided.
    #[inline]
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self::parsed(bytes, Headers::default())
    }

    /// One that was parsed before.
    #[inline]
    pub fn parsed(bytes: &'a mut [u8], headers: Headers) -> Self {
        Self { bytes, headers, verdict: Verdict::Pending }
    }
}

/// Why a packet does not go on now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopReason {
    Drop(Reason),
    Held,
    /// It was sent in pieces.
    Sent(Forward),
}

impl From<Reason> for StopReason {
    fn from(reason: Reason) -> Self {
        Self::Drop(reason)
    }
}
