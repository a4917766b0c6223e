//! The tests of `stream` over its public interface, one module a subject.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod arp_nd;
mod errors;
mod frames;
mod graph;
mod impair;
mod lab;
mod offloads;
mod queues;
mod rates;
mod segmenter;
mod streams;
