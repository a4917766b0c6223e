//! Which elements a run has, and how they are connected: what is built, and what can be shown before.

use crate::queue_pairs::QueuePairs;
use profile::{Dpdk, Role};

/// An element's name: with a number where there are several of its kind.
pub fn name(port: &str, kind: &str, lane: usize, lanes: usize) -> String {
    if lanes > 1 { format!("{port}.{kind}{lane}") } else { format!("{port}.{kind}") }
}

/// What kind of element it is, by its name.
pub fn kind(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or_default().trim_end_matches(|c: char| c.is_ascii_digit())
}

/// Whether it is an element of this port and kind.
pub fn is(name: &str, port: &str, of: &str) -> bool {
    kind(name) == of && name.rsplit_once('.').is_some_and(|(own, _)| own == port)
}

/// Elements by name, in the order in which they are built, and the edges between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wiring {
    /// `PORT.KIND`, or `PORT.KINDn` where there are several.
    pub elements: Vec<String>,
    /// From an output of one to another.
    pub edges: Vec<(String, usize, String)>,
}

impl Wiring {
    /// Of the ports that the settings name, with so many lanes each.
    pub fn new(settings: &Dpdk, lanes: &[QueuePairs]) -> Self {
        let mut wiring = Self::default();
        for (port, own) in settings.ports.iter().zip(lanes) {
            let named = |kind: &str, lane: usize, of: usize| name(&port.name, kind, lane, of);
            wiring.elements.extend((0..own.tx).map(|i| named("tx", i, own.tx)));
            wiring.elements.extend((0..own.rx).map(|i| named("rx", i, own.rx)));
            let mut comes = named("rx", 0, own.rx);
            for (there, kind) in [(port.impair.is_some(), "impair"), (own.spread(), "spread")] {
                if there {
                    wiring.way(&[comes, named(kind, 0, 1)]);
                    comes = named(kind, 0, 1);
                }
            }
            for lane in 0..own.count {
                let one = |kind: &str| named(kind, lane, own.count);
                let tx = named("tx", lane % own.tx, own.tx);
                let (from, output) = match own.rss() {
                    true => (named("rx", lane, own.rx), 0),
                    false => (comes.clone(), lane),
                };
                let first = match port.role {
                    Role::Generator => "receiver",
                    Role::Reflector => "reflector",
                    Role::L2fwd => "l2fwd",
                };
                if port.role == Role::Generator {
                    wiring.way(&[one("generator"), tx.clone()]);
                }
                wiring.edges.push((from, output, one(first)));
                let next = match port.role {
                    Role::Generator => named("neighbour", 0, 1),
                    Role::Reflector => tx,
                    Role::L2fwd => {
                        let to = port.to.as_ref().unwrap_or(&port.name);
                        let at = settings.ports.iter().position(|other| other.name == *to);
                        let there = at.and_then(|at| lanes.get(at)).map_or(1, |lanes| lanes.tx);
                        name(to, "tx", lane % there, there)
                    }
                };
                wiring.way(&[one(first), next]);
            }
            if port.role == Role::Generator {
                wiring.way(&[named("neighbour", 0, 1), named("tx", 0, own.tx)]);
            }
        }
        wiring
    }

    /// Of two ports that hand on to each other, each way over an impaired path.
    pub fn between() -> Self {
        let name = |element: &str| element.to_owned();
        let mut wiring = Self { elements: ["a.tx", "b.tx"].map(name).to_vec(), edges: Vec::new() };
        wiring.way(&["a.rx", "a.impair", "b.tx"].map(name));
        wiring.way(&["b.rx", "b.impair", "a.tx"].map(name));
        wiring
    }

    fn way(&mut self, elements: &[String]) {
        for element in elements {
            let known = self.elements.contains(element) || kind(element) == "tx";
            self.elements.extend((!known).then(|| element.clone()));
        }
        let pairs = elements.windows(2).map(|pair| (pair[0].clone(), 0, pair[1].clone()));
        self.edges.extend(pairs);
    }

    /// The elements that lead to this one, and those that lead to these; not those that are placed by themselves.
    pub fn before(&self, element: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut next = vec![element];
        while let Some(to) = next.pop() {
            let edges = self.edges.iter().filter(|(from, _, other)| other == to && kind(from) != "impair");
            for (from, ..) in edges {
                found.push(from.clone());
                next.push(from);
            }
        }
        found
    }

    /// The elements that this one leads to.
    pub fn after(&self, element: &str) -> Vec<String> {
        self.edges.iter().filter(|(from, ..)| from == element).map(|(.., to)| to.clone()).collect()
    }
}
