//! SIP messages (RFC 3261 sections 7, 20 and 25).
//!
//! [`scan`] reads the few header fields of the load path in one pass. [`Fields`] gives every header field as written, for
//! copying them into a response. [`Message`] is the full grammar, and what builds messages. [`frame`] finds messages in a stream.

mod check;
mod error;
mod field;
mod frame;
pub mod header;
pub(crate) mod lex;
mod multipart;
mod name;
mod owned;
mod scan;

pub use error::{Error, Fault};
pub use field::{Field, Fields};
pub use frame::{Framer, frame};
pub use multipart::session;
pub use name::Name;
pub use owned::{Header, Message, StartLine};
pub use scan::{CSeq, Challenges, MAX_CHALLENGES, Party, Scanned, Start, TopVia, leading_crlf, scan};

/// Longest header field and start line, bytes.
pub const MAX_FIELD: usize = 16 * 1024;
/// Most header fields of a message: a registrar may answer with a Contact for each of many bindings.
pub const MAX_FIELDS: usize = 4096;
/// Longest head of a message, bytes.
pub const MAX_HEAD: usize = 64 * 1024;
/// Longest body of a message, bytes.
pub const MAX_BODY: usize = 4 * 1024 * 1024;
