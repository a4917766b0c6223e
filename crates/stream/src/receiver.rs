//! Measures every datagram that comes back: loss, order, duplicates, delay and how it varies (RFC 5481).
//!
//! Nothing is taken for granted: frames that are broken, changed, foreign or of unknown streams are dropped and
//! counted by reason; what is not UDP goes on to the next element, which answers ARP and ping. ICMP errors about what
//! was sent are failures of its group; what they quote is never measured.

use crate::expected::ExpectedGroup;
use crate::report::{Report, Reporter, StreamRecords, take};
use crate::run_elements::{OUTSIDE, RunElements};
use crate::rx_offload::RxOffload;
use crate::stream_table::{Lane, StreamTable, UnexpectedArrival};
use dpdk::{Batch, Checked};
use element::distribute::MOST_OUTPUTS;
use element::kind::{Build, ElementKind};
use engine::{Cx, Element, ElementInfo};
use packet::icmp_error::{IcmpError, PacketOutcome};
use packet::layers::protocol::{ICMP, ICMPV6, UDP};
use packet::signature::Signature;
use packet::udp::Datagram;
use packet::{Fault, Layers};
use profile::Error as SetupError;
use protocol::histogram::bucket_bits;
use protocol::meter::{DELAY_MAX_NS, Failure, Phase, Window};
use protocol::problem::Problem;
use protocol::sequence_window::SequenceClass;
use protocol::time::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reasons to drop: the faults of frames, and these.
const OURS: [&str; 6] =
    ["unknown_stream", "segmented", "other_addresses", "corrupted", "icmp_error", "icmp_unmatched"];
const UNKNOWN_STREAM: usize = Fault::NAMES.len();
const SEGMENTED: usize = UNKNOWN_STREAM + 1;
/// It has the signature of a stream, and is no datagram that its peer sends back.
const OTHER_ADDRESSES: usize = UNKNOWN_STREAM + 2;
/// It is not as it was sent, although its checksums are right.
const CORRUPTED: usize = UNKNOWN_STREAM + 3;
/// An ICMP message about what we sent: counted as a failure, too, if it says so.
const ICMP_ERROR: usize = UNKNOWN_STREAM + 4;
/// One about something else, or nobody can tell about what.
const ICMP_UNMATCHED: usize = UNKNOWN_STREAM + 5;

const DROPS: [&str; UNKNOWN_STREAM + OURS.len()] = {
    let mut names = [""; UNKNOWN_STREAM + OURS.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = if i < UNKNOWN_STREAM { Fault::NAMES[i] } else { OURS[i - UNKNOWN_STREAM] };
        i += 1;
    }
    names
};

/// The kind of element.
pub const KIND: &str = "receiver";

/// Measures the datagrams of streams that come back, whatever port sent them; what is of no stream goes on by `other`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The port whose frames it gets: what that port says of checksums and arrival times holds of them.
    pub port: String,
    /// The share of the streams that comes here, where a flow-distributor deals them out. Default: any may come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
}

/// A share of the streams: every `of`th, from number `number` on.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// The flow-distributor's output, from 0.
    pub number: usize,
    /// How many outputs it has, 1 to 16.
    #[schemars(range(min = 1, max = 16))]
    pub of: usize,
}

impl ElementKind for Options {
    const KIND: &'static str = KIND;
    const DROPS: &'static [&'static str] = &DROPS;
    const REPLICABLE: bool = false;
    const EXAMPLE: &'static str = r#"{"port": "a"}"#;
    const OF_RUN: bool = true;

    fn check(&self) -> Vec<Problem> {
        let wrong = |share: &Share| share.number >= share.of || share.of > MOST_OUTPUTS;
        let problem = |share: Share| {
            let what = format!("there is no output {} of {}", share.number, share.of);
            Problem::new(
                "share.number",
                what,
                format!("Use 0 to one less than `of`, which is at most {MOST_OUTPUTS}"),
            )
        };
        self.share.filter(wrong).map(problem).into_iter().collect()
    }

    fn outputs(&self) -> Vec<String> {
        vec!["other".into()]
    }

    fn ports(&self) -> Vec<(&'static str, &str)> {
        vec![("port", &self.port)]
    }

    fn build(&self, cx: &mut Build<'_>) -> Result<Box<dyn Element>, SetupError> {
        let outside = cx.fault("kind", OUTSIDE);
        let run = cx.extensions.get_mut::<RunElements>().ok_or(outside)?;
        let lane = self.share.map_or(Lane::ALL, |share| Lane::new(share.number, share.of));
        let port = run.receiving.get(&self.port).cloned().unwrap_or_default();
        let all = port.all && (self.share.is_some() || port.receivers == 1);
        let (groups, reporter) = (run.expected(), run.reporter(cx.name));
        Ok(Box::new(Receiver::new(groups, (lane, all), reporter, port.rx_offload)))
    }
}

