//! What a worker knows of the end of its NAT.

use crate::shared::Shared;
use crate::state::Keeper;
use cgnat::Ownership;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// When a NAT stops, all of its workers' logs take what ends for so long.
const ENDING: Duration = Duration::from_secs(2);

/// What becomes of sessions when their NAT stops.
#[derive(Debug, Clone)]
pub struct Kept {
    pub(crate) keeper: Option<Arc<Keeper>>,
    ending: Arc<OnceLock<Instant>>,
    /// Who owns what, and which of them this is.
    pub(crate) ownership: Arc<OnceLock<(u16, Ownership)>>,
    pub(crate) replica: usize,
}

impl Kept {
    /// As worker `replica` of this NAT has it.
    pub fn of(shared: &Shared, replica: usize) -> Self {
        let (ending, ownership) = (Arc::clone(&shared.ending), Arc::clone(&shared.ownership));
        Self { keeper: shared.keeper.clone(), ending, ownership, replica }
    }

    /// Until when what ends may wait for room in the log.
    pub(crate) fn until(&self) -> Instant {
        *self.ending.get_or_init(|| Instant::now() + ENDING)
    }
}
