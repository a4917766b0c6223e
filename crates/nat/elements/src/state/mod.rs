//! The state of a NAT over a restart: a file that its workers write when they have stopped, and read before they begin.
//!
//! ```text
//!  stop:   Nat ─export─▶ Keeper ─▶ FILE.new ─(all workers are through)─▶ fsync, rename ─▶ FILE
//!  start:  FILE ─check, whole─▶ Survey: who is whose ─▶ each worker reads what is its own ─import─▶ Nat
//! ```
//! The file is read as a stream, once to check it and once for each worker; there is no second copy of the tables.

mod file;
mod keeper;
mod survey;
#[cfg(test)]
mod tests;

pub use file::{Header, StateError, may_put_aside};
pub use keeper::Keeper;
pub use survey::{Bound, Survey, Tally, restore};
