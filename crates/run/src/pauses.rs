//! Pauses of workers as results have them.

use schemars::JsonSchema;
use serde::Serialize;

/// Lengths that are told apart.
pub const LENGTHS: usize = 8;

/// Times in a row in which a worker had no CPU, or a turn of its took long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(into = "PauseSummary")]
pub struct Pauses {
    /// What the shortest that count are at least, ns; each next length is twice the one before.
    pub from_ns: u64,
    /// How many, by length.
    pub count: [u64; LENGTHS],
    /// Their time, ns, by length.
    pub ns: [u64; LENGTHS],
    /// The longest, ns.
    pub longest_ns: u64,
}

impl Pauses {
    /// What came since `then`, of which the longest is known.
    pub fn since(&self, then: &Self, longest_ns: u64) -> Self {
        let less = |now: [u64; LENGTHS], then: [u64; LENGTHS]| {
            std::array::from_fn(|length| now[length].saturating_sub(then[length]))
        };
        let (count, ns) = (less(self.count, then.count), less(self.ns, then.ns));
        Self { from_ns: self.from_ns, count, ns, longest_ns }
    }

    /// With these as well.
    pub fn add(&mut self, more: &Self) {
        self.from_ns = more.from_ns;
        self.count.iter_mut().zip(more.count).for_each(|(sum, more)| *sum += more);
        self.ns.iter_mut().zip(more.ns).for_each(|(sum, more)| *sum += more);
        self.longest_ns = self.longest_ns.max(more.longest_ns);
    }
}

/// [`Pauses`] as results have them.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Pauses")]
struct PauseSummary {
    /// How many.
    count: u64,
    /// Their time, ns.
    ns: u64,
    /// The longest, ns.
    longest_ns: u64,
    /// By length, the shortest first; only those that occurred.
    lengths: Vec<PauseLength>,
}

/// Pauses of about one length.
#[derive(Serialize, JsonSchema)]
struct PauseLength {
    /// Their least length, ns; the next length is twice that.
    from_ns: u64,
    /// How many.
    count: u64,
    /// Their time, ns.
    ns: u64,
}

impl From<Pauses> for PauseSummary {
    fn from(pauses: Pauses) -> Self {
        let length = |(length, (count, ns)): (usize, (u64, u64))| PauseLength {
            from_ns: pauses.from_ns << length,
            count,
            ns,
        };
        let lengths = pauses.count.into_iter().zip(pauses.ns).enumerate().map(length);
        Self {
            count: pauses.count.iter().sum(),
            ns: pauses.ns.iter().sum(),
            longest_ns: pauses.longest_ns,
            lengths: lengths.filter(|length| length.count > 0).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn they_are_told_by_length() {
        let mut pauses = Pauses { from_ns: 100_000, longest_ns: 3_000_000, ..Pauses::default() };
        (pauses.count[1], pauses.ns[1], pauses.count[4], pauses.ns[4]) = (2, 500_000, 1, 3_000_000);
        let lengths = [(200_000, 2, 500_000), (1_600_000, 1, 3_000_000)]
            .map(|(from, count, ns)| json!({"from_ns": from, "count": count, "ns": ns}));
        let shown = json!({"count": 3, "ns": 3_500_000, "longest_ns": 3_000_000, "lengths": lengths});
        assert_eq!(serde_json::to_value(pauses).expect("JSON"), shown);
        let none = json!({"count": 0, "ns": 0, "longest_ns": 0, "lengths": []});
        assert_eq!(serde_json::to_value(Pauses::default()).expect("JSON"), none);
    }

    #[test]
    fn intervals_add_up_to_the_whole() {
        let at = |count: u64| Pauses {
            from_ns: 100_000,
            count: [count; LENGTHS],
            ns: [count * 9; LENGTHS],
            longest_ns: count,
        };
        let mut sum = at(7).since(&at(0), 5);
        sum.add(&at(9).since(&at(7), 2));
        assert_eq!(sum, Pauses { longest_ns: 5, ..at(9) });
    }
}
