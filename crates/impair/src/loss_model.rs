//! Loss models and other random events, drawn once per event, not once per packet.
//!
//! Whether each of many packets is hit with probability p is the same as how many packets it takes to the
//! next hit: 1 + floor(ln U / ln(1 - p)), U in (0, 1]. At one in a thousand that is a thousandth of the
//! draws, and a super-segment of n packets is one comparison.

use crate::spec::{GilbertElliott, Loss};
use protocol::unit::Share;
use rand::Rng;
use rand::rngs::SmallRng;
use std::sync::Arc;

/// Never.
pub(crate) const NEVER: u64 = u64::MAX;

/// Packets to the next hit, at least 1.
fn wait(probability: f64, rng: &mut SmallRng) -> u64 {
    if probability <= 0.0 {
        return NEVER;
    }
    let u = 1.0 - rng.random::<f64>();
    // At 1 this is ln u / -inf, which is 0; beyond what u64 has it saturates.
    ((u.ln() / (-probability).ln_1p()) as u64).saturating_add(1)
}

/// Bernoulli trials: each packet is hit with the same probability.
#[derive(Debug)]
pub(crate) struct Bernoulli {
    probability: f64,
    rng: SmallRng,
    /// The number of the next packet to be hit.
    pub(crate) at: u64,
}

impl Bernoulli {
    /// Never hits, until it is set.
    pub(crate) fn new(rng: SmallRng) -> Self {
        Self { probability: 0.0, rng, at: NEVER }
    }

    /// From the packet after number `seen` on, hit with `share`. Where that is so already nothing changes.
    pub(crate) fn set(&mut self, share: Option<Share>, seen: u64) {
        let probability = share.map_or(0.0, Share::probability);
        if probability != self.probability {
            self.probability = probability;
            self.next(seen);
        }
    }

    /// Packet `seen` was the one; which is next?
    #[inline]
    pub(crate) fn next(&mut self, seen: u64) {
        self.at = seen.saturating_add(wait(self.probability, &mut self.rng));
    }
}

/// The loss model with its parameters resolved.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LossModel {
    None,
    Independent(f64),
    Bursts(GilbertElliott),
    Periodic(u64),
    List(Arc<[u64]>),
}

impl LossModel {
    /// From a checked specification.
    pub(crate) fn new(loss: Option<&Loss>) -> Self {
        match loss {
            None => Self::None,
            Some(Loss::Independent(share)) => Self::Independent(share.probability()),
            Some(Loss::GilbertElliott(bursts)) => Self::Bursts(*bursts),
            Some(Loss::Periodic(every)) => Self::Periodic((*every).max(1)),
            Some(Loss::List(numbers)) => Self::List(numbers.as_slice().into()),
        }
    }
}

/// The next loss.
#[derive(Debug)]
pub(crate) struct PacketDraws {
    losses: LossModel,
    rng: SmallRng,
    /// Whether the state of bursty loss is the bad one.
    bad: bool,
    /// The number of the next packet that needs a decision.
    pub(crate) at: u64,
    /// Whether that one is lost; if not, it is just time to ask again.
    lost: bool,
}

/// Changes of state that one search for the next loss goes through: rare losses in many states are searched
/// for bit by bit.
const SEARCH: usize = 64;

impl PacketDraws {
    /// Nothing is lost, until it is set.
    pub(crate) fn new(rng: SmallRng) -> Self {
        Self { losses: LossModel::None, rng, bad: false, at: NEVER, lost: false }
    }

    /// From the packet after number `seen` on. Where it is so already nothing changes.
    pub(crate) fn set(&mut self, losses: &LossModel, seen: u64) {
        if *losses != self.losses {
            self.losses = losses.clone();
            self.bad = false;
            self.search(seen);
        }
    }

    /// Is packet `at` lost?
    #[inline]
    pub(crate) fn draw(&mut self) -> bool {
        let lost = self.lost;
        self.search(self.at);
        lost
    }

