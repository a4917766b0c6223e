//! A graph's file, read strictly and checked: everything that is wrong is told at once, and nothing is opened.

use crate::graph::edges::{self, Edge, EdgeEnd, Ends, comma_list};
use crate::graph::packets;
use crate::queue_pairs::NamedQueues;
use dpdk::Device;
use element::kind::{Settings, is_name};
use element::registry::Registry;
use profile::graph::{Affinity, Direction, ElementSpec, GraphFile, GraphPort, MOST_PORTS, Replicas, queue};
use profile::{Error, check_worker, read_value};
use protocol::problem::closest;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Faults that are told: who has more looks at these first.
const FAULTS: usize = 100;
/// Most replicas of an element.
const REPLICAS: usize = 32;

impl fmt::Debug for CheckedGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CheckedGraph({:?})", self.names())
    }
}

/// A graph that can be opened.
pub struct CheckedGraph {
    /// The file.
    pub file: GraphFile,
    /// The elements' settings, by name.
    pub settings: BTreeMap<String, Box<dyn Settings>>,
    /// The edges; a port with several queues may have one name for all of them (`inside.rx`).
    pub edges: Vec<Edge>,
}

impl CheckedGraph {
    /// Read and check `value`. Bad form gives faults of the parts that are badly formed; content is checked in the rest.
    pub fn read(value: &Value, registry: &Registry) -> Result<Self, Vec<Error>> {
        let mut checker = Checker::new(registry, false);
        let checked = checker.read(value);
        checker.end(checked)
    }

    /// Check the graph of a run, whose ports and workers are checked with the rest of its profile.
    pub fn of_run(file: GraphFile, registry: &Registry) -> Result<Self, Vec<Error>> {
        let mut checker = Checker::new(registry, true);
        let checked = checker.content(file, true);
        checker.end(Some(checked)).map_err(|mut faults| {
            faults.iter_mut().for_each(|fault| fault.at = format!("transport.dpdk.{}", fault.at));
            faults
        })
    }

    /// How many queues of a port the edges name: those that are numbered, or all of them.
    pub fn named_queues(&self, port: &str) -> NamedQueues {
        let numbers = |wanted| {
            let ends = self.edges.iter().flat_map(|edge| [&edge.from, &edge.to]);
            let own =
                ends.filter_map(|name| queue(name)).filter(|(of, way, _)| *of == port && *way == wanted);
            own.map(|(.., number)| number.map(|number| usize::from(number) + 1)).collect::<Vec<_>>()
        };
        let named = |direction| match numbers(direction) {
            all if all.contains(&None) => None,
            all => Some(all.into_iter().flatten().max().unwrap_or(1)),
        };
        NamedQueues { rx: named(Direction::Receive), tx: named(Direction::Transmit) }
    }

    /// The names of all that edges connect, in the order in which they do.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.edges.iter().flat_map(|edge| [&edge.from, &edge.to]) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    /// What leads to `name`.
    pub fn predecessors<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.edges.iter().filter(move |edge| edge.to == name).map(|edge| edge.from.as_str())
    }

    /// Where `name` leads.
    pub fn successors<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.edges.iter().filter(move |edge| edge.from == name).map(|edge| edge.to.as_str())
    }

    /// The kind of the element of this name.
    pub fn kind(&self, name: &str) -> Option<&str> {
        self.file.elements.get(name).map(|spec| spec.kind.as_str())
    }

    /// The elements of a kind, by name.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = (&str, &dyn Settings)> {
        let is = move |name: &str| self.file.elements.get(name).is_some_and(|spec| spec.kind == kind);
        self.settings.iter().filter(move |(name, _)| is(name)).map(|(name, own)| (name.as_str(), &**own))
    }
}

struct Checker<'a> {
    registry: &'a Registry,
    faults: Vec<Error>,
    /// Elements and ports that are there, but cannot be read.
    broken: BTreeSet<String>,
    /// It is a run's graph.
    of_run: bool,
}

