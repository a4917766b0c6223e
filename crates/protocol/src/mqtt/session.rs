//! A device's session: connect, greet, subscribe, come back when the connection is lost, leave.

use super::property::{self, Properties, Value};
use super::wire::{self, Connect, Packet};
use super::{Device, Reconnect, State};
use crate::cause::Cause;
use crate::model::Cx;
use crate::template::{Template, Values};
use crate::time::Time;
use rand::Rng;
use std::sync::Arc;
use std::time::Duration;

impl Device {
    /// Whether there is a connection to read from.
    pub(super) fn open(&self) -> bool {
        !matches!(self.state, State::Idle | State::Connecting | State::Pausing)
    }

    pub(super) fn connect(&mut self, cx: &mut Cx<'_>, since: Time) {
        self.state = State::Connecting;
        self.since = since;
        self.limit = cx.now + self.config.connect_timeout;
        self.pinged = Time::NEVER;
        self.pings = 0;
        self.held = 0;
        self.resumed = false;
        if let Some(rare) = &mut self.rare {
            rare.pubcomps = 0;
            rare.resent.clear();
        }
        self.window = self.config.window;
        self.keep_alive = self.config.keep_alive;
        self.max_packet = u32::MAX;
        cx.connect();
    }

    /// The connection cannot be used any more: come back later, or fail the flow.
    pub(super) fn connection_lost(
        &mut self,
        cx: &mut Cx<'_>,
        why: impl Into<Cause>,
        what: impl FnOnce() -> String,
    ) {
        if self.may_return() {
            cx.failure(cx.now, why, what);
            cx.close();
            self.pause(cx);
        } else {
            self.end(cx);
            cx.fail(cx.now, why, what);
        }
    }

    pub(super) fn may_return(&self) -> bool {
        let most = match &self.config.reconnect {
            Reconnect::None => return false,
            Reconnect::Fixed(fixed) => fixed.attempts,
            Reconnect::Backoff(backoff) => backoff.attempts,
        };
        (!self.stopping || self.has_unacknowledged()) && (most == 0 || self.attempts < most)
    }

    /// Whether the session keeps messages of this flow, which the next connection sends again (§4.4).
    pub(super) fn has_unacknowledged(&self) -> bool {
        !self.config.clean && self.inflight.iter().any(|message| !message.reported)
    }

    /// What waits for an acknowledgement gets none in this flow. The first of it has been counted with what happened
    /// to its connection.
    pub(super) fn report(&mut self, cx: &mut Cx<'_>) {
        for message in self.inflight.iter().filter(|message| !message.reported).skip(1) {
            cx.unanswered(message.intended, "its connection was lost before an acknowledgement came");
        }
        self.inflight.iter_mut().for_each(|message| message.reported = true);
    }

    /// The same, and there is no session that keeps it.
    pub(super) fn forget(&mut self, cx: &mut Cx<'_>) {
        self.report(cx);
        self.inflight.clear();
    }

    pub(super) fn pause(&mut self, cx: &mut Cx<'_>) {
        if self.config.clean {
            self.forget(cx);
        }
        let pause = match &self.config.reconnect {
            Reconnect::None => 0,
            Reconnect::Fixed(fixed) => fixed.delay.ns(),
            Reconnect::Backoff(backoff) => {
                let doubled = backoff.min.ns().saturating_mul(1 << self.attempts.min(32));
                let whole = doubled.min(backoff.max.ns());
                cx.rng.random_range(whole / 2..=whole)
            }
        };
        self.attempts = self.attempts.saturating_add(1);
        self.state = State::Pausing;
        self.limit = cx.now + Duration::from_nanos(pause);
    }

    /// Whether messages fall due.
    pub(super) fn is_scheduled(&self) -> bool {
        let publishing = self.config.publishes && self.base != Time::NEVER && self.state != State::Idle;
        publishing && !self.stopping
    }

    /// Messages that fell due and will not be sent any more still count as intended.
    pub(super) fn count_missed(&mut self, cx: &mut Cx<'_>) {
        if self.is_scheduled() {
            self.config.pace.count_missed(cx, self.base, u64::from(self.next), self.config.count);
        }
    }

