//! Cores for the workers that a placement names.

use profile::{Error as SetupError, Worker};
use run::topology::{CoreError, CoreRequest, Threads, worker_cores};

/// A core for each worker of the placement at `at`; without workers, one.
pub fn cores(workers: &[Worker], at: &str) -> Result<Vec<usize>, SetupError> {
    let requests: Vec<CoreRequest> = workers.iter().map(core_request).collect();
    worker_cores(&requests).map_err(|why| {
        let fix = match why {
            CoreError::NoCore { .. } => "Name one of those",
            CoreError::NoNode { .. } => "Name one of those nodes; `lscpu -e` shows which core is where",
            CoreError::NoneOwn { .. } => "Use fewer workers, or leave threads out",
            CoreError::NoSibling { .. } => {
                "Leave threads out; `lscpu -e` shows which cores are one physical core"
            }
        };
        SetupError::new("ND-92-06", format!("{at}[{}]", why.worker()), why.to_string(), fix)
    })
}

/// A core for each of so many workers, whichever are free.
pub fn any_cores(workers: usize, at: &str) -> Result<Vec<usize>, SetupError> {
    let any = Worker { core: None, node: None, threads: None, elements: Vec::new() };
    cores(&vec![any; workers], at)
}

/// What a worker wants of its core.
fn core_request(worker: &Worker) -> CoreRequest {
    CoreRequest {
        core: worker.core.map(usize::from),
        node: worker.node.map(usize::from),
        threads: match worker.threads {
            None => Threads::Any,
            Some(profile::Threads::Own) => Threads::Own,
            Some(profile::Threads::Shared) => Threads::Shared,
        },
    }
}
