//! What a generator knows of the streams of one group.

use crate::schedule::Schedule;
use crate::segmenter::Segmenter;
use dpdk::TxWork;
use packet::Program;
use protocol::meter::{Phase, Tally};
use protocol::rate_timeline::RateTimeline;
use protocol::time::Time;
use std::sync::Arc;

/// One group's streams.
#[derive(Debug)]
pub struct Streams {
    /// Number of the group in the plan.
    pub group: usize,
    /// When they send.
    pub schedule: Schedule,
    /// What they send.
    pub program: Program,
    /// Whether what they send shows who sent it, or when.
    pub marked: bool,
    /// What the port is to do with each frame.
    pub work: Option<TxWork>,
    /// Where each frame is cut into segments, which are what is counted.
    pub segmenter: Option<Box<Segmenter>>,
    /// Bytes of each frame that are headers, and not counted as sent.
    pub headers: usize,
    /// Which streams go first when the port cannot take all: those with the higher number.
    pub priority: u8,
    /// Which device of the group is the first here; the others follow.
    pub from: u32,
    /// Stream number of that device; those of the others follow.
    pub first: u32,
    /// Counts, by phase.
    pub meter: [Tally; 3],
    /// Flows under way, by the phase in which they began.
    pub under_way: [u64; 3],
    /// How their rate is changed while the run goes on.
    pub timeline: Option<Arc<RateTimeline>>,
    /// How many changes they follow.
    pub changes: usize,
}

impl Streams {
    /// How many packets a frame becomes.
    pub fn packets(&self) -> u64 {
        self.segmenter.as_ref().map_or(1, |segmenter| segmenter.packets() as u64)
    }

    /// The next change of their rate, if it is known, and the factor from then on.
    #[inline]
    pub fn next_rate(&self) -> Option<(Time, f64)> {
        self.timeline.as_ref().filter(|timeline| timeline.count() != self.changes)?.change(self.changes)
    }

    /// The rate changes: nothing is due any more before it does.
    #[cold]
    pub fn follow_rate(&mut self, (at, factor): (Time, f64)) {
        self.schedule.set_rate(at, factor);
        self.changes += 1;
    }

    /// When there is something to do next.
    pub fn due(&self) -> Time {
        let under_way = self.segmenter.as_ref().is_some_and(|segmenter| segmenter.remaining() > 0);
        if under_way { Time::ZERO } else { self.schedule.due() }
    }

    /// Count `n` frames of `bytes` together that were due in `phase` and are sent.
    #[inline]
    pub fn count(&mut self, phase: Phase, n: usize, bytes: usize) {
        let counts = &mut self.meter[phase as usize].counts;
        counts.messages_intended += n as u64;
        counts.messages_sent += n as u64;
        counts.bytes_sent += bytes.saturating_sub(n * self.headers) as u64;
    }
}
