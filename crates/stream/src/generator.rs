//! Sends streams at their times.
//!
//! Each datagram has an intended send time that no delay before it changes; the signature carries that time,
//! so what the generator is late by is in the measured delay, and counted as lateness besides. What the port
//! has no room for is kept and sent first the next time: the generator loses nothing, it falls behind.

use crate::report::{Report, Reporter, SentStreams, StreamRecords, take};
use crate::run_elements::{OUTSIDE, RunElements};
use crate::schedule::Departure;
use crate::streams::Streams;
use dpdk::{Batch, Mempool};
use element::kind::{Build, ElementKind};
use engine::{Cx, Element, ElementInfo};
use packet::frame::{Marks, ROWS};
use profile::Error as SetupError;
use protocol::meter::{DELAY_MAX_NS, Failure, Phase, Tally, Window};
use protocol::time::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The kind of element.
pub const KIND: &str = "generator";

/// Sends the groups of the profile that name its port, each datagram at its time. Several generators of one port share the groups'
/// devices.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The port whose groups it sends. Frames carry that port's addresses, whatever port they leave by.
    pub port: String,
}

impl ElementKind for Options {
    const KIND: &'static str = KIND;
    const DROPS: &'static [&'static str] = &[];
    const REPLICABLE: bool = false;
    const EXAMPLE: &'static str = r#"{"port": "a"}"#;
    const TAKES: bool = false;
    const OF_RUN: bool = true;

    fn ports(&self) -> Vec<(&'static str, &str)> {
        vec![("port", &self.port)]
    }

    fn build(&self, cx: &mut Build<'_>) -> Result<Box<dyn Element>, SetupError> {
        let (name, outside) = (cx.name, cx.fault("kind", OUTSIDE));
        let run = cx.extensions.get_mut::<RunElements>().ok_or(outside)?;
        let (streams, pool) = run.streams.remove(name).unwrap_or_else(|| (Vec::new(), cx.pool.clone()));
        Ok(Box::new(Generator::new(streams, pool, run.reporter(name))))
    }
}

/// What fell due at the very end of the load may still leave this much later.
const GRACE: Duration = Duration::from_millis(1);

/// Element: makes the frames of one port's streams as they fall due.
#[derive(Debug)]
pub struct Generator {
    streams: Vec<Streams>,
    /// Of the frames of one batch, while they are made; kept so as not to be made each time.
    marks: Box<Marks>,
    pool: Mempool,
    reporter: Reporter,
    held: Batch,
    /// Where the run's time zero was when it last moved.
    zero: u64,
    draining: bool,
    /// There is nothing to send, at no time: to be asked again after the next tick.
    asleep: bool,
    /// Due before now and not sent when last reported: not to be counted as intended again.
    behind: Vec<[u64; 3]>,
}

impl Generator {
    /// For the streams of one port.
    pub fn new(mut streams: Vec<Streams>, pool: Mempool, reporter: Reporter) -> Self {
        let behind = vec![[0; 3]; streams.len()];
        streams.sort_by_key(|streams| std::cmp::Reverse(streams.priority));
        let marks = Box::new(Marks::NONE);
        Self {
            streams,
            marks,
            pool,
            reporter,
            held: Batch::new(),
            zero: 0,
            draining: false,
            asleep: false,
            behind,
        }
    }

    /// The load is over: what is due until its end and not sent was intended, and flows end.
    fn drain(&mut self, window: Window) {
        self.draining = true;
        self.count_behind(window, window.drain);
        for streams in &mut self.streams {
            for (tally, flows) in streams.meter.iter_mut().zip(&mut streams.under_way) {
                tally.counts.flows_completed += std::mem::take(flows);
            }
        }
    }

    /// Count what is due before `end` and not sent as intended, once.
    fn count_behind(&mut self, window: Window, end: Time) {
        for (streams, behind) in self.streams.iter_mut().zip(&mut self.behind) {
            let packets = streams.packets();
            let warmup = packets.saturating_mul(streams.schedule.pending(end.min(window.measure)));
            let all = packets.saturating_mul(streams.schedule.pending(end.min(window.drain)));
            for (phase, pending) in [(0, warmup), (1, all - warmup.min(all))] {
                // What was behind before and has been sent since was counted as intended by `send`.
                // What is pending may be an estimate that was too high: the rest is made good the next time.
                let counts = &mut streams.meter[phase].counts;
                let (due, before) = (counts.messages_intended + pending, behind[phase]);
                counts.messages_intended = due.saturating_sub(before);
                behind[phase] = pending + before.saturating_sub(due);
            }
        }
    }
}

