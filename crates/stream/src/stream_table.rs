//! What a receiver knows of each stream: little of one that comes in order, and more from its first datagram on that
//! does not.
//!
//! A receiver keeps the streams of its lane alone, in pages that are made when the first of their streams arrives: which
//! port and queue a stream comes back on is not known before.

use packet::signature::{SEQUENCE_MAX, sequence_near};
use protocol::meter::{DELAY_MAX_NS, DeviceTally, Tally};
use protocol::reordering::{OutOfOrder, Pattern, ReorderTracker, ReorderingTally};
use protocol::sequence_window::{FixedWindow, SequenceClass};

/// How far back a duplicate is told from one that is only late, in datagrams.
pub const WINDOW: usize = 1024;

/// Streams in a page.
const PAGE: usize = 256;
/// Streams that came out of order, for which memory is asked for together.
const CHUNK: usize = 64;
/// Of so many streams that came out of order a receiver keeps their order (RFC 4737, 5236, 3357), which takes some KiB
/// each. Of those after them it counts what came late and what came again.
const ORDERED: usize = 1 << 16;

/// Bits of [`StreamState::last`] that are the delay.
const DELAY_BITS: u32 = 40;
const _: () = assert!(DELAY_MAX_NS < 1 << DELAY_BITS);

/// A stream that came in order so far, or what of it does not depend on that.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamState {
    /// One past the highest number that arrived (RFC 4737 section 4.2.1, NextExp).
    pub next: u64,
    /// Datagrams that arrived, without copies.
    pub delivered: u64,
    /// Of their delays, ns.
    pub delay_sum: u64,
    /// The longest delay, ns.
    pub delay_max: u64,
    /// The latest delay in the low bits; above it the number of its [`DisturbedStream`] and one more, or zero.
    last: u64,
}

impl StreamState {
    /// The delay of the latest that arrived.
    #[inline]
    pub fn delay_last(&self) -> u64 {
        self.last & ((1 << DELAY_BITS) - 1)
    }

    /// One arrived with this delay, at most [`DELAY_MAX_NS`].
    #[inline]
    pub fn delivered(&mut self, delay: u64) {
        self.last = self.last & !((1 << DELAY_BITS) - 1) | delay;
        self.delivered += 1;
        self.delay_sum = self.delay_sum.saturating_add(delay);
        self.delay_max = self.delay_max.max(delay);
    }

    /// Whether the datagram that carries this much of its number is the one that is expected next, which then is the one
    /// after it.
    #[inline]
    pub fn follows(&mut self, carried: u64) -> bool {
        let follows = self.next & SEQUENCE_MAX == carried;
        self.next = self.next.saturating_add(follows.into());
        follows
    }

    /// The number of the datagram that carries this much of it.
    #[inline]
    pub fn number(&self, carried: u64) -> u64 {
        sequence_near(self.next, carried)
    }

    fn disturbed(&self) -> Option<usize> {
        (self.last >> DELAY_BITS).checked_sub(1).map(|index| index as usize)
    }
}

/// Which lane's streams a receiver keeps: every `of`th, from number `number` on.
#[derive(Debug, Clone, Copy)]
pub struct Lane {
    number: u32,
    of: u32,
    /// 2^40 / `of`, rounded up: a division costs more than a multiplication. Exact for 24-bit numbers and 256 lanes.
    inverse: u64,
}

impl Lane {
    /// All streams.
    pub const ALL: Self = Self { number: 0, of: 1, inverse: 1 << 40 };

    /// As [`Distribute`](element::distribute::Distribute) deals streams out.
    pub fn new(number: usize, of: usize) -> Self {
        let of = (of as u32).clamp(1, 256);
        Self { number: number as u32, of, inverse: (1u64 << 40).div_ceil(of.into()) }
    }

    /// The place of a stream among those of the lane; `None`: it is another's.
    #[inline]
    fn place(&self, stream: u32) -> Option<usize> {
        let place = (u64::from(stream) * self.inverse) >> 40;
        (stream - place as u32 * self.of == self.number).then_some(place as usize)
    }
}

