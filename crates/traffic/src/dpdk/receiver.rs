//! Measures every datagram that comes back: loss, order, duplicates, delay and how it varies (RFC 5481).
//!
//! Nothing is taken for granted: frames that are broken, foreign or of unknown streams are dropped and
//! counted by reason; what is not UDP goes on to the next element, which answers ARP and ping.

use super::assist::Assist;
use super::report::{Report, Reporter, take};
use super::tracker::{Arrival, Tracker};
use dpdk::{Batch, Checked};
use engine::{About, Cx, Element};
use packet::layers::protocol::UDP;
use packet::signature::{self, Signature};
use packet::udp::Datagram;
use packet::{Fault, Layers};
use protocol::meter::{DELAY_MAX_NS, DeviceTally, Phase, Tally, Window};
use protocol::order::{Order, Turn};
use protocol::time::Time;

/// What the receiver knows of one group.
#[derive(Debug)]
pub struct Expected {
    /// Number of the group in the plan.
    pub group: usize,
    /// Counts and delays, by phase.
    pub meter: [Tally; 3],
    /// Which of the delays is the time from sending to receiving.
    pub delay: Option<usize>,
    /// Its frames are of all kinds, and counted whole; else they are UDP, and only what that carries counts.
    pub whole: bool,
}

/// One stream.
#[derive(Debug, Clone)]
pub struct Stream {
    /// Number of its group in [`Receiver`]'s list.
    pub expected: u16,
    /// Which device of the group sends it.
    pub device: u32,
    tracker: Tracker,
    tally: DeviceTally,
}

impl Stream {
    /// The stream of `device` in the group that is number `expected` in the receiver's list.
    pub fn new(expected: u16, device: u32) -> Self {
        Self { expected, device, tracker: Tracker::default(), tally: DeviceTally::default() }
    }
}

/// Reasons to drop: the faults of frames, and:
const UNKNOWN_STREAM: usize = Fault::NAMES.len();
const SEGMENTED: usize = UNKNOWN_STREAM + 1;

const DROPS: [&str; SEGMENTED + 1] = {
    let mut names = ["unknown_stream"; SEGMENTED + 1];
    let mut i = 0;
    while i < UNKNOWN_STREAM {
        names[i] = Fault::NAMES[i];
        i += 1;
    }
    names[SEGMENTED] = "segmented";
    names
};

/// Element: see the module's own words.
#[derive(Debug)]
pub struct Receiver {
    measured: Measured,
    reporter: Reporter,
    /// What the port says of frames, if it does.
    assist: Option<Assist>,
}

/// What was measured so far; knows nothing of DPDK.
#[derive(Debug)]
pub(super) struct Measured {
    groups: Vec<Expected>,
    /// By stream number.
    streams: Vec<Stream>,
    /// By stream number: apart, as what comes in order needs none of it.
    order: Vec<Order>,
    /// The run's time zero on the clock that signatures use.
    zero: u64,
    window: Window,
}

/// What to do with a frame.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It was measured.
    Done,
    /// Somebody else may want it.
    Other,
    /// It is to be dropped for this reason.
    Bad(usize),
}

impl Measured {
    pub(super) fn new(mut groups: Vec<Expected>, streams: Vec<Stream>, window: Window) -> Self {
        // now, as there is no asking for memory later
        for tally in groups.iter_mut().flat_map(|group| &mut group.meter) {
            let _room = tally.reordering_mut();
        }
        let order = vec![Order::shared(streams.len()); streams.len()];
        Self { groups, streams, order, zero: 0, window }
    }

    /// Nothing more comes.
    fn finish(&mut self) {
        for (stream, order) in self.streams.iter_mut().zip(&mut self.order) {
            if let Some(group) = self.groups.get_mut(usize::from(stream.expected)) {
                let into = group.meter[Phase::Measure as usize].reordering_mut();
                // what was sent after the last arrival is not known here
                stream.tally.pattern = order.finish(stream.tally.delivered, 0..0, into);
            }
        }
    }

    /// The frame is broken: if it still shows whose it was, count it there.
    #[cold]
    fn corrupted(&mut self, frame: &[u8], end: usize, fault: Fault) {
        let known = |signature: &Signature| self.streams.get(usize::from(signature.stream));
        let signature = signature_in(frame, end).filter(|_| fault == Fault::BadChecksum);
        let Some((signature, stream)) = signature.and_then(|s| Some((s, known(&s)?))) else { return };
        if let Some(group) = self.groups.get_mut(usize::from(stream.expected)) {
            let sent = Time(signature.sent_ns.saturating_sub(self.zero));
            group.meter[self.window.phase(sent) as usize].counts.corrupted += 1;
        }
    }

