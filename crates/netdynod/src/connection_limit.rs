//! How many connections each listener takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use system::rpc::{Error, TOO_MANY};

/// Connections at a time that each listener takes. Strangers on TCP cannot lock out the owner of the socket.
pub const CONNECTIONS: usize = 64;

/// The limit of one listener.
#[derive(Default)]
pub struct ConnectionLimit(AtomicUsize);

/// One of them; given back when nothing more is written to it.
pub struct ConnectionPermit(Arc<ConnectionLimit>);

impl ConnectionLimit {
    /// A permit, unless all are taken.
    pub fn acquire(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let one_more = |taken| (taken < CONNECTIONS).then_some(taken + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(ConnectionPermit(Arc::clone(self)))
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What one connection too many is told.
pub fn full() -> Error {
    tracing::warn!("a connection is refused: {CONNECTIONS} are open");
    let what = format!("{CONNECTIONS} connections are open already");
    Error::new(TOO_MANY, "ND-104-15", "connection", what, "Close some of them")
}
