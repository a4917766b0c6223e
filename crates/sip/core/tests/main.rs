//! The crate's integration tests.
#![allow(clippy::unwrap_used)]

mod agreement;
mod rfc4475;