    /// Its signature, and the bytes its datagram carries, of a frame of any kind; or what to do with it.
    #[inline(never)]
    fn inspect(&mut self, frame: &[u8]) -> Result<(Signature, usize), Verdict> {
        match Layers::find(frame) {
            Ok(layers) if layers.protocol == UDP => match Datagram::parse(frame, &layers) {
                Ok(datagram) => signature_in(frame, layers.end)
                    .map(|signature| (signature, datagram.payload.len()))
                    .ok_or(Verdict::Bad(Fault::NoSignature as usize)),
                Err(fault) => {
                    self.corrupted(frame, layers.end, fault);
                    Err(Verdict::Bad(fault as usize))
                }
            },
            Ok(layers) => {
                let signature = signature_in(frame, layers.end).ok_or(Verdict::Other)?;
                if !layers.is_intact(frame) {
                    self.corrupted(frame, layers.end, Fault::BadChecksum);
                    return Err(Verdict::Bad(Fault::BadChecksum as usize));
                }
                Ok((signature, 0))
            }
            Err(Fault::NotIp) => {
                signature_in(frame, frame.len()).map(|signature| (signature, 0)).ok_or(Verdict::Other)
            }
            Err(fault) => {
                self.corrupted(frame, frame.len(), fault);
                Err(Verdict::Bad(fault as usize))
            }
        }
    }

    /// The frame arrived at `now`, ns.
    #[inline]
    pub(super) fn frame(&mut self, frame: &[u8], now: u64) -> Verdict {
        let plain =
            Datagram::plain(frame).and_then(|(datagram, end)| Some((signature_in(frame, end)?, datagram)));
        let (signature, bytes) = match plain {
            Some((signature, datagram)) => (signature, datagram.payload.len()),
            None => match self.inspect(frame) {
                Ok(found) => found,
                Err(verdict) => return verdict,
            },
        };
        self.arrived(signature, (bytes, frame.len()), now)
    }

    /// A frame of whose checksum the port said something arrived at `now`, ns.
    pub(super) fn checked(&mut self, frame: &[u8], now: u64, said: Checked) -> Verdict {
        let found = match (said, Layers::find(frame)) {
            (Checked::Unknown, _) => return self.frame(frame, now),
            (Checked::Bad, layers) => {
                let end = layers.map_or(frame.len(), |layers| layers.end);
                self.corrupted(frame, end, Fault::BadChecksum);
                return Verdict::Bad(Fault::BadChecksum as usize);
            }
            (Checked::Good, Ok(layers)) => match Datagram::trusted(frame, &layers) {
                Ok(datagram) => Some((layers.end, datagram.payload.len())),
                Err(Fault::NotUdp) => Some((layers.end, 0)),
                Err(_) => None,
            },
            (Checked::Good, Err(_)) => None,
        };
        // What is odd is looked at as if nothing had been said.
        match found.and_then(|(end, bytes)| Some((signature_in(frame, end)?, bytes))) {
            Some((signature, bytes)) => self.arrived(signature, (bytes, frame.len()), now),
            None => self.frame(frame, now),
        }
    }

    /// What was in a frame: `bytes` in its datagram, of `len`.
    #[inline]
    fn arrived(&mut self, signature: Signature, (bytes, len): (usize, usize), now: u64) -> Verdict {
        let Some(stream) = self.streams.get_mut(usize::from(signature.stream)) else {
            return Verdict::Bad(UNKNOWN_STREAM);
        };
        let Some(group) = self.groups.get_mut(usize::from(stream.expected)) else {
            return Verdict::Bad(UNKNOWN_STREAM);
        };
        let sent = Time(signature.sent_ns.saturating_sub(self.zero));
        let tally = &mut group.meter[self.window.phase(sent) as usize];
        let counts = &mut tally.counts;
        counts.bytes_received += if group.whole { len } else { bytes } as u64;
        let turn = || Turn { number: signature.sequence, index: stream.tally.delivered, now };
        match stream.tracker.arrived(signature.sequence) {
            Arrival::InOrder => {}
            Arrival::Ahead(first) => {
                let count = self.window.phase(sent) != Phase::Warmup;
                let order = &mut self.order[usize::from(signature.stream)];
                order.skipped(first, turn(), count, tally.reordering_mut());
            }
            Arrival::Reordered => {
                counts.reordered += 1;
                stream.tally.reordered = stream.tally.reordered.saturating_add(1);
                self.order[usize::from(signature.stream)].late(turn(), tally.reordering_mut());
            }
            Arrival::Duplicate => {
                counts.duplicates += 1;
                stream.tally.duplicates = stream.tally.duplicates.saturating_add(1);
                return Verdict::Done;
            }
        }
        tally.counts.messages_delivered += 1;
        let delay = now.saturating_sub(signature.sent_ns).min(DELAY_MAX_NS);
        if let Some(at) = group.delay {
            if let Some(h) = tally.delays.get_mut(at) {
                let _grown = h.record(delay);
            }
            if let Some(v) = tally.variation.get_mut(at).filter(|_| stream.tally.delivered > 0) {
                v.record(delay.abs_diff(stream.tally.delay_last));
            }
        }
        stream.tally.delay_last = delay;
        stream.tally.delivered += 1;
        stream.tally.delay_sum = stream.tally.delay_sum.saturating_add(delay);
        stream.tally.delay_max = stream.tally.delay_max.max(delay);
        Verdict::Done
    }
}

