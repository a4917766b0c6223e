//! Random early detection: S. Floyd and V. Jacobson, "Random Early Detection Gateways for Congestion
//! Avoidance", IEEE/ACM Transactions on Networking 1(4), 1993, figure 2.

use crate::spec::{Limit, Red as Spec};
use rand::Rng;
use rand::rngs::SmallRng;

/// What is remembered from packet to packet; names as in the paper.
#[derive(Debug)]
pub(crate) struct Red {
    min_th: f64,
    max_th: f64,
    max_p: f64,
    w_q: f64,
    /// Mean queue, in packets or bytes.
    avg: f64,
    /// Packets since the last drop; -1: the mean is below the threshold.
    count: i64,
    rng: SmallRng,
}

impl Red {
    pub(crate) fn new(spec: &Spec, rng: SmallRng) -> Self {
        let mut red = Self { min_th: 0.0, max_th: 0.0, max_p: 0.0, w_q: 0.0, avg: 0.0, count: -1, rng };
        red.set(spec);
        red
    }

    /// New parameters, same history.
    pub(crate) fn set(&mut self, spec: &Spec) {
        let limit = match spec.limit {
            Limit::Packets(n) => f64::from(n),
            Limit::Bytes(size) => size.0 as f64,
        };
        self.min_th = spec.min.probability() * limit;
        self.max_th = spec.max.probability() * limit;
        self.max_p = spec.max_p.probability();
        self.w_q = spec.weight.probability();
    }

    /// The line was idle while it could have sent `packets`: as if that many had arrived at an empty queue.
    pub(crate) fn idle(&mut self, packets: f64) {
        self.avg *= (1.0 - self.w_q).powf(packets);
    }

    /// Is a packet that finds `queue` waiting dropped?
    pub(crate) fn drops(&mut self, queue: f64) -> bool {
        self.avg += self.w_q * (queue - self.avg);
        if self.avg < self.min_th {
            self.count = -1;
            return false;
        }
        if self.avg >= self.max_th {
            self.count = 0;
            return true;
        }
        self.count += 1;
        let p_b = self.max_p * (self.avg - self.min_th) / (self.max_th - self.min_th);
        // Drops evenly spread: uniform between 1 and 1/p_b packets apart.
        let left = 1.0 - self.count as f64 * p_b;
        let drop = left <= 0.0 || self.rng.random::<f64>() < p_b / left;
        if drop {
            self.count = 0;
        }
        drop
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use serde_json::{from_value, json};

    fn red() -> Red {
        let spec =
            json!({"limit": {"packets": 100}, "min": "10%", "max": "30%", "max_p": "2%", "weight": "1%"});
        Red::new(&from_value(spec).expect("parameters"), SmallRng::seed_from_u64(3))
    }

    fn share(red: &mut Red, queue: f64, packets: usize) -> f64 {
        (0..packets).filter(|_| red.drops(queue)).count() as f64 / packets as f64
    }

    #[test]
    fn below_min_none_above_max_all() {
        let mut red = red();
        assert_eq!(share(&mut red, 9.9, 10_000), 0.0);
        share(&mut red, 30.1, 10_000);
        assert_eq!(share(&mut red, 30.1, 1000), 1.0);
    }

    #[test]
    fn between_the_share_grows_to_max_p_and_drops_are_spread_evenly() {
        let mut red = red();
        share(&mut red, 20.0, 10_000);
        // Halfway p_b is 1 %. Gaps uniform on 1 … 1/p_b have the mean (1/p_b + 1) / 2.
        let halfway = share(&mut red, 20.0, 400_000);
        assert!((halfway * 50.5 - 1.0).abs() < 0.05, "{halfway}");
        let mut gap = 0;
        for _ in 0..100_000 {
            gap = if red.drops(20.0) { 0 } else { gap + 1 };
            assert!(gap <= 101, "no gap is longer than 1/p_b");
        }
    }

    #[test]
    fn a_burst_is_not_a_mean() {
        let mut red = red();
        assert_eq!(share(&mut red, 100.0, 10), 0.0);
        let before = red.avg;
        red.idle(100.0);
        assert!((red.avg / before - 0.99f64.powi(100)).abs() < 1e-9);
    }
}
