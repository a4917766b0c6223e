//! `nat.reload`: another configuration for a NAT at work, if it can go on with it. Either all of it is done or nothing.

use super::Answer;
use super::nat::Trackers;
use crate::caller::Caller;
use crate::files::Door;
use crate::graphs;
use crate::rpc::{BAD_PROFILE, Error};
use nat::control::KIND;
use nat::reload::{Change, Refusal, changes, differences};
use profile::Error as Fault;
use profile::graph::{ElementSpec, GraphFile};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::PoisonError;

/// The graph that runs, and how it is to be.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reload {
    graph: String,
    document: Value,
}

/// Change what differs, or say what needs a restart or cannot be now.
pub fn reload(caller: &Caller, params: Reload) -> Answer {
    // Over the Unix socket comes its owner, whoever holds the lease.
    if caller.door == Door::Tcp {
        caller.core.as_writer(caller.session)?;
    }
    let graphs = &caller.core.graphs;
    let _one_at_a_time = graphs.changing.lock().unwrap_or_else(PoisonError::into_inner);
    let trackers = Trackers::of(caller, &params.graph)?;
    let new = graphs::read(&params.document, caller.files())?.file;
    let old = graphs.file(&params.graph)?;
    let mut faults = others(&old, &new);
    let (name, was, is) = tracker(&old, &new)?;
    let fault = |refusal: &Refusal| as_fault(name, refusal);
    let (changed, refused) = differences(&was, &is);
    faults.extend(refused.iter().map(fault));
    let told = changes(&is, trackers.names.len());
    faults.extend(told.as_ref().err().map(fault));
    let told = if faults.is_empty() { told.unwrap_or_default() } else { return Err(refuse(&faults)) };
    for (element, change) in trackers.names.iter().zip(&told) {
        faults.extend(trackers.ask(element, change.clone())?.iter().map(fault));
    }
    if !faults.is_empty() {
        return Err(refuse(&faults));
    }
    let mut left_out = Vec::new();
    for (element, change) in trackers.names.iter().zip(told) {
        // What came in between: the others go on.
        left_out.extend(trackers.ask(element, Change { apply: true, ..change })?.iter().map(fault));
    }
    graphs.changed(&params.graph, new);
    tracing::info!(graph = %params.graph, ?changed, "reloaded");
    Ok(json!({"changed": changed, "left_out": left_out}))
}

fn refuse(faults: &[Fault]) -> Error {
    Error::all(BAD_PROFILE, faults)
}

fn restart(at: String, what: impl Into<String>) -> Fault {
    Fault::new("ND-104-36", at, what, "Stop the NAT and start it again; with `state` its sessions go on")
}

fn as_fault(name: &str, refusal: &Refusal) -> Fault {
    let (at, what) = (format!("elements.{name}.{}", refusal.key), refusal.what.as_str());
    if refusal.restart {
        return restart(at, what);
    }
    Fault::new("ND-104-36", at, what, "Choose another, or try again when it is free")
}

/// The tracker's name, and its options as they are and as they are to be.
fn tracker<'a>(old: &GraphFile, new: &'a GraphFile) -> Result<(&'a str, nat::Options, nat::Options), Error> {
    let none = || Error::params("params.document", format!("it has no element of the kind {KIND}"));
    let (name, is) = new.elements.iter().find(|(_, spec)| spec.kind == KIND).ok_or_else(none)?;
    let was = old.elements.get(name).filter(|spec| spec.kind == KIND).ok_or_else(none)?;
    let read =
        |spec: &ElementSpec| serde_json::from_value(Value::Object(spec.options.clone())).map_err(|_| none());
    Ok((name, read(was)?, read(is)?))
}

/// What differs beside the tracker: all of that needs a restart.
fn others(old: &GraphFile, new: &GraphFile) -> Vec<Fault> {
    let (was, is) = (json!(old), json!(new));
    let mut faults = Vec::new();
    for key in ["ports", "edges", "replicas", "placement", "huge_pages", "memory"] {
        differ(key, was.get(key), is.get(key), &mut faults);
    }
    let names =
        old.elements.keys().chain(new.elements.keys().filter(|name| !old.elements.contains_key(*name)));
    let is_tracker =
        |file: &GraphFile, name: &str| file.elements.get(name).is_some_and(|spec| spec.kind == KIND);
    for name in names.filter(|name| !(is_tracker(old, name) && is_tracker(new, name))) {
        let of = |all: &Value| all.get("elements").and_then(|all| all.get(name)).cloned();
        differ(&format!("elements.{name}"), of(&was).as_ref(), of(&is).as_ref(), &mut faults);
    }
    faults
}

/// Find what differs, as deep as objects go.
fn differ(at: &str, was: Option<&Value>, is: Option<&Value>, faults: &mut Vec<Fault>) {
    match (was, is) {
        (was, is) if was == is => {}
        (Some(Value::Object(was)), Some(Value::Object(is))) => {
            for key in was.keys().chain(is.keys().filter(|key| !was.contains_key(*key))) {
                differ(&format!("{at}.{key}"), was.get(key), is.get(key), faults);
            }
        }
        _ => faults.push(restart(at.to_owned(), "it cannot change while the NAT runs")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(change: impl FnOnce(&mut Value)) -> GraphFile {
        let mut graph = json!({
            "ports": {"a": {"device": "null", "ip": "10.0.0.1/24"}, "b": {"device": "null"}},
            "elements": {
                "conntrack": {"kind": "conntrack", "inside": "a", "outside": "b", "pool": ["203.0.113.16/28"]},
                "out-host": {"kind": "nat-host", "port": "b", "answers_for": ["203.0.113.16/28"]},
            },
            "edges": ["a.rx -> conntrack"],
        });
        change(&mut graph);
        serde_json::from_value(graph).unwrap()
    }

    #[test]
    fn whatever_else_differs_is_told_with_its_place() {
        let old = file(|_| ());
        let at = |new: &GraphFile| others(&old, new).into_iter().map(|fault| fault.at).collect::<Vec<_>>();
        assert!(at(&old).is_empty());
        let new = file(|graph| {
            graph["description"] = json!("other words");
            graph["elements"]["conntrack"]["mss"] = json!(1400);
        });
        assert!(at(&new).is_empty(), "the tracker is asked itself");
        let new = file(|graph| {
            graph["ports"]["a"]["ip"] = json!("10.0.0.2/24");
            graph["elements"]["out-host"]["gateway"] = json!("203.0.113.1");
            graph["memory"] = json!("1GiB");
            graph["elements"]["tap"] = json!({"kind": "counter"});
        });
        let mut found = at(&new);
        found.sort_unstable();
        assert_eq!(found, ["elements.out-host.gateway", "elements.tap", "memory", "ports.a.ip"]);
    }

    #[test]
    fn trackers_are_compared_by_their_options() {
        let old = file(|_| ());
        let new = file(|graph| graph["elements"]["conntrack"]["mss"] = json!(1400));
        let (name, was, is) = tracker(&old, &new).unwrap();
        assert_eq!((name, differences(&was, &is).0), ("conntrack", vec!["mss"]));
        let none = file(|graph| graph["elements"] = json!({}));
        assert!(tracker(&old, &none).is_err() && tracker(&none, &old).is_err());
    }
}
