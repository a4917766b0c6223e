//! Packet trace: the path of single packets through a graph: which elements they passed, when, and what each did with them.
//!
//! Off, it costs nothing: workers run a loop without it, and check at each tick whether they are to run the other
//! one. On, a batch that holds a traced packet is handed on packet by packet, so that what an element counts
//! meanwhile is what it did with that one. It ends by itself when as many packets as requested are through.
//!
//! A packet is known by its buffer while it is under way between elements, also over rings. What an element keeps
//! and sends later begins anew, and so does what comes out of a port.

use crate::counters::{BUILT_IN, Counters, REASONS};
use dpdk::{Batch, Mbuf};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Most packets of one trace: each is looked for in every batch.
pub const PACKETS: usize = 64;
/// Bytes kept of a packet, as it was when its trace began.
pub const BYTES: usize = 128;
/// Steps that one worker can note between two ticks.
const STEPS: usize = 16 * PACKETS;

/// Which packets are to be traced. Each worker has one of its own.
pub type Filter = Box<dyn Fn(&[u8]) -> bool + Send>;

/// Trace of one packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PacketTrace {
    /// Its length when the trace began, bytes without FCS.
    pub len: usize,
    /// Its first bytes then.
    pub data: Vec<u8>,
    /// Where it came, in order.
    pub steps: Vec<Step>,
}

/// What one element did with a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The element's name.
    pub element: String,
    /// When, ns on the engine's clock.
    pub at: u64,
    /// What it did.
    pub verdict: Verdict,
    /// The packet after that, if it has other bytes, or another length.
    #[serde(skip)]
    pub became: Option<PacketChange>,
}

/// Change of a packet by an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketChange {
    /// Its length, bytes without FCS.
    pub len: usize,
    /// Its first bytes.
    pub data: Vec<u8>,
}

impl PacketChange {
    fn of(mbuf: &Mbuf) -> Self {
        let data = mbuf.data();
        Self { len: mbuf.len(), data: data[..data.len().min(BYTES)].to_vec() }
    }
}

/// What became of a packet at an element.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It went to this output.
    Passed(String),
    /// It was dropped for this reason.
    Dropped(String),
    /// It was used here, or is kept until later.
    Consumed,
    /// It was not taken: see what the element before did.
    Refused,
    /// The next element did not take it, and it waits until it does.
    Held,
}

/// A verdict without names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RawVerdict {
    Passed(usize),
    Dropped(usize),
    Consumed,
    Refused,
    Held,
}

/// A step as a worker notes it.
#[derive(Debug, Clone, Copy)]
struct Note {
    packet: usize,
    /// Before and after, over all workers.
    order: u64,
    element: usize,
    at: u64,
    fate: RawVerdict,
}

/// What the workers and the reader of one trace share.
pub(crate) struct Request {
    /// For the workers that do not take part yet.
    filters: Mutex<Vec<Filter>>,
    /// Packets to trace.
    packets: usize,
    /// Workers that do not take part yet: no packet is traced before all do.
    missing: AtomicUsize,
    /// Workers that still do, or will.
    present: AtomicUsize,
    /// The reader has ended it.
    ended: AtomicBool,
    /// Packets found.
    found: AtomicUsize,
    /// The buffer of each packet under way between elements; 0: it is not, or not any more.
    buffers: [AtomicUsize; PACKETS],
    order: AtomicU64,
    collected: Mutex<Collected>,
}

#[derive(Default)]
struct Collected {
    notes: Vec<Note>,
    /// By packet: length and first bytes.
    frames: BTreeMap<usize, (usize, Vec<u8>)>,
    /// By the order of notes: what a packet had become.
    changes: BTreeMap<u64, PacketChange>,
}

impl Request {
    fn new(packets: usize, filters: Vec<Filter>) -> Self {
        Self {
            packets: packets.min(PACKETS),
            missing: AtomicUsize::new(filters.len()),
            present: AtomicUsize::new(filters.len()),
            filters: Mutex::new(filters),
            ended: AtomicBool::new(false),
            found: AtomicUsize::new(0),
            buffers: [const { AtomicUsize::new(0) }; PACKETS],
            order: AtomicU64::new(0),
            collected: Mutex::default(),
        }
    }

