//! Connections by number.

/// Number of a connection, since the daemon began.
pub type Session = u64;
