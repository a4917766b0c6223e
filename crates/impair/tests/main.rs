//! The tests of `impair` over its public interface, one module a subject.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod element;
mod host;
mod link;
