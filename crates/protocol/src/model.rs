//! The one interface between a protocol and what carries it.
//!
//! A model is one virtual device's side of a protocol, without I/O: it is told what happened and what
//! time it is, and says what to send, when to wake it, and what it measured. The same model runs over
//! kernel sockets, over the DPDK endpoints, and under a test that plays the server.

use crate::cause::Cause;
use crate::histogram::record;
use crate::media::{MediaOutbox, MediaPacket};
use crate::meter::{DeviceTally, Failure, Phase, Tally, Window};
use crate::time::Time;
use rand::rngs::SmallRng;
use std::net::SocketAddr;

/// One virtual device. The transport calls one method at a time and carries out what [`Cx`] collected
/// when the method returns.
pub trait Model {
    /// A flow is to begin. `cx.intended` is when it was due; delays count from there. Connection-oriented
    /// models call [`Cx::connect`]; datagram models may send at once. One that keeps its connection finds it up where
    /// [`Cx::local`] says so.
    fn start(&mut self, cx: &mut Cx<'_>);

    /// The connection asked for is up (for TLS: the handshake is done).
    fn connected(&mut self, cx: &mut Cx<'_>);

    /// `bytes` is everything received and not yet used. Returns how much was used now; the rest is shown
    /// again with more behind it. For datagram transports `bytes` is one datagram and the answer is ignored.
    fn received(&mut self, cx: &mut Cx<'_>, bytes: &[u8]) -> usize;

    /// The time set with [`Cx::wake_at`] has come.
    fn timer(&mut self, cx: &mut Cx<'_>);

    /// The connection is gone, and not because the model asked. The flow cannot go on unless the model
    /// connects again; the transport has already counted `why` as a failure, unless it is `Closed` and
    /// the model says (by calling [`Cx::finish`]) that this was a good end. Where datagrams carry the model, some
    /// of them did not get through, and it may go on sending.
    fn closed(&mut self, cx: &mut Cx<'_>, why: Failure);

    /// The measure phase is over, or the load wants fewer devices: begin nothing new, end the flow in good order
    /// (MQTT: DISCONNECT). Answers still on their way may be waited for until the drain phase ends.
    fn stop(&mut self, cx: &mut Cx<'_>);

    /// Draining is over, and the flow had not ended: what did not come until now does not come. Each message that
    /// waits for an answer is counted as unanswered, and so is a connection that never came up.
    fn abandoned(&mut self, cx: &mut Cx<'_>);

    /// Since when the device has waited for an answer without a break, [`Time::NEVER`] when it waits for none: since
    /// the oldest message left that it still waits for; where datagrams carry the model, and one may be lost, since the
    /// first left after the last answer. Transports ask after each call and know by themselves how long a connection
    /// takes to come up.
    fn waiting_since(&self) -> Time;

    /// Whether it has left something with its server or peer that outlives the run, like a binding or a call that rings.
    fn leaves_behind(&self) -> bool {
        false
    }

    /// The run is over, draining included: take back what was left, then end the flow. It begins as [`Model::start`] does: with
    /// [`Cx::local`] the connection is up. Nothing of it is measured.
    fn clean_up(&mut self, cx: &mut Cx<'_>) {
        cx.finish();
    }

    /// Cleaning up has ended, or its time is over: count what was taken back, and what is left.
    fn cleaned_up(&mut self, cx: &mut Cx<'_>) {
        let _left_nothing = cx;
    }

    /// A datagram came to one of the device's media sockets. `packet.at` is when it arrived at this host.
    fn media(&mut self, cx: &mut Cx<'_>, packet: MediaPacket<'_>) {
        let _has_no_media_sockets = (cx, packet);
    }

    /// Whether it takes a message that is for no device in particular: see
    /// [`Recipient::Free`](crate::shared_socket::Recipient::Free).
    fn is_free(&self) -> bool {
        false
    }

    /// How many messages fell due before `end`, by the clock alone, and have neither been sent nor counted as
    /// intended: a live view counts these as they fall due. Where there are any, the model has asked to be woken by
    /// now or [`Model::holds_back`]: others are not asked, except where a phase ends.
    fn overdue(&self, end: Time) -> u64 {
        let _waits_for_answers = end;
        0
    }

    /// Whether its messages that are due may wait for answers, so that no timer tells of them. The same for all devices of a
    /// group.
    fn holds_back(&self) -> bool {
        false
    }
}

/// What the model asks the transport to do about its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Link {
    /// Leave it as it is.
    #[default]
    Keep,
    /// Open it.
    Connect,
    /// Send what is queued, then close it.
    Close,
    /// Send what is queued, then open another to the target's next server: this one failed.
    Next(Cause),
}

/// How a flow ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowEnd {
    /// In good order.
    Completed,
    /// Not.
    Failed,
}

/// Bytes to send. A stream transport sends them in order; a datagram transport cuts them every `segment`
/// bytes (0: they are one datagram), or, where they are not of one size, as `sizes` says.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Size of each datagram but the last; 0 when it is one.
    pub segment: usize,
    /// Size of each datagram, where they differ; empty: `segment` is.
    pub sizes: Vec<usize>,
    /// Datagrams to others than the target. Only of a transport of datagrams that gave [`Cx::peer`], and of its family.
    pub elsewhere: Vec<(SocketAddr, Vec<u8>)>,
    /// Datagrams of the media sockets.
    pub media: MediaOutbox,
}

impl Outbox {
    /// How many datagrams wait in it.
    pub fn datagrams(&self) -> u64 {
        if !self.sizes.is_empty() {
            return self.sizes.len() as u64;
        }
        let segment = if self.segment == 0 { self.bytes.len().max(1) } else { self.segment };
        self.bytes.len().div_ceil(segment) as u64
    }

    /// Append a datagram of any size.
    pub fn push_datagram(&mut self, datagram: &[u8]) {
        if self.bytes.is_empty() {
            self.segment = datagram.len();
        } else if self.sizes.is_empty() && datagram.len() != self.segment {
            let alike = self.bytes.len().div_ceil(self.segment.max(1));
            self.sizes.resize(alike, self.segment);
        }
        if !self.sizes.is_empty() {
            self.sizes.push(datagram.len());
        }
        self.bytes.extend_from_slice(datagram);
    }

    /// Nothing to send, keeping the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.segment = 0;
        self.sizes.clear();
        self.elsewhere.clear();
        self.media.clear();
    }
}

/// The world as one callback sees it, and what the model wants done when it returns.
pub struct Cx<'a> {
    /// The time.
    pub now: Time,
    /// When what is shown in [`Model::received`] came to this host, where the kernel says; else now. Delays end then: the time
    /// for which it waited to be read is the generator's own.
    pub came: Time,
    /// When the flow (in [`Model::start`]) or the timer (in [`Model::timer`]) was due.
    pub intended: Time,
    /// Number of the device in its group: over all workers, and over all hosts of a fleet.
    pub device: u32,
    /// In [`Model::connected`]: our address and port of the connection, where it has one. In [`Model::start`]: that of the
    /// connection that was kept and is up.
    pub local: Option<SocketAddr>,
    /// With [`Cx::local`]: the other end, where the transport says.
    pub peer: Option<SocketAddr>,
    /// In [`Model::received`]: who sent the datagram, where that is not the target.
    pub from: Option<SocketAddr>,
    /// In [`Model::start`] and [`Model::connected`]: address of the device's media socket for RTP, where it has one.
    pub media: Option<SocketAddr>,
    /// Where bytes to send are appended.
    pub out: &'a mut Outbox,
    /// The worker's seeded random numbers.
    pub rng: &'a mut SmallRng,
    /// The run's phases.
    pub window: Window,
    /// The group's tallies, by phase.
    pub meter: &'a mut [Tally; 3],
    /// The device's own summary.
    pub tally: &'a mut DeviceTally,
    /// What to do with the connection.
    pub link: Link,
    /// When to call [`Model::timer`]; `None` leaves the timer as it is, [`Time::NEVER`] stops it.
    pub wake: Option<Time>,
    /// Set when the flow has ended.
    pub end: Option<FlowEnd>,
    /// What a failure looked like, for the log: the transport keeps the first few of each kind.
    pub example: Option<(Cause, String)>,
    /// Set in [`Model::closed`] when that was in order although the flow goes on: see [`Cx::mark_clean_close`].
    pub excused: bool,
    /// The peer has closed its side of the connection that the event is of. What it sent before may still be unread.
    pub ended: bool,
    /// In [`Model::closed`]: the connection ended without the alert by which TLS says so (close_notify): what came may not be
    /// all that was sent.
    pub truncated: bool,
    /// The target has servers that this request has not been sent to: see [`Cx::next_server`].
    pub has_next: bool,
    /// How many of the messages delivered were answered by a server that knows nothing of them: they are not to its credit.
    pub disowned: u64,
    /// Payload bytes queued by this call, by the phase of their message: the transport counts them as they leave.
    pub queued: [u64; 3],
    /// How many messages the load has left to send; without a total there is no end to them.
    pub left: u64,
    /// How many messages can still be counted as due and never sent ([`Pace::count_missed`](crate::pace::Pace::count_missed)). With a total:
    /// none while the load is on, as other flows send them, and then those left. Without one there is no end to them.
    pub unsendable: u64,
}

impl<'a> Cx<'a> {
    /// A context with nothing asked for yet.
    #[expect(clippy::too_many_arguments, reason = "built in one place per transport, by name")]
    pub fn new(
        now: Time,
        intended: Time,
        device: u32,
        out: &'a mut Outbox,
        rng: &'a mut SmallRng,
        window: Window,
        meter: &'a mut [Tally; 3],
        tally: &'a mut DeviceTally,
    ) -> Self {
        Self {
            now,
            came: now,
            intended,
            device,
            local: None,
            peer: None,
            from: None,
            media: None,
            out,
            rng,
            window,
            meter,
            tally,
            link: Link::Keep,
            wake: None,
            end: None,
            example: None,
            excused: false,
            ended: false,
            truncated: false,
            has_next: false,
            disowned: 0,
            queued: [0; 3],
            left: u64::MAX,
            unsendable: u64::MAX,
        }
    }

    /// Open the connection.
    pub fn connect(&mut self) {
        self.link = Link::Connect;
    }

    /// Send what is queued, then close the connection.
    pub fn close(&mut self) {
        self.link = Link::Close;
    }

    /// The server failed: send what is queued, and connect to the next one, where there is one ([`Cx::has_next`]). What was not
    /// answered is the model's to send again when that connection is up.
    pub fn next_server(&mut self, why: Cause) {
        self.link = Link::Next(why);
    }

    /// Call [`Model::timer`] at `at`; replaces the timer set before. [`Time::NEVER`] stops it.
    pub fn wake_at(&mut self, at: Time) {
        self.wake = Some(at);
    }

    /// The flow ended in good order. Does not close the connection: see [`Cx::close`].
    pub fn finish(&mut self) {
        self.end = Some(FlowEnd::Completed);
    }

    /// In [`Model::closed`]: the other side was free to close (HTTP between two requests), and the flow goes
    /// on or has ended well. The transport counts no failure for [`Failure::Closed`] then.
    pub fn mark_clean_close(&mut self) {
        self.excused = true;
    }

    /// In [`Model::closed`]: the flow cannot go on. The transport has counted why.
    pub fn give_up(&mut self) {
        self.end = Some(FlowEnd::Failed);
    }

    /// The flow failed. Counts `why` as [`Cx::failure`] does, closes the connection, keeps `what` for the log.
    pub fn fail(&mut self, at: Time, why: impl Into<Cause>, what: impl FnOnce() -> String) {
        self.failure(at, why, what);
        self.end = Some(FlowEnd::Failed);
        self.link = Link::Close;
    }

    /// Something went wrong, but the flow goes on. `at` is now; of a datagram that was lost, when it was due. `why`: the
    /// kind of failure, or a [`Cause`] that says more.
    pub fn failure(&mut self, at: Time, why: impl Into<Cause>, what: impl FnOnce() -> String) {
        self.failures(at, 1, why, what);
    }

    /// The same, so many times.
    pub fn failures(&mut self, at: Time, times: u64, why: impl Into<Cause>, what: impl FnOnce() -> String) {
        if times > 0 {
            let why = why.into();
            self.meter[self.window.counted(at) as usize].failed(why, times);
            self.tally.failed = self.tally.failed.saturating_add(u32::try_from(times).unwrap_or(u32::MAX));
            // why a connection was lost says more than that messages were lost with it
            if why.kind != Failure::Unanswered || self.example.is_none() {
                self.example = Some((why, what()));
            }
        }
    }

    /// The message due at `at` asked for an answer, and nothing can bring one any more.
    pub fn unanswered(&mut self, at: Time, what: &str) {
        self.failure(at, Failure::Unanswered, || what.to_owned());
    }

    /// The same of what is still waited for when draining is over, by whoever can wait no longer: it counts as
    /// measured even where it was due in the warm-up, since it was waited for all through the measure phase.
    pub fn never_answered(&mut self, at: Time, what: &str) {
        self.unanswered(at.max(self.window.measure), what);
    }

    /// Explain a failure that the transport counts in terms of the protocol: it counts as this cause.
    pub fn explain(&mut self, why: impl Into<Cause>, what: impl FnOnce() -> String) {
        self.example = Some((why.into(), what()));
    }

    /// The tally of the phase that `at` falls in.
    #[inline]
    pub fn at(&mut self, at: Time) -> &mut Tally {
        &mut self.meter[self.window.phase(at) as usize]
    }

    /// One more of the model's own counter number `counter`, of the phase that `at` falls in.
    #[inline]
    pub fn count(&mut self, at: Time, counter: usize) {
        self.at(at).own[counter] += 1;
    }

    /// A message due at `intended` was handed to the transport now: counts it as intended and as sent.
    /// `bytes` is its payload size.
    #[inline]
    pub fn sent(&mut self, intended: Time, bytes: usize) {
        let tally = self.at(intended);
        tally.counts.messages_intended += 1;
        tally.counts.messages_sent += 1;
        self.tally.sent += 1;
        self.left = self.left.saturating_sub(1);
        self.sent_bytes(intended, bytes);
    }

    /// So many bytes were handed to the transport that are no message of their own, or are of one that was sent before.
    #[inline]
    pub fn sent_bytes(&mut self, at: Time, bytes: usize) {
        self.queued[self.window.phase(at) as usize] += bytes as u64;
    }

    /// The generator itself was late with what was due at `due`. Transports record this for every timer
    /// and flow start; a model does so only where nothing but the generator can hold a message back (a
    /// paced datagram stream), never for waiting on the system under test.
    #[inline]
    pub fn late(&mut self, due: Time) {
        let late = self.now.since(due);
        record(&mut self.at(due).lateness, late);
    }

    /// Messages that fell due at about `at` and will never be sent: the offered load falls short by them.
    pub fn unsent(&mut self, at: Time, messages: u64) {
        self.at(at).counts.messages_intended += messages;
    }

    /// `bytes` arrived that belong to the message due at `at` (to now, when they were not asked for).
    #[inline]
    pub fn arrived(&mut self, at: Time, bytes: usize) {
        self.at(at).counts.bytes_received += bytes as u64;
    }

    /// A message came that was not requested, or not in this flow.
    #[inline]
    pub fn count_unrequested(&mut self, at: Time) {
        self.at(at).counts.messages_received += 1;
    }

    /// A reply came that is not what was sent: it is not delivered. `at` is when it was due, or now.
    pub fn corrupted(&mut self, at: Time, what: impl FnOnce() -> String) {
        self.meter[self.window.counted(at) as usize].counts.corrupted += 1;
        if self.example.is_none() {
            self.example = Some((Failure::Unanswered.into(), what()));
        }
    }

    /// The message due at `intended` is confirmed; its delay goes into the model's delay number `delay`.
    #[inline]
    pub fn delivered(&mut self, intended: Time, delay: usize) {
        let took = self.came.since(intended);
        let changed = (self.tally.delivered > 0).then(|| took.abs_diff(self.tally.delay_last));
        self.tally.delay_last = took;
        let tally = self.at(intended);
        tally.counts.messages_delivered += 1;
        record(&mut tally.delays[delay], took);
        if let Some(changed) = changed {
            tally.variation[delay].record(changed);
        }
        self.tally.delivered += 1;
        self.tally.delay_sum = self.tally.delay_sum.saturating_add(took);
        self.tally.delay_max = self.tally.delay_max.max(took);
    }

    /// Some other delay that began at `since` (connection set-up, CONNACK, first byte).
    #[inline]
    pub fn delay(&mut self, since: Time, delay: usize) {
        let took = self.came.since(since);
        record(&mut self.at(since).delays[delay], took);
    }

    /// Whether the load is still on at this moment: its time is not over, and its total is not sent.
    pub fn loading(&self) -> bool {
        self.left > 0 && self.window.phase(self.now) != Phase::Drain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_of_one_size_need_no_list() {
        let mut out = Outbox::default();
        out.push_datagram(b"abc");
        out.push_datagram(b"def");
        assert_eq!((out.segment, out.sizes.len(), out.datagrams()), (3, 0, 2));
        out.push_datagram(b"g");
        out.push_datagram(b"hijk");
        assert_eq!((&*out.sizes, out.datagrams(), out.bytes.len()), (&[3, 3, 1, 4][..], 4, 11));
        out.clear();
        assert_eq!(out.datagrams(), 0);
    }
}
