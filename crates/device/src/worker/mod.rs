//! One worker: its devices, their timers and their connections, on one core. Whoever calls [`Worker::turn`] owns the loop.

mod backoff;
mod call;
mod cleanup;
mod conn;
mod events;
mod flows;
mod media;
mod reach;
mod report;
mod shared;
#[cfg(test)]
mod tests;

use crate::conn_error::ConnError;
use crate::endpoint::{Batch, Endpoint, Event};
use crate::group::Group;
use crate::timers::Timers;
use backoff::BusyPollBackoff;
use cleanup::CleanUp;
use conn::Conn;
use models::Device;
use protocol::media::Channel;
use protocol::meter::{DeviceTally, Window};
use protocol::model::{Model, Outbox};
use protocol::time::Time;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use run::cpu::{CpuTime, ThreadCpu};
use run::plan::{GroupPlan, Plan};
use run::stalls::Wait;
use run::{Control, FailureExample, Sample, SetupError};
pub(crate) use shared::Receivers;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Largest read.
const BUFFER: usize = 64 * 1024;
/// Longest sleep between checks for a stop or a pause.
const MAX_SLEEP: Duration = Duration::from_millis(20);

/// Turns as full of events as they can be, in a row, after which what is due does not wait for the next.
const FULL_TURNS: u32 = 8;

/// State of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Waits for an arrival (open loop), or is not wanted now (closed loop).
    Idle,
    /// Closed loop: its next flow begins when its timer is due.
    Resting,
    /// A flow is under way.
    Active,
    /// Has done all its flows.
    Done,
}

#[derive(Debug)]
struct Slot<C, D> {
    device: D,
    conn: Option<Conn<C>>,
    /// Tells events of this connection from those of an earlier one.
    generation: u32,
    /// Its place in its group, over all workers.
    index: u32,
    group: u16,
    state: State,
    /// Its flow ends early, as fewer devices are wanted.
    retires: bool,
    /// Its flow has yet to send its first message.
    unsent: bool,
    /// Flows done, for a closed loop with a limit.
    flows: u32,
    /// When the flow was meant to begin.
    begun: Time,
    /// When the model wants to be woken, and when it said so.
    wake: Time,
    wake_set_at: Time,
    /// When the connection was asked for, and when it must be up.
    connect_asked: Time,
    connect_by: Time,
    /// Index of the target address in use, and a bit for each that failed since one worked.
    address: u8,
    tried: u64,
    /// Flows that failed since one was completed.
    failures_in_a_row: u8,
    /// How long it has been waiting for an answer.
    wait: Wait,
    /// A model timer that is due, and waits until the socket takes datagrams again.
    blocked_timer: Option<Time>,
    tally: DeviceTally,
    /// Address of its media socket for RTP, where it is open.
    media: Option<SocketAddr>,
}

/// Longest sleep between checks whether the run has begun.
const BEGINS: Duration = Duration::from_millis(1);

/// Drives its share of each group's devices, on one core.
pub struct Worker<E: Endpoint, D: Model = Device> {
    number: usize,
    workers: usize,
    plan: Arc<Plan>,
    control: Arc<Control>,
    samples: Sender<Sample>,
    /// The run has begun.
    begun: bool,
    groups: Vec<Group>,
    slots: Vec<Slot<E::Conn, D>>,
    timers: Timers,
    /// The latest timer of a device that waits for its socket to take datagrams again.
    retry_until: Time,
    endpoint: E,
    now: Time,
    window: Window,
    /// Changes of rates that it follows.
    rate_changes: u64,
    outbox: Outbox,
    rng: SmallRng,
    /// What the last turn found, and how many turns in a row found as much as they can.
    events: Vec<Event>,
    full_turns: u32,
    backoff: BusyPollBackoff,
    /// Connections that broke while something else was being done.
    broken: VecDeque<(u32, u32, ConnError)>,
    /// Sockets that may have more to read.
    unread: VecDeque<(u32, u32)>,
    /// Shared sockets that may, and the memory for what comes to one.
    unread_shared: VecDeque<u32>,
    batch: Batch,
    buffer: Box<[u8]>,
    /// Media sockets that the last poll found.
    media_ready: Vec<(u32, Channel)>,
    examples: Vec<FailureExample>,
    cpu: ThreadCpu,
    draining: bool,
    /// When all flows have ended: the devices whose connection has yet to send its last bytes.
    closing: Option<Vec<u32>>,
    /// The run is over, and devices take back what they left.
    cleanup: Option<Box<CleanUp>>,
    // since the last sample
    sampled: Time,
    boundary: Time,
    cpu_then: CpuTime,
    wall_then: Time,
}

impl<E: Endpoint> Worker<E> {
    /// The worker with number `number` of `workers`; call on its own thread.
    pub fn new(
        endpoint: E,
        number: usize,
        workers: usize,
        plan: Arc<Plan>,
        control: Arc<Control>,
        samples: Sender<Sample>,
    ) -> Self {
        let device = |group: &GroupPlan, index| group.model.device(index);
        Self::with_devices(endpoint, (number, workers), plan, control, samples, device)
    }
}

