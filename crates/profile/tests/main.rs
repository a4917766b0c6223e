//! The tests of `profile` over its public interface, one module a subject.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bad;
mod frames;
