//! Port Control Protocol (RFC 6887), the server's side: a request in, an answer out.
//!
//! [`Server`] reads and checks requests, and asks the NAT for mappings through the trait [`Mappings`]. It knows neither socket nor
//! clock. An announcement after a restart is [`Server::announcement`], sent when [`announcement_at_ms`] says.

mod codec;
mod epoch;
mod limit;
mod mappings;
mod option;
mod result;
mod server;
#[cfg(feature = "testing")]
pub mod testing;

pub use codec::{MAX_LEN, VERSION};
pub use epoch::{ANNOUNCEMENTS, Epoch, announcement_at_ms, lost_state};
pub use limit::Limit;
pub use mappings::{
    Client, Explicit, Filter, Filters, Inside, Map, MappingGrant, Mappings, Nonce, Origin, Peer, Refusal,
};
pub use result::ResultCode;
pub use server::{Config, Server, Statistics};

/// The port a server listens at (RFC 6887 section 19).
pub const SERVER_PORT: u16 = 5351;
/// The port clients hear announcements at, sent to 224.0.0.1.
pub const CLIENT_PORT: u16 = 5350;
