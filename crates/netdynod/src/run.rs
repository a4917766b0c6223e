//! One run: loaded, started, perhaps paused, drained, done. Each change is told to those who watch, in order.

pub mod paths;
mod rates;

use crate::trace_lock::TraceLock;
use crate::watchers::Watchers;
use capture::Source;
use profile::Profile;
use run::Sample;
use run::collect::{Collector, TrialHeader};
use run::flows::Flows;
use run::graph::GraphView;
use run::rates::RateChange;
use run::result::{ImpairmentChange, PausedInterval, TrialResult};
use run::{Control, Plan, SetupError, Trial};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::Value;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use system::Registry;
use system::rpc::{BAD_PROFILE, Error, NOTHING_THERE};
use system::transport::BoxedTransport;

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
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

/// State of a run, as `run.status` gives it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Status {
    /// The run's id; empty without a run.
    #[schemars(extend("default" = ""))]
    pub run: String,
    /// How far it is.
    #[schemars(extend("default" = "idle"))]
    pub state: State,
    /// `warmup`, `measure` or `drain`.
    pub phase: Option<protocol::meter::Phase>,
    /// Seconds since the start.
    pub elapsed: f64,
    /// Seconds until it is over, at most, the wait for its start included.
    pub left: f64,
    /// What broke it: {code, at, what, fix}.
    #[schemars(with = "Value")]
    pub error: Option<SetupError>,
}

impl Status {
    /// Without a run.
    pub fn idle() -> Self {
        Self { run: String::new(), state: State::Idle, phase: None, elapsed: 0.0, left: 0.0, error: None }
    }
}

/// The JSON Schema of trial results, with the types of run states and of the model catalogue.
pub fn schema() -> Value {
    let mut types = SchemaSettings::draft2020_12().for_serialize().into_generator();
    types.subschema_for::<Status>();
    types.subschema_for::<models::Catalogue>();
    let mut schema = types.into_root_schema_for::<TrialResult>().to_value();
    schema["$id"] = "urn:netdyno:schema:trial-1".into();
    schema
}

/// Pauses of a run that its result has one by one.
const PAUSES: usize = 1_000;

struct Progress {
    state: State,
    /// When the clock was stopped, while it stands still.
    stands: Option<Instant>,
    paused: Vec<PausedInterval>,
    rates: Vec<RateChange>,
    stopped: Option<&'static str>,
    error: Option<SetupError>,
    result: Option<Arc<TrialResult>>,
    flows: Arc<Flows>,
}

/// A run, and who watches it.
pub struct Run {
    /// Its id.
    pub id: String,
    /// What it carries.
    pub plan: Arc<Plan>,
    control: Arc<Control>,
    transport: BoxedTransport,
    transport_name: &'static str,
    progress: Mutex<Progress>,
    /// Held while packets are traced: one trace at a time.
    pub tracing: TraceLock,
    /// What was changed by hand.
    changes: Mutex<Vec<ImpairmentChange>>,
    watchers: Arc<Watchers>,
}

impl Run {
    /// Check, resolve, and choose the transport.
    pub fn load(
        id: String,
        profile: Profile,
        trial: &Trial,
        registry: &Registry,
        watchers: &Arc<Watchers>,
    ) -> Result<Arc<Self>, Error> {
        let (transport_name, transport) = registry.transport(&profile)?;
        let plan = Plan::new(profile, trial).map_err(|errors| Error::all(BAD_PROFILE, &errors))?;
        Ok(Self::new(id, plan, transport, transport_name, watchers))
    }

