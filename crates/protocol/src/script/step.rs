//! A step of a script, as in a profile.

use crate::unit::Interval;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One step.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Send this text: a template with `\r \n \t \0 \\ \xHH` escapes.
    Send(String),
    /// Send these bytes, in hexadecimal: `"0a 1b 2c"`.
    SendHex(String),
    /// Wait until this text has come; with the same escapes, no places.
    Expect(String),
    /// Wait until something has come that this regular expression matches (bytes; `(?s)` lets `.` cross lines).
    ExpectRegex(String),
    /// Wait until these bytes have come, in hexadecimal.
    ExpectHex(String),
    /// Wait this long.
    Delay(Interval),
    /// From here on, each `expect` waits at most this long.
    Timeout(Interval),
    /// Play steps several times; when the load ends, no further time.
    Repeat(Repeat),
}

/// Parameters of [`Step::Repeat`].
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    /// How often; 0: until the load ends.
    pub count: u32,
    /// What.
    pub steps: Vec<Step>,
}
