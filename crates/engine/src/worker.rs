//! One worker: a loop over the elements that are its own.

use crate::clock::{Watch, is_told};
use crate::counters::{Counters, WorkerCounters};
use crate::element::{Cx, Element};
use crate::idle::{Idle, IdleAction, IdlePolicy};
use crate::mailbox::Mailbox;
use crate::pauses::{PauseWatch, ThreadClock};
use crate::trace::Tracer;
use dpdk::{Batch, RingRoom, RingRx, RingTx};
use std::sync::Arc;

/// Of so many turns with work, one is timed element by element.
const TIMED: u32 = 16;
/// After so many turns with work the worker reads the time stamp counter, needed or not.
const LOOK: u32 = 4;

/// Where an output leads.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// To an element of the same worker: a call.
    Element(usize),
    /// To another worker, over this worker's ring of that number.
    Ring(usize),
}

/// An element at its place.
pub(crate) struct PlacedElement {
    /// Its number in the graph.
    pub(crate) number: usize,
    pub(crate) element: Box<dyn Element>,
    pub(crate) polled: bool,
    /// Whether it takes packets from others.
    pub(crate) takes: bool,
    /// Whether its bytes are counted, taken or else handed on: see [`Element::counts_bytes`].
    pub(crate) weighs: bool,
    /// Where each output leads.
    pub(crate) outputs: Vec<Target>,
    /// By output: the ring that it leads to, if it does.
    pub(crate) rings: Box<[Option<RingRoom>]>,
    /// What waits for the outputs after the first, during one call.
    pub(crate) side: Vec<Option<Box<Batch>>>,
    pub(crate) counters: Arc<Counters>,
}

/// The end of a ring that leads here from another worker.
pub(crate) struct Inlet {
    pub(crate) ring: RingRx,
    /// The element that takes what comes.
    pub(crate) to: usize,
    /// What it refused: tried again first, so that the ring fills and the sender notices.
    pub(crate) held: Batch,
}

pub(crate) struct Worker {
    pub(crate) elements: Vec<PlacedElement>,
    pub(crate) inlets: Vec<Inlet>,
    pub(crate) outlets: Vec<RingTx>,
    pub(crate) counters: Arc<WorkerCounters>,
    mailbox: Mailbox,
    tracer: Tracer,
    watch: Watch,
    pauses: PauseWatch<ThreadClock>,
    /// What is between two readings of the time as a rule, in ticks: more is looked at.
    alarm: u64,
    policy: IdlePolicy,
    tick_ns: u64,
    /// Whether what each element does is timed in this turn: in one of [`TIMED`] that have work, see [`Watch`].
    timed: bool,
    /// When an element must be polled again.
    due: u64,
}

impl Worker {
    pub(crate) fn new(policy: IdlePolicy, tick_ns: u64, mailbox: Mailbox, tracer: Tracer) -> Self {
        Self {
            elements: Vec::new(),
            inlets: Vec::new(),
            outlets: Vec::new(),
            counters: Arc::default(),
            mailbox,
            tracer,
            watch: Watch::new(),
            pauses: PauseWatch::new(ThreadClock),
            alarm: u64::MAX,
            policy,
            tick_ns,
            timed: true,
            due: u64::MAX,
        }
    }

    /// Run until told to stop.
    pub(crate) fn run(&mut self) {
        self.watch.skip();
        self.watch_pauses(self.watch.last());
        let mut idle = Idle::new(self.policy, self.watch.last());
        // Two loops, so that the one without traces need not even ask.
        while !self.mailbox.signal.must_stop() {
            if self.tracer.is_on() {
                self.run_turns::<true>(&mut idle);
            } else {
                self.run_turns::<false>(&mut idle);
            }
        }
        let now = self.watch.now();
        self.tick(now);
        self.tracer.is_on();
    }

    /// Hand requests to the elements that they are for.
    #[cold]
    fn read_mail(&mut self) {
        let (now, elements) = (self.watch.now(), &mut self.elements);
        self.mailbox.empty(|at, mail| {
            if let Some(placed) = elements.get_mut(at) {
                placed.element.control(mail, now);
            }
        });
        self.watch.pass();
    }

