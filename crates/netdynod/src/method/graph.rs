//! `graph.*`: the elements that carry the run's traffic over DPDK ports, or a link's between two, or a graph of one's own. The
//! writer starts and stops graphs; the rest may be asked by anybody.

use super::run::loaded;
use super::{Answer, NoParams};
use crate::caller::Caller;
use crate::graph::{expanded, of, planned};
use crate::graphs::{self, Status};
use crate::run::Run;
use run::graph::GraphView;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use system::rpc::{BAD_PARAMS, Error};

/// Whose graph it is.
enum GraphTarget {
    Run(Arc<Run>),
    Link(String),
    Own(String),
}

impl GraphTarget {
    /// The link or graph that was named, else the loaded run.
    fn of(
        caller: &Caller,
        link: Option<String>,
        graph: Option<String>,
    ) -> Result<(Self, Box<dyn GraphView>), Error> {
        match (link, graph) {
            (Some(_), Some(_)) => Err(Error::params("params.graph", "it is a link's graph, or one's own")),
            (Some(link), None) => {
                caller.core.links.observe(&link).map(|observer| (Self::Link(link), observer))
            }
            (None, Some(graph)) => {
                caller.core.graphs.observe(&graph).map(|observer| (Self::Own(graph), observer))
            }
            (None, None) => {
                loaded(caller).and_then(|run| of(&run).map(|observer| (Self::Run(run), observer)))
            }
        }
    }

    fn id(&self) -> &str {
        match self {
            Self::Run(run) => &run.id,
            Self::Link(id) | Self::Own(id) => id,
        }
    }

    /// How it does. Of a link what there is of a run's status.
    fn status(&self, caller: &Caller) -> Answer {
        match self {
            Self::Run(run) => Ok(json!(run.status())),
            Self::Link(link) => caller.core.links.status(link).map(|status| {
                let state = if status.error.is_some() { "failed" } else { "running" };
                json!({"run": link, "state": state, "elapsed": status.elapsed})
            }),
            Self::Own(graph) => caller.core.graphs.status(graph).map(|status| status_fields(&status)),
        }
    }

    fn is_active(&self, caller: &Caller) -> bool {
        match self {
            Self::Run(run) => run.is_active(),
            Self::Link(link) => caller.core.links.status(link).is_ok_and(|status| status.error.is_none()),
            Self::Own(graph) => caller.core.graphs.status(graph).is_ok_and(|status| status.error.is_none()),
        }
    }
}

/// What there is of a run's status.
fn status_fields(status: &Status) -> Value {
    let state = if status.error.is_some() { "failed" } else { "running" };
    let Status { graph, elapsed, error, captures, lost, faults, notes } = status;
    json!({
        "run": graph, "state": state, "elapsed": elapsed, "error": error, "captures": captures, "lost": lost,
        "faults": faults, "notes": notes
    })
}

/// A graph's file, as JSON.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunGraph {
    graph: Value,
}

/// Check it, open its ports, and run it.
pub fn run(caller: &Caller, params: RunGraph) -> Answer {
    caller.core.as_writer(caller.session)?;
    let checked = graphs::read(&params.graph, caller.files(), caller.core.registry.kinds())?;
    let graph = caller.core.graphs.start(&checked)?;
    // Ports may take long to open, and he who wanted them may have gone.
    if let Err(gone) = caller.core.as_writer(caller.session) {
        caller.core.graphs.stop(&graph)?;
        return Err(gone);
    }
    Ok(json!({"graph": graph}))
}

/// Which graph.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopGraph {
    graph: String,
}

/// End it, and say how it did.
pub fn stop(caller: &Caller, params: StopGraph) -> Answer {
    caller.core.as_writer(caller.session)?;
    let (status, observer) = caller.core.graphs.stop(&params.graph)?;
    Ok(counted(&status_fields(&status), &*observer))
}

/// What graphs there are.
pub fn list(caller: &Caller, _: NoParams) -> Answer {
    Ok(caller.core.graphs.list().iter().map(status_fields).collect())
}

