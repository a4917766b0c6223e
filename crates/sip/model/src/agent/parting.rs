//! Connections that a server closes while nothing is asked, as servers do where nobody says anything for some time.
//!
//! No call and no registration ends with its connection: the next request opens another (RFC 3261 section 18.1.1).

use super::failover::IDLE_AT_LEAST;
use super::{Stage, UserAgent};
use crate::scenario::Op;
use protocol::meter::Failure;
use protocol::model::Cx;
use protocol::time::Time;
use std::time::Duration;

impl UserAgent {
    /// Whether the flow goes on without the connection, which was lost for `why`, until it asks for something. One that is
    /// to be asked first does not: nobody can reach it.
    pub(super) fn parts(&mut self, cx: &Cx<'_>, why: Failure) -> bool {
        self.config.reliable
            && matches!(self.stage, Stage::Running | Stage::Stopping)
            && matches!(why, Failure::Closed | Failure::Reset)
            && self.was_used(cx.now)
            && !(self.is_asking() || self.is_being_asked() || self.releases() || self.acknowledges())
            && self.asks_next()
    }

    /// Whether a request of the other side has yet to be answered, or its answer to be acknowledged.
    fn is_being_asked(&mut self) -> bool {
        self.legs().any(|leg| {
            self.select(leg);
            let invited = self.dialogs.invited.as_ref();
            invited.is_some_and(|invited| invited.status < 200 || invited.due() != Time::NEVER)
        })
    }

    /// Whether the steps say something next, or nothing more.
    fn asks_next(&self) -> bool {
        let steps = self.config.steps(self.at);
        match steps.iter().find(|op| !matches!(op, Op::Pause(_))) {
            Some(Op::Again { start, .. }) => {
                matches!(self.config.ops.get(usize::from(*start)), Some(Op::Send(_)))
            }
            Some(op) => matches!(op, Op::Send(_)),
            None => true,
        }
    }

    /// Open another connection for the present step.
    pub(super) fn open_again(&mut self, cx: &mut Cx<'_>) {
        self.parted = false;
        self.stage = Stage::Reconnecting;
        self.kept = false;
        self.heard = false;
        self.armed = Time::NEVER;
        cx.wake_at(Time::NEVER);
        cx.connect();
    }

    /// Nothing was said for `pause`: the server may close the connection just as it is used again, as between two flows.
    pub(super) fn was_idle_for(&mut self, pause: Duration) {
        let idle = self.config.reliable && pause >= IDLE_AT_LEAST && self.heard;
        if idle && self.asks_next() && !self.is_asking() {
            self.kept = true;
            self.heard = false;
        }
    }
}
