//! The tests of `netdynod` over its public interface, one module a subject.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bounded;
mod commands;
mod rpc;
