//! The thread of a NAT that is one of a pair: it holds the lock or the connection, and carries between the socket and the workers.

mod follow;

use super::duty::Duty;
use super::lease::{Lease, LeaseLapse};
use super::link::{Link, LinkEvent, Listener, Lock, may_listen};
use super::message::{LONGEST, Message, Terms, VERSION, differences};
use super::view::{Cause, Counters, MemberStatus, Role, Takeover};
use super::worker::{Chunk, Ends};
use super::{JoinError, PairControl, TICK};
use arrayvec::ArrayVec;
use engine::Clock;
use nat_core::neighbours::Neighbour;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Who begins waits so long for the active NAT to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Who handed over waits so long for the other to take the lock before it takes it again.
const GRACE: Duration = Duration::from_millis(500);
/// Between two tries to join.
const AGAIN: Duration = Duration::from_millis(2);
/// And after the other said no.
const REFUSED: Duration = Duration::from_secs(1);
/// Workers have so long to take in what came, or to tell what is left.
const CATCH_UP: Duration = Duration::from_millis(200);
/// A worker that had no turn for so long hangs at least, ns; or for `silence`, where that is longer.
const HUNG: u64 = 1_000_000_000;
/// Packets that are read before anything else is looked at.
const BURST: usize = 64;

/// How a pair is configured.
#[derive(Debug)]
pub struct Settings {
    pub socket: PathBuf,
    /// After which the standby takes over, ns.
    pub silence: u64,
    pub terms: Terms,
}

/// What it has become.
#[derive(Debug)]
pub enum JoinOutcome {
    Active(Lock),
    Standby(Link),
}

/// That the other is gone, and when that was.
#[derive(Debug, Clone, Copy)]
struct Outage {
    cause: Cause,
    heard: u64,
    noticed: u64,
}

/// The standby, as the active NAT has it.
#[derive(Debug)]
struct StandbyPeer {
    /// What workers tell names it by this.
    number: u32,
    link: Link,
    pid: u32,
    lease: Lease,
    /// When the next heartbeat is due.
    due: u64,
    /// A message that it had no room for.
    unsent: bool,
}

/// The thread.
#[derive(Debug)]
pub struct Member {
    settings: Settings,
    clock: Clock,
    duty: Arc<Duty>,
    gateway: Arc<Neighbour>,
    ends: Vec<Ends>,
    seed: [u8; 32],
    pub standing: Arc<Mutex<MemberStatus>>,
    pub counters: Arc<Counters>,
    pub control: Arc<PairControl>,
    /// A worker that had no turn for so long hangs, ns.
    patience: u64,
    /// The number of the last standby.
    standbys: u32,
    /// A message, as it is sent.
    out: Vec<u8>,
    room: Box<[u8; LONGEST]>,
    outage: Option<Outage>,
}

impl Member {
    pub fn new(
        settings: Settings,
        (duty, gateway): (Arc<Duty>, Arc<Neighbour>),
        ends: Vec<Ends>,
        seed: [u8; 32],
    ) -> Self {
        Self {
            patience: settings.silence.max(HUNG),
            settings,
            clock: Clock::get(),
            duty,
            gateway,
            ends,
            seed,
            standing: Arc::new(Mutex::new(MemberStatus::new(Role::Joining))),
            counters: Arc::default(),
            control: Arc::default(),
            standbys: 0,
            out: Vec::with_capacity(LONGEST),
            room: Box::new([0; LONGEST]),
            outage: None,
        }
    }

    /// By which workers divide subscribers.
    pub fn seed(&self) -> [u8; 32] {
        self.seed
    }

    /// Join for the first time. The secret of the other is this one's then.
    pub fn join_first(&mut self) -> Result<JoinOutcome, JoinError> {
        let began = Instant::now();
        loop {
            match self.try_join(true) {
                Ok(Some((joined, seed))) => {
                    self.seed = seed;
                    return Ok(joined);
                }
                Ok(None) if began.elapsed() < ANSWER => std::thread::sleep(AGAIN),
                Ok(None) => return Err(JoinError::Silent),
                Err(why) => return Err(why),
            }
        }
    }

