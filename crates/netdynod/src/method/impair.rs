//! `impair.*`: links between two hosts' kernels or two ports, made as bad as wanted. They are the writer's, and end with his lease.

use super::{Answer, NoParams};
use crate::caller::Caller;
use crate::links::{self, Carried, LinkEnd};
use profile::impairment::preset::PRESETS;
use protocol::unit::Size;
use serde::Deserialize;
use serde_json::{Value, json};

/// Paths that have names.
pub fn presets(_: NoParams) -> Answer {
    let all = PRESETS.iter().map(|p| json!({"name": p.name, "about": p.about, "spec": (p.spec)()}));
    Ok(all.collect())
}

/// A specification, or the name of a preset.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Validate {
    spec: Value,
}

/// What is wrong with it.
pub fn validate(params: Validate) -> Answer {
    let errors: Vec<_> = links::read(&params.spec.to_string()).err().into_iter().collect();
    Ok(json!({"errors": errors}))
}

/// The two ends, the impairment, and the threads that carry it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    a: LinkEnd,
    b: LinkEnd,
    #[serde(default = "unimpaired")]
    spec: Value,
    #[serde(default)]
    two_threads: bool,
    #[serde(default)]
    cores: Vec<usize>,
    #[serde(default)]
    huge_pages: bool,
    #[serde(default = "memory")]
    memory: Size,
}

fn memory() -> Size {
    Size(256 << 20)
}

fn unimpaired() -> Value {
    json!({})
}

/// Make both ends, and carry frames between them.
pub fn start(caller: &Caller, params: Start) -> Answer {
    caller.core.as_writer(caller.session)?;
    let spec = links::parse_parameter(&params.spec)?;
    let Start { a, b, two_threads, cores, huge_pages, memory, .. } = params;
    let how = Carried { two_threads, cores, huge_pages, memory };
    a.check("a", caller.files())?;
    b.check("b", caller.files())?;
    let link = caller.core.links.start(a, b, spec, how)?;
    // Ports may take long to open, and he who wanted them may have gone.
    if let Err(gone) = caller.core.as_writer(caller.session) {
        caller.core.links.stop(&link)?;
        return Err(gone);
    }
    Ok(json!({"link": link}))
}

/// What is to hold now.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    link: String,
    spec: Value,
    #[serde(default)]
    seed: Option<u64>,
}

/// From now on so.
pub fn set(caller: &Caller, params: Set) -> Answer {
    caller.core.as_writer(caller.session)?;
    caller.core.links.set(&params.link, links::parse_parameter(&params.spec)?, params.seed)?;
    Ok(Value::Bool(true))
}

/// Which link.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkParams {
    link: String,
}

/// Its counters.
pub fn stats(caller: &Caller, params: LinkParams) -> Answer {
    Ok(json!(caller.core.links.status(&params.link)?))
}

/// Take it away.
pub fn stop(caller: &Caller, params: LinkParams) -> Answer {
    caller.core.as_writer(caller.session)?;
    let (status, recorded) = caller.core.links.stop(&params.link)?;
    let mut answer = json!(status);
    answer["recorded"] = json!(recorded);
    Ok(answer)
}

/// What links there are.
pub fn list(caller: &Caller, _: NoParams) -> Answer {
    Ok(json!(caller.core.links.list()))
}
