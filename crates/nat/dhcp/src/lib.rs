//! Subscribers by DHCP: who a private DHCP server gave which address, and public addresses for virtual MAC addresses.
//!
//! [`lease`] reads what a server writes to its lease file (Kea's memfile, ISC's `dhcpd.leases`) and tells what changed;
//! [`Watcher`] does so whenever the file does, whatever is done to it. [`client`] is a DHCP client (RFC 2131) for
//! very many hardware addresses at once, as pure logic: frames, the time and a seed go in, frames and events come out.
//!
//! Files are read in `watch/tail.rs` and watched in `watch/inotify.rs`; nothing else here does I/O or knows a clock.

pub mod client;
pub mod lease;
pub mod mac;
pub mod watch;

pub use client::Clients;
pub use lease::{Format, Lease, LeaseEvent};
pub use watch::Watcher;