/// The signature of the frame whose innermost packet ends at `end`.
#[inline]
pub(super) fn signature_in(frame: &[u8], end: usize) -> Option<Signature> {
    Signature::parse(frame.get(signature::place(end)?..end)?)
}

impl Receiver {
    /// For these groups and streams; the position of a stream is its number.
    pub fn new(
        groups: Vec<Expected>,
        streams: Vec<Stream>,
        reporter: Reporter,
        assist: Option<Assist>,
    ) -> Self {
        let window = reporter.run().control.window();
        Self { measured: Measured::new(groups, streams, window), reporter, assist }
    }
}

impl Element for Receiver {
    fn about(&self) -> About {
        About { kind: "receiver", takes: true, outputs: &["other"], drops: &DROPS, polled: false }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        let run = self.reporter.run();
        let measured = &mut self.measured;
        // While the run stands still, what is under way belongs to the time before.
        measured.zero = run.zero().unwrap_or(measured.zero);
        measured.window = run.control.window();
        let now = cx.now();
        let mut judge = |verdict| match verdict {
            Verdict::Done => false,
            Verdict::Other => true,
            Verdict::Bad(reason) => {
                cx.count(reason, 1);
                false
            }
        };
        // Two loops, so that where the port says nothing it is not asked for each frame.
        match &self.assist {
            None => batch.retain(|mbuf| {
                judge(match mbuf.is_whole() {
                    true => measured.frame(mbuf.data(), now),
                    false => Verdict::Bad(SEGMENTED),
                })
            }),
            Some(assist) => batch.retain(|mbuf| {
                judge(match mbuf.is_whole() {
                    true => measured.checked(mbuf.data(), assist.arrived(mbuf, now), assist.checksum(mbuf)),
                    false => Verdict::Bad(SEGMENTED),
                })
            }),
        }
    }

