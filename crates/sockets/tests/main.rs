//! The tests of `sockets` over its public interface, one module a subject.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod drops;
mod errors;
mod lab;
mod open_loop;
mod silent;
mod sockets;
mod start;
mod tls;
