"""A against A: how much a bench differs from itself, and the least change that it can therefore show."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from netdyno import files, paths, reading
from netdyno.errors import Error
from netdyno.stats.comparison import loss_words, repeats
from netdyno.stats.estimate import mean, sd
from netdyno.stats.observation import Metric
from netdyno.stats.paired import autocorrelation, effect, least_pairs
from netdyno.stats.pairs import FAILURES, Pair, both, lost, valid
from netdyno.stats.power import detectable, pair_scale
from netdyno.stats.unpaired import holm
from netdyno.system.proc import boot_id

LEAST = 2
"""Pairs without which there is no noise to tell."""
MAX_AGE = 24 * 3600.0
"""Seconds for which a calibration is good."""


@dataclass(frozen=True)
class Noise:
    """How one metric varies when nothing is changed."""

    metric: Metric
    n: int
    """Pairs it is known from."""
    mean: float
    sd: float
    spread: float
    """How much the log ratio of two trials beside each other varies: a robust standard deviation."""
    detectable: float
    """The least change that a comparison of `for_pairs` finds with a power of 80 %; infinite of counts that
    can be nothing."""
    autocorrelation: float
    """Lag-1 autocorrelation of the trials."""
    p: float
    """Of the test whether A differs from A, corrected: it should not."""


@dataclass(frozen=True)
class Calibration:
    """The noise of every metric of a bench."""

    bench: str
    """What was calibrated, as the bench describes itself."""
    level: float
    pairs: int
    dropped: int
    for_pairs: int
    """As many as a comparison would take."""
    noise: tuple[Noise, ...]
    takes: int = 0
    """Pairs with fewer of which A could not be seen to differ from A, however much it does."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Of the pairs that do not count: how many were lost to what."""
    again: Mapping[str, int] = field(default_factory=dict)
    """Trials that were measured again, by what they were lost to."""
    at: float = 0.0
    boot: str = ""
    longest: float = 0.0
    """Seconds that the longest of its trials that count took."""

    @property
    def noise_by_metric(self) -> dict[str, tuple[float, int]]:
        """Spread of each metric, and the pairs that it is known from, as `judge` takes it."""
        return {one.metric.name: (one.spread, one.n) for one in self.noise}

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity."""
        plain = asdict(self)
        for one in plain["noise"]:
            one["detectable"] = one["detectable"] if math.isfinite(one["detectable"]) else None
        return plain

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Calibration:
        """What `as_dict` made."""
        noise = tuple(
            Noise(**{**one, "metric": Metric(**one["metric"]), "detectable": one["detectable"] or math.inf})
            for one in plain["noise"]
        )
        return cls(**{**plain, "noise": noise})


def calibration(
    bench: str,
    pairs: Sequence[Pair],
    metrics: Mapping[str, Metric],
    *,
    level: float = 0.05,
    again: Mapping[str, int] | None = None,
) -> Calibration:
    """What pairs of equal settings tell of the noise; raises where there are none to tell it."""
    counted = valid(pairs)
    if len(counted) < LEAST:
        gone = lost(pairs)
        what = f"too few valid pairs: {len(counted)} of the {LEAST} that a noise takes" + loss_words(
            gone, len(pairs) - len(counted)
        )
        fix = "Repeat it when the machine is quieter, or with more --spare"
        if not any(one.metrics for pair in pairs for one in pair) and len(gone) == 1:
            trials = 2 * len(pairs)
            what = f"no trial succeeded: {trials} of {trials} failed for the same reason: {pairs[0][0].why}"
        if gone and all(one.startswith(FAILURES) for one in gone):
            fix = "Make the load work first: run it by itself, and see what it says"
        raise Error("ND-90-31", what, at=bench, fix=fix)
    found: list[Noise] = []
    take = repeats(len(metrics), level, len(pairs))
    series = sorted((one for pair in counted for one in pair), key=lambda seen: seen.started)
    for name, metric in metrics.items():
        if not (together := both(counted, name)):
            continue
        a, b = zip(*together, strict=True)
        made = effect(a, b, absolute=metric.zero_is_best)
        spread = pair_scale(a, b)
        least = math.inf if made.absolute else detectable(spread, len(a), take, level, tests=len(metrics))
        values = [one.metrics[name] for one in series if name in one.metrics]
        found.append(
            Noise(metric, len(a), mean(values), sd(values), spread, least, autocorrelation(values), made.p)
        )
    corrected = holm([one.p for one in found])
    noise = tuple(Noise(**{**vars(one), "p": p}) for one, p in zip(found, corrected, strict=True))
    return Calibration(
        bench, level, len(counted), len(pairs) - len(counted), take, noise,
        takes=least_pairs(level, len(metrics)), lost=lost(pairs), again=dict(again or {}),
        at=time.time(), boot=boot_id(), longest=max(one.seconds for one in series),
    )  # fmt: skip


def path(bench: str) -> Path:
    """Where the calibration of a bench is kept."""
    name = "".join(c if c.isalnum() or c in "-._" else "_" for c in bench)[:120]
    return paths.state() / "tuning" / "calibration" / f"{name}.json"


def save(made: Calibration) -> Path:
    """Keep it for later comparisons."""
    where = path(made.bench)
    files.make_folder(where.parent)
    files.write(where, json.dumps(made.as_dict(), indent=2) + "\n")
    return where


def load(bench: str) -> Calibration | None:
    """The calibration of a bench, if there is one of this boot that is not old."""
    try:
        found = Calibration.of(reading.record(path(bench)))
    except (Error, ValueError, TypeError, KeyError, AttributeError):
        return None
    fresh = found.boot == boot_id() and 0 <= time.time() - found.at < MAX_AGE
    return found if fresh and found.bench == bench else None