    /// Whether all packets that were asked for are through, or the reader has ended the trace.
    fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
            || self.found.load(Ordering::Relaxed) >= self.packets
                && self.buffers.iter().all(|buffer| buffer.load(Ordering::Relaxed) == 0)
    }

    /// The packet in this buffer, if it is traced. To be called by the owner of the buffer only.
    fn packet(&self, mbuf: &Mbuf) -> Option<usize> {
        self.buffers.iter().position(|buffer| buffer.load(Ordering::Relaxed) == mbuf.buffer())
    }
}

/// Requests for traces, seen by all workers.
pub(crate) struct TraceControl {
    workers: usize,
    /// How many were asked for so far.
    number: AtomicU64,
    request: Mutex<Option<Arc<Request>>>,
}

impl TraceControl {
    /// For so many workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self { workers, number: AtomicU64::new(0), request: Mutex::new(None) }
    }

    pub(crate) fn ask(&self, packets: usize, filter: impl Fn() -> Filter) {
        let filters = (0..self.workers).map(|_| filter()).collect();
        let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        *request = Some(Arc::new(Request::new(packets, filters)));
        self.number.fetch_add(1, Ordering::Release);
    }

    fn request(&self) -> Option<Arc<Request>> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The trace is over: workers stop tracing with their next tick.
    pub(crate) fn end(&self) {
        if let Some(request) = self.request() {
            request.ended.store(true, Ordering::Relaxed);
        }
    }

    /// Whether all workers have left, so that nothing will be added to what is collected.
    pub(crate) fn is_over(&self) -> bool {
        self.request().is_none_or(|request| request.present.load(Ordering::Acquire) == 0)
    }

    /// Notes so far by packet, with names: `name(element)`, `verdict(element, fate)`.
    pub(crate) fn collect(
        &self,
        name: impl Fn(usize) -> String,
        verdict: impl Fn(usize, RawVerdict) -> Verdict,
    ) -> Vec<PacketTrace> {
        let Some(request) = self.request() else { return Vec::new() };
        let mut collected = request.collected.lock().unwrap_or_else(PoisonError::into_inner);
        collected.notes.sort_by_key(|note| note.order);
        let step = |note: &Note| Step {
            element: name(note.element),
            at: note.at,
            verdict: verdict(note.element, note.fate),
            became: collected.changes.get(&note.order).cloned(),
        };
        let steps =
            |packet: usize| collected.notes.iter().filter(move |note| note.packet == packet).map(step);
        let traced = collected.frames.iter().map(|(packet, (len, data))| PacketTrace {
            len: *len,
            data: data.clone(),
            steps: steps(*packet).collect(),
        });
        traced.collect()
    }
}

/// A worker's part in traces.
pub(crate) struct Tracer {
    control: Arc<TraceControl>,
    seen: u64,
    request: Option<Arc<Request>>,
    filter: Option<Filter>,
    notes: Vec<Note>,
    frames: Vec<(usize, usize, Vec<u8>)>,
    changes: Vec<(u64, PacketChange)>,
    /// Bit n: packet n is held here, and that is recorded.
    held: u64,
    /// Bit n: packet n was refused here, and that is recorded. It may be refused very often before it goes on.
    refused: u64,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tracer({})", self.seen)
    }
}

impl Tracer {
    pub(crate) fn new(control: Arc<TraceControl>) -> Self {
        Self {
            control,
            seen: 0,
            request: None,
            filter: None,
            notes: Vec::new(),
            frames: Vec::new(),
            changes: Vec::new(),
            held: 0,
            refused: 0,
        }
    }

