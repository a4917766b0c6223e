//! A share of events, drawn at random from a seed.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Draws whether an event belongs to a share.
#[derive(Debug)]
pub(crate) struct Share {
    share: f64,
    rng: SmallRng,
}

impl Share {
    /// `share` is from 0 to 1.
    pub fn new(share: f64, seed: u64) -> Self {
        Self { share, rng: SmallRng::seed_from_u64(seed) }
    }

    /// Whether the next event belongs to it.
    pub fn draw(&mut self) -> bool {
        self.share > 0.0 && self.rng.random::<f64>() < self.share
    }
}
