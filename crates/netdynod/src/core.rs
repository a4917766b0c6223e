//! What all connections share: the run, the capture, who writes, who watches.

use crate::lease::{LEASE, Lease};
use crate::links::Links;
use crate::log::Tail;
use crate::rpc::{BAD_PROFILE, Error, NOT_WRITER};
use crate::run::Run;
use crate::watchers::Watchers;
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use traffic::Trial;
use traffic::capture::{self, Capture};

/// Number of a connection.
pub type Session = u64;

/// See the module's own words.
pub struct Core {
    /// The last log entries.
    pub log: Tail,
    /// Set when the daemon is to end.
    pub ending: AtomicBool,
    /// Those who watch.
    pub watchers: Arc<Watchers>,
    /// Impaired links.
    pub links: Links,
    run: Mutex<Option<Arc<Run>>>,
    capture: Mutex<Option<Capture>>,
    lease: Mutex<Lease>,
    sessions: AtomicU64,
    runs: AtomicU64,
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
            watchers: Arc::default(),
            links: Links::default(),
            run: Mutex::default(),
            capture: Mutex::default(),
            lease: Mutex::default(),
            sessions: AtomicU64::new(1),
            runs: AtomicU64::new(1),
        })
    }

    /// A number for a new connection.
    pub fn session(&self) -> Session {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }

    /// A connection has gone. If it was the writer's the lease runs on, for another to take over.
    pub fn forget(&self, session: Session) {
        self.leave(session);
        self.watchers.forget(session);
    }

    // ---- what is there ----

    /// The run, if one is loaded.
    pub fn run(&self) -> Option<Arc<Run>> {
        lock(&self.run).clone()
    }

    /// Put a run of `profile` in the place of one that is not under way, and tell so.
    pub fn load(&self, profile: &Value, trial: &Trial) -> Result<Arc<Run>, Error> {
        if self.run().is_some_and(|run| run.is_active()) {
            return Err(Error::state("a run is under way", "Stop it with run.stop and wait for it"));
        }
        let profile =
            profile::load(&profile.to_string()).map_err(|errors| Error::all(BAD_PROFILE, &errors))?;
        let id = format!("{}-{}", profile.name, self.runs.fetch_add(1, Ordering::Relaxed));
        let run = Run::load(id, profile, trial, &self.watchers)?;
        tracing::info!(run = %run.id, "loaded");
        *lock(&self.run) = Some(Arc::clone(&run));
        self.watchers.publish("run.state", &run.status());
        Ok(run)
    }

    /// The capture, if there is or was one.
    pub fn capture(&self) -> MutexGuard<'_, Option<Capture>> {
        lock(&self.capture)
    }

    /// Capture from the run's ports, or where its traffic leaves the kernel. Ends a capture that is under way.
    pub fn start_capture(&self, settings: &profile::Capture, path: &Path) -> Result<capture::Status, Error> {
        let run = self.run();
        let mut place = self.capture();
        *place = None;
        let started = match run.as_ref().and_then(|run| run.capture(settings)) {
            Some(source) => Capture::start_from(source?, settings, path)?,
            None => {
                let towards = run.and_then(|run| run.plan.groups.first().map(|group| group.address));
                Capture::start(settings, path, towards)?
            }
        };
        let status = started.status();
        *place = Some(started);
        Ok(status)
    }

    // ---- the writer ----

    /// Make `session` the writer, unless another is.
    pub fn acquire(&self, session: Session) -> Result<(), Error> {
        if lock(&self.lease).acquire(session, Instant::now()) {
            return Ok(());
        }
        let what = "another connection is the writer";
        Err(Error::new(NOT_WRITER, "ND-104-12", "control", what, "Wait until it is done, or watch only"))
    }

    /// Fail unless `session` is the writer.
    pub fn as_writer(&self, session: Session) -> Result<(), Error> {
        if lock(&self.lease).holds(session) {
            return Ok(());
        }
        let what = "this connection is not the writer";
        Err(Error::new(NOT_WRITER, "ND-104-12", "control", what, "Call control.acquire first"))
    }

    /// Let another write.
    pub fn leave(&self, session: Session) {
        lock(&self.lease).leave(session, Instant::now());
    }

    /// Answer a call of `session`: a sign of life, at its beginning and at its end.
    pub fn hearing<T>(&self, session: Session, call: impl FnOnce() -> T) -> T {
        lock(&self.lease).heard(session, true, Instant::now());
        let answer = call();
        lock(&self.lease).heard(session, false, Instant::now());
        answer
    }

    /// Stop the run and the links of a writer who has fallen silent. Call a few times a second.
    pub fn watch_lease(&self) {
        let lapsed = lock(&self.lease).lapse(Instant::now());
        if lapsed && self.links.clear() > 0 {
            tracing::warn!("the controller has been silent for {LEASE:?}: its links are taken away");
        }
        if lapsed && self.run().is_some_and(|run| run.stop("lease")) {
            tracing::warn!("the controller has been silent for {LEASE:?}: the run stops sending");
        }
    }
}
