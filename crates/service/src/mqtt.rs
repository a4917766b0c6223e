//! MQTT broker, 3.1.1 and 5.0: QoS 0 to 2, retained messages, wills, sessions that outlive their connection.
//!
//! Section numbers are those of OASIS MQTT 5.0. There are no shared subscriptions, topic aliases or subscription identifiers,
//! which CONNACK says to clients of 5.0 (section 3.2.2.3). A will is not delayed, and messages do not expire.

mod client;
mod connect;
mod retained;
mod sessions;
mod subscriptions;
#[cfg(test)]
mod tests;
mod unsubscribe;

use crate::share::Share;
use crate::{ConnectionId, Counters, Output, Service, Settings};
use client::{Client, Message};
use protocol::mqtt::Version;
use protocol::mqtt::property::{Properties, SESSION_EXPIRY, TOPIC_ALIAS};
use protocol::mqtt::wire::{Ack, Filters, Frame, MalformedPacket, Packet, Publish, frame, parse};
use retained::Retained;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use subscriptions::{Subscription, Subscriptions};
use unsubscribe::{UNSUBSCRIBE, unsubscribe};

const SECOND: u64 = 1_000_000_000;
/// Largest packet, which CONNACK announces.
const PACKET_MAX: usize = 1 << 20;
/// A connection that sends no CONNECT is closed after this time.
const CONNECT_WITHIN: u64 = 10 * SECOND;
/// Most filters of a client.
const FILTERS_MAX: usize = 1000;
/// Reason codes of 5.0 (section 2.4).
mod reason {
    pub const NO_SUBSCRIPTION: u8 = 0x11;
    pub const MALFORMED: u8 = 0x81;
    pub const PROTOCOL_ERROR: u8 = 0x82;
    pub const KEEP_ALIVE: u8 = 0x8d;
    pub const TAKEN_OVER: u8 = 0x8e;
    pub const FILTER: u8 = 0x8f;
    pub const UNKNOWN_ID: u8 = 0x92;
    pub const QUOTA: u8 = 0x97;
    pub const NO_SHARED: u8 = 0x9e;
}

/// A broker.
#[derive(Debug)]
pub struct Mqtt {
    refusals: Share,
    withheld: Share,
    connections: Vec<Option<Connection>>,
    clients: Vec<Client>,
    /// Numbers in `clients` that nobody has.
    free: Vec<u32>,
    names: HashMap<Box<str>, u32>,
    /// Clients that are away and whose sessions end, by the time when they do.
    away: BTreeSet<(u64, u32)>,
    /// Names given to clients that brought none.
    named: u64,
    subscriptions: Subscriptions,
    retained: Retained,
    /// Who gets the present message.
    receivers: Vec<Subscription>,
    counters: Counts,
}

/// One connection.
#[derive(Debug)]
struct Connection {
    version: Version,
    /// Its client, from CONNECT on until it is being closed.
    client: Option<u32>,
    /// Nanoseconds without a packet after which it is closed; 0: never.
    silence: u64,
    /// When the latest packet came.
    heard: u64,
    /// When its timer goes off next; one that was set before for another time says nothing.
    armed: u64,
    /// What to publish when it is lost.
    will: Option<(Arc<Message>, bool)>,
    /// Being closed: what comes is dropped.
    ends: bool,
}

#[derive(Debug, Default)]
struct Counts {
    connections: u64,
    open: u64,
    connects: u64,
    refused: u64,
    taken_over: u64,
    received: [u64; 3],
    acknowledged: u64,
    withheld: u64,
    sent: [u64; 3],
    acknowledgements: u64,
    not_kept: u64,
    too_large: u64,
    expired: u64,
    subscribes: u64,
    pings: u64,
    protocol_errors: u64,
    silent: u64,
    bytes_received: u64,
}

impl Mqtt {
    /// A broker with these settings.
    pub fn new(settings: &Settings) -> Self {
        Self {
            refusals: Share::new(settings.error_share, settings.seed),
            withheld: Share::new(settings.drop_share, settings.seed.wrapping_add(1)),
            connections: Vec::new(),
            clients: Vec::new(),
            free: Vec::new(),
            names: HashMap::new(),
            away: BTreeSet::new(),
            named: 0,
            subscriptions: Subscriptions::default(),
            retained: Retained::default(),
            receivers: Vec::new(),
            counters: Counts::default(),
        }
    }

    fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(id.slot as usize)?.as_mut()
    }

    /// Say why (5.0 only), and close. The client is away from now on.
    fn end(&mut self, id: ConnectionId, code: u8, out: &mut Output) {
        let Some(connection) = self.connection(id) else { return };
        connection.ends = true;
        if connection.version == Version::V5 && connection.client.is_some() {
            let packet = Packet::Disconnect { code, properties: Properties::default() };
            out.send(id, |out| packet.emit(Version::V5, out));
        }
        out.close(id);
        self.leave(id, out.now);
    }

    fn packet(
        &mut self,
        id: ConnectionId,
        frame: &Frame<'_>,
        out: &mut Output,
    ) -> Result<(), MalformedPacket> {
        let now = out.now;
        let Some(connection) = self.connection(id) else { return Ok(()) };
        connection.heard = now;
        let version = connection.version;
        let Some(client) = connection.client else { return self.connect(id, frame, out) };
        if frame.first >> 4 == UNSUBSCRIBE {
            return self.unsubscribe(id, client, version, frame, out);
        }
        match parse(version, frame)? {
            Packet::Publish(publish) => self.published(id, client, version, &publish, out),
            Packet::PubAck(ack) | Packet::PubComp(ack) => {
                self.counters.acknowledgements += 1;
                self.clients[client as usize].acknowledged(ack.id);
                self.send_queued(client, out);
            }
            Packet::PubRec(ack) => self.received_by(id, client, version, ack, out),
            Packet::PubRel(ack) => {
                let known = self.clients[client as usize].released(ack.id);
                let code = if known { 0 } else { reason::UNKNOWN_ID };
                self.counters.acknowledged += 1;
                let answer = Packet::PubComp(Ack { code, ..Ack::of(ack.id) });
                out.send(id, |out| answer.emit(version, out));
            }
            Packet::Subscribe { id: number, filters, .. } => {
                self.subscribe(id, client, version, number, filters, out);
            }
            Packet::PingReq => {
                self.counters.pings += 1;
                out.send(id, |out| Packet::PingResp.emit(version, out));
            }
            Packet::Disconnect { code, properties } => {
                // section 3.14.2.2.2: it may say anew how long its session is kept, but not that it is kept after all
                let keeps = properties.number(SESSION_EXPIRY).map(sessions::kept_for);
                if keeps.is_some_and(|keeps| !self.clients[client as usize].keep_for(keeps)) {
                    self.violated(id, reason::PROTOCOL_ERROR, out);
                    return Ok(());
                }
                // section 3.14.2.1: code 4 asks for the will
                if let Some(connection) = self.connection(id) {
                    connection.ends = true;
                    connection.will = connection.will.take().filter(|_| code != 0);
                }
                out.close(id);
                self.leave(id, now);
            }
            _ => self.violated(id, reason::PROTOCOL_ERROR, out),
        }
        Ok(())
    }

    fn violated(&mut self, id: ConnectionId, code: u8, out: &mut Output) {
        self.counters.protocol_errors += 1;
        self.end(id, code, out);
    }

    fn published(
        &mut self,
        id: ConnectionId,
        client: u32,
        version: Version,
        publish: &Publish<'_>,
        out: &mut Output,
    ) {
        if publish.properties.number(TOPIC_ALIAS).is_some() {
            return self.violated(id, reason::PROTOCOL_ERROR, out);
        }
        self.counters.received[usize::from(publish.qos)] += 1;
        let first = publish.qos < 2 || self.clients[client as usize].receives(publish.id);
        if first {
            self.retained.keep(publish);
            self.distribute(publish, Some(client), out);
        }
        if publish.qos == 0 {
            return;
        }
        if self.withheld.draw() {
            self.counters.withheld += 1;
            return;
        }
        let ack = Ack::of(publish.id);
        let answer = if publish.qos == 1 { Packet::PubAck(ack) } else { Packet::PubRec(ack) };
        self.counters.acknowledged += u64::from(publish.qos == 1);
        out.send(id, |out| answer.emit(version, out));
    }

    /// Send a message to all who have subscribed to it, once each.
    fn distribute(&mut self, publish: &Publish<'_>, from: Option<u32>, out: &mut Output) {
        self.end_expired(out.now);
        let mut receivers = std::mem::take(&mut self.receivers);
        self.subscriptions.matching(publish.topic, from, &mut receivers);
        let mut kept = None;
        for one in &receivers {
            let (qos, retain) = (publish.qos.min(one.qos), publish.retain && one.retain_as_published);
            self.deliver(one.client, publish, qos, retain, &mut kept, out);
        }
        receivers.clear();
        self.receivers = receivers;
    }

    /// Send a message to a client, or keep it for one that is away. `kept` is its copy, made when it is first needed.
    fn deliver(
        &mut self,
        client: u32,
        publish: &Publish<'_>,
        qos: u8,
        retain: bool,
        kept: &mut Option<Arc<Message>>,
        out: &mut Output,
    ) {
        let one = &mut self.clients[client as usize];
        if one.is_expired(out.now) {
            return;
        }
        let connection =
            one.connection.and_then(|id| Some((id, self.connections[id.slot as usize].as_ref()?.version)));
        if qos == 0 {
            if let Some((id, version)) = connection {
                let sent = Publish { dup: false, qos, retain, id: 0, ..*publish };
                let fits =
                    out.send_within(id, one.packet_max, |out| Packet::Publish(sent).emit(version, out));
                self.counters.sent[0] += u64::from(fits);
                self.counters.too_large += u64::from(!fits);
            }
            return;
        }
        let message = kept.get_or_insert_with(|| Arc::new(Message::of(publish)));
        let Some((id, version)) = connection.filter(|_| one.has_room()) else {
            self.counters.not_kept += u64::from(!one.queue(Arc::clone(message), qos, retain));
            return;
        };
        self.send(client, (id, version), message, qos, retain, out);
    }

    /// Send a message that is to be acknowledged. One that is larger than the client takes is left out, as if it had been.
    fn send(
        &mut self,
        client: u32,
        (id, version): (ConnectionId, Version),
        message: &Arc<Message>,
        qos: u8,
        retain: bool,
        out: &mut Output,
    ) {
        let one = &mut self.clients[client as usize];
        let number = one.begin(Arc::clone(message), qos, retain);
        if out.send_within(id, one.packet_max, |out| message.emit(version, qos, number, retain, false, out)) {
            self.counters.sent[usize::from(qos)] += 1;
        } else {
            self.counters.too_large += 1;
            one.acknowledged(number);
        }
    }

    /// Send what waited for an acknowledgement of something earlier, or for the client to come back.
    fn send_queued(&mut self, client: u32, out: &mut Output) {
        let Some(id) = self.clients[client as usize].connection else { return };
        let Some(connection) = self.connections[id.slot as usize].as_ref() else { return };
        let version = connection.version;
        while let Some((message, qos, retain)) = self.clients[client as usize].next_queued() {
            self.send(client, (id, version), &message, qos, retain, out);
        }
    }

    /// PUBREC (section 4.3.3): the message is there, and its number is released.
    fn received_by(
        &mut self,
        id: ConnectionId,
        client: u32,
        version: Version,
        ack: Ack<'_>,
        out: &mut Output,
    ) {
        let one = &mut self.clients[client as usize];
        if ack.code >= 0x80 {
            one.acknowledged(ack.id);
            self.send_queued(client, out);
            return;
        }
        let code = if one.pubrec_received(ack.id) { 0 } else { reason::UNKNOWN_ID };
        out.send(id, |out| Packet::PubRel(Ack { code, ..Ack::of(ack.id) }).emit(version, out));
    }

    fn subscribe(
        &mut self,
        id: ConnectionId,
        client: u32,
        version: Version,
        number: u16,
        filters: Filters<'_>,
        out: &mut Output,
    ) {
        self.counters.subscribes += 1;
        let mut codes = Vec::new();
        let mut wanted = Vec::new();
        for (filter, options) in filters.iter() {
            let one = &mut self.clients[client as usize];
            let subscription = Subscription {
                client,
                qos: options & 3,
                no_local: version == Version::V5 && options & 4 != 0,
                retain_as_published: version == Version::V5 && options & 8 != 0,
            };
            let code = if filter.starts_with("$share/") {
                reason::NO_SHARED
            } else if !subscriptions::is_filter(filter) {
                reason::FILTER
            } else if one.filters.len() >= FILTERS_MAX && !one.filters.iter().any(|own| **own == *filter) {
                reason::QUOTA
            } else {
                let is_new = self.subscriptions.add(filter, subscription);
                if is_new {
                    one.filters.push(filter.into());
                }
                // section 3.8.3.1: retained messages always, to new subscriptions only, or never
                let handling = if version == Version::V5 { options >> 4 & 3 } else { 0 };
                if handling == 0 || handling == 1 && is_new {
                    wanted.push((filter, subscription.qos));
                }
                subscription.qos
            };
            codes.push(if version == Version::V311 && code >= 0x80 { 0x80 } else { code });
        }
        let answer = Packet::SubAck { id: number, properties: Properties::default(), codes: &codes };
        out.send(id, |out| answer.emit(version, out));
        for (filter, qos) in wanted {
            for message in self.retained.matching(filter) {
                let publish = message.publish();
                self.deliver(
                    client,
                    &publish,
                    qos.min(message.qos),
                    true,
                    &mut Some(Arc::clone(&message)),
                    out,
                );
            }
        }
    }

    fn unsubscribe(
        &mut self,
        id: ConnectionId,
        client: u32,
        version: Version,
        frame: &Frame<'_>,
        out: &mut Output,
    ) -> Result<(), MalformedPacket> {
        let (number, filters) = unsubscribe(version, frame)?;
        let one = &mut self.clients[client as usize];
        let codes: Vec<u8> = filters
            .iter()
            .map(|filter| {
                one.filters.retain(|own| **own != **filter);
                if self.subscriptions.remove(filter, client) { 0 } else { reason::NO_SUBSCRIPTION }
            })
            .collect();
        out.send(id, |out| unsubscribe::acknowledge(version, number, &codes, out));
        Ok(())
    }
}

