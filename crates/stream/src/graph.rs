//! The graph of a profile's ports: what their roles stand for, or the elements that the profile names itself.

use crate::{generator, receiver};
use dataplane::graph::{CheckedGraph, preset};
use dataplane::queue_pairs::QueuePairs;
use element::distribute;
use element::kind::{KindEntry, kind};
use element::registry::Registry;
use profile::graph::{Direction, GraphFile, queue};
use profile::{Dpdk, Error, Profile, Transport};
use serde_json::Value;

/// The kinds of elements that are here.
pub const KINDS: &[KindEntry] = &[kind::<generator::Options>(), kind::<receiver::Options>()];

/// The kinds of elements of the platform for the graph of a run; systems bring more.
pub fn kinds() -> Registry {
    dataplane::graph::kinds().with(KINDS)
}

/// How the queues of the ports will probably be used: nobody asked the ports yet.
pub fn expected_queues(settings: &Dpdk) -> Vec<QueuePairs> {
    settings.ports.iter().map(|port| QueuePairs::expected(port, true)).collect()
}

/// The graph of ports whose queues are used so.
pub fn of(settings: &Dpdk, queues: &[QueuePairs], kinds: &Registry) -> Result<CheckedGraph, Vec<Error>> {
    if settings.has_graph() {
        return CheckedGraph::of_run(settings.graph_file(), kinds);
    }
    let mut graph = CheckedGraph::of_run(preset::expand(settings, queues), kinds)?;
    graph.file.placement = preset::place(&graph, &settings.placement);
    Ok(graph)
}

/// The profile with its elements named, in place of its ports' roles.
pub fn expanded(profile: &Profile, kinds: &Registry) -> Result<Profile, Vec<Error>> {
    let mut profile = profile.clone();
    let Transport::Dpdk(settings) = &mut profile.transport else { return Ok(profile) };
    if settings.has_graph() {
        return Ok(profile);
    }
    let GraphFile { ports, elements, edges, replicas, placement, .. } =
        of(settings, &expected_queues(settings), kinds)?.file;
    for port in &mut settings.ports {
        port.queues = ports.get(&port.name).map_or(1, |port| port.queues);
        (port.to, port.forward, port.impair, port.impair_timeline) = (None, None, None, None);
    }
    (settings.elements, settings.edges, settings.replicas) = (elements, edges, replicas);
    settings.placement = placement;
    Ok(profile)
}

/// What is wrong with the graph of a profile that is right otherwise.
pub fn check(profile: &Profile, kinds: &Registry) -> Vec<Error> {
    let Transport::Dpdk(settings) = &profile.transport else { return Vec::new() };
    let graph = match of(settings, &expected_queues(settings), kinds) {
        Ok(graph) => graph,
        Err(faults) => return faults,
    };
    let groups = profile.groups.iter().enumerate();
    let unsent = groups.filter(|(_, group)| sender(settings, &graph, group.port.as_deref()).is_none());
    let fault = |(i, _)| {
        let what = "no generator of the graph sends on the group's port";
        let fix = "Add an element {\"kind\": \"generator\", \"port\": …} and an edge to the port's tx";
        Error::new("ND-104-06", format!("groups[{i}].port"), what, fix)
    };
    unsent.map(fault).collect()
}

/// The number of the port that groups send on which name this one, or none.
pub fn sender(settings: &Dpdk, graph: &CheckedGraph, wanted: Option<&str>) -> Option<usize> {
    let fits = |name: &str| wanted.is_none_or(|wanted| wanted == name) && !generators(graph, name).is_empty();
    settings.ports.iter().position(|port| fits(&port.name))
}

/// The generators of a port, in the order of their numbers.
pub fn generators<'a>(graph: &'a CheckedGraph, port: &str) -> Vec<&'a str> {
    of_port(graph, generator::KIND, port)
}

/// The receivers of a port.
pub fn receivers<'a>(graph: &'a CheckedGraph, port: &str) -> Vec<&'a str> {
    of_port(graph, receiver::KIND, port)
}

fn of_port<'a>(graph: &'a CheckedGraph, kind: &str, port: &str) -> Vec<&'a str> {
    let own = |name: &&str| {
        let options = graph.file.elements.get(*name).map(|spec| &spec.options);
        options.and_then(|options| options.get("port")).and_then(Value::as_str) == Some(port)
    };
    let mut names: Vec<&str> = graph.of_kind(kind).map(|(name, _)| name).filter(own).collect();
    // Number 10 comes after number 2.
    names.sort_by_key(|name| (name.len(), *name));
    names
}

/// Whether all that the port's receivers measure comes from its queues as it was received.
pub fn is_direct(graph: &CheckedGraph, port: &str) -> bool {
    let is_queue = |name: &str| matches!(queue(name), Some((of, Direction::Receive, _)) if of == port);
    let deals = |name: &str| graph.kind(name) == Some(distribute::KIND);
    receivers(graph, port).into_iter().all(|receiver| {
        let mut before = graph.predecessors(receiver);
        before.all(|name| is_queue(name) || deals(name) && graph.predecessors(name).all(is_queue))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Map;
    use std::collections::BTreeSet;

    #[test]
    fn each_kind_has_a_name_of_its_own_and_an_example_that_is_right() {
        let registry = kinds();
        let names: BTreeSet<_> = registry.kinds().map(|kind| kind.name).collect();
        assert_eq!(names.len(), registry.kinds().count(), "a name is used twice");
        for one in KINDS {
            let example: Map<String, Value> = serde_json::from_str(one.example).expect(one.name);
            assert!(one.read(&example, "elements.x").is_ok() && one.of_run, "{}", one.name);
        }
    }

    #[test]
    fn a_port_is_direct_where_nothing_holds_what_it_receives() {
        let direct = |more: Value| {
            let mut port = serde_json::json!({"name": "a", "device": "null", "queues": 2});
            port.as_object_mut().expect("a port").extend(more.as_object().cloned().unwrap_or_default());
            let settings = serde_json::from_value(serde_json::json!({"ports": [port]})).expect("settings");
            let graph =
                of(&settings, &expected_queues(&settings), &kinds()).map_err(|why| why[0].to_string());
            is_direct(&graph.unwrap_or_else(|why| panic!("{why}")), "a")
        };
        assert!(direct(serde_json::json!({})) && direct(serde_json::json!({"device": "tap:x"})));
        assert!(!direct(serde_json::json!({"impair": {}})));
    }
}