    /// Take the lock if that is wanted, or connect to who has it. `None`: neither can be now.
    fn try_join(&mut self, lock: bool) -> Result<Option<(JoinOutcome, [u8; 32])>, JoinError> {
        let socket = &self.settings.socket;
        if lock {
            let mut path = socket.as_os_str().to_owned();
            path.push(".lock");
            let taken = Lock::take(&PathBuf::from(path));
            if let Some(lock) =
                taken.map_err(|why| JoinError::Refused(format!("the lock beside it: {why}")))?
            {
                may_listen(socket).map_err(|why| JoinError::Refused(why.to_string()))?;
                return Ok(Some((JoinOutcome::Active(lock), self.seed)));
            }
        }
        let Ok(link) = Link::connect(socket) else { return Ok(None) };
        link.peer().map_err(|_| JoinError::Refused("it is another user's".into()))?;
        Message::Hello(VERSION, self.settings.terms.clone()).encode(&mut self.out);
        if !link.send(&self.out).unwrap_or(false) {
            return Ok(None);
        }
        let began = Instant::now();
        while began.elapsed() < ANSWER && !self.is_ending() {
            match link.receive(&mut self.room) {
                Ok(LinkEvent::Packet(len)) => {
                    return match Message::decode(self.room.get(..len).unwrap_or(&[])) {
                        Ok(Message::Welcome(seed)) => Ok(Some((JoinOutcome::Standby(link), seed))),
                        Ok(Message::Taken) => Err(JoinError::Taken),
                        Ok(Message::Refused(why)) => Err(JoinError::Refused(why.to_owned())),
                        _ => Err(JoinError::Refused("who listens there is no NAT of this version".into())),
                    };
                }
                Ok(LinkEvent::Nothing) => wait(&[(link.as_fd(), false)], TICK),
                Ok(LinkEvent::Closed) | Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Be what it can be, until it is to end.
    pub fn run(mut self, first: JoinOutcome) {
        let mut joined = Some(first);
        let mut yields = false;
        while !self.is_ending() {
            let now = match joined.take() {
                Some(now) => now,
                None => match self.join_again(yields) {
                    Some(now) => now,
                    None => return,
                },
            };
            match now {
                JoinOutcome::Active(lock) => yields = self.lead(&lock),
                JoinOutcome::Standby(link) => {
                    yields = false;
                    joined = self.follow(&link).map(JoinOutcome::Active);
                }
            }
        }
    }

    fn is_ending(&self) -> bool {
        self.control.ending.load(Ordering::Relaxed)
    }

    fn status(&self) -> MutexGuard<'_, MemberStatus> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_synced(&self) -> bool {
        self.status().synced
    }

    /// `None`: it is to end. Who yields lets the other take the lock first.
    fn join_again(&mut self, yields: bool) -> Option<JoinOutcome> {
        self.status().turn(Role::Joining, None);
        let began = Instant::now();
        while !self.is_ending() {
            let pause = match self.try_join(!yields || began.elapsed() >= GRACE) {
                Ok(Some((joined, seed))) if seed == self.seed => return Some(joined),
                Ok(Some(_)) => {
                    self.cannot_join("the other began without this one: start this one again");
                    REFUSED
                }
                Err(why) => {
                    self.cannot_join(&why.to_string());
                    REFUSED
                }
                Ok(None) => AGAIN,
            };
            let until = Instant::now() + pause;
            while Instant::now() < until && !self.is_ending() {
                std::thread::sleep(AGAIN.min(pause));
            }
        }
        None
    }

    fn cannot_join(&self, why: &str) {
        let mut standing = self.status();
        if standing.error.as_deref() != Some(why) {
            tracing::warn!("{}: this NAT is no standby: {why}", self.settings.socket.display());
            standing.error = Some(why.to_owned());
        }
    }

    // ---- the active NAT

    /// Translate, until the lock is lost or it is handed over: then the other is to have it first.
    fn lead(&mut self, lock: &Lock) -> bool {
        // What came is taken in before a packet is.
        let (began, duty) = (Instant::now(), Arc::clone(&self.duty));
        while !duty.is_caught_up() && began.elapsed() < CATCH_UP {
            std::thread::sleep(AGAIN / 4);
        }
        duty.begin();
        self.status().turn(Role::Active, None);
        let listener = match Listener::at(&self.settings.socket) {
            Ok(listener) => Some(listener),
            Err(why) => {
                tracing::warn!("{}: no standby can join: {why}", self.settings.socket.display());
                None
            }
        };
        let (mut guest, mut other) = (None, None::<StandbyPeer>);
        let mut check = 0;
        while !self.is_ending() {
            let now = self.clock.now();
            if now >= check {
                check = now + self.settings.silence / 3;
                if !lock.is_held() {
                    tracing::warn!("the other NAT of the pair has taken over: this one is silent");
                    return self.step_down(false);
                }
            }
            self.note_takeover();
            self.receive_guests(listener.as_ref(), &mut guest, &mut other);
            if other.as_mut().is_some_and(|other| self.keep(other).is_err()) {
                tracing::warn!(
                    "this NAT was held up for longer than its lease: it is silent, and joins again"
                );
                // The other may be about to take the lock's place: who took it now would translate beside it.
                return self.step_down(true);
            }
            if let Some(gone) = other.take_if(|other| self.carry(other, now).is_err()) {
                let lease = gone.lease;
                // Closed before the clock is read: from here on it does not take this NAT for silent.
                drop(gone);
                if !lock.is_held() {
                    return self.step_down(false);
                }
                if lease.is_over(self.clock.now()) {
                    return self.step_down(true);
                }
                self.leave_standby();
            }
            if self.control.hand_over.swap(false, Ordering::Relaxed)
                && let Some(other) = other.as_mut()
            {
                if self.is_synced() {
                    self.hand_over(other);
                    return self.step_down(true);
                }
                tracing::warn!("not handed over: by now the standby does not know everything");
            }
            if let Some(other) = other.as_mut()
                && self.is_synced()
                && let Some(worker) = self.hung(now)
            {
                tracing::warn!("worker {worker} hangs: the standby goes on");
                self.hand_over(other);
                return self.step_down(true);
            }
            let listening = listener.as_ref().map(|listener| (listener.as_fd(), false));
            let linked = other.as_ref().map(|other| (other.link.as_fd(), other.unsent));
            let fds: ArrayVec<_, 2> = listening.into_iter().chain(linked).collect();
            wait(&fds, TICK);
        }
        if let Some(other) = other.as_mut() {
            self.hand_over(other);
        }
        self.step_down(true)
    }

    fn step_down(&mut self, yields: bool) -> bool {
        self.duty.stop();
        self.status().turn(Role::Joining, None);
        yields
    }

    fn leave_standby(&mut self) {
        self.duty.set_standby(0);
        self.duty.hold(None);
        self.status().turn(Role::Active, None);
        tracing::info!("the pair has no standby");
    }

    /// When the first worker has had work since a takeover, its time is known.
    fn note_takeover(&mut self) {
        let (Some(outage), Some(worked)) = (self.outage, self.duty.first_start()) else { return };
        self.outage = None;
        let since = |then: u64| worked.saturating_sub(then) as f64 / 1e6;
        let cause = outage.cause;
        let takeover = Takeover {
            cause,
            since_heard_ms: since(outage.heard),
            took_ms: since(outage.noticed),
            ago_s: 0.0,
        };
        tracing::info!(
            "took over ({}): {:.1} ms after it was noticed, {:.1} ms after the last message",
            cause.name(),
            takeover.took_ms,
            takeover.since_heard_ms
        );
        let mut standing = self.status();
        standing.takeovers += 1;
        standing.takeover = Some((takeover, Instant::now()));
    }

    /// Whoever comes says who it is first, and is the standby if there is none and it fits.
    fn receive_guests(
        &mut self,
        listener: Option<&Listener>,
        guest: &mut Option<(Link, Instant)>,
        other: &mut Option<StandbyPeer>,
    ) {
        if guest.is_none()
            && let Some(Ok(Some(link))) = listener.map(Listener::accept)
        {
            *guest = Some((link, Instant::now()));
        }
        let Some((link, came)) = guest.take() else { return };
        match link.receive(&mut self.room) {
            Ok(LinkEvent::Packet(len)) => {
                let verdict = self.judge(&link, self.room.get(..len).unwrap_or(&[]), other.is_some());
                match verdict {
                    Ok(pid) => *other = self.accept_standby(link, pid),
                    Err(why) => {
                        // Not into what waits for the standby.
                        let mut refusal = Vec::new();
                        match &why {
                            JoinError::Refused(why) => Message::Refused(why),
                            JoinError::Taken | JoinError::Silent => Message::Taken,
                        }
                        .encode(&mut refusal);
                        let _it_is_gone = link.send(&refusal);
                    }
                }
            }
            Ok(LinkEvent::Nothing) if came.elapsed() < ANSWER => *guest = Some((link, came)),
            _ => {}
        }
    }

    /// Whether it may be the standby: its process, or why not.
    fn judge(&self, link: &Link, bytes: &[u8], taken: bool) -> Result<u32, JoinError> {
        let refused = |why: String| Err(JoinError::Refused(why));
        let Ok(pid) = link.peer() else { return refused("it is another user's".into()) };
        let Ok(Message::Hello(version, terms)) = Message::decode(bytes) else {
            return refused("that is no NAT of this version".into());
        };
        if version != VERSION {
            return refused(format!("its protocol is version {version}, and the active NAT's {VERSION}"));
        }
        match differences(&self.settings.terms, &terms)[..] {
            [] if taken => Err(JoinError::Taken),
            [] => Ok(pid),
            ref keys => refused(format!("the active NAT has it otherwise: {}", keys.join(", "))),
        }
    }

    fn accept_standby(&mut self, link: Link, pid: u32) -> Option<StandbyPeer> {
        let began = self.clock.now();
        let mut lease = Lease::new(self.settings.silence);
        // From here on somebody may take over: it translates for as long as its heartbeats say.
        let until = lease.renew(began, began).ok()?;
        self.duty.hold(Some(until));
        Message::Welcome(self.seed).encode(&mut self.out);
        if !link.send(&self.out).unwrap_or(false) {
            self.duty.hold(None);
            return None;
        }
        self.standbys = self.standbys.wrapping_add(1).max(1);
        self.duty.set_standby(self.standbys);
        self.status().turn(Role::Active, Some(pid));
        tracing::info!("process {pid} is the standby, and is told of everything");
        Some(StandbyPeer { number: self.standbys, link, pid, lease, due: began, unsent: false })
    }

    /// Let the standby know that this NAT is there, when that is due.
    fn keep(&mut self, other: &mut StandbyPeer) -> Result<(), LeaseLapse> {
        let began = self.clock.now();
        if other.lease.is_over(began) {
            return Err(LeaseLapse);
        }
        if began < other.due || other.unsent {
            return Ok(());
        }
        Message::Alive(self.gateway.mac()).encode(&mut self.out);
        if let Ok(true) = other.link.send(&self.out) {
            other.due = began + self.settings.silence / 3;
            self.renew(other, began)?;
        }
        Ok(())
    }

    /// A worker that has no turns any more.
    fn hung(&self, now: u64) -> Option<usize> {
        self.ends.iter().position(|ends| {
            let turned = ends.turned.load(Ordering::Relaxed);
            turned != 0 && now.saturating_sub(turned) >= self.patience
        })
    }

    /// A message was begun then, and is sent.
    fn renew(&self, other: &mut StandbyPeer, began: u64) -> Result<(), LeaseLapse> {
        let until = other.lease.renew(began, self.clock.now())?;
        self.duty.hold(Some(until));
        Ok(())
    }

    /// Send what workers tell, and read what the standby says. An error: it is gone, or reads nothing.
    fn carry(&mut self, other: &mut StandbyPeer, now: u64) -> Result<(), ()> {
        self.send_chunks(other)?;
        // It hangs: before the lease is over it is left alone.
        if now >= other.lease.due() + self.settings.silence / 6 {
            tracing::warn!("process {} does not read what it is told: it is no standby any more", other.pid);
            return Err(());
        }
        loop {
            match other.link.receive(&mut self.room) {
                Ok(LinkEvent::Packet(len)) => match Message::decode(self.room.get(..len).unwrap_or(&[])) {
                    Ok(Message::Synced) => self.note_synced(Some(other.number)),
                    Ok(Message::OutOfSync) => self.note_synced(None),
                    _ => {}
                },
                Ok(LinkEvent::Nothing) => return Ok(()),
                Ok(LinkEvent::Closed) | Err(_) => return Err(()),
            }
        }
    }

    /// This standby knows everything; or the one that is there does not.
    fn note_synced(&self, standby: Option<u32>) {
        self.duty.note_synced(standby.unwrap_or(0));
        self.status().synced = standby.is_some();
    }

    /// Heartbeats go between chunks. A lease that is over by then whoever calls finds out.
    fn send_chunks(&mut self, other: &mut StandbyPeer) -> Result<(), ()> {
        // Who hands over has no lease to keep.
        let keeps = !self.duty.is_flushing();
        if other.unsent {
            let began = self.clock.now();
            if !other.link.send(&self.out).map_err(|_| ())? {
                return Ok(());
            }
            other.unsent = false;
            // It reads what was sent before: the other hears of this NAT by this, too.
            if keeps && self.renew(other, began).is_err() {
                return Ok(());
            }
        }
        for worker in 0..self.ends.len() {
            while let Some(Chunk { standby, bytes, swept, gap, at }) = self.next_told(worker) {
                let is_its = standby == other.number;
                if is_its {
                    let age = self.clock.now().saturating_sub(at);
                    let at = monotonic().saturating_sub(age);
                    Message::Updates { worker: worker as u16, swept, gap, at, bytes: &bytes }
                        .encode(&mut self.out);
                    if gap {
                        self.note_synced(None);
                    }
                }
                let _worker_is_gone = self.ends.get(worker).map(|ends| ends.spare.try_send(bytes));
                if !is_its {
                    continue;
                }
                if !other.link.send(&self.out).map_err(|_| ())? {
                    other.unsent = true;
                    return Ok(());
                }
                if keeps && self.keep(other).is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn next_told(&self, worker: usize) -> Option<Chunk> {
        self.ends.get(worker)?.told.try_recv().ok()
    }

    /// Nothing is translated from here on; what workers have to tell still is told, and then the other goes on.
    fn hand_over(&mut self, other: &mut StandbyPeer) {
        let ending = self.is_ending();
        let workers = self.ends.len() - usize::from(self.hung(self.clock.now()).is_some());
        self.duty.hand_over();
        let began = Instant::now();
        while began.elapsed() < CATCH_UP {
            let done = ending || self.duty.flushed() >= workers;
            if self.send_chunks(other).is_err() || (done && !other.unsent) {
                break;
            }
            std::thread::sleep(AGAIN / 4);
        }
        let _gone = self.send_chunks(other);
        if other.unsent {
            return;
        }
        Message::HandOver.encode(&mut self.out);
        let _gone = other.link.send(&self.out);
    }
}

/// Wait until one of them has something, or has room where that is wanted, but not longer.
fn wait(fds: &[(BorrowedFd<'_>, bool)], most: Duration) {
    let flags = |room| if room { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let mut fds: ArrayVec<_, 2> =
        fds.iter().take(2).map(|(fd, room)| PollFd::from_borrowed_fd(*fd, flags(*room))).collect();
    let most = Timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().into() };
    let _nothing_came = poll(&mut fds, Some(&most));
}

/// The machine's clock, which both processes read, ns.
fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[cfg(test)]
#[path = "member_tests.rs"]
mod tests;
