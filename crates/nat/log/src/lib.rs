//! The log of a NAT: which subscriber had which outside address and port, and when (RFC 6888 section 4).
//!
//! ```text
//!  packet worker ──Source::drain──► queue ──Logger::turn──► ipfix::Exporter or syslog::Formatter ──► Sender ──► collector
//!   (never waits)                (bounded; what does not fit is counted, and the count is in the log)
//! ```
//! Encoders and queue know neither clock nor socket. [`Sender`] and [`Logger`] belong on a thread of their own.

mod event;
#[cfg(test)]
mod event_tests;
pub mod ipfix;
mod logger;
mod queue;
#[cfg(test)]
mod queue_tests;
mod sender;
mod source;
pub mod syslog;
mod unconfirmed;

pub use event::{Block, Endpoint, Event, EventKind, Mapping, Quota, Session, Tags, Volume};
pub use logger::{Encode, Logger, Statistics, TURN};
pub use queue::{Consumer, Producer, queue};
pub use sender::{Framing, Sender, Transport};
pub use source::{Clock, Source};

/// What [`queue`](mod@queue) shares between threads: here the real ones.
mod sync {
    pub use std::sync::Arc;
    pub use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
}
