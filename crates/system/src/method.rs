//! RPC methods, and what the daemon offers to them.

use crate::rpc::{Answer, Error};
use engine::View;
use profile::graph::GraphFile;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The daemon as a method of a system sees it: the connection that calls, and the graphs that run.
pub trait CallContext {
    /// Fail unless the caller may change what runs: over the Unix socket its owner may, over TCP whoever is the writer.
    fn may_change(&self) -> Result<(), Error>;

    /// Whether the daemon shuts down: a long call ends early then.
    fn is_ending(&self) -> bool;

    /// A running graph, to send requests to its elements. It outlives the graph.
    fn graph(&self, id: &str) -> Result<View, Error>;

    /// Change a running graph: `change` gets the file that it runs by and the new one, which was read and checked. If it succeeds the
    /// graph runs by the new file; its answer is the call's. One graph is changed at a time.
    fn change_graph(
        &self,
        id: &str,
        document: &Value,
        change: &mut dyn FnMut(&GraphFile, &GraphFile) -> Answer,
    ) -> Answer;
}

type Call = dyn Fn(&dyn CallContext, Map<String, Value>) -> Answer + Send + Sync;

/// An RPC method: its name and what it does.
pub struct Method {
    name: &'static str,
    call: Box<Call>,
}

impl Method {
    /// A method whose parameters are a `P`.
    pub fn new<P: DeserializeOwned + 'static>(
        name: &'static str,
        call: fn(&dyn CallContext, P) -> Answer,
    ) -> Self {
        Self { name, call: Box::new(move |context, params| call(context, take(params)?)) }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Call it.
    pub fn call(&self, context: &dyn CallContext, params: Map<String, Value>) -> Answer {
        (self.call)(context, params)
    }
}

/// Parameters by name.
pub fn take<P: DeserializeOwned>(params: Map<String, Value>) -> Result<P, Error> {
    serde_json::from_value(Value::Object(params)).map_err(|e| Error::params("params", e.to_string()))
}
