//! Histograms of delays, in nanoseconds.

use hdrhistogram::Histogram;

/// Nothing waits longer than this: delays are capped at ten minutes.
pub const DELAY_MAX_NS: u64 = 600_000_000_000;

/// A delay histogram: three significant digits, grows as needed.
pub fn histogram() -> Histogram<u64> {
    match Histogram::new(3) {
        Ok(h) => h,
        Err(_) => unreachable!("three digits is within what the library takes"),
    }
}

/// Those bits of a delay by which a [`histogram`] goes: of two delays that have the same ones, and the lower bits are not
/// among them, it cannot tell which it was given.
#[inline]
pub fn bucket_bits(ns: u64) -> u64 {
    /// Below this, each value has a bucket of its own; above, there are half as many for each power of two.
    const EXACT: u64 = 2048;
    u64::MAX << (EXACT.leading_zeros() + 1).saturating_sub((ns | (EXACT - 1)).leading_zeros())
}

/// Record without ever failing: values are capped, the histogram grows.
#[inline]
pub fn record(h: &mut Histogram<u64>, ns: u64) {
    let _grown = h.record(ns.min(DELAY_MAX_NS));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn delays_with_the_same_bits_are_one_to_the_histogram(ns in 0..=DELAY_MAX_NS, shift in 0u32..40, by in 0u64..4096) {
            let (h, ns) = (histogram(), ns >> shift);
            let bits = bucket_bits(ns);
            for other in [ns.saturating_sub(by), ns + by, ns & bits, ns | !bits, (ns & bits).saturating_sub(1), (ns | !bits) + 1] {
                prop_assert_eq!(other & bits == ns & bits, h.equivalent(ns, other), "{} {}", ns, other);
            }
        }
    }
}
