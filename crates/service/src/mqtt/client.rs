//! A client and its session: filters, messages on their way to it, messages that wait for it.

use crate::ConnectionId;
use protocol::mqtt::Version;
use protocol::mqtt::property::{TOPIC_ALIAS, put, written};
use protocol::mqtt::wire::{Ack, Packet, Publish};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// Messages that are sent to a client before one is acknowledged, at most.
const WINDOW: u32 = 1000;
/// Messages that wait for a client, at most.
const QUEUE: usize = 1000;
/// A session without an end: how long it is kept, and when it is over.
pub(super) const NEVER: u64 = u64::MAX;
/// Subscription Identifier: it belongs to a subscription, and is not passed on.
const SUBSCRIPTION_IDENTIFIER: u8 = 0x0b;
/// Will Delay Interval: it belongs to a will, and is not passed on.
const WILL_DELAY: u8 = 0x18;

/// A message that is kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    topic: Box<str>,
    payload: Box<[u8]>,
    properties: Box<[u8]>,
    /// Quality of service that it was published with.
    pub qos: u8,
}

impl Message {
    pub fn of(publish: &Publish<'_>) -> Self {
        let mut properties = Vec::new();
        for (id, value) in publish.properties.iter() {
            if !matches!(id, TOPIC_ALIAS | SUBSCRIPTION_IDENTIFIER | WILL_DELAY) {
                put(&mut properties, id, value);
            }
        }
        Self {
            topic: publish.topic.into(),
            payload: publish.payload.into(),
            properties: properties.into(),
            qos: publish.qos,
        }
    }

    pub fn publish(&self) -> Publish<'_> {
        Publish {
            qos: self.qos,
            topic: &self.topic,
            payload: &self.payload,
            properties: written(&self.properties),
            ..Publish::default()
        }
    }

    pub fn emit(&self, version: Version, qos: u8, id: u16, retain: bool, dup: bool, out: &mut Vec<u8>) {
        Packet::Publish(Publish { qos, id, retain, dup, ..self.publish() }).emit(version, out);
    }
}

/// A message on its way.
#[derive(Debug)]
struct InFlight {
    id: u16,
    qos: u8,
    retain: bool,
    /// `None`: it is there (PUBREC), and its number is not free yet.
    message: Option<Arc<Message>>,
}

/// A packet that is sent again after a client came back.
pub(super) enum Again {
    Message(Arc<Message>, u8, u16, bool),
    Release(u16),
}

impl Again {
    pub fn id(&self) -> u16 {
        let (Again::Message(_, _, id, _) | Again::Release(id)) = self;
        *id
    }

    pub fn emit(&self, version: Version, out: &mut Vec<u8>) {
        match self {
            Again::Message(message, qos, id, retain) => message.emit(version, *qos, *id, *retain, true, out),
            Again::Release(id) => Packet::PubRel(Ack::of(*id)).emit(version, out),
        }
    }
}

/// A client.
#[derive(Debug, Default)]
pub(super) struct Client {
    pub name: Box<str>,
    pub connection: Option<ConnectionId>,
    pub filters: Vec<Box<str>>,
    /// How long its session is kept when it is away, nanoseconds.
    keeps: u64,
    /// When its session is over, if it does not come back.
    pub expires: u64,
    /// Messages on their way that it takes at a time.
    window: u32,
    /// Bytes of the largest packet that it takes.
    pub packet_max: usize,
    last_id: u16,
    in_flight: VecDeque<InFlight>,
    waiting: VecDeque<(Arc<Message>, u8, bool)>,
    /// Numbers of QoS 2 messages of its own that are not released.
    unreleased: HashSet<u16>,
}

impl Client {
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    pub fn arrive(&mut self, id: ConnectionId, keeps: u64, receive_maximum: u32, packet_max: usize) {
        self.connection = Some(id);
        self.keeps = keeps;
        self.window = receive_maximum.clamp(1, WINDOW);
        self.packet_max = packet_max;
    }

    /// It says anew how long its session is to be kept; whether it may.
    pub fn keep_for(&mut self, keeps: u64) -> bool {
        let may = self.keeps > 0 || keeps == 0;
        if may {
            self.keeps = keeps;
        }
        may
    }

    /// It went away; when its session is over, [`NEVER`] if it is kept without end.
    pub fn leave(&mut self, now: u64) -> u64 {
        self.connection = None;
        self.expires = now.saturating_add(self.keeps);
        self.expires
    }

    pub fn is_expired(&self, now: u64) -> bool {
        self.connection.is_none() && self.expires <= now
    }

    pub fn has_room(&self) -> bool {
        self.waiting.is_empty() && (self.in_flight.len() as u32) < self.window
    }

    /// Keep a message until it can be sent; whether there was room.
    pub fn queue(&mut self, message: Arc<Message>, qos: u8, retain: bool) -> bool {
        let fits = self.waiting.len() < QUEUE;
        if fits {
            self.waiting.push_back((message, qos, retain));
        }
        fits
    }

    pub fn next_queued(&mut self) -> Option<(Arc<Message>, u8, bool)> {
        if self.in_flight.len() as u32 >= self.window { None } else { self.waiting.pop_front() }
    }

    /// A message goes on its way; its number.
    pub fn begin(&mut self, message: Arc<Message>, qos: u8, retain: bool) -> u16 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            // fewer are on their way than there are numbers
            if !self.in_flight.iter().any(|one| one.id == self.last_id) {
                break;
            }
        }
        self.in_flight.push_back(InFlight { id: self.last_id, qos, retain, message: Some(message) });
        self.last_id
    }

    /// PUBACK or PUBCOMP.
    pub fn acknowledged(&mut self, id: u16) {
        // mostly the oldest
        if let Some(at) = self.in_flight.iter().position(|one| one.id == id) {
            self.in_flight.remove(at);
        }
    }

    /// PUBREC: whether the number is on its way.
    pub fn pubrec_received(&mut self, id: u16) -> bool {
        let found = self.in_flight.iter_mut().find(|one| one.id == id && one.qos == 2);
        found.map(|one| one.message = None).is_some()
    }

    pub fn unacknowledged(&self) -> Vec<Again> {
        let again = |one: &InFlight| match &one.message {
            Some(message) => Again::Message(Arc::clone(message), one.qos, one.id, one.retain),
            None => Again::Release(one.id),
        };
        self.in_flight.iter().map(again).collect()
    }

    /// A QoS 2 message with this number came: whether for the first time.
    pub fn receives(&mut self, id: u16) -> bool {
        self.unreleased.insert(id)
    }

    /// PUBREL: whether the number was in use.
    pub fn released(&mut self, id: u16) -> bool {
        self.unreleased.remove(&id)
    }
}
