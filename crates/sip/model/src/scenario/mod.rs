//! Scenarios: what a user agent sends, waits for and answers, step by step.

mod capture;
mod compile;
mod dialogs;
mod leaving;
mod preset;
mod reason;
mod status;
mod step;
mod value;

pub(crate) use compile::{
    Alternative, Answer, Compiled, DEPTH_MAX, ExpectedMessage, Header, Op, Request, When, compile,
    headers_of, line, seconds,
};
pub(crate) use leaving::Leaving;
pub use preset::Preset;
pub(crate) use reason::{reason, rejected};
pub use status::StatusSet;
pub use step::{
    AnswerStep, AssertStep, CaptureStep, ExpectStep, GotoStep, GotoWhen, RepeatStep, SendStep, SetStep, Step,
};
pub(crate) use value::{ASSERTION, Assertion, Set};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What each user agent does: a preset by name, or steps of one's own.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scenario {
    /// A scenario that comes with the product.
    Preset(Preset),
    /// These steps, one after the other.
    Steps(Vec<Step>),
}

impl Default for Scenario {
    fn default() -> Self {
        Self::Preset(Preset::Register)
    }
}
