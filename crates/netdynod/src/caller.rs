//! Who calls a method.

use crate::core::Core;
use crate::files::{Door, Files};
use crate::graphs;
use crate::outbox::Outbox;
use crate::session::Session;
use crate::stream::Stream;
use profile::graph::GraphFile;
use serde_json::Value;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use system::method::CallContext;
use system::rpc::{Answer, Error};

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

impl CallContext for Caller {
    fn may_change(&self) -> Result<(), Error> {
        match self.door {
            Door::Socket => Ok(()),
            Door::Tcp => self.core.as_writer(self.session),
        }
    }

    fn is_ending(&self) -> bool {
        self.core.ending.load(Ordering::Relaxed)
    }

    fn graph(&self, id: &str) -> Result<engine::View, Error> {
        self.core.graphs.view(id)
    }

    fn change_graph(
        &self,
        id: &str,
        document: &Value,
        change: &mut dyn FnMut(&GraphFile, &GraphFile) -> Answer,
    ) -> Answer {
        let graphs = &self.core.graphs;
        let _one_at_a_time = graphs.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = graphs.file(id)?;
        let new = graphs::read(document, self.files(), self.core.registry.kinds())?.file;
        let answer = change(&old, &new)?;
        graphs.changed(id, new);
        Ok(answer)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.core.forget(self.session);
        self.outbox.end();
    }
}
