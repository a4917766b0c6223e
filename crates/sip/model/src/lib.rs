//! SIP user agents as devices: a model that plays scenarios and measures by RFC 6076.
//!
//! ```text
//!  scenario (steps) ─compile─► Op …  ◄─ UserAgent: plays them, keeps transactions and a dialog
//!                                        │ out: requests, responses (message)
//!  DESCRIPTION: delays, counters,        ▼ in: scanned messages (receive)
//!  indices of RFC 6076          ◄─ measure: what each final response counts as
//! ```
//! Where calls have audio, a `sip_media::Session` of each call sends and hears it over the device's media sockets.
//!
//! A scenario says what a user agent sends, expects and answers. Retransmissions, Timers B and F, the ACK to a failure,
//! the answer to a challenge and to a request that no step expects are the user agent's own.

mod agent;
mod aka;
mod auth;
mod binding;
mod callees;
mod config;
mod description;
mod device;
mod dialog;
mod identity;
mod late_audio;
mod measure;
mod media;
mod message;
mod method;
mod params;
mod per_run;
mod recipient;
pub mod scenario;
mod session_timer;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod transaction;

pub use aka::Aka;
pub use config::Config;
pub use description::DESCRIPTION;
pub use device::Device;
pub use identity::{Attestation, Identity};
pub use media::{Media, Source};
pub use params::{AgentSockets, Connections, ConnectionsWord, Params};
pub use session_timer::{RefreshMethod, SessionTimer, Side};
