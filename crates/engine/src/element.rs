//! The one interface of everything that touches packets.

use crate::clock::Watch;
use crate::counters::{BUILT_IN, Counters, OVERFLOW, REASONS, REFUSED};
use dpdk::{Batch, Mbuf};

/// What an element is, told once before it runs.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// What kind of element, such as `reflector`.
    pub kind: &'static str,
    /// Whether other elements may hand it packets.
    pub takes: bool,
    /// Names of its outputs; none for a sink.
    pub outputs: &'static [&'static str],
    /// Names of its reasons to drop, numbered from 0; at most 14.
    pub drops: &'static [&'static str],
    /// Whether [`Element::poll`] is to be called.
    pub polled: bool,
}

/// A step in a packet's way. It works on batches, in place, and never waits.
///
/// After [`push`](Element::push) and [`poll`](Element::poll) what is left in the batch goes to output 0; an
/// element without outputs *refuses* what it leaves. Packets for other outputs go through [`Cx::emit`].
/// Packets that end here end through [`Cx::sift`] or [`Cx::discard`], which count them by reason (or
/// [`Cx::count`] does), or [`Cx::consume`], for a sink that has done its work.
pub trait Element: Send {
    /// What it is.
    fn about(&self) -> About;

    /// Take a batch from another element.
    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        let _pass_on = (batch, cx);
    }

    /// Put what there is to send into the empty batch: packets received, generated, or held until now. Called
    /// each turn of the worker's loop; also from time to time when nothing happens, and no later than
    /// [`Cx::wake_at`] asked for.
    fn poll(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        let _nothing = (batch, cx);
    }

    /// Output `output` did not take these. Keep them (move them out of the batch) to send them later, or leave
    /// them: then they are dropped, as `refused`.
    fn refused(&mut self, output: usize, batch: &mut Batch, cx: &mut Cx<'_>) {
        let _dropped = (output, batch, cx);
    }

    /// Called every few milliseconds and once at the end, off the packets' way: the place to send results to
    /// whoever wants them.
    fn tick(&mut self, now: u64) {
        let _now = now;
    }
}

/// The world as an element sees it during one call.
pub struct Cx<'a> {
    pub(crate) watch: &'a mut Watch,
    pub(crate) counters: &'a Counters,
    /// Packets for outputs 1, 2, …
    pub(crate) side: &'a mut [Option<Box<Batch>>],
    /// When the worker must come back, ns.
    pub(crate) due: &'a mut u64,
}

impl Cx<'_> {
    /// The time on the engine's [`Clock`](crate::Clock), ns: when it was first asked for during this poll, or since these
    /// packets came to the worker.
    #[inline]
    pub fn now(&mut self) -> u64 {
        self.watch.now()
    }

    /// Come back for [`Element::poll`] no later than `at` (ns on the engine's clock), as something is to be sent
    /// then. Holds until the next poll.
    #[inline]
    pub fn wake_at(&mut self, at: u64) {
        *self.due = (*self.due).min(at);
    }

    /// Look at each packet; those for which `look` has a reason are dropped and counted under it.
    #[inline]
    pub fn sift(&mut self, batch: &mut Batch, mut look: impl FnMut(&mut Mbuf) -> Result<(), usize>) {
        let counters = self.counters;
        batch.retain(|mbuf| match look(mbuf) {
            Ok(()) => true,
            Err(reason) => {
                count(counters, BUILT_IN.len() + reason, 1);
                false
            }
        });
    }

    /// Count `n` packets as dropped for `reason`: for an element that frees them itself.
    #[inline]
    pub fn count(&mut self, reason: usize, n: u64) {
        count(self.counters, BUILT_IN.len() + reason, n);
    }

    /// Drop the whole batch for one reason.
    #[inline]
    pub fn discard(&mut self, batch: &mut Batch, reason: usize) {
        count(self.counters, BUILT_IN.len() + reason, batch.len() as u64);
        batch.clear();
    }

    /// The end of these packets' way, as it should be.
    #[inline]
    pub fn consume(&mut self, batch: &mut Batch) {
        batch.clear();
    }

    /// Hand a packet to `output`, 1 or higher; output 0 gets what is left in the batch.
    #[inline]
    pub fn emit(&mut self, output: usize, mbuf: Mbuf) {
        let place = output.checked_sub(1).and_then(|at| self.side.get_mut(at)).and_then(Option::as_mut);
        let over = match place {
            Some(batch) => batch.push(mbuf).is_err(),
            None => true,
        };
        if over {
            count(self.counters, OVERFLOW, 1);
        }
    }

    /// Drop what the next element did not take.
    #[inline]
    pub(crate) fn drop_refused(&mut self, batch: &mut Batch) {
        count(self.counters, REFUSED, batch.len() as u64);
        batch.clear();
    }
}

/// Reasons out of range are counted as the last one: a wrong number must not lose the count.
#[inline]
fn count(counters: &Counters, reason: usize, n: u64) {
    counters.drops[reason.min(REASONS - 1)].add(n);
}
