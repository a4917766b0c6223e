//! `nat.reload`: another configuration for a NAT at work, if it can go on with it. Either all of it is done or nothing.

use crate::tables::Trackers;
use nat_elements::control::KIND;
use nat_elements::host::{self, AddressUpdate, answering};
use nat_elements::redivision::{AskPool, PoolState, asked_about, redivide};
use nat_elements::reload::{Change, Refusal, changes, differences};
use profile::Error as Fault;
use profile::graph::{ElementSpec, GraphFile};
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::sync::Arc;
use system::method::CallContext;
use system::rpc::{Answer, BAD_PROFILE, Error};

/// The graph that runs, and how it is to be.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reload {
    graph: String,
    document: Value,
}

/// Change what differs, or say what needs a restart or cannot be now.
pub fn reload(context: &dyn CallContext, params: Reload) -> Answer {
    context.may_change()?;
    let trackers = Trackers::of(context, &params.graph)?;
    context.change_graph(&params.graph, &params.document, &mut |old, new| {
        let answer = change(&trackers, old, new)?;
        tracing::info!(graph = %params.graph, changed = %answer["changed"], "reloaded");
        Ok(answer)
    })
}

fn change(trackers: &Trackers, old: &GraphFile, new: &GraphFile) -> Answer {
    let mut faults = others(old, new);
    let (name, was, is) = tracker(old, new)?;
    let fault = |refusal: &Refusal| as_fault(name, refusal);
    let (changed, refused) = differences(&was, &is);
    faults.extend(refused.iter().map(fault));
    if !faults.is_empty() {
        return Err(refuse(&faults));
    }
    let (about, states) = ask_pools(trackers, &was, &is)?;
    let redivision = redivide(&was, &is, &about, &states).map_err(|refusal| refuse(&[fault(&refusal)]))?;
    let told = changes(&is, &redivision).map_err(|refusal| refuse(&[fault(&refusal)]))?;
    for (element, change) in trackers.names.iter().zip(&told) {
        faults.extend(trackers.ask(element, change.clone())?.iter().map(fault));
    }
    if !faults.is_empty() {
        return Err(refuse(&faults));
    }
    // Who is asked for an address knows of it before it is used, and where its packets go to.
    let ownership = states.first().and_then(|state| state.ownership.as_ref()?.get());
    redivision.steer(ownership.map(|(_, ownership)| ownership));
    for (element, answering) in hosts(old, new) {
        let leaving = Arc::clone(&redivision.leaving);
        trackers.ask(&element, AddressUpdate { leaving, ..answering })?;
    }
    let mut left_out = Vec::new();
    for (element, change) in trackers.names.iter().zip(told) {
        // What came in between: the others go on.
        left_out.extend(trackers.ask(element, Change { apply: true, ..change })?.iter().map(fault));
    }
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
fn tracker<'a>(
    old: &GraphFile,
    new: &'a GraphFile,
) -> Result<(&'a str, nat_elements::Options, nat_elements::Options), Error> {
    let none = || Error::params("params.document", format!("it has no element of the kind {KIND}"));
    let (name, is) = new.elements.iter().find(|(_, spec)| spec.kind == KIND).ok_or_else(none)?;
    let was = old.elements.get(name).filter(|spec| spec.kind == KIND).ok_or_else(none)?;
    let read =
        |spec: &ElementSpec| serde_json::from_value(Value::Object(spec.options.clone())).map_err(|_| none());
    Ok((name, read(was)?, read(is)?))
}

/// What each tracker has of the pool, and the addresses that it was asked about.
fn ask_pools(
    trackers: &Trackers,
    was: &nat_elements::Options,
    is: &nat_elements::Options,
) -> Result<(Vec<Ipv4Addr>, Vec<PoolState>), Error> {
    /// Addresses of one question: a tracker answers it in less time than a burst takes.
    const AT_ONCE: usize = 1024;
    let first = trackers.names.first().map_or("", String::as_str);
    let known = trackers.ask(first, AskPool { about: Vec::new().into() })?.ownership;
    let ownership = known.as_ref().and_then(|known| known.get()).map(|(_, ownership)| ownership);
    let about = asked_about(was, is, ownership);
    let mut states = Vec::with_capacity(trackers.names.len());
    for element in &trackers.names {
        let mut state = trackers.ask(element, AskPool { about: Vec::new().into() })?;
        for some in about.chunks(AT_ONCE) {
            state.there.extend(trackers.ask(element, AskPool { about: some.into() })?.there);
        }
        states.push(state);
    }
    Ok((about, states))
}

