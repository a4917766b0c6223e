//! SIP (RFC 3261) without I/O: bytes and the time go in, bytes and timers come out.
//!
//! Two ways read a message. [`scan`] makes one pass over a datagram, allocates nothing and returns the few
//! header fields that a load generator needs. [`Message`] is the full grammar, for conformance tests,
//! unusual messages and building. A property test holds that both agree.
//!
//! [`digest`] answers and verifies challenges, [`transaction`] has the four state machines,
//! [`sdp`] audio offers and answers, [`passport`] signs who calls. Nothing here knows a socket or a clock.

pub mod digest;
pub mod message;
mod method;
pub mod passport;
pub mod sdp;
#[cfg(feature = "testing")]
pub mod testing;
pub mod transaction;
pub mod uri;

pub use message::{Error, Fault, Message, Name, Scanned, scan};
pub use method::Method;
pub use uri::Uri;
