//! How a field changes from one frame to the next.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A field and how it changes. Several vary together; with `each` they can be nested like the digits of a
/// counter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Vary {
    /// `LAYER.FIELD`, such as `ipv4.source` or `udp.destination_port`; the second layer of a kind is
    /// `ipv4[1].source`.
    pub field: String,
    /// How it changes.
    pub change: Change,
    /// Frames that keep a value. Default 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub each: u64,
}

fn one() -> u64 {
    1
}

/// How values follow each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// Up from `from`, `count` values, and again.
    Increment(Steps),
    /// Down from `from`, `count` values, and again.
    Decrement(Steps),
    /// Any from `from` to `to`, both included.
    Random(Range),
    /// One after the other, and again.
    List(Vec<Value>),
}

/// Values in steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Steps {
    /// The first value.
    pub from: Value,
    /// From one value to the next. Default 1.
    #[serde(default = "one")]
    pub step: u64,
    /// How many values before `from` comes again.
    #[schemars(range(min = 1))]
    pub count: u64,
}

/// A range of values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The least.
    pub from: Value,
    /// The greatest.
    pub to: Value,
}

/// A field's value: a number, or an address as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(u64),
    /// An IPv4, IPv6 or Ethernet address.
    Text(String),
}

/// Values at run time, one for each frame.
#[derive(Debug, Clone)]
pub(super) struct Values {
    now: u64,
    /// From one frame to the next; it wraps, so it also goes down.
    step: u64,
    /// Frames until that is not so any more: the last step was made, or a value was held long enough.
    left: u64,
    kind: Progression,
    each: u64,
}

#[derive(Debug, Clone)]
enum Progression {
    /// With a step of its own where values are held for several frames.
    Steps {
        from: u64,
        step: u64,
        count: u64,
        at: u64,
    },
    Random {
        from: u64,
        span: u64,
        rng: SmallRng,
    },
    List {
        values: Box<[u64]>,
        at: usize,
    },
    /// By the number of the device that sends, and again.
    Device(Box<[u64]>),
}

impl Values {
    /// From `from` in wrapping steps.
    pub fn steps(from: u64, step: u64, count: u64, each: u64) -> Self {
        let count = count.max(1);
        let values = Self::new(Progression::Steps { from, step, count, at: 0 }, from, each);
        if values.each == 1 { Self { step, left: count, ..values } } else { values }
    }

    /// Any from `from` to `to`.
    pub fn random(from: u64, to: u64, seed: u64, each: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let span = to.saturating_sub(from);
        let now = from + rng.random_range(0..=span);
        Self::new(Progression::Random { from, span, rng }, now, each)
    }

    /// One after the other; of none it makes zeros.
    pub fn list(values: Vec<u64>, each: u64) -> Self {
        let now = values.first().copied().unwrap_or(0);
        Self::new(Progression::List { values: values.into(), at: 0 }, now, each)
    }

    /// By the number of the device that sends, and again.
    pub fn of_devices(values: Vec<u64>) -> Self {
        Self::new(Progression::Device(values.into()), 0, 1)
    }

    /// Whether they depend on the device that sends.
    pub fn is_of_devices(&self) -> bool {
        matches!(self.kind, Progression::Device(_))
    }

    fn new(kind: Progression, now: u64, each: u64) -> Self {
        let each = each.max(1);
        Self { now, step: 0, left: each, kind, each }
    }

    /// The values for the next frames, which these devices send.
    #[inline]
    pub fn fill(&mut self, out: &mut [u64], devices: &[u32]) {
        if let Progression::Device(values) = &self.kind {
            for (out, device) in out.iter_mut().zip(devices) {
                let device = *device as usize;
                let at = if device < values.len() { device } else { device % values.len().max(1) };
                *out = values.get(at).copied().unwrap_or(0);
            }
            return;
        }
        let mut rest = out;
        while !rest.is_empty() {
            // So far all is a straight line.
            let straight = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
            let (line, more) = rest.split_at_mut(straight);
            let mut now = self.now;
            for out in line {
                *out = now;
                now = now.wrapping_add(self.step);
            }
            self.left -= straight as u64;
            if self.left == 0 {
                self.next_line();
            } else {
                self.now = now;
            }
            rest = more;
        }
    }

    /// The line ends: begin the next.
    #[inline]
    fn next_line(&mut self) {
        self.left = self.each;
        match &mut self.kind {
            Progression::Steps { from, count, .. } if self.each == 1 => {
                (self.now, self.left) = (*from, *count);
            }
            Progression::Steps { from, step, count, at } => {
                *at = if *at + 1 < *count { *at + 1 } else { 0 };
                self.now = if *at == 0 { *from } else { self.now.wrapping_add(*step) };
            }
            Progression::Random { from, span, rng } => self.now = *from + rng.random_range(0..=*span),
            Progression::List { values, at } => {
                *at = if *at + 1 < values.len() { *at + 1 } else { 0 };
                self.now = values.get(*at).copied().unwrap_or(0);
            }
            Progression::Device(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(mut values: Values, n: usize) -> Vec<u64> {
        // In pieces of all sizes, as bursts are.
        let mut out = vec![0; n];
        let mut rest = &mut out[..];
        for size in [1, 3, 2, 5, 64].into_iter().cycle() {
            let (piece, more) = rest.split_at_mut(size.min(rest.len()));
            values.fill(piece, &[]);
            rest = more;
            if rest.is_empty() {
                return out;
            }
        }
        out
    }

    #[test]
    fn values_follow_each_other_as_asked() {
        assert_eq!(first(Values::steps(7, 2, 3, 1), 7), [7, 9, 11, 7, 9, 11, 7]);
        assert_eq!(first(Values::steps(2, 1u64.wrapping_neg(), 3, 1), 4), [2, 1, 0, 2]);
        assert_eq!(first(Values::list(vec![5, 1, 9], 2), 8), [5, 5, 1, 1, 9, 9, 5, 5]);
        assert_eq!(first(Values::steps(1, 1, 2, 3), 8), [1, 1, 1, 2, 2, 2, 1, 1]);
        assert_eq!(first(Values::list(vec![], 1), 2), [0, 0]);
    }

    #[test]
    fn random_values_stay_in_range_reach_its_ends_and_repeat_with_the_seed() {
        let seen = first(Values::random(10, 13, 3, 1), 200);
        assert!((10..=13).all(|value| seen.contains(&value)) && seen.iter().all(|v| (10..=13).contains(v)));
        assert_eq!(seen, first(Values::random(10, 13, 3, 1), 200));
        assert_ne!(seen, first(Values::random(10, 13, 4, 1), 200));
        assert_eq!(first(Values::random(0, u64::MAX, 1, 1), 3).len(), 3);
    }
}
