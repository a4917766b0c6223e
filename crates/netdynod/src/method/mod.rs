//! The RPC methods of the platform, one group a file; those of systems are registered. A method takes its parameters apart, calls the core, and shapes the
//! answer; what it does stands elsewhere. docs/reference/rpc.md says what each takes and gives.

mod capture;
mod control;
mod core;
mod graph;
mod impair;
mod log;
mod ports;
mod profile;
mod run;
mod stats;

use crate::caller::Caller;
use serde::Deserialize;
use serde_json::{Map, Value};
use system::method::take;
use system::rpc::{Answer, Error};

/// Find the method and call it.
pub fn call(caller: &Caller, name: &str, params: Map<String, Value>) -> Answer {
    match name {
        "core.describe" => core::describe(caller, take(params)?),
        "core.clock" => core::clock(take(params)?),
        "core.shutdown" => core::shutdown(caller, take(params)?),
        "ports.list" => ports::list(caller, take(params)?),
        "profile.schema" => profile::schema(take(params)?),
        "profile.validate" => profile::validate(caller, take(params)?),
        "control.hello" => control::hello(take(params)?),
        "control.acquire" => control::acquire(caller, take(params)?),
        "control.heartbeat" => control::heartbeat(caller, take(params)?),
        "control.release" => control::release(caller, take(params)?),
        "run.load" => run::load(caller, take(params)?),
        "run.start" => run::start(caller, take(params)?),
        "run.pause" => run::pause(caller, take(params)?),
        "run.resume" => run::resume(caller, take(params)?),
        "run.stop" => run::stop(caller, take(params)?),
        "run.impair" => run::impair(caller, take(params)?),
        "run.rate" => run::rate(caller, take(params)?),
        "run.status" => run::status(caller, take(params)?),
        "run.result" => run::result(caller, take(params)?),
        "run.flows" => run::flows(caller, take(params)?),
        "stats.subscribe" => stats::subscribe(caller, take(params)?),
        "stats.unsubscribe" => stats::unsubscribe(caller, take(params)?),
        "capture.start" => capture::start(caller, take(params)?),
        "capture.stop" => capture::stop(caller, take(params)?),
        "capture.status" => capture::status(caller, take(params)?),
        "graph.run" => graph::run(caller, take(params)?),
        "graph.stop" => graph::stop(caller, take(params)?),
        "graph.list" => graph::list(caller, take(params)?),
        "graph.describe" => graph::describe(caller, take(params)?),
        "graph.expand" => graph::expand(caller, take(params)?),
        "graph.stats" => graph::stats(caller, take(params)?),
        "graph.trace" => graph::trace(caller, take(params)?),
        "impair.presets" => impair::presets(take(params)?),
        "impair.validate" => impair::validate(take(params)?),
        "impair.start" => impair::start(caller, take(params)?),
        "impair.set" => impair::set(caller, take(params)?),
        "impair.stats" => impair::stats(caller, take(params)?),
        "impair.stop" => impair::stop(caller, take(params)?),
        "impair.list" => impair::list(caller, take(params)?),
        "log.tail" => log::tail(caller, take(params)?),
        _ => {
            let method = caller.core.registry.method(name).ok_or_else(|| Error::method(name))?;
            method.call(caller, params)
        }
    }
}

/// For methods without parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}
