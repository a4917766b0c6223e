//! Raw bindings to DPDK and to the shim in `shim.c`. Nothing here is safe; use the `dpdk` crate.
//!
//! Two rules keep this small: what is called per packet is done in Rust on the mbuf's memory through the
//! `ND_MBUF_*` offsets, and what DPDK only offers inline is called through the shim once per burst.

#![allow(
    unsafe_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    rustdoc::all
)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

/// What the drivers that are built in say of themselves, as JSON: an array of objects with `name`, `kmod` and `pci_ids`. `null`: DPDK is
/// linked as shared libraries, and the EAL loads drivers from its plug-in directory.
pub const BUILT_IN_DRIVERS: &str = include_str!(concat!(env!("OUT_DIR"), "/drivers.json"));
