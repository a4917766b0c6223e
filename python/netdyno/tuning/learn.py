"""Make experience: measure a few settings over a grid of services and paths, unattended and resumable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from netdyno.experiment.measurer import SettingMeasurer
from netdyno.experiment.record import Record, TrialRecord
from netdyno.stats.estimate import mean
from netdyno.stats.observation import Metric, Setting, Value
from netdyno.stats.paired import blocks
from netdyno.tuning.features import Features, completed, features
from netdyno.tuning.gain import gain, has_metrics
from netdyno.tuning.recommend import Context, Experience


@dataclass(frozen=True)
class GridPoint:
    """A point of the grid: one service over one path."""

    name: str
    metric: str
    """What is to be made better."""
    path: Features = field(default_factory=dict)
    """What is known of the path, where no connection tells it."""


def learn(
    places: Sequence[GridPoint],
    bench: Callable[[GridPoint], SettingMeasurer],
    settings: Mapping[str, Setting],
    record: Record,
    machine: Mapping[str, Any],
    *,
    pairs: int = 2,
    seed: int = 1,
    starts: Mapping[str, Value] | None = None,
) -> Experience:
    """Measure every setting beside the baseline at every place, in blocks of drawn order.

    A place whose baseline fails is left out, and so is a setting where it fails. What is disturbed is
    measured again once. `starts`: what the parameters are in the baseline.
    """
    contexts = []
    names = list(settings)
    arms: list[Setting] = [{}, *settings.values()]
    for number, place in enumerate(places):
        made = bench(place)
        metric = made.metrics[place.metric]
        seen: list[dict[int, TrialRecord]] = []
        for index, block in enumerate(blocks(len(arms), pairs, seed + number)):
            trials: dict[int, TrialRecord] = {}
            for arm in block:
                phase = f"{place.name}: {names[arm - 1] if arm else 'baseline'}"
                trials[arm] = record.fair(
                    made, phase, index, arms[arm], seed * 100_003 + number * 101 + index
                )
            seen.append(trials)
        rested = [t[0].observation for t in seen if has_metrics(t[0].observation, place.metric)]
        if not rested:
            continue
        gains: dict[str, list[float]] = {}
        for arm, name in enumerate(names, 1):
            for trials in seen:
                before, after = trials[0].observation, trials[arm].observation
                if has_metrics(before, place.metric) and has_metrics(after, place.metric):
                    better = alike(metric, after.metrics[place.metric], before.metrics[place.metric])
                    gains.setdefault(name, []).append(better)
        each = [completed(features(o.counters, o.seconds), place.path) for o in rested]
        known = set.intersection(*(set(one) for one in each))
        middle = {n: mean([one[n] for one in each]) for n in sorted(known)}
        contexts.append(Context(place.name, middle, place.metric, gains))
    return Experience(machine, settings, tuple(contexts), starts or {})


def alike(metric: Metric, value: float, reference: float) -> float:
    """A gain to be laid beside those of other metrics: all failures gone are as much as a factor of e."""
    if not metric.zero_is_best:
        return gain(metric, value, reference)
    few = 0.01 if metric.unit == "ratio" else 10.0
    return (reference - value) / max(reference, value, few)