    /// Off the packets' way: hand over what was noted, and see whether there is a trace to take part in.
    pub(crate) fn is_on(&mut self) -> bool {
        if let Some(request) = &self.request {
            let mut collected = request.collected.lock().unwrap_or_else(PoisonError::into_inner);
            collected.notes.append(&mut self.notes);
            collected.changes.extend(self.changes.drain(..));
            collected.frames.extend(self.frames.drain(..).map(|(packet, len, data)| (packet, (len, data))));
        }
        let number = self.control.number.load(Ordering::Acquire);
        if number != self.seen {
            (self.seen, self.held, self.refused) = (number, 0, 0);
            self.request = self.control.request();
            self.notes.reserve(STEPS);
            self.frames.reserve(PACKETS);
            if let Some(request) = &self.request {
                self.filter = request.filters.lock().unwrap_or_else(PoisonError::into_inner).pop();
                request.missing.fetch_sub(1, Ordering::AcqRel);
            }
        }
        if let Some(request) = self.request.take_if(|request| request.is_over()) {
            request.present.fetch_sub(1, Ordering::AcqRel);
            (self.filter, self.notes, self.frames) = (None, Vec::new(), Vec::new());
            self.changes = Vec::new();
        }
        self.request.is_some()
    }

    /// Begin to trace those of `batch`, just put in by a source, that are wanted.
    pub(crate) fn begin(&mut self, batch: &Batch) {
        let all_here = |request: &&Arc<Request>| request.missing.load(Ordering::Acquire) == 0;
        let Some(request) = self.request.as_ref().filter(all_here) else { return };
        let Some(filter) = &self.filter else { return };
        for mbuf in batch.frames() {
            if request.found.load(Ordering::Relaxed) >= request.packets {
                return;
            }
            if request.packet(mbuf).is_some() || !filter(mbuf.data()) {
                continue;
            }
            let packet = request.found.fetch_add(1, Ordering::Relaxed);
            if packet < request.packets {
                request.buffers[packet].store(mbuf.buffer(), Ordering::Relaxed);
                let data = mbuf.data();
                self.frames.push((packet, mbuf.len(), data[..data.len().min(BYTES)].to_vec()));
            }
        }
    }

    /// Whether a packet of `batch` is traced.
    pub(crate) fn has(&self, batch: &Batch) -> bool {
        let request = self.request.as_ref();
        request.is_some_and(|request| batch.frames().iter().any(|mbuf| request.packet(mbuf).is_some()))
    }

    /// The packets of `batch` that are traced.
    fn of(&self, batch: &Batch) -> impl Iterator<Item = (usize, usize)> + use<> {
        let mut found = [None; PACKETS];
        if let Some(request) = &self.request {
            let traced =
                batch.frames().iter().filter_map(|mbuf| Some((request.packet(mbuf)?, mbuf.buffer())));
            found.iter_mut().zip(traced).for_each(|(place, traced)| *place = Some(traced));
        }
        found.into_iter().flatten()
    }

    /// Note that the source `element` passed on the traced packets of `batch`.
    pub(crate) fn note(&mut self, batch: &Batch, element: usize, at: u64, output: usize) {
        for (packet, _) in self.of(batch) {
            if !self.is_held(packet) {
                self.write(packet, element, at, RawVerdict::Passed(output));
            }
        }
    }

    fn is_held(&self, packet: usize) -> bool {
        self.held & 1 << packet != 0
    }

    /// Its place in the order of all notes, if there was room.
    fn write(&mut self, packet: usize, element: usize, at: u64, fate: RawVerdict) -> Option<u64> {
        let request = self.request.as_ref().filter(|_| self.notes.len() < STEPS)?;
        let order = request.order.fetch_add(1, Ordering::Relaxed);
        self.notes.push(Note { packet, order, element, at, fate });
        Some(order)
    }

    /// Forget where a packet is: its buffer may be freed now, and used for another one.
    fn lose(&self, packet: usize) {
        if let Some(request) = &self.request {
            request.buffers[packet].store(0, Ordering::Relaxed);
        }
    }

    fn keep(&self, packet: usize, buffer: usize) {
        if let Some(request) = &self.request {
            request.buffers[packet].store(buffer, Ordering::Relaxed);
        }
    }

