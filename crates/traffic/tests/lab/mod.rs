//! What tests of the transports share; what is here itself is for sockets.
#![allow(dead_code, reason = "each test file uses some of it")]

pub mod dpdk;
pub mod net;

use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use traffic::collect::{Collector, Flow, Header};
use traffic::result::TrialResult;
use traffic::sockets::Sockets;
use traffic::{Control, Plan, Transport, Trial};

/// Run a profile to its end.
pub fn run(profile: &Value) -> (TrialResult, Vec<Flow>) {
    run_with(profile, |_| {})
}

/// Run a profile to its end; `meanwhile` has the run's control.
pub fn run_with(profile: &Value, meanwhile: impl FnOnce(&Control)) -> (TrialResult, Vec<Flow>) {
    let profile = profile::load(&profile.to_string()).unwrap_or_else(|e| panic!("{e:#?}"));
    let plan = Arc::new(Plan::new(profile, &Trial::default()).unwrap_or_else(|e| panic!("{e:#?}")));
    let p = &plan.profile.phases;
    let control = Arc::new(Control::new(p.warmup.ns(), p.measure.ns(), p.drain.ns(), p.sample.ns()));
    let profile::Transport::Sockets(settings) = &plan.profile.transport else { panic!("not sockets") };
    let transport = Sockets::new(settings).expect("cores");
    let (sender, samples) = channel();
    let mut collector = Collector::new(Arc::clone(&plan), Arc::clone(&control), transport.cores());
    let threads = transport.start(Arc::clone(&plan), Arc::clone(&control), sender).expect("ready");
    control.go();
    meanwhile(&control);
    while !collector.is_done() {
        collector.take(samples.recv_timeout(Duration::from_secs(20)).expect("workers report"));
    }
    threads.into_iter().for_each(|t| t.join().expect("worker"));
    collector.finish(Header {
        run: "t".into(),
        transport: "sockets",
        started: String::new(),
        stopped: None,
        ports: vec![],
    })
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
