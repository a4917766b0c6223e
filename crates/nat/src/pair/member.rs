//! The thread of a NAT that is one of a pair: it holds the lock or the connection, and carries between the socket and the workers.

use super::duty::Duty;
use super::lease::{Lapsed, Lease, Watch};
use super::link::{Link, Listener, Lock, Received};
use super::message::{LONGEST, Message, Terms, VERSION, differences};
use super::view::{Cause, Counters, Role, Standing, Takeover};
use super::worker::{Chunk, Ends};
use super::{Orders, TICK};
use crate::neighbours::Neighbour;
use arrayvec::ArrayVec;
use engine::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
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
pub enum Joined {
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
struct Other {
    link: Link,
    pid: u32,
    lease: Lease,
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
    pub standing: Arc<Mutex<Standing>>,
    pub counters: Arc<Counters>,
    pub orders: Arc<Orders>,
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
            settings,
            clock: Clock::get(),
            duty,
            gateway,
            ends,
            seed,
            standing: Arc::new(Mutex::new(Standing::new(Role::Joining))),
            counters: Arc::default(),
            orders: Arc::default(),
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
    pub fn join_first(&mut self) -> Result<Joined, String> {
        let began = Instant::now();
        loop {
            match self.try_join(true) {
                Ok(Some((joined, seed))) => {
                    self.seed = seed;
                    return Ok(joined);
                }
                Ok(None) if began.elapsed() < ANSWER => std::thread::sleep(AGAIN),
                Ok(None) => return Err("the active NAT does not answer".into()),
                Err(why) => return Err(why),
            }
        }
    }

