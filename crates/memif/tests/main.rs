//! The tests of `memif` over its public interface, one module a subject.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
mod hostile;
mod hostile_server;
mod pair;
