//! A SIP server to test against: registrar, with a proxy, a redirect server or a UAS behind it.
//!
//! [`Server`] is the logic without I/O: messages and the time go in, messages and a deadline come out. [`listen`] runs it over
//! UDP and TCP sockets, TLS and WebSocket. It counts what it received and sent, as a witness of a load, and it can be slow, reject a share
//! of requests, lose a share of messages, or break one rule of RFC 3261 on purpose.

mod connection;
mod counters;
pub mod echo;
pub mod listen;
mod peer;
mod server;
mod settings;

pub use counters::Counters;
pub use peer::{Broken, Given, Peer, Transport};
pub use server::{Out, Server};
pub use settings::{Account, Role, Settings, SettingsError, TlsListener};