impl<'a> Checker<'a> {
    fn new(registry: &'a Registry, of_run: bool) -> Self {
        Self { registry, faults: Vec::new(), broken: BTreeSet::new(), of_run }
    }

    fn end(self, checked: Option<CheckedGraph>) -> Result<CheckedGraph, Vec<Error>> {
        let mut faults = self.faults;
        faults.truncate(FAULTS);
        match checked {
            Some(checked) if faults.is_empty() => Ok(checked),
            _ => Err(faults),
        }
    }

    fn fault(
        &mut self,
        code: &'static str,
        at: impl Into<String>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.faults.push(Error::new(code, at, what, fix));
    }

    /// Take out of the object at `key` what is no `T`, so that the rest can be read.
    fn readable<T: DeserializeOwned>(&mut self, value: &mut Value, key: &str) {
        let Some(Value::Object(all)) = value.get_mut(key) else { return };
        all.retain(|name, one| match read_value::<T>(one, &format!("{key}.{name}")) {
            Ok(_) => true,
            Err(fault) => {
                self.faults.push(fault);
                self.broken.insert(name.clone());
                false
            }
        });
    }

    fn read(&mut self, value: &Value) -> Option<CheckedGraph> {
        if !value.is_object() {
            let fix = "Write {\"ports\": {…}, \"elements\": {…}, \"edges\": […]}";
            self.fault("ND-104-04", "", "a graph is an object, and this is none", fix);
            return None;
        }
        let mut value = value.clone();
        self.readable::<GraphPort>(&mut value, "ports");
        self.readable::<ElementSpec>(&mut value, "elements");
        self.readable::<Replicas>(&mut value, "replicas");
        // A key that is wrong is taken out, so that the rest can be read.
        let mut connected = true;
        loop {
            let fault = match read_value::<GraphFile>(&value, "") {
                Ok(file) => return Some(self.content(file, connected)),
                Err(fault) => fault,
            };
            let key = fault.at.split(['.', '[']).next().unwrap_or_default().to_owned();
            self.faults.push(fault);
            let there = value.as_object_mut().and_then(|all| all.remove(&key)).is_some();
            if !there || key == "ports" {
                return None;
            }
            connected &= !matches!(key.as_str(), "edges" | "elements");
        }
    }

    /// Check what was read. `connected`: the edges could be read, too.
    fn content(&mut self, file: GraphFile, connected: bool) -> CheckedGraph {
        if !self.of_run {
            self.ports(&file);
            if let Some((what, fix)) = packets::too_little(&file) {
                self.fault("ND-104-05", "memory", what, fix);
            }
        }
        let settings = self.elements(&file);
        let ends = self.ends(&file, &settings);
        self.ways_to_name_queues(&file);
        let edges = edges::read(&file.edges, &ends, &mut self.faults);
        if connected {
            let ends = used(ends, &file);
            let optional = |name: &str| matches!(queue(name), Some((_, Direction::Transmit, _)));
            edges::check(&edges, &ends, optional, &mut self.faults);
        }
        self.replicas(&file, &settings, &edges);
        self.placement(&file);
        CheckedGraph { file, settings, edges }
    }

    fn ports(&mut self, file: &GraphFile) {
        if file.ports.is_empty() && self.broken.is_empty() || file.ports.len() > MOST_PORTS {
            let what = format!("a graph of {} ports cannot run", file.ports.len());
            let fix =
                format!("Give 1 to {MOST_PORTS}, like {{\"inside\": {{\"device\": \"0000:83:00.0\"}}}}");
            self.fault("ND-104-05", "ports", what, fix);
        }
        for (name, port) in &file.ports {
            let at = format!("ports.{name}");
            self.name(name, &at);
            if let Err(why) = port.device.parse::<Device>() {
                self.fault("ND-104-04", format!("{at}.device"), why.describe(), why.fix());
            }
            if let Some(mtu) = port.mtu.filter(|mtu| !(576..=9_600).contains(mtu)) {
                let what = format!("an MTU is 576 to 9,600 bytes, not {mtu}");
                self.fault("ND-104-05", format!("{at}.mtu"), what, "Use that of the link");
            }
            // What it does with frames its elements say, and not a role: they may be in VLANs of theirs.
            let port = profile::Port { role: profile::Role::Reflector, ..port.port(name) };
            self.faults.extend(profile::check_port(&port, &at));
        }
    }