    fn new(
        id: String,
        plan: Plan,
        transport: BoxedTransport,
        transport_name: &'static str,
        watchers: &Arc<Watchers>,
    ) -> Arc<Self> {
        let phases = &plan.profile.phases;
        let control =
            Control::new(phases.warmup.ns(), phases.measure.ns(), phases.drain.ns(), phases.sample.ns());
        let progress = Progress {
            state: State::Loaded,
            stands: None,
            paused: Vec::new(),
            rates: Vec::new(),
            stopped: None,
            error: None,
            result: None,
            flows: Arc::default(),
        };
        Arc::new(Self {
            id,
            plan: Arc::new(plan),
            control: Arc::new(control),
            transport,
            transport_name,
            progress: Mutex::new(progress),
            tracing: TraceLock::default(),
            changes: Mutex::default(),
            watchers: Arc::clone(watchers),
        })
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Change the state and publish it; the lock that the caller holds keeps events in order.
    fn enter(&self, progress: &mut Progress, state: State) {
        progress.state = state;
        self.watchers.publish("run.state", &self.status_of(progress));
    }

    /// Start the workers, and a thread that gathers what they report. The run begins at that moment, or at once.
    pub fn start(self: &Arc<Self>, at: Option<Instant>) -> Result<(), Error> {
        self.start_with(at, |gather| {
            std::thread::Builder::new().name("nd-collect".into()).spawn(gather).map(drop)
        })
    }

    fn start_with<S>(self: &Arc<Self>, at: Option<Instant>, spawn: S) -> Result<(), Error>
    where
        S: FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<()>,
    {
        {
            let mut progress = self.progress();
            if progress.state != State::Loaded {
                return Err(Error::state("the run has been started before", "Load it again with run.load"));
            }
            progress.state = State::Running; // told when it is true; until then it keeps a second start out
        }
        // the gatherer first: when there is no thread for it no worker has to be called back
        let (hand_over, handed) = channel();
        let (sender, samples) = channel();
        let (run, cores) = (Arc::clone(self), self.transport.cores());
        let collector = Collector::new(Arc::clone(&self.plan), Arc::clone(&self.control), cores);
        let gather = move || {
            if let Ok((workers, started)) = handed.recv() {
                run.gather(collector, &samples, workers, started);
            }
        };
        let workers = spawn(Box::new(gather))
            .map_err(|e| {
                SetupError::new("ND-92-05", "workers", format!("no thread ({e})"), "Raise ulimit -u")
            })
            .and_then(|()| self.transport.start(Arc::clone(&self.plan), Arc::clone(&self.control), sender))
            .map_err(|e| self.fail(e))?;
        tracing::info!(run = %self.id, transport = self.transport_name, workers = workers.len(), "started");
        // it may have taken longer than that to get ready
        let zero = at.into_iter().fold(Instant::now(), Instant::max);
        self.control.go_at(zero);
        {
            // Who wanted it may have gone meanwhile: then it has been stopped, and stays so.
            let mut progress = self.progress();
            if progress.state == State::Running {
                self.enter(&mut progress, State::Running);
            }
        }
        let _it_waits = hand_over.send((workers, crate::clock::text(crate::clock::wall(zero))));
        Ok(())
    }

    /// It could not start.
    fn fail(&self, why: SetupError) -> Error {
        self.control.abort(); // workers that were started before the one that could not be
        tracing::warn!(run = %self.id, "not started: {why}");
        let mut progress = self.progress();
        progress.error = Some(why.clone());
        self.enter(&mut progress, State::Failed);
        why.into()
    }

    /// Take what the workers report until the last has left.
    fn gather(
        &self,
        mut collector: Collector,
        samples: &Receiver<Sample>,
        workers: Vec<JoinHandle<()>>,
        started: String,
    ) {
        while !collector.is_done() {
            match samples.recv_timeout(Duration::from_millis(200)) {
                Ok(sample) => {
                    for point in collector.take(sample) {
                        self.watchers.publish("stats.sample", point);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break, // a worker died without a word
            }
            self.note_draining();
        }
        for worker in workers {
            let _panicked = worker.join();
        }
        let stopped = self.progress().stopped;
        let header = TrialHeader {
            run: self.id.clone(),
            transport: self.transport_name,
            started,
            stopped,
            ports: self.transport.ports(),
        };
        let (mut result, flows) = collector.finish(header);
        result.changes = self.changed();
        tracing::info!(run = %result.run, valid = result.validity.valid, "done");
        let mut progress = self.progress();
        progress.error = result.error.clone();
        result.paused.clone_from(&progress.paused);
        result.rates.clone_from(&progress.rates);
        progress.result = Some(Arc::new(result));
        progress.flows = Arc::new(flows);
        self.enter(&mut progress, State::Done);
    }

    fn note_draining(&self) {
        let draining = self.control.now().is_some_and(|now| now >= self.control.window().drain);
        let mut progress = self.progress();
        if draining && progress.state == State::Running {
            self.enter(&mut progress, State::Draining);
        }
    }

    /// Stop the clock.
    pub fn pause(&self) -> Result<(), Error> {
        let mut progress = self.progress();
        if progress.state != State::Running {
            return Err(Error::state("only a running run can be paused", "See run.status"));
        }
        if self.control.now().is_none() {
            return Err(Error::state("the run has not begun yet", "Stop it, or wait for its start"));
        }
        self.control.pause();
        progress.stands = Some(Instant::now());
        self.enter(&mut progress, State::Paused);
        Ok(())
    }

    /// Let it go on.
    pub fn resume(&self) -> Result<(), Error> {
        let mut progress = self.progress();
        if progress.state != State::Paused {
            return Err(Error::state("the run is not paused", "See run.status"));
        }
        self.end_pause(&mut progress);
        self.control.resume();
        self.enter(&mut progress, State::Running);
        Ok(())
    }

    /// Note the pause that is under way, if one is, before the clock goes on.
    fn end_pause(&self, progress: &mut Progress) {
        if let (Some(since), Some(now)) = (progress.stands.take(), self.control.now()) {
            let seconds = since.elapsed().as_secs_f64();
            if progress.paused.len() < PAUSES {
                progress.paused.push(PausedInterval { t: now.0 as f64 / 1e9, seconds });
            } else if let Some(last) = progress.paused.last_mut() {
                last.seconds += seconds; // no more of them, but none is lost
            }
        }
    }

    /// Go to the drain phase; `why` stands in the result. False when it was not sending any more, or not yet.
    pub fn stop(&self, why: &'static str) -> bool {
        let mut progress = self.progress();
        let sending = matches!(progress.state, State::Running | State::Paused);
        if sending {
            progress.stopped = Some(why);
            self.end_pause(&mut progress);
            self.control.stop();
            self.enter(&mut progress, State::Draining);
        }
        sending
    }

    /// Leave everything where it is: the daemon ends.
    pub fn abort(&self) {
        self.control.abort();
    }

    /// Packets of one of the run's own ports; `None` when the settings mean none of them.
    pub fn capture(&self, settings: &profile::Capture) -> Option<Result<Box<dyn Source>, SetupError>> {
        let over = matches!(self.progress().state, State::Done | State::Failed);
        let source = self.transport.capture(settings)?;
        if over {
            let at = "capture.interface";
            let what = "the run is over, and its ports are closed".to_owned();
            return Some(Err(SetupError::new("ND-92-08", at, what, "Load it again with run.load")));
        }
        Some(source)
    }

    /// Its graph of elements, if it has one.
    pub fn graph(&self) -> Option<Box<dyn GraphView>> {
        self.transport.graph()
    }

    /// Whether workers are at work.
    pub fn is_active(&self) -> bool {
        matches!(self.progress().state, State::Running | State::Paused | State::Draining)
    }

    /// How far it is.
    pub fn status(&self) -> Status {
        self.status_of(&self.progress())
    }

    fn status_of(&self, progress: &Progress) -> Status {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let over = matches!(progress.state, State::Done | State::Failed);
        let now = self.control.now().filter(|_| !over);
        Status {
            run: self.id.clone(),
            state: progress.state,
            phase: now.map(|n| self.control.window().phase(n)),
            elapsed: now.map_or(0.0, |n| seconds(n.0)),
            left: if over {
                0.0
            } else {
                self.control.begins_in().as_secs_f64()
                    + seconds(self.control.end().since(now.unwrap_or_default()))
            },
            error: progress.error.clone(),
        }
    }

    /// The result, once it is done.
    pub fn result(&self) -> Result<Arc<TrialResult>, Error> {
        let progress = self.progress();
        match (&progress.result, &progress.error) {
            (Some(result), _) => Ok(Arc::clone(result)),
            (None, Some(why)) => Err(why.clone().into()),
            (None, None) => {
                let (what, fix) = ("the run is not done", "Wait for the state `done`");
                Err(Error::new(NOTHING_THERE, "ND-104-11", "run", what, fix))
            }
        }
    }

    /// Each device's summary, once it is done.
    pub fn flows(&self) -> Arc<Flows> {
        Arc::clone(&self.progress().flows)
    }
}

#[cfg(test)]
mod tests;
