//! A trial of any transport, from its profile's text to its result.

use profile::Profile;
use run::Sample;
use run::collect::{Collector, TrialHeader};
use run::flows::Flows;
use run::result::TrialResult;
use run::{Control, Plan, SetupError, Transport, Trial};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Longest wait for the next sample.
const PATIENCE: Duration = Duration::from_secs(60);

/// A profile that must be good.
pub fn load(profile: &Value) -> Profile {
    profile::load(&profile.to_string()).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

/// Run a profile to its end over the transport that `make` makes of it. `prepare` has the transport before it starts,
/// `steer` while it carries the run.
pub fn run_with<T: Transport>(
    profile: &Value,
    make: impl FnOnce(&Profile) -> Result<T, SetupError>,
    prepare: impl FnOnce(&T),
    steer: impl FnOnce(&T, &Control),
) -> Result<(TrialResult, Flows), SetupError> {
    run_watched(profile, make, prepare, steer, |_, _| ())
}

/// [`run_with`]; `seen` has each sample that a worker reports, when `steer` is through.
pub fn run_watched<T: Transport>(
    profile: &Value,
    make: impl FnOnce(&Profile) -> Result<T, SetupError>,
    prepare: impl FnOnce(&T),
    steer: impl FnOnce(&T, &Control),
    mut seen: impl FnMut(&Sample, &Control),
) -> Result<(TrialResult, Flows), SetupError> {
    let plan = Plan::new(load(profile), &Trial::default()).unwrap_or_else(|errors| panic!("{errors:#?}"));
    let (plan, p) = (Arc::new(plan), load(profile).phases);
    let control = Arc::new(Control::new(p.warmup.ns(), p.measure.ns(), p.drain.ns(), p.sample.ns()));
    let transport = make(&plan.profile)?;
    prepare(&transport);
    let (sender, samples) = channel();
    let threads = transport.start(Arc::clone(&plan), Arc::clone(&control), sender)?;
    let mut collector = Collector::new(plan, Arc::clone(&control), transport.cores());
    control.start_workers();
    steer(&transport, &control);
    while !collector.is_done() {
        let sample = samples.recv_timeout(PATIENCE).expect("workers report");
        seen(&sample, &control);
        collector.take(sample);
    }
    threads.into_iter().for_each(|thread| thread.join().expect("a worker"));
    let ports = transport.ports();
    let header =
        TrialHeader { run: "t".into(), transport: "t", started: String::new(), stopped: None, ports };
    Ok(collector.finish(header))
}

/// A short trial of these groups.
pub fn profile(groups: Value) -> Value {
    json!({
        "name": "t",
        // these tests count; how late a busy test machine is does not matter to them
        "validity": {"lateness_p99": "5s", "starved": 1.0},
        "phases": {"warmup": "200ms", "measure": "600ms", "drain": "2s", "sample": "100ms"},
        "groups": groups
    })
}

/// A counter of the first group, over all phases.
pub fn total(result: &TrialResult, counter: &str) -> u64 {
    result.groups[0].total[counter].as_u64().unwrap_or_else(|| panic!("no {counter}"))
}
