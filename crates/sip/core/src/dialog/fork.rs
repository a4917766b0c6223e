use super::error::{DialogError, MAX_FORKS};
use super::{Dialog, State};
use crate::message::Message;

/// The dialogs that responses to one INVITE make: one for each tag of To (RFC 3261 sections 12.1, 13.2.2).
#[derive(Debug, Clone)]
pub struct Forks {
    invite: Message,
    dialogs: Vec<Dialog>,
}

/// Meaning of a response to an INVITE. Numbers are places in [`Forks::dialogs`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkEvent {
    /// 100, or a provisional response without tag.
    Trying,
    /// A provisional response that made a dialog.
    Early(usize),
    /// Another provisional response of a dialog.
    Progress(usize),
    /// The first 2xx of a dialog: it is confirmed. Each gets an ACK.
    Confirmed(usize),
    /// The same 2xx again: the ACK is sent again.
    Repeated(usize),
    /// No class 2: all early dialogs end.
    Rejected,
}

impl Forks {
    /// For an INVITE that is sent.
    pub fn new(invite: Message) -> Self {
        Self { invite, dialogs: Vec::new() }
    }

    /// The dialogs, in the order in which they were made.
    pub fn dialogs(&self) -> &[Dialog] {
        &self.dialogs
    }

    /// A dialog, to send requests in it.
    pub fn dialog_mut(&mut self, at: usize) -> Option<&mut Dialog> {
        self.dialogs.get_mut(at)
    }

    /// A response to the INVITE came.
    pub fn on_response(&mut self, response: &Message) -> Result<ForkEvent, DialogError> {
        let code = response.code().ok_or(DialogError::NotAResponse)?;
        if code >= 300 {
            for dialog in self.dialogs.iter_mut().filter(|dialog| dialog.state == State::Early) {
                dialog.state = State::Terminated;
            }
            return Ok(ForkEvent::Rejected);
        }
        let tag = response.to()?.tag().map(str::to_owned);
        if code == 100 || code < 200 && tag.is_none() {
            return Ok(ForkEvent::Trying);
        }
        let tag = tag.unwrap_or_default();
        let Some(at) = self.dialogs.iter().position(|dialog| dialog.id.remote_tag == tag) else {
            if self.dialogs.len() >= MAX_FORKS {
                return Err(DialogError::Forks);
            }
            self.dialogs.push(Dialog::client(&self.invite, response)?);
            let at = self.dialogs.len() - 1;
            return Ok(if code < 200 { ForkEvent::Early(at) } else { ForkEvent::Confirmed(at) });
        };
        if code < 200 {
            return Ok(ForkEvent::Progress(at));
        }
        if self.dialogs[at].state == State::Early {
            self.dialogs[at].on_response(response)?;
            return Ok(ForkEvent::Confirmed(at));
        }
        Ok(ForkEvent::Repeated(at))
    }

    /// Ends the dialogs that are still early, 64 T1 after the first 2xx (RFC 3261 section 13.2.2.4).
    pub fn end_early(&mut self) -> usize {
        let early = self.dialogs.iter_mut().filter(|dialog| dialog.state == State::Early);
        early.map(|dialog| dialog.state = State::Terminated).count()
    }
}