impl Service for Mqtt {
    fn opened(&mut self, id: ConnectionId, out: &mut Output) {
        self.counters.connections += 1;
        self.counters.open += 1;
        let slot = id.slot as usize;
        if self.connections.len() <= slot {
            self.connections.resize_with(slot + 1, || None);
        }
        self.connections[slot] = Some(Connection {
            version: Version::V311,
            client: None,
            silence: CONNECT_WITHIN,
            heard: out.now,
            armed: out.now + CONNECT_WITHIN,
            will: None,
            ends: false,
        });
        out.wake_at(id, out.now + CONNECT_WITHIN);
    }

    fn received(&mut self, id: ConnectionId, bytes: &[u8], out: &mut Output) -> usize {
        let mut used = 0;
        while self.connection(id).is_some_and(|one| !one.ends) {
            let done = match frame(&bytes[used..], PACKET_MAX) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    used += frame.len;
                    self.packet(id, &frame, out)
                }
                Err(malformed) => Err(malformed),
            };
            if done.is_err() {
                self.violated(id, reason::MALFORMED, out);
            }
        }
        if self.connection(id).is_none_or(|one| one.ends) {
            used = bytes.len();
        }
        self.counters.bytes_received += used as u64;
        used
    }

    fn timer(&mut self, id: ConnectionId, out: &mut Output) {
        let Some(connection) = self.connection(id).filter(|one| one.silence > 0 && !one.ends) else { return };
        if out.now < connection.armed {
            return;
        }
        let at = connection.heard.saturating_add(connection.silence);
        if at > out.now {
            connection.armed = at;
            return out.wake_at(id, at);
        }
        self.counters.silent += 1;
        self.end(id, reason::KEEP_ALIVE, out);
    }

    fn closed(&mut self, id: ConnectionId, out: &mut Output) {
        self.counters.open -= 1;
        self.leave(id, out.now);
        let Some(connection) = self.connections.get_mut(id.slot as usize).and_then(Option::take) else {
            return;
        };
        if let Some((message, retain)) = connection.will {
            let publish = Publish { retain, ..message.publish() };
            self.retained.keep(&publish);
            self.distribute(&publish, None, out);
        }
    }

    fn counters(&self) -> Counters {
        let c = &self.counters;
        Counters::from([
            ("connections", c.connections),
            ("open_connections", c.open),
            ("connects", c.connects),
            ("refused_connects", c.refused),
            ("taken_over", c.taken_over),
            ("messages_received", c.received.iter().sum()),
            ("messages_received_qos0", c.received[0]),
            ("messages_received_qos1", c.received[1]),
            ("messages_received_qos2", c.received[2]),
            ("messages_acknowledged", c.acknowledged),
            ("acknowledgements_withheld", c.withheld),
            ("messages_sent", c.sent.iter().sum()),
            ("acknowledgements_received", c.acknowledgements),
            ("messages_not_kept", c.not_kept),
            ("messages_too_large", c.too_large),
            ("sessions_expired", c.expired),
            ("subscribes", c.subscribes),
            ("retained_messages", self.retained.len() as u64),
            ("pings", c.pings),
            ("protocol_errors", c.protocol_errors),
            ("keep_alive_timeouts", c.silent),
            ("bytes_received", c.bytes_received),
        ])
    }
}
