//! ACKs that come when something else is under way already.
//!
//! Over UDP, and through a proxy of several processes, an ACK may come behind the BYE or the next INVITE of its dialog, which
//! the caller sent after it. Either shows that our 2xx arrived (RFC 3261 sections 14.1 and 15), so that it is not sent again;
//! its ACK still counts.

use super::{LINGER, UserAgent};
use crate::measure;
use protocol::model::Cx;
use protocol::time::Time;

/// Answers that are remembered, at most.
const PENDING_MAX: usize = 8;

/// A 2xx to an INVITE whose ACK has yet to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PendingAck {
    /// Of Call-ID.
    call: u64,
    cseq: u32,
    /// When the 2xx was sent the first time.
    answered: Time,
}

impl UserAgent {
    /// The INVITE under way gives way to something else: remember its 2xx while that has no ACK.
    pub(super) fn keep_unacknowledged(&mut self) {
        let Some(invited) = self.dialogs.invited.as_ref().filter(|one| one.needs_ack()) else { return };
        let pending = PendingAck { call: invited.call, cseq: invited.cseq, answered: invited.answered };
        if self.unacknowledged.len() == PENDING_MAX {
            self.unacknowledged.pop_front();
        }
        self.unacknowledged.push_back(pending);
    }

    /// An ACK to no INVITE under way. True: it is that of a remembered answer, and counts.
    pub(super) fn acknowledged_late(&mut self, cx: &mut Cx<'_>, call: u64, cseq: u32) -> bool {
        let place = self.unacknowledged.iter().position(|one| (one.call, one.cseq) == (call, cseq));
        let Some(pending) = place.and_then(|place| self.unacknowledged.remove(place)) else { return false };
        measure::acknowledged(cx, pending.answered);
        true
    }

    /// Whether the flow, whose steps are over, waits a moment for an ACK that may be on its way.
    pub(super) fn is_ack_due(&mut self, now: Time) -> bool {
        let under_way = self.dialogs.invited.as_ref().filter(|one| one.needs_ack()).map(|one| one.answered);
        let answered = self.unacknowledged.iter().map(|one| one.answered).chain(under_way).max();
        let until = answered.map_or(Time::ZERO, |at| at + LINGER);
        if until > now {
            self.until = until;
        }
        until > now
    }
}
