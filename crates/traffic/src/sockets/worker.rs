//! One worker: its devices, their timers and their sockets, in one loop on one core.

use super::conn::{Broken, Conn, Input};
use super::group::Group;
use crate::cpu::{CpuTime, ThreadCpu};
use crate::plan::Plan;
use crate::timers::Timers;
use crate::transport::{Complaint, Control, Sample, Unready};
use protocol::meter::{DeviceTally, Failure, Phase, Window, record};
use protocol::model::{Cx, End, Link, Model, Outbox};
use protocol::registry::{Carrier, Device};
use protocol::time::Time;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rustix::event::{Timespec, epoll};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Timers fired between two looks at the sockets, and the other way round.
const TIMERS_A_TURN: usize = 64;
const EVENTS_A_TURN: usize = 256;
/// Reads from one socket before others have their turn.
const READS_A_TURN: usize = 64;
/// Largest read.
const BUFFER: usize = 64 * 1024;
/// A flow that failed rests at least this long, so that a dead server is not hammered.
const REST_AFTER_FAILURE: Duration = Duration::from_millis(100);
/// Until a datagram that the kernel had no room for is tried again: an interface's full queue says nothing when
/// it has room again.
const RETRY: Duration = Duration::from_millis(1);
/// Longest sleep: how soon a stop or a pause is seen.
const NAP: Duration = Duration::from_millis(20);

/// Where a device is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Waits for an arrival (open loop), or is not part of the crowd (closed loop).
    Idle,
    /// Closed loop: its next flow begins when its timer is due.
    Resting,
    /// A flow is under way.
    Active,
    /// Has done all its flows.
    Done,
}

#[derive(Debug)]
struct Slot {
    device: Device,
    conn: Option<Conn>,
    /// Tells events of this connection from those of an earlier one.
    generation: u32,
    /// Number in its group, over all workers.
    index: u32,
    group: u16,
    state: State,
    /// Flows done, for a closed loop with a limit.
    flows: u32,
    /// When the flow was meant to begin.
    begun: Time,
    /// When the model wants to be woken, and when it said so.
    wake: Time,
    asked: Time,
    /// When the connection must be up.
    connect_by: Time,
    /// A timer that waits until the socket takes datagrams again.
    held: Option<Time>,
    tally: DeviceTally,
}

/// See the module's own words.
pub(super) struct Worker {
    number: usize,
    plan: Arc<Plan>,
    control: Arc<Control>,
    samples: Sender<Sample>,
    groups: Vec<Group>,
    slots: Vec<Slot>,
    timers: Timers,
    epoll: OwnedFd,
    now: Time,
    window: Window,
    outbox: Outbox,
    rng: SmallRng,
    /// Connections that broke while something else was being done.
    broken: VecDeque<(u32, u32, Broken)>,
    /// Sockets that may have more to read.
    unread: VecDeque<(u32, u32)>,
    buffer: Box<[u8]>,
    cipher: Box<[u8]>,
    complaints: Vec<Complaint>,
    cpu: ThreadCpu,
    draining: bool,
    // since the last sample
    sampled: Time,
    boundary: Time,
    cpu_then: CpuTime,
    wall_then: Time,
}

