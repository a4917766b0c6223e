//! Lifetimes of registrations, subscriptions and publications: one that the server finds too short is asked for again (RFC 3261
//! section 10.2.8, RFC 6665 section 4.1.2.1, RFC 3903 section 4.1).

use super::UserAgent;
use super::send::Numbers;
use crate::scenario::{Op, Request};
use crate::transaction::Client;
use protocol::model::Cx;
use std::sync::Arc;

/// The status by which a server says that a lifetime is too short.
pub(super) const TOO_BRIEF: u16 = 423;

impl UserAgent {
    /// Seconds that a request asks for.
    pub(super) fn lifetime(&self, request: &Request) -> u64 {
        match request.expires.unwrap_or(self.config.expires) {
            0 => 0,
            asked => asked.max(self.min_expires),
        }
    }

    /// Send a request again with the lifetime that the server wants at least. False: that is no longer than the one before, or
    /// the server has named one before and wants more than that.
    pub(super) fn send_longer(&mut self, cx: &mut Cx<'_>, client: &Client, least: u32) -> bool {
        let config = Arc::clone(&self.config);
        let Some(Op::Send(request)) = config.ops.get(usize::from(client.step)) else { return false };
        let asked = self.lifetime(request);
        if client.longer || asked == 0 || u64::from(least) <= asked {
            return false;
        }
        self.min_expires = least.into();
        let numbers = Numbers { branch: self.next_branch(), cseq: self.next_cseq(client.method) };
        let again = self.begin(cx, request, numbers, client.first);
        cx.sent_bytes(client.first, again.length);
        self.keep(Client {
            answered: client.answered.clone(),
            step: client.step,
            longer: true,
            moved: client.moved,
            ..again
        });
        true
    }
}
