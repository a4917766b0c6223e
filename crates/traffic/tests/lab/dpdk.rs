//! A profile over DPDK ports, from its text to its result.

use serde_json::Value;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use traffic::collect::{Collector, Header};
use traffic::dpdk::Dpdk;
use traffic::{Control, Plan, Transport, Trial, Unready};

/// Workers poll: two runs at once on two cores would starve each other. The others wait as long as this is held.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Run a profile to its end; `prepare` has the ports before they send, `steer` the run while it goes on.
pub fn run_with(
    profile: &Value,
    prepare: impl FnOnce(&Dpdk),
    steer: impl FnOnce(&Dpdk, &Control),
) -> Result<Value, Unready> {
    let profile = profile::load(&profile.to_string()).unwrap_or_else(|errors| panic!("{errors:#?}"));
    let profile::Transport::Dpdk(settings) = profile.transport.clone() else { panic!("not dpdk") };
    let phases = profile.phases.clone();
    let plan = Arc::new(Plan::new(profile, &Trial::default()).unwrap_or_else(|errors| panic!("{errors:#?}")));
    let (warmup, measure) = (phases.warmup.ns(), phases.measure.ns());
    let control = Arc::new(Control::new(warmup, measure, phases.drain.ns(), phases.sample.ns()));
    let transport = Dpdk::new(&settings)?;
    prepare(&transport);
    let (tx, rx) = channel();
    let threads = transport.start(Arc::clone(&plan), Arc::clone(&control), tx)?;
    let mut collector = Collector::new(plan, Arc::clone(&control), transport.cores());
    control.go();
    steer(&transport, &control);
    for sample in rx {
        collector.take(sample);
    }
    assert!(collector.is_done());
    threads.into_iter().for_each(|thread| thread.join().expect("the supervisor"));
    let ports = transport.observe().map(|observer| observer.shape().ports.clone()).unwrap_or_default();
    let header = Header { run: "r".into(), transport: "dpdk", started: "now".into(), stopped: None, ports };
    let (result, flows) = collector.finish(header);
    assert!(flows.iter().all(|flow| flow.tally.delivered <= flow.tally.sent));
    Ok(serde_json::to_value(result).expect("JSON"))
}

/// Run a profile to its end.
pub fn run(profile: &Value) -> Result<Value, Unready> {
    run_with(profile, |_| (), |_, _| ())
}
