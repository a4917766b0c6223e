//! What a device makes of what the broker says.

use super::*;
use ::packet::signature::{self, Signature};

impl Device {
    /// A packet came.
    #[inline]
    pub(super) fn packet(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<(), Malformed> {
        match packet {
            Packet::ConnAck { session_present, code, properties } if self.state == State::Greeting => {
                cx.delay(self.since, CONNACK);
                self.welcome(cx, *session_present, *code, *properties)?;
            }
            // §3.2: CONNACK is the first packet the broker sends, AUTH needs our asking
            Packet::ConnAck { .. } => return Err(Malformed::Unexpected("CONNACK")),
            Packet::Disconnect { code, properties } if self.config.version == Version::V5 => {
                let why = properties.text(property::REASON_STRING).unwrap_or_default();
                let text = refusal(self.config.version, "DISCONNECT", *code);
                self.lost(cx, Failure::Closed, || format!("{text} {why}").trim_end().into());
            }
            _ if self.state == State::Greeting => {
                return Err(Malformed::Unexpected("a packet before CONNACK"));
            }
            Packet::SubAck { id, codes, .. } => {
                if self.state != State::Subscribing || *id != self.last_id {
                    return Err(Malformed::Unasked("SUBACK", *id));
                }
                if codes.len() != self.config.filters.len() {
                    return Err(Malformed::Size("SUBACK"));
                }
                match codes.iter().find(|code| **code >= 0x80) {
                    Some(code) => {
                        let text = refusal(self.config.version, "SUBACK", *code);
                        self.lost(cx, Failure::Rejected, || text);
                    }
                    None => self.ready(cx),
                }
            }
            Packet::Publish(publish) => self.incoming(cx, publish)?,
            Packet::PubAck(ack) => {
                let at = self.find("PUBACK", ack.id, &[Awaits::Ack])?;
                self.done(cx, at, "PUBACK", ack);
            }
            Packet::PubRec(ack) => {
                // a second PUBREC is answered like the first (§4.3.3)
                let at = self.find("PUBREC", ack.id, &[Awaits::Rec, Awaits::Comp])?;
                if ack.code >= 0x80 {
                    self.done(cx, at, "PUBREC", ack);
                } else {
                    self.inflight[at].awaits = Awaits::Comp;
                    self.send(cx, &Packet::PubRel(Ack::of(ack.id)));
                }
            }
            Packet::PubComp(ack) => {
                let at = self.find("PUBCOMP", ack.id, &[Awaits::Comp])?;
                self.done(cx, at, "PUBCOMP", ack);
            }
            Packet::PubRel(ack) => {
                let known =
                    self.rare.as_mut().is_some_and(|rare| match rare.received.binary_search(&ack.id) {
                        Ok(at) => rare.received.remove(at) == ack.id,
                        Err(_) => false,
                    });
                // §3.7.2.1: 0x92, packet identifier not found, is no error while recovering
                let code = if known || self.config.version == Version::V311 { 0 } else { 0x92 };
                self.send(cx, &Packet::PubComp(Ack { code, ..Ack::of(ack.id) }));
            }
            Packet::PingResp if self.pinged != Time::NEVER => self.pinged = Time::NEVER,
            Packet::PingResp => return Err(Malformed::Unexpected("PINGRESP")),
            Packet::Connect(_) => return Err(Malformed::Unexpected("CONNECT")),
            Packet::Subscribe { .. } => return Err(Malformed::Unexpected("SUBSCRIBE")),
            Packet::PingReq => return Err(Malformed::Unexpected("PINGREQ")),
            Packet::Disconnect { .. } => return Err(Malformed::Unexpected("DISCONNECT")),
            Packet::Auth { .. } => return Err(Malformed::Unexpected("AUTH")),
        }
        Ok(())
    }

    /// CONNACK (§3.2).
    fn welcome(
        &mut self,
        cx: &mut Cx<'_>,
        session: bool,
        code: u8,
        said: Properties<'_>,
    ) -> Result<(), Malformed> {
        let config = Arc::clone(&self.config);
        if code != 0 {
            self.lost(cx, Failure::Rejected, || refusal(config.version, "CONNACK", code));
            return Ok(());
        }
        // §3.2.2.2: a session that we asked to forget
        if session && config.clean {
            return Err(Malformed::Unexpected("a kept session"));
        }
        let message = &config.message;
        if let Some(most) = said.number(property::MAXIMUM_QOS).filter(|most| u32::from(message.qos) > *most)
            && config.publishes
        {
            self.lost(cx, Failure::Rejected, || format!("the broker takes QoS {most} at most"));
            return Ok(());
        }
        if config.publishes && message.retain && said.number(property::RETAIN_AVAILABLE) == Some(0) {
            self.lost(cx, Failure::Rejected, || "the broker retains no messages".into());
            return Ok(());
        }
        if let Some(most) = said.number(property::RECEIVE_MAXIMUM) {
            self.window = self.window.min(most as u16);
        }
        if let Some(seconds) = said.number(property::SERVER_KEEP_ALIVE) {
            self.keep_alive = seconds as u16;
        }
        cx.count(cx.now, SESSIONS);
        if session {
            cx.count(cx.now, SESSIONS_RESUMED);
        }
        self.max_packet = said.number(property::MAXIMUM_PACKET_SIZE).unwrap_or(u32::MAX);
        if let Some(given) = said.text(property::ASSIGNED_CLIENT_ID) {
            given.clone_into(&mut self.rare.get_or_insert_default().client_id);
        }
        self.attempts = 0;
        if session {
            self.resume(cx);
        } else {
            // §3.2.2.1.1: no session there means none here; the loss of the connection stands for the oldest
            self.forget(cx, 1);
            if let Some(rare) = &mut self.rare {
                rare.received.clear();
            }
        }
        if config.filters.is_empty() || session && self.base != Time::NEVER {
            self.ready(cx);
        } else {
            self.subscribe(cx);
        }
        Ok(())
    }

    /// Send again what was not acknowledged, in order (§4.4).
    fn resume(&mut self, cx: &mut Cx<'_>) {
        for message in self.inflight.drain(self.inflight.len().min(usize::from(self.window))..) {
            cx.unanswered(message.intended, "the broker takes fewer at a time than wait to be sent again");
        }
        for i in 0..self.inflight.len() {
            self.inflight[i].sent = cx.now;
            let message = self.inflight[i];
            if message.awaits == Awaits::Comp {
                self.send(cx, &Packet::PubRel(Ack::of(message.id)));
            } else {
                let before = cx.out.bytes.len();
                self.emit(cx, message, true);
                cx.count(message.intended, PUBLISHES_RESENT);
                self.count(cx, before);
            }
        }
    }

    /// PUBLISH from the broker (§3.3, §4.3).
    fn incoming(&mut self, cx: &mut Cx<'_>, publish: &Publish<'_>) -> Result<(), Malformed> {
        // §3.3.2.3.4: we allow no topic aliases
        if publish.properties.number(property::TOPIC_ALIAS).is_some() {
            return Err(Malformed::Property(property::TOPIC_ALIAS));
        }
        match publish.qos {
            0 => {}
            1 => self.send(cx, &Packet::PubAck(Ack::of(publish.id))),
            _ => {
                self.send(cx, &Packet::PubRec(Ack::of(publish.id)));
                let received = &mut self.rare.get_or_insert_default().received;
                match received.binary_search(&publish.id) {
                    Ok(_) => {
                        cx.at(cx.now).counts.duplicates += 1;
                        return Ok(());
                    }
                    Err(at) => received.insert(at, publish.id),
                }
            }
        }
        // the age of a retained message says nothing of the path; a mark from the future is not ours
        let mark = publish.payload.last_chunk::<{ signature::LEN }>().and_then(|last| Signature::parse(last));
        match mark.filter(|mark| !publish.retain && mark.sent_ns <= cx.now.0) {
            Some(mark) => {
                let sent = Time(mark.sent_ns);
                cx.delay(sent, END_TO_END);
                cx.unasked(sent);
            }
            None => cx.unasked(cx.now),
        }
        Ok(())
    }

    #[inline]
    fn find(&self, name: &'static str, id: u16, awaits: &[Awaits]) -> Result<usize, Malformed> {
        let found = self.inflight.iter().position(|m| m.id == id && awaits.contains(&m.awaits));
        found.ok_or(Malformed::Unasked(name, id))
    }

    /// The message is done with: delivered, or refused by a reason code.
    #[inline]
    fn done(&mut self, cx: &mut Cx<'_>, at: usize, name: &'static str, ack: &Ack<'_>) {
        let Some(message) = self.inflight.remove(at) else { return };
        if ack.code < 0x80 {
            cx.delivered(message.intended, PUBLISH);
        } else {
            cx.failure(cx.now, Failure::Rejected, || refusal(self.config.version, name, ack.code));
        }
    }
}

fn refusal(version: Version, name: &str, code: u8) -> String {
    format!("{name} {code:#04x}, {}", show::meaning(version, code))
}
