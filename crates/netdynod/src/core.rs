//! What all connections share: the run, the capture, who writes, who watches.

use crate::files::{Door, Files};
use crate::graphs::Graphs;
use crate::lease::{LEASE, Lease};
use crate::links::Links;
use crate::log::Tail;
use crate::outbox::Outbox;
use crate::run::Run;
use crate::session::Session;
use crate::stream::{FarEnd, Stream};
use crate::watchers::Watchers;
use capture::{self, Capture};
use run::Trial;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;
use system::Registry;
use system::rpc::{Error, NOT_WRITER};

/// The state of the daemon, shared by its connections.
pub struct Core {
    /// The last log entries.
    pub log: Tail,
    /// Set when the daemon is to end.
    pub ending: AtomicBool,
    /// Of the connection that asked for the end: its answer leaves first.
    pub ended_by: OnceLock<Arc<Outbox>>,
    /// Those who watch.
    pub watchers: Arc<Watchers>,
    /// Impaired links.
    pub links: Links,
    /// Graphs of people's own.
    pub graphs: Graphs,
    /// Kinds of elements, methods and transports.
    pub registry: Registry,
    /// Where the files lie that may be named over TCP.
    pub files: Option<PathBuf>,
    /// The rights of the Unix socket: its own, or those of TCP.
    pub unix: Door,
    run: Mutex<Option<Arc<Run>>>,
    capture: Mutex<Option<Capture>>,
    lease: Mutex<Lease>,
    /// The connection of who became the writer last.
    writer: Mutex<Option<(Session, Stream)>>,
    sessions: AtomicU64,
    runs: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // what a panicking thread left half done is still the best there is
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    /// Nothing loaded, nobody there.
    pub fn new(registry: Registry, log: Tail, files: Option<PathBuf>, unix: Door) -> Arc<Self> {
        Arc::new(Self {
            log,
            ending: AtomicBool::new(false),
            ended_by: OnceLock::new(),
            watchers: Arc::default(),
            links: Links::default(),
            graphs: Graphs::default(),
            registry,
            files,
            unix,
            run: Mutex::default(),
            capture: Mutex::default(),
            lease: Mutex::default(),
            writer: Mutex::default(),
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
        self.release(session);
        let _its_descriptor = lock(&self.writer).take_if(|(of, _)| *of == session);
        self.watchers.forget(session);
    }

    // ---- what is there ----

    /// The run, if one is loaded.
    pub fn run(&self) -> Option<Arc<Run>> {
        lock(&self.run).clone()
    }

    /// Put a run of `profile` in the place of one that is not under way, and tell so. `session` must be the writer, at
    /// the end of it too: names may take long to resolve, and he may have gone.
    pub fn load(
        &self,
        session: Session,
        files: Files<'_>,
        profile: &Value,
        trial: &Trial,
    ) -> Result<Arc<Run>, Error> {
        self.free()?;
        let profile = crate::profiles::load(&profile.to_string(), files, self.registry.kinds())?;
        let id = format!("{}-{}", profile.name, self.runs.fetch_add(1, Ordering::Relaxed));
        let run = Run::load(id, profile, trial, &self.registry, &self.watchers)?;
        self.as_writer(session)?;
        self.free()?;
        tracing::info!(run = %run.id, "loaded");
        *lock(&self.run) = Some(Arc::clone(&run));
        self.watchers.publish("run.state", &run.status());
        Ok(run)
    }

    /// Fail while a run is under way.
    fn free(&self) -> Result<(), Error> {
        if self.run().is_some_and(|run| run.is_active()) {
            return Err(Error::state("a run is under way", "Stop it with run.stop and wait for it"));
        }
        Ok(())
    }

    /// The capture, if there is or was one.
    pub fn capture(&self) -> MutexGuard<'_, Option<Capture>> {
        lock(&self.capture)
    }

    /// Capture from the run's ports, or where its traffic leaves the kernel. Ends a capture that is under way.
    /// Whoever asks how it does never waits for that.
    pub fn start_capture(
        &self,
        session: Session,
        settings: &profile::Capture,
        path: &Path,
    ) -> Result<capture::Status, Error> {
        let run = self.run();
        let before = self.capture().take();
        drop(before);
        let started = match run.as_ref().and_then(|run| run.capture(settings)) {
            Some(source) => Capture::start_from(source?, settings, path)?,
            None => {
                let towards = run.and_then(|run| run.plan.groups.first().map(|group| group.address()));
                Capture::start(settings, path, towards)?
            }
        };
        self.as_writer(session)?;
        let status = started.status();
        let _none = self.capture().replace(started);
        Ok(status)
    }

    // ---- the writer ----

    /// Make `session` the writer, unless another is.
    pub fn acquire(&self, session: Session, stream: &Stream) -> Result<(), Error> {
        if lock(&self.lease).acquire(session, Instant::now()) {
            *lock(&self.writer) = Some((session, stream.clone()));
            return Ok(());
        }
        let what = "another connection is the writer";
        Err(Error::new(NOT_WRITER, "ND-104-12", "control", what, "Wait until it is done, or watch only"))
    }

    /// Fail unless `session` is the writer.
    pub fn as_writer(&self, session: Session) -> Result<(), Error> {
        if lock(&self.lease).is_writer(session) {
            return Ok(());
        }
        let what = "this connection is not the writer";
        Err(Error::new(NOT_WRITER, "ND-104-12", "control", what, "Call control.acquire first"))
    }

    /// Let another write.
    pub fn release(&self, session: Session) {
        lock(&self.lease).release(session, Instant::now());
    }

    /// Answer a call of `session`: a sign of life, at its beginning and at its end.
    pub fn hearing<T>(&self, session: Session, call: impl FnOnce() -> T) -> T {
        lock(&self.lease).renew(session, true, Instant::now());
        let answer = call();
        lock(&self.lease).renew(session, false, Instant::now());
        answer
    }

    /// A call of the writer's is under way, and he has gone: nobody will read its answer, and another may write. Who
    /// only says no more may have gone, or wait for the answer: he has as long as one who is silent.
    fn watch_writer(&self) {
        let busy = lock(&self.lease).busy();
        let Some((session, since)) = busy else { return };
        let far =
            lock(&self.writer).as_ref().filter(|(of, _)| *of == session).map(|(_, stream)| stream.far_end());
        let gone = match far {
            Some(FarEnd::Gone) => true,
            Some(FarEnd::Silent) => since.elapsed() >= LEASE,
            Some(FarEnd::There) | None => false,
        };
        if gone {
            tracing::warn!(session, "the writer has gone while a call of his is under way");
            self.release(session);
        }
    }

    /// Stop the run and the links of a writer who has fallen silent. Call a few times a second.
    pub fn watch_lease(&self) {
        self.watch_writer();
        let lapsed = lock(&self.lease).expire(Instant::now());
        if lapsed && self.links.clear() > 0 {
            tracing::warn!("the controller has been silent for {LEASE:?}: its links are taken away");
        }
        if lapsed && self.graphs.clear().0 > 0 {
            tracing::warn!("the controller has been silent for {LEASE:?}: its graphs are ended");
        }
        if lapsed && self.run().is_some_and(|run| run.stop("lease")) {
            tracing::warn!("the controller has been silent for {LEASE:?}: the run stops sending");
        }
    }
}
