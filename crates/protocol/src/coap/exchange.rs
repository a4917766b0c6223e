//! Exchanges: a request, and the message of it that is on its way.

use super::echo::Challenge;
use crate::time::Time;

/// What is being transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The request, by Block1 if it is larger than a block.
    Request,
    /// The response behind its first block, by Block2.
    Response,
}

/// How far the message of an exchange is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// To be sent, or sent again, now.
    Ready,
    /// Sent, and neither acknowledged nor answered.
    Sent,
    /// Acknowledged: its response comes in a message of its own.
    Acknowledged,
    /// Answered.
    Done,
    /// Not answered, or not as it should be.
    Failed,
}

impl Stage {
    /// Whether it counts towards NSTART (RFC 7252 section 4.7).
    pub(super) fn outstanding(self) -> bool {
        matches!(self, Stage::Ready | Stage::Sent)
    }

    /// Whether nothing more is waited for.
    pub(super) fn over(self) -> bool {
        matches!(self, Stage::Done | Stage::Failed)
    }
}

/// What an exchange is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A request of the load.
    Request,
    /// To begin an observation, or to renew it.
    Register,
    /// To end it.
    Deregister,
    /// The rest of a notification that is larger than a block.
    Fetch,
}

/// A request, and the message of it that is on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    pub(super) intended: Time,
    /// When its first message was sent.
    pub(super) began: Time,
    /// When this message was sent for the first time.
    pub(super) sent: Time,
    /// When it is sent again or given up.
    pub(super) due: Time,
    /// How long to wait for its acknowledgement this time, ns.
    pub(super) wait: u64,
    /// What of the body was sent, or of the response received, before this message.
    pub(super) offset: u32,
    /// A sum of the ETag of the blocks so far; 0: none had one.
    pub(super) etag: u32,
    pub(super) id: u16,
    pub(super) szx: u8,
    /// How often this message was sent again.
    pub(super) tries: u8,
    /// Whether its first message was sent, and was acknowledged.
    pub(super) begun: bool,
    pub(super) confirmed: bool,
    pub(super) challenge: Challenge,
    pub(super) stage: Stage,
    pub(super) part: Part,
    pub(super) purpose: Purpose,
}

impl Exchange {
    /// Whether its message was sent and can be acknowledged or answered.
    pub(super) fn awaits_reply(&self) -> bool {
        matches!(self.stage, Stage::Sent | Stage::Acknowledged)
            || self.stage == Stage::Ready && self.tries > 0
    }

    /// One that has not begun.
    pub(super) fn of(purpose: Purpose, intended: Time, part: Part, szx: u8) -> Self {
        Self {
            intended,
            began: intended,
            sent: intended,
            due: Time::NEVER,
            wait: 0,
            offset: 0,
            etag: 0,
            id: 0,
            szx,
            tries: 0,
            begun: false,
            confirmed: false,
            challenge: Challenge::No,
            stage: Stage::Done,
            part,
            purpose,
        }
    }
}
