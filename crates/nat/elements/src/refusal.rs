//! What a reload does not do, and why.

/// Something that is not changed: an option, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The option.
    pub key: String,
    /// Why.
    pub what: String,
    /// Whether a restart would do it.
    pub restart: bool,
}
