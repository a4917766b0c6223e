//! The dialogs of a user agent, each with its transactions, and which of them is worked on.

use super::{SentAck, UserAgent};
use crate::dialog::Dialog;
use crate::message::{fingerprint, read_branch};
use crate::method::Method;
use crate::scenario::Op;
use crate::transaction::{Client, Server};
use sip_core::message::{Scanned, Start};
use std::ops::{Deref, DerefMut};

/// A dialog of the scenario, or a call that is to become one, with its transactions.
#[derive(Debug)]
pub(super) struct DialogState {
    /// Under way: an INVITE, and another request.
    pub invite: Option<Box<Client>>,
    pub request: Option<Box<Client>>,
    /// Received: an INVITE, and another request; which of them steps answer.
    pub invited: Option<Box<Server>>,
    pub requested: Option<Box<Server>>,
    pub answers_invite: bool,
    /// Method of the last request sent, which a step expects the response to.
    pub last: Method,
    pub dialog: Option<Box<Dialog>>,
    /// The ACK to the last 2xx, which is sent again when that comes again, and where it goes.
    pub ack: Option<Box<SentAck>>,
    /// The last call that was answered: its number, and the tag of who answered it.
    pub answered: (u32, u64),
}

impl Default for DialogState {
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

impl DialogState {
    /// Whether its session is up.
    pub fn is_up(&self) -> bool {
        self.dialog.as_ref().is_some_and(|dialog| dialog.session)
    }

    /// Its requests that are under way.
    pub fn clients(&self) -> impl Iterator<Item = &Client> {
        [&self.invite, &self.request].into_iter().flatten().map(|client| &**client)
    }

    /// The requests that it answers.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        [&self.invited, &self.requested].into_iter().flatten().map(|server| &**server)
    }

    fn has_call(&self, call_id: &[u8], call: u64) -> bool {
        self.dialog.as_ref().is_some_and(|dialog| *dialog.call_id == *call_id)
            || self.servers().any(|server| server.call == call)
    }
}

/// The dialogs of a scenario; as a [`DialogState`] it is the one that is worked on.
#[derive(Debug)]
pub(super) struct Dialogs {
    all: Box<[DialogState]>,
    selected: u8,
}

impl Dialogs {
    /// So many, at least one.
    pub fn new(count: u8) -> Self {
        let all = (0..count.max(1)).map(|_| DialogState::default()).collect();
        Self { all, selected: 0 }
    }

    /// All of them, in the order of their numbers.
    pub fn all(&self) -> &[DialogState] {
        &self.all
    }

    /// Number of the one that is worked on.
    #[inline]
    pub fn selected(&self) -> u8 {
        self.selected
    }

    /// Work on number `dialog`, which is one of them.
    #[inline]
    pub fn select(&mut self, dialog: u8) {
        debug_assert!(usize::from(dialog) < self.all.len());
        self.selected = dialog;
    }

    /// The flow is over: forget what is under way, but calls that are to be taken back, if `calls`. An answer to its last call may
    /// still come again.
    pub fn clear(&mut self, calls: bool) {
        for state in &mut self.all {
            if !(calls && state.is_left()) {
                (state.invite, state.dialog) = (None, None);
            }
            (state.invited, state.requested) = (None, None);
            state.request = None;
        }
        self.selected = 0;
    }
}

impl Deref for Dialogs {
    type Target = DialogState;

    #[inline]
    fn deref(&self) -> &DialogState {
        &self.all[usize::from(self.selected)]
    }
}

impl DerefMut for Dialogs {
    #[inline]
    fn deref_mut(&mut self) -> &mut DialogState {
        &mut self.all[usize::from(self.selected)]
    }
}

impl UserAgent {
    /// Numbers of the dialogs.
    pub(super) fn legs(&self) -> std::ops::Range<u8> {
        0..self.config.legs
    }

    /// Work on dialog number `leg`.
    #[inline]
    pub(super) fn select(&mut self, leg: u8) {
        self.dialogs.select(leg);
    }

    /// Method of the last request sent in a dialog.
    pub(super) fn last_of(&self, leg: u8) -> Method {
        self.dialogs.all().get(usize::from(leg)).map_or(Method::Unknown, |state| state.last)
    }

    /// Whether a session is up in any dialog.
    pub(super) fn in_any_session(&self) -> bool {
        self.dialogs.all().iter().any(DialogState::is_up)
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
        let number_of = |is: &dyn Fn(&DialogState) -> bool| {
            self.dialogs.all().iter().position(is).and_then(|number| u8::try_from(number).ok())
        };
        let by_branch = ours.and_then(|(_, branch)| {
            number_of(&|state| state.clients().any(|client| client.branch == branch))
        });
        let by_call = || number_of(&|state| state.has_call(message.call_id, call));
        let waiting = || match message.start {
            Start::Request { method, .. } => self.waiting_leg(Method::of(method)),
            Start::Response { .. } => None,
        };
        if let Some(number) = by_branch.or_else(by_call).or_else(waiting) {
            self.dialogs.select(number);
        }
    }

    /// The dialog of the next step that waits for a request of this method.
    fn waiting_leg(&self, method: Method) -> Option<u8> {
        let mut alternatives = self
            .config
            .steps(self.at)
            .iter()
            .filter_map(|op| match op {
                Op::Expect(alternatives) => Some(alternatives.iter()),
                _ => None,
            })
            .flatten();
        alternatives.find(|one| one.message.is_request(method)).map(|one| one.leg)
    }
}
