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
    /// Make a value, for `{response.NAME}` in later templates and conditions of `goto`.
    Set(SetStep),
    /// A condition; where it does not hold, the flow has failed.
    Assert(AssertStep),
    /// Wait this long.
    Pause(Interval),
    /// A place that `then` may name.
    Label(String),
    /// Go on at a label, always or on a condition.
    Goto(GotoStep),
    /// Play steps several times; when the load ends, no further time.
    Repeat(RepeatStep),
}

/// A request to send.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendStep {
    /// Its method, like `INVITE`.
    pub method: String,
    /// Name of the dialog that it belongs to; requests of one dialog have one Call-ID, a REGISTER too. Default: the one without a
    /// name; a REGISTER then has a Call-ID of its own.
    #[serde(default)]
    pub dialog: Option<String>,
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
    /// With `sdp`: whether it puts the call on hold: we send audio and want none (RFC 3264 section 8.4). Default `false`.
    #[serde(default)]
    pub hold: bool,
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
    /// Or a request of this method; `any`: of any method except ACK and CANCEL.
    #[serde(default)]
    pub request: Option<String>,
    /// Name of the dialog that it belongs to. Default: the one without a name.
    #[serde(default)]
    pub dialog: Option<String>,
    /// Whether the step is passed over where something else comes. Default `false`.
    #[serde(default)]
    pub optional: bool,
    /// Longest wait. Default: for a response that of its transaction; for a request none.
    #[serde(default)]
    pub timeout: Option<Interval>,
    /// Label to go on at. Default: the next step.
    #[serde(default)]
    pub then: Option<String>,
    /// Label to go on at when the wait is over. Default: the flow fails, or goes on where the step is optional.
    #[serde(default)]
    pub on_timeout: Option<String>,
    /// Values to take from the message, by name: `{response.NAME}` in later templates, and conditions of `goto`.
    #[serde(default)]
    pub capture: BTreeMap<String, CaptureStep>,
}

/// A value to take from a message: a header field, or what a regular expression matches.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CaptureStep {
    /// Header field to look in; of several, the first. Default: the whole message.
    #[serde(default)]
    pub header: Option<String>,
    /// Regular expression. Default: the whole header field.
    #[serde(default)]
    pub regex: Option<String>,
    /// Whether to look in the body, and to keep its line breaks: the value may then stand in bodies alone. Default `false`.
    #[serde(default)]
    pub body: bool,
    /// Group of the expression; 0: all that it matches. Default: the first group where there is one, else 0.
    #[serde(default)]
    pub group: Option<usize>,
    /// Whether a message without the value fails the flow; else the value is empty. Default `false`.
    #[serde(default)]
    pub required: bool,
}

/// A value to make from others.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetStep {
    /// Its name.
    pub name: String,
    /// What it is made from; a template, like `{response.cseq}`.
    pub value: String,
    /// Regular expression that cuts it. Default: all of its first line.
    #[serde(default)]
    pub regex: Option<String>,
    /// Group of the expression; 0: all that it matches. Default: the first group where there is one, else 0.
    #[serde(default)]
    pub group: Option<usize>,
    /// Add this to it; the value has to be a whole number. Default: nothing.
    #[serde(default)]
    pub add: Option<i64>,
}

/// A condition that the flow has to meet; of several, all.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AssertStep {
    /// What is looked at; a template, like `{response.contact}`.
    pub value: String,
    /// What it has to be; a template.
    #[serde(default)]
    pub is: Option<String>,
    /// What it must not be; a template.
    #[serde(default)]
    pub is_not: Option<String>,
    /// Regular expression that has to match somewhere in it.
    #[serde(default)]
    pub matches: Option<String>,
    /// Smallest number that it may be.
    #[serde(default)]
    pub at_least: Option<f64>,
    /// Largest number that it may be.
    #[serde(default)]
    pub at_most: Option<f64>,
    /// Where it is written, as its failure says: `FILE:LINE`. Default: the place of the step, like `steps[3]`.
    #[serde(default)]
    pub at: Option<String>,
}

/// Where to go on.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum GotoStep {
    /// Always.
    Label(String),
    /// On a condition.
    When(GotoWhen),
}

/// A jump on a condition; where it does not hold, the next step follows.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GotoWhen {
    /// Label to go on at.
    pub label: String,
    /// Name of a captured value that is not empty.
    #[serde(default)]
    pub given: Option<String>,
    /// Name of a captured value that is empty.
    #[serde(default)]
    pub absent: Option<String>,
    /// Probability, from 0 to 1.
    #[serde(default)]
    pub chance: Option<f64>,
}

/// A response to send.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
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
    /// Body; a template. Default: none.
    #[serde(default)]
    pub body: Option<String>,
    /// Type of the body. Default `text/plain`.
    #[serde(default)]
    pub content_type: Option<String>,
    /// Whether the body is a session description of our own. Default `false`.
    #[serde(default)]
    pub sdp: bool,
    /// For a provisional response to INVITE: whether it is sent again until its PRACK comes (RFC 3262), where the caller supports
    /// `100rel`. A 2xx waits for that PRACK. Default `false`.
    #[serde(default)]
    pub reliable: bool,
    /// Name of the dialog whose request is answered. Default: the one without a name.
    #[serde(default)]
    pub dialog: Option<String>,
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
