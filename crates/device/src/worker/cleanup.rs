//! The end of a run: devices take back what they left with servers. Nothing of it is measured, and it has its time.

use super::{State, Worker};
use crate::endpoint::{Connection, Endpoint};
use protocol::meter::{DeviceTally, Tally};
use protocol::model::Model;
use protocol::time::Time;
use run::stalls::GroupWaits;
use std::collections::VecDeque;
use std::time::Duration;

/// Devices that begin in a second where the load had fewer flows: any server takes so many.
const PACE: f64 = 500.0;
/// Devices that begin between two polls of the sockets.
const DEVICES_PER_TURN: usize = 32;
/// How long the last of them may take.
const PATIENCE: Duration = Duration::from_secs(6);

/// Devices that take something back.
pub(super) struct CleanUp {
    /// When the run was over.
    since: Time,
    /// Those that have yet to begin, and the time between two.
    waiting: VecDeque<u32>,
    gap: Duration,
    next: Time,
    until: Time,
    /// What was measured, by group, and the summary of each device: what is counted meanwhile is dropped.
    meters: Vec<[Tally; 3]>,
    waits: Vec<Option<GroupWaits>>,
    tallies: Vec<(u32, DeviceTally)>,
    examples: usize,
}

impl<E: Endpoint, D: Model> Worker<E, D> {
    /// Whether devices have something to take back, or are at it. Draining is over when this is asked first.
    pub(super) fn cleans_up(&mut self) -> bool {
        if self.cleanup.is_none() {
            let left = self.give_up_flows();
            if left.is_empty() || self.control.aborted() {
                return false;
            }
            self.begin_cleanup(left);
        }
        for _ in 0..DEVICES_PER_TURN {
            let Some(cleanup) = self.cleanup.as_mut().filter(|cleanup| cleanup.next <= self.now) else {
                break;
            };
            let Some(i) = cleanup.waiting.pop_front() else { break };
            cleanup.next = cleanup.next + cleanup.gap;
            self.clean_up(i);
        }
        let Some(cleanup) = &self.cleanup else { return false };
        let at_it = !cleanup.waiting.is_empty() || self.groups.iter().any(|group| group.active > 0);
        at_it && self.now < cleanup.until
    }

    fn begin_cleanup(&mut self, left: Vec<u32>) {
        // no faster than flows began, where those were more
        let rate =
            (left.len() as f64 / (self.window.drain.0 as f64 / 1e9).max(1.0)).max(PACE / self.workers as f64);
        let waits = self.groups.iter_mut().map(|group| group.waits.take()).collect();
        let meters = self.groups.iter_mut().map(|group| {
            let none = std::array::from_fn(|_| Tally::of(group.about));
            std::mem::replace(&mut *group.meter, none)
        });
        self.cleanup = Some(Box::new(CleanUp {
            since: self.now,
            gap: Duration::from_secs_f64(1.0 / rate),
            next: self.now,
            until: self.now + Duration::from_secs_f64(left.len() as f64 / rate) + PATIENCE,
            meters: meters.collect(),
            waits,
            tallies: left.iter().map(|i| (*i, self.slots[*i as usize].tally)).collect(),
            waiting: left.into(),
            examples: self.examples.len(),
        }));
    }

    fn clean_up(&mut self, i: u32) {
        let local = self.kept_connection(i);
        if local.is_none() {
            self.release(i);
        }
        let now = self.now;
        let slot = &mut self.slots[i as usize];
        slot.state = State::Active;
        slot.begun = now;
        slot.connect_by = Time::NEVER;
        slot.wake = Time::NEVER;
        slot.blocked_timer = None;
        self.groups[usize::from(slot.group)].active += 1;
        let slot = &self.slots[i as usize];
        let peer = local.and_then(|_| slot.conn.as_ref()?.inner.peer());
        self.call(i, now, |device, cx| {
            cx.local = local;
            cx.peer = peer;
            device.clean_up(cx);
        });
    }

    /// Device `i` is done with it.
    pub(super) fn cleaned_up(&mut self, i: u32) {
        let slot = &mut self.slots[i as usize];
        slot.state = State::Done;
        slot.wake = Time::NEVER;
        slot.connect_by = Time::NEVER;
        let g = usize::from(slot.group);
        self.timers.set(i, Time::NEVER);
        self.groups[g].active -= 1;
        self.count_taken_back(i);
    }

    /// What device `i` has taken back is in the result.
    fn count_taken_back(&mut self, i: u32) {
        let g = usize::from(self.slots[i as usize].group);
        let now = self.now;
        self.exchange_meter(g);
        self.call(i, now, |device, cx| device.cleaned_up(cx));
        self.exchange_meter(g);
    }

    fn exchange_meter(&mut self, g: usize) {
        if let Some(cleanup) = &mut self.cleanup {
            std::mem::swap(&mut *self.groups[g].meter, &mut cleanup.meters[g]);
        }
    }

    /// All of it is over.
    pub(super) fn end_cleanup(&mut self) {
        let Some(cleanup) = &mut self.cleanup else { return };
        let tallies = std::mem::take(&mut cleanup.tallies);
        let unfinished = std::mem::take(&mut cleanup.waiting);
        for i in unfinished {
            self.count_taken_back(i);
        }
        for (i, tally) in tallies {
            if self.slots[i as usize].state == State::Active {
                self.cleaned_up(i);
            }
            self.release(i);
            self.slots[i as usize].tally = tally;
        }
        let Some(cleanup) = self.cleanup.take() else { return };
        self.examples.truncate(cleanup.examples);
        for ((group, meter), waits) in self.groups.iter_mut().zip(cleanup.meters).zip(cleanup.waits) {
            (*group.meter, group.waits) = (meter, waits);
        }
        self.now = cleanup.since;
    }
}
