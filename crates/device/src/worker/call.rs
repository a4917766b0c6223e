//! Calls of a device's model, and carrying out what it requests.

use super::{State, Worker};
use crate::endpoint::{Connection, Endpoint};
use protocol::cause::{Cause, Detail};
use protocol::model::{Cx, FlowEnd, Link, Model};
use protocol::target::Carrier;
use protocol::time::Time;
use run::FailureExample;
use std::fmt::Display;

impl<E: Endpoint, D: Model> Worker<E, D> {
    pub(super) fn call<R>(&mut self, i: u32, intended: Time, f: impl FnOnce(&mut D, &mut Cx<'_>) -> R) -> R {
        self.call_ended(i, intended, f).0
    }

    /// Tell the model that a connection of its is gone, and why; the cause is the one that it finds, if it knows more.
    pub(super) fn call_closed(
        &mut self,
        i: u32,
        intended: Time,
        cause: &mut Cause,
        truncated: bool,
    ) -> (Option<FlowEnd>, bool) {
        let mut explained = None;
        let ((), ended, excused) = self.call_ended(i, intended, |device, cx| {
            cx.truncated = truncated;
            device.closed(cx, cause.kind);
            explained = cx.example.as_ref().map(|(why, _)| *why);
        });
        if let Some(why) = explained.filter(|why| why.kind == cause.kind && why.detail != Detail::None) {
            *cause = why;
        }
        (ended, excused)
    }

    /// Tell the model that its connection is up.
    pub(super) fn call_connected(&mut self, i: u32) {
        let media = self.media_address(i);
        let slot = &self.slots[i as usize];
        let (begun, conn) = (slot.begun, slot.conn.as_ref().map(|conn| &conn.inner));
        let (local, peer) = (conn.and_then(Connection::local), conn.and_then(Connection::peer));
        self.call(i, begun, |device, cx| {
            cx.local = local;
            cx.peer = peer;
            cx.media = media;
            device.connected(cx);
        });
    }

    /// Call the model and carry out what it asks. Its answer, how its flow ended, if it did, and whether it excused the end of
    /// its connection.
    fn call_ended<R>(
        &mut self,
        i: u32,
        intended: Time,
        f: impl FnOnce(&mut D, &mut Cx<'_>) -> R,
    ) -> (R, Option<FlowEnd>, bool) {
        let slot = &mut self.slots[i as usize];
        let g = usize::from(slot.group);
        self.outbox.clear();
        let free = self.groups[g].quota.free().saturating_add(u64::from(slot.unsent));
        let unsendable = self.groups[g].quota.unsendable(self.draining);
        let has_next = self.has_next(i);
        let slot = &mut self.slots[i as usize];
        let mut cx = Cx::new(
            self.now,
            intended,
            self.plan.groups[g].device_number(slot.index),
            &mut self.outbox,
            &mut self.rng,
            self.window,
            &mut self.groups[g].meter,
            &mut slot.tally,
        );
        cx.left = free;
        cx.unsendable = unsendable;
        let (sent, delivered) = (cx.tally.sent, cx.tally.delivered);
        cx.has_next = has_next;
        cx.ended = slot.conn.as_ref().is_some_and(|conn| conn.ended);
        let answer = f(&mut slot.device, &mut cx);
        let (link, wake, end, excused, queued) = (cx.link, cx.wake, cx.end, cx.excused, cx.queued);
        let (used, has_sent) = (free - cx.left, cx.tally.sent > sent);
        let delivered = cx.tally.delivered.wrapping_sub(delivered).saturating_sub(cx.disowned);
        let missed = unsendable - cx.unsendable;
        if let Some((cause, text)) = cx.example.take() {
            self.keep_example(g, cause, text);
        }
        let quota = &mut self.groups[g].quota;
        quota.left -= used;
        quota.missed += missed;
        if has_sent && std::mem::take(&mut self.slots[i as usize].unsent) {
            quota.sent_first();
        }
        let is_queued = queued != [0; 3];
        if is_queued {
            self.queue(i, queued);
        }
        if delivered > 0 && self.cleanup.is_none() {
            self.delivered(i, delivered);
        }
        if let Some(wake) = wake {
            let slot = &mut self.slots[i as usize];
            slot.wake = wake;
            slot.wake_set_at = self.now;
            self.arm(i);
        }
        if !self.outbox.media.is_empty() {
            self.send_media(i);
        }
        self.carry_out(i, link);
        if is_queued {
            self.leave(i, false);
        }
        if let Some(end) = end {
            self.flow_ended(i, end);
        }
        self.update_wait(i);
        (answer, end, excused)
    }

    /// The model of device `i` is about to send so much payload, by phase. It counts when it leaves; of datagrams when it is
    /// given.
    fn queue(&mut self, i: u32, payload: [u64; 3]) {
        let slot = &mut self.slots[i as usize];
        let g = usize::from(slot.group);
        if self.plan.groups[g].scheme.carrier != Carrier::Stream {
            self.count_sent(g, payload);
        } else if let Some(conn) = slot.conn.as_mut().filter(|conn| !conn.send_failed) {
            conn.queue(conn.inner.queued_bytes(), payload);
        }
    }

    /// Count the payload of device `i` that has left the host.
    pub(super) fn leave(&mut self, i: u32, exact: bool) {
        let slot = &mut self.slots[i as usize];
        let Some(conn) = slot.conn.as_mut().filter(|conn| conn.is_queued()) else { return };
        let left = conn.inner.sent_bytes(exact);
        let payload = conn.leave(conn.inner.queued_bytes(), left);
        let g = usize::from(slot.group);
        self.count_sent(g, payload);
    }

    /// The same, as its connection is to be closed: what the system has taken goes on its way without us, unless nobody is
    /// there any more.
    pub(super) fn leave_last(&mut self, i: u32) {
        let slot = &mut self.slots[i as usize];
        let Some(conn) = slot.conn.as_mut().filter(|conn| conn.is_queued()) else { return };
        let given = conn.inner.queued_bytes();
        let goes = conn.inner.is_flushed() && !conn.ended && !conn.send_failed;
        let left = if goes { given } else { conn.inner.sent_bytes(true) };
        let (g, payload) = (usize::from(slot.group), conn.leave(given, left));
        self.count_sent(g, payload);
    }

    fn count_sent(&mut self, g: usize, payload: [u64; 3]) {
        for (tally, bytes) in self.groups[g].meter.iter_mut().zip(payload) {
            tally.counts.bytes_sent += bytes;
        }
    }

    /// Update the wait of device `i`: for a connection, an answer, or nothing.
    #[inline]
    pub(super) fn update_wait(&mut self, i: u32) {
        let slot = &mut self.slots[i as usize];
        let Some(waits) = &mut self.groups[usize::from(slot.group)].waits else { return };
        let (since, is_answer) = match slot.state {
            State::Active if slot.connect_by == Time::NEVER => (slot.device.waiting_since(), true),
            // what is to be sent again has waited longer
            State::Active => (slot.connect_asked.min(slot.device.waiting_since()), false),
            State::Idle | State::Resting | State::Done => (Time::NEVER, false),
        };
        slot.wait.observe(since, is_answer, self.now, self.window, waits);
    }

    fn carry_out(&mut self, i: u32, link: Link) {
        let unopened = self.slots[i as usize].conn.is_none();
        let datagrams = {
            let group = usize::from(self.slots[i as usize].group);
            self.plan.groups[group].scheme.carrier != Carrier::Stream
        };
        let implied = unopened && datagrams && !self.outbox.bytes.is_empty();
        if link == Link::Connect || implied {
            match self.open(i) {
                Ok(()) => {}
                // what was to be sent is lost, and the next time the socket is opened again
                Err(broken) if datagrams => {
                    return self.refused(i, broken.datagrams(self.outbox.datagrams().max(1)));
                }
                Err(broken) => return self.mark_broken(i, broken),
            }
            if datagrams && link == Link::Connect {
                // there is no handshake to wait for
                let queued = std::mem::take(&mut self.outbox);
                self.call_connected(i);
                if queued.bytes.is_empty() {
                    return;
                }
                self.outbox = queued;
            }
        }
        if datagrams && !self.outbox.bytes.is_empty() {
            self.keep_unanswered(i);
        }
        self.send_outbox(i);
        if let Link::Next(why) = link {
            return self.open_next(i, why);
        }
        let Some(conn) = &mut self.slots[i as usize].conn else { return };
        if link == Link::Close {
            if conn.up && !conn.inner.is_flushed() && !conn.send_failed {
                conn.closing = true;
            } else {
                self.hang_up(i);
            }
        }
    }

    fn send_outbox(&mut self, i: u32) {
        let Some(conn) = &mut self.slots[i as usize].conn else { return };
        if (!self.outbox.bytes.is_empty() || !self.outbox.elsewhere.is_empty())
            && !conn.send_failed
            && let Err(broken) = self.endpoint.send(&mut conn.inner, &mut self.outbox)
        {
            self.broke_sending(i, broken);
        }
        self.refusals(i);
    }

    /// Keep an example for the log: the first few of each kind of failure, and the first of each cause.
    pub(super) fn keep_example(&mut self, g: usize, cause: impl Into<Cause>, what: impl Display) {
        let cause = cause.into();
        let group = &mut self.groups[g];
        let other = group.causes_kept.other(cause.kind);
        let new = cause.detail != Detail::None && group.causes_kept.count_of(cause) == 0 && other == 0;
        let kept = &mut group.examples_kept[cause.kind as usize];
        if *kept < 3 || new {
            *kept = kept.saturating_add(1);
            group.causes_kept.count(cause, 1);
            self.examples.push(FailureExample { group: g, cause, text: what.to_string() });
        }
    }
}