/// Hosts that are to answer for other addresses.
fn hosts(old: &GraphFile, new: &GraphFile) -> Vec<(String, AddressUpdate)> {
    let read = |spec: &ElementSpec| -> Option<host::Options> {
        serde_json::from_value(Value::Object(spec.options.clone())).ok()
    };
    let told = |(name, is): (&String, &ElementSpec)| {
        let was = old.elements.get(name).filter(|was| both_hosts(was, is))?;
        Some((name.clone(), answering(&read(was)?, &read(is)?)?))
    };
    new.elements.iter().filter_map(told).collect()
}

fn both_hosts(was: &ElementSpec, is: &ElementSpec) -> bool {
    was.kind == host::KIND && is.kind == host::KIND
}

/// What differs beside the tracker, the addresses that hosts answer for, and from whom they take packets: all of that needs a restart.
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
        let (mut was, mut is) = (of(&was), of(&is));
        if old.elements.get(name).zip(new.elements.get(name)).is_some_and(|(was, is)| both_hosts(was, is)) {
            for options in [&mut was, &mut is].into_iter().filter_map(|value| value.as_mut()?.as_object_mut())
            {
                options.remove("answers_for");
                options.remove("sources");
            }
        }
        differ(&format!("elements.{name}"), was.as_ref(), is.as_ref(), &mut faults);
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
                "nat44": {"kind": "nat44", "inside": "a", "outside": "b", "pool": ["203.0.113.16/28"]},
                "out-host": {"kind": "nat-host", "port": "b", "answers_for": ["203.0.113.16/28"]},
            },
            "edges": ["a.rx -> nat44"],
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
            graph["elements"]["nat44"]["mss"] = json!(1400);
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
    fn hosts_are_told_for_what_they_answer() {
        let old = file(|_| ());
        let new = file(|graph| {
            graph["elements"]["out-host"]["answers_for"] = json!(["203.0.113.24/29", "203.0.113.40"])
        });
        assert!(others(&old, &new).is_empty() && hosts(&old, &old).is_empty());
        let told = hosts(&old, &new);
        let (name, answering) = &told[0];
        let added: Vec<String> = answering.added.iter().map(ToString::to_string).collect();
        assert_eq!((told.len(), name.as_str(), answering.answers_for.len()), (1, "out-host", 9));
        assert_eq!(added, ["203.0.113.40"]);
        let none = file(|graph| graph["elements"]["out-host"] = json!({"kind": "nat-host", "port": "b"}));
        assert_eq!(hosts(&old, &none)[0].1.answers_for.len(), 0);
        let sources = json!({"other_side": ["10.0.0.0/8"], "except": ["10.9.0.0/16"]});
        let filters = file(|graph| graph["elements"]["out-host"]["sources"] = sources.clone());
        assert!(others(&old, &filters).is_empty());
        assert_eq!(json!(hosts(&old, &filters)[0].1.sources), sources);
        let other = file(|graph| graph["elements"]["out-host"]["port"] = json!("a"));
        assert_eq!(others(&old, &other).len(), 1);
    }

    #[test]
    fn trackers_are_compared_by_their_options() {
        let old = file(|_| ());
        let new = file(|graph| graph["elements"]["nat44"]["mss"] = json!(1400));
        let (name, was, is) = tracker(&old, &new).unwrap();
        assert_eq!((name, differences(&was, &is).0), ("nat44", vec!["mss"]));
        let none = file(|graph| graph["elements"] = json!({}));
        assert!(tracker(&old, &none).is_err() && tracker(&none, &old).is_err());
    }
}