/// Put as many datagrams as are due, fit into the batch and are written at once. Says whether that may not have been all.
#[inline]
fn send(
    streams: &mut Streams,
    marks: &mut Marks,
    pool: &Mempool,
    batch: &mut Batch,
    zero: u64,
    (now, due_by): (Time, Time),
    window: Window,
) -> bool {
    if streams.segmenter.is_some() {
        send_segments(streams, marks, pool, batch, zero, (now, due_by), window);
        return false;
    }
    let (have, most) = (batch.len(), batch.room().min(ROWS));
    let ready = if most > 0 { streams.schedule.ready(due_by, most) } else { 0 };
    // The pool's packets have room for the longest frame: see where it is made.
    let even = if streams.program.is_even() { streams.program.next_len() } else { 0 };
    if ready == 0 {
        return false;
    }
    let Some(mut fresh) = pool.fresh_frames(batch, have + ready, even) else { return false };
    // Fewer than were ready, if a flow that ended moved the next slot away.
    let Streams { schedule, meter, under_way, .. } = streams;
    let flows = |departure: &Departure| count_flow(meter, under_way, departure, window);
    // Where a phase ends among them, each one's time is wanted.
    let one_phase = window.phase(schedule.due()) == window.phase(due_by);
    let taken = if one_phase && !streams.marked {
        schedule.take_unmarked((due_by, ready), (zero, streams.first), marks, flows)
    } else {
        let taken = schedule.take_all((due_by, ready), (zero, streams.first), marks, flows);
        marks.devices[..taken].iter_mut().for_each(|device| *device += streams.from);
        taken
    };
    fresh.truncate(taken);
    let mut frames: [&mut [u8]; ROWS] = std::array::from_fn(|_| Default::default());
    if even > 0 {
        frames.iter_mut().zip(fresh.data_mut()).for_each(|(frame, data)| *frame = data);
    } else {
        let lengths = fresh.with_lengths(|ahead| streams.program.len_ahead(ahead));
        frames.iter_mut().zip(lengths).for_each(|(frame, data)| *frame = data);
    }
    let (frames, sent_ns) = (&mut frames[..taken], &marks.sent_ns[..taken]);
    let (Some(first), Some(last)) = (sent_ns.first(), sent_ns.last()) else { return false };
    let due = |sent_ns: &u64| Time(sent_ns.saturating_sub(zero));
    let (phase, bytes) = (window.phase(due(first)), frames.iter().map(|frame| frame.len()));
    if phase == window.phase(due(last)) {
        let bytes = if even > 0 { taken * even } else { bytes.sum() };
        streams.count(phase, taken, bytes);
    } else {
        sent_ns.iter().zip(bytes).for_each(|(sent, bytes)| streams.count(window.phase(due(sent)), 1, bytes));
    }
    streams.program.write_all(frames, marks);
    if let Some(work) = &streams.work {
        batch.frames_mut()[have..].iter_mut().for_each(|mbuf| mbuf.request_tx_offload(work));
    }
    // One value for all that leave together: the oldest's, so that none is made to look better than it was.
    let late = now.since(due(first)).min(DELAY_MAX_NS);
    let _grown = streams.meter[phase as usize].lateness.record_n(late, taken as u64);
    taken == ROWS
}

/// The same for frames that are segmented: one after the other, and none is begun before the last one's packets are all there.
/// Apart from `send`, so that it is not in the way of all others.
#[cold]
#[inline(never)]
fn send_segments(
    streams: &mut Streams,
    marks: &mut Marks,
    pool: &Mempool,
    batch: &mut Batch,
    zero: u64,
    (now, due_by): (Time, Time),
    window: Window,
) {
    let Streams { schedule, program, segmenter: Some(segmenter), .. } = streams else { return };
    segmenter.fill(pool, batch);
    while segmenter.remaining() == 0 && batch.room() > 0 && schedule.ready(due_by, 1) > 0 {
        let flows = |departure: &Departure| {
            count_flow(&mut streams.meter, &mut streams.under_way, departure, window);
        };
        if schedule.take_all((due_by, 1), (zero, streams.first), marks, flows) == 0 {
            return;
        }
        marks.devices[0] += streams.from;
        program.write_all(&mut [segmenter.begin()], marks);
        let due = Time(marks.sent_ns[0].saturating_sub(zero));
        let meter = &mut streams.meter[window.phase(due) as usize];
        let packets = segmenter.packets() as u64;
        meter.counts.messages_intended += packets;
        meter.counts.messages_sent += packets;
        meter.counts.bytes_sent += segmenter.bytes() as u64;
        let _grown = meter.lateness.record_n(now.since(due).min(DELAY_MAX_NS), packets);
        segmenter.fill(pool, batch);
    }
}