impl Worker {
    /// The worker with number `number` of `workers`; call on its own thread.
    pub fn new(
        number: usize,
        workers: usize,
        plan: Arc<Plan>,
        control: Arc<Control>,
        samples: Sender<Sample>,
    ) -> Result<Self, Unready> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| {
            let fix = "Raise the limit of open files (ulimit -n)";
            Unready::new("ND-92-01", "epoll", std::io::Error::from(e).to_string(), fix)
        })?;
        let mut groups = Vec::new();
        let mut slots = Vec::new();
        for (g, group) in plan.groups.iter().enumerate() {
            let first = slots.len() as u32;
            for index in (number as u32..group.devices).step_by(workers) {
                slots.push(Slot {
                    device: group.model.device(index),
                    conn: None,
                    generation: 0,
                    index,
                    group: g as u16,
                    state: State::Idle,
                    flows: 0,
                    begun: Time::ZERO,
                    wake: Time::NEVER,
                    asked: Time::ZERO,
                    connect_by: Time::NEVER,
                    held: None,
                    tally: DeviceTally::default(),
                });
            }
            groups.push(Group::new(&plan, g, first..slots.len() as u32, number, workers));
        }
        let window = control.window();
        let cpu = ThreadCpu::here();
        Ok(Self {
            number,
            timers: Timers::new(slots.len()),
            rng: SmallRng::seed_from_u64(
                plan.profile.seed.wrapping_mul(0x9e37_79b9).wrapping_add(number as u64),
            ),
            cpu_then: cpu.now(),
            boundary: control.boundary(Time::ZERO),
            plan,
            control,
            samples,
            groups,
            slots,
            epoll,
            now: Time::ZERO,
            window,
            outbox: Outbox::default(),
            broken: VecDeque::new(),
            unread: VecDeque::new(),
            buffer: vec![0; BUFFER].into(),
            cipher: vec![0; BUFFER].into(),
            complaints: Vec::new(),
            cpu,
            draining: false,
            sampled: Time::ZERO,
            wall_then: Time::ZERO,
        })
    }

    /// Work until the run is over.
    pub fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS_A_TURN);
        while self.control.now().is_none() && !self.control.aborted() {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.cpu_then = self.cpu.now();
        while !self.control.aborted() {
            if self.control.is_paused() {
                // nothing falls due, and nothing is read either: an answer could make a model send
                std::thread::sleep(NAP);
                continue;
            }
            self.tick();
            // a stop may have brought the end of the load forward: what comes after it is not of this interval
            let load_over = self.now >= self.window.drain && self.sampled < self.window.drain;
            if self.now >= self.boundary || load_over {
                self.sample(None);
            }
            if self.now >= self.window.drain {
                self.drain();
                if self.is_quiet() || self.now >= self.control.end() {
                    break;
                }
            }
            self.begin_flows();
            self.fire_timers();
            self.mend();
            let timeout = self.patience();
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => {
                    let text = std::io::Error::from(e).to_string();
                    return self.leave(Err(Unready::new(
                        "ND-92-05",
                        "epoll",
                        text,
                        "This is a fault of the machine",
                    )));
                }
            }
            for event in &events {
                let data = event.data.u64();
                self.tick();
                self.socket_event(data as u32, (data >> 32) as u32, event.flags);
            }
            for _ in 0..self.unread.len() {
                if let Some((i, generation)) = self.unread.pop_front() {
                    self.tick();
                    let slot = &mut self.slots[i as usize];
                    if let Some(conn) = slot.conn.as_mut().filter(|_| slot.generation == generation) {
                        conn.unread = false;
                    }
                    self.readable(i, generation);
                }
            }
            self.mend();
        }
        self.give_up_flows();
        self.leave(Ok(()));
    }

    #[inline]
    fn tick(&mut self) {
        if let Some(now) = self.control.now() {
            self.now = now;
        }
        self.window = self.control.window();
    }

    /// How long to wait for sockets before something else is due.
    fn patience(&self) -> Timespec {
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !self.unread.is_empty() {
            return none;
        }
        let groups = self.groups.iter().map(|g| g.next(self.draining)).min().unwrap_or(Time::NEVER);
        let next = self.timers.next().min(groups).min(self.boundary);
        // the clock has moved on since the turn began
        let now = self.control.now().unwrap_or(self.now);
        let wait = next.since(now).min(NAP.as_nanos() as u64);
        Timespec { tv_sec: 0, tv_nsec: wait as i64 }
    }

    // ---- flows ----

    /// Begin what is due: arrivals (open loop), newcomers to the crowd (closed loop).
    fn begin_flows(&mut self) {
        if self.draining {
            return;
        }
        for g in 0..self.groups.len() {
            let mut turns = TIMERS_A_TURN;
            while turns > 0
                && let Some(due) = self.groups[g].arrival(self.now, self.window)
            {
                turns -= 1;
                self.tick();
                match self.groups[g].idle.pop_front() {
                    Some(i) => {
                        self.late(g, due, due);
                        self.begin(i, due);
                    }
                    None => self.groups[g].backlog.push_back(due),
                }
            }
            let want = self.groups[g].wanted(self.now);
            while self.groups[g].awake < want {
                let Some(i) = self.groups[g].idle.pop_front() else { break };
                self.groups[g].awake += 1;
                self.rest(i, self.now);
            }
        }
    }

    /// Closed loop: the next flow of device `i` begins at `at`.
    fn rest(&mut self, i: u32, at: Time) {
        self.slots[i as usize].state = State::Resting;
        self.slots[i as usize].asked = self.now;
        self.timers.set(i, at);
    }

    fn begin(&mut self, i: u32, intended: Time) {
        let slot = &mut self.slots[i as usize];
        slot.state = State::Active;
        slot.begun = intended;
        slot.conn = None; // an old one may still be trying to say its last words
        slot.generation = slot.generation.wrapping_add(1);
        slot.connect_by = Time::NEVER;
        slot.wake = Time::NEVER;
        slot.held = None;
        slot.tally.flows.0 += 1;
        let group = &mut self.groups[usize::from(slot.group)];
        group.active += 1;
        let counts = &mut group.meter[self.window.phase(intended) as usize].counts;
        counts.flows_started += 1;
        if group.arrivals.is_none() {
            counts.flows_intended += 1;
        }
        self.call(i, intended, |device, cx| device.start(cx));
    }

    fn flow_ended(&mut self, i: u32, end: End) {
        let slot = &mut self.slots[i as usize];
        if slot.state != State::Active {
            return;
        }
        slot.flows += 1;
        slot.wake = Time::NEVER;
        slot.connect_by = Time::NEVER;
        slot.held = None;
        self.timers.set(i, Time::NEVER);
        let g = usize::from(slot.group);
        let group = &mut self.groups[g];
        group.active -= 1;
        let counts = &mut group.meter[self.window.phase(slot.begun) as usize].counts;
        match end {
            End::Completed => {
                counts.flows_completed += 1;
                slot.tally.flows.1 += 1;
            }
            End::Failed => counts.flows_failed += 1,
        }
        if self.draining {
            slot.state = State::Done;
        } else if group.arrivals.is_some() {
            slot.state = State::Idle;
            match group.backlog.pop_front() {
                // through the timer, so that a chain of instant failures cannot recurse
                Some(due) => {
                    slot.state = State::Resting;
                    slot.begun = due;
                    slot.asked = self.now;
                    self.timers
                        .set(i, if end == End::Failed { self.now + REST_AFTER_FAILURE } else { self.now });
                }
                None => group.idle.push_back(i),
            }
        } else if group.flows_each > 0 && slot.flows >= group.flows_each {
            slot.state = State::Done;
        } else if group.awake > group.wanted(self.now) {
            group.awake -= 1;
            slot.state = State::Idle;
            group.idle.push_back(i);
        } else {
            let rest = match end {
                End::Completed => group.flow_interval,
                End::Failed => group.flow_interval.max(REST_AFTER_FAILURE),
            };
            self.rest(i, self.now + rest);
        }
    }

    // ---- timers ----

    fn fire_timers(&mut self) {
        for _ in 0..TIMERS_A_TURN {
            let Some((i, due)) = self.timers.pop(self.now) else { break };
            self.tick();
            let slot = &mut self.slots[i as usize];
            let g = usize::from(slot.group);
            match slot.state {
                State::Resting if !self.draining => {
                    let asked = slot.asked;
                    // a flow from the backlog was due long before this device was free
                    let intended = if self.groups[g].arrivals.is_some() { slot.begun } else { due };
                    self.late(g, due, asked);
                    self.begin(i, intended);
                }
                State::Active if due >= slot.connect_by => {
                    let what = format!("no connection to {} in time", self.plan.groups[g].address);
                    self.broke(i, Broken { why: Failure::Timeout, what });
                }
                State::Active if slot.wake <= self.now => {
                    let (wake, asked) = (slot.wake, slot.asked);
                    if let Some(conn) = slot.conn.as_mut().filter(|c| c.is_datagram() && !c.is_flushed()) {
                        if let Err(broken) = conn.flush() {
                            self.broke(i, broken);
                            continue;
                        }
                        if !conn.is_flushed() {
                            slot.held = Some(wake);
                            self.timers.set(i, self.now + RETRY);
                            continue;
                        }
                    }
                    slot.held = None;
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

    fn arm(&mut self, i: u32) {
        let slot = &self.slots[i as usize];
        self.timers.set(i, slot.wake.min(slot.connect_by));
    }

    /// How late we were with something due at `due` that was asked for at `asked`: the worker's own fault.
    fn late(&mut self, g: usize, due: Time, asked: Time) {
        let from = due.max(asked);
        let phase = self.window.phase(from);
        record(&mut self.groups[g].meter[phase as usize].lateness, self.now.since(from));
    }

    // ---- sockets ----

    fn socket_event(&mut self, i: u32, generation: u32, flags: epoll::EventFlags) {
        let slot = &mut self.slots[i as usize];
        if slot.generation != generation {
            return;
        }
        let Some(conn) = &mut slot.conn else { return };
        // with the last bytes the end may have come too, and it is not told again
        conn.ends |=
            flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR);
        let read_later = conn.unread;
        if flags.intersects(epoll::EventFlags::OUT | epoll::EventFlags::ERR | epoll::EventFlags::HUP) {
            if !conn.up {
                let done = conn.connect_result().and_then(|()| conn.flush_tls());
                match done {
                    Err(broken) => return self.broke(i, broken),
                    Ok(()) => self.check_up(i),
                }
            } else if !conn.is_flushed() {
                match conn.flush() {
                    Err(broken) => return self.broke(i, broken),
                    Ok(()) if conn.closing && conn.is_flushed() => return self.hang_up(i),
                    Ok(()) => {
                        if let Some(due) = slot.held.take_if(|_| conn.is_flushed()) {
                            slot.wake = Time::NEVER;
                            let (g, asked) = (usize::from(slot.group), slot.asked);
                            self.late(g, due, asked);
                            self.call(i, due, |device, cx| device.timer(cx));
                        }
                    }
                }
            }
        }
        let input = epoll::EventFlags::IN
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::HUP
            | epoll::EventFlags::ERR;
        if flags.intersects(input) && !read_later {
            self.readable(i, generation);
        }
    }

    /// Tell the model once, when bytes can be exchanged.
    fn check_up(&mut self, i: u32) {
        let slot = &mut self.slots[i as usize];
        if let Some(conn) = slot.conn.as_mut().filter(|c| !c.up && c.ready()) {
            conn.up = true;
            slot.connect_by = Time::NEVER;
            self.call(i, slot_begun(&self.slots, i), |device, cx| device.connected(cx));
        }
    }

    fn readable(&mut self, i: u32, generation: u32) {
        let mut buffer = std::mem::take(&mut self.buffer);
        for turn in 0.. {
            let slot = &mut self.slots[i as usize];
            let Some(conn) = slot.conn.as_mut().filter(|_| slot.generation == generation) else { break };
            if turn == READS_A_TURN {
                conn.unread = true;
                self.unread.push_back((i, generation));
                break;
            }
            match conn.read(&mut buffer, &mut self.cipher) {
                Ok(Input::Dry) => break,
                Ok(Input::End) => {
                    let what = "the server closed the connection".to_owned();
                    self.broke(i, Broken { why: Failure::Closed, what });
                    break;
                }
                Err(broken) => {
                    self.broke(i, broken);
                    break;
                }
                Ok(Input::Aside) => {
                    if let Err(broken) = conn.flush_tls() {
                        self.broke(i, broken);
                        break;
                    }
                    self.check_up(i);
                }
                Ok(Input::Bytes(n)) => {
                    let dry = conn.short_read_is_dry() && n < buffer.len();
                    self.check_up(i);
                    self.deliver(i, generation, &buffer[..n]);
                    if dry {
                        break;
                    }
                    self.tick();
                }
            }
        }
        self.buffer = buffer;
    }

    /// Show the model what came, behind what it left before.
    fn deliver(&mut self, i: u32, generation: u32, fresh: &[u8]) {
        let slot = &mut self.slots[i as usize];
        if slot.state != State::Active {
            return; // answers after the flow's end
        }
        let Some(conn) = slot.conn.as_mut().filter(|c| slot.generation == generation && !c.closing) else {
            return;
        };
        let begun = slot.begun;
        if conn.is_datagram() {
            self.call(i, begun, |device, cx| device.received(cx, fresh));
            return;
        }
        let mut spill = conn.take_spill();
        let rest = if spill.is_empty() {
            let used = self.call(i, begun, |device, cx| device.received(cx, fresh)).min(fresh.len());
            if used == fresh.len() {
                return;
            }
            fresh[used..].to_vec()
        } else {
            spill.extend_from_slice(fresh);
            let used = self.call(i, begun, |device, cx| device.received(cx, &spill)).min(spill.len());
            spill.drain(..used);
            spill
        };
        let slot = &mut self.slots[i as usize];
        if let Some(conn) = slot.conn.as_mut().filter(|_| slot.generation == generation)
            && let Err(broken) = conn.keep(rest)
        {
            self.broke(i, broken);
        }
    }

    /// Device `i`'s connection broke. One may be found broken twice before [`Worker::mend`] looks at it; the
    /// generation then tells that it is the same.
    fn broke(&mut self, i: u32, broken: Broken) {
        self.broken.push_back((i, self.slots[i as usize].generation, broken));
    }

    /// Tell models of connections that broke. Here and not where it happened, so that a model that connects
    /// again at once cannot recurse.
    fn mend(&mut self) {
        for _ in 0..self.broken.len() {
            let Some((i, generation, broken)) = self.broken.pop_front() else { break };
            let slot = &mut self.slots[i as usize];
            if slot.generation != generation {
                continue;
            }
            let closing = slot.conn.take().is_some_and(|c| c.closing);
            slot.generation = slot.generation.wrapping_add(1);
            slot.connect_by = Time::NEVER;
            slot.held = None;
            if slot.state != State::Active || closing {
                continue;
            }
            let (begun, why) = (slot.begun, broken.why);
            let g = usize::from(slot.group);
            let (ended, excused) = self.call_closed(i, begun, why);
            if !(excused || (why == Failure::Closed && ended == Some(End::Completed))) {
                self.groups[g].meter[self.window.phase(begun) as usize].counts.failures[why as usize] += 1;
                self.slots[i as usize].tally.failed += 1;
                self.complain(g, why, broken.what);
            }
        }
    }

    fn hang_up(&mut self, i: u32) {
        let slot = &mut self.slots[i as usize];
        if let Some(mut conn) = slot.conn.take() {
            conn.goodbye();
        }
        slot.generation = slot.generation.wrapping_add(1);
        slot.connect_by = Time::NEVER;
    }

    fn open(&mut self, i: u32) {
        let slot = &mut self.slots[i as usize];
        let group = &self.plan.groups[usize::from(slot.group)];
        slot.generation = slot.generation.wrapping_add(1);
        slot.conn = None;
        let mut conn = match Conn::open(group, slot.index) {
            Ok(conn) => conn,
            Err(broken) => return self.broke(i, broken),
        };
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(u64::from(slot.generation) << 32 | u64::from(i));
        if let Err(e) = epoll::add(&self.epoll, &conn, data, flags) {
            return self.broke(i, Broken::errno(e, "epoll"));
        }
        if conn.is_datagram() {
            conn.up = true;
        } else {
            slot.connect_by = self.now + Duration::from_nanos(group.connect_timeout);
        }
        slot.conn = Some(conn);
        self.arm(i);
    }

    // ---- the model ----

    fn call<R>(&mut self, i: u32, intended: Time, f: impl FnOnce(&mut Device, &mut Cx<'_>) -> R) -> R {
        self.call_full(i, intended, f).0
    }

    fn call_closed(&mut self, i: u32, intended: Time, why: Failure) -> (Option<End>, bool) {
        let ((), ended, excused) = self.call_full(i, intended, |device, cx| device.closed(cx, why));
        (ended, excused)
    }

    /// Call the model and carry out what it asks.
    fn call_full<R>(
        &mut self,
        i: u32,
        intended: Time,
        f: impl FnOnce(&mut Device, &mut Cx<'_>) -> R,
    ) -> (R, Option<End>, bool) {
        let slot = &mut self.slots[i as usize];
        let g = usize::from(slot.group);
        self.outbox.bytes.clear();
        self.outbox.segment = 0;
        let mut cx = Cx::new(
            self.now,
            intended,
            slot.index,
            &mut self.outbox,
            &mut self.rng,
            self.window,
            &mut self.groups[g].meter,
            &mut slot.tally,
        );
        let answer = f(&mut slot.device, &mut cx);
        let (link, wake, end, excused) = (cx.link, cx.wake, cx.end, cx.excused);
        if let Some((kind, text)) = cx.complaint.take() {
            self.complain(g, kind, text);
        }
        if let Some(wake) = wake {
            let slot = &mut self.slots[i as usize];
            slot.wake = wake;
            slot.asked = self.now;
            self.arm(i);
        }
        self.carry_out(i, link);
        if let Some(end) = end {
            self.flow_ended(i, end);
        }
        (answer, end, excused)
    }

    fn carry_out(&mut self, i: u32, link: Link) {
        let unopened = self.slots[i as usize].conn.is_none();
        let datagrams = {
            let group = usize::from(self.slots[i as usize].group);
            self.plan.groups[group].scheme.carrier != Carrier::Stream
        };
        let implied = unopened && datagrams && !self.outbox.bytes.is_empty();
        if link == Link::Connect || implied {
            self.open(i);
            if datagrams && link == Link::Connect && self.slots[i as usize].conn.is_some() {
                // there is no handshake to wait for
                let begun = self.slots[i as usize].begun;
                let queued = std::mem::take(&mut self.outbox);
                self.call(i, begun, |device, cx| device.connected(cx));
                if queued.bytes.is_empty() {
                    return;
                }
                self.outbox = queued;
            }
        }
        let slot = &mut self.slots[i as usize];
        let Some(conn) = &mut slot.conn else { return };
        if let Err(broken) = conn.send(&mut self.outbox) {
            return self.broke(i, broken);
        }
        if link == Link::Close {
            if conn.up && !conn.is_flushed() {
                conn.closing = true;
            } else {
                self.hang_up(i);
            }
        }
    }

    /// Keep the first few failures of each kind for the log.
    fn complain(&mut self, g: usize, kind: Failure, text: String) {
        let told = &mut self.groups[g].told[kind as usize];
        if *told < 3 {
            *told += 1;
            self.complaints.push(Complaint { group: g, kind, text });
        }
    }

    // ---- the end ----

    fn drain(&mut self) {
        if self.draining {
            return;
        }
        self.draining = true;
        for i in 0..self.slots.len() as u32 {
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

    fn is_quiet(&self) -> bool {
        self.draining && self.groups.iter().all(|g| g.active == 0)
    }

    /// Draining is over: what is still under way has failed.
    fn give_up_flows(&mut self) {
        self.tick();
        for i in 0..self.slots.len() {
            let slot = &mut self.slots[i];
            if slot.state != State::Active {
                continue;
            }
            slot.state = State::Done;
            slot.tally.failed += 1;
            let (g, begun) = (usize::from(slot.group), slot.begun);
            self.groups[g].active -= 1;
            let counts = &mut self.groups[g].meter[self.window.phase(begun) as usize].counts;
            counts.flows_failed += 1;
            counts.failures[Failure::Timeout as usize] += 1;
            self.complain(g, Failure::Timeout, "the flow was still under way when draining ended".to_owned());
        }
    }

    fn leave(mut self, how: Result<(), Unready>) {
        self.sample(Some(how));
    }

    fn sample(&mut self, last: Option<Result<(), Unready>>) {
        let cpu = self.cpu.now();
        // a stop may have brought the phase's end forward
        let phase = self.window.phase(self.sampled);
        let until = match last {
            Some(_) => self.now.max(self.sampled),
            None => self.boundary.min(match phase {
                Phase::Warmup => self.window.measure,
                Phase::Measure => self.window.drain,
                Phase::Drain => Time::NEVER,
            }),
        };
        let devices = if last.is_some() {
            self.slots.iter().map(|s| (s.group, s.index, s.tally)).collect()
        } else {
            Vec::new()
        };
        let sample = Sample {
            worker: self.number,
            from: self.sampled,
            until,
            phase,
            groups: self.groups.iter_mut().map(Group::take_meter).collect(),
            active: self.groups.iter().map(|g| g.active).collect(),
            ran: cpu.ran.saturating_sub(self.cpu_then.ran),
            waited: cpu.waited.saturating_sub(self.cpu_then.waited),
            took: self.now.since(self.wall_then),
            complaints: std::mem::take(&mut self.complaints),
            ports: Default::default(),
            elements: Vec::new(),
            last,
            devices,
        };
        self.sampled = until;
        self.wall_then = self.now;
        self.cpu_then = cpu;
        self.boundary = self.control.boundary(until);
        // the collector may be gone already: then nobody wants it
        let _nobody = self.samples.send(sample);
    }
}

fn slot_begun(slots: &[Slot], i: u32) -> Time {
    slots[i as usize].begun
}
