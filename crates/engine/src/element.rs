//! The one interface of everything that touches packets.

use crate::clock::Watch;
use crate::counters::{BUILT_IN, Counters, OVERFLOW, REFUSED};
use crate::mailbox::Mail;
use dpdk::{BURST, Batch, Mbuf, RingRoom};

/// Most replicas of one stage.
pub const MOST_REPLICAS: usize = 32;

/// The declaration of an element, read once before it runs.
#[derive(Debug, Clone, Copy)]
pub struct ElementInfo {
    /// What kind of element, such as `reflector`.
    pub kind: &'static str,
    /// Whether other elements may hand it packets.
    pub takes: bool,
    /// Names of its outputs; none for a sink.
    pub outputs: &'static [&'static str],
    /// Names of its reasons to drop, numbered from 0; at most 60.
    pub drops: &'static [&'static str],
    /// Whether [`Element::poll`] is to be called.
    pub polled: bool,
}

/// A step in a packet's way. It works on batches, in place, and never waits.
///
/// After [`push`](Element::push) and [`poll`](Element::poll) what is left in the batch goes to output 0; an
/// element without outputs *refuses* what it leaves. Packets for other outputs go through [`Cx::emit`] or [`Cx::offer`].
///
/// Every output has back-pressure: what the next element, or the ring to it, does not take comes back in
/// [`refused`](Element::refused), to be kept and sent again. An element that must not begin what cannot be sent asks
/// [`Cx::room`] first.
/// Packets that end here end through [`Cx::drop_rejected`] or [`Cx::discard`], which count them by reason (or
/// [`Cx::count`] does), or [`Cx::consume`], for a sink that has done its work.
pub trait Element: Send {
    /// What it is.
    fn about(&self) -> ElementInfo;

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

    /// Answer a [`Request`](crate::Request) from outside, sent with [`View::request`](crate::View::request): change a setting,
    /// or tell what is held here, page by page. Called by the worker between two turns; it should take no longer than a burst
    /// of packets does. It may allocate, as the packets' way is elsewhere. By default nothing is understood.
    fn control(&mut self, mail: Mail, now: u64) {
        let _not_understood = (mail, now);
    }

    /// Whether the bytes of the packets that it takes, or makes, are counted: a port's. To look into each packet for its
    /// length costs more than to pass it on, so that others do not.
    fn counts_bytes(&self) -> bool {
        false
    }

    /// Called every few milliseconds and once at the end, off the packets' way: the place to send results to
    /// the caller.
    fn tick(&mut self, now: u64) {
        let _now = now;
    }
}

/// For elements that are made by what a file says of them.
impl Element for Box<dyn Element> {
    fn about(&self) -> ElementInfo {
        (**self).about()
    }

    #[inline]
    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        (**self).push(batch, cx);
    }

    #[inline]
    fn poll(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        (**self).poll(batch, cx);
    }

    fn refused(&mut self, output: usize, batch: &mut Batch, cx: &mut Cx<'_>) {
        (**self).refused(output, batch, cx);
    }

    fn control(&mut self, mail: Mail, now: u64) {
        (**self).control(mail, now);
    }

    fn counts_bytes(&self) -> bool {
        (**self).counts_bytes()
    }

    fn tick(&mut self, now: u64) {
        (**self).tick(now);
    }
}

