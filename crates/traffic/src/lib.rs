//! Load, carried and measured: what a profile asks for, over kernel sockets or DPDK ports.
//!
//! [`plan`] makes a profile ready, a [`Transport`] carries it with workers that [`Control`] steers, and
//! [`collect`] turns their samples into the trial's result.

pub mod capture;
pub mod collect;
pub mod cpu;
pub mod dpdk;
pub mod file;
pub mod interfaces;
mod memory;
mod order;
pub mod plan;
mod receive_queue;
pub mod reflector;
pub mod result;
mod schedule;
pub mod sockets;
pub mod stalls;
mod timers;
pub mod transport;

pub use plan::{Plan, Trial};
pub use transport::{Control, Sample, Transport, Unready};
