//! SIP (RFC 3261) without I/O: bytes and the time go in, bytes and timers come out.
//!
//! [`scan`](message::scan) makes one pass over a datagram, allocates nothing and returns the few
//! header fields that a load generator needs.
//!
//! [`digest`] answers and verifies challenges. Nothing here knows a socket or a clock.

pub mod digest;
pub mod message;

pub use message::{Error, Fault, Name, Scanned, scan};
