//! Times in 2⁻³² ns, in which all schedules count: a rate that does not divide a second is met however long a run is.

use crate::time::Time;
use rand::Rng;
use rand_distr::{Distribution, Exp1};

/// Bits of a nanosecond.
pub const FRACTION: u32 = 32;
/// The largest moment that still shows as its nanosecond.
pub const LAST: u128 = (1 << FRACTION) - 1;

/// So many nanoseconds.
#[inline]
pub fn of_ns(ns: u64) -> u128 {
    u128::from(ns) << FRACTION
}

/// About so many nanoseconds, at least one step of the count and at most a million years.
pub fn of_ns_f64(ns: f64) -> u128 {
    ((ns * (1u64 << FRACTION) as f64) as u128).clamp(1, 1 << 95)
}

/// The nanosecond that it is in; the last there is when it is after that.
#[inline]
pub fn time(at: u128) -> Time {
    Time(u64::try_from(at >> FRACTION).unwrap_or(u64::MAX))
}

/// Of a Poisson process, the time to the next event in units of the mean.
#[inline]
pub fn exponential(rng: &mut impl Rng) -> f64 {
    Exp1.sample(rng)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    #[test]
    fn nanoseconds_are_whole_and_the_rest_is_kept() {
        assert_eq!(of_ns(7), 7 << 32);
        assert_eq!(of_ns_f64(7.5), (15 << 32) / 2);
        assert_eq!(
            (of_ns_f64(0.0), of_ns_f64(-1.0), of_ns_f64(f64::NAN), of_ns_f64(1e300)),
            (1, 1, 1, 1 << 95)
        );
        assert_eq!((time(of_ns(7) + LAST), time(of_ns(8))), (Time(7), Time(8)));
        assert_eq!(time(u128::MAX), Time(u64::MAX));
    }

    #[test]
    fn times_between_random_events_have_the_mean_and_the_spread_of_an_exponential() {
        let mut rng = SmallRng::seed_from_u64(1);
        let gaps: Vec<f64> = (0..200_000).map(|_| exponential(&mut rng)).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // The standard error of the mean is 0.0022 here; the seed is fixed.
        assert!((mean - 1.0).abs() < 0.01 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }
}
