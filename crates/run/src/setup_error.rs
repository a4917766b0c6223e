//! Why a run cannot be set up.

/// What cannot be set up: where, why, and what to do. Reported as a fault of the profile is, since the reader need not
/// know which of the two it was. Codes `ND-92-…`.
pub use profile::Error as SetupError;
