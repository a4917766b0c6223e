//! The tests of `nat-log` over its public interface, one module a subject.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
mod nat;
mod nfacctd;
mod nfcapd;
mod queue_model;
mod tshark;