    fn name(&mut self, name: &str, at: &str) {
        if !is_name(name) {
            let fix = "Use 1 to 64 letters, digits, - and _";
            self.fault("ND-104-04", at, format!("{name:?} cannot be a name"), fix);
        }
    }

    fn elements(&mut self, file: &GraphFile) -> BTreeMap<String, Box<dyn Settings>> {
        let mut all = BTreeMap::new();
        for (name, spec) in &file.elements {
            let at = format!("elements.{name}");
            // One that serves a port may be called after it.
            let of_port = name.rsplit_once('.').filter(|(port, _)| file.ports.contains_key(*port));
            self.name(of_port.map_or(name, |(_, own)| own), &at);
            if file.ports.contains_key(name) || of_port.is_some() && queue(name).is_some() {
                let what = format!("a port, or a queue of one, and an element are called {name:?}");
                self.fault("ND-104-06", &at, what, "Give each its own name");
            }
            let Some(kind) = self.registry.find(&spec.kind) else {
                let known = || self.registry.kinds().map(|kind| kind.name);
                let fix = match closest(&spec.kind, known()) {
                    Some(near) => format!("Did you mean {near:?}?"),
                    None => format!("Use one of {}", known().collect::<Vec<_>>().join(", ")),
                };
                self.fault(
                    "ND-104-06",
                    format!("{at}.kind"),
                    format!("there is no kind of element {:?}", spec.kind),
                    fix,
                );
                self.broken.insert(name.clone());
                continue;
            };
            if kind.of_run && !self.of_run {
                let what = format!("a {} is for the groups of a profile, and here are none", kind.name);
                let fix = "Write the graph under transport.dpdk of a profile: `netdyno graph PROFILE --expand` shows one";
                self.fault("ND-104-33", format!("{at}.kind"), what, fix);
                self.broken.insert(name.clone());
                continue;
            }
            let settings = match kind.read(&spec.options, &at) {
                Ok(settings) => settings,
                Err(faults) => {
                    self.faults.extend(faults);
                    self.broken.insert(name.clone());
                    continue;
                }
            };
            for (key, port) in settings.ports() {
                if !file.ports.contains_key(port) && !self.broken.contains(port) {
                    let known = || file.ports.keys().map(String::as_str);
                    let fix = match closest(port, known()) {
                        Some(near) => format!("Did you mean {near:?}?"),
                        None => format!("There are {}", comma_list(known())),
                    };
                    self.faults.push(Error::new(
                        "ND-104-06",
                        format!("{at}.{key}"),
                        format!("there is no port {port:?}"),
                        fix,
                    ));
                }
            }
            all.insert(name.clone(), settings);
        }
        all
    }

