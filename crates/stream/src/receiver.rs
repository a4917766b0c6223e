//! Measures every datagram that comes back: loss, order, duplicates, delay and how it varies (RFC 5481).
//!
//! Nothing is taken for granted: frames that are broken, changed, foreign or of unknown streams are dropped and
//! counted by reason; what is not UDP goes on to the next element, which answers ARP and ping. ICMP errors about what
//! was sent are failures of its group; what they quote is never measured.

use crate::expected::Expected;
use crate::report::{Report, Reporter, take};
use crate::rx_offload::RxOffload;
use crate::sequence_tracker::{Arrival, SequenceTracker};
use dpdk::{Batch, Checked};
use engine::{About, Cx, Element};
use packet::icmp_error::{Fate, IcmpError};
use packet::layers::protocol::{ICMP, ICMPV6, UDP};
use packet::signature::Signature;
use packet::udp::Datagram;
use packet::{Fault, Layers};
use protocol::meter::{DELAY_MAX_NS, DeviceTally, Failure, Phase, Window};
use protocol::reordering::{Order, Turn};
use protocol::time::Time;

/// One stream.
#[derive(Debug, Clone)]
pub struct Stream {
    /// Number of its group in [`Receiver`]'s list.
    pub expected: u16,
    /// Which device of the group sends it.
    pub device: u32,
    tracker: SequenceTracker,
    tally: DeviceTally,
    /// One past the highest number that an ICMP error was about: of two about one datagram one counts.
    undelivered: u64,
}

impl Stream {
    /// The stream of `device` in the group that is number `expected` in the receiver's list.
    pub fn new(expected: u16, device: u32) -> Self {
        Self {
            expected,
            device,
            tracker: SequenceTracker::default(),
            tally: DeviceTally::default(),
            undelivered: 0,
        }
    }
}

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

/// Element: see the module's own words.
#[derive(Debug)]
pub struct Receiver {
    measured: Measured,
    reporter: Reporter,
    /// What the port says of frames, if it does.
    assist: Option<RxOffload>,
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

    /// The frame is not as it was sent: if it still shows whose it was, by its signature or where it came from and went to,
    /// count it there.
    #[cold]
    #[inline(never)]
    fn corrupted(&mut self, frame: &[u8], now: u64) {
        let layers = Layers::find(frame);
        let end = layers.as_ref().map_or(frame.len(), |layers| layers.end);
        let known = |signature: Signature| {
            let stream = self.streams.get(signature.stream as usize)?;
            Some((usize::from(stream.expected), signature.sent_ns))
        };
        let by_ends = || {
            let layers = layers.ok()?;
            let (datagram, addresses) = (Datagram::trusted(frame, &layers).ok()?, layers.addresses(frame));
            let reply =
                |group: &Expected| group.plain.as_ref().is_some_and(|p| p.is_reply(addresses, &datagram));
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
        let stream = quoted.signature.and_then(|signature| {
            let stream = self.streams.get_mut(signature.stream as usize)?;
            Some((stream, signature.sequence))
        });
        let is_ours = |group: &Expected| group.plain.as_ref().map(|plain| plain.is_quoted(quoted));
        let group = match &stream {
            Some((stream, _)) => Some(usize::from(stream.expected))
                .filter(|at| self.groups.get(*at).is_some_and(|group| is_ours(group) != Some(false))),
            None => self.groups.iter().position(|group| is_ours(group) == Some(true)),
        };
        let Some(group) = group.and_then(|at| self.groups.get_mut(at)) else {
            return Verdict::Bad(ICMP_UNMATCHED);
        };
        let why = match error.fate {
            Fate::Refused => Failure::Refused,
            Fate::Unreachable => Failure::Unreachable,
            Fate::Forwarded => return Verdict::Bad(ICMP_ERROR),
        };
        if let Some((stream, sequence)) = stream {
            if sequence < stream.undelivered {
                return Verdict::Bad(ICMP_ERROR);
            }
            stream.undelivered = sequence + 1;
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
    #[inline]
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
                Verdict::Bad(Fault::BadChecksum as usize)
            }
            (Checked::Good, Ok(layers)) if layers.protocol == UDP => {
                match Datagram::trusted(frame, &layers) {
                    Ok(datagram) => self.datagram(frame, &layers, &datagram, now),
                    Err(_) => self.frame(frame, now),
                }
            }
            (Checked::Good, Ok(layers)) if !matches!(layers.protocol, ICMP | ICMPV6) => {
                match Signature::find(frame, layers.end) {
                    Some(signature) => self.signed(signature, frame.len(), now),
                    None => self.frame(frame, now),
                }
            }
            // What is odd is looked at as if nothing had been said.
            _ => self.frame(frame, now),
        }
    }

    /// A whole UDP datagram arrived.
    #[inline]
    fn datagram(&mut self, frame: &[u8], layers: &Layers, datagram: &Datagram<'_>, now: u64) -> Verdict {
        let Some(signature) = Signature::find(frame, layers.end) else {
            return self.unsigned(frame, layers, datagram, now);
        };
        let stream = self.streams.get(signature.stream as usize);
        let group = stream.and_then(|stream| self.groups.get(usize::from(stream.expected)));
        if let (Some(stream), Some(plain)) = (stream, group.and_then(|group| group.plain.as_ref())) {
            if plain.is_echo() && !plain.is_of(stream.device, layers.addresses(frame), datagram) {
                return Verdict::Bad(OTHER_ADDRESSES);
            }
            // What stands behind the datagram in its packet was not sent so.
            let fills = layers.l4 + packet::udp::LEN + datagram.payload.len() == layers.end;
            if !(fills && plain.is_as_sent(datagram.payload)) {
                self.corrupted(frame, now);
                return Verdict::Bad(CORRUPTED);
            }
        }
        self.arrived(signature, (datagram.payload.len(), frame.len()), now)
    }

    /// A datagram without signature: of a stream's peer it is a reply that was changed.
    #[cold]
    #[inline(never)]
    fn unsigned(&mut self, frame: &[u8], layers: &Layers, datagram: &Datagram<'_>, now: u64) -> Verdict {
        let addresses = layers.addresses(frame);
        let reply = |group: &Expected| {
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
        let stream = self.streams.get(signature.stream as usize);
        let group = stream.and_then(|stream| self.groups.get(usize::from(stream.expected)));
        match group.is_some_and(|group| group.plain.as_ref().is_some_and(|plain| plain.is_echo())) {
            true => Verdict::Bad(OTHER_ADDRESSES),
            false => self.arrived(signature, (0, len), now),
        }
    }

    /// What was in a frame: `bytes` in its datagram, of `len`.
    #[inline]
    fn arrived(&mut self, signature: Signature, (bytes, len): (usize, usize), now: u64) -> Verdict {
        let Some(stream) = self.streams.get_mut(signature.stream as usize) else {
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
                let order = &mut self.order[signature.stream as usize];
                order.skipped(first, turn(), count, tally.reordering_mut());
            }
            Arrival::Reordered => {
                counts.reordered += 1;
                stream.tally.reordered = stream.tally.reordered.saturating_add(1);
                self.order[signature.stream as usize].late(turn(), tally.reordering_mut());
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

impl Receiver {
    /// For these groups and streams; the position of a stream is its number.
    pub fn new(
        groups: Vec<Expected>,
        streams: Vec<Stream>,
        reporter: Reporter,
        assist: Option<RxOffload>,
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
mod tests;