impl<E: Endpoint, D: Model> Worker<E, D> {
    /// A worker of devices that `device` makes, of any model.
    fn with_devices(
        endpoint: E,
        (number, workers): (usize, usize),
        plan: Arc<Plan>,
        control: Arc<Control>,
        samples: Sender<Sample>,
        device: impl Fn(&GroupPlan, u32) -> D,
    ) -> Self {
        let mut groups = Vec::new();
        let mut slots = Vec::new();
        for (g, group) in plan.groups.iter().enumerate() {
            let first = slots.len() as u32;
            for index in (number as u32..group.devices).step_by(workers) {
                slots.push(Slot {
                    device: device(group, group.device_number(index)),
                    conn: None,
                    generation: 0,
                    index,
                    group: g as u16,
                    state: State::Idle,
                    retires: false,
                    unsent: false,
                    flows: 0,
                    begun: Time::ZERO,
                    wake: Time::NEVER,
                    wake_set_at: Time::ZERO,
                    connect_asked: Time::ZERO,
                    connect_by: Time::NEVER,
                    address: 0,
                    tried: 0,
                    failures_in_a_row: 0,
                    wait: Wait::none(),
                    blocked_timer: None,
                    tally: DeviceTally::default(),
                    media: None,
                });
            }
            groups.push(Group::new(&plan, g, first..slots.len() as u32, number, workers));
        }
        let window = control.window();
        let cpu = ThreadCpu::current();
        Self {
            number,
            workers,
            timers: Timers::new(slots.len()),
            retry_until: Time::ZERO,
            rng: SmallRng::seed_from_u64(
                plan.profile.seed.wrapping_mul(0x9e37_79b9).wrapping_add(number as u64),
            ),
            cpu_then: cpu.now(),
            boundary: control.boundary(Time::ZERO),
            plan,
            control,
            samples,
            begun: false,
            groups,
            slots,
            endpoint,
            now: Time::ZERO,
            window,
            rate_changes: 0,
            outbox: Outbox::default(),
            events: Vec::new(),
            full_turns: 0,
            backoff: BusyPollBackoff::new(),
            broken: VecDeque::new(),
            unread: VecDeque::new(),
            unread_shared: VecDeque::new(),
            batch: Batch::default(),
            buffer: vec![0; BUFFER].into(),
            media_ready: Vec::new(),
            examples: Vec::new(),
            cpu,
            draining: false,
            closing: None,
            cleanup: None,
            sampled: Time::ZERO,
            wall_then: Time::ZERO,
        }
    }

    /// Work until the run is over.
    pub fn run(mut self) {
        while self.turn(MAX_SLEEP) {}
    }

    /// Do what is due, then take what comes: wait for it for `longest` at most, and with zero not at all, nor anywhere else.
    /// Whether the run goes on. If not, the last sample has been sent, and no turn may follow.
    pub fn turn(&mut self, longest: Duration) -> bool {
        if self.control.aborted() {
            if self.cleanup.is_none() {
                self.give_up_flows();
            }
            return self.leave_run();
        }
        if !self.begun {
            if self.control.now().is_none() {
                rest(BEGINS.min(longest));
                return true;
            }
            self.begun = true;
            self.cpu_then = self.cpu.now();
        }
        if self.control.is_paused() {
            // nothing falls due, and nothing is read either: an answer could make a model send
            rest(longest);
            return true;
        }
        self.tick();
        self.follow_rates();
        self.end_spent_groups();
        if self.now >= self.window.drain || self.is_spent() {
            self.drain();
            let over = self.cleanup.is_some() || self.is_quiet() || self.now >= self.control.end();
            if over && !self.cleans_up() {
                return self.leave_run();
            }
        }
        self.full_turns = if self.events.len() >= E::EVENTS { self.full_turns + 1 } else { 0 };
        // answers that have come are read before more is asked
        if self.full_turns.is_multiple_of(FULL_TURNS) {
            self.begin_flows();
            self.fire_timers();
        }
        self.report_broken();
        self.endpoint.flush();
        if let Err(why) = self.poll(longest) {
            self.finish(Err(why));
            return false;
        }
        let events = std::mem::take(&mut self.events);
        for event in &events {
            self.tick();
            self.event(event);
        }
        self.events = events;
        self.media_events();
        self.read_on();
        self.read_on_shared();
        self.report_broken();
        true
    }

    /// Take events, which are waited for until something else is due, or for `longest`.
    fn poll(&mut self, longest: Duration) -> Result<(), SetupError> {
        let mut wait = self.poll_timeout().min(longest);
        if !E::POLLS && !longest.is_zero() {
            let active = self.groups.iter().map(|g| u64::from(g.active)).sum();
            let idle = wait.as_nanos() as u64;
            let before = self.backoff.rest(self.now, self.events.len(), active, idle);
            rest(before);
            wait = wait.saturating_sub(before);
        }
        self.events.clear();
        self.endpoint.poll(wait, &mut self.events)
    }

    fn leave_run(&mut self) -> bool {
        self.end_cleanup();
        self.finish(Ok(()));
        false
    }

    /// Read the clock. Intervals that are over are reported before anything is done at the new time: a device that finds
    /// the load over counts all that it did not send.
    #[inline]
    fn tick(&mut self) {
        if let Some(now) = self.control.now() {
            self.now = now;
        }
        self.window = self.control.window();
        self.report();
    }

    /// Time to wait for sockets before something else is due.
    fn poll_timeout(&self) -> Duration {
        if !(self.unread.is_empty() && self.unread_shared.is_empty()) {
            return Duration::ZERO;
        }
        let groups = self.groups.iter().map(|g| g.next(self.draining)).min().unwrap_or(Time::NEVER);
        let next = self.timers.next().min(groups).min(self.boundary);
        // the clock has moved on since the turn began
        let now = self.control.now().unwrap_or(self.now);
        Duration::from_nanos(next.since(now)).min(MAX_SLEEP)
    }
}

fn rest(long: Duration) {
    if !long.is_zero() {
        std::thread::sleep(long);
    }
}