    /// All that edges can name.
    fn ends(&self, file: &GraphFile, settings: &BTreeMap<String, Box<dyn Settings>>) -> Ends {
        let mut ends = Ends::new();
        for (name, settings) in settings {
            let kind = file.elements.get(name).and_then(|spec| self.registry.find(&spec.kind));
            let takes = kind.is_none_or(|kind| kind.takes);
            ends.insert(name.clone(), EdgeEnd { outputs: Some(settings.outputs()), takes });
        }
        let queues = file.ports.iter().map(|(name, port)| (name, port.queues));
        let unread =
            self.broken.iter().filter(|name| !file.elements.contains_key(*name)).map(|name| (name, 1));
        for (name, queues) in queues.chain(unread.clone()) {
            let known = file.ports.contains_key(name);
            for direction in [Direction::Receive, Direction::Transmit] {
                let outputs = match direction {
                    Direction::Receive if known => Some(vec!["out".to_owned()]),
                    Direction::Receive => None,
                    Direction::Transmit => Some(Vec::new()),
                };
                let end = EdgeEnd { outputs, takes: direction == Direction::Transmit };
                let all = format!("{name}.{}", direction.name());
                ends.insert(all.clone(), end.clone());
                if queues > 1 {
                    ends.extend((0..queues.min(64)).map(|queue| (format!("{all}{queue}"), end.clone())));
                }
            }
        }
        for name in &self.broken {
            ends.insert(name.clone(), EdgeEnd { outputs: None, takes: true });
        }
        ends
    }

    /// All queues of a direction are named together, or each by itself.
    fn ways_to_name_queues(&mut self, file: &GraphFile) {
        let words: BTreeSet<&str> =
            file.edges.iter().flat_map(|line| line.split("->")).map(str::trim).collect();
        for word in &words {
            let Some((port, direction, None)) = queue(word) else { continue };
            let of_it =
                |other: &str| matches!(queue(other), Some((p, d, Some(_))) if p == port && d == direction);
            if words.iter().any(|other| of_it(other)) {
                let what = format!("{word:?} and single queues of it are connected");
                self.fault("ND-104-33", "edges", what, "Name all of them together, or each by itself");
            }
        }
    }

    fn replicas(&mut self, file: &GraphFile, settings: &BTreeMap<String, Box<dyn Settings>>, edges: &[Edge]) {
        for (name, replicas) in &file.replicas {
            let at = format!("replicas.{name}");
            let Some(spec) = file.elements.get(name) else {
                if queue(name).is_some_and(|(port, ..)| file.ports.contains_key(port)) {
                    let what = format!("how many queues there are of {name:?} is said by its port");
                    self.fault("ND-104-07", at, what, "Give ports.NAME.queues");
                } else if !self.broken.contains(name) {
                    let known = || file.elements.keys().map(String::as_str);
                    let fix = closest(name, known()).map_or_else(
                        || format!("There are {}", comma_list(known())),
                        |near| format!("Did you mean {near:?}?"),
                    );
                    self.fault("ND-104-06", at, format!("there is no element {name:?}"), fix);
                }
                continue;
            };
            if !(1..=REPLICAS).contains(&replicas.count) {
                let what = format!("there cannot be {} of an element", replicas.count);
                self.fault("ND-104-05", format!("{at}.count"), what, format!("Use 1 to {REPLICAS}"));
            } else if let Some(options) = settings.get(name) {
                for problem in options.check_replicas(replicas.count) {
                    let problem = problem.under(&format!("elements.{name}"));
                    self.fault("ND-104-04", problem.key, problem.what, problem.fix);
                }
            }
            if self.registry.find(&spec.kind).is_some_and(|kind| !kind.replicable) && replicas.count != 1 {
                let what =
                    format!("there can be one {:?} only: a {} keeps what all packets share", name, spec.kind);
                self.fault(
                    "ND-104-33",
                    &at,
                    what,
                    "Leave it out, or use several elements behind a distribute",
                );
            }
            let owned = self.registry.find(&spec.kind).is_some_and(|kind| kind.owned);
            if replicas.count > 1 && owned != (replicas.affinity == Affinity::Owner) {
                let (what, fix) = if owned {
                    (format!("several {} divide what they keep", spec.kind), "Use the affinity owner")
                } else {
                    (format!("no {} owns what it works on", spec.kind), "Use flow, round_robin or upstream")
                };
                self.fault("ND-104-33", format!("{at}.affinity"), what, fix);
            }
            if replicas.affinity == Affinity::Upstream {
                let before = edges.iter().filter(|edge| edge.to == *name);
                if let Some((from, count)) = before
                    .map(|edge| (&edge.from, copies(file, &edge.from)))
                    .find(|(_, count)| *count != replicas.count)
                {
                    let what = format!(
                        "there are {} of {name:?}, but {count} of {from:?} before it",
                        replicas.count
                    );
                    self.fault(
                        "ND-104-33",
                        format!("{at}.affinity"),
                        what,
                        "Make them as many, or use the affinity flow",
                    );
                }
            }
        }
    }

