//! A checked graph, made of elements: queues of open ports, and what the kinds build.

use crate::graph::check::{CheckedGraph, copies};
use capture::Capture;
use dpdk::Mempool;
use element::kind::{Build, Extensions, GraphPort};
use engine::affinity::{QUEUE, UPSTREAM};
use engine::{Element, Graph, Placement, Replicas, WorkerSpec};
use profile::graph::{Affinity, Direction, queue};
use profile::{Error as SetupError, Worker};
use std::collections::BTreeMap;

/// A port's queues, as elements, until the graph has them.
#[derive(Default)]
pub struct Queues {
    /// Those that receive.
    pub rx: Vec<Option<Box<dyn Element>>>,
    /// Those that send.
    pub tx: Vec<Option<Box<dyn Element>>>,
}

/// What elements are made of.
pub struct Parts<'a> {
    /// The ports' queues, by port.
    pub queues: BTreeMap<String, Queues>,
    /// The ports, by number.
    pub ports: &'a [GraphPort],
    /// Packets of elements' own.
    pub pool: &'a Mempool,
    /// Files that packets are written to.
    pub captures: &'a mut Vec<Capture>,
    /// What some kinds need, and leave.
    pub extensions: &'a mut Extensions,
}

/// The graph, and how often each of its elements is there.
pub fn assemble(
    checked: &CheckedGraph,
    parts: Parts<'_>,
) -> Result<(Graph, BTreeMap<String, Replicas>), SetupError> {
    let Parts { mut queues, ports, pool, captures, extensions } = parts;
    let (mut graph, mut replicas) = (Graph::new(), BTreeMap::new());
    for name in checked.names() {
        let (instances, affinity) = match (checked.settings.get(name), queue(name)) {
            (Some(settings), _) => {
                let wanted = checked.file.replicas.get(name);
                let count = wanted.map_or(1, |replicas| replicas.count);
                let mut build =
                    Build { name, replica: 0, replicas: count, pool, ports, captures, extensions };
                let mut all = Vec::new();
                for replica in 0..count {
                    build.replica = replica;
                    all.push(settings.build(&mut build)?);
                }
                if let Some(make) = settings.owner(&mut build)? {
                    graph.boxed_affinity(Affinity::Owner.name(), make);
                }
                (all, wanted.map_or("flow", |replicas| replicas.affinity.name()))
            }
            (None, Some((port, direction, number))) => {
                let Some(own) = queues.get_mut(port) else { continue };
                let found = take(checked, own, name, (direction, number));
                if found.is_empty() {
                    let fix = format!("Use {port}.{}, which is all that it has", direction.name());
                    let what = format!(
                        "the port {port} has no queue {name}: it has {} that receive and {} that send",
                        own.rx.len(),
                        own.tx.len()
                    );
                    return Err(SetupError::new("ND-92-12", format!("ports.{port}.queues"), what, fix));
                }
                let affinity = match direction {
                    Direction::Transmit => QUEUE,
                    Direction::Receive => UPSTREAM,
                };
                (found, affinity)
            }
            (None, None) => continue,
        };
        let count = instances.len();
        if count > 1 {
            replicas.insert(name.to_owned(), Replicas { count, affinity: affinity.to_owned() });
        }
        graph.add_instances(name, instances);
    }
    for edge in &checked.edges {
        if let (Some(from), Some(to)) = (graph.find(&edge.from), graph.find(&edge.to)) {
            graph.connect_output(from, edge.output, to);
        }
    }
    Ok((graph, replicas))
}

/// The queues that `name` means.
fn take(
    checked: &CheckedGraph,
    own: &mut Queues,
    name: &str,
    (direction, number): (Direction, Option<u16>),
) -> Vec<Box<dyn Element>> {
    let all = match direction {
        Direction::Receive => &mut own.rx,
        Direction::Transmit => &mut own.tx,
    };
    let (from, count) = match (number, direction) {
        (Some(number), _) => (usize::from(number), 1),
        (None, Direction::Receive) => (0, all.len()),
        // More than there are elements before would not be used.
        (None, Direction::Transmit) => (0, most_before(checked, name)),
    };
    all.iter_mut().skip(from).take(count).filter_map(Option::take).collect()
}

/// The most instances of an element that leads to the queues called `name`.
fn most_before(checked: &CheckedGraph, name: &str) -> usize {
    let before = checked.edges.iter().filter(|edge| edge.to == name);
    before.map(|edge| copies(&checked.file, &edge.from)).max().unwrap_or(1)
}

/// The file's workers on these cores, by the engine's names.
pub fn placement(
    workers: &[Worker],
    cores: &[usize],
    graph: &Graph,
    replicas: BTreeMap<String, Replicas>,
) -> Placement {
    let mut placement = Placement::single(None);
    let specs = cores.iter().enumerate().map(|(i, core)| {
        let elements = workers.get(i).map(|worker| &worker.elements[..]).unwrap_or_default();
        let elements = elements.iter().flat_map(|name| placed(name, graph, &replicas)).collect();
        WorkerSpec { core: Some(*core), elements }
    });
    placement.workers = specs.collect();
    placement.replicas = replicas;
    placement
}

/// What a name in the placement means: an element, or queues that are there.
fn placed(name: &str, graph: &Graph, replicas: &BTreeMap<String, Replicas>) -> Vec<String> {
    let there = |name: &str| graph.find(name).is_some();
    if there(name) || name.contains('#') {
        return vec![name.to_owned()];
    }
    match queue(name) {
        // All queues of a direction, each of which the edges name by itself.
        Some((_, _, None)) => graph
            .names()
            .filter(|known| {
                queue(known).is_some_and(|(.., number)| number.is_some())
                    && known.trim_end_matches(|c: char| c.is_ascii_digit()) == name
            })
            .map(str::to_owned)
            .collect(),
        Some((port, direction, Some(number))) => {
            let all = format!("{port}.{}", direction.name());
            let count = replicas.get(&all).map_or(0, |replicas| replicas.count);
            match usize::from(number) {
                number if number < count => vec![format!("{all}#{number}")],
                0 if there(&all) => vec![all],
                _ => Vec::new(),
            }
        }
        None => Vec::new(),
    }
}
