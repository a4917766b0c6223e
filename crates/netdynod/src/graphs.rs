//! Graphs of people's own: opened, watched, ended; they are the writer's, and end with his lease.

use crate::files::Files;
use crate::trace_lock::TraceLock;
use dataplane::graph::{CheckedGraph, GraphRun, Stopped};
use element::registry::Registry as Kinds;
use profile::Error as Fault;
use profile::graph::GraphFile;
use run::graph::GraphView;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use system::rpc::{BAD_PARAMS, BAD_PROFILE, Error, NOT_READY, NOTHING_THERE, TOO_MANY};

/// Graphs at a time.
const GRAPHS: usize = 16;
/// Faults that are kept of graphs that have ended.
const FAULTS: usize = 16;

/// How a graph does.
#[derive(Debug, Serialize)]
pub struct Status {
    /// Its id.
    pub graph: String,
    /// Seconds since its start.
    pub elapsed: f64,
    /// Why it carries nothing any more, if so.
    pub error: Option<Fault>,
    /// The files that packets are written to.
    pub captures: Vec<capture::Status>,
    /// Optional ports that it goes on without, and why.
    pub lost: Vec<String>,
    /// What its elements failed to do at their end.
    pub faults: Vec<Fault>,
    /// What is to be known of their end.
    pub notes: Vec<String>,
}

struct Entry {
    began: Instant,
    graph: GraphRun,
    /// As it was asked for, and changed since.
    file: GraphFile,
}

impl Entry {
    fn status(&self, id: &str) -> Status {
        let fix = "Stop it; whoever took the interface or the other end away knows more";
        let error = self.graph.end_reason().map(|why| Fault::new("ND-91-02", "ports", why, fix));
        let elapsed = self.began.elapsed().as_secs_f64();
        let (captures, lost) = (self.graph.captures(), self.graph.lost_ports());
        let (faults, notes) = Default::default();
        Status { graph: id.into(), elapsed, error, captures, lost, faults, notes }
    }
}

#[derive(Default)]
struct GraphTable {
    last: u64,
    graphs: BTreeMap<String, Entry>,
}

/// All graphs of this daemon.
#[derive(Default)]
pub struct Graphs {
    made: Mutex<GraphTable>,
    /// Who follows packets.
    pub tracing: TraceLock,
    /// Held while a graph is changed.
    pub changing: Mutex<()>,
    /// What elements of graphs failed to do at their end. Held while one ends: who asked for that may not get the answer.
    faults: Mutex<Vec<Fault>>,
}

/// What is wrong with a graph, JSON; nothing is opened or started.
pub fn check(text: &str, kinds: &Kinds) -> Result<(), Vec<Fault>> {
    let graph = profile::read(text).map_err(|fault| vec![fault])?;
    CheckedGraph::read(&graph, kinds).map(drop)
}

/// Read and check a graph; the files that it writes are those that may be named.
pub fn read(graph: &Value, files: Files<'_>, kinds: &Kinds) -> Result<CheckedGraph, Error> {
    let mut checked = CheckedGraph::read(graph, kinds).map_err(|faults| Error::all(BAD_PROFILE, &faults))?;
    for (name, port) in &checked.file.ports {
        files.device(&format!("ports.{name}.device"), &port.device)?;
    }
    for (name, settings) in &mut checked.settings {
        for (key, file) in settings.files() {
            *file = files.file(&format!("elements.{name}.{key}"), file)?.to_string_lossy().into_owned();
        }
    }
    Ok(checked)
}

impl Graphs {
    fn lock(&self) -> MutexGuard<'_, GraphTable> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Open the ports and run it. Gives the graph's id.
    pub fn start(&self, graph: &CheckedGraph) -> Result<String, Error> {
        if self.lock().graphs.len() >= GRAPHS {
            let what = format!("there are {GRAPHS} graphs already");
            return Err(Error::new(TOO_MANY, "ND-104-11", "graph.run", what, "Stop one with graph.stop"));
        }
        let file = graph.file.clone();
        let graph = GraphRun::start(graph).map_err(|why| {
            let code = if why.code.starts_with("ND-104") { BAD_PARAMS } else { NOT_READY };
            Error::of(code, &why)
        })?;
        let mut made = self.lock();
        made.last += 1;
        let id = format!("graph-{}", made.last);
        tracing::info!(graph = %id, "graph started");
        made.graphs.insert(id.clone(), Entry { began: Instant::now(), graph, file });
        Ok(id)
    }

    /// The graph that runs as a file.
    pub fn file(&self, id: &str) -> Result<GraphFile, Error> {
        self.lock().graphs.get(id).map(|entry| entry.file.clone()).ok_or_else(|| unknown_graph(id))
    }

    /// Its elements were changed: it runs by this file from now on.
    pub fn changed(&self, id: &str, file: GraphFile) {
        if let Some(entry) = self.lock().graphs.get_mut(id) {
            entry.file = file;
        }
    }

    /// How a graph does.
    pub fn status(&self, id: &str) -> Result<Status, Error> {
        self.lock().graphs.get(id).map(|entry| entry.status(id)).ok_or_else(|| unknown_graph(id))
    }

    /// Its elements.
    pub fn observe(&self, id: &str) -> Result<Box<dyn GraphView>, Error> {
        let made = self.lock();
        let entry = made.graphs.get(id).ok_or_else(|| unknown_graph(id))?;
        Ok(Box::new(entry.graph.observe()))
    }

    /// What its elements can be asked through. It outlives the graph.
    pub fn view(&self, id: &str) -> Result<engine::View, Error> {
        self.lock().graphs.get(id).map(|entry| entry.graph.view()).ok_or_else(|| unknown_graph(id))
    }

    /// End a graph: how it did to its end, and its elements, whose counters are the last.
    pub fn stop(&self, id: &str) -> Result<(Status, Box<dyn GraphView>), Error> {
        let mut all = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = self.lock().graphs.remove(id).ok_or_else(|| unknown_graph(id))?;
        let mut status = entry.status(id);
        let Stopped { observer, captures, faults, notes } = entry.graph.stop();
        all.extend(faults.iter().cloned());
        all.truncate(FAULTS);
        (status.captures, status.faults, status.notes) = (captures, faults, notes);
        tracing::info!(graph = %id, "graph stopped");
        Ok((status, Box::new(observer)))
    }

    /// End all: how many there were, and what elements failed to do in these and in those that ended before.
    pub fn clear(&self) -> (usize, Vec<Fault>) {
        let mut all = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let graphs = std::mem::take(&mut self.lock().graphs);
        let count = graphs.len();
        all.extend(graphs.into_values().flat_map(|entry| entry.graph.stop().faults));
        all.truncate(FAULTS);
        (count, all.clone())
    }

    /// Ids of those that there are.
    pub fn list(&self) -> Vec<Status> {
        self.lock().graphs.iter().map(|(id, entry)| entry.status(id)).collect()
    }
}

fn unknown_graph(id: &str) -> Error {
    Error::new(NOTHING_THERE, "ND-104-11", "graph", format!("there is no graph {id:?}"), "See graph.list")
}
