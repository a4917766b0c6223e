//! Workers on their threads, one per core.

use crate::endpoint::Endpoint;
use crate::worker::Worker;
use run::{Control, Plan, Sample, SetupError, cpu};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// Start a worker on each of `cores`, with an endpoint that `endpoint` makes on the worker's own thread, from its number. Either all of them
/// wait for the run to begin when this returns, or none is left.
pub fn start<E: Endpoint>(
    cores: &[u16],
    plan: &Arc<Plan>,
    control: &Arc<Control>,
    samples: &Sender<Sample>,
    endpoint: impl Fn(usize) -> Result<E, SetupError> + Clone + Send + 'static,
) -> Result<Vec<JoinHandle<()>>, SetupError> {
    let (ready, started) = channel();
    let mut threads = Vec::new();
    let mut outcome = Ok(());
    for number in 0..cores.len() {
        match spawn(number, cores, plan, control, samples, &ready, endpoint.clone()) {
            Ok(thread) => threads.push(thread),
            Err(e) => {
                outcome = Err(e);
                break;
            }
        }
    }
    drop(ready);
    // each says how it began; one that could not even say it has let go of its end
    for said in started {
        outcome = outcome.and(said);
    }
    if outcome.is_err() {
        control.abort();
        for thread in threads {
            let _left = thread.join();
        }
        return outcome.map(|()| Vec::new());
    }
    Ok(threads)
}

fn spawn<E: Endpoint>(
    number: usize,
    cores: &[u16],
    plan: &Arc<Plan>,
    control: &Arc<Control>,
    samples: &Sender<Sample>,
    ready: &Sender<Result<(), SetupError>>,
    endpoint: impl Fn(usize) -> Result<E, SetupError> + Send + 'static,
) -> Result<JoinHandle<()>, SetupError> {
    let (core, workers) = (cores[number], cores.len());
    let (plan, control) = (Arc::clone(plan), Arc::clone(control));
    let (samples, ready) = (samples.clone(), ready.clone());
    let work = move || {
        if let Err(e) = cpu::pin(core) {
            tracing::warn!(core, error = %e, "cannot pin the worker");
        }
        // a sleep then ends when it should, not up to 50 µs later
        let _best_effort = nix::sys::prctl::set_timerslack(1);
        match endpoint(number) {
            Ok(endpoint) => {
                let worker = Worker::new(endpoint, number, workers, plan, control, samples);
                let _nobody = ready.send(Ok(()));
                drop(ready);
                worker.run();
            }
            Err(e) => {
                let _nobody = ready.send(Err(e));
            }
        }
    };
    std::thread::Builder::new().name(format!("nd-worker-{number}")).spawn(work).map_err(|e| {
        let what = format!("no thread for a worker ({e})");
        SetupError::new("ND-92-05", "workers", what, "Raise the limit of threads (ulimit -u)")
    })
}
