//! A carrier-grade NAT at work on ports: the pure logic of [`nat_core`] as elements, with what the links need.
//!
//! ```text
//!  inside.rx ──▶ validity ──▶ nat ──▶ nat44 ──▶ outside.tx
//!  outside.rx ─▶ validity ──────────▶ nat44 ──▶ inside.tx
//!                   └─▶ local ──▶ nat-host ──▶ tx of the same port
//! ```
//! Run-to-completion and pipeline are placements of the same elements. Of `nat` and `nat44` there may be several, each with
//! its subscribers and its share of the pool: [`owner`] says which of them a packet is for.

pub mod address_removal;
mod addresses;
mod addressing;
mod announce;
mod arp;
mod behaviour;
mod bind;
pub mod clear;
pub mod control;
mod division;
mod exception;
mod filter;
mod filter_config;
mod headers;
mod hops;
pub mod host;
mod leases;
mod link;
pub mod log;
mod nat44;
mod options;
mod origin;
mod own_file;
mod owner;
mod packet_action;
mod pcp;
mod pending_packets;
mod public;
pub mod redivision;
mod refusal;
pub mod reload;
mod restored_bindings;
mod session_retention;
mod shared;
pub mod sites;
mod state;
mod subscriber_table;
mod tracker_pair;
mod unbound_leases;
mod validity;

pub use nat44::Nat44;
pub use options::{Adjust, Options};

use ::element::kind::{KindEntry, kind};

/// The kinds of this crate.
pub const KINDS: &[KindEntry] = &[
    kind::<validity::Options>(),
    kind::<subscriber_table::Options>(),
    kind::<options::Options>(),
    kind::<host::Options>(),
    kind::<sites::Options>(),
];
