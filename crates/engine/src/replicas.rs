//! A graph as it runs: each element as often as its placement says, and each on its worker.
//!
//! ```text
//!  graph      rx ──► parse ──► nat ──► tx            placement   nat: 2 replicas, affinity flow
//!  as it runs rx ──► parse ──► parse.out>nat ─┬─► nat#0 ─┬─► tx
//!                              (distributor)  └─► nat#1 ─┘
//! ```
//! A distributor sits on the worker of the element that hands on; edges to replicas on other workers are rings as ever, one
//! for each pair, so that a replica's packets stay in order.

use crate::affinity::{FLOW, MakeAffinity, QUEUE, ROUND_ROBIN, RoundRobin, SymmetricFlow, UPSTREAM};
use crate::distributor::Distributor;
use crate::element::{Element, MOST_REPLICAS};
use crate::graph::{Edge, Graph, GraphError, Node};
use crate::placement::{Placement, Replicas};
use std::collections::{BTreeMap, BTreeSet};

/// A graph as it runs.
pub(crate) struct PlacedGraph {
    pub(crate) graph: Graph,
    /// The worker of each element, in order.
    pub(crate) worker_of: Vec<usize>,
}

impl PlacedGraph {
    /// From a graph that was checked.
    pub(crate) fn new(graph: Graph, placement: &Placement) -> Result<Self, GraphError> {
        let mut assigned = Assignments::of(placement)?;
        let rule_of = |name: &str| placement.replicas.get(name).map(|replicas| replicas.affinity.as_str());
        let own: BTreeSet<String> = graph.affinities.keys().cloned().collect();
        let mut affinities = built_in();
        affinities.extend(graph.affinities);
        check(&graph.nodes, placement, &affinities)?;
        let mut placed = Self { graph: Graph::new(), worker_of: Vec::new() };
        // By element of the graph: the elements that it has become.
        let mut instances: Vec<Vec<usize>> = Vec::new();
        let mut abouts = Vec::new();
        for node in graph.nodes {
            abouts.push((node.name.clone(), node.about));
            let group = assigned.take(&node.name);
            let Some(Replicas { count, .. }) = placement.replicas.get(&node.name) else {
                instances.push(vec![placed.add(node, group.unwrap_or(0))]);
                continue;
            };
            let Node { name, element, mut more, .. } = node;
            let mut first = Some(element);
            let mut all = Vec::new();
            for i in 0..*count {
                let made = first.take().or_else(|| more.as_mut().and_then(|more| more(i)));
                let element =
                    made.ok_or(GraphError::Replicas { name: name.clone(), count: *count, most: i })?;
                let replica = format!("{name}#{i}");
                let worker = assigned.take(&replica).or(group).unwrap_or(0);
                let about = element.about();
                all.push(placed.add(Node { name: replica, about, element, more: None }, worker));
            }
            instances.push(all);
        }
        for edge in &graph.edges {
            let ((from_name, from), (to_name, _)) = (&abouts[edge.from], &abouts[edge.to]);
            let (before, after) = (&instances[edge.from], &instances[edge.to]);
            let rule = rule_of(to_name);
            match rule {
                Some(UPSTREAM) => {
                    if before.len() != after.len() {
                        return Err(GraphError::Upstream {
                            to: to_name.clone(),
                            count: after.len(),
                            from: from_name.clone(),
                            before: before.len(),
                        });
                    }
                    for (from, to) in before.iter().zip(after) {
                        placed.connect(*from, edge.output, *to);
                    }
                }
                // Or both go by one rule of the graph's: what came to one goes on to the one of the same number.
                Some(rule)
                    if (rule == QUEUE || own.contains(rule) && rule_of(from_name) == Some(rule))
                        && before.len() == after.len() =>
                {
                    for (from, to) in before.iter().zip(after) {
                        placed.connect(*from, edge.output, *to);
                    }
                }
                Some(rule) if after.len() > 1 => {
                    let Some(make) = affinities.get(rule) else { continue };
                    let output = from.outputs.get(edge.output).copied().unwrap_or_default();
                    for from in before {
                        let name = format!("{}.{output}>{to_name}", placed.graph.nodes[*from].name);
                        let element: Box<dyn Element> = Box::new(Distributor::new(make(), after.len()));
                        let worker = placed.worker_of[*from];
                        let hand_off = Node { name, about: element.about(), element, more: None };
                        let hand_off = placed.add(hand_off, worker);
                        placed.connect(*from, edge.output, hand_off);
                        for (output, to) in after.iter().enumerate() {
                            placed.connect(hand_off, output, *to);
                        }
                    }
                }
                _ => {
                    for from in before {
                        placed.connect(*from, edge.output, after[0]);
                    }
                }
            }
        }
        assigned.all_taken(&placed.graph)?;
        Ok(placed)
    }

