//! The dialogs of a scenario that has several: the one that is worked on is in the user agent, the others are put aside.

use super::{SentAck, UserAgent};
use crate::dialog::Dialog;
use crate::message::{fingerprint, read_branch};
use crate::method::Method;
use crate::scenario::Op;
use crate::transaction::{Client, Server};
use sip_core::message::{Scanned, Start};
use std::mem::swap;

/// A dialog that is put aside, with its transactions.
#[derive(Debug)]
pub(super) struct Leg {
    invite: Option<Box<Client>>,
    request: Option<Box<Client>>,
    invited: Option<Box<Server>>,
    requested: Option<Box<Server>>,
    answers_invite: bool,
    last: Method,
    dialog: Option<Box<Dialog>>,
    ack: Option<SentAck>,
    answered: (u32, u64),
}

impl Default for Leg {
    fn default() -> Self {
        Self {
            invite: None,
            request: None,
            invited: None,
            requested: None,
            answers_invite: false,
            last: Method::Unknown,
            dialog: None,
            ack: None,
            answered: (0, 0),
        }
    }
}

impl Leg {
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn bytes(&self) -> usize {
        use super::footprint::{client, server};
        let clients = [&self.invite, &self.request].into_iter().flatten().map(|one| client(one));
        let servers = [&self.invited, &self.requested].into_iter().flatten().map(|one| server(one));
        clients.chain(servers).sum()
    }

    fn is_up(&self) -> bool {
        self.dialog.as_ref().is_some_and(|dialog| dialog.session)
    }
}

impl UserAgent {
    fn has_call(&self, call_id: &[u8], call: u64) -> bool {
        let servers = [&self.invited, &self.requested];
        self.dialog.as_ref().is_some_and(|dialog| *dialog.call_id == *call_id)
            || servers.into_iter().flatten().any(|server| server.call == call)
    }

    fn has_branch(&self, branch: u32) -> bool {
        [&self.invite, &self.request].into_iter().flatten().any(|client| client.branch == branch)
    }

    /// Numbers of the dialogs.
    pub(super) fn legs(&self) -> std::ops::Range<u8> {
        0..self.config.legs
    }

    /// Work on dialog number `leg`.
    #[inline]
    pub(super) fn select(&mut self, leg: u8) {
        if leg != self.leg {
            self.exchange(self.leg);
            self.exchange(leg);
            self.leg = leg;
        }
    }

    fn exchange(&mut self, place: u8) {
        if self.aside.is_empty() {
            self.aside.resize_with(usize::from(self.config.legs), Leg::default);
        }
        let Some(leg) = self.aside.get_mut(usize::from(place)) else { return };
        swap(&mut self.invite, &mut leg.invite);
        swap(&mut self.request, &mut leg.request);
        swap(&mut self.invited, &mut leg.invited);
        swap(&mut self.requested, &mut leg.requested);
        swap(&mut self.answers_invite, &mut leg.answers_invite);
        swap(&mut self.last, &mut leg.last);
        swap(&mut self.dialog, &mut leg.dialog);
        swap(&mut self.ack, &mut leg.ack);
        swap(&mut self.answered, &mut leg.answered);
    }

    /// Forget all dialogs that are put aside.
    pub(super) fn clear_aside(&mut self) {
        self.aside.iter_mut().for_each(|leg| *leg = Leg::default());
        self.leg = 0;
    }

    /// Method of the last request sent in a dialog.
    pub(super) fn last_of(&self, leg: u8) -> Method {
        match self.aside.get(usize::from(leg)) {
            Some(aside) if leg != self.leg => aside.last,
            _ => self.last,
        }
    }

    /// Whether a session is up in any dialog.
    pub(super) fn in_any_session(&self) -> bool {
        self.in_session() || self.aside.iter().any(Leg::is_up)
    }

    /// Select the dialog that a message belongs to; one that begins something goes to the dialog whose step waits for it.
    pub(super) fn select_for(&mut self, message: &Scanned<'_>) {
        if self.config.legs < 2 {
            return;
        }
        let call = fingerprint(message.call_id);
        let ours = match message.start {
            Start::Response { .. } => {
                message.via.branch.and_then(|branch| read_branch(branch, self.config.run))
            }
            Start::Request { .. } => None,
        };
        let before = self.leg;
        let mut by_call = None;
        for leg in self.legs() {
            self.select(leg);
            if ours.is_some_and(|(_, branch)| self.has_branch(branch)) {
                return;
            }
            if by_call.is_none() && self.has_call(message.call_id, call) {
                by_call = Some(leg);
            }
        }
        let waiting = match message.start {
            Start::Request { method, .. } => self.waiting_leg(Method::of(method)),
            Start::Response { .. } => None,
        };
        self.select(by_call.or(waiting).unwrap_or(before));
    }

    /// The dialog of the next step that waits for a request of this method.
    fn waiting_leg(&self, method: Method) -> Option<u8> {
        let steps = self.config.ops.get(usize::from(self.at)..).unwrap_or_default().iter();
        let mut alternatives = steps
            .filter_map(|op| match op {
                Op::Expect(alternatives) => Some(alternatives.iter()),
                _ => None,
            })
            .flatten();
        alternatives.find(|one| one.message.is_request(method)).map(|one| one.leg)
    }
}
