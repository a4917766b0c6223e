//! `core.*`: what this daemon is and can do.

use super::{Answer, Nothing};
use crate::connection::Caller;
use nix::sys::resource::{Resource, getrlimit};
use protocol::registry::Params;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

/// Name, version, capabilities.
pub fn describe(_: Nothing) -> Answer {
    let protocols: Vec<Value> = Params::NAMES
        .iter()
        .filter_map(|name| Params::default_of(name))
        .map(|p| {
            let schemes: Vec<&str> = p.schemes().iter().map(|s| s.name).collect();
            json!({"name": p.name(), "delays": p.delays(), "schemes": schemes})
        })
        .collect();
    let nofile = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(_, hard)| hard);
    Ok(json!({
        "name": "netdynod",
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "cores": traffic::cpu::cores(),
        "transports": [
            {"name": "sockets", "available": true},
            {"name": "dpdk", "available": true},
        ],
        "protocols": protocols,
        "interfaces": super::ports::interfaces(),
        "limits": {"nofile": nofile},
    }))
}

/// End the daemon.
pub fn shutdown(caller: &Caller, _: Nothing) -> Answer {
    caller.core.as_writer(caller.session)?;
    caller.core.ending.store(true, Ordering::Relaxed);
    Ok(Value::Bool(true))
}
