//! Answer times by how many devices were waiting when each wait began: they tell a server that slows down under the load
//! from connections that are too few for it.
//!
//! A server that answers each request after the same time, however many there are, takes as long with all devices waiting
//! as with one. A server at its limit queues: the more devices wait, the longer each does.

/// Numbers of waiting devices that have a class each; above, there is one for each power of two.
const EXACT: u32 = 8;
/// Number of classes.
const CLASSES: usize = 32;
/// Share of the devices from which on all count as busy.
const BUSY: (u32, u32) = (3, 4);
/// Waits of few devices that a comparison takes.
const FEW: u64 = 4;
/// How many standard errors the mean of these must lie below the mean with all devices busy.
const SIGMAS: f64 = 4.0;
/// By how much answers must take longer, as a factor.
const SLOWER: f64 = 1.5;

/// How many devices were waiting when a wait began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Concurrency(u8);

impl Concurrency {
    /// Of a wait that is not for an answer.
    pub const IGNORED: Self = Self(u8::MAX);
    const ALL: u8 = CLASSES as u8;

    /// `waiting` of `devices`, the one that begins to wait among them.
    #[inline]
    pub fn of(waiting: u32, devices: u32) -> Self {
        let busy = u64::from(waiting) * u64::from(BUSY.1) >= u64::from(devices) * u64::from(BUSY.0);
        match waiting {
            _ if busy => Self(Self::ALL),
            0..=EXACT => Self(waiting.saturating_sub(1) as u8),
            _ => Self(((EXACT + waiting.ilog2() - EXACT.ilog2()) as u8).min(Self::ALL - 1)),
        }
    }

    /// The most waiting devices of a class.
    fn class_maximum(class: usize) -> u64 {
        match class as u32 {
            class @ 0..EXACT => u64::from(class) + 1,
            class => (2 << (class - EXACT + EXACT.ilog2())) - 1,
        }
    }
}

/// Number, sum and sum of squares of times, ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Moments {
    count: u64,
    sum: u64,
    squares: u128,
}

impl Moments {
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.squares = self.squares.saturating_add(other.squares);
    }

    fn mean(&self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64
    }

    fn deviation(&self) -> f64 {
        let mean = self.mean();
        (self.squares as f64 / self.count.max(1) as f64 - mean * mean).max(0.0).sqrt()
    }
}

/// Answer times of a group's devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnswerTimes {
    few: [Moments; CLASSES],
    busy: Moments,
}

/// Mean answer times of a server that answers later the more devices wait, ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slowdown {
    /// With few devices waiting.
    pub few: f64,
    /// With all of them waiting.
    pub busy: f64,
}

impl AnswerTimes {
    /// A wait that began with so many devices waiting took `took` ns.
    #[inline]
    pub fn record(&mut self, concurrency: Concurrency, took: u64) {
        let moments = match concurrency {
            Concurrency::IGNORED => return,
            Concurrency(Concurrency::ALL) => &mut self.busy,
            Concurrency(class) => &mut self.few[usize::from(class)],
        };
        moments.add(&Moments { count: 1, sum: took, squares: u128::from(took).pow(2) });
    }

    /// Add those of another worker or interval.
    pub fn add(&mut self, other: &Self) {
        self.few.iter_mut().zip(&other.few).for_each(|(mine, theirs)| mine.add(theirs));
        self.busy.add(&other.busy);
    }

