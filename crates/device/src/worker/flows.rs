//! Flows: arrivals, closed-loop devices, timers, and draining.

use super::{State, Worker};
use crate::conn_error::ConnError;
use crate::endpoint::{Connection, Endpoint};
use protocol::cause::Cause;
use protocol::meter::{Failure, record};
use protocol::model::{FlowEnd, Model, Outbox};
use protocol::time::Time;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Timers fired between two polls of the sockets.
const TIMERS_PER_TURN: usize = 64;
/// Devices told to end between two polls of the sockets.
const RETIRE_PER_TURN: u32 = 256;
/// A device whose flow failed rests at least this long, and twice as long after each further one, up to the longest: a dead server
/// is not hammered, and one that comes back is soon loaded again.
const REST_AFTER_FAILURE: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_millis(1600);
/// Until a device looks again whether a message is left for it: those under way may yet send them all.
const NO_ROOM: Duration = Duration::from_millis(10);
/// Until a datagram that the kernel had no room for is tried again: an interface's full queue says nothing when
/// it has room again.
const RETRY: Duration = Duration::from_millis(1);

impl<E: Endpoint, D: Model> Worker<E, D> {
    /// Begin the flows that are due: arrivals (open loop), further devices (closed loop).
    pub(super) fn begin_flows(&mut self) {
        if self.draining {
            return;
        }
        for g in 0..self.groups.len() {
            let mut turns = TIMERS_PER_TURN;
            self.groups[g].suppress(self.now, self.window);
            while turns > 0 && !self.groups[g].idle.is_empty() {
                // before: what arrives after a phase is none of its sample's
                self.tick();
                self.groups[g].suppress(self.now, self.window);
                if self.groups[g].is_burst(self.now) {
                    break;
                }
                let Some(due) = self.groups[g].arrival(self.now, self.window) else { break };
                let Some(i) = self.groups[g].idle.pop_front() else { break };
                turns -= 1;
                self.late(g, due, due);
                self.begin(i, due);
            }
            let want = self.groups[g].target_concurrency(self.now);
            while self.groups[g].awake < want {
                let Some(i) = self.groups[g].idle.pop_front() else { break };
                self.groups[g].awake += 1;
                self.rest(i, self.now);
            }
            self.retire(g);
        }
    }

    /// Closed loop: fewer devices are wanted than are at work. Those that rest go at once, the others when their
    /// message is answered.
    fn retire(&mut self, g: usize) {
        let mut left = self.groups[g].surplus(self.now).min(RETIRE_PER_TURN);
        if left == 0 {
            return;
        }
        for i in self.groups[g].rotation() {
            match self.slots[i as usize].state {
                State::Resting => {
                    self.timers.set(i, Time::NEVER);
                    self.slots[i as usize].state = State::Idle;
                    self.groups[g].awake -= 1;
                    self.groups[g].idle.push_back(i);
                }
                State::Active if !self.slots[i as usize].retires => {
                    self.slots[i as usize].retires = true;
                    self.groups[g].retiring += 1;
                    let now = self.now;
                    self.call(i, now, |device, cx| device.stop(cx));
                }
                State::Active | State::Idle | State::Done => continue,
            }
            left -= 1;
            if left == 0 {
                self.groups[g].rotate_past(i);
                break;
            }
        }
    }

    /// Closed loop: the next flow of device `i` begins at `at`.
    fn rest(&mut self, i: u32, at: Time) {
        self.slots[i as usize].state = State::Resting;
        self.slots[i as usize].wake_set_at = self.now;
        self.timers.set(i, at);
    }

