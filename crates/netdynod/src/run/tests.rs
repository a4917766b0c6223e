use super::*;
use crate::outbox::Outbox;
use run::Transport;
use serde_json::{Value, json};
use std::sync::mpsc::Sender;

/// Starts, or does not. Its one worker says nothing and leaves when `samples` is dropped.
#[derive(Default)]
struct Stub {
    refuses: bool,
    samples: Arc<Mutex<Option<Sender<Sample>>>>,
}

impl Transport for Stub {
    fn start(
        &self,
        _: Arc<Plan>,
        _: Arc<Control>,
        samples: Sender<Sample>,
    ) -> Result<Vec<JoinHandle<()>>, SetupError> {
        if self.refuses {
            return Err(SetupError::new("ND-92-07", "groups[0].source", "no such address", "Add it"));
        }
        *self.samples.lock().unwrap() = Some(samples);
        Ok(Vec::new())
    }

    fn cores(&self) -> Vec<u16> {
        vec![0]
    }
}

/// A run over `stub`, and what those who watch are told.
fn loaded(stub: Stub) -> (Arc<Run>, Arc<Outbox>) {
    let profile = json!({
        "name": "stub",
        "groups": [{"name": "s", "target": "udp://127.0.0.1:9", "model": {"stream": {"echo": false}}}],
    });
    let profile = profile::load(&profile.to_string()).unwrap();
    let plan = Plan::new(profile, &Trial::default()).unwrap();
    let (watchers, outbox) = (Arc::new(Watchers::default()), Arc::new(Outbox::new(|| {})));
    watchers.add(1, &outbox).unwrap();
    (Run::new("stub-1".into(), plan, Box::new(stub), "stub", &watchers), outbox)
}

/// The statuses told so far, up to one in `state`.
fn statuses(outbox: &Outbox, state: &str) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    while all.last().is_none_or(|last| last["state"] != state) {
        let line = outbox.next().expect("it is told");
        let message: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(message["method"], "run.state");
        all.push(message["params"].clone());
    }
    all
}

fn states(statuses: &[Value]) -> Vec<&str> {
    statuses.iter().map(|s| s["state"].as_str().unwrap()).collect()
}

/// What must hold after a start that failed for the reason `code`.
fn has_failed(run: &Arc<Run>, outbox: &Outbox, error: &Error, code: &str) {
    assert_eq!((error.code, &error.data["code"]), (system::rpc::NOT_READY, &json!(code)));
    let all = statuses(outbox, "failed");
    assert_eq!(states(&all), ["failed"], "it is not told that it runs");
    assert_eq!(all[0]["error"], error.data);
    assert_eq!(run.status().state, State::Failed);
    assert!(!run.is_active(), "another can be loaded in its place");
    assert!(run.control.aborted(), "no worker is left waiting");
    assert_eq!(run.result().unwrap_err(), *error);
    assert_eq!(run.start(None).unwrap_err().code, system::rpc::WRONG_STATE);
    assert!(!run.stop("stopped"));
}

#[test]
fn a_start_that_fails_is_told() {
    let (run, outbox) = loaded(Stub { refuses: true, ..Stub::default() });
    let error = run.start(None).unwrap_err();
    has_failed(&run, &outbox, &error, "ND-92-07");
}

#[test]
fn without_a_thread_to_gather_nothing_is_started() {
    let stub = Stub::default();
    let samples = Arc::clone(&stub.samples);
    let (run, outbox) = loaded(stub);
    let error = run.start_with(None, |_| Err(io::ErrorKind::WouldBlock.into())).unwrap_err();
    has_failed(&run, &outbox, &error, "ND-92-05");
    assert!(samples.lock().unwrap().is_none());
}

#[test]
fn a_lease_that_lapses_stops_the_run_and_is_told() {
    let stub = Stub::default();
    let samples = Arc::clone(&stub.samples);
    let (run, outbox) = loaded(stub);
    assert!(!run.stop("lease"), "it has not begun to send");
    run.start(None).unwrap();
    run.pause().unwrap();
    assert!(run.stop("lease"));
    assert!(!run.stop("stopped"), "it sends no more");
    *samples.lock().unwrap() = None;
    assert_eq!(states(&statuses(&outbox, "done")), ["running", "paused", "draining", "done"]);
    assert_eq!(run.result().unwrap().stopped, Some("lease"));
}

#[test]
fn each_step_has_its_time() {
    let stub = Stub::default();
    let samples = Arc::clone(&stub.samples);
    let (run, outbox) = loaded(stub);
    assert_eq!(run.pause().unwrap_err().code, system::rpc::WRONG_STATE);
    assert_eq!(run.resume().unwrap_err().code, system::rpc::WRONG_STATE);
    assert_eq!(run.result().unwrap_err().code, NOTHING_THERE);
    run.start(None).unwrap();
    assert!(run.start(None).is_err() && run.resume().is_err());
    run.pause().unwrap();
    assert!(run.pause().is_err());
    run.resume().unwrap();
    assert!(run.stop("stopped"));
    assert!(run.pause().is_err() && run.resume().is_err());
    *samples.lock().unwrap() = None;
    assert_eq!(states(&statuses(&outbox, "done")), ["running", "paused", "running", "draining", "done"]);
    assert!(run.start(None).is_err());
}
