//! Elements and the edges between them.

use crate::affinity::{Affinity, MakeAffinity};
use crate::counters::REASONS;
use crate::element::{Element, ElementInfo};
use serde::Serialize;
use std::collections::BTreeMap;

/// An element of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ElementId(pub(crate) usize);

/// From an output of one element to another element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) from: usize,
    pub(crate) output: usize,
    pub(crate) to: usize,
}

pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) about: ElementInfo,
    pub(crate) element: Box<dyn Element>,
    /// Makes the replica of that number, from 1 on, while there are any more.
    pub(crate) more: Option<ReplicaFactory>,
}

/// See [`Node::more`].
pub(crate) type ReplicaFactory = Box<dyn FnMut(usize) -> Option<Box<dyn Element>> + Send>;

/// Elements and edges: what is done with packets, not where.
#[derive(Default)]
pub struct Graph {
    pub(crate) nodes: Vec<Node>,
    pub(crate) edges: Vec<Edge>,
    /// Rules by name, besides the built-in ones.
    pub(crate) affinities: BTreeMap<String, MakeAffinity>,
}

/// What is wrong with a graph or its placement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Two elements have one name.
    #[error("two elements are called '{0}'")]
    TwiceNamed(String),
    /// An output leads nowhere.
    #[error("output '{output}' of '{element}' is not connected")]
    Loose {
        /// The element.
        element: String,
        /// Its output.
        output: String,
    },
    /// An output leads to two elements.
    #[error("output '{output}' of '{element}' is connected twice; put an element in between that copies")]
    Forked {
        /// The element.
        element: String,
        /// Its output.
        output: String,
    },
    /// An edge starts at an output that the element does not have.
    #[error("'{element}' has no output number {output}")]
    NoOutput {
        /// The element.
        element: String,
        /// The number.
        output: usize,
    },
    /// An edge leads to an element that takes no packets.
    #[error("'{from}' is connected to '{to}', which takes no packets")]
    NoInput {
        /// The start.
        from: String,
        /// The end.
        to: String,
    },
    /// Packets could go round for ever.
    #[error("packets would go in a circle through '{0}'; only ports may close a circle")]
    Circle(String),
    /// An element has more reasons to drop than there are counters.
    #[error("'{0}' has more than {REASONS} reasons to drop")]
    Reasons(String),
    /// The placement asks for several of an element that does not exist.
    #[error("there are to be {count} of '{name}', which does not exist; there are: {known}")]
    UnknownReplicated {
        /// The name.
        name: String,
        /// How many.
        count: usize,
        /// The names that exist.
        known: String,
    },
    /// There cannot be as many of an element.
    #[error("there are to be {count} of '{name}'; there can be 1 to {most}")]
    Replicas {
        /// The name.
        name: String,
        /// How many are asked for.
        count: usize,
        /// How many there can be.
        most: usize,
    },
    /// The placement names a rule that does not exist.
    #[error("replicas of '{name}' go by affinity '{affinity}', which does not exist; there are: {known}")]
    UnknownAffinity {
        /// The element.
        name: String,
        /// The rule.
        affinity: String,
        /// The rules that exist.
        known: String,
    },
    /// Replicas are to be joined one by one with others, which are not as many.
    #[error("'{to}' goes by affinity 'upstream' with {count} replicas, but '{from}' before it has {before}")]
    Upstream {
        /// The element.
        to: String,
        /// How many there are of it.
        count: usize,
        /// The element before it.
        from: String,
        /// How many there are of that.
        before: usize,
    },
    /// The placement names an element that does not exist.
    #[error("worker {worker} is to run '{name}', which does not exist; there are: {known}")]
    Unknown {
        /// The worker's number.
        worker: usize,
        /// The name.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// The placement names an element twice.
    #[error("'{0}' is placed twice")]
    TwicePlaced(String),
    /// The placement has no worker.
    #[error("a placement needs at least one worker")]
    NoWorker,
}