/// Count the flow that begins or ends with this datagram.
#[cold]
fn count_flow(meter: &mut [Tally; 3], under_way: &mut [u64; 3], departure: &Departure, window: Window) {
    if departure.begins {
        let phase = window.phase(departure.due) as usize;
        let counts = &mut meter[phase].counts;
        counts.flows_intended += 1;
        counts.flows_started += 1;
        under_way[phase] += 1;
    }
    if departure.ends {
        let phase = window.phase(departure.begun) as usize;
        meter[phase].counts.flows_completed += 1;
        under_way[phase] = under_way[phase].saturating_sub(1);
    }
}

impl Element for Generator {
    fn about(&self) -> ElementInfo {
        ElementInfo {
            kind: KIND,
            takes: Options::TAKES,
            outputs: &["out"],
            drops: Options::DROPS,
            polled: true,
        }
    }

    fn poll(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        /// How often to look whether a run that stands still goes on.
        const LOOK_NS: u64 = 200_000;
        self.held.move_to(batch);
        if !batch.is_empty() {
            // The port was full: it gets what it refused before anything new.
            return;
        }
        if self.asleep {
            // Not even the time is asked for, which costs as much as passing on ten packets.
            return;
        }
        let Some(zero) = self.reporter.run().zero() else {
            let at = cx.now() + LOOK_NS;
            cx.wake_at(at);
            return;
        };
        self.zero = zero;
        let now = Time(cx.now().saturating_sub(zero));
        let window = self.reporter.run().control.window();
        if now >= window.drain + GRACE {
            if !self.draining {
                self.drain(window);
            }
            // What was begun is sent whole.
            for segmenter in self.streams.iter_mut().filter_map(|streams| streams.segmenter.as_mut()) {
                segmenter.fill(&self.pool, batch);
                if segmenter.remaining() > 0 {
                    cx.wake_at(zero);
                }
            }
            return;
        }
        let due_by = now.min(Time(window.drain.0.saturating_sub(1)));
        for streams in &mut self.streams {
            loop {
                let change = streams.next_rate().filter(|(at, _)| *at <= due_by);
                let until = change.map_or(due_by, |(at, _)| Time(at.0.saturating_sub(1)));
                while send(streams, &mut self.marks, &self.pool, batch, zero, (now, until), window) {}
                match change {
                    Some(change) if streams.due() > until => streams.follow_rate(change),
                    _ => break,
                }
            }
        }
        let due = self.streams.iter().map(Streams::due).min().unwrap_or(Time::NEVER);
        if due < Time::NEVER {
            cx.wake_at(zero.saturating_add(due.0));
        }
        self.asleep = due == Time::NEVER && batch.is_empty();
        // Groups that come later must not starve when others of the same priority fill every batch.
        if self.streams.len() > 1 && batch.room() == 0 {
            let mut at = 0;
            for alike in self.streams.chunk_by_mut(|a, b| a.priority == b.priority) {
                alike.rotate_left(1);
                self.behind[at..at + alike.len()].rotate_left(1);
                at += alike.len();
            }
        }
    }

    fn refused(&mut self, _: usize, batch: &mut Batch, _: &mut Cx<'_>) {
        batch.move_to(&mut self.held);
    }

    fn tick(&mut self, now: u64) {
        let asleep = std::mem::take(&mut self.asleep);
        if !self.reporter.is_asked() {
            return;
        }
        let now = Time(now.saturating_sub(self.zero));
        let run = self.reporter.run();
        let window = run.control.window();
        if self.zero != 0 && !self.draining && !run.control.is_paused() {
            if asleep && now >= window.drain + GRACE {
                self.drain(window);
            } else {
                self.count_behind(window, now);
            }
        }
        if self.reporter.run().is_ending() {
            // The port never took these: our own loss, which makes the run invalid.
            let mut lost = self.held.len();
            self.held.clear();
            for streams in &mut self.streams {
                if let Some(segmenter) = &mut streams.segmenter {
                    lost += segmenter.remaining();
                    segmenter.abandon();
                }
                let failures = &mut streams.meter[Phase::Measure as usize].counts.failures;
                failures[Failure::Local as usize] += std::mem::take(&mut lost) as u64;
            }
        }
        let draining = self.draining;
        let active = |streams: &mut Streams| if draining { 0 } else { streams.schedule.active(now) };
        let active = self.streams.iter_mut().map(|streams| (streams.group, active(streams))).collect();
        let streams = &mut self.streams;
        self.reporter.tick(|| Report {
            active,
            groups: streams.iter_mut().map(|streams| (streams.group, take(&mut streams.meter))).collect(),
            ..Report::empty()
        });
    }
}

impl Drop for Generator {
    /// What was kept of each stream goes to who reads it, as it is.
    fn drop(&mut self) {
        let sent = |streams: Streams| SentStreams {
            group: streams.group,
            from: streams.from,
            packets: streams.packets(),
            schedule: streams.schedule,
        };
        let sent = std::mem::take(&mut self.streams).into_iter().map(sent).collect();
        self.reporter.hand_over(StreamRecords::Sent(sent));
    }
}
