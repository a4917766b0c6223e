//! The tests of `dhcp` over its public interface, one module a subject.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod isc;
mod kea;
mod server;
