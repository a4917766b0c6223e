//! The NAT as a graph between ports.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../dataplane/tests/common/mod.rs"]
mod common;
mod conformance;
mod graph;
mod host;
mod pair;
mod setting;
mod silent;
mod sites;
#[path = "../src/sites/stand_in.rs"]
#[allow(missing_docs, reason = "a test's server")]
mod stand_in;
mod translate;

use dataplane::graph::GraphRun;
use element::registry::Registry;
use serde_json::Value;

/// The platform's kinds of elements, and the NAT's.
fn kinds() -> Registry {
    dataplane::graph::kinds().with(nat_elements::KINDS)
}

fn start(graph: &Value) -> GraphRun {
    common::start(graph, &kinds())
}