    fn search(&mut self, seen: u64) {
        self.lost = true;
        self.at = match &self.losses {
            LossModel::None => NEVER,
            LossModel::Independent(probability) => seen.saturating_add(wait(*probability, &mut self.rng)),
            LossModel::Periodic(every) => (seen / every).saturating_add(1).saturating_mul(*every),
            LossModel::List(numbers) => {
                let next = numbers.partition_point(|number| *number <= seen);
                numbers.get(next).copied().unwrap_or(NEVER)
            }
            LossModel::Bursts(bursts) => {
                let (bursts, mut at) = (*bursts, seen);
                for _ in 0..SEARCH {
                    let (share, change) = match self.bad {
                        false => (bursts.lost_good, bursts.enter_bad),
                        true => (bursts.lost_bad, bursts.leave_bad),
                    };
                    let loss = wait(share.probability(), &mut self.rng);
                    // The packet after which the state changes still belongs to it.
                    let stay = wait(change.probability(), &mut self.rng);
                    self.bad ^= stay <= loss && stay != NEVER;
                    at = at.saturating_add(loss.min(stay));
                    if loss <= stay {
                        // NEVER and NEVER: there is none.
                        self.at = at;
                        return;
                    }
                }
                self.lost = false;
                at
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use serde_json::{Value, from_value, json};

    fn rng() -> SmallRng {
        SmallRng::seed_from_u64(42)
    }

    /// Of the first `packets` packets, those that are lost.
    fn lost(loss: Value, packets: u64) -> Vec<u64> {
        let mut lottery = PacketDraws::new(rng());
        lottery.set(&LossModel::new(Some(&from_value(loss).expect("a loss"))), 0);
        let mut lost = Vec::new();
        while lottery.at <= packets {
            let at = lottery.at;
            if lottery.draw() {
                lost.push(at);
            }
            assert!(lottery.at > at, "it goes forward");
        }
        lost
    }

    #[test]
    fn independent_loss_has_its_share_and_its_gaps() {
        let packets = 2_000_000;
        let lost = lost(json!({"independent": "1%"}), packets);
        let share = lost.len() as f64 / packets as f64;
        // Standard error sqrt(p (1 - p) / n) = 7e-5; four of them.
        assert!((share - 0.01).abs() < 0.000_28, "{share}");
        // Geometric gaps: next to each other as often as p says.
        let pairs = lost.windows(2).filter(|w| w[1] == w[0] + 1).count() as f64 / lost.len() as f64;
        assert!((pairs - 0.01).abs() < 0.003, "{pairs}");
    }

    #[test]
    fn all_and_none() {
        assert_eq!(lost(json!({"independent": "100%"}), 5), [1, 2, 3, 4, 5]);
        assert_eq!(lost(json!({"independent": "0%"}), 1 << 60), [0; 0]);
        let never = json!({"gilbert_elliott": {"enter_bad": "0%", "leave_bad": "0%"}});
        assert_eq!(lost(never, 1 << 60), [0; 0]);
        let for_good = json!({"gilbert_elliott": {"enter_bad": "100%", "leave_bad": "0%"}});
        assert_eq!(lost(for_good, 4), [2, 3, 4], "the first packet finds the good state");
        let in_turns = json!({"gilbert_elliott": {"enter_bad": "100%", "leave_bad": "100%"}});
        assert_eq!(lost(in_turns, 6), [2, 4, 6]);
    }

    #[test]
    fn periodic_and_listed_losses_are_where_they_are_said_to_be() {
        assert_eq!(lost(json!({"periodic": 3}), 10), [3, 6, 9]);
        assert_eq!(lost(json!({"periodic": 1}), 3), [1, 2, 3]);
        assert_eq!(lost(json!({"list": [1, 2, 7]}), 10), [1, 2, 7]);
        assert_eq!(lost(json!({"list": []}), 10), [0; 0]);
    }

    #[test]
    fn bursty_loss_has_its_share_and_its_bursts() {
        let packets = 4_000_000;
        let bursts = json!({"gilbert_elliott": {"enter_bad": "1%", "leave_bad": "20%", "lost_bad": "80%", "lost_good": "0.1%"}});
        let lost = lost(bursts, packets);
        let share = lost.len() as f64 / packets as f64;
        let expected = (0.2 * 0.001 + 0.01 * 0.8) / 0.21;
        assert!((share / expected - 1.0).abs() < 0.02, "{share} against {expected}");
        // After a loss in the bad state (nearly all of them are) the next is lost when the state stays and
        // hits.
        let pairs = lost.windows(2).filter(|w| w[1] == w[0] + 1).count() as f64 / lost.len() as f64;
        assert!((pairs - 0.8 * 0.8).abs() < 0.02, "{pairs}");
    }

    #[test]
    fn the_simple_gilbert_model_loses_runs_of_mean_length_one_over_leave_bad() {
        let lost = lost(json!({"gilbert_elliott": {"enter_bad": "0.5%", "leave_bad": "25%"}}), 4_000_000);
        let runs = 1 + lost.windows(2).filter(|w| w[1] != w[0] + 1).count();
        let mean = lost.len() as f64 / runs as f64;
        assert!((mean - 4.0).abs() < 0.1, "{mean}");
    }

    #[test]
    fn a_loss_that_hardly_ever_comes_is_searched_for_in_bounded_time() {
        let rare = json!({"gilbert_elliott":
            {"enter_bad": "50%", "leave_bad": "50%", "lost_bad": "1ppm", "lost_good": "0%"}});
        let lost = lost(rare, 20_000_000);
        assert!((5..20).contains(&lost.len()), "{}", lost.len());
    }

    #[test]
    fn a_change_to_the_same_changes_nothing() {
        let (mut draws, share) = (Bernoulli::new(rng()), "1%".parse().ok());
        draws.set(share, 0);
        let at = draws.at;
        draws.set(share, 1);
        assert_eq!(draws.at, at);
        draws.set(None, 2);
        assert_eq!(draws.at, NEVER);
        draws.set(share, 1000);
        assert!(draws.at > 1000 && draws.at != NEVER);
    }

    proptest! {
        #[test]
        fn the_wait_is_geometric(percent in 1u32..100) {
            let p = f64::from(percent) / 100.0;
            let mut rng = SmallRng::seed_from_u64(percent.into());
            let draws = 20_000;
            let mean = (0..draws).map(|_| wait(p, &mut rng) as f64).sum::<f64>() / f64::from(draws);
            // The standard error is sqrt(1 - p) / p / sqrt(n).
            prop_assert!((mean - 1.0 / p).abs() <= 5.0 * (1.0 - p).sqrt() / p / f64::from(draws).sqrt() + 1e-9);
        }
    }
}
