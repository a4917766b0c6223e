//! The tests of `nat_core` over its public interface, one module a subject.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod conformance;
mod piece_workers;
mod properties;
mod site_workers;
mod sites;
