//! The tests of `dpdk` over its public interface, one module a subject.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
mod contract;
mod drops;
mod fragments;
mod interface;
mod memif;
mod memory;
mod meta;
mod offloads;
mod ports;
mod sharing;
mod silent_peer;
