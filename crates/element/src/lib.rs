//! Packet elements, one a file.
//!
//! A packet leaves an element through an output, or is counted under a named reason to drop it. Nothing here allocates,
//! locks or waits on the packet path.

pub mod arp_nd;
pub mod balance;
pub mod capture;
pub mod capture_ring;
#[cfg(test)]
mod capture_ring_tests;
pub mod classify;
pub mod counter;
pub mod discard;
pub mod distribute;
pub mod interface_addr;
pub mod kind;
pub mod l2fwd;
pub mod memory;
pub mod parse;
pub mod pcapng;
pub mod police;
pub mod reflect;
pub mod registry;
pub mod sample;
pub mod tee;
pub mod vlan;

/// What [`capture_ring`] shares between threads: here the real ones.
mod sync {
    pub use std::sync::Arc;
    pub use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
}
