//! A DHCP client (RFC 2131) for very many hardware addresses, as pure logic.
//!
//! [`Clients`] is given frames and the time, and gives frames and events. Each hardware address has the states of RFC
//! 2131 figure 5. Times are nanoseconds of a clock that never goes back; a seed decides what is random.

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
pub use event::{Event, Known, Lost};
pub use machine::State;
pub use set::{AddError, Clients};
pub use terms::Terms;
pub use verdict::{Ignored, Verdict};

/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests;
