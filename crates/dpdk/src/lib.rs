//! DPDK made safe: [`Eal`], [`Mempool`], [`Mbuf`] and [`Batch`], [`Port`] with its queues, [`Ring`].
//!
//! - **Headers that come and go:** [`Mbuf::prepend`], [`Mbuf::adjust`] at the front, [`Mbuf::set_len`], [`Mbuf::trim`] at the end.
//! - **The same packet twice:** [`Mempool::clones_of`] shares its bytes, [`Mempool::copies_of`] does not. Shared bytes are never
//!   written: [`Mbuf::data_mut`] copies them first.
//! - **What is known of a packet:** [`Meta`], written by a parser, kept in the packet's header, gone when its headers move.
//! - **Memory beside the port:** [`NodePools`] has one [`Mempool`] for each NUMA node that ports are on.
//!
//! Ownership carries DPDK's rules: a queue end is a value that one thread holds and borrows mutably to
//! use, a packet is owned by exactly one batch, a port closes when its last queue is gone. `unsafe` is
//! allowed here and in `dpdk-sys` only, and each block says why it holds.

#![allow(unsafe_code)]

mod af_packet;
mod arguments;
mod batch;
mod cable;
mod claim;
mod device;
mod eal;
mod error;
mod files;
mod info;
mod interface;
mod log;
mod mbuf;
mod memif_port;
mod mempool;
mod meta;
mod node_pools;
mod offload;
mod peer_watch;
mod port;
mod ring;
mod rss;
mod socket_path;
mod xdp_sockets;

pub use batch::{BURST, Batch};
pub use claim::{Claim, ClaimError};
pub use device::Device;
pub use eal::{Eal, EalOptions, ThreadGuard};
pub use error::{Error, Result};
pub use info::{Link, PortInfo, PortStats};
pub use mbuf::{Mbuf, forget_moved, moved_to};
pub use mempool::{Fresh, Mempool};
pub use meta::{Meta, MetaFlags};
pub use node_pools::NodePools;
pub use offload::{Checked, Headers, Offloads, Stamps, TxWork};
pub use port::{Port, PortConfig, RxQueue, TxQueue};
pub use ring::{Ring, RingRoom, RingRx, RingTx};
pub use rss::Rss;

/// The processor's time stamp counter, in ticks. Costs up to 22 ns in virtual machines: read it per burst.
#[inline]
pub fn tsc() -> u64 {
    // SAFETY: reads a register; has no precondition, not even an initialised EAL.
    unsafe { dpdk_sys::nd_tsc() }
}

/// Version of the DPDK library that is loaded, as in `DPDK 22.11.11`.
pub fn version() -> String {
    // SAFETY: rte_version returns a pointer to a static, NUL-terminated string.
    unsafe { std::ffi::CStr::from_ptr(dpdk_sys::rte_version()) }.to_string_lossy().into_owned()
}

/// What the drivers that are built into this program say of themselves, as JSON: an array of objects with `name`, `kmod` and `pci_ids`.
/// `null`: DPDK is linked as shared libraries, which load drivers from their plug-in directory.
pub fn built_in_drivers() -> &'static str {
    dpdk_sys::BUILT_IN_DRIVERS
}
