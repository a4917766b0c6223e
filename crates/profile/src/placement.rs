//! Which worker runs which elements, by the names that ports' roles give them or a graph of one's own has.

use crate::ceiling::QUEUES;
use crate::error::{BAD_REFERENCE, CONFLICT};
use crate::graph::{Direction, queue};
use crate::text::choices;
use crate::{Dpdk, Error, Port, Role, Threads, Worker};
use protocol::problem::closest;
use std::collections::BTreeSet;

/// What is wrong with a worker by itself. `at`: where it stands; `number`: its place in the list.
pub fn check_worker(worker: &Worker, number: usize, at: &str) -> Vec<Error> {
    let mut errors = Vec::new();
    if worker.core.is_some() && (worker.node.is_some() || worker.threads.is_some()) {
        let what = "a core that is named is not chosen by node or threads";
        errors.push(Error::new(CONFLICT, format!("{at}.core"), what, "Give core, or node and threads"));
    }
    if number == 0 && worker.threads == Some(Threads::Shared) {
        let what = "the first worker has none before it to share a physical core with";
        let fix = "Put it after the worker that it belongs to";
        errors.push(Error::new(CONFLICT, format!("{at}.threads"), what, fix));
    }
    errors
}

/// What is wrong with the placement. The names of a graph of one's own are checked with that graph.
pub(crate) fn check(dpdk: &Dpdk) -> Vec<Error> {
    let mut errors = Vec::new();
    for (w, worker) in dpdk.placement.iter().enumerate() {
        errors.extend(check_worker(worker, w, &format!("transport.dpdk.placement[{w}]")));
    }
    if dpdk.has_graph() {
        return errors;
    }
    let mut placed = BTreeSet::new();
    let all: Vec<String> = elements(dpdk).collect();
    for (w, worker) in dpdk.placement.iter().enumerate() {
        for (e, element) in worker.elements.iter().enumerate() {
            let at = format!("transport.dpdk.placement[{w}].elements[{e}]");
            let mut bad = |what, fix| errors.push(Error::new(BAD_REFERENCE, &at, what, fix));
            if !all.contains(element) && !is_beside(dpdk, element) {
                let names = || all.iter().map(String::as_str);
                let fix = match closest(element, names()) {
                    Some(near) => format!("Did you mean {near:?}?"),
                    None => format!("Use {}", choices(names())),
                };
                bad(format!("{element:?} is not an element of these ports"), fix);
            } else if !placed.insert(element.clone()) {
                bad(format!("{element:?} is placed twice"), "Place each element once".into());
            }
        }
    }
    if !dpdk.placement.is_empty() {
        for missing in all.iter().filter(|element| !placed.contains(*element)) {
            let what = format!("{missing:?} is placed nowhere");
            let fix = "Name it in a worker, or leave placement out";
            errors.push(Error::new(BAD_REFERENCE, "transport.dpdk.placement", what, fix));
        }
    }
    errors
}

/// What must be placed of a port, for each of its queues.
fn elements_of(role: Role) -> &'static [&'static str] {
    match role {
        Role::Generator => &["generator", "receiver"],
        Role::Reflector => &["reflector"],
        Role::L2fwd => &["l2fwd"],
    }
}

/// All that must be placed.
fn elements(dpdk: &Dpdk) -> impl Iterator<Item = String> + '_ {
    dpdk.ports.iter().flat_map(|port| {
        let lanes = (0..port.queues.min(QUEUES)).flat_map(move |i| {
            let number = if port.queues > 1 { i.to_string() } else { String::new() };
            elements_of(port.role).iter().map(move |element| format!("{}.{element}{number}", port.name))
        });
        lanes.chain(port.impair.as_ref().map(|_| format!("{}.impair", port.name)))
    })
}

/// What may be placed, and else goes with what it serves: a port's queues, and what stands between these and its elements.
fn is_beside(dpdk: &Dpdk, name: &str) -> bool {
    let of = |wanted: &str| dpdk.ports.iter().find(|port| port.name == wanted);
    if let Some((port, Direction::Receive | Direction::Transmit, number)) = queue(name) {
        return of(port).is_some_and(|port| number.is_none_or(|number| number < port.queues));
    }
    let has = |port: &Port, element: &str| match element {
        "arp-nd" => port.role == Role::Generator,
        "flow-distributor" => port.queues > 1,
        _ => false,
    };
    name.rsplit_once('.').is_some_and(|(port, element)| of(port).is_some_and(|port| has(port, element)))
}
