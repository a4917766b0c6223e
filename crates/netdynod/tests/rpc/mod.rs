//! The daemon over its socket. Each test has a daemon of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod daemon;
mod doors;
mod framing;
mod graph;
mod impairing;
mod life;
mod limits;
mod nat;
mod running;
mod tcp;
mod watching;
mod writing;
