use super::DialogError;
use crate::message::Message;
use crate::message::Name;
use crate::message::header::{CSeq, RAck};
use crate::transaction::Timers;

/// The server's side of reliable provisional responses (RFC 3262 section 3): one waits for its PRACK at a time.
#[derive(Debug, Clone)]
pub struct ProvisionalSender {
    invite: CSeq,
    next: u32,
    waiting: Option<PendingResponse>,
}

#[derive(Debug, Clone, Copy)]
struct PendingResponse {
    rseq: u32,
    interval: u64,
    again_at: u64,
    end_at: u64,
}

impl ProvisionalSender {
    /// For an INVITE with this CSeq. `first` is drawn from 1 to 2^31 - 1.
    pub fn new(invite: CSeq, first: u32) -> Self {
        Self { invite, next: first.clamp(1, (1 << 31) - 1), waiting: None }
    }

    /// RSeq of a response that is sent now, with `Require: 100rel`.
    pub fn send(&mut self, timers: &Timers, now: u64) -> Result<u32, DialogError> {
        if self.waiting.is_some() {
            return Err(DialogError::Waiting);
        }
        let rseq = self.next;
        self.next = self.next.wrapping_add(1).max(1);
        self.waiting = Some(PendingResponse {
            rseq,
            interval: timers.t1,
            again_at: now.saturating_add(timers.t1),
            end_at: now.saturating_add(timers.limit()),
        });
        Ok(rseq)
    }

    /// When [`on_timer`](Self::on_timer) is to be called.
    pub fn deadline(&self) -> Option<u64> {
        self.waiting.map(|waiting| waiting.again_at.min(waiting.end_at))
    }

    /// The deadline has come: `Some(true)` sends the response again, `Some(false)` gives up, which asks for a 5xx to the INVITE.
    pub fn on_timer(&mut self, now: u64) -> Option<bool> {
        let waiting = self.waiting.as_mut()?;
        if now >= waiting.end_at {
            self.waiting = None;
            return Some(false);
        }
        if now < waiting.again_at {
            return None;
        }
        waiting.interval = waiting.interval.saturating_mul(2);
        waiting.again_at = now.saturating_add(waiting.interval);
        Some(true)
    }

    /// A PRACK came. [`DialogError::RAck`] asks for a 481.
    pub fn on_prack(&mut self, prack: &Message) -> Result<(), DialogError> {
        let rack: RAck = prack.need(Name::RAck)?;
        let matches =
            self.waiting.is_some_and(|waiting| waiting.rseq == rack.rseq) && rack.cseq == self.invite;
        if !matches {
            return Err(DialogError::RAck);
        }
        self.waiting = None;
        Ok(())
    }
}

/// The client's side of reliable provisional responses of one dialog (RFC 3262 section 4).
#[derive(Debug, Clone, Copy, Default)]
pub struct ProvisionalReceiver {
    last: Option<u32>,
}

/// Action that a provisional response asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProvisionalAction {
    /// It is not sent reliably.
    Unreliable,
    /// A PRACK with this RAck.
    Acknowledge(RAck),
    /// Nothing: it came before, or another before it did not come yet.
    Ignore,
}

impl ProvisionalReceiver {
    /// A provisional response of the dialog came.
    pub fn on_response(&mut self, response: &Message) -> Result<ProvisionalAction, DialogError> {
        let reliable = response.code().is_some_and(|code| (101..200).contains(&code))
            && response.has_option(Name::Require, "100rel");
        if !reliable {
            return Ok(ProvisionalAction::Unreliable);
        }
        let rseq: u32 = response.need(Name::RSeq)?;
        if self.last.is_some_and(|last| last.checked_add(1) != Some(rseq)) {
            return Ok(ProvisionalAction::Ignore);
        }
        let rack = RAck { rseq, cseq: response.cseq()? };
        self.last = Some(rseq);
        Ok(ProvisionalAction::Acknowledge(rack))
    }
}
