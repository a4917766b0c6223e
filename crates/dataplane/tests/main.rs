//! The tests of `dataplane` over its public interface, one module a subject.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
mod graph;
mod nat;
mod nat_conformance;
mod nat_host;
mod nat_pair;
mod nat_silent;
mod nat_sites;
mod setting;
#[path = "../../nat/elements/src/sites/stand_in.rs"]
#[allow(missing_docs, reason = "a test's server")]
mod stand_in;
