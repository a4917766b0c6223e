//! Publishing: what is due goes out, as many at a time as the window lets.

use super::version::Version;
use super::{Awaits, BATCH, Device, Inflight, Message, State, wire};
use crate::meter::Failure;
use crate::model::Cx;
use crate::template::Values;
use crate::time::Time;
use ::packet::signature::{self, Signature};

impl Device {
    pub(super) fn more(&self, cx: &Cx<'_>) -> bool {
        let wanted = self.config.count == 0 || u64::from(self.next) < self.config.count;
        wanted && !self.stopping && cx.loading()
    }

    /// Publish what is due; leave when nothing is left to do; set the timer.
    pub(super) fn pump(&mut self, cx: &mut Cx<'_>) {
        if self.state == State::Up {
            let mut batch = 0;
            while self.config.publishes && self.more(cx) && self.inflight.len() < usize::from(self.window) {
                let pace = self.config.pace;
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
            if self.inflight.is_empty() && !self.more(cx) {
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
        self.emit(cx, Inflight { intended, sent: cx.now, seq: self.next, id, awaits: Awaits::Ack }, false);
        let len = cx.out.bytes.len() - before;
        if len as u64 > u64::from(self.max_packet) {
            // §3.2.2.3.6: a packet larger than the broker takes must not be sent
            let most = self.max_packet;
            cx.out.bytes.truncate(before);
            self.lost(cx, Failure::Rejected, || {
                format!("a PUBLISH has {len} bytes, the broker takes {most}")
            });
            self.arm(cx);
            return false;
        }
        cx.sent(intended, len);
        self.quiet = cx.now;
        if qos > 0 {
            let awaits = if qos == 1 { Awaits::Ack } else { Awaits::Rec };
            self.inflight.push_back(Inflight { intended, sent: cx.now, seq: self.next, id, awaits });
        }
        self.next = self.next.saturating_add(1);
        true
    }

    /// Write PUBLISH (§3.3).
    #[inline]
    pub(super) fn emit(&self, cx: &mut Cx<'_>, message: Inflight, dup: bool) {
        let config = &*self.config;
        let out = &mut cx.out.bytes;
        let Message { topic, payload, qos, retain } = &config.message;
        let seq = u64::from(message.seq);
        let values = Values { device: cx.device, seq, now: cx.now };
        let start = wire::begin(out, 0x30 | u8::from(dup) << 3 | qos << 1 | u8::from(*retain));
        out.extend_from_slice(&[0, 0]);
        topic.render(values, cx.rng, out);
        let topic_len = (out.len() - start - 2) as u16;
        out[start..start + 2].copy_from_slice(&topic_len.to_be_bytes());
        if *qos > 0 {
            out.extend_from_slice(&message.id.to_be_bytes());
        }
        if config.version == Version::V5 {
            out.push(0); // no properties
        }
        let body = out.len();
        payload.render(values, cx.rng, out);
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
