//! The loop that carries frames from one end to the other when their time has come.

use super::frame_store::{FrameRead, FrameStore, Piece};
use super::link_scheduling::{IdleAction, LinkScheduling};
use super::memory::Supplier;
use super::{Error, Tap, TapLocation};
use crate::live::{Direction, LiveLink};
use crate::packet_store::PacketStore;
use crate::path::Path;
use crate::spec::LinkSpec;
use engine::Clock;
use protocol::unit::Interval;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// How a link is carried.
#[derive(Debug, Clone)]
pub struct Options {
    /// A thread for each direction, instead of one for both.
    pub two_threads: bool,
    /// Cores that the threads are pinned to, one each, and stay awake on as long as anything is under way; none: the
    /// kernel chooses.
    pub cores: Vec<usize>,
    /// Stay awake this long before something is to leave, while that takes no more than a part of the time: the
    /// kernel wakes late.
    pub spin: Interval,
    /// Run before all that is not real-time itself, where that is allowed (CAP_SYS_NICE) and as long as it leaves
    /// time for others: for exact delays where there are fewer cores than work.
    pub realtime: bool,
    /// Frames of more than 2 KiB that each direction can hold, 64 KiB each.
    pub large: usize,
    /// Smaller frames that each direction can hold.
    pub small: usize,
}

impl Default for Options {
    fn default() -> Self {
        let spin = Interval(Duration::from_micros(60));
        Self { two_threads: false, cores: Vec::new(), spin, realtime: true, large: 4096, small: 32_768 }
    }
}

/// Parts of super-segments that can be on their way beyond what fills all buffers.
const PARTS: usize = 65_536;
/// Frames read from one side before the other is looked at.
const READ_BURST: usize = 4;
/// Longest sleep: a stop or a change of parameters takes effect after no more than that.
const NAP: u64 = 20_000_000;

/// Frames of one direction.
struct LinkDirection {
    from: Arc<Tap>,
    to: Arc<Tap>,
    path: Path<Piece>,
    store: FrameStore,
}

impl LinkDirection {
    /// Read some frames, write those that are due. Says whether there was anything.
    fn forward(&mut self, clock: &Clock) -> Result<bool, Error> {
        let mut worked = false;
        let mut now = clock.now();
        self.path.advance(now, &mut self.store);
        for _ in 0..READ_BURST {
            worked |= self.release(now);
            match self.store.receive(&*self.from) {
                Ok(FrameRead::Nothing) => break,
                Ok(FrameRead::Piece(piece)) => {
                    // Read after the frame: one that came while this thread was preempted would leave early by as much.
                    now = clock.now();
                    self.path.offer(now, piece, &mut self.store);
                }
                Ok(FrameRead::NoRoom(burst)) => {
                    now = clock.now();
                    self.path.no_room(burst);
                }
                Err(why) => return Err(self.port_error(why)),
            }
            worked = true;
        }
        worked |= self.release(now);
        Ok(worked)
    }

    fn port_error(&self, why: Errno) -> Error {
        Error::Gone { name: self.from.name().into(), why: why.to_string() }
    }

    fn release(&mut self, now: u64) -> bool {
        let mut worked = false;
        while let Some(piece) = self.path.pop_due(now, &mut self.store) {
            worked = true;
            let burst = self.store.burst(&piece);
            if self.store.send(piece, &*self.to).is_err() {
                // The other end is down, or takes no such frame.
                self.path.not_taken(burst.packets.into(), burst.total());
            }
        }
        worked
    }
}

/// A link between two hosts, at work. Dropping it takes the interfaces away.
#[derive(Debug)]
pub struct Link {
    live: Arc<LiveLink>,
    ends: [Arc<Tap>; 2],
    stop: Arc<AtomicBool>,
    ended: Arc<OnceLock<Error>>,
    threads: Vec<JoinHandle<()>>,
}

