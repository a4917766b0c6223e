//! One delay after the other, as a distribution has them.

use crate::spec::{DELAY_MAX, Delay, Normal, Pareto, Uniform};
use rand::Rng;
use rand::rngs::SmallRng;
use rand_distr::Distribution;
use std::sync::Arc;

/// A distribution to draw from; cheap to copy.
#[derive(Debug, Clone)]
pub(crate) enum Delays {
    Constant(u64),
    Uniform { from: u64, to: u64 },
    Normal(rand_distr::Normal<f64>),
    Pareto { least: f64, exponent: f64, most: f64 },
    Quantiles(Arc<[u64]>),
    Samples(Arc<[u64]>),
}

impl Delays {
    /// From a checked specification.
    pub(crate) fn new(delay: &Delay) -> Self {
        match delay {
            Delay::Constant(delay) => Self::Constant(delay.ns()),
            Delay::Uniform(Uniform { from, to }) if from == to => Self::Constant(to.ns()),
            Delay::Uniform(Uniform { from, to }) => Self::Uniform { from: from.ns(), to: to.ns() },
            Delay::Normal(Normal { mean, deviation }) => {
                match rand_distr::Normal::new(mean.ns() as f64, deviation.ns() as f64) {
                    Ok(normal) if deviation.ns() > 0 => Self::Normal(normal),
                    _ => Self::Constant(mean.ns()),
                }
            }
            Delay::Pareto(Pareto { least, shape, most }) => {
                Self::Pareto { least: least.ns() as f64, exponent: -1.0 / shape, most: most.ns() as f64 }
            }
            Delay::Quantiles(table) => Self::Quantiles(table.iter().map(|delay| delay.ns()).collect()),
            Delay::Samples(table) => Self::Samples(table.iter().map(|delay| delay.ns()).collect()),
        }
    }

    /// The delay that all have, if it is the same for all.
    #[inline]
    pub(crate) fn constant(&self) -> Option<u64> {
        if let Self::Constant(delay) = self { Some(*delay) } else { None }
    }

    /// The next delay, ns.
    #[inline]
    pub(crate) fn draw(&self, rng: &mut SmallRng) -> u64 {
        match self {
            Self::Constant(delay) => *delay,
            Self::Uniform { from, to } => rng.random_range(*from..=*to),
            // Negative becomes 0 by the conversion.
            Self::Normal(normal) => (normal.sample(rng) as u64).min(DELAY_MAX.ns()),
            // The inverse of the distribution function, of a number over 0.
            Self::Pareto { least, exponent, most } => {
                (least * (1.0 - rng.random::<f64>()).powf(*exponent)).min(*most) as u64
            }
            Self::Quantiles(table) => {
                let steps = table.len().saturating_sub(1);
                let place = rng.random::<f64>() * steps as f64;
                let at = (place as usize).min(steps.saturating_sub(1));
                let low = table.get(at).copied().unwrap_or(0);
                let high = table.get(at + 1).copied().unwrap_or(low);
                low + (high.saturating_sub(low) as f64 * (place - at as f64)) as u64
            }
            Self::Samples(table) => {
                let at = rng.random_range(0..table.len().max(1));
                table.get(at).copied().unwrap_or(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use serde_json::{Value, from_value, json};

    const DRAWS: usize = 200_000;

    /// Draws in order, in µs.
    fn draws(delay: Value) -> Vec<f64> {
        let delays = Delays::new(&from_value(delay).expect("a delay"));
        let mut rng = SmallRng::seed_from_u64(1);
        let mut draws: Vec<f64> = (0..DRAWS).map(|_| delays.draw(&mut rng) as f64 / 1e3).collect();
        draws.sort_by(f64::total_cmp);
        draws
    }

    fn mean(draws: &[f64]) -> f64 {
        draws.iter().sum::<f64>() / draws.len() as f64
    }

    #[test]
    fn a_constant_is_one() {
        assert!(draws(json!({"constant": "3ms"})).iter().all(|d| *d == 3000.0));
        assert!(draws(json!({"uniform": {"from": "2ms", "to": "2ms"}})).iter().all(|d| *d == 2000.0));
        assert!(draws(json!({"normal": {"mean": "2ms", "deviation": "0s"}})).iter().all(|d| *d == 2000.0));
    }

    #[test]
    fn uniform_fills_its_range_evenly() {
        let draws = draws(json!({"uniform": {"from": "1ms", "to": "3ms"}}));
        assert!(draws[0] >= 1000.0 && draws[DRAWS - 1] <= 3000.0);
        for (i, quantile) in [(1, 1500.0), (2, 2000.0), (3, 2500.0)] {
            assert!((draws[DRAWS * i / 4] - quantile).abs() < 15.0, "{}", draws[DRAWS * i / 4]);
        }
    }

    #[test]
    fn normal_has_its_mean_and_deviation_and_is_never_negative() {
        let wide = draws(json!({"normal": {"mean": "10ms", "deviation": "2ms"}}));
        let mean = mean(&wide);
        assert!((mean - 10_000.0).abs() < 20.0, "{mean}");
        let deviation = (wide.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / DRAWS as f64).sqrt();
        assert!((deviation - 2000.0).abs() < 20.0, "{deviation}");
        let cut = draws(json!({"normal": {"mean": "1ms", "deviation": "1ms"}}));
        // Φ(-1) = 0.1587 of the draws would be negative.
        let zero = cut.iter().filter(|d| **d == 0.0).count() as f64 / DRAWS as f64;
        assert!((zero - 0.1587).abs() < 0.005, "{zero}");
    }

    #[test]
    fn pareto_has_its_tail_and_its_cut() {
        let draws = draws(json!({"pareto": {"least": "1ms", "shape": 2.0, "most": "20ms"}}));
        assert!(draws[0] >= 999.0 && draws[DRAWS - 1] <= 20_000.0);
        // The median is least * 2^(1/shape), the 99th percentile least * 100^(1/shape).
        assert!((draws[DRAWS / 2] / 1414.2 - 1.0).abs() < 0.01, "{}", draws[DRAWS / 2]);
        assert!((draws[DRAWS * 99 / 100] / 10_000.0 - 1.0).abs() < 0.04, "{}", draws[DRAWS * 99 / 100]);
        let cut = draws.iter().filter(|d| **d == 20_000.0).count() as f64 / DRAWS as f64;
        assert!((cut - 1.0 / 400.0).abs() < 0.0005, "{cut}");
    }

    #[test]
    fn a_table_of_quantiles_is_followed() {
        let draws = draws(json!({"quantiles": ["1ms", "2ms", "10ms"]}));
        assert!(draws[0] >= 1000.0 && draws[DRAWS - 1] <= 10_000.0);
        for (i, quantile) in [(1, 1500.0), (2, 2000.0), (3, 6000.0)] {
            assert!((draws[DRAWS * i / 4] / quantile - 1.0).abs() < 0.02, "{}", draws[DRAWS * i / 4]);
        }
    }

    #[test]
    fn samples_come_as_they_are_and_equally_often() {
        let draws = draws(json!({"samples": ["5ms", "1ms", "1ms", "7ms"]}));
        for (delay, share) in [(1000.0, 0.5), (5000.0, 0.25), (7000.0, 0.25)] {
            let found = draws.iter().filter(|d| **d == delay).count() as f64 / DRAWS as f64;
            assert!((found - share).abs() < 0.005, "{found} of {delay}");
        }
    }
}