    /// The flow is over. What ended it stands for the oldest message; the others have no answer either. A kept session
    /// still has them: the next flow of the device ends what this one began.
    pub(super) fn end(&mut self, cx: &mut Cx<'_>) {
        self.count_missed(cx);
        if self.config.clean {
            self.forget(cx);
        } else {
            self.report(cx);
        }
        self.state = State::Idle;
        self.armed = Time::NEVER;
        cx.wake_at(Time::NEVER);
    }

    /// End the flow in good order.
    pub(super) fn disconnect(&mut self, cx: &mut Cx<'_>) {
        if self.config.clean_disconnect {
            self.send(cx, &Packet::Disconnect { code: 0, properties: Properties::default() });
        }
        self.end(cx);
        cx.finish();
        cx.close();
    }

    /// Send a packet that is no PUBLISH.
    pub(super) fn send(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>) {
        let before = cx.out.bytes.len();
        packet.emit(self.config.version, &mut cx.out.bytes);
        self.count(cx, before);
    }

    pub(super) fn count(&mut self, cx: &mut Cx<'_>, before: usize) {
        cx.sent_bytes(cx.now, cx.out.bytes.len() - before);
        self.quiet = cx.now;
    }

    pub(super) fn send_connect(&mut self, cx: &mut Cx<'_>) {
        let config = Arc::clone(&self.config);
        let values = Values { device: cx.device, seq: u64::from(self.next), now: cx.now };
        let mut fill = |template: &Template| {
            let mut text = Vec::new();
            template.render(values, cx.rng, &mut text);
            text
        };
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap_or_default();
        let mut client_id = text(fill(&config.client_id));
        // a session is found by its name: what the template gives only once is remembered, as is what the broker gave
        if client_id.is_empty() || !config.client_id.per_device() {
            let rare = self.rare.get_or_insert_default();
            if rare.client_id.is_empty() {
                rare.client_id.clone_from(&client_id);
            } else {
                client_id.clone_from(&rare.client_id);
            }
        }
        let username = config.username.as_ref().map(|name| text(fill(name)));
        let password = config.password.as_ref().map(&mut fill);
        let will = config.will.as_ref().map(|will| (text(fill(&will.topic)), fill(&will.payload), will));
        let mut properties = Vec::new();
        if config.session_expiry > 0 {
            wire_number(&mut properties, property::SESSION_EXPIRY, config.session_expiry);
        }
        // §3.1.2.11.4: the broker then drops what we would not take
        wire_number(&mut properties, property::MAXIMUM_PACKET_SIZE, config.max_packet as u32);
        let packet = Packet::Connect(Connect {
            clean: config.clean,
            keep_alive: config.keep_alive,
            properties: property::written(&properties).only_in(config.version),
            client_id: &client_id,
            will: will.as_ref().map(|(topic, payload, will)| wire::Will {
                properties: Properties::default(),
                topic,
                payload,
                qos: will.qos,
                retain: will.retain,
            }),
            username: username.as_deref(),
            password: password.as_deref(),
        });
        self.send(cx, &packet);
    }

    pub(super) fn subscribe(&mut self, cx: &mut Cx<'_>) {
        let config = Arc::clone(&self.config);
        let values = Values { device: cx.device, seq: 0, now: cx.now };
        let (mut filters, mut filter) = (Vec::new(), Vec::new());
        for (template, qos) in &config.filters {
            filter.clear();
            template.render(values, cx.rng, &mut filter);
            wire::put_filter(&mut filters, &filter, *qos);
        }
        self.state = State::Subscribing;
        let (id, properties) = (self.new_id(), Properties::default());
        self.send(cx, &Packet::Subscribe { id, properties, filters: wire::filters(&filters) });
    }

    /// The session is there: messages are due from now on.
    pub(super) fn ready(&mut self, cx: &mut Cx<'_>) {
        self.state = State::Up;
        self.limit = Time::NEVER;
        if self.base == Time::NEVER {
            self.base = cx.now;
        }
    }

    /// An identifier that is not in use (§2.2.1).
    pub(super) fn new_id(&mut self) -> u16 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            // at most 1024 are in use
            if self.inflight.iter().all(|message| message.id != self.last_id) {
                return self.last_id;
            }
        }
    }
}

fn wire_number(out: &mut Vec<u8>, id: u8, number: u32) {
    property::put(out, id, Value::Number(number));
}
