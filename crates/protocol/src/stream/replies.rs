//! Which datagrams of a flow came back.

use crate::reordering::ReorderTracker;
use crate::sequence_window::{SequenceClass, SequenceWindow};
use packet::signature::SEQUENCE_MAX;

/// Streams among which the memory for gaps is shared out, as each of many has little.
const SHARE: usize = 1 << 10;

/// Which datagrams came back.
#[derive(Debug)]
pub(super) struct FlowReplies {
    /// One past the highest number that came (NextExp of RFC 4737 §4.2.1).
    pub(super) next: u64,
    window: SequenceWindow,
    /// From the first gap on.
    pub(super) order: Option<Box<ReorderTracker>>,
    /// The number on the wire of the flow's first datagram: flows go on where those before them ended.
    pub(super) first: u64,
    /// How many different datagrams came back, of those due in the warm-up and of those due later.
    pub(super) back: [u64; 2],
    /// Failures that the transport had counted when the flow began.
    pub(super) failed_before: u32,
    /// And until the warm-up was over.
    pub(super) failed_warmup: u32,
}

impl FlowReplies {
    pub(super) fn new(window: u64) -> Self {
        Self {
            next: 0,
            window: SequenceWindow::new(window),
            order: None,
            first: 0,
            back: [0; 2],
            failed_before: 0,
            failed_warmup: 0,
        }
    }

    /// A flow begins after one of `sent` datagrams, and after so many failures.
    pub(super) fn begin(&mut self, sent: u64, failed: u32) {
        self.first = (self.first + sent) & SEQUENCE_MAX;
        self.back = [0; 2];
        (self.failed_before, self.failed_warmup) = (failed, failed);
        self.next = 0;
        self.window.clear();
        self.order.iter_mut().for_each(|order| order.clear());
    }

    /// How many different datagrams came back.
    #[inline]
    pub(super) fn back(&self) -> u64 {
        self.back[0] + self.back[1]
    }

    pub(super) fn order(&mut self) -> &mut ReorderTracker {
        self.order.get_or_insert_with(|| Box::new(ReorderTracker::shared(SHARE)))
    }

    #[inline]
    pub(super) fn arrived(&mut self, number: u64) -> SequenceClass {
        self.window.arrived(&mut self.next, number)
    }
}
