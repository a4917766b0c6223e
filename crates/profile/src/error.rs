//! What is wrong with a profile, or with the machine that is to run it: where, and what to do.

use serde::Serialize;
use std::borrow::Cow;
use std::fmt;

/// One thing wrong. `code` is stable; the rest is for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub struct Error {
    /// Stable code, like `ND-104-03`.
    pub code: &'static str,
    /// Where: the path of the key, like `groups[0].model.mqtt.qos`, or a file, or a port.
    pub at: String,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub fix: String,
}

/// Not JSON at all.
pub const SYNTAX: &str = "ND-104-01";
/// A key that does not exist.
pub const UNKNOWN_KEY: &str = "ND-104-02";
/// A key that must be there and is not.
pub const MISSING_KEY: &str = "ND-104-03";
/// A value of the wrong type or form, or without its unit.
pub const BAD_VALUE: &str = "ND-104-04";
/// A value out of its range.
pub const OUT_OF_RANGE: &str = "ND-104-05";
/// A name that refers to nothing, or is used twice.
pub const BAD_REFERENCE: &str = "ND-104-06";
/// Things that do not go together.
pub const CONFLICT: &str = "ND-104-07";

impl Error {
    /// An error at `at`. What would steer a terminal is shown, not done.
    pub fn new(
        code: &'static str,
        at: impl Into<String>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let shown = |text: String| match crate::printable(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(shown) => shown,
        };
        Self { code, at: shown(at.into()), what: shown(what.into()), fix: shown(fix.into()) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.code)?;
        if !self.at.is_empty() {
            write!(f, "at {}: ", self.at)?;
        }
        write!(f, "{}", self.what)?;
        if !self.fix.is_empty() {
            write!(f, ". {}", self.fix)?;
        }
        Ok(())
    }
}
