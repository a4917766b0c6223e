//! The life of virtual devices: when flows begin and end, timers, drain, tallies. One runtime for every model and every
//! [`Endpoint`].
//!
//! ```text
//!  load_shape ─► worker ◄─► Model (protocol)      when to begin; what to say
//!                  ▲
//!                  └──────► Endpoint              bytes: kernel sockets, or a stack over DPDK ports
//! ```
//! [`start`] makes one [`Worker`] per core, each with an endpoint of its own; they share nothing.

mod addresses;
pub mod conn_error;
pub mod endpoint;
mod group;
pub mod load_shape;
pub mod output;
mod quota;
mod start;
mod timers;
pub mod tls;
mod worker;

pub use conn_error::ConnError;
pub use endpoint::{Batch, Closed, Connection, Datagram, Endpoint, Event, Input, MediaInput, Token};
pub use start::start;
pub use worker::Worker;
