//! Order and loss of a group, as results give them.

use crate::distribution::Distribution;
use crate::result::{LossPattern, ReorderDensity, Reordering};
use hdrhistogram::Histogram;
use protocol::describe::Description;
use protocol::loss_pattern::DELTA;
use protocol::meter::{Tally, histogram};
use protocol::reorder_density::{Densities, THRESHOLD};
use protocol::reordering::ReorderingTally;

/// Reordered messages. `None` where there is no order.
pub(crate) fn reordering(tally: &Tally, model: &Description) -> Option<Reordering> {
    let delivered = tally.counts.messages_delivered;
    if !model.ordered || delivered == 0 {
        return None;
    }
    let none = ReorderingTally::default();
    let seen = tally.reordering().unwrap_or(&none);
    let density = density(&seen.densities, delivered);
    let placed: u64 = density.displaced.values().sum();
    let away = placed - density.displaced.get(&0).copied().unwrap_or(0);
    let share = |n: u64| n as f64 / delivered as f64;
    Some(Reordering {
        ratio: share(tally.counts.reordered),
        by_three: share(seen.by_three),
        extent: (&seen.extent).into(),
        late: (&seen.late).into(),
        displaced: share(away + density.displaced_beyond),
        displacement: distribution(density.displaced.iter().map(|(at, n)| (at.unsigned_abs(), *n))),
        waiting: distribution(density.waiting.iter().map(|(at, n)| (*at, *n))),
        density,
    })
}

/// Pattern of the lost messages. `None` where there is no order.
pub(crate) fn loss_pattern(tally: &Tally, model: &Description) -> Option<LossPattern> {
    if !model.ordered || tally.counts.messages_delivered == 0 {
        return None;
    }
    let none = ReorderingTally::default();
    let patterns = &tally.reordering().unwrap_or(&none).losses;
    let lost = patterns.lost();
    Some(LossPattern {
        delta: DELTA,
        noticeable: (lost > 0).then(|| patterns.noticeable(DELTA) as f64 / lost as f64),
        length: (&patterns.lengths).into(),
        distance: (&patterns.distances).into(),
        between: (&patterns.between).into(),
    })
}

/// The whole densities: what was not seen to be elsewhere was at its place, and nothing waited.
fn density(seen: &Densities, delivered: u64) -> ReorderDensity {
    let some = |frequencies: &[u64]| -> Vec<(u64, u64)> {
        (1..).zip(frequencies.iter().copied()).filter(|(_, n)| *n > 0).collect()
    };
    let (early, late, waiting) = (some(&seen.early), some(&seen.late), some(&seen.waiting));
    let sum = |of: &[(u64, u64)]| of.iter().map(|(_, n)| n).sum::<u64>();
    let in_place = delivered.saturating_sub(sum(&early) + sum(&late) + seen.displaced_beyond);
    let without = delivered.saturating_sub(sum(&waiting) + seen.waited_beyond);
    let signed = |sign: i64| move |(at, n): (u64, u64)| (sign * at as i64, n);
    let displaced = early.into_iter().map(signed(-1)).chain(late.into_iter().map(signed(1)));
    ReorderDensity {
        threshold: THRESHOLD,
        displaced: displaced.chain((in_place > 0).then_some((0, in_place))).collect(),
        displaced_beyond: seen.displaced_beyond,
        waiting: waiting.into_iter().chain((without > 0).then_some((0, without))).collect(),
        waited_beyond: seen.waited_beyond,
    }
}

fn distribution(frequencies: impl Iterator<Item = (u64, u64)>) -> Distribution {
    let mut all: Histogram<u64> = histogram();
    for (at, n) in frequencies {
        let _grown = all.record_n(at, n);
    }
    (&all).into()
}
