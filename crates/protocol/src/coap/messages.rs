//! What comes: to which exchange a message belongs, and what is answered to it (RFC 7252 sections 4 and 5).

use super::exchange::{Purpose, Stage};
use super::wire::{self, Code, Header, Message, MessageType, Writer};
use super::{ACKNOWLEDGEMENT, Device, SEPARATE};
use crate::meter::Failure;
use crate::model::Cx;

/// How many of the latest identifiers are known as our own.
const RECENT: u16 = 256;

impl Device {
    /// The exchange that a token means, if it is one of the latest.
    fn find(&self, token: &[u8]) -> Option<usize> {
        let token = u32::from_be_bytes(token.try_into().ok()?);
        let back = (self.next as u32).wrapping_sub(token.wrapping_sub(self.salt)) as usize;
        let i = self.exchanges.len().checked_sub(back)?;
        (i < self.exchanges.len()).then_some(i)
    }

    /// The exchange whose message has this identifier.
    fn find_id(&self, id: u16) -> Option<usize> {
        self.exchanges.iter().position(|x| x.id == id && x.awaits_reply())
    }

    /// Whether this is the identifier of a confirmable message that needs no acknowledgement any more.
    fn is_answered(&self, id: u16) -> bool {
        self.config.confirmable && self.last_id.wrapping_sub(id) < RECENT
    }

    /// Answer a message with an empty one (RFC 7252 section 4.2). At most one in each callback, before all else.
    fn reply(&self, cx: &mut Cx<'_>, kind: MessageType, id: u16) {
        Writer::begin(&mut cx.out.bytes, kind, Code::EMPTY, id, &[]);
        cx.out.segment = wire::HEADER;
        cx.sent_bytes(cx.now, wire::HEADER);
    }

    /// Reject a message: with a reset if it is confirmable, else by passing it over (sections 4.2 and 4.3).
    fn reject(&self, cx: &mut Cx<'_>, header: Header) {
        if header.kind == MessageType::Con {
            self.reply(cx, MessageType::Rst, header.id);
        }
    }

    pub(super) fn message(&mut self, cx: &mut Cx<'_>, header: Header, bytes: &[u8]) {
        let message = match Message::parse(header, bytes) {
            Ok(message) => message,
            Err(what) => {
                self.reject(cx, header);
                let about = matches!(header.kind, MessageType::Ack | MessageType::Rst)
                    .then(|| self.find_id(header.id));
                return match about.flatten() {
                    Some(i) => self.fail(cx, i, Failure::Protocol, || what.to_string()),
                    None => cx.corrupted(cx.now, || what.to_string()),
                };
            }
        };
        match (header.kind, header.code.class()) {
            (MessageType::Rst, _) => self.reset(cx, header),
            (MessageType::Ack, _) if header.code == Code::EMPTY => self.acknowledged(cx, header),
            (MessageType::Ack, 2..) => self.piggybacked(cx, &message, bytes.len()),
            (MessageType::Con | MessageType::Non, 2..) => self.separate(cx, &message, bytes.len()),
            // a ping (section 4.3), or a request, of which a client takes none
            _ => {
                self.reject(cx, header);
                cx.count_unrequested(cx.now);
            }
        }
    }

    /// The server has no context for what we sent, or rejects it (section 4.2).
    fn reset(&mut self, cx: &mut Cx<'_>, header: Header) {
        match self.find_id(header.id) {
            Some(i) => self.fail(cx, i, Failure::Reset, || "a reset in place of a response".into()),
            None => cx.count_unrequested(cx.now),
        }
    }

    /// The response comes later (section 5.2.2).
    fn acknowledged(&mut self, cx: &mut Cx<'_>, header: Header) {
        let Some(i) = self.find_id(header.id).filter(|_| self.config.confirmable) else {
            // section 5.2.2: behind a response in a message of its own it says nothing new
            if !self.is_answered(header.id) {
                cx.count_unrequested(cx.now);
            }
            return;
        };
        if self.exchanges[i].stage == Stage::Acknowledged {
            cx.at(self.exchanges[i].intended).counts.duplicates += 1;
            return;
        }
        self.confirm(cx, i);
        self.set(i, Stage::Acknowledged);
        let x = &mut self.exchanges[i];
        x.due = x.sent + self.config.timeout;
        self.soonest = self.soonest.min(x.due);
    }

    /// The message of exchange `i` is acknowledged, be it by its response.
    pub(super) fn confirm(&mut self, cx: &mut Cx<'_>, i: usize) {
        let x = &mut self.exchanges[i];
        let first = !std::mem::replace(&mut x.confirmed, true) && x.purpose != Purpose::Fetch;
        if first && self.config.confirmable {
            cx.delay(x.intended, ACKNOWLEDGEMENT);
        }
    }

    /// A response inside the acknowledgement (section 5.2.1).
    fn piggybacked(&mut self, cx: &mut Cx<'_>, message: &Message<'_>, len: usize) {
        let ours = self.find_id(message.header.id).filter(|_| self.config.confirmable);
        match ours {
            // section 5.3.2: message ID and token must match
            Some(i) if message.token != self.token(i).to_be_bytes() => {
                self.fail(cx, i, Failure::Protocol, || {
                    "a response with another token than its request".into()
                });
            }
            Some(i) => self.response(cx, i, message, len),
            None => self.stray(cx, message),
        }
    }

    /// A response that is no acknowledgement, or a notification.
    fn separate(&mut self, cx: &mut Cx<'_>, message: &Message<'_>, len: usize) {
        let header = message.header;
        // section 4.5: what comes again is acknowledged again, and processed once
        if self.rare.as_ref().is_some_and(|rare| rare.recent.has(header.id)) {
            if header.kind == MessageType::Con {
                self.reply(cx, MessageType::Ack, header.id);
            }
            cx.at(cx.now).counts.duplicates += 1;
            return;
        }
        let observes = self.config.observe && message.token == self.salt.to_be_bytes();
        let found = self.find(message.token).filter(|i| self.exchanges[*i].awaits_reply());
        if !observes && found.is_none() {
            return self.stray(cx, message);
        }
        self.rare.get_or_insert_default().recent.add(header.id);
        if message.options.unrecognized.is_some() {
            self.reject(cx, header);
        } else if header.kind == MessageType::Con {
            self.reply(cx, MessageType::Ack, header.id);
        }
        match found {
            Some(i) if !observes => {
                if self.config.confirmable {
                    cx.count(self.exchanges[i].intended, SEPARATE);
                }
                self.response(cx, i, message, len);
            }
            _ => self.notified(cx, message, len),
        }
    }

    /// A response that nothing waits for: it came twice, or too late, or was never asked for.
    fn stray(&mut self, cx: &mut Cx<'_>, message: &Message<'_>) {
        match self.find(message.token).map(|i| self.exchanges[i]) {
            Some(x) => {
                if message.header.kind == MessageType::Con {
                    self.reply(cx, MessageType::Ack, message.header.id);
                }
                if x.stage == Stage::Failed {
                    cx.count_unrequested(x.intended);
                } else {
                    cx.at(x.intended).counts.duplicates += 1;
                }
            }
            None => {
                // RFC 7641 section 3.2: also a notification that is not confirmable, so that the server sends no more
                if message.options.observe.is_some() && message.header.kind == MessageType::Non {
                    self.reply(cx, MessageType::Rst, message.header.id);
                }
                self.reject(cx, message.header);
                cx.count_unrequested(cx.now);
            }
        }
    }
}
