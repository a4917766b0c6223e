//! Parameters of session timers (RFC 4028).

use crate::method::Method;
use crate::scenario::{Op, Request};
use protocol::problem::Problem;
use protocol::unit::Interval;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Number of the step that a refresh counts as: behind those of every scenario, by dialog.
pub(crate) const REFRESH: u16 = u16::MAX - 16;

/// Session timers: who refreshes a call, and how often (RFC 4028).
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionTimer {
    /// Session interval that is asked for: a call that nobody refreshes ends then. In whole seconds, RFC 4028 wants 90 at least. Default
    /// `1800s`.
    pub expires: Interval,
    /// Who refreshes it, halfway: `caller` or `callee`. Default: whoever the callee says.
    pub refresher: Option<Side>,
    /// By which request it is refreshed. Default `update`.
    pub method: RefreshMethod,
}

/// A side of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Who sent its INVITE.
    Caller,
    /// Who answered.
    Callee,
}

/// A request that refreshes a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RefreshMethod {
    /// UPDATE without a session description (RFC 3311).
    #[default]
    Update,
    /// A re-INVITE with our session description.
    Invite,
}

impl Default for SessionTimer {
    fn default() -> Self {
        Self { expires: Interval::secs(1800), refresher: None, method: RefreshMethod::default() }
    }
}

impl SessionTimer {
    /// Whether the values make sense.
    pub fn check(&self) -> Result<(), Problem> {
        let whole = self.expires.0 >= Duration::from_secs(2) && self.expires.0.subsec_nanos() == 0;
        let what = || format!("{} is no whole number of seconds from 2 on", self.expires);
        Problem::unless(whole, "session_timer.expires", what, "use 90s or longer")
    }

    /// The refresh of each of so many dialogs.
    pub(crate) fn requests(&self, legs: u8) -> Box<[Op]> {
        let request = |leg| {
            let (method, sdp) = match self.method {
                RefreshMethod::Update => (Method::Update, false),
                RefreshMethod::Invite => (Method::Invite, true),
            };
            Op::Send(Box::new(Request {
                method,
                leg,
                uri: None,
                headers: Box::default(),
                body: None,
                content_type: "text/plain".into(),
                sdp,
                hold: false,
                expires: None,
            }))
        };
        (0..legs).map(request).collect()
    }
}