    fn add(&mut self, node: Node, worker: usize) -> usize {
        self.graph.nodes.push(node);
        self.worker_of.push(worker);
        self.worker_of.len() - 1
    }

    fn connect(&mut self, from: usize, output: usize, to: usize) {
        self.graph.edges.push(Edge { from, output, to });
    }
}

fn built_in() -> BTreeMap<String, MakeAffinity> {
    let flow: MakeAffinity = Box::new(|| Box::new(SymmetricFlow::new()));
    let round_robin: MakeAffinity = Box::new(|| Box::new(RoundRobin::default()));
    let queue: MakeAffinity = Box::new(|| Box::new(SymmetricFlow::new()));
    BTreeMap::from([(FLOW.into(), flow), (QUEUE.into(), queue), (ROUND_ROBIN.into(), round_robin)])
}

/// Check what the placement says of replicas.
fn check(
    nodes: &[Node],
    placement: &Placement,
    affinities: &BTreeMap<String, MakeAffinity>,
) -> Result<(), GraphError> {
    for (name, Replicas { count, affinity }) in &placement.replicas {
        let (name, count) = (name.clone(), *count);
        let Some(node) = nodes.iter().find(|node| node.name == name) else {
            let known = nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(GraphError::UnknownReplicated { name, count, known });
        };
        let most = if node.more.is_some() { MOST_REPLICAS } else { 1 };
        if !(1..=most).contains(&count) {
            return Err(GraphError::Replicas { name, count, most });
        }
        if affinity != UPSTREAM && !affinities.contains_key(affinity) {
            let known =
                affinities.keys().map(String::as_str).chain([UPSTREAM]).collect::<Vec<_>>().join(", ");
            return Err(GraphError::UnknownAffinity { name, affinity: affinity.clone(), known });
        }
    }
    Ok(())
}

/// Which elements a placement puts on which worker.
struct Assignments {
    /// By name: the worker, and whether there is such an element.
    named: BTreeMap<String, (usize, bool)>,
}

impl Assignments {
    fn of(placement: &Placement) -> Result<Self, GraphError> {
        if placement.workers.is_empty() {
            return Err(GraphError::NoWorker);
        }
        let mut named = BTreeMap::new();
        for (worker, spec) in placement.workers.iter().enumerate() {
            for name in &spec.elements {
                if named.insert(name.clone(), (worker, false)).is_some() {
                    return Err(GraphError::TwicePlaced(name.clone()));
                }
            }
        }
        Ok(Self { named })
    }

    /// The worker that is to run this one, if it is said.
    fn take(&mut self, name: &str) -> Option<usize> {
        self.named.get_mut(name).map(|(worker, exists)| {
            *exists = true;
            *worker
        })
    }

    /// Whether all that are named exist.
    fn all_taken(self, graph: &Graph) -> Result<(), GraphError> {
        match self.named.into_iter().find(|(_, (_, exists))| !exists) {
            None => Ok(()),
            Some((name, (worker, _))) => {
                let known = graph.names().collect::<Vec<_>>().join(", ");
                Err(GraphError::Unknown { worker, name, known })
            }
        }
    }
}