/// Element: measures the frames of streams, and hands on what is of none.
#[derive(Debug)]
pub struct Receiver {
    measured: Measurements,
    reporter: Reporter,
    /// What the port says of frames, if it does.
    rx_offload: Option<RxOffload>,
}

/// Measurements so far; knows nothing of DPDK.
#[derive(Debug)]
pub(super) struct Measurements {
    /// In the order of their streams.
    groups: Vec<ExpectedGroup>,
    /// One past the last stream of each group.
    ends: Box<[u32]>,
    streams: StreamTable,
    /// The run's time zero on the clock that signatures use.
    zero: u64,
    window: Window,
    run: DelayRun,
}

/// Delays that came one after the other and are one to the histogram that they go to. They are recorded there together: for each
/// it would take as long as all else that is counted. Where more is offered than arrives in time, whole batches are such.
#[derive(Debug)]
struct DelayRun {
    count: u64,
    /// One of them.
    delay: u64,
    /// See [`bucket_bits`].
    bits: u64,
    /// Of which group, and in which phase.
    of: (usize, usize),
}

impl DelayRun {
    /// Of no group.
    const NONE: Self = Self { count: 0, delay: 0, bits: 0, of: (usize::MAX, 0) };

    /// Whether one more belongs here.
    #[inline]
    fn holds(&self, (group, phase): (usize, usize), delay: u64) -> bool {
        let other = (group ^ self.of.0) as u64 | (phase ^ self.of.1) as u64;
        (delay ^ self.delay) & self.bits | other == 0
    }
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

impl Measurements {
    /// For groups whose streams are numbered one after the other, of those that `lane` has. `all`: each of them arrives here.
    pub(super) fn new(mut groups: Vec<ExpectedGroup>, lane: Lane, all: bool, window: Window) -> Self {
        // now, as there is no asking for memory later
        for tally in groups.iter_mut().flat_map(|group| &mut group.meter) {
            let _room = tally.reordering_mut();
        }
        let ends: Box<[u32]> = groups.iter().map(|group| group.streams.end).collect();
        let streams = StreamTable::new(ends.last().copied().unwrap_or(0), lane, all);
        Self { groups, ends, streams, zero: 0, window, run: DelayRun::NONE }
    }

    /// All frames that came together were looked at: what was put off is done.
    #[inline]
    pub(super) fn settle(&mut self) {
        let DelayRun { count, delay, of: (group, phase), .. } =
            std::mem::replace(&mut self.run, DelayRun::NONE);
        if let Some(group) = self.groups.get_mut(group)
            && let Some(h) = group.delay.and_then(|at| group.meter[phase].delays.get_mut(at))
        {
            let _grown = h.record_n(delay, count);
        }
    }

    /// Record what came so far, and begin anew with this delay.
    #[cold]
    #[inline(never)]
    fn begin_run(&mut self, of: (usize, usize), delay: u64) {
        self.settle();
        self.run = DelayRun { count: 1, delay, bits: bucket_bits(delay), of };
    }

    /// Number of the group that a stream belongs to, or one that there is none of.
    #[inline]
    fn group_of(ends: &[u32], stream: u32) -> usize {
        ends.partition_point(|end| *end <= stream)
    }

