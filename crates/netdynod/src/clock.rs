//! The time of day, as text.

use std::time::SystemTime;

/// Now, UTC, RFC 3339 with milliseconds.
pub fn now() -> String {
    text(SystemTime::now())
}

/// A moment, likewise.
pub fn text(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}