    /// Run until told to stop, or until traces begin or end. `T`: whether packets are traced.
    fn run_turns<const T: bool>(&mut self, idle: &mut Idle) {
        let polled: Vec<usize> = (0..self.elements.len()).filter(|i| self.elements[*i].polled).collect();
        let mut batch = Batch::new();
        let mut next_tick = self.watch.last() + self.tick_ns;
        let (mut works, mut busy) = (0u32, false);
        loop {
            if self.mailbox.signal.is_set() {
                if self.mailbox.signal.must_stop() {
                    return;
                }
                self.read_mail();
            }
            self.due = u64::MAX;
            self.timed = works.is_multiple_of(TIMED);
            if self.timed && busy {
                self.account(true);
            }
            let mut worked = false;
            for element in &polled {
                worked |= self.poll::<T>(*element, &mut batch);
            }
            for inlet in 0..self.inlets.len() {
                worked |= self.take_in::<T>(inlet, &mut batch);
            }
            self.counters.turns.add(1);
            works = works.wrapping_add(worked.into());
            busy |= worked;
            if !worked || works.is_multiple_of(LOOK) {
                self.account(busy);
                busy = false;
            }
            let now = self.watch.last();
            if now >= next_tick {
                self.tick(now);
                next_tick = now + self.tick_ns;
                // What elements did is theirs, and no pause.
                self.account(busy);
                busy = false;
                self.watch_pauses(self.watch.last());
                if self.tracer.is_on() != T {
                    return;
                }
            }
            if worked {
                idle.record_work(now);
            } else {
                self.rest(idle.rest(now, self.due));
            }
        }
    }

    /// Account for the time since the last call, spent on packets or in empty polls.
    #[inline]
    fn account(&mut self, busy: bool) -> u64 {
        let spent = self.watch.lap();
        let count = if busy { &self.counters.busy } else { &self.counters.idle };
        count.add(spent);
        if spent > self.alarm {
            self.check(spent);
        }
        spent
    }

    /// Much time passed between two readings: was it taken away, or is it work of our own?
    #[cold]
    fn check(&mut self, spent: u64) {
        let (clock, now, counters) = (self.watch.clock(), self.watch.last(), &self.counters);
        self.pauses.check(clock.ns(spent), now, &counters.pauses, &counters.long_turns);
        self.alarm = clock.ticks(self.pauses.alarm());
    }

    fn watch_pauses(&mut self, now: u64) {
        self.pauses.begin(now);
        self.alarm = self.watch.clock().ticks(self.pauses.alarm());
    }

    fn tick(&mut self, now: u64) {
        self.elements.iter_mut().for_each(|placed| placed.element.tick(now));
    }

    fn rest(&mut self, rest: IdleAction) {
        let before = self.watch.last();
        match rest {
            // Who lets time pass needs a core for that.
            IdleAction::Spin if is_told() => std::thread::yield_now(),
            IdleAction::Spin => return std::hint::spin_loop(),
            IdleAction::Yield => std::thread::yield_now(),
            IdleAction::Sleep(duration) => std::thread::sleep(duration),
        }
        self.watch.skip();
        let took = self.watch.last().saturating_sub(before);
        let mut asked = 0;
        if let IdleAction::Sleep(duration) = rest {
            self.counters.slept_ns.add(took);
            asked = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        }
        self.pauses.record_rest(asked, took, &self.counters.pauses);
    }

    /// Poll an element and hand on what it has. Says whether it had anything.
    #[inline]
    fn poll<const T: bool>(&mut self, at: usize, batch: &mut Batch) -> bool {
        self.watch.pass();
        let placed = &mut self.elements[at];
        let (watch, due) = (&mut self.watch, &mut self.due);
        let (counters, rings) = (&placed.counters, &placed.rings);
        let mut cx = Cx { watch, counters, side: &mut placed.side, rings, due };
        placed.element.poll(batch, &mut cx);
        let worked = !batch.is_empty() || placed.side.iter().flatten().any(|side| !side.is_empty());
        if !worked {
            if self.timed {
                self.account(false);
            }
            return false;
        }
        if self.timed {
            let spent = self.account(true);
            let sides = self.elements[at].side.iter().flatten().map(|side| side.len());
            self.elements[at].counters.time(spent, batch.len() + sides.sum::<usize>());
        }
        let placed = &self.elements[at];
        if !placed.takes {
            placed.counters.batches.add(1);
        }
        if T {
            let sides = placed.side.iter().map(|side| side.as_deref());
            for (output, batch) in std::iter::once(Some(&*batch)).chain(sides).enumerate() {
                let Some(batch) = batch else { continue };
                self.tracer.begin(batch);
                self.tracer.note(batch, placed.number, self.watch.now(), output);
            }
        }
        self.hand_on::<T>(at, batch);
        true
    }

