//! What elements and the run's supervisor share: the run's clock, and reports on request.

use crate::schedule::Schedule;
use crate::stream_table::StreamTable;
use engine::Clock;
use protocol::meter::{Counts, Tally};
use protocol::reordering::ReorderingTally;
use run::Control;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;

/// The run as elements see it.
#[derive(Debug)]
pub struct RunContext {
    /// How it is steered.
    pub control: Arc<Control>,
    clock: Clock,
    /// The run's time zero on the engine's clock; `u64::MAX` while it stands still.
    zero: AtomicU64,
    /// How often reports were asked for.
    asked: AtomicU64,
    ending: AtomicBool,
}

impl RunContext {
    /// A run that has not begun.
    pub fn new(control: Arc<Control>) -> Self {
        Self {
            control,
            clock: Clock::get(),
            zero: AtomicU64::new(u64::MAX),
            asked: AtomicU64::new(0),
            ending: AtomicBool::new(false),
        }
    }

    /// The run's time zero in nanoseconds on the engine's clock; `None` while the run stands still. The same
    /// for all elements, on whatever worker.
    #[inline]
    pub fn zero(&self) -> Option<u64> {
        if self.control.is_paused() {
            self.zero.store(u64::MAX, Ordering::Relaxed);
            return None;
        }
        match self.zero.load(Ordering::Relaxed) {
            u64::MAX => {
                let now = self.control.now()?;
                let zero = self.clock.now().saturating_sub(now.0);
                let set = self.zero.compare_exchange(u64::MAX, zero, Ordering::Relaxed, Ordering::Relaxed);
                Some(set.map_or_else(|other| other, |_| zero))
            }
            zero => Some(zero),
        }
    }

    /// The end is near.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// Whether the end is near.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Ask all elements for a report at their next tick.
    pub fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::Release) + 1
    }
}

/// What one element did since its last report.
#[derive(Debug)]
pub struct Report {
    /// Number of the element among those that report.
    pub element: usize,
    /// Which request it answers.
    pub asked: u64,
    /// Tallies of the groups that it has to do with, by phase.
    pub groups: Vec<(usize, [Tally; 3])>,
    /// Devices with a flow under way, by group.
    pub active: Vec<(usize, u32)>,
    /// What was kept of each stream, when its owner is gone.
    pub kept: Option<StreamRecords>,
}

/// Records of an element's streams over the whole run.
#[derive(Debug)]
pub enum StreamRecords {
    /// What was sent, by group.
    Sent(Vec<SentStreams>),
    /// What came back.
    Received(StreamTable),
}

/// The streams of one group that one generator sent.
#[derive(Debug)]
pub struct SentStreams {
    /// Number of the group in the plan.
    pub group: usize,
    /// The first of its devices; the others follow.
    pub from: u32,
    /// Packets of each frame.
    pub packets: u64,
    /// What was sent of each.
    pub schedule: Schedule,
}

/// An element's side of reporting.
#[derive(Debug)]
pub struct Reporter {
    run: Arc<RunContext>,
    element: usize,
    answered: u64,
    to: Sender<Report>,
}

impl Reporter {
    /// For the element with this number.
    pub fn new(run: Arc<RunContext>, element: usize, to: Sender<Report>) -> Self {
        Self { run, element, answered: 0, to }
    }

    /// The run.
    #[inline]
    pub fn run(&self) -> &RunContext {
        &self.run
    }

    /// Whether a report is asked for. Near the end each tick reports, as one of them will be the last.
    pub fn is_asked(&self) -> bool {
        self.run.is_ending() || self.run.asked.load(Ordering::Acquire) != self.answered
    }

    /// The element is gone: this was kept of its streams.
    pub fn hand_over(&self, kept: StreamRecords) {
        let asked = self.answered;
        let report = Report { element: self.element, asked, kept: Some(kept), ..Report::empty() };
        // When the run did not begin, or is over already, nobody wants to know.
        let _nobody = self.to.send(report);
    }

    /// Report if that was asked for.
    pub fn tick(&mut self, make: impl FnOnce() -> Report) {
        if self.is_asked() {
            let asked = self.run.asked.load(Ordering::Acquire);
            self.answered = asked;
            let report = Report { element: self.element, asked, ..make() };
            // When the supervisor is gone nobody wants to know.
            let _nobody = self.to.send(report);
        }
    }
}

impl Report {
    /// With nothing in it.
    pub fn empty() -> Self {
        Self { element: 0, asked: 0, groups: Vec::new(), active: Vec::new(), kept: None }
    }
}

/// Hand out what was tallied and start again, keeping the memory, so that the packets' way need not ask for it.
pub fn take(tallies: &mut [Tally; 3]) -> [Tally; 3] {
    tallies.each_mut().map(|tally| {
        let idle = tally.counts == Counts::default()
            && tally.lateness.is_empty()
            && tally.reordering().is_none_or(ReorderingTally::is_empty)
            && tally.delays.iter().all(|delay| delay.is_empty());
        if idle {
            return Tally::new(tally.delays.len());
        }
        let taken = tally.clone();
        tally.clear();
        taken
    })
}
