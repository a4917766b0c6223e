//! Publishing: what is due goes out, as many at a time as the window lets.

use super::version::Version;
use super::wire::{self, Ack, Packet};
use super::{AwaitedPacket, BATCH, Device, Inflight, Message, PUBLISHES_RESENT, State};
use crate::meter::Failure;
use crate::model::Cx;
use crate::template::Values;
use crate::time::Time;
use ::packet::signature::{self, Signature};
use rand::SeedableRng;
use rand::rngs::SmallRng;

impl Device {
    pub(super) fn has_more(&self, cx: &Cx<'_>) -> bool {
        let wanted = self.config.count == 0 || u64::from(self.next) < self.config.count;
        wanted && !self.stopping && cx.loading()
    }

    /// Whether another publish may be sent (§4.9), all that is sent again before it (§4.6).
    pub(super) fn room(&self) -> bool {
        self.held == 0 && self.inflight.len() < usize::from(self.window)
    }

    /// The session goes on: PUBREL is sent again, and PUBLISH in its order (§4.4), as far as there is room.
    pub(super) fn resume(&mut self, cx: &mut Cx<'_>) {
        // a broker sends PUBREC in the order of PUBLISH (§4.6), so that this changes none
        self.inflight.make_contiguous().sort_by_key(|message| !message.awaits.released());
        for at in 0..self.inflight.len() {
            let message = &mut self.inflight[at];
            if message.awaits.released() {
                message.awaits = AwaitedPacket::CompAgain;
                let id = message.id;
                self.rare.get_or_insert_default().resent.push(id);
                self.send(cx, &Packet::PubRel(Ack::of(id)));
            } else {
                message.awaits = AwaitedPacket::Resend;
                self.held += 1;
            }
        }
        self.resend(cx);
    }

    /// Send PUBLISH again, as far as the broker takes it: the quota of a connection is no other's (§4.9).
    pub(super) fn resend(&mut self, cx: &mut Cx<'_>) {
        while self.held > 0 {
            let at = self.inflight.len() - usize::from(self.held);
            if at >= usize::from(self.window) {
                return;
            }
            let message = self.inflight[at];
            let before = cx.out.bytes.len();
            self.emit(cx, message, true);
            let len = cx.out.bytes.len() - before;
            self.held -= 1;
            if len as u64 > u64::from(self.max_packet) {
                cx.out.bytes.truncate(before);
                self.inflight.remove(at);
                if !message.reported {
                    let most = self.max_packet;
                    cx.failure(cx.now, Failure::Rejected, || too_large(len, most));
                }
                continue;
            }
            self.inflight[at].awaits = self.first_answer();
            self.rare.get_or_insert_default().resent.push(message.id);
            self.since = cx.now;
            cx.count(message.intended, PUBLISHES_RESENT);
            self.count(cx, before);
        }
    }

    /// What a PUBLISH waits for.
    fn first_answer(&self) -> AwaitedPacket {
        if self.config.message.qos == 1 { AwaitedPacket::Ack } else { AwaitedPacket::Rec }
    }

    /// Publish what is due; leave when nothing is left to do; set the timer.
    pub(super) fn pump(&mut self, cx: &mut Cx<'_>) {
        if matches!(self.state, State::Subscribing | State::Up) {
            self.resend(cx);
        }
        if self.state == State::Up {
            let mut batch = 0;
            while self.config.publishes && self.has_more(cx) && self.room() {
                let pace = &self.config.pace;
                let intended =
                    if pace.closed_loop() { cx.now } else { pace.due(self.base, self.next.into()) };
                if intended > cx.now {
                    break;
                }
                if batch == BATCH {
                    self.armed = cx.now;
                    cx.wake_at(cx.now);
                    return;
                }
                batch += 1;
                if !self.publish(cx, intended) {
                    return;
                }
            }
            if self.inflight.is_empty() && !self.has_more(cx) {
                if self.config.linger.is_zero() {
                    return self.disconnect(cx);
                }
                self.state = State::Lingering;
                self.limit = cx.now + self.config.linger;
            }
        }
        self.arm(cx);
    }

    pub(super) fn publish(&mut self, cx: &mut Cx<'_>, intended: Time) -> bool {
        let qos = self.config.message.qos;
        let id = if qos > 0 { self.new_id() } else { 0 };
        let before = cx.out.bytes.len();
        let (sent, seq, awaits) = (cx.now, self.next, self.first_answer());
        let message = Inflight { intended, sent, seq, id, awaits, reported: false };
        self.emit(cx, message, false);
        let len = cx.out.bytes.len() - before;
        if len as u64 > u64::from(self.max_packet) {
            // §3.2.2.3.6: a packet larger than the broker takes must not be sent
            let most = self.max_packet;
            cx.out.bytes.truncate(before);
            self.connection_lost(cx, Failure::Rejected, || too_large(len, most));
            self.arm(cx);
            return false;
        }
        cx.sent(intended, len);
        self.quiet = cx.now;
        if qos > 0 {
            self.inflight.push_back(message);
        }
        self.next = self.next.saturating_add(1);
        true
    }

    /// Write PUBLISH (§3.3): the same message each time that it is sent (§4.4), whatever its templates say.
    #[inline]
    pub(super) fn emit(&self, cx: &mut Cx<'_>, message: Inflight, dup: bool) {
        let config = &*self.config;
        let out = &mut cx.out.bytes;
        let Message { topic, payload, qos, retain } = &config.message;
        let seq = u64::from(message.seq);
        let values = Values { device: cx.device, seq, now: message.sent };
        let of_device = u64::from(cx.device) << 32 | seq;
        let mut rng = SmallRng::seed_from_u64(message.intended.0.rotate_left(32) ^ of_device);
        let start = wire::begin(out, 0x30 | u8::from(dup) << 3 | qos << 1 | u8::from(*retain));
        out.extend_from_slice(&[0, 0]);
        topic.render(values, &mut rng, out);
        let topic_len = (out.len() - start - 2) as u16;
        out[start..start + 2].copy_from_slice(&topic_len.to_be_bytes());
        if *qos > 0 {
            out.extend_from_slice(&message.id.to_be_bytes());
        }
        if config.version == Version::V5 {
            out.push(0); // no properties
        }
        let body = out.len();
        payload.render(values, &mut rng, out);
        if let Some(size) = config.size {
            out.resize(body + size - if config.mark { signature::LEN } else { 0 }, b' ');
        }
        if config.mark {
            let mut mark = [0; signature::LEN];
            let stream = cx.device & signature::STREAM_MAX;
            Signature { stream, sequence: seq, sent_ns: message.intended.0 }.emit(&mut mark);
            out.extend_from_slice(&mark);
        }
        wire::end(out, start);
    }
}

fn too_large(len: usize, most: u32) -> String {
    format!("a PUBLISH has {len} bytes, the broker takes {most}")
}