    pub(super) fn begin(&mut self, i: u32, intended: Time) {
        let local = self.kept_connection(i);
        if local.is_none() {
            self.release(i);
        }
        let slot = &mut self.slots[i as usize];
        slot.state = State::Active;
        slot.begun = intended;
        slot.connect_by = Time::NEVER;
        slot.wake = Time::NEVER;
        slot.blocked_timer = None;
        slot.tally.flows.0 += 1;
        slot.unsent = true;
        let group = &mut self.groups[usize::from(slot.group)];
        if group.reach.fails_over() {
            slot.tried = 0;
        }
        group.active += 1;
        let counts = &mut group.meter[self.window.phase(intended) as usize].counts;
        counts.flows_started += 1;
        if group.arrivals.is_none() {
            counts.flows_intended += 1;
        }
        let slot = &self.slots[i as usize];
        let media = slot.media;
        let peer = local.and_then(|_| slot.conn.as_ref()?.inner.peer());
        self.call(i, intended, |device, cx| {
            cx.local = local;
            cx.peer = peer;
            cx.media = media;
            device.start(cx);
        });
    }

    /// Our end of the connection of device `i`, if it is up and was kept for this flow.
    pub(super) fn kept_connection(&self, i: u32) -> Option<SocketAddr> {
        let slot = &self.slots[i as usize];
        let group = &self.plan.groups[usize::from(slot.group)];
        let keeps = group.keeps_connection
            && (!self.fails_over(i) || {
                let reach = &self.groups[usize::from(slot.group)].reach;
                reach.start(&group.addresses, slot.index, self.now) == usize::from(slot.address)
            });
        slot.conn
            .as_ref()
            .filter(|conn| keeps && conn.up && !conn.closing && !conn.send_failed && !conn.ended)?
            .inner
            .local()
    }

    pub(super) fn flow_ended(&mut self, i: u32, end: FlowEnd) {
        if self.cleanup.is_some() && self.slots[i as usize].state == State::Active {
            return self.cleaned_up(i);
        }
        let slot = &mut self.slots[i as usize];
        if slot.state != State::Active {
            return;
        }
        slot.flows += 1;
        slot.wake = Time::NEVER;
        slot.connect_by = Time::NEVER;
        slot.blocked_timer = None;
        self.timers.set(i, Time::NEVER);
        let retires = std::mem::take(&mut slot.retires);
        let g = usize::from(slot.group);
        let group = &mut self.groups[g];
        group.suppress(self.now, self.window);
        if std::mem::take(&mut slot.unsent) {
            group.quota.ended_unsent(end == FlowEnd::Failed);
        }
        group.active -= 1;
        group.retiring -= u32::from(retires);
        match end {
            FlowEnd::Completed => {
                slot.failures_in_a_row = 0;
                group.meter[self.window.phase(slot.begun) as usize].counts.flows_completed += 1;
                slot.tally.flows.1 += 1;
                group.learn_flow_length(slot.tally.sent, slot.tally.flows.0);
            }
            FlowEnd::Failed => {
                slot.failures_in_a_row = slot.failures_in_a_row.saturating_add(1);
                group.meter[self.window.counted(self.now) as usize].counts.flows_failed += 1;
            }
        }
        if self.draining || group.quota.is_announced {
            slot.state = State::Done;
        } else if group.arrivals.is_some() {
            slot.state = State::Idle;
            // while others are free it is their turn
            let waiting = if group.idle.is_empty() { group.arrival(self.now, self.window) } else { None };
            match waiting {
                // through the timer, so that a chain of instant failures cannot recurse
                Some(due) => {
                    slot.state = State::Resting;
                    slot.begun = due;
                    slot.wake_set_at = self.now;
                    self.timers.set(
                        i,
                        // the load says when, however many flows failed before
                        if end == FlowEnd::Failed { self.now + REST_AFTER_FAILURE } else { self.now },
                    );
                }
                None => group.idle.push_back(i),
            }
        } else if group.flows_each > 0 && slot.flows >= group.flows_each {
            slot.state = State::Done;
            group.done += 1;
        } else if retires || group.surplus(self.now) > 0 {
            group.awake -= 1;
            slot.state = State::Idle;
            group.idle.push_back(i);
        } else {
            let rest = match end {
                FlowEnd::Completed => group.flow_interval,
                FlowEnd::Failed => {
                    let doublings = u32::from(slot.failures_in_a_row.min(8)) - 1;
                    group.flow_interval.max((REST_AFTER_FAILURE * (1 << doublings)).min(LONGEST_REST))
                }
            };
            self.rest(i, self.now + rest);
        }
    }