    /// Take what another worker sent. Says whether there was anything.
    #[inline]
    fn take_in<const T: bool>(&mut self, at: usize, batch: &mut Batch) -> bool {
        let inlet = &mut self.inlets[at];
        inlet.held.move_to(batch);
        let held = batch.len();
        inlet.ring.receive(batch);
        batch.prefetch_headers(held);
        if batch.is_empty() {
            return false;
        }
        let to = inlet.to;
        self.watch.pass();
        self.push::<T>(to, batch);
        batch.move_to(&mut self.inlets[at].held);
        true
    }

    /// Hand a batch to an element of this worker. What is left in it then was refused.
    #[inline]
    fn push<const T: bool>(&mut self, at: usize, batch: &mut Batch) {
        if T && batch.len() > 1 && self.tracer.has(batch) {
            return self.push_singly(at, batch);
        }
        let placed = &mut self.elements[at];
        let weighs = placed.weighs;
        let weigh = |batch: &Batch| if weighs { batch.bytes() } else { 0 };
        let (mut packets, mut bytes) = (batch.len() as u64, weigh(batch));
        let (element, counters, due) = (&mut placed.element, &placed.counters, &mut self.due);
        let rings = &placed.rings;
        let watch = &mut self.watch;
        // The tracer's own: the watch may be of when the packets came in.
        let seen = if T { watch.clock().now() } else { 0 };
        let mut work = |batch: &mut Batch, side: &mut [Option<Box<Batch>>]| {
            element.push(batch, &mut Cx { watch, counters, side, rings, due });
        };
        if T {
            let about = (placed.number, placed.outputs.len(), seen);
            self.tracer.watch(about, counters, (batch, &mut placed.side), work);
        } else {
            work(batch, &mut placed.side);
        }
        let sink = placed.outputs.is_empty();
        if sink && !batch.is_empty() {
            packets -= (batch.len() as u64).min(packets);
            bytes = bytes.saturating_sub(weigh(batch));
        }
        if self.timed {
            let spent = self.account(true);
            self.elements[at].counters.time(spent, packets as usize);
        }
        let counters = &self.elements[at].counters;
        counters.packets_in.add(packets);
        counters.bytes.add(bytes);
        counters.batches.add(1);
        if !sink {
            self.hand_on::<T>(at, batch);
        }
    }

    /// Hand a batch to an element packet by packet, until it refuses one: their order stays.
    #[cold]
    fn push_singly(&mut self, at: usize, batch: &mut Batch) {
        let mut one = Batch::new();
        for mbuf in std::mem::take(batch) {
            if batch.is_empty() {
                // It is empty, and has room.
                let _fits = one.push(mbuf);
                self.push::<true>(at, &mut one);
                one.move_to(batch);
            } else {
                let _fits = batch.push(mbuf);
            }
        }
    }

    /// Hand on what an element left: the batch to its first output, the rest to the others.
    #[inline]
    fn hand_on<const T: bool>(&mut self, at: usize, batch: &mut Batch) {
        self.hand_to::<T>(at, 0, batch);
        for output in 1..self.elements[at].outputs.len() {
            let Some(mut side) = self.elements[at].side[output - 1].take() else { continue };
            self.hand_to::<T>(at, output, &mut side);
            self.elements[at].side[output - 1] = Some(side);
        }
    }

    /// Hand a batch to one output; it is empty afterwards.
    #[inline]
    fn hand_to<const T: bool>(&mut self, at: usize, output: usize, batch: &mut Batch) {
        if batch.is_empty() {
            return;
        }
        let (packets, weighed) = (batch.len(), self.elements[at].weighs && !self.elements[at].takes);
        let bytes = if weighed { batch.bytes() } else { 0 };
        match self.elements[at].outputs[output] {
            Target::Element(next) => self.push::<T>(next, batch),
            Target::Ring(ring) => {
                self.outlets[ring].send(batch);
            }
        }
        let placed = &mut self.elements[at];
        placed.counters.packets_out.add((packets - batch.len().min(packets)) as u64);
        if weighed {
            placed.counters.bytes.add(bytes.saturating_sub(batch.bytes()));
        }
        if !batch.is_empty() {
            let seen = if T { self.watch.clock().now() } else { 0 };
            let (watch, due) = (&mut self.watch, &mut self.due);
            let (counters, rings) = (&placed.counters, &placed.rings);
            let mut cx = Cx { watch, counters, side: &mut placed.side, rings, due };
            let element = &mut placed.element;
            let mut work = |batch: &mut Batch| element.refused(output, batch, &mut cx);
            if T {
                self.tracer.watch_refused((placed.number, seen), batch, work);
            } else {
                work(batch);
            }
            cx.drop_refused(batch);
        }
    }
}
