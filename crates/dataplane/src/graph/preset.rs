//! What the roles of a profile's ports stand for, as a graph:
//!
//! ```text
//!  generator   rx ──► receiver ──► arp-nd ──► tx     generator ──► tx
//!  reflector   rx ──► reflector ──► tx
//!  l2fwd       rx ──► l2fwd ──► tx of the other
//!  impair      rx ──► impair ──► …
//!  queues      rx ──► flow-distributor ──► elements for each queue; or rx0, rx1, … where the port spreads flows (RSS)
//! ```

use crate::graph::check::CheckedGraph;
use crate::queue_pairs::QueuePairs;
use profile::graph::{ElementSpec, GraphFile, GraphPort, queue};
use profile::{Dpdk, Port, Role, Worker};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// A queue's name: with a number if several are named, of either direction.
fn queue_name(port: &Port, direction: &str, number: usize, pairs: QueuePairs) -> String {
    let numbered = pairs.rx.max(pairs.tx) > 1;
    if numbered { format!("{}.{direction}{number}", port.name) } else { format!("{}.{direction}", port.name) }
}

fn element(kind: &str, options: Value) -> ElementSpec {
    let options = match options {
        Value::Object(options) => options,
        _ => Map::new(),
    };
    ElementSpec { kind: kind.into(), options }
}

/// The graph of ports whose queues are used so. Its workers are not said yet: see [`place`].
pub fn expand(settings: &Dpdk, pairs: &[QueuePairs]) -> GraphFile {
    let mut file = GraphFile { placement: Vec::new(), ..settings.graph_file() };
    let pairs_of = |name: &str| {
        let at = settings.ports.iter().position(|port| port.name == name)?;
        Some((&settings.ports[at], *pairs.get(at)?))
    };
    for (index, (port, &own)) in settings.ports.iter().zip(pairs).enumerate() {
        let queues = own.rx.max(own.tx) as u16;
        file.ports.insert(port.name.clone(), GraphPort { queues, ..GraphPort::of(port) });
        let mut add = |name: String, spec: ElementSpec| {
            file.elements.insert(name.clone(), spec);
            name
        };
        // What all that comes in goes through.
        let mut way = vec![queue_name(port, "rx", 0, own)];
        if let Some(impair) = &port.impair {
            let mut options = json!({"impair": impair, "seed": index});
            if let Some(timeline) = &port.impair_timeline {
                options["impair_timeline"] = json!(timeline);
            }
            way.push(add(format!("{}.impair", port.name), element("impair", options)));
        }
        if own.distributes() {
            let options = json!({"outputs": own.count});
            way.push(add(format!("{}.flow-distributor", port.name), element("flow-distributor", options)));
            file.edges.push(way.join(" -> "));
        }
        for lane in 0..own.count {
            let name = |kind: &str| match own.count {
                1 => format!("{}.{kind}", port.name),
                _ => format!("{}.{kind}{lane}", port.name),
            };
            let from = match (own.rss(), own.distributes()) {
                (true, _) => queue_name(port, "rx", lane, own),
                (_, true) => format!("{}.{lane}", way[way.len() - 1]),
                _ => way.join(" -> "),
            };
            let tx = queue_name(port, "tx", lane % own.tx, own);
            let edge = match port.role {
                Role::Generator => {
                    let mut options = json!({"port": port.name});
                    if own.distributes() {
                        options["share"] = json!({"number": lane, "of": own.count});
                    }
                    let receiver = add(name("receiver"), element("receiver", options));
                    let arp_nd = format!("{}.arp-nd", port.name);
                    let options = json!({"port": port.name});
                    let generator = add(name("generator"), element("generator", options.clone()));
                    let mut edge = format!("{from} -> {receiver} -> {arp_nd}");
                    if lane == 0 {
                        edge += &format!(" -> {tx}");
                        add(arp_nd, element("arp-nd", options));
                    }
                    file.edges.push(edge);
                    format!("{generator} -> {tx}")
                }
                Role::Reflector => {
                    let options = json!({"port": port.name});
                    format!("{from} -> {} -> {tx}", add(name("reflector"), element("reflector", options)))
                }
                Role::L2fwd => {
                    let options = json!({"forward": port.forward.unwrap_or_default()});
                    let forwarder = add(name("l2fwd"), element("l2fwd", options));
                    let other = port.to.as_deref().and_then(pairs_of);
                    let to = other.map_or(tx, |(port, pairs)| queue_name(port, "tx", lane % pairs.tx, pairs));
                    format!("{from} -> {forwarder} -> {to}")
                }
            };
            file.edges.push(edge);
        }
    }
    file
}

/// Elements on these workers; those that none of them names go with what they serve: a port's queues and what is between these
/// and the elements of its role.
pub fn place(graph: &CheckedGraph, workers: &[Worker]) -> Vec<Worker> {
    let names = graph.names();
    // A queue that the graph does not have, as the port has fewer, or one that it knows by another name.
    let known = |name: &str| -> Vec<String> {
        if names.contains(&name) {
            return vec![name.to_owned()];
        }
        let Some((port, direction, number)) = queue(name) else { return Vec::new() };
        let is = |other: &&&str| match queue(other) {
            Some((of, way, own)) if of == port && way == direction => {
                number.is_none() || number == Some(own.unwrap_or(0))
            }
            _ => false,
        };
        names.iter().filter(is).map(|name| (*name).to_owned()).collect()
    };
    let mut placed: BTreeSet<String> = BTreeSet::new();
    let mut all: Vec<Worker> = Vec::new();
    for worker in workers {
        let elements = worker.elements.iter().flat_map(|name| known(name));
        let elements = elements.filter(|name| placed.insert(name.clone())).collect();
        all.push(Worker { elements, ..worker.clone() });
    }
    for worker in &mut all {
        let named = std::mem::take(&mut worker.elements);
        for name in named {
            let after = || graph.successors(&name).map(str::to_owned);
            let beside = match graph.kind(&name) {
                Some("generator") => after().collect(),
                Some("receiver" | "reflector" | "l2fwd") => {
                    all_predecessors(graph, &name).into_iter().chain(after()).collect()
                }
                Some("impair") => all_predecessors(graph, &name),
                _ => Vec::new(),
            };
            worker.elements.push(name);
            // Several may lead to one port: it is with the first.
            worker.elements.extend(beside.into_iter().filter(|name| placed.insert(name.clone())));
        }
    }
    all
}

/// The elements that lead to this one, and those that lead to these; not those that are placed by themselves.
fn all_predecessors(graph: &CheckedGraph, element: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut next = vec![element];
    while let Some(to) = next.pop() {
        for from in graph.predecessors(to).filter(|from| graph.kind(from) != Some("impair")) {
            found.push(from.to_owned());
            next.push(from);
        }
    }
    found
}
