//! Carrier-grade NAT as pure logic: packets in, packets out. No I/O, no clock (time is told, in ns), and on the way of a packet no
//! allocation and no lock.
//!
//! ```text
//!  frames ─▶ Headers::of ─▶ fast: hash → bucket → session → rewrite ─▶ verdicts
//!                             └─ not a plain packet of a steady session ─▶ slow ─▶ verdicts, outputs
//!                                    subscriber → mapping (port block) → session → table, timers, log
//! ```
//! A [`Nat`] is one worker's: it shares nothing. A *session* is a pair of endpoints with a protocol; a *mapping* is the outside
//! endpoint that stands for an inside one, and lives as long as its sessions; a *subscriber* is a private address with its VLAN tags,
//! and has *port blocks* of one outside address.

mod address_owners;
pub mod binding;
pub mod config;
mod cpu;
pub mod event;
mod expiry;
pub mod explicit;
mod hash;
pub mod headers;
pub mod key;
mod memory;
mod nat;
pub mod neighbours;
mod outbox;
mod ownership;
pub mod packet_filter;
mod piece_owners;
mod pool;
pub mod prefix;
mod reason;
mod rewrite;
pub mod rules;
pub mod session;
mod sessions;
pub mod sites;
pub mod state;
pub mod subscriber;
mod table;
#[cfg(feature = "testing")]
pub mod testing;
mod untranslated;
mod verdict;

pub use address_owners::AddressOwners;
pub use binding::{Binding, Bindings, Hop, Lookup, Mac, Source};
pub use config::{Config, ConfigError, StaticForward};
pub use cpu::prefetch;
pub use event::{Event, EventKind};
pub use explicit::{Explicit, ExplicitMapping, MappingError, MappingRequest, RemoteFilter};
pub use headers::Headers;
pub use key::{Endpoint, Realm};
pub use nat::{
    BURST, BurstMask, ClearBounds, ForwardConflict, ForwardedCounts, Memory, Nat, reported_sender,
    reported_subscriber,
};
pub use ownership::Ownership;
pub use piece_owners::PieceOwners;
pub use pool::{Pool, PoolChange, Usage};
pub use reason::{Drops, Reason};
pub use session::Session;
pub use sites::{Site, SiteBy, SiteConfig};
pub use untranslated::Untranslated;
pub use verdict::{Forward, Frame, Side, Verdict};
