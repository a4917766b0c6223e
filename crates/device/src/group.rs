//! A worker's share of one group: its load shape, who is idle, and what was measured.

use crate::addresses::Reach;
use crate::load_shape::{ClosedLoop, OpenLoop};
use crate::quota::Quota;
use crate::worker::Receivers;
use profile::Load;
use protocol::cause::Causes;
use protocol::describe::Description;
use protocol::meter::{Failure, Tally, Window};
use protocol::time::Time;
use run::plan::{GroupPlan, Plan};
use run::stalls::GroupWaits;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Flows that may begin in one millisecond where the rate asks for fewer: a worker that was late catches up with these or twice
/// its rate, and floods no receive buffer that the load alone would not.
const CATCH_UP: u32 = 32;

fn catch_up(per_second: f64) -> u32 {
    ((per_second * 2e-3) as u32).max(CATCH_UP)
}

/// A worker's devices of one group.
pub(super) struct Group {
    /// Open loop: when flows are due.
    pub arrivals: Option<OpenLoop>,
    /// Open loop: how many may begin in a millisecond; which one it is, and how many began in it.
    most_per_ms: u32,
    /// The same per arrival in a second of this worker's share at the rate of the profile, and changes of it so far.
    peak: f64,
    changes: [usize; 2],
    begun_in_ms: (u64, u32),
    /// Open loop: flows taken, and flows counted as asked for, in warm-up and measure phase. Those in between are
    /// the backlog: nobody keeps a list of it, as the arrivals can be asked again.
    taken: [u64; 2],
    /// Open loop: flows of this worker at a time.
    most_active: u32,
    asked_for: [u64; 2],
    /// Closed loop: how many devices are to be at work.
    crowd: Option<ClosedLoop>,
    next_look: Time,
    wanted: u32,
    /// Closed loop: devices at work; those of them that have done all their flows, and those told to end theirs.
    pub awake: u32,
    pub done: u32,
    pub retiring: u32,
    /// Its devices, and where to look for the next that is to retire.
    pub slots: Range<u32>,
    retire_at: u32,
    /// Closed loop: rest between flows, and flows per device (0: no limit).
    pub flow_interval: Duration,
    pub flows_each: u32,
    /// Devices that wait, longest first.
    pub idle: VecDeque<u32>,
    /// Devices with a flow under way.
    pub active: u32,
    /// How many messages are left to send.
    pub quota: Quota,
    /// Messages of a flow; 0: not known yet.
    flow_messages: u64,
    /// Whom datagrams of a shared socket are for.
    pub receivers: Receivers,
    /// How long its devices wait, if they wait for anything.
    pub waits: Option<GroupWaits>,
    /// Tallies since the last sample.
    pub meter: Box<[Tally; 3]>,
    /// The addresses of its target.
    pub reach: Reach,
    /// How many failures of each kind have been told, and of which causes.
    pub examples_kept: [u8; Failure::ALL.len()],
    pub causes_kept: Causes,
    pub about: &'static Description,
    /// Messages that count as intended already, due and not sent at the last sample, by phase.
    behind: [u64; 2],
}

impl Group {
    pub fn new(plan: &Plan, g: usize, slots: Range<u32>, worker: usize, workers: usize) -> Self {
        let group = &plan.groups[g];
        let seed = plan.profile.seed.wrapping_add((g as u64) << 32);
        let mut this = Self {
            arrivals: None,
            most_per_ms: u32::MAX,
            peak: 0.0,
            changes: [0; 2],
            begun_in_ms: (0, 0),
            taken: [0; 2],
            most_active: u32::MAX,
            asked_for: [0; 2],
            crowd: None,
            next_look: Time::ZERO,
            wanted: 0,
            awake: 0,
            done: 0,
            retiring: 0,
            retire_at: slots.start,
            slots: slots.clone(),
            flow_interval: Duration::ZERO,
            flows_each: 0,
            idle: slots.clone().collect(),
            active: 0,
            receivers: Receivers::new(slots.clone()),
            quota: Quota::new(group.share(worker, workers)),
            flow_messages: plan.profile.groups[g].model.repeats().map_or(0, |repeats| repeats.count),
            waits: group.waits.then(|| GroupWaits::new(group.stall, slots.len() as u32)),
            meter: Box::new(std::array::from_fn(|_| Tally::of(group.about))),
            reach: Reach::new(&group.addresses),
            examples_kept: [0; Failure::ALL.len()],
            causes_kept: Causes::default(),
            about: group.about,
            behind: [0; 2],
        };
        match &group.load {
            Load::Open(open) => {
                this.arrivals = Some(OpenLoop::new(
                    open,
                    plan.factor,
                    (worker, workers),
                    &group.turns,
                    seed,
                    Arc::clone(&group.arrivals),
                ));
                let rates = open.stages.iter().map(|stage| stage.rate.0);
                this.peak = rates.fold(open.rate.0, f64::max) * plan.factor / workers.max(1) as f64;
                this.most_per_ms = catch_up(this.peak);
                if open.max_flows > 0 {
                    let (worker, workers) = (worker as u32, workers.max(1) as u32);
                    this.most_active =
                        open.max_flows / workers + u32::from(worker < open.max_flows % workers);
                }
            }
            Load::Closed(closed) => {
                this.crowd = Some(ClosedLoop::new(
                    closed,
                    (slots.len() as u32, group.devices),
                    (worker, workers),
                    &group.turns,
                ));
                this.flow_interval = closed.flow_interval.0;
                this.flows_each = closed.flows;
            }
        }
        this
    }

