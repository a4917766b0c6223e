//! What can go wrong as an interface is opened.

use std::io;

/// Why an interface could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is out of its range.
    #[error("{what} must be {allowed}")]
    Config {
        /// The setting.
        what: &'static str,
        /// What it may be.
        allowed: &'static str,
    },
    /// Somebody listens on the socket.
    #[error("socket '{socket}' is in use")]
    InUse {
        /// The socket.
        socket: String,
    },
    /// This process has a server of that id on the socket.
    #[error("id {id} is in use on socket '{socket}'")]
    IdInUse {
        /// The socket.
        socket: String,
        /// The id.
        id: u32,
    },
    /// The system refused something.
    #[error("{action} socket '{socket}' failed: {cause}")]
    System {
        /// What was being done.
        action: &'static str,
        /// The socket.
        socket: String,
        /// The system's word for it.
        cause: io::Error,
    },
}