impl Link {
    /// Make both ends and carry frames between them. `spec` must have been [checked](LinkSpec::check).
    pub fn start(
        a: &TapLocation,
        b: &TapLocation,
        spec: &LinkSpec,
        options: &Options,
    ) -> Result<Self, Error> {
        let ends = [Arc::new(Tap::open(a)?), Arc::new(Tap::open(b)?)];
        let memory = |why: std::io::Error| Error::System {
            what: "memory for frames on their way",
            why: why.to_string(),
        };
        let mut directions = Vec::new();
        let live = Arc::new(LiveLink::new(spec));
        let supplier = Supplier::start().map_err(memory)?;
        for (i, way) in [Direction::AToB, Direction::BToA].into_iter().enumerate() {
            let store = FrameStore::new(options.large, options.small, &supplier).map_err(memory)?;
            let capacity = options.large + options.small + PARTS;
            let path = Path::new(live.direction(way).clone(), capacity);
            directions.push(LinkDirection { from: ends[i].clone(), to: ends[1 - i].clone(), path, store });
        }
        let mut link = Self { live, ends, stop: Arc::default(), ended: Arc::default(), threads: Vec::new() };
        let spin = options.spin.ns();
        let shares: Vec<Vec<LinkDirection>> = if options.two_threads {
            directions.into_iter().map(|direction| vec![direction]).collect()
        } else {
            vec![directions]
        };
        for (i, mut directions) in shares.into_iter().enumerate() {
            let (stop, ended) = (link.stop.clone(), link.ended.clone());
            let (core, realtime) = (options.cores.get(i).copied(), options.realtime);
            let thread = std::thread::Builder::new().name(format!("impair{i}")).spawn(move || {
                if let Err(why) = carry(&mut directions, spin, core, realtime, &stop) {
                    tracing::warn!(%why, "the link ended");
                    let _first = ended.set(why);
                    stop.store(true, Ordering::Relaxed);
                }
            });
            let thread =
                thread.map_err(|why| Error::System { what: "a thread for the link", why: why.to_string() });
            link.threads.push(thread?);
        }
        Ok(link)
    }

    /// The hand on it: parameters and counters.
    pub fn live(&self) -> &Arc<LiveLink> {
        &self.live
    }

    /// Frames, a to b and b to a, that the kernel dropped as they were not fetched in time: they are in no
    /// other count. Not asked for: such a run is invalid.
    pub fn missed_frames(&self) -> [u64; 2] {
        [self.ends[0].missed_frames().unwrap_or(0), self.ends[1].missed_frames().unwrap_or(0)]
    }

    /// The two ends.
    pub fn ends(&self) -> [&Tap; 2] {
        [&self.ends[0], &self.ends[1]]
    }

    /// Why it carries nothing any more, if so.
    pub fn end_reason(&self) -> Option<&Error> {
        self.ended.get()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.threads.drain(..).map(JoinHandle::join).any(|joined| joined.is_err()) {
            tracing::error!("a thread of the link panicked");
        }
    }
}

fn carry(
    directions: &mut [LinkDirection],
    spin: u64,
    core: Option<usize>,
    realtime: bool,
    stop: &AtomicBool,
) -> Result<(), Error> {
    let system = |what| move |why: Errno| Error::System { what, why: why.to_string() };
    if let Some(core) = core {
        if core >= rustix::thread::CpuSet::MAX_CPU {
            return Err(system("a core for the link")(Errno::INVAL));
        }
        let mut set = rustix::thread::CpuSet::new();
        set.set(core);
        rustix::thread::sched_setaffinity(None, &set).map_err(system("a core for the link"))?;
    }
    // Sleeps end when they should, not up to 50 µs later. Where this is refused they do that.
    let _default = rustix::thread::set_current_timer_slack(NonZero::new(1));
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("waiting for frames"))?;
    for direction in directions.iter() {
        let frames = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        epoll::add(&epoll, &*direction.from, frames.0, frames.1).map_err(system("waiting for frames"))?;
    }
    let clock = Clock::get();
    let mut events = Vec::with_capacity(2);
    let mut scheduling =
        if core.is_some() { LinkScheduling::own_core() } else { LinkScheduling::new(spin, realtime) };
    while !stop.load(Ordering::Relaxed) {
        let mut worked = false;
        for direction in directions.iter_mut() {
            worked |= direction.forward(&clock)?;
        }
        let now = clock.now();
        if worked {
            scheduling.busy(now);
            continue;
        }
        let next = directions.iter().map(|direction| direction.path.next_at()).min().unwrap_or(u64::MAX);
        let nap = match scheduling.idle(now, next.saturating_sub(now)) {
            IdleAction::Nap(nap) => nap,
            IdleAction::Yield => {
                std::thread::yield_now();
                continue;
            }
            IdleAction::Spin => {
                std::hint::spin_loop();
                continue;
            }
        };
        let nap = Timespec { tv_sec: 0, tv_nsec: nap.min(NAP) as _ };
        events.clear();
        match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&nap)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(why) => return Err(system("waiting for frames")(why)),
        }
    }
    Ok(())
}
