//! One worker: a loop over the elements that are its own.

use crate::clock::Clock;
use crate::counters::{Counters, WorkerCounters};
use crate::element::{Cx, Element};
use crate::idle::{Idle, IdlePolicy, Rest};
use dpdk::{Batch, RingRx, RingTx};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where an output leads.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// To an element of the same worker: a call.
    Element(usize),
    /// To another worker, over this worker's ring of that number.
    Ring(usize),
}

/// An element at its place.
pub(crate) struct Seated {
    pub(crate) element: Box<dyn Element>,
    pub(crate) polled: bool,
    /// Whether it takes packets from others; else it counts the bytes it hands on.
    pub(crate) takes: bool,
    /// Where each output leads.
    pub(crate) outputs: Vec<Target>,
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
    pub(crate) elements: Vec<Seated>,
    pub(crate) inlets: Vec<Inlet>,
    pub(crate) outlets: Vec<RingTx>,
    pub(crate) counters: Arc<WorkerCounters>,
    clock: Clock,
    policy: IdlePolicy,
    tick_ns: u64,
    /// The latest time stamp: everything up to it is accounted for.
    stamp: u64,
    /// When an element must be polled again.
    due: u64,
}

impl Worker {
    pub(crate) fn new(policy: IdlePolicy, tick_ns: u64) -> Self {
        Self {
            elements: Vec::new(),
            inlets: Vec::new(),
            outlets: Vec::new(),
            counters: Arc::default(),
            clock: Clock::get(),
            policy,
            tick_ns,
            stamp: 0,
            due: u64::MAX,
        }
    }

    /// Run until told to stop.
    pub(crate) fn run(&mut self, stop: &AtomicBool) {
        let polled: Vec<usize> = (0..self.elements.len()).filter(|i| self.elements[*i].polled).collect();
        let mut batch = Batch::new();
        self.stamp = dpdk::tsc();
        let mut now = self.clock.at(self.stamp);
        let mut idle = Idle::new(self.policy, now);
        let mut next_tick = now + self.tick_ns;
        while !stop.load(Ordering::Relaxed) {
            self.due = u64::MAX;
            let mut worked = false;
            for element in &polled {
                worked |= self.poll(*element, &mut batch);
            }
            for inlet in 0..self.inlets.len() {
                worked |= self.take_in(inlet);
            }
            self.counters.turns.add(1);
            now = self.clock.at(self.stamp);
            if now >= next_tick {
                self.tick(now);
                next_tick = now + self.tick_ns;
            }
            if worked {
                idle.worked(now);
            } else {
                self.rest(idle.rest(now, self.due), now);
            }
        }
        self.tick(self.clock.now());
    }

    fn tick(&mut self, now: u64) {
        self.elements.iter_mut().for_each(|seated| seated.element.tick(now));
    }

    fn rest(&mut self, rest: Rest, before: u64) {
        match rest {
            Rest::Spin => return std::hint::spin_loop(),
            Rest::Yield => std::thread::yield_now(),
            Rest::Sleep(duration) => std::thread::sleep(duration),
        }
        self.stamp = dpdk::tsc();
        if matches!(rest, Rest::Sleep(_)) {
            self.counters.slept_ns.add(self.clock.at(self.stamp).saturating_sub(before));
        }
    }

    /// Ticks since the last stamp; they are accounted for now.
    #[inline]
    fn spent(&mut self) -> u64 {
        let stamp = dpdk::tsc();
        let spent = stamp.wrapping_sub(self.stamp);
        self.stamp = stamp;
        spent
    }

    /// Poll an element and hand on what it has. Says whether it had anything.
    #[inline]
    fn poll(&mut self, at: usize, batch: &mut Batch) -> bool {
        let now = self.clock.at(self.stamp);
        let seated = &mut self.elements[at];
        let mut cx = Cx { now, counters: &seated.counters, side: &mut seated.side, due: &mut self.due };
        seated.element.poll(batch, &mut cx);
        let worked = !batch.is_empty() || seated.side.iter().flatten().any(|side| !side.is_empty());
        let spent = self.spent();
        if !worked {
            self.counters.idle.add(spent);
            return false;
        }
        let counters = &self.elements[at].counters;
        counters.cycles.add(spent);
        counters.batches.add(1);
        self.counters.busy.add(spent);
        self.hand_on(at, batch);
        true
    }

    /// Take what another worker sent. Says whether there was anything.
    #[inline]
    fn take_in(&mut self, at: usize) -> bool {
        let inlet = &mut self.inlets[at];
        inlet.ring.receive(&mut inlet.held);
        if inlet.held.is_empty() {
            return false;
        }
        let to = inlet.to;
        let mut batch = std::mem::take(&mut inlet.held);
        self.push(to, &mut batch);
        self.inlets[at].held = batch;
        true
    }

    /// Hand a batch to an element of this worker. What is left in it then was refused.
    #[inline]
    fn push(&mut self, at: usize, batch: &mut Batch) {
        let (mut packets, mut bytes) = (batch.len() as u64, batch.bytes());
        let now = self.clock.at(self.stamp);
        let seated = &mut self.elements[at];
        let mut cx = Cx { now, counters: &seated.counters, side: &mut seated.side, due: &mut self.due };
        seated.element.push(batch, &mut cx);
        let sink = seated.outputs.is_empty();
        if sink && !batch.is_empty() {
            packets -= (batch.len() as u64).min(packets);
            bytes = bytes.saturating_sub(batch.bytes());
        }
        let spent = self.spent();
        let counters = &self.elements[at].counters;
        counters.packets_in.add(packets);
        counters.bytes.add(bytes);
        counters.batches.add(1);
        counters.cycles.add(spent);
        self.counters.busy.add(spent);
        if !sink {
            self.hand_on(at, batch);
        }
    }

    /// Hand on what an element left: the batch to its first output, the rest to the others.
    #[inline]
    fn hand_on(&mut self, at: usize, batch: &mut Batch) {
        self.hand_to(at, 0, batch);
        for output in 1..self.elements[at].outputs.len() {
            let Some(mut side) = self.elements[at].side[output - 1].take() else { continue };
            self.hand_to(at, output, &mut side);
            self.elements[at].side[output - 1] = Some(side);
        }
    }

    /// Hand a batch to one output; it is empty afterwards.
    #[inline]
    fn hand_to(&mut self, at: usize, output: usize, batch: &mut Batch) {
        if batch.is_empty() {
            return;
        }
        let (packets, source) = (batch.len(), !self.elements[at].takes);
        let bytes = if source { batch.bytes() } else { 0 };
        match self.elements[at].outputs[output] {
            Target::Element(next) => self.push(next, batch),
            Target::Ring(ring) => {
                self.outlets[ring].send(batch);
            }
        }
        let seated = &mut self.elements[at];
        seated.counters.packets_out.add((packets - batch.len().min(packets)) as u64);
        if source {
            seated.counters.bytes.add(bytes.saturating_sub(batch.bytes()));
        }
        if !batch.is_empty() {
            let now = self.clock.at(self.stamp);
            let mut cx = Cx { now, counters: &seated.counters, side: &mut seated.side, due: &mut self.due };
            seated.element.refused(output, batch, &mut cx);
            cx.drop_refused(batch);
        }
    }
}
