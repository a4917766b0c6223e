//! One run: loaded, started, perhaps paused, drained, done.

use crate::core::Core;
use crate::rpc::{BAD_PROFILE, Error, bad_profile};
use profile::Profile;
use serde::Serialize;
use serde_json::Value;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use traffic::capture::Source;
use traffic::collect::{Collector, Flow, Header};
use traffic::dpdk::Dpdk;
use traffic::result::TrialResult;
use traffic::sockets::Sockets;
use traffic::{Control, Plan, Transport, Trial, Unready};

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// No run.
    Idle,
    /// Ready to start.
    Loaded,
    /// Sending.
    Running,
    /// The clock stands still.
    Paused,
    /// Waiting for answers on their way.
    Draining,
    /// The result is there.
    Done,
    /// It could not start; `error` says why.
    Failed,
}

/// What `run.status` answers.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// The run's id; empty without a run.
    pub run: String,
    /// How far it is.
    pub state: State,
    /// `warmup`, `measure` or `drain`.
    pub phase: Option<protocol::meter::Phase>,
    /// Seconds since the start.
    pub elapsed: f64,
    /// Seconds until it is over, at most.
    pub left: f64,
    /// What broke it.
    pub error: Option<Unready>,
}

impl Status {
    /// Without a run.
    pub fn idle() -> Self {
        Self { run: String::new(), state: State::Idle, phase: None, elapsed: 0.0, left: 0.0, error: None }
    }
}

struct Progress {
    state: State,
    stopped: Option<&'static str>,
    error: Option<Unready>,
    result: Option<Arc<TrialResult>>,
    flows: Arc<Vec<Flow>>,
}

/// See the module's own words.
pub struct Run {
    /// Its id.
    pub id: String,
    /// What it carries.
    pub plan: Arc<Plan>,
    control: Arc<Control>,
    transport: Box<dyn Transport + Send + Sync>,
    transport_name: &'static str,
    progress: Mutex<Progress>,
}

