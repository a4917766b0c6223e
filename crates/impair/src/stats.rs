//! The counters of a direction: one writer, which carries the packets, and readers at any time.

use engine::counters::Count;
use serde::{Deserialize, Serialize};

/// Steps per octave of [`Lateness`]: values are known to one part in eight.
const STEPS: u32 = 8;
const STEP_BITS: u32 = STEPS.ilog2();
/// Up to 2^36 ns, over a minute.
const BUCKETS: usize = (STEPS * (36 - STEP_BITS + 1)) as usize;

/// How much later than meant packets left.
#[derive(Debug)]
struct Lateness([Count; BUCKETS]);

impl Default for Lateness {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Count::default()))
    }
}

/// The bucket of `ns`: the first 8 have a width of one, then each octave has 8.
#[inline]
fn bucket(ns: u64) -> usize {
    let octave = ns.checked_ilog2().unwrap_or(0).max(STEP_BITS) - STEP_BITS;
    let bucket = u64::from(octave * STEPS) + (ns >> octave);
    (bucket as usize).min(BUCKETS - 1)
}

/// The middle of a bucket, ns.
fn middle(bucket: usize) -> u64 {
    let octave = (bucket as u32 / STEPS).saturating_sub(1);
    let low = (bucket as u64 - u64::from(octave * STEPS)) << octave;
    low + (1 << octave) / 2
}

/// All counters of one direction, in packets on the wire.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) packets_in: Count,
    pub(crate) bytes_in: Count,
    pub(crate) packets_out: Count,
    pub(crate) bytes_out: Count,
    pub(crate) lost: Count,
    pub(crate) duplicated: Count,
    pub(crate) corrupted: Count,
    pub(crate) reordered: Count,
    pub(crate) tail_dropped: Count,
    pub(crate) red_dropped: Count,
    pub(crate) codel_dropped: Count,
    pub(crate) queue_full: Count,
    pub(crate) not_taken: Count,
    pub(crate) no_copy: Count,
    pub(crate) changes: Count,
    lateness: Lateness,
}

/// A snapshot of a direction's counters, all since the start, in packets as they are on the wire.
///
/// `packets_in + duplicated` is at any time `packets_out + held` and all that was dropped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Packets that came.
    pub packets_in: u64,
    /// Bytes that came, as on the wire.
    pub bytes_in: u64,
    /// Packets that left.
    pub packets_out: u64,
    /// Bytes that left, as on the wire.
    pub bytes_out: u64,
    /// Packets on their way now.
    pub held: u64,
    /// Lost by the loss model.
    pub lost: u64,
    /// Duplicated, as configured.
    pub duplicated: u64,
    /// With one bit flipped, as configured.
    pub corrupted: u64,
    /// Held back for others to overtake, as configured.
    pub reordered: u64,
    /// Dropped as the bottleneck's queue was full.
    pub tail_dropped: u64,
    /// Dropped by RED.
    pub red_dropped: u64,
    /// Dropped by CoDel.
    pub codel_dropped: u64,
    /// Dropped for want of memory: more was on its way than there is room for. Not configured: such a run is
    /// invalid.
    pub queue_full: u64,
    /// Dropped as the other end did not take them. Not configured either.
    pub not_taken: u64,
    /// Duplicates that were not made for want of memory.
    pub no_copy: u64,
    /// Times that parameters changed, the first setting included.
    pub changes: u64,
    /// How much later than scheduled packets left, median, ns.
    pub late_p50_ns: u64,
    /// The same, 99th percentile.
    pub late_p99_ns: u64,
    /// The same, greatest, to one part in eight.
    pub late_max_ns: u64,
}

impl Stats {
    /// All drops, configured or not.
    pub fn dropped(&self) -> u64 {
        self.lost
            + self.tail_dropped
            + self.red_dropped
            + self.codel_dropped
            + self.queue_full
            + self.not_taken
    }
}

impl Counters {
    /// `packets` left `ns` later than meant.
    #[inline]
    pub(crate) fn late(&self, ns: u64, packets: u64) {
        if let Some(count) = self.lateness.0.get(bucket(ns)) {
            count.add(packets);
        }
    }

    pub(crate) fn snapshot(&self) -> Stats {
        // What left is read before what came: held is then never negative.
        let mut stats = Stats {
            packets_out: self.packets_out.get(),
            bytes_out: self.bytes_out.get(),
            lost: self.lost.get(),
            tail_dropped: self.tail_dropped.get(),
            red_dropped: self.red_dropped.get(),
            codel_dropped: self.codel_dropped.get(),
            queue_full: self.queue_full.get(),
            not_taken: self.not_taken.get(),
            no_copy: self.no_copy.get(),
            corrupted: self.corrupted.get(),
            reordered: self.reordered.get(),
            changes: self.changes.get(),
            duplicated: self.duplicated.get(),
            packets_in: self.packets_in.get(),
            bytes_in: self.bytes_in.get(),
            ..Stats::default()
        };
        stats.held =
            (stats.packets_in + stats.duplicated).saturating_sub(stats.packets_out + stats.dropped());
        let counts: Vec<u64> = self.lateness.0.iter().map(Count::get).collect();
        let all: u64 = counts.iter().sum();
        let quantile = |share: f64| {
            let rank = ((all as f64 * share).ceil() as u64).max(1);
            let mut seen = 0;
            let at = counts.iter().position(|count| {
                seen += count;
                seen >= rank
            });
            at.map_or(0, middle)
        };
        if all > 0 {
            (stats.late_p50_ns, stats.late_p99_ns, stats.late_max_ns) =
                (quantile(0.5), quantile(0.99), quantile(1.0));
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_narrow_and_in_order() {
        let mut last = 0;
        for ns in (0..100_000).chain((17..40).map(|bits| (1 << bits) + 12345)) {
            let bucket = bucket(ns);
            assert!(bucket >= last && bucket < BUCKETS);
            last = bucket;
            if ns < 1 << 35 {
                assert!(middle(bucket).abs_diff(ns) <= ns / 8, "{ns} as {}", middle(bucket));
            }
        }
    }

    #[test]
    fn quantiles_of_lateness() {
        let counters = Counters::default();
        assert_eq!(counters.snapshot(), Stats::default());
        counters.late(100, 98);
        counters.late(10_000, 1);
        counters.late(1_000_000, 1);
        let stats = counters.snapshot();
        assert!(stats.late_p50_ns.abs_diff(100) <= 12, "{stats:?}");
        assert!(stats.late_p99_ns.abs_diff(10_000) <= 1250, "{stats:?}");
        assert!(stats.late_max_ns.abs_diff(1_000_000) <= 125_000, "{stats:?}");
    }
}
