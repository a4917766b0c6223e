//! IPFIX messages (RFC 7011) with the records of RFC 8158.
//!
//! A template is announced in the message that first needs it, and all that were announced are sent again at intervals: over UDP a
//! collector that starts later, or that lost the first announcement, understands the records from then on (RFC 7011 section 8.4).

mod message;
mod template;

pub use template::{NatEvent, QuotaEvent};

use crate::event::Event;
use message::Message;
use template::{Template, describe, record};

/// What an exporter says of itself, and how long its messages may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Observation domain: one number for each exporter of a host (RFC 7011 section 3.1).
    pub domain: u32,
    /// `natInstanceID` in each record.
    pub instance: u32,
    /// Bytes of a message at most; see [`payload`].
    pub max_message: usize,
    /// Milliseconds after which templates are sent again; 0 for never, as over TCP (RFC 7011 section 10.4).
    pub refresh_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { domain: 1, instance: 1, max_message: payload(1500, true), refresh_ms: 60_000 }
    }
}

/// The smallest bound of a message: header, the longest template and its record.
pub const MIN_MESSAGE: usize = 192;
/// The largest: its length is a 16-bit field.
pub const MAX_MESSAGE: usize = 65_535;

/// Bytes that a link of `mtu` carries in one UDP datagram without fragments.
pub fn payload(mtu: usize, ipv6: bool) -> usize {
    mtu.saturating_sub(if ipv6 { 40 + 8 } else { 20 + 8 })
}

/// Why there is no exporter of such a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("IPFIX messages of at most {0} bytes cannot be: {MIN_MESSAGE} to {MAX_MESSAGE} can")]
pub struct BadLength(pub usize);

/// Where messages go that are complete, with the number of events in each.
pub type MessageSink<'a> = &'a mut dyn FnMut(&[u8], u32);

/// Makes messages of events. Each call is told the time, and a place for the messages that are complete.
#[derive(Debug)]
pub struct Exporter {
    config: Config,
    message: Message,
    /// Data records in the messages before this one (RFC 7011 section 3.1).
    sequence: u32,
    /// Templates that were sent, a bit each.
    announced: u64,
    refreshed_ms: u64,
}

impl Exporter {
    /// An exporter that has sent nothing yet.
    pub fn new(config: Config) -> Result<Self, BadLength> {
        if !(MIN_MESSAGE..=MAX_MESSAGE).contains(&config.max_message) {
            return Err(BadLength(config.max_message));
        }
        let message = Message::new(config.max_message);
        Ok(Self { config, message, sequence: 0, announced: 0, refreshed_ms: 0 })
    }

    /// A new transport session: sequence and templates begin anew, and what was not sent is dropped.
    pub fn restart(&mut self) {
        self.message.clear();
        self.sequence = 0;
        self.announced = 0;
    }

    /// Write an event.
    pub fn event(&mut self, now_ms: u64, event: &Event, out: MessageSink<'_>) {
        let template = Template::of(event);
        self.write(now_ms, template, out, |this, to| record(to, template, event, this.instance));
        self.message.events += 1;
    }

    /// Write that `total` events were lost since the start.
    pub fn lost(&mut self, now_ms: u64, total: u64, out: MessageSink<'_>) {
        self.write(now_ms, Template::LOST, out, |this, to| {
            template::lost(to, this.domain, now_ms, total);
        });
    }

    /// Complete the message that was begun, and send templates again when it is time.
    pub fn flush(&mut self, now_ms: u64, out: MessageSink<'_>) {
        self.refresh(now_ms, out);
        self.finish(now_ms, out);
    }

    fn write(
        &mut self,
        now_ms: u64,
        template: Template,
        out: MessageSink<'_>,
        body: impl FnOnce(&Config, &mut Vec<u8>),
    ) {
        self.refresh(now_ms, out);
        if self.announced & template.bit() == 0 {
            self.announce(now_ms, template, out);
        }
        self.room(now_ms, template.id(), template.record_len(), out);
        body(&self.config, self.message.body(template.id()));
        self.message.records += 1;
    }

    fn refresh(&mut self, now_ms: u64, out: MessageSink<'_>) {
        if self.announced == 0 {
            self.refreshed_ms = now_ms;
        } else if self.config.refresh_ms > 0
            // Also where the clock was set back.
            && now_ms.abs_diff(self.refreshed_ms) >= self.config.refresh_ms
        {
            self.refreshed_ms = now_ms;
            let announced = self.announced;
            for template in Template::all().filter(|template| announced & template.bit() != 0) {
                self.announce(now_ms, template, out);
            }
        }
    }

    fn announce(&mut self, now_ms: u64, template: Template, out: MessageSink<'_>) {
        let mut bytes = Vec::with_capacity(80);
        describe(&mut bytes, template);
        self.room(now_ms, template.set(), bytes.len(), out);
        self.message.body(template.set()).extend_from_slice(&bytes);
        self.announced |= template.bit();
    }

    /// Begin a new message where this one has no room for `len` bytes more in such a set.
    fn room(&mut self, now_ms: u64, set: u16, len: usize, out: MessageSink<'_>) {
        if !self.message.fits(set, len) {
            self.finish(now_ms, out);
        }
    }

    fn finish(&mut self, now_ms: u64, out: MessageSink<'_>) {
        let Message { records, events, .. } = self.message;
        if let Some(bytes) = self.message.finish(now_ms, self.sequence, self.config.domain) {
            out(bytes, events);
        }
        self.message.clear();
        self.sequence = self.sequence.wrapping_add(records);
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