/// A stream of which something was lost, late, doubled or refused.
#[derive(Debug, Clone, Default)]
struct DisturbedStream {
    window: FixedWindow<{ WINDOW / 64 }>,
    duplicates: u32,
    reordered: u32,
    /// One past the highest number that an ICMP error was about: of two about one datagram one counts.
    undelivered: u64,
    /// Index of the stream's order and one more, or zero.
    order: u32,
}

/// Where and when one arrived that was not expected next.
#[derive(Debug, Clone, Copy)]
pub struct UnexpectedArrival {
    /// Its number.
    pub number: u64,
    /// When it came, ns.
    pub now: u64,
    /// Whether what it skips counts as lost if it never comes.
    pub counts: bool,
}

/// The streams of one receiver.
#[derive(Debug)]
pub struct StreamTable {
    lane: Lane,
    pages: Box<[Option<Box<[StreamState; PAGE]>>]>,
    disturbed: DisturbedStreams,
}

/// Those that were disturbed; apart from the pages, so that both can be changed at a time.
#[derive(Debug)]
pub struct DisturbedStreams {
    chunks: Vec<Box<[DisturbedStream; CHUNK]>>,
    count: usize,
    /// Of the first [`ORDERED`] of them.
    orders: Vec<StreamOrder>,
    /// How many came after those.
    unordered: usize,
    /// So many streams share the memory for gaps.
    streams: usize,
}

/// A stream's order, and what is to be said of it once nothing more comes.
#[derive(Debug)]
struct StreamOrder {
    order: ReorderTracker,
    pattern: Pattern,
    place: u32,
}

impl StreamTable {
    /// For those of `streams` streams that `lane` has. `all`: each of them arrives here, so that memory may be asked for now.
    pub fn new(streams: u32, lane: Lane, all: bool) -> Self {
        let own = (streams as usize).div_ceil(lane.of as usize);
        let mut disturbed = DisturbedStreams {
            chunks: Vec::new(),
            count: 0,
            orders: Vec::with_capacity(own.min(CHUNK)),
            unordered: 0,
            streams: own,
        };
        disturbed.grow();
        let pages = (0..own.div_ceil(PAGE)).map(|_| all.then(new_page)).collect();
        Self { lane, pages, disturbed }
    }

    /// A stream and its place here, and what there is of those that were disturbed. `None`: it is another lane's.
    #[inline]
    pub fn get_mut(&mut self, stream: u32) -> Option<(&mut StreamState, u32, &mut DisturbedStreams)> {
        let place = self.lane.place(stream)?;
        let page = self.pages.get_mut(place / PAGE)?.get_or_insert_with(new_page);
        Some((page.get_mut(place % PAGE)?, place as u32, &mut self.disturbed))
    }

    /// Nothing more comes: what that makes of the order of each stream that was disturbed, by its number, goes where `into`
    /// says. May be asked for again.
    pub fn finish(&mut self, mut into: impl FnMut(u32, &mut dyn FnMut(&mut ReorderingTally))) {
        for StreamOrder { order, pattern, place } in &mut self.disturbed.orders {
            let (page, at) = (*place as usize / PAGE, *place as usize % PAGE);
            let state = self.pages.get(page).and_then(|page| page.as_ref()?.get(at));
            let delivered = state.map_or(0, |state| state.delivered);
            // What was sent after the last arrival is not known here.
            let mut finish =
                |reordering: &mut ReorderingTally| *pattern = order.finish(delivered, 0..0, reordering);
            into(*place * self.lane.of + self.lane.number, &mut finish);
        }
    }

    /// How many streams were disturbed when the order of as many as there is room for was kept.
    pub fn unordered(&self) -> usize {
        self.disturbed.unordered
    }

    /// What became of a stream. `None`: nothing of it arrived here.
    pub fn summary(&self, stream: u32) -> Option<DeviceTally> {
        let place = self.lane.place(stream)?;
        let state = self.pages.get(place / PAGE)?.as_ref()?.get(place % PAGE)?;
        let disturbed = state.disturbed().and_then(|index| self.disturbed.get(index));
        let pattern =
            disturbed.and_then(DisturbedStream::order).and_then(|order| self.disturbed.orders.get(order));
        Some(DeviceTally {
            delivered: state.delivered,
            duplicates: disturbed.map_or(0, |stream| stream.duplicates),
            reordered: disturbed.map_or(0, |stream| stream.reordered),
            delay_sum: state.delay_sum,
            delay_max: state.delay_max,
            delay_last: state.delay_last(),
            pattern: pattern.map_or_else(Pattern::default, |ordered| ordered.pattern),
            ..DeviceTally::default()
        })
    }
}