    /// Take the lock if that is wanted, or connect to who has it. `None`: neither can be now.
    fn try_join(&mut self, lock: bool) -> Result<Option<(Joined, [u8; 32])>, String> {
        let socket = &self.settings.socket;
        if lock {
            let mut path = socket.as_os_str().to_owned();
            path.push(".lock");
            let taken = Lock::take(&PathBuf::from(path));
            if let Some(lock) = taken.map_err(|why| format!("the lock beside it: {why}"))? {
                return Ok(Some((Joined::Active(lock), self.seed)));
            }
        }
        let Ok(link) = Link::connect(socket) else { return Ok(None) };
        link.peer().map_err(|_| "it is another user's".to_owned())?;
        Message::Hello(VERSION, self.settings.terms.clone()).encode(&mut self.out);
        if !link.send(&self.out).unwrap_or(false) {
            return Ok(None);
        }
        let began = Instant::now();
        while began.elapsed() < ANSWER && !self.is_ending() {
            match link.receive(&mut self.room) {
                Ok(Received::Packet(len)) => {
                    return match Message::decode(self.room.get(..len).unwrap_or(&[])) {
                        Ok(Message::Welcome(seed)) => Ok(Some((Joined::Standby(link), seed))),
                        Ok(Message::Refused(why)) => Err(why.to_owned()),
                        _ => Err("who listens there is no NAT of this version".into()),
                    };
                }
                Ok(Received::Nothing) => wait(&[link.as_fd()], TICK),
                Ok(Received::Closed) | Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Be what it can be, until it is to end.
    pub fn run(mut self, first: Joined) {
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
                Joined::Active(lock) => yields = self.lead(&lock),
                Joined::Standby(link) => {
                    yields = false;
                    joined = self.follow(&link).map(Joined::Active);
                }
            }
        }
    }

    fn is_ending(&self) -> bool {
        self.orders.ending.load(Ordering::Relaxed)
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: it is to end. Who yields lets the other take the lock first.
    fn join_again(&mut self, yields: bool) -> Option<Joined> {
        self.standing().turn(Role::Joining, None);
        let began = Instant::now();
        while !self.is_ending() {
            let pause = match self.try_join(!yields || began.elapsed() >= GRACE) {
                Ok(Some((joined, seed))) if seed == self.seed => return Some(joined),
                Ok(Some(_)) => {
                    self.cannot_join("the other began without this one: start this one again");
                    REFUSED
                }
                Err(why) => {
                    self.cannot_join(&why);
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
        let mut standing = self.standing();
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
        self.standing().turn(Role::Active, None);
        let listener = match Listener::at(&self.settings.socket) {
            Ok(listener) => Some(listener),
            Err(why) => {
                tracing::warn!("{}: no standby can join: {why}", self.settings.socket.display());
                None
            }
        };
        let (mut guest, mut other) = (None, None::<Other>);
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
                // What the other has done by now the lock says; to be sure it is asked for again.
                tracing::warn!(
                    "this NAT was held up for longer than its lease: it is silent, and joins again"
                );
                return self.step_down(false);
            }
            let gone = other.as_mut().is_some_and(|other| self.carry(other, now).is_err());
            if gone {
                if !lock.is_held() {
                    return self.step_down(false);
                }
                other = None;
                self.leave_standby();
            }
            if self.orders.hand_over.swap(false, Ordering::Relaxed)
                && let Some(other) = other.as_mut()
            {
                self.hand_over(other);
                return self.step_down(true);
            }
            let listening = listener.as_ref().map(AsFd::as_fd);
            let linked = other.as_ref().map(|other| other.link.as_fd());
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
        self.standing().turn(Role::Joining, None);
        yields
    }

    fn leave_standby(&mut self) {
        self.duty.tell(0);
        self.duty.hold(None);
        self.standing().turn(Role::Active, None);
        tracing::info!("the pair has no standby");
    }

    /// When the first worker has had work since a takeover, its time is known.
    fn note_takeover(&mut self) {
        let (Some(outage), Some(worked)) = (self.outage, self.duty.worked()) else { return };
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
        let mut standing = self.standing();
        standing.takeovers += 1;
        standing.takeover = Some((takeover, Instant::now()));
    }

    /// Whoever comes says who it is first, and is the standby if there is none and it fits.
    fn receive_guests(
        &mut self,
        listener: Option<&Listener>,
        guest: &mut Option<(Link, Instant)>,
        other: &mut Option<Other>,
    ) {
        if guest.is_none()
            && let Some(Ok(Some(link))) = listener.map(Listener::accept)
        {
            *guest = Some((link, Instant::now()));
        }
        let Some((link, came)) = guest.take() else { return };
        match link.receive(&mut self.room) {
            Ok(Received::Packet(len)) => {
                let verdict = self.judge(&link, self.room.get(..len).unwrap_or(&[]), other.is_some());
                match verdict {
                    Ok(pid) => *other = self.welcome(link, pid),
                    Err(why) => {
                        Message::Refused(&why).encode(&mut self.out);
                        let _it_is_gone = link.send(&self.out);
                    }
                }
            }
            Ok(Received::Nothing) if came.elapsed() < ANSWER => *guest = Some((link, came)),
            _ => {}
        }
    }

    /// Whether it may be the standby: its process, or why not.
    fn judge(&self, link: &Link, bytes: &[u8], taken: bool) -> Result<u32, String> {
        let pid = link.peer().map_err(|_| "it is another user's".to_owned())?;
        let Ok(Message::Hello(version, terms)) = Message::decode(bytes) else {
            return Err("that is no NAT of this version".into());
        };
        if version != VERSION {
            return Err(format!("its protocol is version {version}, and the active NAT's {VERSION}"));
        }
        match differences(&self.settings.terms, &terms)[..] {
            [] if taken => Err("the active NAT has a standby".into()),
            [] => Ok(pid),
            ref keys => Err(format!("the active NAT has it otherwise: {}", keys.join(", "))),
        }
    }

    fn welcome(&mut self, link: Link, pid: u32) -> Option<Other> {
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
        self.duty.tell(self.standbys);
        self.standing().turn(Role::Active, Some(pid));
        tracing::info!("process {pid} is the standby, and is told of everything");
        Some(Other { link, pid, lease, unsent: false })
    }

    /// Let the standby know that this NAT is there, when that is due.
    fn keep(&mut self, other: &mut Other) -> Result<(), Lapsed> {
        let began = self.clock.now();
        if other.lease.is_over(began) {
            return Err(Lapsed);
        }
        if began < other.lease.due() || other.unsent {
            return Ok(());
        }
        Message::Alive(self.gateway.mac()).encode(&mut self.out);
        if let Ok(true) = other.link.send(&self.out) {
            let until = other.lease.renew(began, self.clock.now())?;
            self.duty.hold(Some(until));
        }
        Ok(())
    }

    /// Send what workers tell, and read what the standby says. An error: it is gone, or reads nothing.
    fn carry(&mut self, other: &mut Other, now: u64) -> Result<(), ()> {
        self.send_chunks(other)?;
        // It hangs: before the lease is over it is left alone.
        if now >= other.lease.due() + self.settings.silence / 6 {
            tracing::warn!("process {} does not read what it is told: it is no standby any more", other.pid);
            return Err(());
        }
        loop {
            match other.link.receive(&mut self.room) {
                Ok(Received::Packet(len)) => {
                    if Message::decode(self.room.get(..len).unwrap_or(&[])) == Ok(Message::Synced) {
                        self.standing().synced = true;
                    }
                }
                Ok(Received::Nothing) => return Ok(()),
                Ok(Received::Closed) | Err(_) => return Err(()),
            }
        }
    }

    fn send_chunks(&mut self, other: &mut Other) -> Result<(), ()> {
        if other.unsent {
            match other.link.send(&self.out) {
                Ok(true) => other.unsent = false,
                Ok(false) => return Ok(()),
                Err(_) => return Err(()),
            }
        }
        for (worker, ends) in self.ends.iter().enumerate() {
            while let Ok(Chunk { bytes, swept, at }) = ends.told.try_recv() {
                let age = self.clock.now().saturating_sub(at);
                let at = monotonic().saturating_sub(age);
                Message::Updates { worker: worker as u16, swept, at, bytes: &bytes }.encode(&mut self.out);
                let _worker_is_gone = ends.spare.try_send(bytes);
                match other.link.send(&self.out) {
                    Ok(true) => {}
                    Ok(false) => {
                        other.unsent = true;
                        return Ok(());
                    }
                    Err(_) => return Err(()),
                }
            }
        }
        Ok(())
    }

    /// Nothing is translated from here on; what workers have to tell still is told, and then the other goes on.
    fn hand_over(&mut self, other: &mut Other) {
        let ending = self.is_ending();
        self.duty.hand_over();
        let began = Instant::now();
        while began.elapsed() < CATCH_UP {
            let done = ending || self.duty.flushed() >= self.ends.len();
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

    // ---- the standby

    /// Take in what the active NAT tells, until it is gone; with the lock, if this NAT has taken it by then.
    fn follow(&mut self, link: &Link) -> Option<Lock> {
        let now = self.clock.now();
        let mut watch = Watch::new(self.settings.silence, now);
        let mut swept = BTreeSet::new();
        self.standing().turn(Role::Standby, link.peer().ok());
        tracing::info!("standby of process {}", link.peer().unwrap_or(0));
        while !self.is_ending() {
            for _ in 0..BURST {
                let received = link.receive(&mut self.room);
                let now = self.clock.now();
                let cause = match received {
                    Ok(Received::Packet(len)) => {
                        watch.hear(now);
                        match self.hear(len, &mut swept) {
                            Ok(()) => continue,
                            Err(cause) => cause,
                        }
                    }
                    Ok(Received::Nothing) => break,
                    Ok(Received::Closed) | Err(_) => Cause::Closed,
                };
                self.outage = Some(Outage { cause, heard: watch.heard(), noticed: now });
                return None;
            }
            if !swept.is_empty() {
                self.tell_synced(link, &swept);
            }
            let now = self.clock.now();
            if watch.is_silent(now) && matches!(link.receive(&mut self.room), Ok(Received::Nothing)) {
                self.outage = Some(Outage { cause: Cause::Silent, heard: watch.heard(), noticed: now });
                return self.steal();
            }
            wait(&[link.as_fd()], 2 * TICK);
        }
        None
    }

    /// The other hangs: its lease is over. The link is closed only after this, so that it sees the lock's loss first.
    fn steal(&mut self) -> Option<Lock> {
        let mut path = self.settings.socket.as_os_str().to_owned();
        path.push(".lock");
        match Lock::steal(&PathBuf::from(path)) {
            Ok(lock) => Some(lock),
            Err(why) => {
                self.cannot_join(&format!("the lock of a silent NAT cannot be taken: {why}"));
                None
            }
        }
    }

    /// A message of the active NAT. An error: it goes no further.
    fn hear(&mut self, len: usize, swept: &mut BTreeSet<u16>) -> Result<(), Cause> {
        match Message::decode(self.room.get(..len).unwrap_or(&[])) {
            Ok(Message::Alive(gateway)) => {
                if let Some(mac) = gateway {
                    self.gateway.set(mac);
                }
            }
            Ok(Message::Updates { worker, swept: ends, at, bytes }) => {
                let age = monotonic().saturating_sub(at);
                let at = self.clock.now().saturating_sub(age);
                let delivered = self.ends.get(usize::from(worker)).is_some_and(|to| {
                    let mut chunk = to.used.try_recv().unwrap_or_default();
                    chunk.clear();
                    chunk.extend(bytes);
                    self.duty.note_queued();
                    let sent = to.heard.try_send(Chunk { bytes: chunk, swept: ends, at });
                    if sent.is_err() {
                        self.duty.note_taken();
                    }
                    sent.is_ok()
                });
                self.counters.dropped.fetch_add(u64::from(!delivered), Ordering::Relaxed);
                if delivered && ends {
                    swept.insert(worker);
                }
            }
            Ok(Message::HandOver) => return Err(Cause::HandedOver),
            Ok(_) | Err(_) => {
                self.counters.broken.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// When all workers have been told of everything, and have taken it in, the other is to know.
    fn tell_synced(&mut self, link: &Link, swept: &BTreeSet<u16>) {
        if swept.len() < self.ends.len() || !self.duty.is_caught_up() || self.standing().synced {
            return;
        }
        Message::Synced.encode(&mut self.out);
        if let Ok(true) = link.send(&self.out) {
            self.standing().synced = true;
        }
    }
}

/// Wait until one of them has something, but not longer.
fn wait(fds: &[BorrowedFd<'_>], most: Duration) {
    let mut fds: ArrayVec<_, 2> =
        fds.iter().take(2).map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let most = Timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().into() };
    let _nothing_came = poll(&mut fds, Some(&most));
}

/// The machine's clock, which both processes read, ns.
fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
