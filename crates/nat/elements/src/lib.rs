//! A carrier-grade NAT at work on ports: the pure logic of [`nat_core`] as elements, with what the links need.
//!
//! ```text
//!  inside.rx ──▶ validity ──▶ nat ──▶ conntrack ──▶ outside.tx
//!  outside.rx ─▶ validity ──────────▶ conntrack ──▶ inside.tx
//!                   └─▶ local ──▶ nat-host ──▶ tx of the same port
//! ```
//! Run-to-completion and pipeline are placements of the same elements. Of `nat` and `conntrack` there may be several, each with
//! its subscribers and its share of the pool: [`owner`] says which of them a packet is for.

mod addresses;
mod addressing;
mod announce;
mod arp;
mod awaiting;
mod behaviour;
mod bind;
pub mod clear;
mod conntrack;
pub mod control;
mod division;
mod exception;
mod fate;
mod filter;
mod guard;
mod headers;
mod hops;
pub mod host;
mod kept;
mod leases;
pub mod leaving;
mod link;
pub mod log;
mod nat;
mod neighbours;
mod options;
mod origin;
mod own_file;
mod owner;
mod pair;
mod pcp;
mod public;
pub mod redivision;
mod refusal;
pub mod reload;
mod restored;
mod shared;
pub mod sites;
mod state;
#[cfg(test)]
mod testing;
mod unbound;
mod validity;

pub use conntrack::Conntrack;
pub use options::{Adjust, Options};

use ::element::kind::{KindEntry, kind};

/// The kinds of this crate.
pub const KINDS: &[KindEntry] = &[
    kind::<validity::Options>(),
    kind::<nat::Options>(),
    kind::<options::Options>(),
    kind::<host::Options>(),
    kind::<sites::Options>(),
];