/// The world as an element sees it during one call.
pub struct Cx<'a> {
    pub(crate) watch: &'a mut Watch,
    pub(crate) counters: &'a Counters,
    /// Packets for outputs 1, 2, …
    pub(crate) side: &'a mut [Option<Box<Batch>>],
    /// By output: the ring that it leads to, if it does.
    pub(crate) rings: &'a [Option<RingRoom>],
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
    /// then. Holds until the next poll. The worker stays awake for some time before, so that what may be a
    /// [sleep](crate::IdlePolicy::sleep_max_ns) late, such as timeouts, asks for nothing.
    #[inline]
    pub fn wake_at(&mut self, at: u64) {
        *self.due = (*self.due).min(at);
    }

    /// Look at each packet; those for which `look` has a reason are dropped and counted under it.
    #[inline]
    pub fn drop_rejected(&mut self, batch: &mut Batch, mut look: impl FnMut(&mut Mbuf) -> Result<(), usize>) {
        let counters = self.counters;
        batch.retain(|mbuf| match look(mbuf) {
            Ok(()) => true,
            Err(reason) => {
                counters.drop(BUILT_IN.len() + reason, 1);
                false
            }
        });
    }

    /// Count `n` packets as dropped for `reason`: for an element that frees them itself.
    #[inline]
    pub fn count(&mut self, reason: usize, n: u64) {
        self.counters.drop(BUILT_IN.len() + reason, n);
    }

    /// Drop the whole batch for one reason.
    #[inline]
    pub fn discard(&mut self, batch: &mut Batch, reason: usize) {
        self.counters.drop(BUILT_IN.len() + reason, batch.len() as u64);
        batch.clear();
    }

    /// The end of these packets' way, as it should be.
    #[inline]
    pub fn consume(&mut self, batch: &mut Batch) {
        batch.clear();
    }

    /// How many packets more `output` can be handed in this call: as many as the batch that waits for it holds, or the ring
    /// that it leads to has room for. An element of the same worker, or a port, may take fewer; what it leaves comes back in
    /// [`Element::refused`].
    #[inline]
    pub fn room(&self, output: usize) -> usize {
        let waiting = match output.checked_sub(1) {
            None => 0,
            Some(at) => match self.side.get(at) {
                Some(Some(batch)) => batch.len(),
                _ => return 0,
            },
        };
        let ring = self.rings.get(output).and_then(Option::as_ref).map_or(BURST, RingRoom::room);
        ring.min(BURST).saturating_sub(waiting)
    }

    /// Hand a packet to `output`, 1 or higher; output 0 gets what is left in the batch. A packet more than there is room
    /// for is dropped and counted as `overflow`: that cannot happen to who hands on at most one for each that it took; the
    /// others use [`Cx::offer`].
    #[inline]
    pub fn emit(&mut self, output: usize, mbuf: Mbuf) {
        if self.offer(output, mbuf).is_err() {
            self.counters.drop(OVERFLOW, 1);
        }
    }

    /// Hand the whole batch to `output`, 1 or higher: the same as [`Cx::emit`] for each.
    #[inline]
    pub fn emit_all(&mut self, output: usize, batch: &mut Batch) {
        if let Some(Some(side)) = output.checked_sub(1).and_then(|at| self.side.get_mut(at)) {
            batch.move_to(side);
        }
        if !batch.is_empty() {
            self.counters.drop(OVERFLOW, batch.len() as u64);
            batch.clear();
        }
    }

    /// Hand each packet to the output of the number that `to` has for it, 0 too; a higher one is taken as the last. `kept`, which is empty,
    /// is for output 0. Nobody can foresee which output is next, so nothing branches by it.
    #[inline]
    pub(crate) fn distribute(&mut self, batch: &mut Batch, to: &[u8], kept: &mut Batch) {
        let mut outputs: [Option<&mut Batch>; MOST_REPLICAS] = [const { None }; MOST_REPLICAS];
        let all = std::iter::once(kept).chain(self.side.iter_mut().filter_map(Option::as_deref_mut));
        let mut count = 0;
        for (place, output) in outputs.iter_mut().zip(all) {
            (*place, count) = (Some(output), count + 1);
        }
        let (outputs, counters) = (&mut outputs[..count], self.counters);
        for (mbuf, to) in std::mem::take(batch).into_iter().zip(to) {
            let output = outputs.get_mut(usize::from(*to).min(count - 1)).and_then(Option::as_mut);
            if output.is_none_or(|output| output.push(mbuf).is_err()) {
                counters.drop(OVERFLOW, 1);
            }
        }
        if let Some(Some(kept)) = outputs.first_mut() {
            kept.move_to(batch);
        }
    }

    /// Hand a packet to `output`, 1 or higher. It is given back when that can take no more in this call.
    #[inline]
    pub fn offer(&mut self, output: usize, mbuf: Mbuf) -> Result<(), Mbuf> {
        match output.checked_sub(1).and_then(|at| self.side.get_mut(at)) {
            Some(Some(batch)) => batch.push(mbuf),
            _ => Err(mbuf),
        }
    }

    /// Drop what the next element did not take.
    #[inline]
    pub(crate) fn drop_refused(&mut self, batch: &mut Batch) {
        self.counters.drop(REFUSED, batch.len() as u64);
        batch.clear();
    }
}
