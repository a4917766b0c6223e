//! HTTP, MQTT and CoAP servers, a receiver of streams and a player of scripts, to test against.
//!
//! [`Service`] and [`DatagramService`] are the logic without I/O: bytes and the time go in, replies come out. [`listen`] runs
//! one over the kernel's TCP or another network. A server counts what it received and sent, as a witness of a load; it can answer late, refuse a share of
//! requests, or leave a share unanswered.

pub mod coap;
mod datagram;
pub mod http;
pub mod listen;
pub mod mqtt;
mod output;
pub mod script;
mod settings;
mod share;
pub mod stream;

pub use datagram::{DatagramService, Datagrams};
pub use output::{ConnectionId, Output};
pub use settings::{Protocol, Settings, SettingsError};

use std::collections::BTreeMap;

/// Counts since the start, by name.
pub type Counters = BTreeMap<&'static str, u64>;

/// The logic of a server, without I/O. Whatever a client sends, it neither panics nor keeps more than a bounded amount.
pub trait Service {
    /// A connection was accepted.
    fn opened(&mut self, id: ConnectionId, out: &mut Output);

    /// `bytes` is what came on a connection and was not used before. How many of them are used up: a message that has not
    /// come whole is passed again with what comes after it.
    fn received(&mut self, id: ConnectionId, bytes: &[u8], out: &mut Output) -> usize;

    /// The network took so many more bytes of what was asked to be sent on a connection, in the order in which it was.
    fn sent(&mut self, _: ConnectionId, _: usize) {}

    /// The time that was set by [`Output::wake_at`] has come.
    fn timer(&mut self, id: ConnectionId, out: &mut Output);

    /// A connection is gone, whoever closed it.
    fn closed(&mut self, id: ConnectionId, out: &mut Output);

    /// Counts since the start.
    fn counters(&self) -> Counters;
}