impl Run {
    /// Check, resolve, and choose the transport.
    pub fn load(id: String, profile: Profile, trial: &Trial) -> Result<Self, Error> {
        let (transport, transport_name): (Box<dyn Transport + Send + Sync>, _) = match &profile.transport {
            profile::Transport::Sockets(settings) => (Box::new(Sockets::new(settings)?), "sockets"),
            profile::Transport::Dpdk(settings) => (Box::new(Dpdk::new(settings)?), "dpdk"),
        };
        let plan = Plan::new(profile, trial).map_err(|errors| bad_profile(BAD_PROFILE, &errors))?;
        let phases = &plan.profile.phases;
        let control =
            Control::new(phases.warmup.ns(), phases.measure.ns(), phases.drain.ns(), phases.sample.ns());
        Ok(Self {
            id,
            plan: Arc::new(plan),
            control: Arc::new(control),
            transport,
            transport_name,
            progress: Mutex::new(Progress {
                state: State::Loaded,
                stopped: None,
                error: None,
                result: None,
                flows: Arc::default(),
            }),
        })
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Start the workers, and a thread that gathers what they report.
    pub fn start(self: &Arc<Self>, core: &Arc<Core>) -> Result<(), Error> {
        {
            let mut progress = self.progress();
            if progress.state != State::Loaded {
                return Err(Error::state("the run has been started before", "Load it again with run.load"));
            }
            progress.state = State::Running;
        }
        let (sender, samples) = channel();
        let cores = self.transport.cores();
        let collector = Collector::new(Arc::clone(&self.plan), Arc::clone(&self.control), cores);
        let threads = match self.transport.start(Arc::clone(&self.plan), Arc::clone(&self.control), sender) {
            Ok(threads) => threads,
            Err(e) => {
                let mut progress = self.progress();
                progress.state = State::Failed;
                progress.error = Some(e.clone());
                return Err(e.into());
            }
        };
        tracing::info!(run = %self.id, transport = self.transport_name, workers = threads.len(), "started");
        let header = Header {
            run: self.id.clone(),
            transport: self.transport_name,
            started: crate::clock::now(),
            stopped: None,
        };
        let (run, core) = (Arc::clone(self), Arc::clone(core));
        self.control.go();
        let gather = move || {
            let mut collector = collector;
            while !collector.is_done() {
                match samples.recv_timeout(Duration::from_millis(200)) {
                    Ok(sample) => {
                        if let Some(point) = collector.take(sample) {
                            core.publish("stats.sample", &serde_json::to_value(point).unwrap_or_default());
                        }
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break, // a worker died without a word
                }
                run.note_draining(&core);
            }
            for thread in threads {
                let _panicked = thread.join();
            }
            let stopped = run.progress().stopped;
            let (result, flows) = collector.finish(Header { stopped, ..header });
            tracing::info!(run = %result.run, valid = result.validity.valid, "done");
            {
                let mut progress = run.progress();
                progress.error = result.error.clone();
                progress.result = Some(Arc::new(result));
                progress.flows = Arc::new(flows);
                progress.state = State::Done;
            }
            core.publish("run.state", &run.status_value());
        };
        let spawned = std::thread::Builder::new().name("nd-collect".into()).spawn(gather);
        if let Err(e) = spawned {
            self.control.abort();
            return Err(
                Unready::new("ND-92-05", "workers", format!("no thread ({e})"), "Raise ulimit -u").into()
            );
        }
        Ok(())
    }

    fn note_draining(&self, core: &Core) {
        let draining = self.control.now().is_some_and(|now| now >= self.control.window().drain);
        if draining {
            let mut progress = self.progress();
            if progress.state == State::Running {
                progress.state = State::Draining;
                drop(progress);
                core.publish("run.state", &self.status_value());
            }
        }
    }

    /// Stop the clock.
    pub fn pause(&self) -> Result<(), Error> {
        let mut progress = self.progress();
        if progress.state != State::Running {
            return Err(Error::state("only a running run can be paused", "See run.status"));
        }
        self.control.pause();
        progress.state = State::Paused;
        Ok(())
    }

    /// Let it go on.
    pub fn resume(&self) -> Result<(), Error> {
        let mut progress = self.progress();
        if progress.state != State::Paused {
            return Err(Error::state("the run is not paused", "See run.status"));
        }
        self.control.resume();
        progress.state = State::Running;
        Ok(())
    }

    /// Go to the drain phase; `why` stands in the result.
    pub fn stop(&self, why: Option<&'static str>) {
        let mut progress = self.progress();
        if matches!(progress.state, State::Running | State::Paused) {
            progress.stopped = progress.stopped.or(why);
            progress.state = State::Draining;
            self.control.stop();
        }
    }

    /// Leave everything where it is: the daemon ends.
    pub fn abort(&self) {
        self.control.abort();
    }

    /// Packets of one of the run's own ports; `None` when the settings mean none of them.
    pub fn capture(&self, settings: &profile::Capture) -> Option<Result<Box<dyn Source>, Unready>> {
        let over = matches!(self.progress().state, State::Done | State::Failed);
        let source = self.transport.capture(settings)?;
        if over {
            let at = "capture.interface";
            let what = "the run is over, and its ports are closed".to_owned();
            return Some(Err(Unready::new("ND-92-08", at, what, "Load it again with run.load")));
        }
        Some(source)
    }

    /// Whether workers are at work.
    pub fn is_active(&self) -> bool {
        matches!(self.progress().state, State::Running | State::Paused | State::Draining)
    }

    /// How far it is.
    pub fn status(&self) -> Status {
        let progress = self.progress();
        let now = self.control.now();
        let seconds = |ns: u64| ns as f64 / 1e9;
        let over = matches!(progress.state, State::Done | State::Failed);
        Status {
            run: self.id.clone(),
            state: progress.state,
            phase: now.filter(|_| !over).map(|n| self.control.window().phase(n)),
            elapsed: now.filter(|_| !over).map_or(0.0, |n| seconds(n.0)),
            left: if over { 0.0 } else { seconds(self.control.end().since(now.unwrap_or_default())) },
            error: progress.error.clone(),
        }
    }

    /// The same as JSON.
    pub fn status_value(&self) -> Value {
        serde_json::to_value(self.status()).unwrap_or_default()
    }

    /// The result, once it is done.
    pub fn result(&self) -> Option<Arc<TrialResult>> {
        self.progress().result.clone()
    }

    /// Each device's summary, once it is done.
    pub fn flows(&self) -> Arc<Vec<Flow>> {
        Arc::clone(&self.progress().flows)
    }
}