    /// Nothing more comes.
    fn finish(&mut self) {
        let Self { groups, ends, streams, .. } = self;
        streams.finish(|stream, finish| {
            if let Some(group) = groups.get_mut(Self::group_of(ends, stream)) {
                finish(group.meter[Phase::Measure as usize].reordering_mut());
            }
        });
    }

    /// The frame is not as it was sent: if it still shows whose it was, by its signature or where it came from and went to,
    /// count it there.
    #[cold]
    #[inline(never)]
    fn corrupted(&mut self, frame: &[u8], now: u64) {
        let layers = Layers::find(frame);
        let end = layers.as_ref().map_or(frame.len(), |layers| layers.end);
        let known = |signature: Signature| {
            let group = Self::group_of(&self.ends, signature.stream);
            (group < self.groups.len()).then_some((group, signature.sent_ns))
        };
        let by_ends = || {
            let layers = layers.ok()?;
            let (datagram, addresses) = (Datagram::trusted(frame, &layers).ok()?, layers.addresses(frame));
            let reply = |group: &ExpectedGroup| {
                group.plain.as_ref().is_some_and(|p| p.is_reply(addresses, &datagram))
            };
            Some((self.groups.iter().position(reply)?, now))
        };
        let Some((group, at)) = Signature::find(frame, end).and_then(known).or_else(by_ends) else { return };
        if let Some(group) = self.groups.get_mut(group) {
            let at = Time(at.saturating_sub(self.zero));
            group.meter[self.window.phase(at) as usize].counts.corrupted += 1;
        }
    }

    /// An ICMP message that quotes a packet came at `now`, ns.
    #[cold]
    #[inline(never)]
    fn icmp(&mut self, error: &IcmpError, now: u64) -> Verdict {
        let Some(quoted) = &error.quoted else { return Verdict::Bad(ICMP_UNMATCHED) };
        let is_ours = |group: &ExpectedGroup| group.plain.as_ref().map(|plain| plain.is_quoted(quoted));
        let stream = quoted
            .signature
            .filter(|signature| self.ends.last().is_some_and(|streams| signature.stream < *streams));
        let group = match &stream {
            Some(signature) => Some(Self::group_of(&self.ends, signature.stream))
                .filter(|at| self.groups.get(*at).is_some_and(|group| is_ours(group) != Some(false))),
            None => self.groups.iter().position(|group| is_ours(group) == Some(true)),
        };
        let Some(group) = group.and_then(|at| self.groups.get_mut(at)) else {
            return Verdict::Bad(ICMP_UNMATCHED);
        };
        let why = match error.outcome {
            PacketOutcome::Refused => Failure::Refused,
            PacketOutcome::Unreachable => Failure::Unreachable,
            PacketOutcome::Forwarded => return Verdict::Bad(ICMP_ERROR),
        };
        // What is quoted in pieces may come to another lane than its stream: who tells copies apart is not here then.
        if let Some(signature) = stream
            && let Some((state, _, disturbed)) = self.streams.get_mut(signature.stream)
            && !disturbed.undelivered(state, state.number(signature.sequence))
        {
            return Verdict::Bad(ICMP_ERROR);
        }
        // Of when it happens; while draining it is still about what was measured.
        let phase = self.window.counted(Time(now.saturating_sub(self.zero)));
        group.meter[phase as usize].counts.failures[why as usize] += 1;
        Verdict::Bad(ICMP_ERROR)
    }

    /// A frame of any kind arrived at `now`, ns.
    #[inline(never)]
    fn inspect(&mut self, frame: &[u8], now: u64) -> Verdict {
        match Layers::find(frame) {
            Ok(layers) if layers.protocol == UDP => match Datagram::parse(frame, &layers) {
                Ok(datagram) => self.datagram(frame, &layers, &datagram, now),
                Err(fault) => {
                    if fault == Fault::BadChecksum {
                        self.corrupted(frame, now);
                    }
                    Verdict::Bad(fault as usize)
                }
            },
            Ok(layers) => {
                if let Some(error) = IcmpError::parse(frame, &layers) {
                    return self.icmp(&error, now);
                }
                let Some(signature) = Signature::find(frame, layers.end) else { return Verdict::Other };
                if !layers.is_intact(frame) {
                    self.corrupted(frame, now);
                    return Verdict::Bad(Fault::BadChecksum as usize);
                }
                self.signed(signature, frame.len(), now)
            }
            Err(Fault::NotIp) => match Signature::find(frame, frame.len()) {
                Some(signature) => self.signed(signature, frame.len(), now),
                None => Verdict::Other,
            },
            Err(fault) => {
                if fault == Fault::BadChecksum {
                    self.corrupted(frame, now);
                }
                Verdict::Bad(fault as usize)
            }
        }
    }

