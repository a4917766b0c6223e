//! Steps of a scenario, as in a profile.

use super::StatusSet;
use protocol::unit::Interval;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One step.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Send a request. Retransmissions, the ACK to a failure and the answer to a challenge are made without a step.
    Send(SendStep),
    /// Wait for a response or a request. Provisional responses that no step names are passed over.
    Expect(ExpectStep),
    /// Wait for whichever of these comes first.
    ExpectAny(Vec<ExpectStep>),
    /// Answer the request that came last.
    Answer(AnswerStep),
    /// Wait this long.
    Pause(Interval),
    /// A place that `then` may name.
    Label(String),
    /// Go on at a label.
    Goto(String),
    /// Play steps several times; when the load ends, no further time.
    Repeat(RepeatStep),
}

/// A request to send.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendStep {
    /// Its method, like `INVITE`.
    pub method: String,
    /// Request-URI; a template. Default: the registrar for REGISTER, the remote target within a dialog, else the
    /// callee.
    #[serde(default)]
    pub uri: Option<String>,
    /// More header fields; values are templates.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Body; a template. Default: none.
    #[serde(default)]
    pub body: Option<String>,
    /// Type of the body. Default `text/plain`.
    #[serde(default)]
    pub content_type: Option<String>,
    /// Whether the body is a session description of our own. Default `false`.
    #[serde(default)]
    pub sdp: bool,
    /// For REGISTER: lifetime of the binding; `0s` removes it. Default: that of the model.
    #[serde(default)]
    pub expires: Option<Interval>,
}

/// A message to wait for.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectStep {
    /// A response with one of these status codes.
    #[serde(default)]
    pub status: Option<StatusSet>,
    /// To a request of this method. Default: the one sent last.
    #[serde(default)]
    pub of: Option<String>,
    /// Or a request of this method.
    #[serde(default)]
    pub request: Option<String>,
    /// Whether the step is passed over where something else comes. Default `false`.
    #[serde(default)]
    pub optional: bool,
    /// Longest wait. Default: for a response that of its transaction; for a request none.
    #[serde(default)]
    pub timeout: Option<Interval>,
    /// Label to go on at. Default: the next step.
    #[serde(default)]
    pub then: Option<String>,
}

/// A response to send.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerStep {
    /// Its status code.
    pub status: u16,
    /// Reason phrase. Default: the usual one.
    #[serde(default)]
    pub reason: Option<String>,
    /// More header fields; values are templates.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Whether the body is a session description of our own. Default `false`.
    #[serde(default)]
    pub sdp: bool,
}

/// Steps to repeat.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RepeatStep {
    /// How often; 0: until the load ends.
    pub count: u32,
    /// The steps.
    pub steps: Vec<Step>,
}