/// Of the loaded run, of a profile that is not loaded, of a link, or of a graph.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Describe {
    #[serde(default)]
    profile: Option<Value>,
    #[serde(default)]
    link: Option<String>,
    #[serde(default)]
    graph: Option<String>,
}

/// Elements, edges, and where they run.
pub fn describe(caller: &Caller, params: Describe) -> Answer {
    let (id, observer) = match params.profile {
        Some(_) if params.link.is_some() || params.graph.is_some() => {
            return Err(Error::params(
                "params.profile",
                "it is a profile's graph, or that of a link or of one's own",
            ));
        }
        Some(profile) => (None, planned(&profile, caller.files(), &caller.core.registry)?),
        None => GraphTarget::of(caller, params.link, params.graph)
            .map(|(whose, observer)| (Some(whose.id().to_owned()), observer))?,
    };
    let shape = observer.shape();
    let (workers, elements) = (&shape.workers, &shape.elements);
    Ok(json!({
        "run": id, "workers": workers, "elements": elements, "edges": shape.edges, "ports": shape.ports
    }))
}

/// A profile.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expand {
    profile: Value,
}

/// The DPDK transport of a profile with its elements, edges and placement named, as what its ports' roles stand for.
pub fn expand(caller: &Caller, params: Expand) -> Answer {
    let profile = json!(expanded(&params.profile, caller.files(), &caller.core.registry)?);
    let mut transport = profile["transport"].clone();
    for port in transport["dpdk"]["ports"].as_array_mut().into_iter().flatten() {
        // The elements say it.
        port.as_object_mut().map(|port| port.remove("role"));
    }
    Ok(json!({"transport": transport}))
}

/// Of the loaded run, or of a link.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stats {
    #[serde(default)]
    link: Option<String>,
    #[serde(default)]
    graph: Option<String>,
}

/// What each element, port and worker did since the start.
pub fn stats(caller: &Caller, params: Stats) -> Answer {
    let (whose, observer) = GraphTarget::of(caller, params.link, params.graph)?;
    Ok(counted(&whose.status(caller)?, &*observer))
}

fn counted(status: &Value, graph: &dyn GraphView) -> Value {
    json!({
        "status": status,
        "elements": graph.elements(),
        "bytes": graph.bytes(),
        "interfaces": graph.interfaces(),
        "workers": graph.workers(),
    })
}

/// How many packets, which, and how long to wait for them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    packets: usize,
    #[serde(default)]
    filter: String,
    #[serde(default = "second")]
    wait: f64,
    #[serde(default)]
    link: Option<String>,
    #[serde(default)]
    graph: Option<String>,
}

fn second() -> f64 {
    1.0
}

/// The way of single packets. Answers when they have gone it, or the time is up.
pub fn trace(caller: &Caller, params: Trace) -> Answer {
    if !(1..=64).contains(&params.packets) {
        return Err(Error::params("params.packets", "it takes 1 to 64 packets"));
    }
    if !(0.0..=10.0).contains(&params.wait) {
        return Err(Error::params("params.wait", "it takes 0 to 10 seconds"));
    }
    let about = profile::Capture { filter: params.filter, ..profile::Capture::default() };
    profile::check_capture(&about, "params").map_err(|error| Error::of(BAD_PARAMS, &error))?;
    let (whose, observer) = GraphTarget::of(caller, params.link, params.graph)?;
    let _alone = match &whose {
        GraphTarget::Run(run) => run.tracing.acquire()?,
        GraphTarget::Link(_) => caller.core.links.tracing.acquire()?,
        GraphTarget::Own(_) => caller.core.graphs.tracing.acquire()?,
    };
    let go_on = || whose.is_active(caller) && !caller.core.ending.load(Ordering::Relaxed);
    let wait = Duration::from_secs_f64(params.wait);
    let trace = observer.trace(params.packets, &about.filter, wait, &go_on)?;
    let none = || Error::state("the run is not under way", "Trace while it is `running`");
    trace.filter(|trace| go_on() || !trace.packets.is_empty()).map(|trace| json!(trace)).ok_or_else(none)
}