    /// The frame arrived at `now`, ns.
    #[inline(always)] // With all that it does to a frame that is as expected: a call for each of these steps costs as much.
    pub(super) fn frame(&mut self, frame: &[u8], now: u64) -> Verdict {
        match Datagram::plain(frame) {
            Some((datagram, layers)) => self.datagram(frame, &layers, &datagram, now),
            None => self.inspect(frame, now),
        }
    }

    /// A frame of whose checksum the port said something arrived at `now`, ns.
    pub(super) fn checked(&mut self, frame: &[u8], now: u64, said: Checked) -> Verdict {
        match (said, Layers::find(frame)) {
            (Checked::Bad, _) => {
                self.corrupted(frame, now);
                return Verdict::Bad(Fault::BadChecksum as usize);
            }
            (Checked::Good, Ok(layers)) if layers.protocol == UDP => {
                if let Ok(datagram) = Datagram::trusted(frame, &layers) {
                    return self.datagram(frame, &layers, &datagram, now);
                }
            }
            (Checked::Good, Ok(layers)) if !matches!(layers.protocol, ICMP | ICMPV6) => {
                if let Some(signature) = Signature::find(frame, layers.end) {
                    return self.signed(signature, frame.len(), now);
                }
            }
            _ => {}
        }
        // What is odd is looked at as if nothing had been said.
        self.frame(frame, now)
    }

    /// A whole UDP datagram arrived.
    #[inline(always)]
    fn datagram(&mut self, frame: &[u8], layers: &Layers, datagram: &Datagram<'_>, now: u64) -> Verdict {
        let Some(signature) = Signature::find(frame, layers.end) else {
            return self.unsigned(frame, layers, datagram, now);
        };
        let at = Self::group_of(&self.ends, signature.stream);
        if let Some(group) = self.groups.get(at)
            && let Some(plain) = &group.plain
        {
            let device = signature.stream - group.streams.start;
            if plain.is_echo() && !plain.is_of(device, layers.addresses(frame), datagram) {
                return Verdict::Bad(OTHER_ADDRESSES);
            }
            // What stands behind the datagram in its packet was not sent so.
            let fills = layers.l4 + packet::udp::LEN + datagram.payload.len() == layers.end;
            if !(fills && plain.is_as_sent(datagram.payload)) {
                self.corrupted(frame, now);
                return Verdict::Bad(CORRUPTED);
            }
        }
        self.arrived(signature, at, (datagram.payload.len(), frame.len()), now)
    }

    /// A datagram without signature: of a stream's peer it is a reply that was changed.
    #[cold]
    #[inline(never)]
    fn unsigned(&mut self, frame: &[u8], layers: &Layers, datagram: &Datagram<'_>, now: u64) -> Verdict {
        let addresses = layers.addresses(frame);
        let reply = |group: &ExpectedGroup| {
            group.plain.as_ref().is_some_and(|plain| plain.is_echo() && plain.is_reply(addresses, datagram))
        };
        if !self.groups.iter().any(reply) {
            return Verdict::Bad(Fault::NoSignature as usize);
        }
        self.corrupted(frame, now);
        Verdict::Bad(CORRUPTED)
    }

