//! What a user agent does when its server fails (RFC 3263 section 4.3): its requests go on to the next one.

use super::websocket::CLOSED_SHAKING;
use super::{Stage, UserAgent};
use crate::description::counter;
use crate::method::Method;
use crate::transaction::Client;
use protocol::cause::Cause;
use protocol::meter::Failure;
use protocol::model::Cx;
use protocol::time::Time;
use std::time::Duration;

/// The status by which a server says that another is to be tried.
pub(super) const UNAVAILABLE: u16 = 503;
/// Why a server is left.
pub(super) const SILENT: Cause = Cause::named(Failure::Unanswered, "no answer in time");
pub(super) const REJECTS: Cause = Cause::named(Failure::Rejected, "503 Service Unavailable");
/// A connection on which nothing came, and that is closed sooner than this, was not closed for being idle.
pub(super) const IDLE_AT_LEAST: Duration = Duration::from_secs(1);

impl UserAgent {
    /// The connection is gone, or a datagram was refused. Whether that is dealt with: there is another server.
    pub(super) fn leaves_server(&mut self, cx: &mut Cx<'_>, why: Failure) -> bool {
        if self.is_shaking() {
            return self.leaves_handshake(cx, Cause::named(why, CLOSED_SHAKING));
        }
        let of_server = matches!(
            why,
            Failure::Refused | Failure::Unreachable | Failure::Timeout | Failure::Reset | Failure::Closed
        );
        if !(cx.has_next && of_server && matches!(self.stage, Stage::Running | Stage::Stopping)) {
            return false;
        }
        cx.mark_clean_close();
        let asking = self.is_asking();
        // a server may close a connection that nobody uses: it is left only if it takes no other
        if self.config.reliable && why == Failure::Closed && !asking && self.was_used(cx.now) {
            self.leave_connection(cx);
            self.heard = false;
            cx.connect();
        // over UDP there is no connection to replace: the next request finds out
        } else if self.config.reliable || asking {
            self.next_server(cx, why.into());
        }
        true
    }

    /// The WebSocket handshake failed. Whether that is dealt with: there is another server.
    pub(super) fn leaves_handshake(&mut self, cx: &mut Cx<'_>, why: Cause) -> bool {
        if cx.has_next {
            cx.mark_clean_close();
            self.next_server(cx, why);
        }
        cx.has_next
    }

    /// Whether a request to the server has no response yet that is overdue, and there is a server left to ask.
    pub(super) fn is_left_alone(&self, cx: &Cx<'_>) -> bool {
        let overdue =
            |client: &Client| client.expires <= cx.now && !client.provisional && client.to.is_none();
        cx.has_next
            && [&self.dialogs.invite, &self.dialogs.request].into_iter().flatten().any(|one| overdue(one))
    }

    /// Whether the present connection was good for something.
    pub(super) fn was_used(&self, now: Time) -> bool {
        self.heard || now.since(self.up) >= IDLE_AT_LEAST.as_nanos() as u64
    }

    pub(super) fn is_asking(&mut self) -> bool {
        self.legs().any(|leg| {
            self.select(leg);
            self.dialogs.invite.is_some() || self.dialogs.request.is_some()
        })
    }

    /// Connect to the next server, to which all requests under way are sent again, each with another branch and without the
    /// credentials for this one.
    pub(super) fn next_server(&mut self, cx: &mut Cx<'_>, why: Cause) {
        self.leave_connection(cx);
        for leg in self.legs() {
            self.select(leg);
            for invite in [true, false] {
                let branch = self.next_branch();
                let client = if invite { &mut self.dialogs.invite } else { &mut self.dialogs.request };
                // what was sent to the remote target is no matter of the server
                if let Some(client) = client.as_mut().filter(|client| client.to.is_none()) {
                    if !std::mem::replace(&mut client.moved, true) {
                        cx.count(client.first, counter::REQUESTS_MOVED);
                    }
                    client.branch = branch;
                }
            }
            // section 9.1: CANCEL has the branch of its INVITE
            let state = &mut *self.dialogs;
            if let (Some(invite), Some(cancel)) = (&state.invite, &mut state.request)
                && cancel.method == Method::Cancel
            {
                cancel.branch = invite.branch;
            }
        }
        cx.next_server(why);
    }

    /// Wait for another connection, perhaps to another server.
    fn leave_connection(&mut self, cx: &mut Cx<'_>) {
        self.stage = Stage::Reconnecting;
        self.websocket = None;
        self.auth.clear();
        self.kept = false;
        for leg in self.legs() {
            self.select(leg);
            if let Some(dialog) = &mut self.dialogs.dialog {
                dialog.cut |= dialog.session;
            }
        }
        self.armed = Time::NEVER;
        cx.wake_at(Time::NEVER);
    }

    /// Whether `client` is the BYE of a call that the server it went on to knows nothing of: the call ended with its server.
    pub(super) fn is_dropped(&self, client: &Client, code: u16) -> bool {
        let cut = self.dialogs.dialog.as_ref().is_some_and(|dialog| dialog.cut);
        cut && client.method == Method::Bye && code == 481
    }
}
