//! Two NATs of one machine as a pair: one translates, the other knows its sessions and takes over.
//!
//! ```text
//!  active   worker ─chunks─▶ thread ═══ socket ═══▶ thread ─chunks─▶ worker   standby
//!              ▲                │      heartbeats      │                ▲
//!              └──── Duty ◀─────┘  lock beside the     └────▶ Duty ─────┘
//!                                       socket
//! ```
//! Who has the lock is active and listens; the other connects, and is told. When the connection ends the standby takes the lock, which
//! the kernel has given back if the other died. When nothing is heard it takes the lock's place: by then the other's [`lease`] is over.
//! Who comes back is the standby. Nothing on the packet path waits for any of this: it reads one word of [`Duty`].

mod duty;
mod lease;
mod link;
mod member;
mod message;
#[cfg(test)]
mod tests;
mod view;
mod worker;

pub use duty::Duty;
pub use message::Terms;
pub use view::PairView;
pub use worker::SessionSync;

use self::member::{Member, Settings};
use self::view::{Counters, MemberStatus, Role};
use nat_core::neighbours::Neighbour;
use protocol::problem::Problem;
use protocol::unit::Interval;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of a socket's path at most, with room for the names of the lock.
const PATH: usize = 96;
/// The least and the longest silence after which a standby takes over.
const SILENCE: std::ops::RangeInclusive<u64> = 150_000_000..=60_000_000_000;

/// Another NAT of this machine that takes over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PairOptions {
    /// The socket, from the root on, by which the two find each other; its folder is there, and the lock is beside it.
    pub socket: String,
    /// The standby takes over when the active NAT is silent for so long, 150ms to 60s; at once when its process dies. Default 300ms.
    #[serde(default = "silence", skip_serializing_if = "is_default_silence")]
    pub silence: Interval,
}

fn silence() -> Interval {
    Interval::ms(300)
}

fn is_default_silence(said: &Interval) -> bool {
    *said == silence()
}

impl PairOptions {
    /// What is wrong with it. Keys are those of the options.
    pub fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !self.socket.starts_with('/') || self.socket.len() > PATH {
            let what = format!("{:?} is no path from the root on of at most {PATH} bytes", self.socket);
            problems.push(Problem::new("socket", what, "Use one like /run/netdyno/cgn.pair"));
        }
        if !SILENCE.contains(&self.silence.ns()) {
            let what = format!("a silence of {} is not between 150ms and 60s", self.silence);
            problems.push(Problem::new("silence", what, "Use 150ms to 60s"));
        }
        problems
    }
}

/// A NAT that is one of a pair.
#[derive(Debug)]
pub struct Pair {
    /// Whether it translates.
    pub duty: Arc<Duty>,
    /// By which workers divide subscribers: as the other does.
    pub seed: [u8; 32],
    socket: String,
    counters: Arc<Counters>,
    standing: Arc<Mutex<MemberStatus>>,
    control: Arc<PairControl>,
    workers: Mutex<Vec<Option<SessionSync>>>,
    thread: Option<JoinHandle<()>>,
    /// Of workers that have ended: what their collectors still get does not keep the standby waiting.
    logs: Mutex<Vec<Box<dyn Any + Send>>>,
}

/// What the thread is told.
#[derive(Debug, Default)]
struct PairControl {
    ending: AtomicBool,
    hand_over: AtomicBool,
}

/// A key of the options that both have to have alike, as [`Pair::begin`] compares it.
pub fn term(value: &impl Serialize) -> u32 {
    crc32fast::hash(serde_json::to_string(value).unwrap_or_default().as_bytes())
}

/// Why a NAT is neither active nor the standby.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// It is paused, or ends just now.
    #[error("the active NAT does not answer")]
    Silent,
    /// There are two already.
    #[error("the active NAT has a standby")]
    Taken,
    /// What does not get better by itself.
    #[error("{0}")]
    Refused(String),
}

impl JoinError {
    /// Whether another try may succeed, without a change of the configuration.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Silent | Self::Taken)
    }
}

impl Pair {
    /// Become active, or the standby of who is: with so many workers, and what both have to have alike. An error says why it is neither.
    pub fn begin(
        options: &PairOptions,
        terms: Terms,
        workers: usize,
        seed: [u8; 32],
        (duty, gateway): (Arc<Duty>, Arc<Neighbour>),
    ) -> Result<Self, JoinError> {
        duty.stop();
        let (counters, control) = (Arc::<Counters>::default(), Arc::<PairControl>::default());
        let made = (0..workers).map(|_| SessionSync::new(Arc::clone(&duty), Arc::clone(&counters)));
        let (ends_of_workers, ends): (Vec<_>, Vec<_>) = made.unzip();
        let standing = Arc::new(Mutex::new(MemberStatus::new(Role::Joining)));
        let settings =
            Settings { socket: PathBuf::from(&options.socket), silence: options.silence.ns(), terms };
        let mut member = Member::new(settings, (Arc::clone(&duty), gateway), ends, seed);
        member.standing = Arc::clone(&standing);
        member.counters = Arc::clone(&counters);
        member.control = Arc::clone(&control);
        let joined = member.join_first()?;
        let seed = member.seed();
        let thread = std::thread::Builder::new().name("nat-pair".into()).spawn(move || member.run(joined));
        let thread = Some(thread.map_err(|why| JoinError::Refused(why.to_string()))?);
        let workers = Mutex::new(ends_of_workers.into_iter().map(Some).collect());
        Ok(Self {
            duty,
            seed,
            socket: options.socket.clone(),
            counters,
            standing,
            control,
            workers,
            thread,
            logs: Mutex::default(),
        })
    }

    /// The end of this worker, once.
    pub fn worker(&self, replica: usize) -> Option<SessionSync> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).get_mut(replica)?.take()
    }

    /// The log of a worker that has ended, which is closed: it is let go of when the standby goes on.
    pub fn keep_log(&self, log: impl Any + Send) {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(log));
    }

    /// As it is shown.
    pub fn view(&self) -> PairView {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).view(&self.socket, &self.counters)
    }

    /// Let the standby go on, and be the standby then. An error says why that cannot be now.
    pub fn hand_over(&self) -> Result<(), &'static str> {
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        match (standing.role, standing.synced) {
            (Role::Active, true) => {
                self.control.hand_over.store(true, Ordering::Relaxed);
                Ok(())
            }
            (Role::Active, false) => Err("there is no standby that knows everything"),
            _ => Err("this NAT is not the active one"),
        }
    }
}

impl Drop for Pair {
    /// Workers have ended: the standby is told, and goes on.
    fn drop(&mut self) {
        self.control.ending.store(true, Ordering::Relaxed);
        self.duty.stop();
        if let Some(thread) = self.thread.take() {
            let _it_panicked = thread.join();
        }
    }
}

/// Time between two looks of the thread at what workers tell.
const TICK: Duration = Duration::from_millis(2);
