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

/// Record without ever failing: values are capped, the histogram grows.
#[inline]
pub fn record(h: &mut Histogram<u64>, ns: u64) {
    let _grown = h.record(ns.min(DELAY_MAX_NS));
}
