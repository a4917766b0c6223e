//! A carrier-grade NAT at work on ports: the pure logic of [`cgnat`] as an element, with what the links need.
//!
//! ```text
//!  inside.rx ─▶ parser ─┐          ┌─▶ inside        ─▶ inside.tx
//!                       ├─▶ nat ───┼─▶ outside       ─▶ outside.tx
//!  outside.rx ─▶ parser ┘          ├─▶ inside_local  ─▶ arp-nd ─▶ inside.tx
//!                                  └─▶ outside_local ─▶ arp-nd ─▶ outside.tx
//! ```

mod element;
mod link;
mod next_hops;
mod options;

pub use element::Nat;
pub use options::Options;

use ::element::kind::{KindEntry, kind};

/// The kinds of this crate.
pub const KINDS: &[KindEntry] = &[kind::<Options>()];