    /// Something with a signature that is no datagram of its own: fine where frames are of all kinds, or come in tunnels.
    fn signed(&mut self, signature: Signature, len: usize, now: u64) -> Verdict {
        let at = Self::group_of(&self.ends, signature.stream);
        match self
            .groups
            .get(at)
            .is_some_and(|group| group.plain.as_ref().is_some_and(|plain| plain.is_echo()))
        {
            true => Verdict::Bad(OTHER_ADDRESSES),
            false => self.arrived(signature, at, (0, len), now),
        }
    }

    /// What was in a frame of group `at`: `bytes` in its datagram, of `len`.
    #[inline(always)]
    fn arrived(
        &mut self,
        signature: Signature,
        at: usize,
        (bytes, len): (usize, usize),
        now: u64,
    ) -> Verdict {
        let Some(group) = self.groups.get_mut(at) else {
            return Verdict::Bad(UNKNOWN_STREAM);
        };
        let Some((state, place, disturbed)) = self.streams.get_mut(signature.stream) else {
            return Verdict::Bad(UNKNOWN_STREAM);
        };
        let phase = self.window.phase(Time(signature.sent_ns.saturating_sub(self.zero)));
        let tally = &mut group.meter[phase as usize];
        tally.counts.bytes_received += if group.whole { len } else { bytes } as u64;
        if !state.follows(signature.sequence) {
            let number = state.number(signature.sequence);
            let counts = phase != Phase::Warmup;
            let unexpected = UnexpectedArrival { number, now, counts };
            if disturbed.arrived((state, place), unexpected, tally) == SequenceClass::Duplicate {
                return Verdict::Done;
            }
        }
        tally.counts.messages_delivered += 1;
        let delay = now.saturating_sub(signature.sent_ns).min(DELAY_MAX_NS);
        if let Some(at) = group.delay
            && let Some(v) = tally.variation.get_mut(at).filter(|_| state.delivered > 0)
        {
            v.record(delay.abs_diff(state.delay_last()));
        }
        state.delivered(delay);
        if group.delay.is_some() {
            let of = (at, phase as usize);
            match self.run.holds(of, delay) {
                true => self.run.count += 1,
                false => self.begin_run(of, delay),
            }
        }
        Verdict::Done
    }
}

impl Receiver {
    /// For these groups, in the order of their streams, of which `lane` comes here; `all`: and nowhere else.
    pub fn new(
        groups: Vec<ExpectedGroup>,
        (lane, all): (Lane, bool),
        reporter: Reporter,
        rx_offload: Option<RxOffload>,
    ) -> Self {
        let window = reporter.run().control.window();
        Self { measured: Measurements::new(groups, lane, all, window), reporter, rx_offload }
    }
}

impl Element for Receiver {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: KIND, takes: true, outputs: &["other"], drops: &DROPS, polled: false }
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
        match &self.rx_offload {
            None => batch.retain(|mbuf| {
                judge(match mbuf.is_whole() {
                    true => measured.frame(mbuf.data(), now),
                    false => Verdict::Bad(SEGMENTED),
                })
            }),
            Some(port) => batch.retain(|mbuf| {
                judge(match mbuf.is_whole() {
                    true => measured.checked(mbuf.data(), port.arrived(mbuf, now), port.checksum(mbuf)),
                    false => Verdict::Bad(SEGMENTED),
                })
            }),
        }
        measured.settle();
    }

    fn tick(&mut self, now: u64) {
        if let Some(port) = &mut self.rx_offload {
            port.tick(now);
        }
        let measured = &mut self.measured;
        if self.reporter.run().is_ending() {
            measured.finish();
        }
        self.reporter.tick(|| Report {
            groups: measured.groups.iter_mut().map(|group| (group.group, take(&mut group.meter))).collect(),
            ..Report::empty()
        });
    }
}

impl Drop for Receiver {
    /// What was kept of each stream goes to who reads it, as it is.
    fn drop(&mut self) {
        let streams = std::mem::replace(&mut self.measured.streams, StreamTable::new(0, Lane::ALL, false));
        if streams.unordered() > 0 {
            let streams = streams.unordered();
            tracing::warn!(streams, "more streams were out of order than the order of can be kept");
        }
        self.reporter.hand_over(StreamRecords::Received(streams));
    }
}

#[cfg(test)]
mod tests;
