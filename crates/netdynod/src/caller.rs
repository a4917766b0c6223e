//! Who calls a method.

use crate::core::Core;
use crate::files::{Door, Files};
use crate::outbox::Outbox;
use crate::session::Session;
use crate::stream::Stream;
use std::sync::Arc;

/// What one connection's calls need.
pub struct Caller {
    /// Everything shared.
    pub core: Arc<Core>,
    /// Which connection.
    pub session: Session,
    /// Its way out.
    pub outbox: Arc<Outbox>,
    /// By which door it came.
    pub door: Door,
    /// The connection itself, to be looked at while a call of its is under way.
    pub stream: Stream,
}

impl Caller {
    /// What it may name.
    pub fn files(&self) -> Files<'_> {
        Files { door: self.door, folder: self.core.files.as_deref() }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.core.forget(self.session);
        self.outbox.end();
    }
}