    pub(super) fn fire_timers(&mut self) {
        for _ in 0..TIMERS_PER_TURN {
            // a device that is behind would go on sending into a connection that is gone
            if self.broken.back().is_some_and(|(_, _, broken)| broken.gone) {
                break;
            }
            // before: who is late has its timer while a sample is made
            self.tick();
            let Some((i, due)) = self.timers.pop(self.now) else { break };
            let slot = &mut self.slots[i as usize];
            let g = usize::from(slot.group);
            match slot.state {
                // the load may have ended since this turn began
                State::Resting if !self.draining && self.now < self.window.drain => {
                    // an arrival has its message already
                    let is_open = self.groups[g].arrivals.is_some();
                    if !is_open && !self.groups[g].quota.has_room() {
                        self.rest(i, self.now + NO_ROOM);
                        continue;
                    }
                    if !is_open {
                        self.groups[g].quota.begin();
                    }
                    let asked = slot.wake_set_at;
                    // a flow from the backlog was due long before this device was free
                    let intended = if is_open { slot.begun } else { due };
                    self.late(g, due, asked);
                    self.begin(i, intended);
                }
                State::Active if due >= slot.connect_by => {
                    let address = self.plan.groups[g].addresses.at(slot.address.into());
                    let what = format!("no connection to {address} in time");
                    self.mark_broken(
                        i,
                        ConnError::new(Cause::named(Failure::Timeout, "no connection in time"), what),
                    );
                }
                State::Active if slot.wake <= self.now => {
                    let (wake, asked) = (slot.wake, slot.wake_set_at);
                    if let Some(conn) =
                        slot.conn.as_mut().filter(|c| c.inner.is_datagram() && !c.inner.is_flushed())
                    {
                        if let Err(broken) = self.endpoint.send(&mut conn.inner, &mut Outbox::default()) {
                            self.mark_broken(i, broken);
                            continue;
                        }
                        let full = !conn.inner.is_flushed();
                        self.refusals(i);
                        if full {
                            self.slots[i as usize].blocked_timer = Some(wake);
                            self.retry_until = self.now + RETRY;
                            self.timers.set(i, self.retry_until);
                            continue;
                        }
                    }
                    let slot = &mut self.slots[i as usize];
                    slot.blocked_timer = None;
                    slot.wake = Time::NEVER;
                    self.arm(i);
                    self.late(g, wake, asked);
                    self.call(i, wake, |device, cx| device.timer(cx));
                }
                State::Active => self.arm(i),
                _ => {}
            }
        }
    }

    pub(super) fn arm(&mut self, i: u32) {
        let slot = &self.slots[i as usize];
        self.timers.set(i, slot.wake.min(slot.connect_by));
    }

    /// How late we were with something due at `due` that was asked for at `asked`: the worker's own fault.
    pub(super) fn late(&mut self, g: usize, due: Time, asked: Time) {
        let from = due.max(asked);
        let phase = self.window.phase(from);
        record(&mut self.groups[g].meter[phase as usize].lateness, self.now.since(from));
    }

    /// Devices whose rate was changed set their timers again.
    #[inline]
    pub(super) fn follow_rates(&mut self) {
        if self.rate_changes != self.control.rate_changes() && !self.draining {
            self.reschedule();
        }
    }

    #[cold]
    fn reschedule(&mut self) {
        self.rate_changes = self.control.rate_changes();
        let plan = Arc::clone(&self.plan);
        for (g, group) in plan.groups.iter().enumerate() {
            if !self.groups[g].is_changed(group) {
                continue;
            }
            for i in self.groups[g].slots.clone() {
                let slot = &self.slots[i as usize];
                // one that waits for its socket goes on when that takes datagrams again
                if slot.state == State::Active && slot.blocked_timer.is_none() {
                    let now = self.now;
                    self.call(i, now, |device, cx| device.timer(cx));
                }
            }
        }
    }

