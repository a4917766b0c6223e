//! `graph.*`: the elements that carry the run's traffic over DPDK ports. All of it may be asked by anybody.

use super::run::loaded;
use super::{Answer, Nothing};
use crate::connection::Caller;
use crate::graph::{of, planned};
use crate::rpc::Error;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Of the loaded run, or of a profile that is not loaded.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Describe {
    #[serde(default)]
    profile: Option<Value>,
}

/// Elements, edges, and where they run.
pub fn describe(caller: &Caller, params: Describe) -> Answer {
    let (run, observer) = match params.profile {
        Some(profile) => (None, planned(&profile)?),
        None => loaded(caller).and_then(|run| Ok((Some(run.id.clone()), of(&run)?)))?,
    };
    let shape = observer.shape();
    let (workers, elements) = (&shape.workers, &shape.elements);
    Ok(json!({
        "run": run, "workers": workers, "elements": elements, "edges": shape.edges, "ports": shape.ports
    }))
}

/// What each element and worker did since the start.
pub fn stats(caller: &Caller, _: Nothing) -> Answer {
    let run = loaded(caller)?;
    let observer = of(&run)?;
    let (elements, workers) = (observer.elements(), observer.workers());
    Ok(json!({"status": run.status(), "elements": elements, "workers": workers}))
}

/// How many packets, which, and how long to wait for them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    packets: usize,
    #[serde(default)]
    filter: String,
    #[serde(default = "second")]
    wait: f64,
}

fn second() -> f64 {
    1.0
}

/// The way of single packets. Answers when they have gone it, or the time is up.
pub fn trace(caller: &Caller, params: Trace) -> Answer {
    if !(1..=64).contains(&params.packets) {
        return Err(Error::params("params.packets", "it takes 1 to 64 packets"));
    }
    if !(0.0..=10.0).contains(&params.wait) {
        return Err(Error::params("params.wait", "it takes 0 to 10 seconds"));
    }
    let run = loaded(caller)?;
    let observer = of(&run)?;
    let _alone = run.tracing()?;
    let go_on = || run.is_active() && !caller.core.ending.load(Ordering::Relaxed);
    let wait = Duration::from_secs_f64(params.wait);
    let trace = observer.trace(params.packets, &params.filter, wait, go_on)?;
    let none = || Error::state("the run is not under way", "Trace while it is `running`");
    trace.filter(|trace| go_on() || !trace.packets.is_empty()).map(|trace| json!(trace)).ok_or_else(none)
}
