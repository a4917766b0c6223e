//! Who was bound before a restart, on its way to the NAT table: said by who keeps sessions, which is made after it.

use crate::shared::Shared;
use crate::state::Bound;
use std::sync::{Arc, OnceLock};

/// For one worker.
#[derive(Debug)]
pub struct RestoredBindings {
    bound: Arc<OnceLock<Vec<Vec<Bound>>>>,
    replica: usize,
}

impl RestoredBindings {
    /// For this one.
    pub fn of(shared: &Shared, replica: usize) -> Self {
        Self { bound: Arc::clone(&shared.bound), replica }
    }

    /// Of a NAT with one worker.
    #[cfg(test)]
    pub fn of_worker(bound: Vec<Bound>) -> Self {
        Self { bound: Arc::new(vec![bound].into()), replica: 0 }
    }

    /// Who it is. The graph is made by now.
    pub fn bound(&self) -> &[Bound] {
        self.bound.get().and_then(|all| all.get(self.replica)).map_or(&[], Vec::as_slice)
    }
}
