//! Distributions of delays and counts, as results and points of a series have them.

use base64::Engine as _;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer as _, V2DeflateSerializer};
use schemars::JsonSchema;
use serde::Serialize;
use std::ops::Deref;

/// A distribution in a few numbers; nanoseconds for delays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Quantiles {
    /// How many values.
    pub count: u64,
    /// Smallest.
    pub min: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 95th percentile; null in results of a former version, whose histogram knows it.
    #[schemars(extend("default" = null))]
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Largest.
    pub max: u64,
}

/// A distribution of delays in a point of a series.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(extend("x-netdyno-base" = "Quantiles"))]
pub struct BucketedQuantiles {
    /// In a few numbers.
    #[serde(flatten)]
    pub quantiles: Quantiles,
    /// Counts by upper bound in ns, of bounds that have any, the smallest first; beyond the last they are in `count` alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<(u64, u64)>,
}

/// A distribution with everything needed to merge it with others.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(extend("x-netdyno-base" = "Quantiles"))]
pub struct Distribution {
    /// In a few numbers.
    #[serde(flatten)]
    pub quantiles: Quantiles,
    /// Standard deviation.
    pub sd: f64,
    /// 99.9th percentile less the smallest (RFC 5481 §4.2, PDV); delays only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pdv: Option<u64>,
    /// Mean change from one message of a device to its next (RFC 5481 §4.1, IPDV, magnitude); delays of confirmed messages
    /// only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<f64>,
    /// HdrHistogram V2, deflated, base64; empty where it cannot be written.
    pub hdr: String,
}

/// Upper bounds of the buckets in points of a series, ns: 1, 2.5 and 5 in each decade from 10 µs to 100 s.
pub const BUCKETS: [u64; 22] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    25_000_000_000,
    50_000_000_000,
    100_000_000_000,
];

impl From<&Histogram<u64>> for Quantiles {
    fn from(h: &Histogram<u64>) -> Self {
        if h.is_empty() {
            return Self::default();
        }
        let at = |q| h.value_at_quantile(q);
        Self {
            count: h.len(),
            min: h.min(),
            mean: h.mean(),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: h.max(),
        }
    }
}

impl From<&Histogram<u64>> for BucketedQuantiles {
    fn from(h: &Histogram<u64>) -> Self {
        let mut counts = [0; BUCKETS.len()];
        for recorded in h.iter_recorded() {
            let value = h.lowest_equivalent(recorded.value_iterated_to());
            let at = BUCKETS.partition_point(|bound| *bound < value);
            if let Some(count) = counts.get_mut(at) {
                *count += recorded.count_at_value();
            }
        }
        let buckets = BUCKETS.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect();
        Self { quantiles: h.into(), buckets }
    }
}

impl From<&Histogram<u64>> for Distribution {
    fn from(h: &Histogram<u64>) -> Self {
        let mut bytes = Vec::new();
        let written = V2DeflateSerializer::new().serialize(h, &mut bytes).is_ok();
        Self {
            quantiles: h.into(),
            sd: if h.is_empty() { 0.0 } else { h.stdev() },
            pdv: None,
            jitter: None,
            hdr: if written {
                base64::engine::general_purpose::STANDARD.encode(&bytes)
            } else {
                String::new()
            },
        }
    }
}

impl Deref for Distribution {
    type Target = Quantiles;

    fn deref(&self) -> &Quantiles {
        &self.quantiles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_in_the_bucket_that_holds_it() {
        let mut h = Histogram::<u64>::new(3).expect("three digits");
        // at a bound, just above one, below the first and beyond the last
        for value in [1_000_000, 1_010_000, 5, 200_000_000_000] {
            h.record(value).expect("within range");
        }
        let found = BucketedQuantiles::from(&h);
        assert_eq!(found.buckets, [(10_000, 1), (1_000_000, 1), (2_500_000, 1)]);
        assert_eq!(found.quantiles.count, 4);
    }
}