    /// Have `work` done by `element` on the only packet of `batch`, and note what became of it. `outputs` is how many
    /// the element has, `side` what waits for those after the first.
    pub(crate) fn watch(
        &mut self,
        (element, outputs, at): (usize, usize, u64),
        counters: &Counters,
        (batch, side): (&mut Batch, &mut [Option<Box<Batch>>]),
        work: impl FnOnce(&mut Batch, &mut [Option<Box<Batch>>]),
    ) {
        let Some((packet, buffer)) = self.of(batch).next() else { return work(batch, side) };
        let was = batch.frames().iter().find(|mbuf| mbuf.buffer() == buffer).map(PacketChange::of);
        let mut before = [0; BUILT_IN.len() + REASONS];
        before.iter_mut().zip(counters.drops()).for_each(|(before, count)| *before = count);
        self.lose(packet);
        dpdk::forget_moved();
        work(batch, side);
        // A packet whose bytes were shared is elsewhere when they were written.
        let buffer = dpdk::moved_to(buffer).unwrap_or(buffer);
        let find =
            |batch: &Batch| batch.frames().iter().find(|mbuf| mbuf.buffer() == buffer).map(PacketChange::of);
        let beside = || {
            let mut found = side.iter().map(|side| side.as_deref().and_then(find)).enumerate();
            found.find_map(|(at, is)| Some((at, is?)))
        };
        let (fate, is) = if let Some(is) = find(batch) {
            (if outputs == 0 { RawVerdict::Refused } else { RawVerdict::Passed(0) }, Some(is))
        } else if let Some((at, is)) = beside() {
            (RawVerdict::Passed(at + 1), Some(is))
        } else {
            let dropped = counters.drops().zip(before).position(|(count, before)| count != before);
            (dropped.map_or(RawVerdict::Consumed, RawVerdict::Dropped), None)
        };
        if matches!(fate, RawVerdict::Passed(_) | RawVerdict::Refused) {
            self.keep(packet, buffer);
        }
        let bit = 1 << packet;
        if fate != RawVerdict::Refused || self.refused & bit == 0 {
            let order = self.write(packet, element, at, fate);
            if let (Some(order), Some(is)) = (order, is.filter(|is| was.as_ref() != Some(is))) {
                self.changes.push((order, is));
            }
        }
        if fate == RawVerdict::Refused {
            self.refused |= bit;
        } else {
            (self.held, self.refused) = (self.held & !bit, self.refused & !bit);
        }
    }

    /// Have `work` done by an element whose output did not take `batch`: what it leaves is dropped.
    pub(crate) fn watch_refused(
        &mut self,
        (element, at): (usize, u64),
        batch: &mut Batch,
        work: impl FnOnce(&mut Batch),
    ) {
        let traced = self.of(batch);
        work(batch);
        let left = batch.frames();
        for (packet, buffer) in traced {
            if left.iter().any(|mbuf| mbuf.buffer() == buffer) {
                self.lose(packet);
                self.write(packet, element, at, RawVerdict::Dropped(crate::counters::REFUSED));
            } else if !self.is_held(packet) {
                self.held |= 1 << packet;
                self.write(packet, element, at, RawVerdict::Held);
            }
        }
    }
}

/// A verdict with its names, of an element with these outputs and reasons.
pub(crate) fn verdict(fate: RawVerdict, outputs: &[&str], drops: &[&str]) -> Verdict {
    let name = |name: Option<&&str>| name.map_or_else(String::new, |name| (*name).to_owned());
    match fate {
        RawVerdict::Passed(output) => Verdict::Passed(name(outputs.get(output))),
        RawVerdict::Dropped(reason) => Verdict::Dropped(name(BUILT_IN.iter().chain(drops).nth(reason))),
        RawVerdict::Consumed => Verdict::Consumed,
        RawVerdict::Refused => Verdict::Refused,
        RawVerdict::Held => Verdict::Held,
    }
}