    fn tick(&mut self, now: u64) {
        if let Some(assist) = &mut self.assist {
            assist.tick(now);
        }
        let measured = &mut self.measured;
        if self.reporter.run().is_ending() {
            measured.finish();
        }
        self.reporter.tick(|| Report {
            groups: measured.groups.iter_mut().map(|group| (group.group, take(&mut group.meter))).collect(),
            devices: measured
                .streams
                .iter()
                .filter_map(|stream| {
                    let group = measured.groups.get(usize::from(stream.expected))?;
                    Some((group.group as u16, stream.device, stream.tally))
                })
                .collect(),
            ..Report::empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::frame::Written;
    use packet::{Flow, Program};
    use proptest::prelude::*;
    use protocol::meter::Pattern;

    fn measured() -> Measured {
        let meter = [(); 3].map(|()| Tally::new(1));
        let group = Expected { group: 0, meter, delay: Some(0), whole: false };
        let window = Window { measure: Time(1_000), drain: Time(1_000_000) };
        let streams = vec![Stream::new(0, 0), Stream::new(0, 1)];
        Measured { zero: 500, ..Measured::new(vec![group], streams, window) }
    }

    fn frame(stream: u16, sequence: u64, sent_ns: u64) -> Vec<u8> {
        let flow = Flow {
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
            source: "10.0.0.1:1".parse().expect("an address"),
            destination: "10.0.0.2:2".parse().expect("an address"),
        };
        let mut frame = vec![0; 60];
        let mut program = Program::udp(&flow, 60).expect("it fits");
        assert_eq!(program.write(&mut frame, 0, &Signature { stream, sequence, sent_ns }), Written::Signed);
        frame
    }

    #[test]
    fn each_datagram_counts_in_the_phase_it_was_meant_for() {
        let mut measured = measured();
        // Run time 999 is still warm-up, 1000 is not.
        for (sequence, sent) in [(0, 1499), (1, 1500)] {
            assert!(matches!(measured.frame(&frame(0, sequence, sent), 2_000_000), Verdict::Done));
        }
        let [warmup, measure, drain] = &measured.groups[0].meter;
        assert_eq!((warmup.counts.messages_delivered, measure.counts.messages_delivered), (1, 1));
        assert_eq!(drain.counts, Default::default());
        assert_eq!(measure.delays[0].max() / 1000, (2_000_000 - 1500) / 1000);
        assert_eq!(measure.counts.bytes_received, 18);
    }

    #[test]
    fn loss_order_and_copies_are_told_apart_per_stream() {
        let mut measured = measured();
        for (stream, sequence) in [(0, 0), (1, 0), (0, 2), (0, 1), (0, 1), (1, 1)] {
            measured.frame(&frame(stream, sequence, 5_000), 6_000);
        }
        let tally = &measured.groups[0].meter[Phase::Measure as usize];
        let (counts, reordering) = (tally.counts, tally.reordering().expect("there is some"));
        assert_eq!((reordering.extent.len(), reordering.extent.max(), reordering.by_three), (1, 1, 0));
        assert_eq!((counts.messages_delivered, counts.reordered, counts.duplicates), (5, 1, 1));
        let tallies: Vec<&DeviceTally> = measured.streams.iter().map(|stream| &stream.tally).collect();
        assert_eq!((tallies[0].delivered, tallies[0].reordered, tallies[0].duplicates), (3, 1, 1));
        assert_eq!((tallies[1].delivered, tallies[1].reordered, tallies[1].duplicates), (2, 0, 0));
        assert_eq!(
            (measured.streams[1].tally.delay_sum, measured.streams[1].tally.delay_max),
            (2_000, 1_000)
        );
    }

    #[test]
    fn places_and_losses_are_kept_of_each_stream() {
        let mut measured = measured();
        for (stream, sequence) in [(0, 0), (1, 0), (0, 3), (1, 1), (0, 2), (1, 2), (0, 4)] {
            measured.frame(&frame(stream, sequence, 5_000), 6_000);
        }
        measured.finish();
        measured.finish();
        let order = measured.groups[0].meter[Phase::Measure as usize].reordering().expect("there is some");
        assert_eq!((order.densities.early[0], order.densities.late[0]), (1, 1));
        assert_eq!((order.losses.lengths.len(), order.losses.lost()), (1, 1));
        let patterns: Vec<Pattern> = measured.streams.iter().map(|stream| stream.tally.pattern).collect();
        let one = Pattern { loss_periods: 1, longest_loss: 1, furthest: 1, most_waiting: 3 };
        assert_eq!(patterns, [one, Pattern::default()]);
    }

    #[test]
    fn what_cannot_be_measured_is_named() {
        let mut measured = measured();
        let mut verdict = |frame: &[u8]| match measured.frame(frame, 0) {
            Verdict::Done => "done",
            Verdict::Other => "other",
            Verdict::Bad(reason) => DROPS[reason],
        };
        assert_eq!(verdict(&frame(2, 0, 0)), "unknown_stream");
        let mut flipped = frame(0, 0, 0);
        flipped[50] ^= 4;
        assert_eq!(verdict(&flipped), "bad_checksum");
        flipped = frame(0, 0, 0);
        flipped[42] = 0; // no longer our magic
        flipped[40..42].fill(0);
        assert_eq!(verdict(&flipped), "no_signature");
        assert_eq!(verdict(&frame(0, 0, 0)[..50]), "bad_length");
        assert_eq!(verdict(&[0; 60]), "other");
        // A time from the future is no delay rather than a huge one.
        assert_eq!(verdict(&frame(1, 0, u64::MAX)), "done");
    }

    #[test]
    fn the_ports_word_on_checksums_is_taken() {
        let mut measured = measured();
        let mut wrong = frame(0, 0, 2_000);
        wrong[50] ^= 4;
        let looked = |verdict| matches!(verdict, Verdict::Bad(why) if DROPS[why] == "bad_checksum");
        assert!(looked(measured.checked(&wrong, 3_000, Checked::Unknown)));
        assert!(looked(measured.checked(&frame(0, 0, 2_000), 3_000, Checked::Bad)));
        let counts = |measured: &Measured| measured.groups[0].meter[Phase::Measure as usize].counts;
        assert_eq!((counts(&measured).corrupted, counts(&measured).messages_delivered), (2, 0));
        assert!(matches!(measured.checked(&wrong, 3_000, Checked::Good), Verdict::Done));
        assert_eq!((counts(&measured).corrupted, counts(&measured).messages_delivered), (2, 1));
        // And on nothing else.
        let odd = measured.checked(&frame(0, 1, 2_000)[..50], 3_000, Checked::Good);
        assert!(matches!(odd, Verdict::Bad(why) if DROPS[why] == "bad_length"));
    }

    proptest! {
        #[test]
        fn hostile_frames_are_counted_not_believed(
            changes in proptest::collection::vec((0usize..60, any::<u8>()), 0..6),
            cut in 0usize..=60,
        ) {
            let mut measured = measured();
            let mut frame = frame(0, 7, 1_500);
            changes.into_iter().for_each(|(at, value)| frame[at] = value);
            let _any = measured.frame(&frame[..cut], 9_000);
        }
    }
}
