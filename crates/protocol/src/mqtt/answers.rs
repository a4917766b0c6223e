//! What a device makes of what the broker says.

use super::*;
use crate::cause::{Cause, Detail};
use ::packet::signature::{self, Signature};

impl Device {
    /// A packet came.
    #[inline]
    pub(super) fn packet(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<(), MalformedPacket> {
        match packet {
            Packet::ConnAck { session_present, code, properties } if self.state == State::Greeting => {
                cx.delay(self.since, CONNACK);
                self.connack_received(cx, *session_present, *code, *properties)?;
            }
            // §3.2: CONNACK is the first packet the broker sends, AUTH needs our asking
            Packet::ConnAck { .. } => return Err(MalformedPacket::Unexpected("CONNACK")),
            Packet::Disconnect { code, properties } if self.config.version == Version::V5 => {
                let (why, what) =
                    refusal(self.config.version, Failure::Closed, "DISCONNECT", *code, *properties);
                self.connection_lost(cx, why, || what);
            }
            _ if self.state == State::Greeting => {
                return Err(MalformedPacket::Unexpected("a packet before CONNACK"));
            }
            Packet::SubAck { id, codes, properties } => {
                if self.state != State::Subscribing || *id != self.last_id {
                    return Err(MalformedPacket::Unasked("SUBACK", *id));
                }
                if codes.len() != self.config.filters.len() {
                    return Err(MalformedPacket::Size("SUBACK"));
                }
                match codes.iter().find(|code| **code >= 0x80) {
                    Some(code) => {
                        let (why, what) =
                            refusal(self.config.version, Failure::Rejected, "SUBACK", *code, *properties);
                        self.connection_lost(cx, why, || what);
                    }
                    None => self.ready(cx),
                }
            }
            Packet::Publish(publish) => self.incoming(cx, publish)?,
            Packet::PubAck(ack) => {
                // one that waits to be sent again may have its answer from the former connection
                let qos1 = self.config.message.qos == 1;
                let answers =
                    |awaits| awaits == AwaitedPacket::Ack || qos1 && awaits == AwaitedPacket::Resend;
                match self.find("PUBACK", ack.id, answers) {
                    Ok(at) => self.complete_message(cx, at, "PUBACK", ack),
                    Err(unasked) => self.second_answer(ack.id, unasked)?,
                }
            }
            Packet::PubRec(ack) => self.recorded(cx, ack)?,
            Packet::PubComp(ack) => match self.find("PUBCOMP", ack.id, AwaitedPacket::released) {
                Ok(at) => self.complete_message(cx, at, "PUBCOMP", ack),
                Err(unasked) => match self.rare.as_mut().map(|rare| &mut rare.pubcomps) {
                    Some(due) if *due > 0 => *due -= 1,
                    _ => self.second_answer(ack.id, unasked)?,
                },
            },
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
            Packet::PingResp => {
                self.pings = self.pings.checked_sub(1).ok_or(MalformedPacket::Unexpected("PINGRESP"))?;
                self.pinged = if self.pings == 0 { Time::NEVER } else { cx.now };
            }
            Packet::Connect(_) => return Err(MalformedPacket::Unexpected("CONNECT")),
            Packet::Subscribe { .. } => return Err(MalformedPacket::Unexpected("SUBSCRIBE")),
            Packet::PingReq => return Err(MalformedPacket::Unexpected("PINGREQ")),
            Packet::Disconnect { .. } => return Err(MalformedPacket::Unexpected("DISCONNECT")),
            Packet::Auth { .. } => return Err(MalformedPacket::Unexpected("AUTH")),
        }
        Ok(())
    }

    /// CONNACK (§3.2).
    fn connack_received(
        &mut self,
        cx: &mut Cx<'_>,
        session: bool,
        code: u8,
        said: Properties<'_>,
    ) -> Result<(), MalformedPacket> {
        let config = Arc::clone(&self.config);
        if code != 0 {
            let (why, what) = refusal(config.version, Failure::Rejected, "CONNACK", code, said);
            self.connection_lost(cx, why, || what);
            return Ok(());
        }
        // §3.2.2.2: a session that we asked to forget
        if session && config.clean {
            return Err(MalformedPacket::Unexpected("a kept session"));
        }
        let message = &config.message;
        if let Some(most) = said.number(property::MAXIMUM_QOS).filter(|most| u32::from(message.qos) > *most)
            && config.publishes
        {
            let why = Cause::named(Failure::Rejected, "QoS not supported");
            self.connection_lost(cx, why, || format!("the broker takes QoS {most} at most"));
            return Ok(());
        }
        if config.publishes && message.retain && said.number(property::RETAIN_AVAILABLE) == Some(0) {
            let why = Cause::named(Failure::Rejected, "retain not supported");
            self.connection_lost(cx, why, || "the broker retains no messages".into());
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
        self.since = cx.now;
        self.resumed = session;
        if session {
            self.resume(cx);
        } else {
            // §3.2.2.1.1: no session there means none here; the loss of the connection stands for the oldest
            self.forget(cx);
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

    /// PUBREC (§3.5).
    fn recorded(&mut self, cx: &mut Cx<'_>, ack: &Ack<'_>) -> Result<(), MalformedPacket> {
        let qos2 = self.config.message.qos == 2;
        let at = match self.find("PUBREC", ack.id, |awaits| qos2 && awaits != AwaitedPacket::Ack) {
            Ok(at) => at,
            // §3.6.2.1: no error while recovering; the broker keeps a message that this device has done with
            Err(_) if self.resumed && ack.code < 0x80 => {
                self.another_pubcomp();
                let code = if self.config.version == Version::V5 { 0x92 } else { 0 };
                self.send(cx, &Packet::PubRel(Ack { code, ..Ack::of(ack.id) }));
                return Ok(());
            }
            Err(unasked) => return self.second_answer(ack.id, unasked),
        };
        if self.inflight[at].awaits.released() {
            self.another_pubcomp();
        }
        if ack.code >= 0x80 {
            // §4.3.3: the identifier is free
            self.complete_message(cx, at, "PUBREC", ack);
            return Ok(());
        }
        // a second PUBREC is answered like the first (§4.3.3)
        self.send(cx, &Packet::PubRel(Ack::of(ack.id)));
        match self.inflight[at].awaits {
            AwaitedPacket::Comp | AwaitedPacket::CompAgain => {}
            // the broker has it from the former connection: PUBLISH is not sent again
            AwaitedPacket::Resend => {
                if let Some(mut message) = self.inflight.remove(at) {
                    self.held -= 1;
                    message.awaits = AwaitedPacket::Comp;
                    self.inflight.insert(self.inflight.len() - usize::from(self.held), message);
                    self.since = cx.now;
                }
            }
            AwaitedPacket::Ack | AwaitedPacket::Rec => self.inflight[at].awaits = AwaitedPacket::Comp,
        }
        Ok(())
    }

    /// An acknowledgement for a message that is done with. In a resumed session the broker may still owe one of the former
    /// connection: it crosses what is sent again (§4.4), which it acknowledges too.
    fn second_answer(&mut self, id: u16, unasked: MalformedPacket) -> Result<(), MalformedPacket> {
        let resent = self.rare.as_mut().map(|rare| &mut rare.resent);
        let at = resent.as_ref().and_then(|ids| ids.iter().position(|known| *known == id));
        let (Some(ids), Some(at)) = (resent, at) else { return Err(unasked) };
        ids.swap_remove(at);
        Ok(())
    }

    /// One more PUBCOMP comes than there are messages that wait for one.
    fn another_pubcomp(&mut self) {
        let due = &mut self.rare.get_or_insert_default().pubcomps;
        *due = due.saturating_add(1);
    }

    /// PUBLISH from the broker (§3.3, §4.3).
    fn incoming(&mut self, cx: &mut Cx<'_>, publish: &Publish<'_>) -> Result<(), MalformedPacket> {
        // §3.3.2.3.4: we allow no topic aliases
        if publish.properties.number(property::TOPIC_ALIAS).is_some() {
            return Err(MalformedPacket::Property(property::TOPIC_ALIAS));
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
                cx.count_unrequested(sent);
            }
            None => cx.count_unrequested(cx.now),
        }
        Ok(())
    }

    #[inline]
    fn find(
        &self,
        name: &'static str,
        id: u16,
        answers: impl Fn(AwaitedPacket) -> bool,
    ) -> Result<usize, MalformedPacket> {
        let found = self.inflight.iter().position(|m| m.id == id && answers(m.awaits));
        found.ok_or(MalformedPacket::Unasked(name, id))
    }

    /// The message is done with: delivered, or refused by a reason code.
    #[inline]
    fn complete_message(&mut self, cx: &mut Cx<'_>, at: usize, name: &'static str, ack: &Ack<'_>) {
        let sent = self.inflight.len() - usize::from(self.held);
        let Some(message) = self.inflight.remove(at) else { return };
        if at >= sent {
            self.held -= 1;
        }
        // §3.7.2.1: the broker has forgotten the identifier, since it had sent the PUBCOMP that was lost
        let recovered = ack.code == 0x92 && message.awaits == AwaitedPacket::CompAgain;
        if message.reported {
            // its flow has counted it
        } else if ack.code < 0x80 || recovered {
            cx.delivered(message.intended, PUBLISH);
        } else {
            let (why, what) = refusal(self.config.version, Failure::Rejected, name, ack.code, ack.properties);
            cx.failure(cx.now, why, || what);
        }
    }
}

/// A packet that says no: as a cause, and in words, with those of the broker (Reason String, Server Reference).
fn refusal(
    version: Version,
    kind: Failure,
    name: &'static str,
    code: u8,
    said: Properties<'_>,
) -> (Cause, String) {
    let meaning = show::meaning(version, code);
    let mut what = format!("{name} {code:#04x}, {meaning}");
    if let Some(words) = said.text(property::REASON_STRING).filter(|words| !words.is_empty()) {
        what += ": ";
        what += words;
    }
    // §4.11: the names of other servers
    if let Some(servers) = said.text(property::SERVER_REFERENCE).filter(|servers| !servers.is_empty()) {
        what += "; server reference: ";
        what += servers;
    }
    (Cause { kind, detail: Detail::Reason(name, code, meaning) }, what)
}
