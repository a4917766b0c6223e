//! Trials over DPDK ports.
#![allow(dead_code, unused_imports, reason = "each test file uses some of it")]

use run::flows::Flow;
use run::{Control, SetupError};
use serde_json::Value;
use std::sync::{Mutex, MutexGuard, PoisonError};
use stream::Dpdk;
pub use testbed::net;

/// Workers poll: two runs at once on two cores would starve each other. The others wait as long as this is held. A test takes it
/// before it starts processes that stay: these inherit the packet sockets of an open port, and a socket that one of them
/// keeps open gets a share of the flows when the interface is opened again, since both are in one fanout group.
pub fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Run a profile to its end; `prepare` has the ports before they send, `steer` the run while it goes on.
pub fn run_with(
    profile: &Value,
    prepare: impl FnOnce(&Dpdk),
    steer: impl FnOnce(&Dpdk, &Control),
) -> Result<Value, SetupError> {
    let make = |profile: &profile::Profile| {
        let profile::Transport::Dpdk(settings) = &profile.transport else { panic!("not dpdk") };
        Dpdk::new(settings, &stream::graph::kinds())
    };
    let (result, flows) = testbed::trial::run_with(profile, make, prepare, steer)?;
    assert!(flows.iter().all(|flow| flow.tally.delivered <= flow.tally.sent));
    let sum = |of: fn(&Flow) -> u64| flows.iter().map(|flow| of(&flow)).sum::<u64>();
    let total = |name: &str| -> u64 {
        result.groups.iter().map(|group| group.total[name].as_u64().expect("a counter")).sum()
    };
    assert_eq!(sum(|flow| flow.tally.sent), total("messages_sent"), "of all streams together");
    assert_eq!(sum(|flow| flow.tally.delivered), total("messages_delivered"), "of all streams together");
    Ok(serde_json::to_value(result).expect("JSON"))
}

/// Run a profile to its end.
pub fn run(profile: &Value) -> Result<Value, SetupError> {
    run_with(profile, |_| (), |_, _| ())
}
