//! A DHCP client (RFC 2131) for very many hardware addresses, as pure logic.
//!
//! [`Clients`] is given frames and the time, and gives frames and events. Each hardware address has the states of RFC
//! 2131 figure 5. Times are nanoseconds of a clock that never goes back; a seed decides what is random.
//!
//! It does not answer ARP: who owns the set does so for the addresses it has, without which servers that send by their kernel
//! (ISC's, when a lease is renewed) cannot reach it. Frames with a wrong UDP checksum are nobody's, also those of a kernel that
//! left it to a virtual interface: there `ethtool -K IF tx off` helps.

mod config;
mod event;
mod machine;
mod message;
mod set;
mod shared;
mod terms;
mod verdict;
mod wire;

pub use config::Config;
pub use event::{Event, KnownAddress, LossReason};
pub use machine::State;
pub use set::{AddError, Clients};
pub use terms::Terms;
pub use verdict::{IgnoreReason, Verdict};

/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests;