    fn placement(&mut self, file: &GraphFile) {
        let mut placed = BTreeSet::new();
        for (w, worker) in file.placement.iter().enumerate() {
            if !self.of_run {
                self.faults.extend(check_worker(worker, w, &format!("placement[{w}]")));
            }
            for (e, element) in worker.elements.iter().enumerate() {
                let at = format!("placement[{w}].elements[{e}]");
                if !self.can_be_placed(file, element) {
                    let names = names(file);
                    let fix = match closest(element, names.iter().map(String::as_str)) {
                        Some(near) => format!("Did you mean {near:?}?"),
                        None => format!("There are {}", comma_list(names.iter().map(String::as_str))),
                    };
                    self.fault(
                        "ND-104-06",
                        at,
                        format!("there is no element and no port queue {element:?}"),
                        fix,
                    );
                } else if !placed.insert(element.clone()) {
                    self.fault(
                        "ND-104-06",
                        at,
                        format!("{element:?} is placed twice"),
                        "Place each element once",
                    );
                }
            }
        }
    }

    fn can_be_placed(&self, file: &GraphFile, name: &str) -> bool {
        if let Some((element, number)) = name.split_once('#') {
            let count = file.replicas.get(element).map_or(0, |replicas| replicas.count);
            return number
                .parse::<usize>()
                .is_ok_and(|number| number < count && number.to_string() == name[element.len() + 1..]);
        }
        if let Some((port, _, number)) = queue(name) {
            let queues = file.ports.get(port).map(|port| port.queues);
            return self.broken.contains(port)
                || queues.is_some_and(|queues| number.is_none_or(|number| number < queues));
        }
        file.elements.contains_key(name) || self.broken.contains(name)
    }
}

/// How many there are of an element or a port's queues.
pub fn copies(file: &GraphFile, name: &str) -> usize {
    match queue(name) {
        Some((port, _, None)) => file.ports.get(port).map_or(1, |port| port.queues.into()),
        Some((.., Some(_))) => 1,
        None => file.replicas.get(name).map_or(1, |replicas| replicas.count),
    }
}

/// All names that may be placed.
fn names(file: &GraphFile) -> Vec<String> {
    let queues = file.ports.keys().flat_map(|port| [format!("{port}.rx"), format!("{port}.tx")]);
    file.elements.keys().cloned().chain(queues).collect()
}

/// Without the names of queues that the edges do not use: all of a direction are meant together, or each by itself, and then there
/// are as many as the highest number says.
fn used(mut ends: Ends, file: &GraphFile) -> Ends {
    let words: BTreeSet<&str> = file.edges.iter().flat_map(|line| line.split("->")).map(str::trim).collect();
    let highest = |of: &str, way: Direction| {
        let own = words.iter().filter_map(|word| queue(word)).filter(|(port, d, _)| *port == of && *d == way);
        own.filter_map(|(.., number)| number).max()
    };
    let keep = |name: &str| {
        let Some((port, direction, number)) = queue(name) else { return true };
        match (number, highest(port, direction)) {
            (Some(number), Some(highest)) => number <= highest,
            (Some(_), None) => false,
            // Both ways of naming them are left if the edges use both: then an output is connected twice, or not at all.
            (None, highest) => highest.is_none() || words.contains(name),
        }
    };
    ends.retain(|name, _| keep(name));
    ends
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