    /// Whether the rate at which devices send was changed since the last call. Arrivals of another rate may begin as fast.
    pub fn is_changed(&mut self, plan: &GroupPlan) -> bool {
        let messages = plan.model.timeline().map_or(0, |timeline| timeline.count());
        let changes = [plan.arrivals.count(), messages];
        if changes[0] != self.changes[0] {
            // what is still behind at the rate before is caught up with as well
            self.most_per_ms = self.most_per_ms.max(catch_up(self.peak * plan.arrivals.factor()));
        }
        let before = std::mem::replace(&mut self.changes, changes);
        changes[1] != before[1]
    }

    /// Open loop: whether as many flows have begun in this millisecond as may.
    pub fn is_burst(&self, now: Time) -> bool {
        self.begun_in_ms.0 == now.0 / 1_000_000 && self.begun_in_ms.1 >= self.most_per_ms
    }

    /// Open loop: take one flow that is due at `now`, for a device that is free.
    pub fn arrival(&mut self, now: Time, window: Window) -> Option<Time> {
        let arrivals = self.arrivals.as_mut().filter(|a| a.next() <= now && a.next() < window.drain)?;
        if !self.quota.has_room() {
            return None;
        }
        self.quota.begin();
        let ms = now.0 / 1_000_000;
        self.begun_in_ms = (ms, if self.begun_in_ms.0 == ms { self.begun_in_ms.1 + 1 } else { 1 });
        let due = arrivals.pop();
        let phase = usize::from(due >= window.measure);
        self.taken[phase] += 1;
        self.ask_for(phase, self.taken[phase]);
        Some(due)
    }

    /// Open loop: flows that are due while as many are under way as may be are never begun.
    pub fn suppress(&mut self, now: Time, window: Window) {
        if self.active < self.most_active {
            return;
        }
        let Some(arrivals) = &mut self.arrivals else { return };
        while arrivals.next() <= now && arrivals.next() < window.drain {
            let due = arrivals.pop();
            self.meter[window.phase(due) as usize].counts.flows_suppressed += 1;
        }
    }

    /// A flow of a device that sends so many messages in `flows` was completed.
    pub fn learn_flow_length(&mut self, sent: u64, flows: u32) {
        if !self.quota.is_limited {
            return;
        }
        self.flow_messages = self.flow_messages.max(sent.div_ceil(u64::from(flows.max(1))));
    }

    /// Open loop: count what is due before `now` as asked for, taken or not.
    fn count_due(&mut self, now: Time, window: Window) {
        let Some(arrivals) = &self.arrivals else { return };
        let free = self.quota.flows(self.flow_messages, self.active);
        let warmup = arrivals.pending(now.min(window.measure)).min(free);
        let all = arrivals.pending(now.min(window.drain)).min(free);
        self.ask_for(0, self.taken[0] + warmup);
        self.ask_for(1, self.taken[1] + all.saturating_sub(warmup));
    }

    /// So many flows of `phase` are asked for by now. Never fewer than before: a long backlog is an estimate.
    fn ask_for(&mut self, phase: usize, flows: u64) {
        self.meter[phase].counts.flows_intended += flows.saturating_sub(self.asked_for[phase]);
        self.asked_for[phase] = self.asked_for[phase].max(flows);
    }

    /// Closed loop: how many devices are to be at work at `now`.
    pub fn target_concurrency(&mut self, now: Time) -> u32 {
        if let Some(crowd) = self.crowd.as_ref().filter(|_| now >= self.next_look) {
            self.wanted = crowd.size(now);
            self.next_look = crowd.next_change(now);
        }
        self.wanted
    }

    /// Closed loop: how many more devices are at work than are wanted at `now`, those not counted that end already.
    pub fn surplus(&mut self, now: Time) -> u32 {
        let wanted = self.target_concurrency(now);
        self.at_work().saturating_sub(wanted)
    }

    fn at_work(&self) -> u32 {
        self.awake.saturating_sub(self.done + self.retiring)
    }

    /// The devices in turn, each once, from where the last search ended.
    pub fn rotation(&self) -> impl Iterator<Item = u32> + use<> {
        let (slots, from) = (self.slots.clone(), self.retire_at);
        (from..slots.end).chain(slots.start..from)
    }

    /// The search ended at device `i`.
    pub fn rotate_past(&mut self, i: u32) {
        self.retire_at = if i + 1 < self.slots.end { i + 1 } else { self.slots.start };
    }

    /// When to look at this group again.
    pub fn next(&self, draining: bool) -> Time {
        match &self.arrivals {
            _ if draining => Time::NEVER,
            // until a device is free
            Some(_) if self.idle.is_empty() || !self.quota.has_room() => Time::NEVER,
            Some(arrivals) => arrivals.next(),
            // there were too many to tell at once
            None if self.at_work() > self.wanted => Time::ZERO,
            None => self.next_look,
        }
    }

    /// Count what is due and not sent as intended, once: what was behind before and has been sent since was counted
    /// as intended again when it was sent. `behind` may fall short of what there is, and is made up for later.
    pub fn count_behind(&mut self, behind: [u64; 2]) {
        // devices draw on one total: together they are behind with no more than is left of it
        let warmup = behind[0].min(self.quota.left);
        let behind = [warmup, behind[1].min(self.quota.left - warmup)];
        for ((tally, counted), behind) in self.meter.iter_mut().zip(&mut self.behind).zip(behind) {
            let intended = &mut tally.counts.messages_intended;
            // nothing that was said to be intended is taken back
            let now = behind.max(counted.saturating_sub(*intended));
            *intended = (*intended + now).saturating_sub(std::mem::replace(counted, now));
        }
    }

    /// The tallies since the last call.
    pub fn take_meter(&mut self, now: Time, window: Window) -> [Tally; 3] {
        self.suppress(now, window);
        self.count_due(now, window);
        let about = self.about;
        std::mem::replace(&mut *self.meter, std::array::from_fn(|_| Tally::of(about)))
    }
}
