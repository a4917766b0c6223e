//! The RPC methods, one group a file. A method takes its parameters apart, calls the core, and shapes the
//! answer; what it does stands elsewhere. docs/reference/rpc.md says what each takes and gives.

mod capture;
mod control;
mod core;
mod log;
mod ports;
mod profile;
mod run;
mod stats;

use crate::rpc::Error;
use crate::server::Caller;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What a method answers.
type Answer = Result<Value, Error>;

/// Find the method and call it.
pub fn call(caller: &Caller, name: &str, params: Value) -> Answer {
    match name {
        "core.describe" => core::describe(),
        "core.shutdown" => core::shutdown(caller),
        "ports.list" => ports::list(caller),
        "profile.schema" => profile::schema(),
        "profile.validate" => profile::validate(take(params)?),
        "control.hello" => Ok(Value::Bool(true)),
        "control.acquire" => control::acquire(caller),
        "control.heartbeat" => control::heartbeat(caller),
        "control.release" => control::release(caller),
        "run.load" => run::load(caller, take(params)?),
        "run.start" => run::start(caller),
        "run.pause" => run::pause(caller),
        "run.resume" => run::resume(caller),
        "run.stop" => run::stop(caller),
        "run.status" => run::status(caller),
        "run.result" => run::result(caller),
        "run.flows" => run::flows(caller, &take(params)?),
        "stats.subscribe" => stats::subscribe(caller),
        "stats.unsubscribe" => stats::unsubscribe(caller, &take(params)?),
        "capture.start" => capture::start(caller, take(params)?),
        "capture.stop" => capture::stop(caller),
        "capture.status" => capture::status(caller),
        "log.tail" => log::tail(caller, &take(params)?),
        _ => {
            let message = format!("there is no method {name:?}");
            Err(Error { code: -32601, message, data: Value::Null })
        }
    }
}

/// Parameters by name; none at all is the same as an empty object.
fn take<T: DeserializeOwned>(params: Value) -> Result<T, Error> {
    let params = if params.is_null() { Value::Object(serde_json::Map::new()) } else { params };
    serde_json::from_value(params).map_err(|e| Error::params(&e))
}
