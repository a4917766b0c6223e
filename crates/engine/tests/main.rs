//! The tests of `engine` over its public interface, one module a subject.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod affinity;
mod back_pressure;
mod common;
mod control;
mod engine;
mod pauses;
mod replicas;
mod trace;
