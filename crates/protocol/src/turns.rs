//! Whose turn it is where several machines share one load: arrivals of all together are as even as those of one.

/// The devices of this machine and of the others that share the load. The turns of all machines are the order of the
/// moments `(2m + 1) / (2 · devices)`, as seats are given to parties by Sainte-Laguë; at the same moment the machine that comes
/// first in the list has the turn. So each turn is of exactly one of them, and none has two where another has waited longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turns {
    own: u64,
    /// Devices and how many machines have so many.
    before: Vec<(u64, u64)>,
    after: Vec<(u64, u64)>,
    total: u64,
    worker: u64,
    workers: u64,
}

impl Turns {
    /// `own`: devices of this machine; `before`, `after`: how many devices how many other machines have, of those before
    /// and behind it in the list of all.
    pub fn new(own: u32, before: &[(u32, u32)], after: &[(u32, u32)]) -> Self {
        let wide = |some: &[(u32, u32)]| -> Vec<(u64, u64)> {
            some.iter().filter(|(d, _)| *d > 0).map(|(d, n)| (u64::from(*d), u64::from(*n))).collect()
        };
        let (before, after) = (wide(before), wide(after));
        let own = u64::from(own.max(1));
        let others: u64 = before.iter().chain(&after).map(|(d, n)| d * n).sum();
        Self { own, before, after, total: own + others, worker: 0, workers: 1 }
    }

    /// Those of worker `worker` of `workers` of this machine: every `workers`th.
    #[must_use]
    pub fn of_worker(self, worker: usize, workers: usize) -> Self {
        Self { worker: worker as u64, workers: workers.max(1) as u64, ..self }
    }

    /// Whether no other machine takes part.
    pub fn is_alone(&self) -> bool {
        self.total == self.own
    }

    /// The number of our turn `i` among the turns of all.
    fn number(&self, i: u64) -> u128 {
        let i = u128::from(i) * u128::from(self.workers) + u128::from(self.worker);
        let own = u128::from(self.own);
        let earlier = |(devices, machines): &(u64, u64), even: u128| {
            let moment = (2 * i + 1) * u128::from(*devices);
            (moment + own - 1 + even) / (2 * own) * u128::from(*machines)
        };
        let before: u128 = self.before.iter().map(|some| earlier(some, 1)).sum();
        let after: u128 = self.after.iter().map(|some| earlier(some, 0)).sum();
        i + before + after
    }

    /// When our turn `i` is, in mean gaps of ours: that of the middle of its place among all.
    pub fn moment(&self, i: u64) -> f64 {
        (self.number(i) as f64 + 0.5) * self.scale()
    }

    /// From our turn `i` to the next, in mean gaps of ours.
    pub fn gap(&self, i: u64) -> f64 {
        (self.number(i + 1) - self.number(i)) as f64 * self.scale()
    }

    fn scale(&self) -> f64 {
        self.own as f64 / (self.total as f64 * self.workers as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Turns of each machine of those with so many devices.
    fn of_all(devices: &[u32]) -> Vec<Turns> {
        let some = |part: &[u32]| part.iter().map(|d| (*d, 1)).collect::<Vec<_>>();
        (0..devices.len())
            .map(|i| Turns::new(devices[i], &some(&devices[..i]), &some(&devices[i + 1..])))
            .collect()
    }

    proptest! {
        #[test]
        fn each_turn_is_of_one_machine_and_worker(
            devices in proptest::collection::vec(1u32..60, 1..9), workers in 1usize..4,
        ) {
            let all = of_all(&devices);
            let mut seen: Vec<u128> = all
                .iter()
                .flat_map(|machine| (0..workers).map(|worker| machine.clone().of_worker(worker, workers)))
                .flat_map(|turns| (0..300).map(move |i| turns.number(i)).collect::<Vec<_>>())
                .collect();
            seen.sort_unstable();
            // all machines have had 300 turns of each worker by then
            let least = *devices.iter().max().unwrap() as usize;
            let total: u32 = devices.iter().sum();
            // of each, what is a part of a turn then has not come
            let complete = (300 * workers * total as usize / least).saturating_sub(devices.len());
            for (number, turn) in seen.iter().take(complete).enumerate() {
                prop_assert_eq!(*turn, number as u128);
            }
        }

        #[test]
        fn a_round_has_a_turn_for_each_device(devices in proptest::collection::vec(1u32..60, 1..9)) {
            let total: u32 = devices.iter().sum();
            for (turns, own) in of_all(&devices).iter().zip(&devices) {
                prop_assert!(turns.number(u64::from(*own) - 1) < u128::from(total));
                prop_assert!(turns.number(u64::from(*own)) >= u128::from(total));
            }
        }
    }

    #[test]
    fn machines_of_one_size_take_turns() {
        let all = of_all(&[2, 2, 2]);
        for (k, turns) in all.iter().enumerate() {
            let expected: Vec<u128> = (0..4).map(|i| i * 3 + k as u128).collect();
            assert_eq!((0..4).map(|i| turns.number(i)).collect::<Vec<_>>(), expected);
            assert!(
                (turns.moment(0) - (k as f64 + 0.5) / 3.0).abs() < 1e-12
                    && (turns.gap(7) - 1.0).abs() < 1e-12
            );
        }
        let numbers = |turns: &Turns| (0..4).map(|i| turns.number(i)).collect::<Vec<_>>();
        assert_eq!(of_all(&[3, 1]).iter().map(numbers).collect::<Vec<_>>(), [[0, 1, 3, 4], [2, 6, 10, 14]]);
    }

    #[test]
    fn one_machine_alone_has_every_turn() {
        let turns = Turns::new(7, &[], &[]).of_worker(1, 4);
        assert!(turns.is_alone());
        assert_eq!((0..3).map(|i| turns.number(i)).collect::<Vec<_>>(), [1, 5, 9]);
        assert!((turns.moment(0) - 0.375).abs() < 1e-12);
    }
}
