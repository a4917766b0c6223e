//! CONNECT (section 3.1): versions, names, sessions that are taken up again.

use super::client::{Client, Message, NEVER};
use super::sessions::kept_for;
use super::{Mqtt, PACKET_MAX, SECOND, reason};
use crate::{ConnectionId, Output};
use protocol::mqtt::Version;
use protocol::mqtt::property::{
    ASSIGNED_CLIENT_ID, MAXIMUM_PACKET_SIZE, Properties, RECEIVE_MAXIMUM, SESSION_EXPIRY, Value, put, written,
};
use protocol::mqtt::wire::{Connect, Frame, MalformedPacket, Packet, Publish, parse};
use std::sync::Arc;

/// Subscription Identifier Available and Shared Subscription Available (section 3.2.2.3).
const SUBSCRIPTION_IDENTIFIERS: u8 = 0x29;
const SHARED_SUBSCRIPTIONS: u8 = 0x2a;

/// The version that a CONNECT asks for, if it is one that is known.
fn version_of(body: &[u8]) -> Option<Version> {
    let level = body.strip_prefix(b"\0\x04MQTT")?.first()?;
    [Version::V311, Version::V5].into_iter().find(|version| version.level() == *level)
}

impl Mqtt {
    pub(super) fn connect(
        &mut self,
        id: ConnectionId,
        frame: &Frame<'_>,
        out: &mut Output,
    ) -> Result<(), MalformedPacket> {
        if frame.first >> 4 != 1 {
            return Err(MalformedPacket::Unexpected("a packet before CONNECT"));
        }
        let Some(version) = version_of(frame.body) else {
            // section 3.1.2.2: a client of another version is told in the words of 3.1.1
            self.counters.protocol_errors += 1;
            self.refuse(id, Version::V311, 1, out);
            return Ok(());
        };
        let Packet::Connect(connect) = parse(version, frame)? else {
            return Err(MalformedPacket::Unexpected("a packet before CONNECT"));
        };
        if let Some(connection) = self.connection(id) {
            connection.version = version;
        }
        if self.refusals.draw() {
            self.counters.refused += 1;
            self.refuse(id, version, if version == Version::V5 { 0x88 } else { 3 }, out);
            return Ok(());
        }
        // 3.1.1 section 3.1.3.1: no session is kept for a client without a name
        if connect.client_id.is_empty() && version == Version::V311 && !connect.clean {
            self.counters.refused += 1;
            self.refuse(id, version, 2, out);
            return Ok(());
        }
        self.accept_connection(id, version, &connect, out);
        Ok(())
    }

    fn refuse(&mut self, id: ConnectionId, version: Version, code: u8, out: &mut Output) {
        if let Some(connection) = self.connection(id) {
            connection.ends = true;
        }
        let answer = Packet::ConnAck { session_present: false, code, properties: Properties::default() };
        out.send(id, |out| answer.emit(version, out));
        out.close(id);
    }

    fn accept_connection(
        &mut self,
        id: ConnectionId,
        version: Version,
        connect: &Connect<'_>,
        out: &mut Output,
    ) {
        self.counters.connects += 1;
        let assigned = connect.client_id.is_empty().then(|| {
            self.named += 1;
            format!("netdyno-{}", self.named)
        });
        let name = assigned.as_deref().unwrap_or(connect.client_id);
        if let Some(before) =
            self.names.get(name).and_then(|client| self.clients[*client as usize].connection)
        {
            self.counters.taken_over += 1;
            self.end(before, reason::TAKEN_OVER, out);
        }
        self.end_expired(out.now);
        let session = self.taken_up(name, connect.clean, out.now);
        let session_present = session.is_some();
        let client = session.unwrap_or_else(|| self.add(name));
        let keeps = match version {
            Version::V311 if connect.clean => 0,
            Version::V311 => NEVER,
            Version::V5 => kept_for(connect.properties.number(SESSION_EXPIRY).unwrap_or(0)),
        };
        let room = connect.properties.number(RECEIVE_MAXIMUM).unwrap_or(u32::from(u16::MAX));
        let packet_max =
            connect.properties.number(MAXIMUM_PACKET_SIZE).map_or(usize::MAX, |most| most as usize);
        self.clients[client as usize].arrive(id, keeps, room, packet_max);
        let (silence, now) = (u64::from(connect.keep_alive) * SECOND * 3 / 2, out.now);
        let will = connect.will.map(|will| {
            let publish = Publish {
                qos: will.qos,
                topic: will.topic,
                payload: will.payload,
                properties: will.properties,
                ..Publish::default()
            };
            (Arc::new(Message::of(&publish)), will.retain)
        });
        if let Some(connection) = self.connection(id) {
            (connection.client, connection.silence, connection.will) = (Some(client), silence, will);
            // else the timer that waits for CONNECT goes off first
            if silence > 0 && now + silence < connection.armed {
                connection.armed = now + silence;
                out.wake_at(id, connection.armed);
            }
        }
        let mut properties = Vec::new();
        if version == Version::V5 {
            put(&mut properties, MAXIMUM_PACKET_SIZE, Value::Number(PACKET_MAX as u32));
            put(&mut properties, SUBSCRIPTION_IDENTIFIERS, Value::Number(0));
            put(&mut properties, SHARED_SUBSCRIPTIONS, Value::Number(0));
            if let Some(name) = &assigned {
                put(&mut properties, ASSIGNED_CLIENT_ID, Value::Text(name));
            }
        }
        let properties = written(&properties);
        out.send(id, |out| Packet::ConnAck { session_present, code: 0, properties }.emit(version, out));
        // section 4.4: what was not acknowledged is sent again, in order
        let one = &mut self.clients[client as usize];
        for again in one.unacknowledged() {
            if !out.send_within(id, packet_max, |out| again.emit(version, out)) {
                self.counters.too_large += 1;
                one.acknowledged(again.id());
            }
        }
        self.send_queued(client, out);
    }

    fn add(&mut self, name: &str) -> u32 {
        let client = self.free.pop().unwrap_or_else(|| {
            self.clients.push(Client::default());
            self.clients.len() as u32 - 1
        });
        self.clients[client as usize] = Client::new(name);
        self.names.insert(name.into(), client);
        client
    }
}
