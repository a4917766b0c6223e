//! `core.*`: what this daemon is and can do.

use super::{Answer, NoParams};
use crate::caller::Caller;
use crate::connection_limit::CONNECTIONS;
use crate::lines::LINE_MAX;
use crate::watchers::SUBSCRIPTIONS;
use crate::{machine, ports};
use models::Catalogue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

/// Name, version, capabilities, and what models say about themselves.
pub fn describe(caller: &Caller, _: NoParams) -> Answer {
    let available = |name| json!({"name": name, "available": true});
    let transports: Vec<Value> = caller.core.registry.transports().map(available).collect();
    let Catalogue { models, counters, failures } = Catalogue::new();
    Ok(json!({
        "name": "netdynod",
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "cores": run::cpu::cores(),
        "transports": transports,
        "models": models,
        "counters": counters,
        "failures": failures,
        "interfaces": ports::interfaces(),
        "rights": machine::rights(),
        "huge_pages": machine::huge_pages(),
        "limits": {
            "nofile": machine::nofile(),
            "connections": CONNECTIONS,
            "subscriptions": SUBSCRIPTIONS,
            "line": LINE_MAX,
        },
    }))
}

/// The time of day here, seconds since 1970 (UTC).
pub fn clock(_: NoParams) -> Answer {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(json!({"time": now.as_secs_f64()}))
}

/// End the daemon.
pub fn shutdown(caller: &Caller, _: NoParams) -> Answer {
    caller.core.as_writer(caller.session)?;
    caller.outbox.end_by_answer();
    caller.core.ended_by.get_or_init(|| Arc::clone(&caller.outbox));
    caller.core.ending.store(true, Ordering::Release);
    Ok(Value::Bool(true))
}
