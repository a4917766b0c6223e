//! Steps that the user writes, for protocols that have no model: send, expect, delay, repeat.
//!
//! A flow connects, plays the steps from first to last, and closes. Over TCP and TLS `expect` searches the
//! bytes that came, and uses them up to the end of what it found; over UDP it looks at one datagram at a time.
#![allow(dead_code)]

use crate::meter::Failure;
use crate::model::{Cx, Model};
use crate::problem::Problem;
use crate::registry::{Scheme, Target};
use crate::unit::Interval;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Where it can be pointed at.
pub const SCHEMES: &[Scheme] =
    &[Scheme::tcp("tcp", None), Scheme::tls("tls", None), Scheme::udp("udp", None)];

/// What it measures: start of the flow to connection up; a send to the match of the expect that follows it;
/// start of the flow to its end.
pub const DELAYS: &[&str] = &["connect", "step", "flow"];
const CONNECT: usize = 0;
const STEP: usize = 1;
const FLOW: usize = 2;

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
    /// Play steps several times.
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

/// Parameters of the `script` model.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// What to do once connected, in order. Default: send `hello {seq}` and a line end, once.
    pub steps: Vec<Step>,
    /// Longest wait for the connection and for each `expect`; the flow fails then. Default `5s`.
    pub timeout: Interval,
}

impl Default for Params {
    fn default() -> Self {
        Self { steps: vec![Step::Send("hello {seq}\\n".into())], timeout: Interval::secs(5) }
    }
}

/// What is the same for all devices of a group.
#[derive(Debug)]
pub struct Plan {}

impl Params {
    /// Whether the values make sense, and make sense together.
    pub fn check(&self) -> Result<(), Problem> {
        Ok(())
    }

    /// Check, and prepare what all devices share.
    pub fn compile(&self, _target: &Target) -> Result<Plan, Problem> {
        self.check()?;
        Ok(Plan {})
    }
}

impl Plan {
    /// A new device.
    pub fn device(self: &Arc<Self>, _index: u32) -> Device {
        Device { plan: Arc::clone(self) }
    }
}

/// One virtual device.
#[derive(Debug)]
pub struct Device {
    plan: Arc<Plan>,
}

impl Model for Device {
    fn start(&mut self, cx: &mut Cx<'_>) {
        let _ = &self.plan;
        cx.finish();
    }
    fn connected(&mut self, _cx: &mut Cx<'_>) {}
    fn received(&mut self, _cx: &mut Cx<'_>, bytes: &[u8]) -> usize {
        bytes.len()
    }
    fn timer(&mut self, _cx: &mut Cx<'_>) {}
    fn closed(&mut self, _cx: &mut Cx<'_>, _why: Failure) {}
    fn stop(&mut self, _cx: &mut Cx<'_>) {}
}