impl DisturbedStream {
    fn order(&self) -> Option<usize> {
        (self.order as usize).checked_sub(1)
    }
}

impl DisturbedStreams {
    /// A datagram arrived that was not the next of its stream. Counts it where it belongs.
    #[cold]
    #[inline(never)]
    pub fn arrived(
        &mut self,
        (state, place): (&mut StreamState, u32),
        at: UnexpectedArrival,
        tally: &mut Tally,
    ) -> SequenceClass {
        let datagram = OutOfOrder { number: at.number, index: state.delivered, now: at.now };
        let Some(stream) = self.stream(state) else { return SequenceClass::TooLate };
        let arrival = stream.window.arrived(&mut state.next, at.number);
        match arrival {
            SequenceClass::InOrder => {}
            SequenceClass::Ahead(first) => {
                if let Some(order) = self.order(state, place) {
                    order.skipped(first, datagram, at.counts, tally.reordering_mut());
                }
            }
            // Too long ago to know: a late one is likelier than a copy.
            SequenceClass::Reordered | SequenceClass::TooLate => {
                tally.counts.reordered += 1;
                stream.reordered = stream.reordered.saturating_add(1);
                if let Some(order) = self.order(state, place) {
                    order.late(datagram, tally.reordering_mut());
                }
            }
            SequenceClass::Duplicate => {
                stream.duplicates = stream.duplicates.saturating_add(1);
                tally.counts.duplicates += 1;
            }
        }
        arrival
    }

    /// An ICMP error came about datagram `number`. Whether it is the first about it.
    #[cold]
    pub fn undelivered(&mut self, state: &mut StreamState, number: u64) -> bool {
        let Some(stream) = self.stream(state) else { return true };
        let first = number >= stream.undelivered;
        if first {
            stream.undelivered = number.saturating_add(1);
        }
        first
    }

    fn get(&self, index: usize) -> Option<&DisturbedStream> {
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    fn stream(&mut self, state: &mut StreamState) -> Option<&mut DisturbedStream> {
        let index = match state.disturbed() {
            Some(index) => index,
            None => {
                if self.count == self.chunks.len() * CHUNK {
                    self.grow();
                }
                self.count += 1;
                state.last |= (self.count as u64) << DELAY_BITS;
                self.count - 1
            }
        };
        self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)
    }

    /// The stream's order, if there is room for it.
    fn order(&mut self, state: &StreamState, place: u32) -> Option<&mut ReorderTracker> {
        /// There was none.
        const NONE: u32 = u32::MAX;
        let index = state.disturbed()?;
        let stream = self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)?;
        if stream.order == 0 {
            if self.orders.len() == ORDERED {
                self.unordered += 1;
                stream.order = NONE;
            } else {
                let order = ReorderTracker::shared(self.streams);
                self.orders.push(StreamOrder { order, pattern: Pattern::default(), place });
                stream.order = self.orders.len() as u32;
            }
        }
        self.orders.get_mut(stream.order()?).map(|ordered| &mut ordered.order)
    }

    #[cold]
    fn grow(&mut self) {
        self.chunks.push(Box::new(std::array::from_fn(|_| DisturbedStream::default())));
    }
}

#[cfg(test)]
impl StreamTable {
    /// Bytes that it holds, but for the orders of streams that were disturbed.
    pub fn memory(&self) -> usize {
        let pages = self.pages.iter().flatten().count() * size_of::<[StreamState; PAGE]>();
        let disturbed = self.disturbed.chunks.len() * size_of::<[DisturbedStream; CHUNK]>();
        let orders = self.disturbed.orders.capacity() * size_of::<StreamOrder>();
        size_of::<Self>() + size_of_val(&*self.pages) + pages + disturbed + orders
    }
}

#[cold]
#[inline(never)]
fn new_page() -> Box<[StreamState; PAGE]> {
    Box::new([StreamState::default(); PAGE])
}

#[cfg(test)]
mod tests;