    /// How much longer answers took with all devices waiting than with few, of workers with `devices` each. `None`: they
    /// did not, or there is too little to tell by.
    pub fn slowdown(&self, devices: u32) -> Option<Slowdown> {
        let mut few = Moments::default();
        let mut least = f64::INFINITY;
        for (class, moments) in self.few.iter().enumerate() {
            if few.count >= FEW || 2 * Concurrency::class_maximum(class) > u64::from(devices) {
                break;
            }
            if moments.count > 0 {
                least = least.min(moments.mean());
            }
            few.add(moments);
        }
        let (busy, error) = (self.busy.mean(), self.busy.deviation() / (few.count.max(1) as f64).sqrt());
        let known = few.count >= FEW && self.busy.count >= FEW;
        let slower = busy >= SLOWER * few.mean() && busy - few.mean() >= SIGMAS * error;
        // with few devices the answer times grow already: those with the fewest are nearest to an idle server's
        (known && slower).then(|| Slowdown { few: least.min(few.mean()), busy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Ten devices: the waits of a ramp, and a hundred with all of them busy.
    fn times(ramp: &[(u32, u64)], busy: impl Fn(u64) -> u64) -> Option<Slowdown> {
        let mut times = AnswerTimes::default();
        for (waiting, took) in ramp {
            times.record(Concurrency::of(*waiting, 10), took * MS);
        }
        for i in 0..100 {
            times.record(Concurrency::of(10, 10), busy(i) * MS);
        }
        times.slowdown(10)
    }

    #[test]
    fn a_server_that_queues_is_slower_the_more_devices_wait() {
        let ramp = [(1, 20), (1, 20), (2, 40), (3, 60), (4, 80), (7, 140)];
        let found = times(&ramp, |i| 190 + i % 20).expect("slower");
        assert!((found.few - 20.0 * MS as f64).abs() < 1.0, "{found:?}");
        assert!((found.busy - 199.5 * MS as f64).abs() < 1.0, "{found:?}");
    }

    #[test]
    fn a_server_that_takes_its_time_is_not() {
        let ramp = [(1, 100), (1, 100), (2, 100), (3, 100), (4, 101)];
        assert_eq!(times(&ramp, |i| 99 + i % 3), None);
        assert_eq!(times(&ramp, |i| 129 + i % 3), None, "less than half as long again");
    }

    #[test]
    fn answer_times_that_vary_by_themselves_prove_nothing() {
        // nine of ten answers after 1 ms, one after 2 s, and the first ones are of those
        let ramp: Vec<_> = (0..20).map(|_| (1, 1)).collect();
        assert_eq!(times(&ramp, |i| if i % 10 == 0 { 2000 } else { 1 }), None);
    }

    #[test]
    fn without_waits_of_few_devices_there_is_nothing_to_compare() {
        assert_eq!(times(&[(1, 20), (2, 20), (5, 20)], |_| 200), None, "three are too few");
        assert_eq!(times(&[(6, 20), (7, 20), (6, 20), (7, 20)], |_| 200), None, "over half of them wait");
        let mut alone = AnswerTimes::default();
        (0..100).for_each(|i| alone.record(Concurrency::of(1, 1), i * MS));
        assert_eq!(alone.slowdown(1), None, "one device is all of them");
        alone.record(Concurrency::IGNORED, 1);
        assert_eq!(alone.busy.count, 100);
    }

    #[test]
    fn each_number_of_waiting_devices_has_a_class() {
        for waiting in [1, 2, 7, 8, 9, 15, 16, 31, 32, 1 << 20] {
            let Concurrency(class) = Concurrency::of(waiting, u32::MAX);
            assert!(
                usize::from(class) < CLASSES
                    && u64::from(waiting) <= Concurrency::class_maximum(class.into())
            );
            assert!(
                class == 0 || u64::from(waiting) > Concurrency::class_maximum(usize::from(class) - 1),
                "{waiting}"
            );
        }
        assert_eq!(Concurrency::of(u32::MAX, u32::MAX), Concurrency(Concurrency::ALL));
    }

    #[test]
    fn two_devices_can_tell() {
        let mut pair = AnswerTimes::default();
        (0..10).for_each(|_| pair.record(Concurrency::of(1, 2), 20 * MS));
        (0..10).for_each(|_| pair.record(Concurrency::of(2, 2), 40 * MS));
        assert!(pair.slowdown(2).is_some());
        let mut sum = AnswerTimes::default();
        (0..3).for_each(|_| sum.add(&pair));
        assert_eq!((sum.few[0].count, sum.busy.count), (30, 30));
    }
}