/// An edge, as shown to people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EdgeView {
    /// The element it starts at.
    pub from: String,
    /// The name of that element's output.
    pub output: String,
    /// The element it leads to.
    pub to: String,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Add an element under a name of its own, such as `west.tx`.
    pub fn add(&mut self, name: impl Into<String>, element: impl Element + 'static) -> ElementId {
        let about = element.about();
        self.nodes.push(Node { name: name.into(), about, element: Box::new(element), more: None });
        ElementId(self.nodes.len() - 1)
    }

    /// Add an element of which there may be several, as the placement says. `make(i)` makes number `i`, all of one kind;
    /// `None`: there are no more than `i`, such as a port's queues. Number 0 is made at once; `None` then adds nothing.
    pub fn add_replicable<E: Element + 'static>(
        &mut self,
        name: impl Into<String>,
        mut make: impl FnMut(usize) -> Option<E> + Send + 'static,
    ) -> Option<ElementId> {
        let first = make(0)?;
        let more: ReplicaFactory =
            Box::new(move |i| make(i).map(|element| Box::new(element) as Box<dyn Element>));
        let about = first.about();
        self.nodes.push(Node { name: name.into(), about, element: Box::new(first), more: Some(more) });
        Some(ElementId(self.nodes.len() - 1))
    }

    /// Add an element of which there are these instances, all of one kind. Without any nothing is added.
    pub fn add_instances(
        &mut self,
        name: impl Into<String>,
        instances: Vec<Box<dyn Element>>,
    ) -> Option<ElementId> {
        let mut instances = instances.into_iter();
        let element = instances.next()?;
        let more: Option<ReplicaFactory> =
            (instances.len() > 0).then(|| Box::new(move |_| instances.next()) as ReplicaFactory);
        self.nodes.push(Node { name: name.into(), about: element.about(), element, more });
        Some(ElementId(self.nodes.len() - 1))
    }

    /// Give a rule that placements may name a name. `make` is called for each edge that leads to replicas that go by it.
    pub fn affinity<A: Affinity + 'static>(
        &mut self,
        name: impl Into<String>,
        make: impl Fn() -> A + Send + 'static,
    ) {
        self.affinities.insert(name.into(), Box::new(move || Box::new(make())));
    }

    /// The same, of a rule that is in a box already.
    pub fn boxed_affinity(&mut self, name: impl Into<String>, make: MakeAffinity) {
        self.affinities.insert(name.into(), make);
    }

    /// Connect the first output of `from` to `to`.
    pub fn connect(&mut self, from: ElementId, to: ElementId) {
        self.connect_output(from, 0, to);
    }

    /// Connect output number `output` of `from` to `to`.
    pub fn connect_output(&mut self, from: ElementId, output: usize, to: ElementId) {
        self.edges.push(Edge { from: from.0, output, to: to.0 });
    }

    /// Connect the elements in a row, each by its first output.
    pub fn chain(&mut self, elements: &[ElementId]) {
        elements.windows(2).for_each(|pair| self.connect(pair[0], pair[1]));
    }

    /// The element of this name.
    pub fn find(&self, name: &str) -> Option<ElementId> {
        self.names().position(|known| known == name).map(ElementId)
    }

    /// Names of the elements, in the order they were added.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.name.as_str())
    }

    /// The edges, in the order they were added.
    pub fn edges(&self) -> Vec<EdgeView> {
        let view = |edge: &Edge| EdgeView {
            from: self.nodes[edge.from].name.clone(),
            output: self.output(edge.from, edge.output),
            to: self.nodes[edge.to].name.clone(),
        };
        self.edges.iter().map(view).collect()
    }

    fn output(&self, node: usize, output: usize) -> String {
        self.nodes[node].about.outputs.get(output).map_or_else(|| output.to_string(), |name| (*name).into())
    }

    /// Check that every output leads to exactly one element that takes packets, and none in a circle.
    pub fn check(&self) -> Result<(), GraphError> {
        for (i, node) in self.nodes.iter().enumerate() {
            if self.nodes[..i].iter().any(|other| other.name == node.name) {
                return Err(GraphError::TwiceNamed(node.name.clone()));
            }
            if node.about.drops.len() > REASONS {
                return Err(GraphError::Reasons(node.name.clone()));
            }
            for output in 0..node.about.outputs.len() {
                let count = self.edges.iter().filter(|edge| (edge.from, edge.output) == (i, output)).count();
                let (element, output) = (node.name.clone(), self.output(i, output));
                match count {
                    0 => return Err(GraphError::Loose { element, output }),
                    1 => {}
                    _ => return Err(GraphError::Forked { element, output }),
                }
            }
        }
        for edge in &self.edges {
            let (from, to) = (&self.nodes[edge.from], &self.nodes[edge.to]);
            if edge.output >= from.about.outputs.len() {
                return Err(GraphError::NoOutput { element: from.name.clone(), output: edge.output });
            }
            if !to.about.takes {
                return Err(GraphError::NoInput { from: from.name.clone(), to: to.name.clone() });
            }
        }
        self.no_circle()
    }

    /// Take away elements that nothing leads to, until none is left; what is left then is a circle.
    fn no_circle(&self) -> Result<(), GraphError> {
        let mut left: Vec<usize> = (0..self.nodes.len()).collect();
        loop {
            let before = left.len();
            let old = left.clone();
            left.retain(|node| self.edges.iter().any(|edge| edge.to == *node && old.contains(&edge.from)));
            match left.first() {
                None => return Ok(()),
                Some(node) if left.len() == before => {
                    return Err(GraphError::Circle(self.nodes[*node].name.clone()));
                }
                Some(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::{Placement, WorkerSpec};
    use crate::replicas::PlacedGraph;

    struct Plain(ElementInfo);

    impl Element for Plain {
        fn about(&self) -> ElementInfo {
            self.0
        }
    }

    fn kind(takes: bool, outputs: &'static [&'static str]) -> Plain {
        Plain(ElementInfo { kind: "plain", takes, outputs, drops: &[], polled: !takes })
    }

    fn line() -> (Graph, [ElementId; 3]) {
        let mut graph = Graph::new();
        let source = graph.add("source", kind(false, &["out"]));
        let middle = graph.add("middle", kind(true, &["out"]));
        let sink = graph.add("sink", kind(true, &[]));
        (graph, [source, middle, sink])
    }

    #[test]
    fn a_line_is_right() {
        let (mut graph, ids) = line();
        graph.chain(&ids);
        assert_eq!(graph.check(), Ok(()));
        let edges = graph.edges();
        assert_eq!(
            (edges[1].from.as_str(), edges[1].output.as_str(), edges[1].to.as_str()),
            ("middle", "out", "sink")
        );
    }

    #[test]
    fn each_mistake_is_named() {
        let (graph, _) = line();
        assert!(matches!(graph.check(), Err(GraphError::Loose { .. })));

        let (mut graph, ids) = line();
        graph.chain(&ids);
        graph.connect(ids[0], ids[2]);
        assert!(matches!(graph.check(), Err(GraphError::Forked { .. })));

        let (mut graph, ids) = line();
        graph.chain(&ids);
        graph.connect_output(ids[2], 0, ids[1]);
        assert!(matches!(graph.check(), Err(GraphError::NoOutput { .. })));

        let (mut graph, ids) = line();
        graph.connect(ids[0], ids[1]);
        graph.connect(ids[1], ids[0]);
        assert!(matches!(graph.check(), Err(GraphError::NoInput { .. })));

        let (mut graph, ids) = line();
        graph.connect(ids[0], ids[1]);
        graph.connect(ids[1], ids[1]);
        assert_eq!(graph.check(), Err(GraphError::Circle("middle".into())));

        let (mut graph, ids) = line();
        graph.chain(&ids);
        graph.add("sink", kind(true, &[]));
        assert_eq!(graph.check(), Err(GraphError::TwiceNamed("sink".into())));

        const MORE: &[&str] = &["r"; REASONS + 1];
        let reasons =
            |drops| Plain(ElementInfo { kind: "plain", takes: true, outputs: &[], drops, polled: false });
        let mut graph = Graph::new();
        graph.add("fits", reasons(&MORE[..REASONS]));
        assert_eq!(graph.check(), Ok(()));
        graph.add("over", reasons(MORE));
        assert_eq!(graph.check(), Err(GraphError::Reasons("over".into())));
    }

    #[test]
    fn a_placement_puts_each_element_on_one_worker() {
        let worker_of =
            |placement: &Placement| PlacedGraph::new(line().0, placement).map(|placed| placed.worker_of);
        assert_eq!(worker_of(&Placement::single(None)), Ok(vec![0, 0, 0]));
        assert_eq!(worker_of(&Placement::split([&["source"], &["sink"]])), Ok(vec![0, 0, 1]));
        assert_eq!(worker_of(&Placement::split([])), Err(GraphError::NoWorker));
        let twice = Placement::split([&["sink"], &["sink"]]);
        assert_eq!(worker_of(&twice), Err(GraphError::TwicePlaced("sink".into())));
        let why = worker_of(&Placement::split([&["sinc"]])).unwrap_err().to_string();
        assert!(why.contains("'sinc'") && why.contains("source, middle, sink"), "{why}");
    }

    #[test]
    fn a_placement_is_data() {
        let text = r#"{"workers": [{"core": 2, "elements": ["a", "b"]}, {"elements": ["c"]}]}"#;
        let placement: Placement = serde_json::from_str(text).unwrap();
        assert_eq!(placement.workers[0].core, Some(2));
        assert_eq!(placement.workers[1], WorkerSpec { core: None, elements: vec!["c".into()] });
        assert!(serde_json::from_str::<Placement>(r#"{"workers": [], "wrokers": []}"#).is_err());
    }
}
