//! What all connections share: the run, who writes, who watches.

use crate::log::Tail;
use crate::rpc::{self, Error, NOT_WRITER};
use crate::run::Run;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use traffic::capture::Capture;

/// A writer that is silent for so long has lost its lease: the run stops sending.
pub const LEASE: Duration = Duration::from_secs(3);

/// Number of a connection.
pub type Session = u64;

/// One subscription: who, its number, and where lines go.
struct Watcher {
    session: Session,
    number: u64,
    lines: SyncSender<String>,
}

struct Writer {
    session: Session,
    heard: Instant,
    /// We are at work on a call of its: the silence is ours.
    busy: bool,
    /// Its connection is gone: another may take over, before the lease lapses.
    gone: bool,
}

impl Writer {
    fn lapsed(&self) -> bool {
        !self.busy && self.heard.elapsed() >= LEASE
    }
}

/// See the module's own words.
pub struct Core {
    /// The last log entries.
    pub log: Tail,
    /// Set when the daemon is to end.
    pub ending: AtomicBool,
    run: Mutex<Option<Arc<Run>>>,
    capture: Mutex<Option<Capture>>,
    writer: Mutex<Option<Writer>>,
    watchers: Mutex<Vec<Watcher>>,
    numbers: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // what a panicking thread left half done is still the best there is
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    /// Nothing loaded, nobody there.
    pub fn new(log: Tail) -> Arc<Self> {
        Arc::new(Self {
            log,
            ending: AtomicBool::new(false),
            run: Mutex::new(None),
            capture: Mutex::new(None),
            writer: Mutex::new(None),
            watchers: Mutex::new(Vec::new()),
            numbers: AtomicU64::new(1),
        })
    }

    /// A number that was never given before.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The run, if one is loaded.
    pub fn run(&self) -> Option<Arc<Run>> {
        lock(&self.run).clone()
    }

    /// Put another run in its place.
    pub fn set_run(&self, run: Arc<Run>) {
        *lock(&self.run) = Some(run);
    }

    /// The capture, if there is or was one.
    pub fn capture(&self) -> MutexGuard<'_, Option<Capture>> {
        lock(&self.capture)
    }

    // ---- the writer ----

    /// Make `session` the writer, unless another is.
    pub fn acquire(&self, session: Session) -> Result<(), Error> {
        let mut writer = lock(&self.writer);
        match &*writer {
            Some(w) if w.session != session && !w.gone && !w.lapsed() => Err(Error::new(
                NOT_WRITER,
                "ND-104-12",
                "another connection is the writer",
                "Wait until it is done, or watch only",
            )),
            _ => {
                *writer = Some(Writer { session, heard: Instant::now(), busy: false, gone: false });
                Ok(())
            }
        }
    }

    /// Let another write.
    pub fn release(&self, session: Session) {
        lock(&self.writer).take_if(|w| w.session == session);
    }

    /// Fail unless `session` is the writer; a sign of life if it is.
    pub fn as_writer(&self, session: Session) -> Result<(), Error> {
        match &mut *lock(&self.writer) {
            Some(w) if w.session == session => {
                w.heard = Instant::now();
                Ok(())
            }
            _ => Err(Error::new(
                NOT_WRITER,
                "ND-104-12",
                "this connection is not the writer",
                "Call control.acquire first",
            )),
        }
    }

    /// Any request of the writer renews its lease.
    pub fn heard(&self, session: Session) {
        if let Some(w) = lock(&self.writer).as_mut().filter(|w| w.session == session) {
            (w.heard, w.busy) = (Instant::now(), true);
        }
    }

    /// The writer's call is answered: from now on the silence is its own.
    pub fn served(&self, session: Session) {
        if let Some(w) = lock(&self.writer).as_mut().filter(|w| w.session == session) {
            (w.heard, w.busy) = (Instant::now(), false);
        }
    }

    /// Stop a run whose writer has fallen silent. Call a few times a second.
    pub fn watch_lease(&self) {
        let lapsed = lock(&self.writer).take_if(|w| w.lapsed()).is_some();
        if lapsed && let Some(run) = self.run().filter(|r| r.is_active()) {
            tracing::warn!("the controller has been silent for 3 s: the run stops sending");
            run.stop(Some("lease"));
        }
    }

    // ---- those who watch ----

    /// Send `session` what happens from now on.
    pub fn subscribe(&self, session: Session, lines: SyncSender<String>) -> u64 {
        let number = self.number();
        lock(&self.watchers).push(Watcher { session, number, lines });
        number
    }

    /// No longer.
    pub fn unsubscribe(&self, session: Session, number: u64) -> bool {
        let mut watchers = lock(&self.watchers);
        let before = watchers.len();
        watchers.retain(|w| !(w.session == session && w.number == number));
        watchers.len() < before
    }

    /// A connection has gone. If it was the writer's the lease runs on, for another to take over.
    pub fn forget(&self, session: Session) {
        if let Some(w) = lock(&self.writer).as_mut().filter(|w| w.session == session) {
            w.gone = true;
        }
        lock(&self.watchers).retain(|w| w.session != session);
    }

    /// Tell all who watch. One who does not keep up misses it; nobody waits for him.
    pub fn publish(&self, method: &str, params: &Value) {
        let watchers = lock(&self.watchers);
        if watchers.is_empty() {
            return;
        }
        let line = rpc::notification(method, params);
        for watcher in watchers.iter() {
            let _full_or_gone = watcher.lines.try_send(line.clone());
        }
    }
}
