//! Which of several workers a packet is for: what comes from the inside goes by its subscriber, what comes from the outside by
//! who owns the port that it goes to. Both directions of a session meet there.

use crate::headers;
use crate::shared::Shared;
use ::element::kind::MakeAffinity;
use cgnat::{Ownership, Side};
use dpdk::Mbuf;
use engine::Affinity;
use std::sync::{Arc, OnceLock};

/// Goes by what each worker owns.
#[derive(Debug, Clone)]
pub struct Owner {
    ownership: Arc<OnceLock<(u16, Ownership)>>,
}

impl Owner {
    /// One for each edge that leads to the workers.
    pub fn maker(shared: &Shared) -> MakeAffinity {
        let ownership = Arc::clone(&shared.ownership);
        Box::new(move || Box::new(Self { ownership: Arc::clone(&ownership) }))
    }
}

impl Affinity for Owner {
    #[inline]
    fn replica(&mut self, mbuf: &Mbuf, _: usize) -> usize {
        // It was said before the first packet came.
        let (Some((inside, ownership)), Some(meta)) = (self.ownership.get(), mbuf.meta()) else { return 0 };
        let side = if meta.in_port == *inside { Side::Inside } else { Side::Outside };
        // What belongs to nobody the first one drops, and counts.
        headers::of(mbuf, &meta)
            .and_then(|headers| ownership.worker(side, mbuf.data(), &headers))
            .unwrap_or(0)
    }
}
