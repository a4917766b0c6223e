//! Why a frame cannot be made, and where it says so.

/// Why a frame cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {what}")]
pub struct FrameError {
    /// Which part: `layers[2].vlan.id`.
    pub at: String,
    /// What is wrong with it.
    pub what: String,
    /// What to do.
    pub fix: &'static str,
}

impl FrameError {
    pub(super) fn new(at: impl Into<String>, what: impl Into<String>, fix: &'static str) -> Self {
        Self { at: at.into(), what: what.into(), fix }
    }
}