    /// The devices of groups whose total is sent begin nothing new.
    pub(super) fn end_spent_groups(&mut self) {
        for g in 0..self.groups.len() {
            let quota = &mut self.groups[g].quota;
            if quota.is_spent() && !std::mem::replace(&mut quota.is_announced, true) {
                self.stop_devices(self.groups[g].slots.clone());
            }
        }
    }

    /// Whether each group has sent its total, and has its answers.
    pub(super) fn is_spent(&self) -> bool {
        !self.groups.is_empty()
            && self.groups.iter().all(|group| group.quota.is_announced && group.active == 0)
    }

    pub(super) fn drain(&mut self) {
        if self.draining {
            return;
        }
        self.draining = true;
        self.stop_devices(0..self.slots.len() as u32);
    }

    fn stop_devices(&mut self, slots: Range<u32>) {
        for i in slots {
            match self.slots[i as usize].state {
                State::Active => {
                    let now = self.now;
                    self.call(i, now, |device, cx| device.stop(cx));
                }
                State::Idle | State::Resting => {
                    self.slots[i as usize].state = State::Done;
                    self.timers.set(i, Time::NEVER);
                }
                State::Done => {}
            }
        }
    }

    /// Whether all flows have ended, and their last bytes have been sent.
    pub(super) fn is_quiet(&mut self) -> bool {
        if !self.draining || self.groups.iter().any(|g| g.active > 0) {
            return false;
        }
        // no flow begins any more: whose connection is to close is looked for once
        let closing = |i: &u32| self.slots[*i as usize].conn.as_ref().is_some_and(|conn| conn.closing);
        let all = || (0..self.slots.len() as u32).filter(closing).collect();
        let mut left: Vec<u32> = self.closing.take().unwrap_or_else(all);
        left.retain(|i| !self.flush_closing(*i));
        let quiet = left.is_empty();
        self.closing = Some(left);
        quiet
    }

    /// Send the bytes that the socket had no room for when the flow ended. Whether none is left.
    fn flush_closing(&mut self, i: u32) -> bool {
        let Some(conn) = self.slots[i as usize].conn.as_mut().filter(|conn| conn.closing) else {
            return true;
        };
        let sent = self.endpoint.send(&mut conn.inner, &mut Outbox::default());
        let left = sent.is_ok() && !conn.inner.is_flushed();
        self.refusals(i);
        if !left {
            self.hang_up(i);
        }
        !left
    }

    /// Close the connection of the last flow. Datagrams that the socket has not taken by now are our own loss.
    pub(super) fn release(&mut self, i: u32) {
        let slot = &mut self.slots[i as usize];
        slot.generation = slot.generation.wrapping_add(1);
        let unsent = self.close(i);
        if unsent > 0 {
            let what = "the socket took no more datagrams until the flow was over";
            self.refused(i, ConnError::new(Failure::Local, what).datagrams(unsent));
        }
    }

    /// Draining is over: what is still under way has failed. Its device says what was never answered. Devices that have left
    /// something behind, whose connections stay.
    pub(super) fn give_up_flows(&mut self) -> Vec<u32> {
        let mut left = Vec::new();
        self.tick();
        for i in 0..self.slots.len() {
            // what has come by now counts, although nobody had the time to read it
            let up = self.slots[i].conn.as_ref().is_some_and(|conn| conn.up);
            if up && self.slots[i].state == State::Active {
                self.readable(i as u32, self.slots[i].generation);
            }
            if self.slots[i].device.leaves_behind() {
                left.push(i as u32);
            } else {
                self.release(i as u32);
            }
            if self.slots[i].state == State::Active {
                let now = self.now;
                self.call(i as u32, now, |device, cx| device.abandoned(cx));
            }
            self.close_media(i as u32);
            let slot = &mut self.slots[i];
            if slot.state != State::Active {
                continue;
            }
            slot.state = State::Done;
            self.timers.set(i as u32, Time::NEVER);
            let g = usize::from(slot.group);
            self.update_wait(i as u32);
            self.groups[g].active -= 1;
            self.groups[g].meter[self.window.counted(self.now) as usize].counts.flows_failed += 1;
        }
        left
    }
}
